"""Marks what is unknown in the evidence of one live answer. Readers of evidence mark what is unknown inside a document (`Unknowns`);
this adds what only the target can know: that the answer is empty, that only the last message of a run was returned, who read it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import msgspec

from proctor.evidence.shared.conversation import ENDS_WITH_CALL, ENDS_WITH_RESULT, NO_BEGINNING
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.account import CALL_PARTS, PARTS, PLAIN_READERS, Account, Part
from proctor.model.evidence import Evidence, Json

AGENT_FAILED = "agent_failed"
"""The code of a run whose result reports failure."""
EMPTY_ANSWER = "the answer is empty"
NO_START = (
    "the run is not recorded from its first message on, so earlier tool calls are unknown: "
    "return all messages of the run, or the framework's result itself"
)
NO_ANSWER = "the last message is the user's, so the answer and later tool calls are missing: return all messages of the run"
UNFINISHED = (ENDS_WITH_CALL, ENDS_WITH_RESULT)
"""Why the answer and later calls are unknown if messages end with a tool."""
BEFORE: tuple[Part, ...] = (*CALL_PARTS, "usage")
"""The parts that messages before the first recorded one would extend."""
_INVISIBLE_CATEGORIES = ("Cc", "Cf", "Zl", "Zp", "Zs")
_INVISIBLE = frozenset("\u034f\u115f\u1160\u2800\u3164\ufe0e\ufe0f\uffa0")
"""Fillers and selectors: letters or marks by category, but invisible."""


def mark_unknown(evidence: Evidence, parts: Sequence[Part], why: str, *, is_cause: bool = False, is_overridable: bool = False) -> Evidence:
    """Return evidence in which these parts are unknown; an earlier reason stays, unless this one is its cause.

    With `is_overridable` the author may declare the parts complete: instrumentation is missing, and nothing is known to be lost.
    """
    account = evidence.account or Account()
    added = dict.fromkeys(parts, why)
    # This reason names the fix for the same gap.
    earlier = {part: reason for part, reason in account.unknown.items() if reason != NO_BEGINNING or part not in added}
    unknown = {**earlier, **added} if is_cause else {**added, **earlier}
    account = msgspec.structs.replace(
        account,
        unknown=unknown,
        seen_tools=() if "tool_calls" in added else account.seen_tools,
        overridable=(
            *(part for part in account.overridable if is_overridable or part not in added),
            *(part for part in added if is_overridable and part not in earlier and part not in account.overridable),
        ),
    )
    return msgspec.structs.replace(evidence, account=account)


def add_account(evidence: Evidence, unknowns: Unknowns, reader: str) -> Evidence:
    """Return evidence with the unknowns of its target added to those of its reader, whose reasons come first."""
    given, added = evidence.account or Account(), unknowns.close_account(reader)
    pair = (given, added)
    overridable = tuple(
        part
        for part in PARTS
        if any(part in each.overridable for each in pair) and all(part in each.overridable or part not in each.unknown for each in pair)
    )
    account = msgspec.structs.replace(
        given,
        reader=reader if given.reader in PLAIN_READERS else given.reader,
        unknown={**added.unknown, **given.unknown},
        notes=tuple(dict.fromkeys((*given.notes, *added.notes))),
        ignored=tuple(dict.fromkeys((*given.ignored, *added.ignored))),
        overridable=overridable,
    )
    return msgspec.structs.replace(evidence, account=account)


def is_empty(value: Json) -> bool:
    """Return whether a value is null, a text without visible characters, or a list or object of such values."""
    if isinstance(value, str):
        return all(letter in _INVISIBLE or unicodedata.category(letter) in _INVISIBLE_CATEGORIES for letter in value)
    if isinstance(value, (list, dict)):
        return all(is_empty(member) for member in (value.values() if isinstance(value, dict) else value))
    return value is None


def is_blank(evidence: Evidence) -> bool:
    """Return whether an agent answered only an empty text, without a call or an error."""
    if evidence.text is None or not is_empty(evidence.text) or evidence.error is not None:
        return False
    return not (evidence.tool_calls or evidence.nodes or evidence.turns or evidence.state)


def mark_empty_answer(evidence: Evidence) -> Evidence:
    """Return evidence in which an empty answer is unknown, so that no claim about it can pass."""
    if evidence.text is None or not is_empty(evidence.text):
        return evidence
    return mark_unknown(evidence, ("answer",), EMPTY_ANSWER)


def mark_messages(evidence: Evidence, before: Sequence[Part] = BEFORE, *, is_last_step: bool = False) -> Evidence:
    """Return evidence of messages in which the parts before the first message, or everything after the last, are unknown.

    Whether calls may be missing before the first message, the reader of the messages decides, since some formats never repeat the
    user's message; a response of a provider (`is_last_step`) never contains the earlier steps.
    """
    account = evidence.account or Account()
    if evidence.nodes is not None or account.reader in PLAIN_READERS:
        return evidence
    if evidence.input is None and (is_last_step or "tool_calls" in account.unknown):
        return mark_unknown(evidence, before, NO_START, is_cause=is_last_step, is_overridable=True)
    return mark_missing_answer(evidence)


def mark_missing_answer(evidence: Evidence) -> Evidence:
    """Return evidence in which everything after the user's message is unknown if the agent neither answered nor acted."""
    if evidence.text is not None or evidence.body is not None or evidence.tool_calls:
        return evidence
    return mark_unknown(evidence, (*BEFORE, "answer"), NO_ANSWER)


def trust_start(evidence: Evidence) -> Evidence:
    """Return evidence whose messages are known to begin with the start of the run."""
    return _drop_reasons(evidence, (NO_BEGINNING,), PARTS)


def trust_end(evidence: Evidence, parts: Sequence[Part] = PARTS) -> Evidence:
    """Return evidence whose run is known to be over although its messages end with a tool."""
    return _drop_reasons(evidence, UNFINISHED, parts)


def _drop_reasons(evidence: Evidence, reasons: Sequence[str], parts: Sequence[Part]) -> Evidence:
    account = evidence.account
    if account is None or not any(why in reasons for why in account.unknown.values()):
        return evidence
    unknown = {part: why for part, why in account.unknown.items() if part not in parts or why not in reasons}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown))
