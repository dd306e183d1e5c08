"""Values as people read them, for templates: times, durations, shares, and text of strangers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from proctor.model.json_values import read_digits
from proctor.report.words.html_text import duration_words
from proctor.report.words.neutral import to_block, to_lines, to_one_line
from proctor.report.words.wording import OUTCOME_NAMES, count_noun
from proctor.service.verification.shared.fields import label_of
from proctor.store.sql.compressed_json import to_json

OUTCOMES = ("fail", "error", "pass", "skip")
"""In the order in which they are worth a look."""


TRACE_STATUS_NAMES = {"open": "still open", "complete": "waits to be evaluated", "evaluated": "evaluated", "failed": "not readable"}
SUBJECT_NAMES = {"trace": "a trace", "result": "a result of a trace", "attempt": "an attempt of a run"}
ALERT_NAMES = {"pass_rate": "too few results pass", "failing_case": "a case fails", "missing_evidence": "evidence is missing"}
_FIELD_NAMES = {
    "window_s": "Window in seconds",
    "created_at": "Made",
    "updated_at": "Changed",
    "started_at": "Started",
    "completed_at": "Ended",
    "webhook_url": "Webhook",
    "trace_days": "Days that traces stay",
    "run_days": "Days that runs stay",
}
_NOUN_NAMES = {
    "api_keys": "Keys",
    "diff": "What differs from how it began",
    "state": "What it holds",
    "shares": "Links to this run",
}


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
        written = "<0.1 %"
    elif 99.9 < percent < 100:
        written = ">99.9 %"
    else:
        written = f"{percent:.1f}".removesuffix(".0") + " %"
    return written


def show_figure(value: float) -> str:
    """Return a number, whole where it is."""
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 10**15)
    return f"{int(value):,}" if whole else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def show_fixed(value: float, places: int = 0) -> str:
    """Return a number with so many decimals."""
    return f"{value:,.{places}f}"


def name_status(status: str) -> str:
    """Return the status of a run."""
    return "broken off" if status == "failed" else status


def name_key_kind(kind: str) -> str:
    """Return what a kind of keys is called."""
    return "run token" if kind == "run" else kind


def name_field(name: str) -> str:
    """Return what a field is called."""
    return _FIELD_NAMES.get(name) or label_of(name)


def name_noun(word: str) -> str:
    """Return what the records of a list are called."""
    key = word.replace("-", "_")
    return _NOUN_NAMES.get(key) or key.replace("_", " ").capitalize()


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
    "duration": show_duration,
    "share": show_share,
    "figure": show_figure,
    "fixed": show_fixed,
    "count_noun": count_noun,
    "outcome_name": OUTCOME_NAMES.__getitem__,
    "status_name": name_status,
    "trace_status_name": TRACE_STATUS_NAMES.__getitem__,
    "subject_name": SUBJECT_NAMES.__getitem__,
    "alert_name": ALERT_NAMES.__getitem__,
    "key_kind_name": name_key_kind,
    "field_name": name_field,
    "noun_name": name_noun,
}
"""What templates may call."""
