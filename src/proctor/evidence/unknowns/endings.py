"""Rules e and f of evidence coverage: how a model, a call, a span or a run ended, in any spelling and in any format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from proctor.model.evidence import Json
from proctor.model.numbers import is_number
from proctor.model.show import shorten, show

Stop = Literal["tools", "cut", "filtered", "failed", "limit"]
Status = Literal["ok", "failed", "running"]

STOP_FIELDS = frozenset(("finish_reason", "stop_reason", "done_reason", "finish_reasons", "native_finish_reason", "incomplete_reason"))
"""Fields that report why a model or an agent stopped, as `to_snake_case` writes them."""
STATUS_FIELDS = frozenset(("status", "state", "run_status", "job_status", "response_status", "task_status"))

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
    r"2$|(status_code_)?(failed|failure|fail|error|errored|exception|crashed|cancelled|canceled|timeout|timed_out|aborted|interrupted|expired|terminated"
    r"|rejected)$"
)
_OK = re.compile(r"[01]$|(status_code_)?(ok|okay|success|successful|succeeded|completed?|done|finished|resolved|passed|stopped|unset)$")
_FAILING_FLAGS = frozenset(("failed", "cancelled", "canceled", "is_error", "errored", "aborted", "timed_out", "interrupted", "crashed"))
_PASSING_FLAGS = frozenset(("success", "succeeded", "successful", "ok"))
_ERROR_FIELDS = frozenset(("error", "exception", "traceback", "errors", "error_message", "stack_trace"))
_EXIT_FIELDS = frozenset(("exit_code", "return_code", "returncode", "exit_status"))
_HTTP_FIELDS = frozenset(("http_status", "status_code", "http_status_code"))


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


def find_failure(entry: Mapping[str, Json], *, status: bool = True) -> str | None:
    """Return how an object reports that its run failed, or None; without `status` the word under `status` is not read."""
    for key, value in entry.items():
        if value is None or (value is False and key not in _PASSING_FLAGS):
            continue
        name = key if key.islower() else to_snake_case(key)
        if _reports_failure(name, value, status):
            return f"{shorten(key, 60)}: {show(value, 120)}"
    return None


def _reports_failure(name: str, value: Json, status: bool) -> bool:
    if name in _ERROR_FIELDS:
        return bool(value) and not (isinstance(value, str) and not value.strip())
    if name in _PASSING_FLAGS:
        return value is False
    if name in _FAILING_FLAGS:
        return value is True
    if name in _EXIT_FIELDS:
        return is_number(value) and value != 0
    if name in _HTTP_FIELDS:
        return is_number(value) and value >= 400
    if name in STOP_FIELDS:
        words = value if isinstance(value, list) else [value]
        return any(find_stop(word) in ("failed", "limit") for word in words)
    return status and name in STATUS_FIELDS and isinstance(value, str) and read_status(value) in ("failed", "running")
