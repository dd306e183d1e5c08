"""Words by which a record says itself that more was done than it lists, or that it is not whole.

A list of calls that is empty proves nothing beside `tool_call_count: 2`, a text is no answer beside `finish_reason: length`, and a run that
is `in_progress` has not done yet what it will do. One table of such words serves plain records, message lists and live answers, so that
the same word means the same everywhere. A count that the listed calls explain, `false`, 0 and words of a good end are no signs; neither is
a member whose name nobody here knows.

    members that count or name calls      more of them than the calls that are listed: tool calls are unknown
    members that speak of loss            the calls, or everything, are unknown
    why the model stopped                 cut at a limit, filtered: the answer is unknown; broken: the calls neither
    how the run stands                    not over, failed: calls and answer are unknown
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten, show

RUN: tuple[Part, ...] = (*CALL_PARTS, "answer")

End = Literal["calls", "cut", "filtered", "broken"]

END_KEYS = frozenset(("finish_reason", "stop_reason", "done_reason", "finish_reasons", "native_finish_reason", "incomplete_reason"))
"""Members that say why a model stopped, as `to_plain_key` writes them."""
_STATUS_KEYS = frozenset(("status", "state", "run_status", "job_status", "response_status", "task_status"))

_ENDS: tuple[tuple[End, re.Pattern[str]], ...] = (
    # Gemini's MALFORMED_FUNCTION_CALL, UNEXPECTED_TOOL_CALL and TOO_MANY_TOOL_CALLS are breaks, although they speak of calls.
    ("broken", re.compile(r"malformed|unexpected_tool|too_many_tool|error|fail|time_?out|cancel|abort|interrupt|pause")),
    ("calls", re.compile(r"(tool|function)_?(calls?|use)?$")),
    ("cut", re.compile(r"(.*_)?(length|max_\w*tokens?|tokens?_limit|incomplete|truncated)$|.*context_(window|length)")),
    ("filtered", re.compile(r".*(content_filter|safety|recitation|blocklist|blocked|prohibited|guardrail|toxic)|refusal$|spii$")),
)
_END_TOLD: dict[End, str] = {
    "calls": "the model stopped to call tools, and no call is here",
    "cut": "the model's answer was cut off at its limit of tokens",
    "filtered": "a content filter has cut the model's answer",
    "broken": "the model did not come to its end",
}
_UNFINISHED = re.compile(
    r"(in_progress|queued|pending|running|streaming|processing|working|submitted|waiting|suspended|paused"
    r"|generating|requires_\w+|awaiting_\w+|waiting_\w+|incomplete|partial|truncated)$"
)
_FAILED = re.compile(r"(failed|failure|error|errored|crashed|cancelled|canceled|timeout|timed_out|aborted|interrupted|expired)$")

_TOOLS = r"(?:tool|function)s?_?"
_USES = r"(?:call|use|invocation|request|execution)s?"
_COUNT = re.compile(
    rf"(?:num|number_of|n|count_of|total|has|made|any)_(?:\w+_)?{_TOOLS}{_USES}(?:_\w+)?$"
    rf"|(?:\w+_)?{_TOOLS}{_USES}(?:_(?:count|counts|made|total|used|executed|num|number|performed|seen))?$"
    r"|(?:\w+_)?tools?_(?:used|called|invoked|executed|run|ran)(?:_count)?$|(?:used|called|invoked|executed)_tools?$"
    r"|(?:web|x|file|code|google|mcp|document)_(?:search|fetch|execution|interpreter|browse|tool)_(?:requests|calls|count|uses)$"
    r"|num_sources_used$|tool_use_prompt_tokens?(?:_count)?$"
)
_SETTING = re.compile(
    r"max|min|limit|budget|allow|available|offered|expected|remaining|timeout|choice|parallel|cost|version|enable|support|requir"
    r"|(?<!prompt)_tokens?|_ms$|_ids?$|format|schema|mode|strategy|policy"
)
"""Words in the names of settings and of measures that are no number of calls."""
_SPECIFIC = re.compile(r"(search|fetch|code|mcp)")
_NAMING = re.compile(r"(tool|function)_(used|called|invoked|name)$|(used|called|invoked|last)_(tool|function)$")
_NOTHING = frozenset(("", "none", "null", "no", "false", "n/a", "na", "0", "-"))
_THINGS = r"(?:tool|function|call|action|event|step|message|turn|span|result|output)s?"
_LOST = r"(?:dropped|lost|omitted|truncated|redacted|suppressed|elided|discarded|unrecorded|not_recorded|hidden)"
_LOSS = re.compile(rf"(?:\w+_)?{_THINGS}_{_LOST}(?:_count)?$|{_LOST}_(?:\w+_)?{_THINGS}(?:_\w+)?$")
_NOT_WHOLE = re.compile(
    r"(?:is_|was_|been_)?(?:(?:text|answer|response|output|content|record|trace|run)_)?(?:is_|was_)?"
    r"(?:truncated|partial|incomplete|cut_off|interrupted|aborted|timed_out)$|has_more$"
)
_WHOLE = re.compile(r"(?:is_|was_)?(?:complete|completed|done|finished|final)$|turn_complete$")
_SUCCEEDED = re.compile(r"(?:is_|was_)?(?:ok|success|successful|succeeded)$")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Sign(msgspec.Struct, frozen=True):
    """A word of a record that leaves parts of the evidence unknown, and why."""

    parts: tuple[Part, ...]
    why: str


def to_plain_key(word: str) -> str:
    """Return a name in lower case with underscores, however it is written."""
    return _HUMPS.sub("_", word).lower().replace("-", "_").replace(" ", "_")


def end_of(word: Json) -> End | None:
    """Return what a word for why a model stopped means, or None if it was simply the end."""
    if not isinstance(word, str):
        return None
    plain = to_plain_key(word) if not word.isupper() else word.lower()
    return next((end for end, words in _ENDS if words.match(plain)), None)


def sign_of_end(word: Json, calls: Sequence[ToolCall] = ()) -> Sign | None:
    """Return the sign in the reasons why a model stopped, or None if they leave nothing open."""
    for one in word if isinstance(word, list) else [word]:
        end = end_of(one)
        if end is not None and not (end == "calls" and calls):
            parts: tuple[Part, ...] = RUN if end in ("broken", "calls") else ("answer",)
            return Sign(parts, f"{_END_TOLD[end]} ({shorten(str(one), 40)})")
    return None


def sign_of(key: str, value: Json, calls: Sequence[ToolCall]) -> Sign | None:
    """Return the sign in a member beside the listed calls, or None for nearly all members."""
    if value is None or (isinstance(value, (list, dict)) and not value):
        return None
    name = to_plain_key(key)
    if name in END_KEYS:
        return sign_of_end(value, calls)
    if isinstance(value, (list, dict)):
        return None
    if isinstance(value, str) and name in _STATUS_KEYS:
        return _sign_of_status(value)
    if value is False:
        return Sign(RUN, "so the run was not over") if _WHOLE.match(name) else None
    number = _number_in(value)
    if number:
        return _sign_of_number(name, number, calls)
    if isinstance(value, str) and _NAMING.match(name) and value.strip().lower() not in _NOTHING:
        known = {one for call in calls for one in (call.name, *call.aliases)}
        return None if value in known else Sign(CALL_PARTS, f"{show(value, 40)} is not in the list of calls")
    return None


def sign_of_failure(key: str, value: Json) -> Sign | None:
    """Return the sign that an answer failed, in the words that only an answer has, or None."""
    return Sign(RUN, "the agent says itself that it did not succeed") if value is False and _SUCCEEDED.match(to_plain_key(key)) else None


def _sign_of_status(value: str) -> Sign | None:
    word = to_plain_key(value) if not value.isupper() else value.lower()
    if _UNFINISHED.match(word):
        return Sign(RUN, f"{show(value, 40)}, so the run was not over")
    return Sign(RUN, f"{show(value, 40)}, so the run broke off") if _FAILED.match(word) else None


def _sign_of_number(name: str, number: int, calls: Sequence[ToolCall]) -> Sign | None:
    if _LOSS.match(name):
        return Sign(RUN if "message" in name or "turn" in name else CALL_PARTS, "this speaks of something that is not in the record")
    if _NOT_WHOLE.match(name):
        return Sign(RUN, "so the record is not whole")
    if not _COUNT.match(name) or _SETTING.search(name):
        return None
    # A count of one kind (`web_search_requests`) is explained by calls of that kind only.
    told = _SPECIFIC.search(name) if not name.startswith(("tool", "num_")) else None
    listed = [call for call in calls if told is None or told.group() in call.name.lower()]
    # A count of tokens, and true, say that there were some.
    wanted = 1 if "token" in name or "sources" in name else number
    return None if len(listed) >= wanted else Sign(CALL_PARTS, f"this counts {number}, and the list of calls has {len(listed)} of them")


def _number_in(value: Json) -> int:
    """Return how many calls a value counts; true is at least one."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else int(value.lower() == "true")
    # A number beyond a billion is an id or a time, and no count of calls.
    return int(value) if isinstance(value, (bool, int, float)) and 0 < value < 1e9 else 0
