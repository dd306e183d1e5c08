"""Values as people read them, for templates: times, durations, shares, and text of strangers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from proctor.report.html_text import duration_words
from proctor.report.neutral import to_block, to_lines, to_one_line

OUTCOMES = ("fail", "error", "pass", "skip")
"""In the order in which they are worth a look."""


def show_text(text: object, limit: int = 200) -> str:
    """Return text of strangers on one line, shortened, with every character that hides or misleads as its escape."""
    return to_one_line(str(text), limit)


def show_lines(text: object) -> str:
    """Return text of strangers with its lines, and every other character that hides or misleads as its escape."""
    return "\n".join(to_lines(str(text), limit=len(str(text)) + 1, most_lines=100_000))


def show_time(at: str | None) -> str:
    """Return a time as it is read without script: the day and the minute, in UTC."""
    return "" if not at else f"{at[:10]} {at[11:16]} UTC"


def show_duration(ms: float | None) -> str:
    """Return a duration in words."""
    return "" if ms is None else duration_words(ms)


def measure_run_ms(run: Mapping[str, Any]) -> float | None:
    """Return how long a run took, once it has ended."""
    if not run["started_at"] or not run["completed_at"]:
        return None
    begun, ended = (datetime.fromisoformat(run[name]) for name in ("started_at", "completed_at"))
    return max(0.0, (ended - begun).total_seconds() * 1000)


def show_share(share: float) -> str:
    """Return a share as a percentage; 100 % and 0 % only where nothing is missing."""
    percent = share * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f}".removesuffix(".0") + " %"


def quote_part(text: str) -> str:
    """Return text as one part of an address."""
    return quote(text, safe="")


def read_number(text: str | None, largest: int = 10**9) -> int:
    """Return a whole number that stands in an address; 0 for what is none."""
    return min(largest, int(text)) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0


def show_block(text: str) -> str:
    """Return text of strangers with its lines, every character that hides or misleads as its escape."""
    return to_block(text)


FILTERS: dict[str, Callable[..., Any]] = {
    "shown": show_text,
    "shown_lines": show_lines,
    "time_text": show_time,
    "duration": show_duration,
    "run_ms": measure_run_ms,
    "share": show_share,
    "part": quote_part,
    "block": show_block,
}
"""What templates may call."""
