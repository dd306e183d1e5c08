"""Fields of message lists that report loss, an early end or a failure (rules c, e and f).

Texts and arguments belong to the agent and are not examined. Why a model stopped matters for the last answer before the user speaks again,
or before the end: after the others the run went on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from proctor.evidence.messages.envelope import Entries
from proctor.evidence.shared.usage import HOLDERS
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import STOP_FIELDS, find_failure, find_stop, to_snake_case
from proctor.evidence.unknowns.fields import CONTENT_PARTS
from proctor.evidence.unknowns.markers import find_marker, find_stop_marker
from proctor.evidence.values.access import dict_or_empty, list_of, split_words
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten

_REPORTING = frozenset(HOLDERS) | split_words(
    """
    response_metadata responseMetadata additional_kwargs provider_specific_fields provider_data providerData meta _meta metadata
    server_tool_use incomplete_details generation_info provider_details model_extra
    """
)
"""Objects that report on an answer."""
_DEPTH = 4
"""Levels below an answer that are examined; deeper ones belong to the task of the agent."""
_OTHERS = re.compile(
    r"(user|human|tool|function|system|developer|request)(message)?(chunk)?$|.+(_call|_output|_result|_reference)$", re.IGNORECASE
)
_USERS = ("user", "human", "humanmessage", "humanmessagechunk", "request")
_ASIDE = ("system", "developer", "result", "stream_event", "SystemMessage")
"""Entries that are no part of the conversation."""
_SAID = split_words("messages choices output contents candidates input content tools metadata message context events steps")
"""Fields of a document that hold messages, or are the user's own."""
_READ = ("context_editing", "context_management")
"""Fields whose meaning the reader of their format knows."""
_MAY_REPORT = re.compile(
    r"tool|function|call|search|fetch|code|execution|interpreter|sources|drop|lost|omit|trunc|redact|suppress|elid|discard|record|hidden"
    r"|partial|complete|citation|annotation|cut|interrupt|abort|timed|more|done|finish|final|status|state|reason|trim|prun|clear|evict|condens|compact|summar"
)


_SOURCES = ("annotations", "citations", "search_results")
"""Fields with the sources of a search that a provider made."""
_SOURCE = re.compile(r"citation|search")
_LISTED = r"(?:messages?|history|conversation|context|turns?|transcript|events?|items?|entries|tool_uses?)"
_LOST = r"(?:truncated|trimmed|omitted|pruned|cleared|evicted|condensed|compacted|dropped|summari[sz]ed)"
_LOSS = re.compile(
    rf"(?:is_|was_|been_|has_been_)?(?:{_LOST}|partial|incomplete)$|(?:\w+_)?{_LISTED}_(?:is_|was_|were_)?(?:{_LOST}|summary)(?:_count)?$"
    rf"|{_LOST}_(?:\w+_)?{_LISTED}(?:_count)?$|has_more$|__summary__$"
)
"""Names of fields that report missing messages, as `to_snake_case` writes them."""
_NOTHING = frozenset(("", "false", "no", "none", "null", "0"))


@functools.lru_cache(maxsize=4096)
def _may_report(key: str) -> bool:
    return _MAY_REPORT.search(to_snake_case(key)) is not None


@functools.lru_cache(maxsize=4096)
def _names_loss(key: str) -> bool:
    return _LOSS.match(to_snake_case(key)) is not None


def _reports_loss(key: str, value: Json) -> bool:
    return _names_loss(key) and bool(value) and not (isinstance(value, str) and value.lower() in _NOTHING)


def check_markers(document: Json, entries: Entries, calls: Sequence[ToolCall], unknowns: Unknowns) -> str | None:
    """Mark what the messages and their envelope report as missing or not over, and return how the last message reports a failure."""
    error: str | None = None
    follower: str | None = None
    for at, entry in reversed(entries):
        inner = next((entry[key] for key in ("data", "kwargs", "message") if isinstance(entry.get(key), dict)), entry)
        speaker = _find_speaker(entry)
        answers = not (_is_others(speaker) or _is_others(_find_speaker(inner)))
        _check_fields(inner, at, calls, unknowns, is_end=follower is None or follower.lower() in _USERS, answers=answers)
        if inner is not entry:
            outer = {key: value for key, value in entry.items() if value is not inner}
            _check_fields(outer, at, calls, unknowns, is_end=True, answers=False)
        if answers and follower is None and speaker not in _ASIDE and error is None:
            error = find_failure(inner, status=False)
        if speaker not in _ASIDE:
            follower = speaker or "message"
    if isinstance(document, dict) and not any(document is entry for _, entry in entries):
        _check_fields({key: value for key, value in document.items() if key not in _SAID}, "$", calls, unknowns, is_end=True, answers=True)
    return error


def _check_fields(
    entry: dict[str, Any], at: str, calls: Sequence[ToolCall], unknowns: Unknowns, *, is_end: bool, answers: bool, depth: int = _DEPTH
) -> None:
    for key, value in entry.items():
        # At the top only objects that are known to report on an answer are opened; below one of them all are.
        if isinstance(value, dict) and depth and (key in _REPORTING or depth < _DEPTH) and key not in _READ:
            _check_fields(value, f"{at}.{shorten(key, 40)}", calls, unknowns, is_end=is_end, answers=answers, depth=depth - 1)
        elif value is None or not _may_report(key):
            continue
        elif (depth == _DEPTH or value is True) and _reports_loss(key, value) and not (key == "partial" and "author" in entry):
            unknowns.mark_parts(CONTENT_PARTS, f"{at}.{shorten(key, 40)}: messages are missing from the list")
        elif not answers:
            continue
        elif key in _SOURCES and isinstance(value, list):
            if not calls and any(
                isinstance(source, str) or _SOURCE.search(str(dict_or_empty(source).get("type", key))) for source in value
            ):
                unknowns.mark_parts(CALL_PARTS, f"{at}.{key}: sources of a search that is not recorded as a call")
        elif (
            to_snake_case(key) in STOP_FIELDS or (key == "status" and value == "incomplete") or (key == "reason" and at.endswith("details"))
        ):
            # Whether a model that stopped to call tools called some, its reader knows: an answer may be given through a tool.
            words = [word for word in (list_of(value) or [value]) if find_stop(word) != "tools"]
            marker = find_stop_marker(words) if is_end else None
            if marker is not None:
                unknowns.mark_parts(marker.parts, f"{at}.{key}: {marker.why}")
        elif (marker := find_marker(key, value, calls)) is not None and (is_end or marker.parts == CALL_PARTS):
            unknowns.mark_parts(marker.parts, f"{at}.{shorten(key, 40)}: {marker.why}")


def _find_speaker(entry: dict[str, Any]) -> str | None:
    """Return who an entry is from, or what it is, as its format spells it."""
    content = entry.get("content")
    for value in (entry.get("role"), entry.get("type"), entry.get("kind"), dict_or_empty(content).get("role"), entry.get("author")):
        if isinstance(value, str) and value not in ("message", "constructor"):
            return value
    path = list_of(entry.get("id"))
    return path[-1] if path and isinstance(path[-1], str) else None


def _is_others(speaker: str | None) -> bool:
    return speaker is not None and _OTHERS.match(speaker) is not None
