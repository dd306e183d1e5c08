"""Rule c of evidence coverage: fields by which a record reports that data is missing from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.statuses import STATUS_FIELDS, STOP_FIELDS, Stop, find_stop, read_flag, reports_unfinished, to_snake_case
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json, ToolCall
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import shorten, show

RUN: tuple[Part, ...] = (*CALL_PARTS, "answer")

_STOPPED: dict[Stop, str] = {
    "tools": "the model stopped to call tools, and no call is recorded",
    "cut": "the answer was cut off at the token limit",
    "filtered": "a content filter cut the answer",
    "failed": "the model did not finish",
    "limit": "the run was stopped by a limit",
}
_TOOLS = r"(?:tool|function)s?_?"
_USES = r"(?:call|use|invocation|request|execution)s?"
_COUNT = lazy_pattern(
    rf"(?:num|number_of|n|count_of|total|has|made|any)_(?:\w+_)?{_TOOLS}{_USES}(?:_\w+)?$"
    rf"|(?:\w+_)?{_TOOLS}{_USES}(?:_(?:count|counts|made|total|used|executed|num|number|performed|seen))?$"
    r"|(?:\w+_)?tools?_(?:used|called|invoked|executed|run|ran)(?:_count)?$|(?:used|called|invoked|executed)_tools?$"
    r"|(?:web|x|file|code|google|mcp|document)_(?:search|fetch|execution|interpreter|browse|tool)_(?:requests|calls|count|uses)$"
    r"|num_sources_used$|tool_use_prompt_tokens?(?:_count)?$"
)
_SETTING = lazy_pattern(
    r"max|min|limit|budget|allow|available|offered|expected|remaining|timeout|choice|parallel|cost|version|enable|support|requir"
    r"|(?<!prompt)_tokens?|_ms$|_ids?$|format|schema|mode|strategy|policy"
)
"""Words in the names of settings and of measures that do not count calls."""
_SPECIFIC = lazy_pattern(r"(search|fetch|code|mcp)")
_NAMING = lazy_pattern(r"tool_name$|(tool|function)_(used|called|invoked)$|(used|called|invoked|last)_(tool|function)$")
_NOTHING = frozenset(("", "none", "null", "no", "false", "n/a", "na", "0", "-"))
_THINGS = r"(?:tool|function|call|action|event|step|message|turn|span|result|output)s?"
_LOST = r"(?:dropped|lost|omitted|truncated|redacted|suppressed|elided|discarded|unrecorded|not_recorded|hidden)"
_LOSS = lazy_pattern(rf"(?:\w+_)?{_THINGS}_{_LOST}(?:_count)?$|{_LOST}_(?:\w+_)?{_THINGS}(?:_\w+)?$")
_NOT_WHOLE = lazy_pattern(
    r"(?:is_|was_|been_)?(?:(?:text|answer|response|output|content|record|trace|run)_)?(?:is_|was_)?"
    r"(?:truncated|partial|incomplete|cut_off|interrupted|aborted|timed_out)$|has_more$"
)
_WHOLE = lazy_pattern(r"(?:is_|was_)?(?:complete|completed|done|finished|final)$|turn_complete$")
_REDACTED = lazy_pattern(
    r"\s*\"?"
    r"(?:[\[<({*]+\s*(?:fully )?(?:redacted|masked|removed|hidden|omitted|filtered|scrubbed|truncated|elided)\b[^\]>)}*]{0,40}[\]>)}*]+"
    r"|_*redacted_*|\*{3,}|\u2026|\[(?:object(?: object)?|array|circular[^\]]{0,10})\])\"?\s*$",
    re.I,
)
_CUT = lazy_pattern(
    r"(?:(?:[\[<(]\W*|\.\.\.\s*|\u2026\s*[\[(]?)\+?truncated\b"
    r"|(?:[\[<(](?=\W*(?:\+|\u2026|\.\.\.)|[^\])>]*\b(?:more|truncated|omitted|removed|elided)\b)\W*|\.\.\.\s*[\[(]?|\u2026\s*[\[(]?)"
    r"\+?\d[\d,]* (?:more )?(?:chars?|characters|bytes|tokens)\b)[^\])>]{0,40}[\])>]?\s*$",
    re.I,
)
"""The end of a text that was cut: `[truncated 300 chars]`, `... (300 more chars)`."""
_CUT_JSON = lazy_pattern(r"\s*(?:\{\s*\"|\[\s*[\[{\"])")
_CUT_FLAG = lazy_pattern(
    r"(?:(?:is|was|arguments?|args|input|parameters|result|output)_)*(?:truncated|redacted|cut_off|incomplete|partial)$"
)
"""Fields of a call that report incomplete arguments or results."""
_SEARCHED = 5
LAST_LETTERS = frozenset(']>)}*\u2026dD_" \n')
"""Last letters of a text that may replace removed data or end with a cut marker."""


class Marker(NamedTuple):
    """The parts that a field makes unknown, and why."""

    parts: tuple[Part, ...]
    why: str


def is_redacted(value: Json) -> bool:
    """Return whether a text only replaces data that was removed: `[REDACTED]`, `***`."""
    # Nearly every text ends with none of these letters.
    if not isinstance(value, str) or len(value) >= 100 or value[-1:] not in LAST_LETTERS:
        return False
    # Many words end in `d`; of the marks only one.
    if value[-1:] in "dD_" and value.strip("_")[-8:].lower() != "redacted":
        return False
    return _REDACTED.match(value) is not None


def find_removed(value: Json, depth: int = _SEARCHED) -> str | None:
    """Return a text in a value that replaces removed data or was cut, or None."""
    if isinstance(value, str):
        is_cut = value[-1:] in LAST_LETTERS and _CUT.search(value, max(0, len(value) - 100))
        return value if is_cut or is_redacted(value) else None
    if not isinstance(value, (dict, list)) or not depth:
        return None
    members = value.values() if isinstance(value, dict) else value
    return next((found for member in members if (found := find_removed(member, depth - 1)) is not None), None)


def mark_removed(value: Json, part: Part, at: str, unknowns: Unknowns) -> bool:
    """Mark a part with removed or cut data; return whether there was any."""
    removed = find_removed(value)
    if removed is not None:
        unknowns.mark(part, f"data of {at} was removed: {show(removed[-60:], 60)}")
    return removed is not None


def mark_call(name: str | None, arguments: Json, result: Json, at: str, unknowns: Unknowns) -> None:
    """Mark the removed parts of a call: its name, which may be blank, a member of its arguments, its result."""
    if name is not None and (not name.strip() or is_redacted(name)):
        unknowns.mark("tool_calls", f"the name of {at} was removed: {show(name, 40)}")
    if arguments:
        mark_removed(arguments, "tool_arguments", f"the arguments of {at}", unknowns)
        if isinstance(arguments, str) and _CUT_JSON.match(arguments):
            unknowns.mark("tool_arguments", f"the arguments of {at} break off: {show(arguments[-40:], 60)}")
    if result is not None and is_redacted(result):
        unknowns.mark("tool_results", f"the result of {at} was removed: {show(result, 40)}")


def mark_call_flags(entry: Mapping[str, Json], keys: Iterable[str], at: str, unknowns: Unknowns) -> None:
    """Mark arguments and results that a flag of the call reports as incomplete."""
    for key in keys:
        if _CUT_FLAG.match(to_snake_case(key)) and read_flag(entry[key]):
            unknowns.mark_parts(("tool_arguments", "tool_results"), f"{show(shorten(key, 60))} at {at}: the call is incomplete")


def find_stop_marker(word: Json, calls: Sequence[ToolCall] = ()) -> Marker | None:
    """Return the marker in the reasons why a model stopped, or None if it finished."""
    for reason in word if isinstance(word, list) else [word]:
        stop = find_stop(reason)
        if stop is not None and not (stop == "tools" and calls):
            parts: tuple[Part, ...] = ("answer",) if stop in ("cut", "filtered") else RUN
            return Marker(parts, f"{_STOPPED[stop]} ({shorten(str(reason), 40)})")
    return None


def find_marker(key: str, value: Json, calls: Sequence[ToolCall]) -> Marker | None:
    """Return the marker in a field next to the listed calls, or None for nearly all fields."""
    if value is None:
        return None
    name = to_snake_case(key)
    if name in STOP_FIELDS:
        return find_stop_marker(value, calls)
    if isinstance(value, str) and name in STATUS_FIELDS:
        return Marker(RUN, f"{show(value, 40)}: the run did not finish") if reports_unfinished(value) else None
    if value is False or (isinstance(value, str) and read_flag(value) is False):
        return Marker(RUN, "the run was not over") if _WHOLE.match(name) else None
    if name == "__interrupt__" and value:
        return Marker(("tool_calls", "tool_results", "answer"), "the run waits for a person")
    if number := _read_count(value):
        if _LOSS.match(name):
            return Marker(RUN if "message" in name or "turn" in name else CALL_PARTS, "data is missing from the record")
        if _NOT_WHOLE.match(name):
            return Marker(RUN, "the record is incomplete")
        if not _COUNT.match(name) or _SETTING.search(name):
            return None
        # A count of one kind (`web_search_requests`) is compared with calls of that kind only.
        kind = _SPECIFIC.search(name) if not name.startswith(("tool", "num_")) else None
        listed = [call for call in calls if kind is None or kind.group() in call.name.lower()]
        # A count of tokens, and true, report at least one call.
        minimum = 1 if "token" in name or "sources" in name else number
        return None if len(listed) >= minimum else Marker(CALL_PARTS, f"{number} calls are counted, {len(listed)} are listed")
    if isinstance(value, str) and _NAMING.match(name) and value.strip().lower() not in _NOTHING:
        known = {name for call in calls for name in (call.name, *call.aliases)}
        return None if value in known else Marker(CALL_PARTS, f"{show(value, 40)} is not in the list of calls")
    return None


def check_markers(entry: Mapping[str, Json], keys: Iterable[str], calls: Sequence[ToolCall] | None, at: str, unknowns: Unknowns) -> None:
    """Mark the parts that fields of an object report as missing."""
    for key in keys:
        if (marker := find_marker(key, entry[key], calls or ())) is not None:
            unknowns.mark_parts(marker.parts, f"{show(shorten(key, 60))} at {at}: {marker.why}")
            unknowns.use(key)


def _read_count(value: Json) -> int:
    """Return the number of calls that a value counts; true is at least one."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else int(value.lower() == "true")
    # A number beyond a billion is an id or a time, not a count of calls.
    return int(value) if isinstance(value, (bool, int, float)) and 0 < value < 1e9 else 0
