"""Claims about X12 responses.

Of several transactions that fit the last one counts. An empty element counts as absent. An unreadable response is left out and named.
Absence is undecided if a response is unreadable or cut off.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import Comparison, TextField, choose_scope_builder, declare_state_reads, refuse_fields_when_absent
from proctor.checks.systems._segments import ReadSegments, SegmentClaim, Segmented, Sought, prepare_correlation, prepare_fields, read_all
from proctor.codecs.segments import compile_segment_path
from proctor.codecs.x12 import read_interchanges
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Json, State


class X12Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last X12 transaction that fits has the given values; the score is the share of fields that hold."""

    transaction: str | None = None
    """The transaction set: `271`, `277`, `278`."""
    correlate_by: dict[str, Json] = {}
    """Which transaction: path to value."""
    fields: tuple[TextField, ...] = ()
    """The values to compare: `EB.1`, `EB[2].3`, `NM1[IL].3`, `HCR.2`."""
    absent: bool = False
    """The claim is that no transaction fits."""


_KIND = compile_segment_path("ST.1")


@check(
    "x12_response",
    example="x12_response: {transaction: '271', fields: [{path: EB.1, expected: '1'}]}",
    reads=declare_state_reads,
    product=True,
    locate=lambda spec, evidence: _prepare(spec).locate(evidence),
)
def x12_response(spec: X12Response) -> Decide:
    """The last X12 transaction that fits has the given values; the score is the share of fields that hold."""
    refuse_fields_when_absent(spec.absent, spec.fields)
    return _prepare(spec).decide


def _prepare(spec: X12Response) -> SegmentClaim:
    fields = prepare_fields(spec.fields)
    correlation = prepare_correlation(spec.correlate_by, {})
    kind = f"X12 {spec.transaction} response" if spec.transaction is not None else "X12 response"

    def fits(transaction: Segmented, scope: Scope) -> bool:
        if spec.transaction is not None and (transaction.value(_KIND) or "").strip() != spec.transaction:
            return False
        return all(sought.look(transaction, scope).passed for sought in correlation)

    chosen_by = () if spec.transaction is None else (Sought("ST.1", _KIND, Comparison(spec.transaction, field="transaction")),)
    return SegmentClaim(
        read=_read,
        all_of_them="X12 responses",
        fits=fits,
        correlation=(*chosen_by, *correlation),
        correlated=1 + len(correlation),
        fields=fields,
        kind=kind,
        correlate_by=spec.correlate_by,
        is_absent=spec.absent,
        find_scope=choose_scope_builder([sought.comparison for sought in (*fields, *correlation)]),
    )


def _read(state: State) -> ReadSegments | None:
    return None if state.x12 is None else read_all(state.x12.responses, _read_text, "$.state.x12.responses")


def _read_text(text: str) -> tuple[Sequence[Segmented], str]:
    read = read_interchanges(text)
    return read.transactions, read.gap
