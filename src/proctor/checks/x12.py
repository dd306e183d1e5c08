"""Claims about X12 responses.

Of several transactions that fit the last one counts. An empty element counts as absent. A response that cannot be read is left
out and named; an absence cannot be claimed beside one.
"""

from __future__ import annotations

import msgspec

from proctor.checks._fields import TextField, choose_scope_builder, declare_state_reads, refuse_fields_when_absent
from proctor.checks._segments import Segmented, decide_segments, prepare_correlation, prepare_fields, read_all
from proctor.checks.registry import Decide, check
from proctor.codecs.segments import compile_segment_path
from proctor.codecs.x12 import read_transactions
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.model.verdict import Verdict, missing


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
)
def x12_response(spec: X12Response) -> Decide:
    """The last X12 transaction that fits has the given values; the score is the share of fields that hold."""
    refuse_fields_when_absent(spec.absent, spec.fields)
    fields = prepare_fields(spec.fields)
    correlation = prepare_correlation(spec.correlate_by, {})
    scope_of = choose_scope_builder([sought.comparison for sought in (*fields, *correlation)])
    told = ", ".join(f"{key} {show(value)}" for key, value in spec.correlate_by.items())
    kind = f"X12 {spec.transaction} response" if spec.transaction is not None else "X12 response"
    what = f"{kind} with {told}" if told else kind

    def decide(evidence: Evidence) -> Verdict:
        store = evidence.state.x12 if evidence.state is not None else None
        if store is None:
            return missing("X12 responses")
        scope = scope_of(evidence)

        def fits(transaction: Segmented) -> bool:
            if spec.transaction is not None and transaction.value(_KIND) != spec.transaction:
                return False
            return all(sought.look(transaction, scope).passed for sought in correlation)

        reading = read_all(store.responses, read_transactions, "$.state.x12.responses")
        return decide_segments(reading, fits, fields, scope, what=what, is_absent=spec.absent, correlated=1 + len(correlation))

    return decide
