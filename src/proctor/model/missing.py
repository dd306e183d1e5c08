"""The value that is not there, as opposed to null."""

from __future__ import annotations

from typing import Final


class Missing:
    """The type of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()
"""Stands for an absent key, index or argument."""
