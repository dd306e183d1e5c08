"""Turns what the function of an agent returned into evidence.

    a text, an `Evidence`                        as they are
    a result of a framework                      by its reader (`frameworks/`)
    a mapping, a list                            as the JSON of an HTTP answer (`answers/json_answers.py`), or as a record of plain evidence
    a text with one of these, in either order    the text is the answer, and the rest records the run
    the items of a stream                        pieces of text, what a framework streams, or text and one of these at the end

Of a conversation that is returned whole after every message, only the exchange of the current message is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from proctor.evidence.plain.record import read_plain
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Evidence, EvidenceTurn
from proctor.model.show import kind_of
from proctor.targets.answers.account import mark_missing_answer, mark_unknown
from proctor.targets.answers.json_answers import read_json_answer, replace_answer
from proctor.targets.answers.plain_values import Unreadable, plain_evidence, plain_value, type_name
from proctor.targets.frameworks.found import mark_stand_in
from proctor.targets.frameworks.providers import unpack_answers
from proctor.targets.frameworks.recognise import read_returned, read_streamed
from proctor.targets.frameworks.simplify import Budget
from proctor.targets.frameworks.streams import Streamed
from proctor.targets.shared.conversation import Message

_MAX_KINDS = 5
"""Kinds of items that a message about a stream or a tuple names."""


def read_returned_value(value: object) -> Evidence | None:
    """Return the evidence in a returned value; None for a value that is no evidence. Raises `EvidenceError` or `Unreadable`."""
    pair = _split_pair(value)
    if pair is not None:
        run, answer = read_returned_value(pair[1]), read_returned_value(pair[0])
        return None if run is None or answer is None else replace_answer(run, answer)
    if isinstance(value, Streamed):
        return _read_stream(value.items)
    if isinstance(value, Evidence):
        return plain_evidence(value)
    if isinstance(value, str):
        return _read_text(value)
    found = read_returned(value) or _read_messages(value)
    if found is not None or not isinstance(value, (Mapping, list)):
        return found
    found = read_json_answer(plain_value(unpack_answers(cast(object, value), Budget())))
    return None if found is None else mark_stand_in(found)


def _read_text(text: str) -> Evidence:
    return mark_stand_in(read_plain({"text": plain_value(text)}))


def _read_messages(value: object) -> Evidence | None:
    """Return what messages of a framework record next to a text in a mapping; None for everything else."""
    entry = cast("dict[object, object]", value) if type(value) is dict else {}
    text = entry.get("text")
    run = read_returned(entry["messages"]) if entry.keys() == {"text", "messages"} and isinstance(text, str) else None
    return None if run is None else replace_answer(run, _read_text(cast(str, text)))


def _read_stream(items: list[object]) -> Evidence | None:
    """Return what a stream contained as evidence."""
    if all(isinstance(item, str) for item in items):
        return _read_text("".join(cast("list[str]", items)))
    found = read_streamed(items)
    if found is not None:
        return found
    *pieces, last = items
    if isinstance(last, (Evidence, Mapping, list)) and all(isinstance(piece, str) for piece in pieces):
        run = read_returned_value(cast(object, last))
        # Pieces before an answer with a text of its own are that text as it was generated, or progress messages.
        text = _read_text("".join(cast("list[str]", pieces))) if run is not None and run.text is None and pieces else None
        return run if run is None or text is None else replace_answer(run, text)
    kinds = ", ".join(dict.fromkeys(describe_kind(item) for item in items[:_MAX_KINDS]))
    raise Unreadable(f"its stream held {kinds}")


def _split_pair(value: object) -> tuple[str, object] | None:
    """Return the text of a pair and the other value; None for everything else."""
    if not isinstance(value, (tuple, list)) or len(cast("Sequence[object]", value)) != 2:
        return None
    first, second = cast("Sequence[object]", value)
    text, other = (first, second) if isinstance(first, str) else (second, first)
    # No run is recorded as a pair within a pair, which may contain itself.
    is_alone = other is None or isinstance(other, (str, bool, int, float)) or _contains_text(other)
    # A list of a text and an object may be the parts of one message.
    is_message = isinstance(value, list) and not isinstance(other, list)
    return (text, other) if isinstance(text, str) and not is_alone and not is_message else None


def _contains_text(value: object) -> bool:
    return isinstance(value, (tuple, list)) and any(isinstance(item, str) for item in cast("Sequence[object]", value))


def describe_kind(value: object) -> str:
    """Return the user's word for this kind of value, else its type."""
    if isinstance(value, tuple):
        kinds = ", ".join(describe_kind(item) for item in cast("tuple[object, ...]", value)[:_MAX_KINDS])
        return f"a tuple ({kinds})"
    word = kind_of(value)
    return type_name(value) if word == type(value).__name__ else word


# --- the current exchange -----------------------------------------------------------------------------------------------


def keep_current_exchange(evidence: Evidence, message: Message) -> Evidence:
    """Return the evidence from the last time the message was sent; after other turns it is unknown if the message is not found.

    Many frameworks return the whole conversation after every message: a call of the first turn must not count for the second.
    """
    turns = evidence.turns
    if turns is None or len(turns) < 2:
        return _mark_other_exchange(evidence, 1) if _is_other_exchange(evidence, message) else evidence
    at = _find_message(turns, as_text(message.said) or "")
    if at is None:
        return evidence if message.turn == 0 else _mark_other_exchange(evidence, len(turns))
    return _keep_turns(evidence, turns[at:]) if at else evidence


def _is_other_exchange(evidence: Evidence, message: Message) -> bool:
    """Return whether the only returned exchange, after the first turn, begins with another message than that of this turn."""
    sent, recorded = message.said, evidence.input
    # It may repeat an earlier message, or reword this one: which of the two is unknown.
    return message.turn > 0 and isinstance(sent, str) and isinstance(recorded, str) and bool(sent.strip()) and sent.strip() not in recorded


def _find_message(turns: tuple[EvidenceTurn, ...], sent: str) -> int | None:
    sent = sent.strip()
    if not sent:
        return None
    exact = [index for index, turn in enumerate(turns) if (turn.input or "").strip() == sent]
    # An agent may wrap the message in a prompt of its own.
    wrapped = [index for index, turn in enumerate(turns) if sent in (turn.input or "")]
    return exact[-1] if exact else wrapped[-1] if wrapped else None


def _keep_turns(evidence: Evidence, turns: tuple[EvidenceTurn, ...]) -> Evidence:
    last = next((turn for turn in reversed(turns) if turn.text is not None or turn.body is not None), turns[-1])
    current = msgspec.structs.replace(
        evidence,
        input=turns[0].input,
        text=last.text,
        body=last.body,
        tool_calls=tuple(call for turn in turns for call in turn.tool_calls or ()),
        usage=add_usage(turn.usage for turn in turns),
        turns=turns if len(turns) > 1 else None,
    )
    return mark_missing_answer(current)


def _mark_other_exchange(evidence: Evidence, count: int) -> Evidence:
    found = "the returned exchange does not begin" if count == 1 else f"{count} exchanges were returned, and none begins"
    return mark_unknown(evidence, (*CALL_PARTS, "answer"), f"{found} with the message of this turn")
