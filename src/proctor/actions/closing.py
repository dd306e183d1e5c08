"""Closes several things that a run has opened: one that fails to close must not leave the others open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Closes(Protocol):
    """Something with connections to give back."""

    async def close(self) -> None:
        """Give them back."""
        ...


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
