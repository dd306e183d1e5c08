"""What the readers of message lists share: envelopes, and answers that are given through a tool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from proctor.evidence.shared.blocks import PLAIN, Dialect
from proctor.evidence.shared.conversation import ENDS_EMPTY, mark_earlier
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_at, list_of
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, Usage

Entries = list[tuple[str, dict[str, Any]]]
Reader = Callable[[Entries, Unknowns], list[Message]]
Unwrap = Callable[[str, dict[str, Any], Unknowns], tuple[str, dict[str, Any]]]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A document whose messages were found, with their paths and the fields next to them."""

    entries: list[tuple[str, Json]]
    rest: dict[str, Json] = {}
    usage: Usage | None = None
    model: str | None = None
    unknowns: Unknowns = msgspec.field(default_factory=Unknowns)
    is_whole: bool = False
    """Whether the document covers the start of the run although it does not repeat the user's message."""
    error: str | None = None


class MessageFormat(msgspec.Struct, frozen=True):
    """One format of messages."""

    name: str
    summary: str
    marks: Callable[[dict[str, Any]], bool]
    """Whether a message can only be of this format."""
    read: Reader | None = None
    open: Callable[[Any], Opened | None] | None = None
    """Finds the messages in an envelope of this format, or returns None if the document is not such an envelope."""
    keys: tuple[str, ...] = ("messages",)
    extends: tuple[str, ...] = ()
    """Formats whose marks also occur on the messages of this one."""
    dialect: Dialect = PLAIN
    unwrap: Unwrap | None = None
    """Removes the envelope of one message."""
    opens_lists: bool = False
    answer: tuple[str, str] | None = None
    """The path of the message in an answer of the provider, and the field of the answer with its finish reason."""
    lists: tuple[str, ...] = ()
    """Paths of lists that may contain the messages."""
    drop: tuple[str, ...] = ()
    """Fields next to such a list that repeat its content."""

    def open_envelope(self, document: Json) -> Opened | None:
        """Return the messages of an envelope of this format, or None."""
        is_possible = isinstance(document, dict) or (self.opens_lists and isinstance(document, list))
        found = self.open(document) if self.open is not None and is_possible else None
        if self.answer is not None and isinstance(document, dict):
            path, reason = self.answer
            holder, _, key = path.rpartition(".")
            outer = dict_or_empty(document.get(holder)) if holder else document
            if isinstance(outer.get(key), dict) and reason in document:
                answer = {**(without(outer, key) if holder else {}), **outer[key], reason: document[reason]}
                return open_answer(document, f"$.{path}", answer, holder or key, reason)
        return open_list(document, self.marks, *self.lists, drop=self.drop) if found is None and isinstance(document, dict) else found


def open_list(document: Json, is_own: Callable[[dict[str, Any]], bool], *paths: str, drop: tuple[str, ...] = ()) -> Opened | None:
    """Find the first list with messages of a format under one of these paths."""
    for path in paths:
        steps = path.split(".")
        if steps[0] not in document:
            continue
        listed: Json = document
        for step in steps:
            listed = dict_or_empty(listed).get(step)
        if any(is_own(entry) for entry in list_of(listed) if isinstance(entry, dict)):
            return Opened(entries=list_with_paths(listed, f"$.{path}"), rest=without(document, steps[0], *drop))
    return None


def open_answer(document: dict[str, Any], at: str, answer: dict[str, Any], *drop: str, unknowns: Unknowns | None = None) -> Opened:
    """Find the sent messages, if the document has them, and add the provider's answer."""
    entries = [*list_with_paths(document.get("messages"), "$.messages"), (at, answer)]
    return Opened(entries=entries, rest=without(document, "messages", *drop), unknowns=unknowns or Unknowns())


