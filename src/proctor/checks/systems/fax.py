"""Claims about faxes after the run: sent by the agent by default, found by number, pages and words."""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import declare_state_reads
from proctor.checks.systems._entries import EntryClaim, EntrySpec, prepare_entries
from proctor.model.evidence import Json


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


def _prepare(spec: FaxDocument) -> EntryClaim:
    direction = None if spec.direction == "any" else spec.direction
    return prepare_entries(
        spec,
        "fax",
        lambda state: state.fax and state.fax.documents,
        base="$.state.fax.documents",
        all_of_them="faxes",
        members={"direction": direction, "to": spec.to, "from": spec.sender, "pages": spec.pages},
        defaults={"direction": "outbound"},
        needed=("to", "from", "pages"),
        folded=("to", "from"),
    )


@check(
    "fax_document",
    example="fax_document: {to: '+15550100', contains: [referral], fields: [{path: document_type, expected: referral}]}",
    reads=declare_state_reads,
    product=True,
    locate=lambda spec, evidence: _prepare(spec).locate(evidence),
)
def fax_document(spec: FaxDocument) -> Decide:
    """A fax was sent with the given values and words; the score is the share of claims that hold."""
    return _prepare(spec).decide_on
