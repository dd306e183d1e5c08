"""Output tools: how some frameworks have a model answer in a given form.

The model is offered a tool whose arguments are the answer, and no tool runs when it is called. Where a record itself says that a tool was
one of these, its arguments are the answer and it was no call. Where it does not say so, it is a call like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from proctor.evidence.shared.conversation import Message
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json


def fold_outputs(messages: Sequence[Message], names: Collection[str], taken: Collection[str | None]) -> list[Message]:
    """Return the messages without calls of these tools; the arguments of the calls whose ids were taken are the answers."""
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
            continue  # it held nothing but what an output tool answered
        calls = tuple(call for call in message.calls if call.name not in names)
        message = msgspec.structs.replace(message, calls=calls, results=results)
        answers = [call.arguments for call in outputs if call.id in taken]
        found.append(with_answer(message, answers[0]) if answers else message)
    return found


def with_answer(message: Message, answer: Json) -> Message:
    """Return the message with what was answered in a given form; its text is that, where nothing else was said."""
    return msgspec.structs.replace(message, body=answer, text=message.text or as_text(answer))
