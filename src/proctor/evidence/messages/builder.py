"""What the readers of message lists share: a strict look at objects, and messages that are put together piece by piece.

Nobody may pass what was not seen. A reader therefore says of every key that it takes it, or that it is harmless; what is left over is
weighed by what it could hold:

    nothing (null, false, "", [], {})   nothing
    a number                            the result of a tool, where results stand
    true                                the result of a tool, where results stand; else whether the text beside it is the answer
    text                                the answer, the question or the result, whichever could stand there; anything in a tool call, or
                                        if the key or the text looks like one
    an object or a list                 anything
    whatever its value, if its name     anything: messages are missing
    speaks of a summary or a cut

What it could hold is then unknown, with the path and the word in the account. Keys that end like ids and times carry neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.shared.calls import CONTENT_ERROR, read_arguments
from proctor.evidence.shared.conversation import Message, Role, ToolResult
from proctor.evidence.shared.spoken_calls import call_in_words
from proctor.evidence.shared.truncated_conversations import find_gap, tells_of_gap
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import find_stop
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json, ToolCall, Usage
from proctor.model.show import kind_of, show

EVERYTHING: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "turns", "usage")
"""What a part that nobody understands may have been about."""

MISSING = "messages are missing that this speaks of"

_SHOWN = 40
"""Characters of a value from the record in a doubt."""
_HARMLESS_ENDS = ("id", "_at", "At", "time", "Time", "timestamp", "Timestamp", "_ms", "Ms")
_CALLING = re.compile(r"tool|function|call|action|invo|command|handoff|transfer|execut", re.IGNORECASE)

_WRITTEN_TYPES = ("text", "output_text", "input_text", "TextContent")


class Fields:
    """One object of a message list, and the keys that nobody has taken yet."""

    __slots__ = ("at", "left", "unknowns")

    def __init__(self, value: dict[str, Any], at: str, unknowns: Unknowns) -> None:
        self.left = dict(value)
        self.at = at
        self.unknowns = unknowns

    def take(self, *keys: str) -> Json:
        """Remove these keys, and return the first value that is not null."""
        found: Json = None
        # All spellings go, also those behind the first: a thing that is told twice must not be left over to be doubted.
        for key in keys:
            value = self.left.pop(key, None)
            if found is None:
                found = value
        return found

    def take_text(self, *keys: str, about: Iterable[Part] = EVERYTHING) -> str | None:
        """Take a text, and doubt anything else that is not null."""
        value = self.take(*keys)
        if value is None or isinstance(value, str):
            return value
        self.mark(about, f".{keys[0]}: expected text, found {kind_of(value)}")
        return None

    def take_flag(self, *keys: str) -> bool:
        """Take true or false, and doubt how the tool ended for anything else."""
        value = self.take(*keys)
        if value is not None and not isinstance(value, bool):
            self.mark(("tool_results",), f".{keys[0]}: expected true or false, found {kind_of(value)}")
        return value is True

    def take_word(self, key: str, known: Collection[str], about: Iterable[Part] = ("tool_results",)) -> str | None:
        """Take one of the known words, and doubt any other."""
        value = self.take(key)
        if value is None or (isinstance(value, str) and value in known):
            return value
        self.mark(about, f".{key}: {show(value, _SHOWN)} is not understood")
        return None

    def take_list(self, *keys: str) -> list[Any]:
        """Take a list, and doubt anything else that is not null."""
        value = self.take(*keys)
        if value is None or isinstance(value, list):
            return value or []
        self.mark(EVERYTHING, f".{keys[0]}: expected a list, found {kind_of(value)}")
        return []

    def take_objects(self, *keys: str) -> Iterator[Fields]:
        """Take a list of objects to look into, and doubt what is none."""
        return iterate_objects(self.take_list(*keys), f"{self.at}.{keys[0]}", self.unknowns)

    def take_object(self, *keys: str) -> Fields | None:
        """Take an object to look into, and doubt anything else that is not null."""
        value = self.take(*keys)
        if value is None:
            return None
        return open_fields(value, f"{self.at}.{keys[0]}", self.unknowns)

    def take_usage(self, *keys: str) -> Usage | None:
        """Take the tokens spent."""
        return read_usage_at(self.take(*keys), f"{self.at}.{keys[0]}", self.unknowns)

    def mark(self, about: Iterable[Part], why: str) -> None:
        """Doubt parts because of something in this object."""
        self.unknowns.mark_parts(about, self.at + why)

    def close(self, harmless: Collection[str] = (), *, role: Role | None = None) -> None:
        """Weigh the keys that nobody took, so that none is passed over in silence."""
        for key, value in self.left.items():
            if key not in harmless:
                weigh_key(self, key, value, role)
            elif (told := find_gap(key, value)) is not None:
                self.mark(EVERYTHING, f".{key}.{show(told, _SHOWN)[1:-1]}: {MISSING}")


def open_fields(value: Json, at: str, unknowns: Unknowns) -> Fields | None:
    """Return the fields of an object, and doubt everything if it is no object."""
    if isinstance(value, dict):
        return Fields(value, at, unknowns)
    unknowns.mark_parts(EVERYTHING, f"{at}: expected an object, found {kind_of(value)}")
    return None


def iterate_objects(values: Iterable[Json], at: str, unknowns: Unknowns) -> Iterator[Fields]:
    """Yield the objects of a list, and doubt everything for what is none."""
    for index, value in enumerate(values):
        found = open_fields(value, f"{at}[{index}]", unknowns)
        if found is not None:
            yield found


def weigh_key(fields: Fields, key: str, value: Json, role: Role | None) -> None:
    """Doubt the parts that a key which is not understood could hold."""
    if value is None or value is False or (isinstance(value, (str, list, dict)) and not value):
        return
    if tells_of_gap(key, value):
        fields.mark(EVERYTHING, f".{show(key, _SHOWN)[1:-1]}: {MISSING}")
        return
    spoken: Part = "tool_results" if role == "tool" else "input" if role == "user" else "answer"
    # Without a role the object is a call, in which any text may be what was passed.
    in_call = role is None
    why = f".{show(key, _SHOWN)[1:-1]}: this key is not understood"
    if isinstance(value, (list, dict)):
        fields.mark(EVERYTHING, why)
    elif isinstance(value, str):
        if key.endswith(_HARMLESS_ENDS) and role != "tool" and not _CALLING.search(key):
            return
        calls = in_call or bool(_CALLING.search(key)) or speaks_of_call(value) or isinstance(decode_container(value), (dict, list))
        if calls or role != "system":
            # What a user said and nobody saw is a turn that nobody counted.
            fields.mark(EVERYTHING if calls else ("input", "turns") if spoken == "input" else (spoken,), why)
    elif value is True:
        fields.mark(EVERYTHING if _CALLING.search(key) else ("tool_results", "answer"), why)
    elif role == "tool":
        fields.mark(("tool_results",), why)


def speaks_of_call(text: str) -> bool:
    """Return whether a text holds what looks like a tool call in words."""
    return call_in_words(text) is not None


def is_written_parts(text: str) -> bool:
    """Return whether a text is the JSON of parts that somebody wrote into one text, or of one part."""
    parts = decode_container(text) if text[:1] in ("[", "{") else None
    if isinstance(parts, dict):
        # An agent may answer {"text": ...}; with a type it is a part.
        return isinstance(parts.get("text"), str) and parts.get("type") in _WRITTEN_TYPES
    return isinstance(parts, list) and any(
        isinstance(part, dict) and isinstance(part.get("text"), str) and (part.keys() == {"text"} or part.get("type") in _WRITTEN_TYPES)
        for part in parts
    )


def read_usage_at(value: Json, at: str, unknowns: Unknowns) -> Usage | None:
    """Read the tokens spent, and doubt their number if something is not understood."""
    if value is None or value == {}:
        return None
    found = read_usage(value)
    if found is None or (found.total_tokens is None and (found.input_tokens is None or found.output_tokens is None)):
        unknowns.mark("usage", f"{at}: not understood as a number of tokens")
    return found


class Draft:
    """One message while it is put together."""

    __slots__ = ("at", "calls", "ids", "model", "results", "role", "texts", "unknowns", "usage")

    def __init__(self, role: Role, at: str, unknowns: Unknowns) -> None:
        self.role: Role = role
        self.at = at
        self.unknowns = unknowns
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self.usage: Usage | None = None
        self.model: str | None = None
        self.ids: set[str] = set()

    def mark_everything(self, at: str, why: str) -> None:
        """Doubt every part: what is here could be anything."""
        self.unknowns.mark_parts(EVERYTHING, f"{at}: {why}")

    def add_text(self, value: Json, at: str) -> None:
        """Add text that was said, and doubt everything if it is no text."""
        if isinstance(value, str):
            self.texts.append(value)
            # Users and systems may write about calls; only a model's words are acted upon.
            spoken = call_in_words(value) if self.role == "assistant" else None
            if spoken is not None:
                self.unknowns.mark("tool_calls", f"{at}: {spoken}")
            if self.role == "assistant" and (is_written_parts(value) or (spoken and isinstance(decode_container(value), list))):
                self.mark_everything(at, "parts of a message written as one text")
        elif value is not None:
            self.mark_everything(at, f"expected text, found {kind_of(value)}")

    def add_call(self, name: Json, arguments: Json, at: str, *, id: Json = None, server: Json = None, alias: Json = None) -> None:
        """Add a call, unless its id is known already: such a call stands twice in the record."""
        if not isinstance(name, str) or not name:
            self.mark_everything(at, "a tool call without a name")
            return
        if isinstance(id, str):
            if id in self.ids:
                return
            self.ids.add(id)
        elif id is not None:
            self.unknowns.mark("tool_results", f"{at}: expected text as the id of a call, found {kind_of(id)}")
        call = ToolCall(
            name=name,
            arguments=read_arguments(arguments),
            id=id if isinstance(id, str) else None,
            server=server if isinstance(server, str) else None,
            aliases=(alias,) if isinstance(alias, str) and alias and alias != name else (),
        )
        self.calls.append(call)

    def add_result(
        self,
        value: Json,
        at: str,
        *,
        id: Json = None,
        name: Json = None,
        error: Json = None,
        kind: str = CONTENT_ERROR,
        failed: bool = False,
    ) -> None:
        """Add what a tool answered; `failed` makes the answer itself the error where none is given."""
        if not isinstance(id, str) and id is not None:
            self.unknowns.mark("tool_results", f"{at}: expected text as the id of a call, found {kind_of(id)}")
        if failed and error is None:
            error = as_text(value) or "the tool reported an error"
        self.results.append(
            ToolResult(
                id=id if isinstance(id, str) else None,
                name=name if isinstance(name, str) else None,
                value=value,
                error=error,
                kind=kind if error is not None else None,
            )
        )

    def knows(self, id: Json) -> bool:
        """Return whether a call of this id was added."""
        return isinstance(id, str) and id in self.ids

    def end_with(self, reason: Json) -> None:
        """Note why the model stopped: one that stopped to call tools called some."""
        if find_stop(reason) == "tools" and not self.calls:
            self.unknowns.mark("tool_calls", f"{self.at}: the model stopped to call tools ({reason}), and no call is here")

    def build(self) -> Message:
        """Return the message."""
        return Message(
            role=self.role,
            text="".join(self.texts) if self.texts else None,
            calls=tuple(self.calls),
            results=tuple(self.results),
            usage=self.usage,
            model=self.model,
        )


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A document whose messages were found, with their places and with what stands beside them."""

    entries: list[tuple[str, Json]]
    beside: dict[str, Json] = {}
    usage: Usage | None = None
    model: str | None = None
    unknowns: tuple[tuple[Part, str], ...] = ()
    """What the envelope itself leaves open."""
    is_whole: bool = False
    """Whether the document says itself that it begins where the run began, so that nothing is missing where nobody speaks to the agent."""


