"""Claims about the cards that a service of CDS Hooks answered, found by hook, service, indicator and summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import choose_scope_builder, declare_state_reads
from proctor.checks.systems._entries import EntryClaim, EntrySpec, describe_choice, prepare_choice, prepare_claimed, prepare_phrases
from proctor.errors import SpecError
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, Json
from proctor.model.show import nearest, show
from proctor.model.verdict import TextRange, Verdict, missing

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


def _prepare(spec: CdsCard) -> tuple[EntryClaim, Callable[[Evidence], Scope]]:
    if isinstance(spec.indicator, str) and spec.indicator not in _INDICATORS:
        message = f"indicator: expected one of {', '.join(_INDICATORS)}, found {show(spec.indicator)}"
        raise SpecError(message, field="indicator", nearest=nearest(spec.indicator, _INDICATORS))
    chosen_by = prepare_choice(hook=spec.hook, service=spec.service, indicator=spec.indicator, summary=spec.summary)
    phrases = prepare_phrases(spec.contains, spec.not_contains)
    claim = EntryClaim(
        what=describe_choice("card", chosen_by),
        base="$.state.cds.cards",
        chosen_by=chosen_by,
        fields=prepare_claimed(spec.fields, phrases, spec.absent, spec.count),
        count=spec.count,
        phrases=phrases,
        searched=("summary", "detail"),
        needed=("hook", "service", "indicator", "summary"),
        folded=("hook", "indicator"),
        is_absent=spec.absent,
    )
    return claim, choose_scope_builder(claim.list_comparisons())


def _locate(spec: CdsCard, evidence: Evidence) -> Iterator[TextRange]:
    claim, scope_of = _prepare(spec)
    cds = evidence.state.cds if evidence.state is not None else None
    return iter(()) if cds is None else claim.iterate_ranges(cds.cards, scope_of(evidence))


@check(
    "cds_card",
    example="cds_card: {hook: order-select, indicator: warning, contains: [interaction]}",
    reads=declare_state_reads,
    product=True,
    locate=_locate,
)
def cds_card(spec: CdsCard) -> Decide:
    """A card was answered with the given values and words; the score is the share of claims that hold."""
    claim, scope_of = _prepare(spec)

    def decide(evidence: Evidence) -> Verdict:
        cds = evidence.state.cds if evidence.state is not None else None
        return missing("CDS cards") if cds is None else claim.decide(cds.cards, scope_of(evidence))

    return decide
