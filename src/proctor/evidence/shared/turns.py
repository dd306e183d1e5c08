"""One turn of a conversation, seen as evidence of its own."""

from __future__ import annotations

import msgspec

from proctor.model.account import NO_CALLS_IN_TURN, Account, Part
from proctor.model.evidence import Evidence, EvidenceTurn


def turn_evidence(evidence: Evidence, turn: int) -> Evidence | None:
    """Return what happened in turn `turn` (from 0), or None when the evidence has no such turn.

    Evidence without turns is one exchange, so it is its own turn 0.
    """
    turns = evidence.turns
    if turns is None:
        return evidence if turn == 0 else None
    if turn >= len(turns):
        return None
    observed = turns[turn]
    return Evidence(
        case=evidence.case,
        input=observed.input,
        text=observed.text,
        body=observed.body,
        tool_calls=observed.tool_calls,
        nodes=observed.nodes,
        http_status=observed.http_status,
        duration_ms=observed.duration_ms,
        usage=observed.usage,
        context=evidence.context,
        available_tools=evidence.available_tools,
        renders=evidence.renders,
        now=evidence.now,
        timezone=evidence.timezone,
        # The end state, the renders and the tools on offer belong to the whole run; no turn has its own.
        state=evidence.state,
        model=evidence.model,
        account=_find_account(evidence.account, observed),
        metadata=observed.metadata or evidence.metadata,
    )


def _find_account(account: Account | None, observed: EvidenceTurn) -> Account | None:
    """Return the account of a turn; that another turn did not record its calls leaves nothing unknown in this one."""
    if account is None or (observed.tool_calls is None and observed.nodes is None):
        return account
    if not account.unknown.get("tool_calls", "").endswith(NO_CALLS_IN_TURN):
        return account
    unknown: dict[Part, str] = {part: why for part, why in account.unknown.items() if part != "tool_calls"}
    return msgspec.structs.replace(account, unknown=unknown)
