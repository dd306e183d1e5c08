"""What the readers of message lists share: a document whose messages were found, and answers that are given through a tool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from proctor.evidence.shared.blocks import PLAIN, Dialect
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.unknowns.account import Unknowns
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
    """Whether the document begins where the run began although it does not repeat what was said to the agent."""
    error: str | None = None
    """Why the run failed."""


def list_with_paths(entries: Iterable[Json], at: str) -> list[tuple[str, Json]]:
    """Return the entries of a list, each with its path."""
    return [(f"{at}[{index}]", entry) for index, entry in enumerate(entries)]


def without(document: dict[str, Json], *keys: str) -> dict[str, Json]:
    """Return the fields of a document except these."""
    return {key: value for key, value in document.items() if key not in keys}


def read_all(entries: Entries, unknowns: Unknowns, dialect: Dialect = PLAIN) -> list[Message]:
    """Read messages that need nothing but the common reader."""
    return [message for at, entry in entries if (message := read_message(entry, at, unknowns, dialect)) is not None]


def list_parts(entry: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the blocks of a message that are objects."""
    value = entry.get(key)
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def join_messages(before: Message, after: Message) -> Message:
    """Return two messages of the assistant in a row as one."""
    texts = [text for text in (before.text, after.text) if text is not None]
    return Message(
        role="assistant",
        text="".join(texts) if texts else None,
        calls=before.calls + after.calls,
        results=before.results + after.results,
        usage=before.usage if before.usage is not None else after.usage,
        model=after.model or before.model,
    )


def fold_outputs(messages: Sequence[Message], names: Collection[str], taken: Collection[str | None]) -> list[Message]:
    """Return the messages without calls of output tools; the arguments of the calls whose ids were taken are the answers.

    Some frameworks have a model answer in a given form through a tool whose arguments are the answer. Where a record reports that a tool
    was one of these, it was no call.
    """
    if not names:
        return list(messages)
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
