"""One line per figure: what was measured, the ratio, and its bound."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A measured ratio and its bound."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (self.at_least is None or self.value >= self.at_least)

    def line(self) -> str:
        bound = (
            f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}" if self.at_least is not None else ""
        )
        mark = "" if not bound else "ok  " if self.holds else "MISS"
        return f"{mark:4} {self.name:<64} {self.value:>9.2f}  {bound:<14} {self.note}"
