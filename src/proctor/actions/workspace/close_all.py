"""Closes several things that a run has opened: one that fails to close must not leave the others open."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Protocol


class Closes(Protocol):
    """Something with connections to give back."""

    async def close(self) -> None:
        """Give them back."""
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
    """Close all of them, whatever happens to one; raises the first failure."""
    failures: list[BaseException] = []
    for each in opened:
        try:
            await each.close()
        except BaseException as error:  # also a cancellation: the others are closed all the same
            failures.append(error)
    if failures:
        raise failures[0]
