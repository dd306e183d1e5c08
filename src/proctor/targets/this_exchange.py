"""Keeps of a returned conversation what followed the message that was just said.

Many frameworks return the whole conversation after every message: a graph with a memory, a chat history, the steps of a memory. What stands
before the message happened earlier, or is an example in a prompt: counted again, a call of the first turn would satisfy a claim about
the second.
"""

from __future__ import annotations

import msgspec

from proctor.evidence.shared.usage import add_usage
from proctor.evidence.values.text import as_text
from proctor.model.account import Account, Part
from proctor.model.evidence import Evidence, EvidenceTurn
from proctor.targets.conversation import Message
from proctor.targets.lost_messages import mark_lost_answer

_PARTS: tuple[Part, ...] = ("tool_calls", "tool_arguments", "tool_results", "answer")


def keep_this_exchange(evidence: Evidence, message: Message) -> Evidence:
    """Return the evidence from the last time the message was said; doubt it where the message is not found after other turns."""
    turns = evidence.turns
    if turns is None or len(turns) < 2:
        return _mark_turns(evidence, 1) if _tells_of_another(evidence, message) else evidence
    at = _find_message(turns, as_text(message.said) or "")
    if at is None:
        return evidence if message.turn == 0 else _mark_turns(evidence, len(turns))
    return _cut(evidence, turns[at:]) if at else evidence


def _tells_of_another(evidence: Evidence, message: Message) -> bool:
    """Return whether the only exchange that was returned after the first turn begins with another message than that of this turn."""
    said, asked = message.said, evidence.input
    # What was said before may be returned again; an agent may reword what it is told, and then nobody knows which of the two it is.
    return message.turn > 0 and isinstance(said, str) and isinstance(asked, str) and bool(said.strip()) and said.strip() not in asked


def _find_message(turns: tuple[EvidenceTurn, ...], said: str) -> int | None:
    said = said.strip()
    if not said:
        return None
    exact = [index for index, turn in enumerate(turns) if (turn.input or "").strip() == said]
    # An agent may wrap the message in words of its own.
    wrapped = [index for index, turn in enumerate(turns) if said in (turn.input or "")]
    return exact[-1] if exact else wrapped[-1] if wrapped else None


def _cut(evidence: Evidence, kept: tuple[EvidenceTurn, ...]) -> Evidence:
    last = next((turn for turn in reversed(kept) if turn.text is not None or turn.body is not None), kept[-1])
    this = msgspec.structs.replace(
        evidence,
        input=kept[0].input,
        text=last.text,
        body=last.body,
        tool_calls=tuple(call for turn in kept for call in turn.tool_calls or ()),
        usage=add_usage(turn.usage for turn in kept),
        turns=kept if len(kept) > 1 else None,
    )
    return mark_lost_answer(this)


def _mark_turns(evidence: Evidence, count: int) -> Evidence:
    account = evidence.account or Account()
    told = "the exchange that was returned does not begin" if count == 1 else f"{count} exchanges were returned, and none of them begins"
    why = f"{told} with the message of this turn"
    unknown = {**dict.fromkeys(_PARTS, why), **account.unknown}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown))
