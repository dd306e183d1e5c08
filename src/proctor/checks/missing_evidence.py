"""Decides when a verdict becomes `missing_evidence`: one rule for all checks.

Every check declares which parts of the evidence it reads and what kind of claim it makes:

    presence   something is there. More evidence can only help, so a pass on half of it is a pass; a fail is not certain.
    absence    something is not there. A fail on half of the evidence is a fail; a pass is not certain.
    exact      how many, in which order, exactly what: nothing is certain on half of it.

If a part that a check reads is unknown (`Account.unknown`), a verdict that is not certain becomes `missing_evidence` and names
the part and the reason. Checks report parts that are missing altogether themselves. Either way a claim of presence fails and any other
claim is an `error`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from proctor.model.account import PART_NAMES, PARTS, Part
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict

Claim = Literal["presence", "absence", "exact"]
Decide = Callable[[Evidence], Verdict]

MISSING = "missing_evidence"
_CERTAIN: dict[Claim, str] = {"presence": "pass", "absence": "fail", "exact": ""}


class Reads(msgspec.Struct, frozen=True):
    """The parts that a check reads, and the kind of claim it makes about them."""

    parts: tuple[Part, ...]
    claim: Claim
    when_missing: Literal["fail", "error"] | None = None
    """The outcome for missing evidence, if it differs from what the claim implies: an unmeasured value is a `fail`."""

    tools: tuple[str, ...] = ()
    """The only tools it is about; empty if it is about any tool."""
    own_tools: bool = False
    """Whether it is about the tools that an agent runs itself, and not about those of a model's provider."""

    def concerns_only(self, seen_tools: tuple[str, ...]) -> bool:
        """Return whether it is only about calls of tools that were all seen."""
        return bool(seen_tools) and (self.own_tools or (bool(self.tools) and set(self.tools).issubset(seen_tools)))

    def outcome_when_missing(self) -> Literal["fail", "error"]:
        """Return `fail` for a claim of presence and `error` for any other, unless the check declares another outcome."""
        return self.when_missing or ("fail" if self.claim == "presence" else "error")


EVERYTHING = Reads(PARTS, "exact")
"""A check without a declaration: any unknown part makes it undecided."""

ReadsOf = Reads | Callable[[Any], Reads]
"""What a check reads, fixed or by its spec."""


def find_reads(declared: ReadsOf, spec: msgspec.Struct) -> Reads:
    """Return what a check with this spec reads."""
    return declared if isinstance(declared, Reads) else declared(spec)


def decide_with_caution(decide: Decide, reads: Reads) -> Decide:
    """Wrap a check so that no verdict rests on unknown parts."""
    # Unknown parts cannot overturn this outcome: unseen calls neither remove a call that was seen (presence) nor undo a forbidden one
    # (absence). An exact claim can be overturned either way.
    certain = _CERTAIN[reads.claim]
    uncertain_is = reads.outcome_when_missing()

    def decide_cautiously(evidence: Evidence) -> Verdict:
        verdict = decide(evidence)
        account = evidence.account
        # A missing part gets the reader's reason, if there is one.
        if account is not None and account.unknown and (verdict.outcome != certain or verdict.code == MISSING):
            # A reader may know all calls of some tools although others are unknown.
            all_seen = reads.concerns_only(account.seen_tools)
            gaps: list[Part] = [part for part in reads.parts if part in account.unknown and not (all_seen and part == "tool_calls")]
            # An error already means undecided; an unavailable judge would have seen unknown parts.
            if gaps and (verdict.outcome in ("pass", "fail") or verdict.code == "judge_unavailable"):
                reason = "; ".join(f"{PART_NAMES[part]} unknown: {account.unknown[part]}" for part in gaps)
                return Verdict(uncertain_is, 0.0, reason, MISSING, {"unknown": {part: account.unknown[part] for part in gaps}})
        # Absence proves little if the event that should have caused it never happened.
        if account is not None and account.unplayed and verdict.passed and reads.claim == "absence" and "state" in reads.parts:
            reason = f"end state unknown: {'; '.join(account.unplayed)}"
            return Verdict(uncertain_is, 0.0, reason, MISSING, {"unknown": {"state": reason}})
        # A check writes `missing` for any claim; its declared claim determines whether that is a fail or an error.
        if verdict.code == MISSING and verdict.outcome != uncertain_is:
            return msgspec.structs.replace(verdict, outcome=uncertain_is)
        return verdict

    return decide_cautiously
