"""Claims about HL7 v2 messages the agent sent.

Of several messages that fit `correlate_by` the last one sent counts. Its keys are HL7 paths (`MSH.9.2`, `PID.3.1`) or the aliases
`message_type` (MSH.9.1), `trigger_event` (MSH.9.2, else EVN.1) and `control_id` (MSH.10); both types also take the written form
`ORM^O01`. An unreadable message is left out and named. Absence is undecided if a message is unreadable, has no type where that matters, or
has lines that are not segments.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import TextField, choose_scope_builder, declare_state_reads, refuse_fields_when_absent
from proctor.checks.systems._segments import ReadSegments, SegmentClaim, Segmented, Sought, prepare_correlation, prepare_fields, read_all
from proctor.codecs.hl7 import find_gap, read_messages
from proctor.codecs.segments import compile_segment_path
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Json, State
from proctor.model.json_values import MISSING


class Hl7Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last outbound HL7 v2 message that fits has the given values; the score is the share of fields that hold."""

    correlate_by: dict[str, Json] = {}
    """Which message: any HL7 path, or `message_type`, `trigger_event`, `control_id`, with its value."""
    fields: tuple[TextField, ...] = ()
    """The values to compare."""
    absent: bool = False
    """The claim is that no message fits."""


_ALIASES = {"message_type": "MSH.9.1", "trigger_event": "MSH.9.2", "control_id": "MSH.10"}
_TYPED = frozenset(("message_type", "trigger_event", "MSH.9", "MSH.9.1"))
_TYPE, _TRIGGER, _EVENT = (compile_segment_path(path) for path in ("MSH.9.1", "MSH.9.2", "EVN.1"))


@check(
    "hl7_message",
    example="hl7_message: {correlate_by: {message_type: ADT}, fields: [{path: PID.5.1, expected: Smith}]}",
    reads=declare_state_reads,
    product=True,
    locate=lambda spec, evidence: _prepare(spec).locate(evidence),
)
def hl7_message(spec: Hl7Message) -> Decide:
    """The last outbound HL7 v2 message that fits has the given values; the score is the share of fields that hold."""
    refuse_fields_when_absent(spec.absent, spec.fields)
    return _prepare(spec).decide


def _prepare(spec: Hl7Message) -> SegmentClaim:
    fields = prepare_fields(spec.fields)
    correlation = prepare_correlation(spec.correlate_by, _ALIASES)
    return SegmentClaim(
        read=lambda state: _read(spec, state),
        all_of_them="HL7 messages",
        fits=lambda message, scope: all(_does_correlate(sought, message, scope) for sought in correlation),
        correlation=correlation,
        correlated=3 * len(correlation),
        fields=fields,
        kind="outbound HL7 message",
        correlate_by=spec.correlate_by,
        is_absent=spec.absent,
        find_scope=choose_scope_builder([sought.comparison for sought in (*fields, *correlation)]),
    )


def _read(spec: Hl7Message, state: State) -> ReadSegments | None:
    if state.hl7 is None:
        return None
    needs_type = not _TYPED.isdisjoint(spec.correlate_by)

    def read(text: str) -> tuple[Sequence[Segmented], str]:
        messages = read_messages(text)
        # A message does not mark its end, so a cut between two segments cannot be detected.
        if needs_type and any(message.value(_TYPE) is None for message in messages):
            return messages, "a message has no type (MSH.9)"
        return messages, find_gap(messages) if spec.absent else ""

    return read_all(state.hl7.outbound, read, "$.state.hl7.outbound")


def _does_correlate(sought: Sought, message: Segmented, scope: Scope) -> bool:
    if sought.path in ("message_type", "trigger_event"):
        kind = message.value(_TYPE)
        # Before version 2.3.1 only EVN has the event.
        trigger = message.value(_TRIGGER) or message.value(_EVENT)
        wanted = sought.comparison.expected
        if isinstance(wanted, str) and "^" in wanted:
            return [kind, trigger] == wanted.split("^")[:2]
        actual = kind if sought.path == "message_type" else trigger
        return sought.comparison.find_mismatch(MISSING if actual is None else actual, scope, sought.path) is None
    return sought.look(message, scope).passed
