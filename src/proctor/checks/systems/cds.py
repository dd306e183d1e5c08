"""Claims about the cards that a service of CDS Hooks answered, found by hook, service, indicator and summary."""

from __future__ import annotations

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import declare_state_reads
from proctor.checks.systems._entries import EntryClaim, EntrySpec, prepare_entries
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show

_INDICATORS = ("info", "warning", "critical")
"""The indicators of the specification; a card with any other indicator is invalid."""


class CdsCard(EntrySpec, frozen=True, kw_only=True, omit_defaults=True):
    """A card was answered with the given values and words; the score is the share of claims that hold."""

    hook: str | None = None
    """The hook that was called: `patient-view`."""
    service: str | None = None
    """The id of the service that answered."""
    indicator: Json = None
    """`info`, `warning`, `critical`, or a matcher."""
    summary: Json = None
    """The summary of the card, or a matcher."""


def _prepare(spec: CdsCard) -> EntryClaim:
    if isinstance(spec.indicator, str) and spec.indicator not in _INDICATORS:
        message = f"indicator: expected one of {', '.join(_INDICATORS)}, found {show(spec.indicator)}"
        raise SpecError(message, field="indicator", nearest=nearest(spec.indicator, _INDICATORS))
    return prepare_entries(
        spec,
        "card",
        lambda state: state.cds and state.cds.cards,
        base="$.state.cds.cards",
        all_of_them="CDS cards",
        members={"hook": spec.hook, "service": spec.service, "indicator": spec.indicator, "summary": spec.summary},
        searched=("summary", "detail"),
        needed=("hook", "service", "indicator", "summary"),
        folded=("hook", "indicator"),
    )


@check(
    "cds_card",
    example="cds_card: {hook: order-select, indicator: warning, contains: [interaction]}",
    reads=declare_state_reads,
    product=True,
    locate=lambda spec, evidence: _prepare(spec).locate(evidence),
)
def cds_card(spec: CdsCard) -> Decide:
    """A card was answered with the given values and words; the score is the share of claims that hold."""
    return _prepare(spec).decide_on
