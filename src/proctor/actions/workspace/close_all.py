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
async def close_behind(opened: Closes) -> AsyncGenerator[None]:
    """Close it behind what is done meanwhile; where that goes wrong it is what is told, and not that closing failed as well."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            await opened.close()
        raise
    await opened.close()


async def close_all(opened: Iterable[Closes]) -> None:
    """Close all of them, whatever happens to one; the first failure is told."""
    failures: list[BaseException] = []
    for each in opened:
        try:
            await each.close()
        except BaseException as error:  # also one that was told to stop: the others are closed all the same
            failures.append(error)
    if failures:
        raise failures[0]
