"""Says what a returned list of messages cannot show: what came before its first message, or after its last.

Whoever returns the last message of a run in a list returns its last step, and that no call is in it means nothing. Only a list that begins
with what was said to the agent, and goes on to what the agent did, shows every call of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence.shared.truncated_conversations import NO_BEGINNING
from proctor.model.account import CALL_PARTS, Account, Part
from proctor.model.evidence import Evidence

NO_MESSAGE = f"{NO_BEGINNING}: return all messages of the run"
NO_ANSWER = "the messages end with what was said to the agent, and what it did then is not among them: return all messages of the run"
LONE_ANSWER = (
    "one answer shows what the agent said last, not the tools that it called itself before: have it answer with all messages of the run"
)
_BEFORE: tuple[Part, ...] = (*CALL_PARTS, "usage")
_AFTER: tuple[Part, ...] = (*_BEFORE, "answer")


def mark_lost_messages(evidence: Evidence) -> Evidence:
    """Return evidence of a list, in which calls are unknown where it is one of messages and lacks what was said, or what followed."""
    # Plain evidence, and what a workflow platform writes, say themselves what was done.
    if evidence.nodes is not None or evidence.account is None or evidence.account.reader in ("", "plain"):
        return evidence
    if evidence.input is None:
        return add_doubt(evidence, _BEFORE, NO_MESSAGE) if _begins_late(evidence) else evidence
    return mark_lost_answer(evidence)


def mark_lone_answer(evidence: Evidence) -> Evidence:
    """Return evidence of an agent's answer over the wire, in which calls are unknown where only the last message came."""
    return add_doubt(evidence, CALL_PARTS, LONE_ANSWER) if evidence.input is None and _begins_late(evidence) else evidence


def _begins_late(evidence: Evidence) -> bool:
    """Return whether the calls before the first message may be missing, as its reader says: some formats never repeat the question."""
    return evidence.account is None or "tool_calls" in evidence.account.unknown


def mark_lost_answer(evidence: Evidence) -> Evidence:
    """Return evidence of an exchange, in which nothing is known of the agent where nobody answered."""
    is_silent = evidence.text is None and evidence.body is None and not evidence.tool_calls
    return add_doubt(evidence, _AFTER, NO_ANSWER) if is_silent else evidence


def trust_beginning(evidence: Evidence) -> Evidence:
    """Return evidence without the doubt that its messages begin too late, where whoever gave them knows that they do not."""
    account = evidence.account
    if account is None or NO_BEGINNING not in account.unknown.values():
        return evidence
    unknown = {part: why for part, why in account.unknown.items() if why != NO_BEGINNING}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown))


def add_doubt(evidence: Evidence, parts: Sequence[Part], why: str, *, is_cause: bool = False) -> Evidence:
    """Return evidence in which these parts are unknown; a reason that stands there already is kept, unless this is the cause of it."""
    account = evidence.account or Account()
    added = dict.fromkeys(parts, why)
    # What is said here of the same gap tells how to mend it.
    told = {part: reason for part, reason in account.unknown.items() if reason != NO_BEGINNING or part not in added}
    unknown = {**told, **added} if is_cause else {**added, **told}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown, seen_tools=()))
