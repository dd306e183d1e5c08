"""Claims about faxes after the run: sent by the agent by default, found by number, pages and words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import choose_scope_builder, declare_state_reads
from proctor.checks.systems._entries import EntryClaim, EntrySpec, describe_choice, prepare_choice, prepare_claimed, prepare_phrases
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, Json
from proctor.model.verdict import TextRange, Verdict, missing


class FaxDocument(EntrySpec, frozen=True, kw_only=True, omit_defaults=True):
    """A fax was sent with the given values and words; the score is the share of claims that hold."""

    to: Json = None
    """The number it went to, or a matcher."""
    sender: Json = msgspec.field(default=None, name="from")
    """The number it came from, or a matcher."""
    direction: Literal["outbound", "inbound", "any"] = "outbound"
    """`outbound`: sent by the agent; `inbound`: received."""
    pages: Json = None
    """How many pages it has, or a matcher."""


def _prepare(spec: FaxDocument) -> tuple[EntryClaim, Callable[[Evidence], Scope]]:
    chosen_by = prepare_choice(
        direction=None if spec.direction == "any" else spec.direction, to=spec.to, sender=spec.sender, pages=spec.pages
    )
    phrases = prepare_phrases(spec.contains, spec.not_contains)
    claim = EntryClaim(
        what=describe_choice("fax", chosen_by),
        base="$.state.fax.documents",
        chosen_by=chosen_by,
        fields=prepare_claimed(spec.fields, phrases, spec.absent, spec.count),
        count=spec.count,
        phrases=phrases,
        defaults={"direction": "outbound"},
        needed=("to", "from", "pages"),
        folded=("to", "from"),
        is_absent=spec.absent,
    )
    return claim, choose_scope_builder(claim.list_comparisons())


def _locate(spec: FaxDocument, evidence: Evidence) -> Iterator[TextRange]:
    claim, scope_of = _prepare(spec)
    fax = evidence.state.fax if evidence.state is not None else None
    return iter(()) if fax is None else claim.iterate_ranges(fax.documents, scope_of(evidence))


@check(
    "fax_document",
    example="fax_document: {to: '+15550100', contains: [referral], fields: [{path: document_type, expected: referral}]}",
    reads=declare_state_reads,
    product=True,
    locate=_locate,
)
def fax_document(spec: FaxDocument) -> Decide:
    """A fax was sent with the given values and words; the score is the share of claims that hold."""
    claim, scope_of = _prepare(spec)

    def decide(evidence: Evidence) -> Verdict:
        fax = evidence.state.fax if evidence.state is not None else None
        return missing("faxes") if fax is None else claim.decide(fax.documents, scope_of(evidence))

    return decide
