"""One turn of a conversation as evidence of its own."""

from __future__ import annotations

import msgspec

from proctor.model.account import NO_CALLS_IN_TURN, Account, Part
from proctor.model.evidence import Evidence, EvidenceTurn

_OF_THE_RUN = dict.fromkeys(("turns", "error", "no_run", "cost", "simulated_user"))


def turn_evidence(evidence: Evidence, turn: int) -> Evidence | None:
    """Return what happened in turn `turn` (from 0), or None without such a turn; evidence without turns is its own turn 0."""
    turns = evidence.turns
    if turns is None:
        return evidence if turn == 0 else None
    if turn >= len(turns):
        return None
    observed = turns[turn]
    # The end state, the renders and the tools on offer belong to the whole run; no turn has its own.
    fields = {name: getattr(observed, name) for name in EvidenceTurn.__struct_fields__}
    account, metadata = _find_account(evidence.account, observed), observed.metadata or evidence.metadata
    return msgspec.structs.replace(evidence, **{**fields, **_OF_THE_RUN, "account": account, "metadata": metadata})


def _find_account(account: Account | None, observed: EvidenceTurn) -> Account | None:
    """Return the account of a turn; calls that another turn did not record leave nothing unknown in this one."""
    if account is None or (observed.tool_calls is None and observed.nodes is None):
        return account
    if not account.unknown.get("tool_calls", "").endswith(NO_CALLS_IN_TURN):
        return account
    unknown: dict[Part, str] = {part: why for part, why in account.unknown.items() if part != "tool_calls"}
    return msgspec.structs.replace(account, unknown=unknown)
