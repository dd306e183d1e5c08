"""Rules e and f of evidence coverage: reads stop reasons, statuses and error fields of any format, in any spelling."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from proctor.evidence.values.access import split_words
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import shorten, show

Stop = Literal["tools", "cut", "filtered", "failed", "limit"]
Status = Literal["ok", "failed", "running"]

STOP_FIELDS = split_words("""
    finish_reason stop_reason done_reason finish_reasons native_finish_reason incomplete_reason incomplete_details termination_reason
    exit_reason end_reason ended_by stopped_by
    """)
"""Fields that report why a model or an agent stopped, as `to_snake_case` writes them."""
STATUS_FIELDS = split_words("""
    status state outcome run_status job_status response_status task_status agent_status result_status final_status execution_status
    request_status
    """)

_HUMPS = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_STOPS: tuple[tuple[Stop, re.Pattern[str]], ...] = (
    # Gemini's MALFORMED_FUNCTION_CALL, UNEXPECTED_TOOL_CALL and TOO_MANY_TOOL_CALLS are failures, although they mention calls.
    ("failed", lazy_pattern(r"malformed|unexpected_tool|too_many_tool|error|fail|time_?out|cancel|abort|interrupt|pause|external_term")),
    ("limit", lazy_pattern(r".*(max|limit|exceed|too_many|exhaust)\w*_?"
                         r"(iteration|turn|step|call|message|round|recursion|loop|budget|cost|time)"
                         r"|.*(iteration|turn|step|recursion|loop|budget|cost|time|usage)s?_(limit|exceeded|exhausted)|early_stopp")),
    ("tools", lazy_pattern(r"(tool|function)_?(calls?|use)?$")),
    ("cut", lazy_pattern(r"(.*_)?(length|max_\w*tokens?|tokens?_limit|incomplete|truncated)$|.*context_(window|length)")),
    ("filtered", lazy_pattern(r".*(content_filter|safety|recitation|blocklist|blocked|prohibited|guardrail|toxic)|refusal$|spii$")),
)  # fmt: skip
_RUNNING = lazy_pattern(
    r"(in_?progress|queued|pending|running|streaming|processing|working|submitted|waiting|suspended|paused|searching|interpreting|calling"
    r"|generating|requires_\w+|awaiting_\w+|waiting_\w+|incomplete|partial|truncated|unfinished|started)$"
)
_FAILED = lazy_pattern(
    r"2$|(status_code_)?(failed|failure|fail|error|errored|exception|crashed|cancelled|canceled|killed|timeout|timed_out|aborted|interrupted|expired|terminated"
    r"|rejected|unsuccessful|ko|nok|not_ok|fatal|panic)$"
    r"|(agent|run|request|job|model|llm|api|system|server|internal|internal_server|execution|runtime|unknown)_(failed|failure|error|exception|timeout)$"
)
_OK = lazy_pattern(r"[01]$|(status_code_)?(ok|okay|success|successful|succeeded|completed?|done|finished|resolved|passed|stopped|unset)$")
_UNFINISHED = lazy_pattern(r"(in_?progress|running|streaming|incomplete|truncated|unfinished|requires_(action|input|tool)\w*)$")
"""Words under `status` that always mean an unfinished run; `pending` and `paused` may describe an order or a ticket."""
_DECIDED = lazy_pattern(r"rejected|terminated|2$")
"""Words for failure that are also decisions about an order or a request."""
_FAILING_FLAG = lazy_pattern(
    r"((is|was|has|did|run|agent|request)_)*(failed|fail|cancelled|canceled|tool_call_error|errored|aborted|timed_out|timeout|interrupted|crashed|killed)$"
    r"|(is|has|had)_(error|errors|failure|exception)$"
)
_LIMIT_FLAG = lazy_pattern(r"(\w+_)?(limit|max_\w+)_(reached|exceeded|hit)$|(hit|reached|exceeded)_(\w+_)?(limit|max_\w+)$")
_PASSING_FLAG = lazy_pattern(r"((is|was|run|agent|request)_)*(success|succeeded|successful|ok)$")
_ERROR_FIELD = lazy_pattern(
    r"(?:last_)?(?:error|err|exception|exc|failure)(?:_(?:type|class|code|name|message|msg|text|reason|details?|info|stack))?$"
    r"|errors$|exceptions$|failures$|(?:fail|error|failure)_reason$|traceback$|stack_?trace$"
)
_LEVEL_FIELD = lazy_pattern(r"(?:log_?)?(?:level|lvl)(?:_?name)?$|severity(?:_text)?$")
_FAILED_LEVEL = lazy_pattern(r"(?:level\.)?(?:err|error|fatal|panic|emerg|emergency|severe)$", re.IGNORECASE)
_LOGGED_LEVELS = frozenset(("CRITICAL", "ALERT"))
"""Levels of loggers in capitals; in small letters these words also describe tickets."""
_NUMBERED_LEVELS = (50, 60)
"""Levels `error` and `fatal` of pino and bunyan; 50 is also `CRITICAL` in Python."""
_HOLDERS = frozenset(("http", "run", "execution"))
"""Objects that describe the response or the run."""
_EVENT_FIELDS = split_words("event event_type event_name")
_EXIT_FIELDS = split_words("exit_code return_code returncode exit_status rc")
_HTTP_FIELDS = split_words("http_status status_code http_status_code http_code response_code response_status response_status_code status")
_NO_ERROR = frozenset(("", "0", "none", "null", "nil", "undefined", "n/a", "na", "no", "false", "ok", "-"))
_MILD = frozenset(("warning", "warn", "info", "information", "debug", "notice"))
"""Levels of list entries that are not errors."""


def to_snake_case(word: str) -> str:
    """Return a name in lower case with underscores."""
    return (word if word.isupper() else _HUMPS.sub("_", word)).lower().replace("-", "_").replace(" ", "_")


def find_stop(word: Json) -> Stop | None:
    """Return the meaning of a stop reason, or None if the model simply finished."""
    if not isinstance(word, str):
        return None
    plain = to_snake_case(word)
    return next((stop for stop, words in _STOPS if words.match(plain)), None)


def read_status(word: Json) -> Status | None:
    """Return the meaning of a status, or None if it is not recognised; OTLP uses 1 for ok and 2 for an error."""
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
    """Return whether the value of an error field reports an error: not null, `none`, 0, or a container without one."""
    if isinstance(value, str):
        return value.strip().lower() not in _NO_ERROR
    if isinstance(value, dict):
        mild = any(isinstance(value.get(key), str) and value[key].lower() in _MILD for key in ("level", "severity"))
        return not mild and any(map(is_error, value.values()))
    return any(map(is_error, value)) if isinstance(value, list) else bool(value)


def find_failure(entry: Mapping[str, Json], *, status: bool = True, own: bool = False, failed_call: bool = False) -> str | None:
    """Return how an object reports that its run failed, or None; without `status` the word under `status` is not read.

    With `own` the object is in a user's own format, and its status may be that of a ticket: only words for failure count. The log level of
    an error may describe a failed call of the run (`failed_call`), after which the run went on.
    """
    for key, value in entry.items():
        name = _read_name(key)
        if value is None or not reports_failure(name, value, status=status, own=own):
            continue
        if not (failed_call and _find_meaning(name) == "level"):
            return f"{shorten(key, 60)}: {show(value, 120)}"
    return None


@lru_cache(maxsize=4096)
def _read_name(key: str) -> str:
    """Return the name of a field in snake case; Elastic and OpenTelemetry write `log.level`, `@level` and `error.message`."""
    return to_snake_case(key).lstrip("@").replace(".", "_")


def reports_failure(name: str, value: Json, *, status: bool = True, own: bool = True) -> bool:
    """Return whether a field, by its name in snake case, reports that a run or a call failed."""
    meaning = _find_meaning(name)
    if meaning == "error":
        return is_error(value) and read_status(value) != "ok"
    if meaning == "passing":
        return read_flag(value) is False
    if meaning == "failing":
        # A `timeout` of 1 is a setting.
        return read_flag(value) is True and (isinstance(value, bool) or not name.endswith("timeout"))
    if name in _HOLDERS and isinstance(value, dict):
        return find_failure(value, own=name != "http") is not None
    if meaning == "level":
        if isinstance(value, str):
            return _FAILED_LEVEL.match(value.strip()) is not None or value in _LOGGED_LEVELS
        return name == "level" and not isinstance(value, bool) and value in _NUMBERED_LEVELS
    if name in _EVENT_FIELDS:
        return isinstance(value, str) and read_status(value) == "failed" and not _DECIDED.match(to_snake_case(value))
    if name in _EXIT_FIELDS:
        return _read_code(value) != 0
    if name in _HTTP_FIELDS and 400 <= _read_code(value) < (600 if name == "status" else math.inf):
        return status or name != "status"
    if name in STOP_FIELDS:
        words = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else [value]
        # The field `incomplete_details` exists only if the answer is incomplete.
        stops = ("failed", "limit", "cut") if name == "incomplete_details" else ("failed", "limit")
        return any(find_stop(word) in stops for word in words)
    return status and name in STATUS_FIELDS and reports_unfinished(value, own=own)


@lru_cache(maxsize=4096)
def _find_meaning(name: str) -> Literal["error", "passing", "failing", "level"] | None:
    if _ERROR_FIELD.match(name):
        return "error"
    if _PASSING_FLAG.match(name):
        return "passing"
    if _FAILING_FLAG.match(name) or _LIMIT_FLAG.match(name):
        return "failing"
    return "level" if _LEVEL_FIELD.match(name) else None


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
        code = value.strip().partition(" ")[0]  # "500 Internal Server Error"
        return int(code) if code.isascii() and code.lstrip("-").isdecimal() else 0
    return value if is_number(value) else 0
