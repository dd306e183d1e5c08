"""Signs in message lists: what the answers of a model, and what stands around them, say about themselves beside text and calls.

Each format has its own place for them, and the words are the same (`signs.py`): why the model stopped, what was counted beside the tokens,
the sources of a search that no call tells of. Looked at are the members of an answer and of the objects in which providers and frameworks
keep such things; what was said and what tools were given is not, as it is the agent's own.

Why a model stopped matters for the last answer before the user speaks again, or before the end: after the others the run went on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from proctor.evidence.messages.builder import Entries
from proctor.evidence.shared.usage import HOLDERS
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import STOP_FIELDS, find_stop, to_snake_case
from proctor.evidence.unknowns.markers import find_marker, find_stop_marker
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten

_TELLING = frozenset(
    (
        *HOLDERS,
        *("response_metadata", "responseMetadata", "additional_kwargs", "provider_specific_fields", "provider_data", "providerData"),
        *("meta", "_meta", "server_tool_use", "incomplete_details", "generation_info", "provider_details", "model_extra"),
    )
)
"""Objects in which is kept what is told of an answer."""
_DEPTH = 4
"""Levels below an answer that are looked at; deeper ones belong to what the agent was asked for."""
_FOUND = ("citations", "search_results", "annotations", "url_citations", "web_search_results")
_LOOKED_UP = re.compile(r"search|fetch|brows|retriev|ground|url|http|web|lookup|citation|interpreter|shell|computer", re.IGNORECASE)
"""Names of tools that find sources."""
_OTHERS = re.compile(
    r"(user|human|tool|function|system|developer|request)(message)?(chunk)?$|.+(_call|_output|_result|_reference)$", re.IGNORECASE
)
_STEPS = re.compile(r"(?:(?:num|number_of|n|total|model)_)?(?:steps|step_count|iterations|llm_calls|model_calls)(?:_count)?$")
"""Names of members that count how often the model was asked."""
_USERS = ("user", "human", "humanmessage", "humanmessagechunk", "request")
_ASIDE = ("system", "developer", "result", "stream_event", "SystemMessage")
"""Entries after which nobody has spoken."""
_SAID = frozenset(
    ("messages", "choices", "output", "contents", "candidates", "input", "content", "tools", "metadata", "message", "context")
)
"""Members of a document that hold messages, or are the user's own."""


def weigh_signs(document: Json, entries: Entries, calls: Sequence[ToolCall], unknowns: Unknowns) -> None:
    """Say what the answers, and the document they stand in, leave open by what they say of themselves."""
    followers = _list_followers(entries)
    for (at, entry), follower in zip(entries, followers, strict=True):
        inner = next((entry[key] for key in ("data", "kwargs", "message") if isinstance(entry.get(key), dict)), entry)
        if _is_others(_find_speaker(entry)) or _is_others(_find_speaker(inner)):
            continue
        _Look(calls, unknowns, is_end=follower is None or follower.lower() in _USERS).weigh_members(inner, at)
        for place, block in enumerate(list_of(inner.get("content"))):
            for key in _FOUND:
                _weigh_sources(key, dict_or_empty(block).get(key), f"{at}.content[{place}]", calls, unknowns)
    if isinstance(document, dict) and not any(document is entry for _, entry in entries):
        _Look(calls, unknowns, is_end=True).weigh_members({key: value for key, value in document.items() if key not in _SAID}, "$")


def weigh_steps(document: Json, answers: int, unknowns: Unknowns) -> None:
    """Say that calls may be missing where a document counts more steps of the model than it has answers of it."""
    entry = dict_or_empty(document)
    holders = [("$", entry), *((f"$.{key}", dict_or_empty(entry.get(key))) for key in _TELLING)]
    for at, holder in holders:
        for key, value in holder.items():
            if type(value) is int and value > answers and _STEPS.match(to_snake_case(key)):
                unknowns.mark_parts(CALL_PARTS, f"{at}.{shorten(key, 40)}: this counts {value}, and the messages have {answers} of them")


def _list_followers(entries: Entries) -> list[str | None]:
    """Return who speaks after each entry; nobody after the last."""
    followers: list[str | None] = []
    after: str | None = None
    for _, entry in reversed(entries):
        followers.append(after)
        who = _find_speaker(entry)
        after = who if who not in _ASIDE else after
    return followers[::-1]


class _Look:
    """A look at the members of one answer."""

    def __init__(self, calls: Sequence[ToolCall], unknowns: Unknowns, *, is_end: bool) -> None:
        self._calls, self._unknowns, self._is_end = calls, unknowns, is_end

    def weigh_members(self, entry: dict[str, Any], at: str, depth: int = _DEPTH) -> None:
        """Weigh each member that says something of the answer."""
        for key, value in entry.items():
            place = f"{at}.{shorten(key, 40)}"
            # At the top only objects that are known to tell of an answer are opened; below one of them everything is.
            if isinstance(value, dict) and depth and (key in _TELLING or depth < _DEPTH):
                self.weigh_members(value, place, depth - 1)
            elif key in _FOUND:
                _weigh_sources(key, value, at, self._calls, self._unknowns)
            elif (
                to_snake_case(key) in STOP_FIELDS
                or (key == "status" and value == "incomplete")
                or (key == "reason" and at.endswith("details"))
            ):
                self._weigh_end(value, place)
            elif (sign := find_marker(key, value, self._calls)) is not None and (self._is_end or sign.parts == CALL_PARTS):
                self._unknowns.mark_parts(sign.parts, f"{place}: {sign.why}")

    def _weigh_end(self, value: Json, place: str) -> None:
        # Whether one that stopped to call tools called some, its reader knows: an answer may be given through a tool.
        words = [word for word in (list_of(value) or [value]) if find_stop(word) != "tools"]
        sign = find_stop_marker(words) if self._is_end else None
        if sign is not None:
            self._unknowns.mark_parts(sign.parts, f"{place}: {sign.why}")


def _find_speaker(entry: dict[str, Any]) -> str | None:
    """Return who an entry is from, or what it is, in the words of its format."""
    content = entry.get("content")
    for value in (entry.get("role"), entry.get("type"), entry.get("kind"), dict_or_empty(content).get("role"), entry.get("author")):
        if isinstance(value, str) and value not in ("message", "constructor"):
            return value
    path = list_of(entry.get("id"))
    return path[-1] if path and isinstance(path[-1], str) else None


def _is_others(speaker: str | None) -> bool:
    return speaker is not None and _OTHERS.match(speaker) is not None


def _weigh_sources(key: str, value: Json, at: str, calls: Sequence[ToolCall], unknowns: Unknowns) -> None:
    """Say that something was looked up, where sources of it stand beside an answer and no call tells of it."""
    if any(_is_source(member) for member in list_of(value)) and not any(_LOOKED_UP.search(call.name) for call in calls):
        unknowns.mark_parts(CALL_PARTS, f"{at}.{key}: sources were looked up, and no call here tells of it")


def _is_source(member: Json) -> bool:
    if isinstance(member, str):
        return member.startswith(("http://", "https://"))
    entry = dict_or_empty(member)
    address = next((entry[key] for key in ("url", "uri", "url_citation", "file_citation") if entry.get(key)), None)
    return address is not None
