"""What the readers of message lists share: envelopes, and answers that are given through a tool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.shared.blocks import PLAIN, Dialect
from proctor.evidence.shared.conversation import Message, mark_earlier
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, Usage

Entries = list[tuple[str, dict[str, Any]]]
Reader = Callable[[Entries, Unknowns], list[Message]]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A document whose messages were found, with their paths and the fields next to them."""

    entries: list[tuple[str, Json]]
    rest: dict[str, Json] = {}
    """The fields next to the messages that were not read yet."""
    usage: Usage | None = None
    model: str | None = None
    unknowns: Unknowns = msgspec.field(default_factory=Unknowns)
    """What the envelope itself leaves unknown."""
    is_whole: bool = False
    """Whether the document begins where the run began although it does not repeat the user's message."""
    error: str | None = None
    """Why the run failed."""


class MessageFormat(msgspec.Struct, frozen=True):
    """One format of messages."""

    name: str
    """What `--evidence-format` takes."""
    summary: str
    marks: Callable[[dict[str, Any]], bool]
    """Whether a message can only be of this format."""
    read: Reader | None = None
    """Reads the messages; None if the common reader is enough."""
    open: Callable[[Any], Opened | None] | None = None
    """Finds the messages in an envelope of this format, or returns None if the document is no such envelope."""
    keys: tuple[str, ...] = ("messages",)
    extends: tuple[str, ...] = ()
    """Formats whose marks are on the messages of this one, too."""
    dialect: Dialect = PLAIN
    opens_lists: bool = False
    """Whether an envelope may be a list."""

    def open_envelope(self, document: Json) -> Opened | None:
        """Return the messages of an envelope of this format, or None."""
        is_possible = isinstance(document, dict) or (self.opens_lists and isinstance(document, list))
        return self.open(document) if self.open is not None and is_possible else None


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


def open_answer(document: dict[str, Any], at: str, answer: dict[str, Any], unknowns: Unknowns, *drop: str) -> Opened:
    """Find what was sent, if that is in the document, and add the answer of a provider."""
    sent = document.get("messages")
    if sent is not None and not isinstance(sent, list):
        raise EvidenceError("$.messages: expected a list of messages")
    entries = [*list_with_paths(sent or [], "$.messages"), (at, answer)]
    return Opened(entries=entries, rest=without(document, "messages", *drop), unknowns=unknowns)


def list_with_paths(entries: Iterable[Json], at: str) -> list[tuple[str, Json]]:
    """Return the entries of a list, each with its path."""
    return [(f"{at}[{index}]", entry) for index, entry in enumerate(entries)]


def without(document: dict[str, Json], *keys: str) -> dict[str, Json]:
    """Return the fields of a document except these."""
    return {key: value for key, value in document.items() if key not in keys}


def read_all(entries: Entries, unknowns: Unknowns, dialect: Dialect = PLAIN) -> list[Message]:
    """Read messages that need nothing but the common reader."""
    return [message for at, entry in entries if (message := read_message(entry, at, unknowns, dialect)) is not None]


def list_parts(entry: dict[str, Any], key: str = "content") -> list[dict[str, Any]]:
    """Return the blocks of a message that are objects."""
    return [part for part in list_of(entry.get(key)) if isinstance(part, dict)]


def join_answers(messages: Iterable[Message | None]) -> list[Message]:
    """Return the messages; those of the assistant in a row are one."""
    found: list[Message] = []
    for message in messages:
        if message is None:
            continue
        if found and message.role == found[-1].role == "assistant":
            before = found.pop()
            texts = [text for text in (before.text, message.text) if text is not None]
            message = Message(
                role="assistant",
                text="".join(texts) if texts else None,
                calls=before.calls + message.calls,
                results=before.results + message.results,
                usage=before.usage if before.usage is not None else message.usage,
                model=message.model or before.model,
                waits=message.waits if message.waits is not None else before.waits and not message.results,
            )
        found.append(message)
    return found


def check_edits(management: Json, at: str, calls: int, unknowns: Unknowns) -> None:
    """Mark what Anthropic removed from the messages it was given, of which `calls` calls are in the list.

    Its edits leave the caller's own list as it was, so cleared tool uses are missing only if fewer of them are in the list.
    """
    for edit in map(dict_or_empty, list_of(dict_or_empty(management).get("applied_edits"))):
        kind, cleared = str(edit.get("type")), edit.get("cleared_tool_uses")
        if not kind.startswith("clear_thinking") and not (
            kind.startswith("clear_tool_uses") and isinstance(cleared, int) and cleared <= calls
        ):
            mark_earlier(unknowns, f"{at}.context_management: {kind!r} removed what is not in these messages")


def fold_outputs(messages: Sequence[Message], names: Collection[str], taken: Collection[str | None]) -> list[Message]:
    """Return the messages without calls of output tools, whose arguments are the answer; those with ids in `taken` ended the run."""
    folded = {call.id for message in messages for call in message.calls if call.name in names}
    found: list[Message] = []
    for message in messages:
        outputs = [call for call in message.calls if call.name in names]
        # By name where a result has one, as ids may be used again for other tools.
        results = tuple(
            result for result in message.results if not (result.name in names if result.name is not None else result.id in folded)
        )
        if not outputs and len(results) == len(message.results):
            found.append(message)
            continue
        if not message.calls and not results and message.text is None:
            continue  # it held nothing but what an output tool returned
        calls = tuple(call for call in message.calls if call.name not in names)
        message = msgspec.structs.replace(message, calls=calls, results=results)
        answers = [call.arguments for call in outputs if call.id in taken]
        found.append(with_answer(message, answers[0]) if answers else message)
    return found


def with_answer(message: Message, answer: Json) -> Message:
    """Return the message with an answer in a given form; its text is that, unless the message has another."""
    return msgspec.structs.replace(message, body=answer, text=message.text or as_text(answer))
