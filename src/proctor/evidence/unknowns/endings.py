"""Rules e and f of evidence coverage: how a model, a call, a span or a run ended, in any spelling and in any format."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from proctor.evidence.values.access import split_words
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import shorten, show

Stop = Literal["tools", "cut", "filtered", "failed", "limit"]
Status = Literal["ok", "failed", "running"]

STOP_FIELDS = split_words(
    """
    finish_reason stop_reason done_reason finish_reasons native_finish_reason incomplete_reason incomplete_details termination_reason
    exit_reason end_reason
    """
)
"""Fields that report why a model or an agent stopped, as `to_snake_case` writes them."""
STATUS_FIELDS = split_words("status state outcome run_status job_status response_status task_status")

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STOPS: tuple[tuple[Stop, re.Pattern[str]], ...] = (
    # Gemini's MALFORMED_FUNCTION_CALL, UNEXPECTED_TOOL_CALL and TOO_MANY_TOOL_CALLS are failures, although they mention calls.
    ("failed", re.compile(r"malformed|unexpected_tool|too_many_tool|error|fail|time_?out|cancel|abort|interrupt|pause|external_term")),
    ("limit", re.compile(r".*(max|limit|exceed|too_many|exhaust)\w*_?"
                         r"(iteration|turn|step|call|message|round|recursion|loop|budget|cost|time)"
                         r"|.*(iteration|turn|step|recursion|loop|budget|cost|time|usage)s?_(limit|exceeded|exhausted)|early_stopp")),
    ("tools", re.compile(r"(tool|function)_?(calls?|use)?$")),
    ("cut", re.compile(r"(.*_)?(length|max_\w*tokens?|tokens?_limit|incomplete|truncated)$|.*context_(window|length)")),
    ("filtered", re.compile(r".*(content_filter|safety|recitation|blocklist|blocked|prohibited|guardrail|toxic)|refusal$|spii$")),
)  # fmt: skip
_RUNNING = re.compile(
    r"(in_?progress|queued|pending|running|streaming|processing|working|submitted|waiting|suspended|paused|searching|interpreting|calling"
    r"|generating|requires_\w+|awaiting_\w+|waiting_\w+|incomplete|partial|truncated|unfinished|started)$"
)
_FAILED = re.compile(
    r"2$|(status_code_)?(failed|failure|fail|error|errored|exception|crashed|cancelled|canceled|killed|timeout|timed_out|aborted|interrupted|expired|terminated"
    r"|rejected)$"
)
_OK = re.compile(r"[01]$|(status_code_)?(ok|okay|success|successful|succeeded|completed?|done|finished|resolved|passed|stopped|unset)$")
_UNFINISHED = re.compile(r"(in_?progress|running|streaming|incomplete|truncated|unfinished)$")
"""Words under `status` that mean an unfinished run wherever they are; `pending` and `paused` may be those of an order or a ticket."""
_DECIDED = re.compile(r"rejected|terminated|2$")
"""Words for failure that are also decisions about an order or a request."""
_FAILING_FLAGS = split_words(
    "failed cancelled canceled is_error has_error tool_call_error errored aborted timed_out interrupted crashed killed"
)
_LIMIT_FLAG = re.compile(r"(\w+_)?(limit|max_\w+)_(reached|exceeded|hit)$")
_PASSING_FLAGS = split_words("success succeeded successful ok")
_ERROR_FIELDS = split_words("error exception traceback errors error_message stack_trace failure")
_EXIT_FIELDS = split_words("exit_code return_code returncode exit_status")
_HTTP_FIELDS = split_words("http_status status_code http_status_code status")
_NO_ERROR = frozenset(("", "0", "none", "null", "nil", "undefined", "n/a", "na", "no", "false", "ok", "-"))
_MILD = frozenset(("warning", "warn", "info", "information", "debug", "notice"))
"""Levels of entries in a list of errors that are none."""


def to_snake_case(word: str) -> str:
    """Return a name in lower case with underscores, however it is written."""
    return (word if word.isupper() else _HUMPS.sub("_", word)).lower().replace("-", "_").replace(" ", "_")


def find_stop(word: Json) -> Stop | None:
    """Return what a reason to stop means, or None if the model simply finished."""
    if not isinstance(word, str):
        return None
    plain = to_snake_case(word)
    return next((stop for stop, words in _STOPS if words.match(plain)), None)


def read_status(word: Json) -> Status | None:
    """Return what a status means, or None if it is not recognised; OTLP writes 1 for ok and 2 for an error."""
    if isinstance(word, bool) or not isinstance(word, (int, str)):
        return None
    return _read_word(str(word)) if isinstance(word, int) or len(word) < 100 else None


@lru_cache(maxsize=1024)
def _read_word(word: str) -> Status | None:
    plain = to_snake_case(word.strip())
    return "failed" if _FAILED.match(plain) else "running" if _RUNNING.match(plain) else "ok" if _OK.match(plain) else None


def read_flag(value: Json) -> bool | None:
    """Return a flag, also one that is written as text or number; None for anything else."""
    if isinstance(value, str):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(value.strip().lower())
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def is_error(value: Json) -> bool:
    """Return whether the value of an error field reports one: not null, `none`, 0, or an object or a list without any."""
    if isinstance(value, str):
        return value.strip().lower() not in _NO_ERROR
    if isinstance(value, dict):
        mild = any(isinstance(value.get(key), str) and value[key].lower() in _MILD for key in ("level", "severity"))
        return not mild and any(map(is_error, value.values()))
    return any(map(is_error, value)) if isinstance(value, list) else bool(value)


def find_failure(entry: Mapping[str, Json], *, status: bool = True, own: bool = False) -> str | None:
    """Return how an object reports that its run failed, or None; without `status` the word under `status` is not read.

    With `own` the object is in a user's own format, and its status may be that of a ticket: only words for failure count.
    """
    for key, value in entry.items():
        if value is None or (value is False and key not in _PASSING_FLAGS):
            continue
        name = key if key.islower() else to_snake_case(key)
        if reports_failure(name, value, status=status, own=own):
            return f"{shorten(key, 60)}: {show(value, 120)}"
    return None


def reports_failure(name: str, value: Json, *, status: bool = True, own: bool = True) -> bool:
    """Return whether a field, by its name in snake case, reports that a run or a call failed."""
    if name in _ERROR_FIELDS:
        return is_error(value)
    if name in _PASSING_FLAGS:
        return read_flag(value) is False
    if name in _FAILING_FLAGS or _LIMIT_FLAG.match(name):
        return read_flag(value) is True
    if name in _EXIT_FIELDS:
        return _read_code(value) != 0
    if name in _HTTP_FIELDS and 400 <= _read_code(value) < (600 if name == "status" else math.inf):
        return status or name != "status"
    if name in STOP_FIELDS:
        words = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else [value]
        # Details are there only if something is incomplete.
        return any(find_stop(word) in ("failed", "limit", *(("cut",) if name == "incomplete_details" else ())) for word in words)
    return status and name in STATUS_FIELDS and reports_unfinished(value, own=own)


def reports_unfinished(value: Json, *, own: bool = True) -> bool:
    """Return whether a status is that of a failed or unfinished run; with `own` it may also be the status of a ticket."""
    if isinstance(value, dict):
        return any(reports_unfinished(value.get(key), own=own) for key in ("code", "status", "state"))
    if not isinstance(value, str) or not own:
        return isinstance(value, str) and read_status(value) in ("failed", "running")
    plain = to_snake_case(value.strip())
    return (read_status(value) == "failed" and not _DECIDED.match(plain)) or _UNFINISHED.match(plain) is not None


def _read_code(value: Json) -> float:
    """Return a code, also one that is written as text; 0 for anything else."""
    if isinstance(value, str):
        return int(value) if value.strip().lstrip("-").isdecimal() else 0
    return value if is_number(value) else 0
