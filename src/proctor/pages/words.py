"""Template filters: times, durations, shares, untrusted text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from proctor.model.json_values import is_number, read_digits
from proctor.report.words.html_text import duration_words
from proctor.report.words.neutral import to_block, to_lines, to_one_line
from proctor.report.words.tallies import name_axis
from proctor.report.words.wording import OUTCOME_NAMES, cost_words, count_noun, write_p, write_points, write_small
from proctor.service.notify.alert_kinds import KINDS
from proctor.service.notify.alerts import Alert
from proctor.service.verification.shared.fields import label_of
from proctor.store.sql.compressed_json import to_json

OUTCOMES = ("fail", "error", "pass", "skip")
"""In order of interest."""


TRACE_STATUS_NAMES = {"open": "open", "complete": "queued", "evaluated": "evaluated", "failed": "unreadable"}
SUBJECT_NAMES = {"trace": "trace", "result": "trace result", "attempt": "run attempt"}
_FIELD_NAMES = {
    "window_s": "Time window",
    "timeout_s": "Timeout (s)",
    "created_at": "Created",
    "updated_at": "Updated",
    "started_at": "Started",
    "completed_at": "Ended",
    "webhook_url": "Webhook",
    "trace_days": "Keep traces (days)",
    "run_days": "Keep runs (days)",
    "since": "From",
    "until": "Before",
    "trace_ids": "Only these traces",
}
_NOUN_NAMES = {
    "api_keys": "Keys",
    "diff": "Changes",
    "state": "Current state",
    "shares": "Shared links",
}


def show_text(text: object, limit: int = 200) -> str:
    """Return untrusted text on one line, shortened, with misleading characters escaped."""
    return to_one_line(str(text), limit)


def show_lines(text: object) -> str:
    """Return untrusted text with line breaks and misleading characters escaped."""
    return "\n".join(to_lines(str(text), limit=len(str(text)) + 1, most_lines=100_000))


def show_time(at: str | None) -> str:
    """Return a time without a script: date and minute in UTC."""
    return "" if not at else f"{at[:10]} {at[11:16]} UTC"


def show_duration(ms: float | None) -> str:
    """Return a duration with its unit."""
    return "" if ms is None else duration_words(ms)


def measure_run_ms(run: Mapping[str, Any]) -> float | None:
    """Return the duration of a finished run."""
    if not run["started_at"] or not run["completed_at"]:
        return None
    begun, ended = (datetime.fromisoformat(run[name]) for name in ("started_at", "completed_at"))
    return max(0.0, (ended - begun).total_seconds() * 1000)


def show_share(share: float) -> str:
    """Return a percentage; 100 % and 0 % only if exact."""
    percent = share * 100
    if 0 < percent < 0.1:
        text = "<0.1 %"
    elif 99.9 < percent < 100:
        text = ">99.9 %"
    else:
        text = f"{percent:.1f}".removesuffix(".0") + " %"
    return text


def show_figure(value: float) -> str:
    """Return a number, without decimals if it is whole."""
    is_whole = isinstance(value, int) or (value.is_integer() and abs(value) < 10**15)
    return f"{int(value):,}" if is_whole else write_small(value) if abs(value) < 1000 else f"{value:,.1f}"


def show_fixed(value: float, places: int = 0) -> str:
    """Return a number with a fixed number of decimals."""
    return f"{value:,.{places}f}"


def name_status(status: str) -> str:
    """Return the display name of a run status."""
    return "failed to finish" if status == "failed" else status


def summarise_alert(rule: Alert) -> str:
    """Return when a rule fires, with its settings."""
    kind = KINDS[rule["kind"]]
    settings = {**kind.defaults, **(rule["settings"] or {})}
    figures = {name: show_figure(value) for name, value in settings.items() if is_number(value)}
    if kind.is_share:
        figures[kind.limit] = show_share(settings[kind.limit])
    return kind.summary.format(**figures, window=show_duration(settings["window_s"] * 1000))


def name_key_kind(kind: str) -> str:
    """Return the display name of a key kind."""
    return "run token" if kind == "run" else kind


def name_field(name: str) -> str:
    """Return the display name of a field."""
    return _FIELD_NAMES.get(name) or label_of(name)


def name_noun(word: str) -> str:
    """Return the display name of a list of records."""
    key = word.replace("-", "_")
    return _NOUN_NAMES.get(key) or key.replace("_", " ").capitalize()


def show_value(value: object) -> str:
    """Return a value as JSON, and a text as it is."""
    return value if isinstance(value, str) else to_json(value).decode(errors="replace")


def quote_part(text: str) -> str:
    """Return a percent-encoded path segment."""
    return quote(text, safe="")


def find_project_address(project_id: str, *parts: str) -> str:
    """Return the address of a project, or of a page below it."""
    return "/".join(("/ui/p", *map(quote_part, (project_id, *parts))))


def read_number(text: str | None, largest: int = 10**9) -> int:
    """Return a whole number from a query; 0 if it is not one."""
    return min(largest, read_digits(text, 11) or 0)


_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def read_typed_number(text: str, *, whole: bool = False) -> float | int:
    """Return a typed number. Raises `ValueError`."""
    text = text.strip()
    if _WHOLE.fullmatch(text):
        return int(text)
    # `float` also accepts nan, inf, 1_000 and other scripts' digits.
    if not _NUMBER.fullmatch(text) or not math.isfinite(number := float(text)):
        raise ValueError("expected a number, such as 1250 or 0.5")
    if whole and not number.is_integer():
        raise ValueError("expected a whole number")
    return int(number) if whole else number


FILTERS: dict[str, Callable[..., Any]] = {
    "shown": show_text,
    "shown_lines": show_lines,
    "time_text": show_time,
    "run_ms": measure_run_ms,
    "part": quote_part,
    "block": to_block,
    "value": show_value,
    "duration": show_duration,
    "share": show_share,
    "points": write_points,
    "figure": show_figure,
    "fixed": show_fixed,
    "count_noun": count_noun,
    "cost": cost_words,
    "p_value": write_p,
    "outcome_name": OUTCOME_NAMES.__getitem__,
    "status_name": name_status,
    "trace_status_name": TRACE_STATUS_NAMES.__getitem__,
    "subject_name": SUBJECT_NAMES.__getitem__,
    "alert_name": lambda kind: KINDS[kind].title,
    "alert_summary": summarise_alert,
    "key_kind_name": name_key_kind,
    "field_name": name_field,
    "noun_name": name_noun,
    "axis_name": name_axis,
}