Entries = list[tuple[str, dict[str, Any]]]
Reader = Callable[[Entries, Unknowns], list[Message]]


def iterate_blocks(draft: Draft, content: Json, at: str) -> Iterator[Fields]:
    """Yield the blocks of a message's content, and doubt what is no object; add content that is no list as text."""
    if not isinstance(content, list):
        draft.add_text(content, at)
        return
    yield from iterate_objects(content, at, draft.unknowns)


def iterate_parts(draft: Draft, content: Json, at: str) -> Iterator[tuple[str, Json]]:
    """Yield what is no text in a message's content, each with its place; add the texts, and content that is no list."""
    if not isinstance(content, list):
        draft.add_text(content, at)
        return
    for index, part in enumerate(content):
        place = f"{at}[{index}]"
        if isinstance(part, str):
            draft.add_text(part, place)
        else:
            yield place, part


def list_with_paths(entries: Iterable[Json], at: str) -> list[tuple[str, Json]]:
    """Return the entries of a list, each with its path."""
    return [(f"{at}[{index}]", entry) for index, entry in enumerate(entries)]


def read_role(value: Json, at: str, roles: dict[str, Role], whose: str) -> Role:
    """Return the role that a word of the format means. Raises `EvidenceError` for an unknown word."""
    role = roles.get(value) if isinstance(value, str) else None
    if role is None:
        raise EvidenceError(f"{at}.role: {show(value, _SHOWN)} is no role of {whose}; known: {', '.join(roles)}")
    return role