def list_with_paths(entries: Json, at: str) -> list[tuple[str, Json]]:
    """Return the entries of a list, each with its path; none if it is null. Raises `EvidenceError` for anything else."""
    return [(f"{at}[{index}]", entry) for index, entry in enumerate(() if entries is None else list_at(entries, at))]


def without(document: dict[str, Json], *keys: str) -> dict[str, Json]:
    """Return the fields of a document except these."""
    return {key: value for key, value in document.items() if key not in keys}


def read_all(entries: Entries, unknowns: Unknowns, dialect: Dialect = PLAIN, unwrap: Unwrap | None = None) -> list[Message]:
    """Read messages, each after `unwrap` has removed the envelope of its format."""
    found: list[Message] = []
    for at, entry in entries:
        if unwrap is not None:
            at, entry = unwrap(at, entry, unknowns)
        # Mark the content that Anthropic removed from the received messages; its edits do not change the caller's own list.
        for holder, place in ((entry, at), (dict_or_empty(entry.get("response_metadata")), f"{at}.response_metadata")):
            for edit in map(dict_or_empty, list_of(dict_or_empty(holder.get("context_management")).get("applied_edits"))):
                kind, cleared = str(edit.get("type")), edit.get("cleared_tool_uses")
                # Cleared tool uses are missing only if fewer of them are in the list.
                is_here = (
                    kind.startswith("clear_tool_uses") and isinstance(cleared, int) and cleared <= sum(len(one.calls) for one in found)
                )
                if not is_here and not kind.startswith("clear_thinking"):
                    mark_earlier(unknowns, f"{place}.context_management: {kind!r} removed what is not in these messages")
        message = read_message(entry, at, unknowns, dialect)
        found += [message] if message is not None else []
    return found


def list_parts(entry: dict[str, Any], key: str = "content") -> list[dict[str, Any]]:
    """Return the blocks of a message that are objects."""
    return [part for part in list_of(entry.get(key)) if isinstance(part, dict)]


def join_answers(messages: Iterable[Message | None]) -> list[Message]:
    """Return the messages, with consecutive messages of the assistant joined."""
    found: list[Message] = []
    for message in messages:
        if message is None:
            continue
        if found and message.role == found[-1].role == "assistant":
            previous = found.pop()
            texts = [text for text in (previous.text, message.text) if text is not None]
            message = Message(
                role="assistant",
                text="".join(texts) if texts else None,
                calls=previous.calls + message.calls,
                results=previous.results + message.results,
                usage=previous.usage if previous.usage is not None else message.usage,
                model=message.model or previous.model,
                waits=message.waits if message.waits is not None else previous.waits and not message.results,
                # An empty message after a text is the end of a stream.
                end=None if message.end == ENDS_EMPTY and texts else message.end,
            )
        found.append(message)
    return found


def fold_outputs(messages: Sequence[Message], names: Collection[str], taken: Collection[str | None]) -> list[Message]:
    """Return the messages without calls of output tools, whose arguments are the answer; calls with ids in `taken` ended the run."""
    folded = {call.id for message in messages for call in message.calls if call.name in names}
    found: list[Message] = []
    for message in messages:
        outputs = [call for call in message.calls if call.name in names]
        # By name if a result has one, because ids may be reused for other tools.
        results = tuple(
            result for result in message.results if not (result.name in names if result.name is not None else result.id in folded)
        )
        if not outputs and len(results) == len(message.results):
            found.append(message)
            continue
        if not message.calls and not results and message.text is None:
            continue  # it contained only the result of an output tool
        calls = tuple(call for call in message.calls if call.name not in names)
        message = msgspec.structs.replace(message, calls=calls, results=results)
        answers = [call.arguments for call in outputs if call.id in taken]
        found.append(with_answer(message, answers[0]) if answers else message)
    return found


def with_answer(message: Message, answer: Json) -> Message:
    """Return the message with a structured answer, which is also its text unless the message has another."""
    return msgspec.structs.replace(message, body=answer, text=message.text or as_text(answer))
