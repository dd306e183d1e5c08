"""Reads mappings and lists of plain values that a function returned: plain evidence, messages, and what providers and frameworks write.

One message, the answer of a provider, and what `to_dict()` makes of a result are steps or parts of a run: their text is read, and the calls
of the run are *unknown*, with the word what to return instead.
"""

from __future__ import annotations

from proctor.errors import EvidenceError
from proctor.evidence.messages.ai_sdk_steps import complete_last_step, is_result
from proctor.evidence.plain.record import CARRYING, read_plain
from proctor.evidence.reading import read_document
from proctor.evidence.values.access import dict_or_empty
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json
from proctor.targets.frameworks.providers import unpack_answers
from proctor.targets.frameworks.simplify import Budget
from proctor.targets.lost_messages import add_doubt, mark_lost_messages
from proctor.targets.returned import plain_value
from proctor.targets.told_messages import name_provider
from proctor.targets.told_text import lay_text, read_answer_body, split_messages

_CALLS: tuple[Part, ...] = (*CALL_PARTS, "usage")
_ONE_ANSWER = "one answer of a provider shows the last step only: return the messages of the whole loop, or what the framework returned"
_ONE_MESSAGE = "one message was returned, which shows the last step only: return all messages of the run, or what the framework returned"
_NOT_WHOLE = "the mapping that `to_dict()` gives has the last message only, and no calls: return the `AgentResult` itself"
_ANSWERING = ("assistant", "ai", "model")


def read_plain_answer(answer: object) -> Evidence | None:
    """Return the evidence in a mapping or a list; None where it holds several pieces of evidence, or none."""
    given = complete_last_step(plain_value(unpack_answers(answer, Budget())))
    part = _read_part_of_run(dict_or_empty(given))
    if part is not None:
        return part
    if is_result(given):
        return read_document(given, format="ai-sdk")[0]
    told = split_messages(dict_or_empty(given))
    if told is not None:
        beside = read_plain_answer(told[1])
        return None if beside is None else lay_text(beside, read_plain({"text": told[0]}))
    answered = read_answer_body(dict_or_empty(given)) if not _is_envelope(given) else None
    if answered is not None:
        return answered
    is_messages = isinstance(given, list) or _is_envelope(given)
    found = read_document(given, format=None if is_messages else "plain")
    if len(found) != 1:
        return None
    return mark_lost_messages(found[0]) if is_messages else found[0]


def _is_envelope(given: Json) -> bool:
    """Return whether a mapping is an envelope of messages, as the state of an agent graph is, rather than plain evidence."""
    entry = dict_or_empty(given)
    return isinstance(entry.get("messages"), list) and CARRYING.isdisjoint(entry)


def _read_part_of_run(entry: dict[str, Json]) -> Evidence | None:
    """Return what one answer, one message or a written result shows; None for everything else."""
    is_message = entry.get("role") in _ANSWERING and ("content" in entry or "parts" in entry)
    # A message may have calls under the key that plain evidence has them under.
    if not (CARRYING - {"tool_calls"} if is_message else CARRYING).isdisjoint(entry):
        return None
    document: Json = entry
    format, why = name_provider(entry), _ONE_ANSWER
    if entry.get("type") == "agent_result" and dict_or_empty(entry.get("message")):
        document, format, why = [entry["message"]], "bedrock", _NOT_WHOLE
    elif format is None and is_message:
        document, why = [entry], _ONE_MESSAGE
    elif format is None:
        return None
    try:
        found = read_document(document, format=format)
    except EvidenceError:
        return None  # a mapping of somebody's own, which only begins like one
    if len(found) != 1:
        return None
    # Where what was sent stands beside the answer, nothing is missing.
    return found[0] if found[0].input is not None else add_doubt(found[0], _CALLS, why, is_cause=True)
