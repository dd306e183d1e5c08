"""Closes several things that a run has opened; if one fails to close, the others are still closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Protocol


class Closes(Protocol):
    """Something with connections to close."""

    async def close(self) -> None:
        """Close them."""
        ...


@asynccontextmanager
async def close_on_exit(opened: Closes) -> AsyncGenerator[None]:
    """Close on exit. An error inside the block wins over an error while closing."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            await opened.close()
        raise
    await opened.close()


async def close_all(opened: Iterable[Closes]) -> None:
    """Close all of them even if one fails; raises the first error."""
    failures: list[BaseException] = []
    for each in opened:
        try:
            await each.close()
        except BaseException as error:  # includes cancellation: the others are still closed
            failures.append(error)
    if failures:
        raise failures[0]
