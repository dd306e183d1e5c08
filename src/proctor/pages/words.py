"""Values as people read them, for templates: times, durations, shares, and text of strangers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from proctor.model.numbers import read_digits
from proctor.report.catalogue import Catalogue, speak
from proctor.report.html_text import duration_words
from proctor.report.neutral import to_block, to_lines, to_one_line
from proctor.store.bodies import to_json

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


def show_duration(ms: float | None, words: Catalogue | None = None) -> str:
    """Return a duration in words."""
    return "" if ms is None else duration_words(ms, words)


def measure_run_ms(run: Mapping[str, Any]) -> float | None:
    """Return how long a run took, once it has ended."""
    if not run["started_at"] or not run["completed_at"]:
        return None
    begun, ended = (datetime.fromisoformat(run[name]) for name in ("started_at", "completed_at"))
    return max(0.0, (ended - begun).total_seconds() * 1000)


def show_share(share: float, words: Catalogue | None = None) -> str:
    """Return a share as a percentage; 100 % and 0 % only where nothing is missing."""
    percent = share * 100
    if 0 < percent < 0.1:
        written = "<0.1 %"
    elif 99.9 < percent < 100:
        written = ">99.9 %"
    else:
        written = f"{percent:.1f}".removesuffix(".0") + " %"
    return speak(words).write_figure(written)


def show_figure(value: float, words: Catalogue | None = None) -> str:
    """Return a number as it is written in a language, whole where it is."""
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 10**15)
    return speak(words).write_figure(f"{int(value):,}" if whole else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}")


def translate(text: str, words: Catalogue | None = None) -> str:
    """Return what the program itself says of a form or a field, in a language; other texts as they are."""
    return speak(words).translate(text)


def show_value(value: object) -> str:
    """Return a value as JSON, and a text as it is: never as Python would write it."""
    return value if isinstance(value, str) else to_json(value).decode(errors="replace")


def quote_part(text: str) -> str:
    """Return text as one part of an address."""
    return quote(text, safe="")


def find_project_address(project_id: str, *parts: str) -> str:
    """Return the address of a project, or with `runs`, `ID` of a page in it."""
    return "/".join(("/ui/p", *map(quote_part, (project_id, *parts))))


def read_number(text: str | None, largest: int = 10**9) -> int:
    """Return a whole number that stands in an address; 0 for what is none."""
    return min(largest, read_digits(text, 11) or 0)


def read_typed_number(text: str, *, whole: bool = False) -> float | int:
    """Return a number that somebody typed, with a point or a comma before its decimals. Raises `ValueError`."""
    text = text.strip()
    if (_WHOLE_THOUSANDS if whole else _THOUSANDS).fullmatch(text):
        # Which of both is meant depends on the language of whoever typed it: 1,000 is a thousand or one.
        raise ValueError("expected a number without separators between thousands")
    if _WHOLE.fullmatch(text):
        return int(text)
    # Not all that `float` takes: nan, inf, 1_000 and the digits of every script.
    if not _NUMBER.fullmatch(text) or not math.isfinite(number := float(text.replace(",", "."))):
        raise ValueError("expected a number")
    return number


_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+[.,]?[0-9]*|[.,][0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_WHOLE_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")


def show_block(text: str) -> str:
    """Return text of strangers with its lines, every character that hides or misleads as its escape."""
    return to_block(text)


FILTERS: dict[str, Callable[..., Any]] = {
    "shown": show_text,
    "shown_lines": show_lines,
    "time_text": show_time,
    "run_ms": measure_run_ms,
    "part": quote_part,
    "block": show_block,
    "value": show_value,
}
"""What templates may call."""
SPOKEN: dict[str, Callable[..., str]] = {"duration": show_duration, "share": show_share, "figure": show_figure, "translated": translate}
"""What they may call and what depends on the reader's language."""