def not_a_message_error(at: str, whose: str, expected: str) -> EvidenceError:
    """Return the error for an entry that is no message of a format."""
    return EvidenceError(f"{at}: not a message of {whose}: {expected}; name another format with --evidence-format")


def require_key(entry: dict[str, Any], at: str, whose: str, *keys: str) -> None:
    """Refuse a message that has none of these keys: it says nothing at all."""
    if not any(key in entry for key in keys):
        raise not_a_message_error(at, whose, f"it has no {' or '.join(keys[:2])}")


def list_parts(entry: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the parts of a message that are objects."""
    value = entry.get(key)
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def join_text_parts(value: Json, keys: tuple[str, ...] = ("text",)) -> Json:
    """Return the text of a result that is nothing but parts of text, parsed if it is JSON; any other result as it is."""
    if isinstance(value, str):
        return decode_container(value)
    if not isinstance(value, list) or not value:
        return value
    texts = [part if isinstance(part, str) else _read_only_text(part, keys) for part in value]
    if any(text is None for text in texts):
        return value
    return decode_container("".join(text for text in texts if text is not None))


def _read_only_text(part: Json, keys: tuple[str, ...]) -> str | None:
    if not isinstance(part, dict):
        return None
    for key in keys:
        text = part.get(key)
        if isinstance(text, str):
            return text
    return None
