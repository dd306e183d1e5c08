"""Claims about HL7 v2 messages and X12 responses.

Shared by HL7 messages and X12 transactions: choose the last one that correlates, and compare its fields.

Claims about HL7 v2 messages the agent sent.

Of several messages that fit `correlate_by` the last one sent counts. Its keys are HL7 paths (`MSH.9.2`, `PID.3.1`) or the aliases
`message_type` (MSH.9.1), `trigger_event` (MSH.9.2, else EVN.1) and `control_id` (MSH.10); both types also take the written form
`ORM^O01`. An unreadable message is left out and named. Absence is undecided if a message is unreadable, has no type where that matters, or
has lines that are not segments.

Claims about X12 responses.

Of several transactions that fit the last one counts. An empty element counts as absent. An unreadable response is left out and named.
Absence is undecided if a response is unreadable or cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import (
    LAST,
    Comparison,
    FieldResult,
    TextField,
    choose_scope_builder,
    decide_absence,
    decide_fields,
    declare_state_reads,
    describe_found,
    fail_no_match,
    fail_unreadable,
    refuse_fields_when_absent,
)
from proctor.codecs.hl7 import find_gap, read_messages
from proctor.codecs.segments import Segment, SegmentPath, Span, compile_segment_path, explain_position
from proctor.codecs.x12 import read_interchanges
from proctor.errors import EvidenceError, SpecError
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, Json, State
from proctor.model.json_values import MISSING
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, missing
from proctor.work import spend


class Segmented(Protocol):
    """A message or transaction: text by path."""

    @property
    def segments(self) -> Sequence[Segment]:
        """Its segments, in order."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether it was read to its end."""
        ...

    def value(self, path: SegmentPath) -> str | None:
        """Return the text at a path, or None when it is absent or empty."""
        ...

    def locate(self, path: SegmentPath) -> Span | None:
        """Return the position of the value at a path in the text."""
        ...


class Sought(msgspec.Struct, frozen=True):
    """One path with the value it must have, prepared."""

    path: str
    at: SegmentPath
    comparison: Comparison

    def look(self, message: Segmented, scope: Scope) -> FieldResult:
        """Compare the value in a message."""
        text = message.value(self.at)
        found = self.comparison.compare(self.path, MISSING if text is None else text, scope)
        if found.passed or text is not None:
            return found
        hint = explain_position(message.segments, self.at)
        return found if hint is None else msgspec.structs.replace(found, why=f"{found.why} ({hint})")


def prepare_path(text: str, field: str) -> SegmentPath:
    """Compile a path; the error names the field of the spec it came from."""
    try:
        return compile_segment_path(text)
    except SpecError as error:
        raise error.move_to(field) from None


def prepare_fields(fields: Sequence[TextField]) -> tuple[Sought, ...]:
    """Return the fields of a spec."""
    return tuple(
        Sought(
            field.path,
            prepare_path(field.path, f"fields.{index}.path"),
            Comparison(field.expected, field=f"fields.{index}.expected", text_only=True),
        )
        for index, field in enumerate(fields)
    )


def prepare_correlation(correlate_by: Mapping[str, Json], aliases: Mapping[str, str]) -> tuple[Sought, ...]:
    """Return the paths and aliases of `correlate_by`."""
    return tuple(
        Sought(
            key, prepare_path(aliases.get(key, key), f"correlate_by.{key}"), Comparison(value, field=f"correlate_by.{key}", text_only=True)
        )
        for key, value in correlate_by.items()
    )


class ReadSegments(msgspec.Struct, frozen=True):
    """The messages that could be read, each with the path of its text, and the problems of the others."""

    messages: tuple[tuple[str, Segmented], ...]
    problems: tuple[str, ...]
    gaps: tuple[str, ...]
    """Gaps in texts that could be read."""


Read = Callable[[str], tuple[Sequence[Segmented], str]]
"""Reads a text: returns its messages, and a gap if it is incomplete."""


def read_all(texts: Sequence[str], read: Read, base: str) -> ReadSegments:
    """Read every text; one that cannot be read is noted and left out."""
    messages: list[tuple[str, Segmented]] = []
    problems: list[str] = []
    gaps: list[str] = []
    for index, text in enumerate(texts):
        place = f"{base}[{index}]"
        try:
            found, gap = read(text)
        except EvidenceError as error:
            problems.append(f"{place}: {error.message}")
            continue
        messages.extend((place, message) for message in found)
        gaps += [f"{place}: {gap}"] if gap else []
    return ReadSegments(tuple(messages), tuple(problems), tuple(gaps))


class SegmentClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared claim about the last message that fits."""

    read: Callable[[State], ReadSegments | None]
    """Reads the messages of an end state; None if none were recorded."""
    all_of_them: str
    """The plural name of the messages."""
    fits: Callable[[Segmented, Scope], bool]
    correlation: tuple[Sought, ...]
    correlated: int
    """The number of paths that decide whether a message fits."""
    fields: tuple[Sought, ...]
    kind: str
    """The singular name of a message."""
    correlate_by: Mapping[str, Json]
    is_absent: bool
    find_scope: Callable[[Evidence], Scope]

    @property
    def what(self) -> str:
        """A description of the wanted message."""
        listed = ", ".join(f"{key} {show(value)}" for key, value in self.correlate_by.items())
        return f"{self.kind} with {listed}" if listed else self.kind

    def decide(self, evidence: Evidence) -> Verdict:
        """Return the verdict on the last message that fits."""
        reading = self._read(evidence)
        if reading is None:
            return missing(self.all_of_them)
        scope = self.find_scope(evidence)
        found = self._find_last(reading, scope)
        if self.is_absent:
            if found is None and (reading.problems or reading.gaps):
                return fail_unreadable(self.what, (*reading.problems, *reading.gaps))
            return decide_absence(found[0] if found else None, self.what, pointers=(found[0],) if found else ())
        if found is None:
            seen = f"{len(reading.messages)} read" if reading.messages else "none recorded"
            unread = f"; unreadable: {'; '.join(reading.problems[:3])}" if reading.problems else ""
            others = [one for _, one in reading.messages[-LAST:]]
            sought = [[(one.path, one.look(message, scope)) for one in self.correlation] for message in others]
            actual_values = describe_found([[(path, one.actual) for path, one in each if not one.passed] for each in sought])
            return fail_no_match(
                f"no {self.what} ({seen}{unread}){actual_values}", [(field.path, field.comparison.expected) for field in self.fields]
            )
        place, message = found
        results = self._look(message, scope)
        verdict = decide_fields(self.what, results, pointers=(place,), matched=place)
        if verdict.passed and not message.is_whole and (unseen := next((one for one in results if one.actual is None), None)):
            return missing(f"{unseen.path} of {place}, which breaks off,")
        return verdict

    def locate(self, evidence: Evidence) -> Iterator[TextRange]:
        """Return the ranges of the texts that decided."""
        reading = self._read(evidence)
        return iter(()) if reading is None else self._iterate_ranges(reading, self.find_scope(evidence))

    def _read(self, evidence: Evidence) -> ReadSegments | None:
        return None if evidence.state is None else self.read(evidence.state)

    def _iterate_ranges(self, reading: ReadSegments, scope: Scope) -> Iterator[TextRange]:
        """Yield the fields of the deciding message: all if they hold, else those that fail; without fields, those it was chosen by.

        A missing field is located by its segment, if that exists.
        """
        found = self._find_last(reading, scope)
        if found is None:
            return
        place, message = found
        results = self._look(message, scope)
        holds = all(result.passed for result in results)
        deciding = [field for field, result in zip(self.fields, results, strict=True) if result.passed == holds] or self.correlation
        for sought in deciding:
            spend(_count_steps(message))
            span = message.locate(sought.at) or message.locate(sought.at.find_segment_path())
            if span is not None:
                yield TextRange(place, *span)

    def _find_last(self, reading: ReadSegments, scope: Scope) -> tuple[str, Segmented] | None:
        for place, message in reversed(reading.messages):
            # Each path walks over the segments and splits one of them.
            spend(self.correlated * _count_steps(message))
            if self.fits(message, scope):
                return place, message
        return None

    def _look(self, message: Segmented, scope: Scope) -> list[FieldResult]:
        spend(len(self.fields) * _count_steps(message))
        return [field.look(message, scope) for field in self.fields]


def _count_steps(message: Segmented) -> int:
    """Return the maximum number of steps to look up one path."""
    return 3 + len(message.segments) // 2 + max((len(segment.text) for segment in message.segments), default=0) // 64


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
    locate=lambda spec, evidence: _prepare_x12(spec).locate(evidence),
)
def x12_response(spec: X12Response) -> Decide:
    """The last X12 transaction that fits has the given values; the score is the share of fields that hold."""
    refuse_fields_when_absent(spec.absent, spec.fields)
    return _prepare_x12(spec).decide


def _prepare_x12(spec: X12Response) -> SegmentClaim:
    fields = prepare_fields(spec.fields)
    correlation = prepare_correlation(spec.correlate_by, {})
    kind = f"X12 {spec.transaction} response" if spec.transaction is not None else "X12 response"

    def fits(transaction: Segmented, scope: Scope) -> bool:
        if spec.transaction is not None and (transaction.value(_KIND) or "").strip() != spec.transaction:
            return False
        return all(sought.look(transaction, scope).passed for sought in correlation)

    chosen_by = () if spec.transaction is None else (Sought("ST.1", _KIND, Comparison(spec.transaction, field="transaction")),)
    return SegmentClaim(
        read=_read_x12,
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


def _read_x12(state: State) -> ReadSegments | None:
    return None if state.x12 is None else read_all(state.x12.responses, _read_text, "$.state.x12.responses")


def _read_text(text: str) -> tuple[Sequence[Segmented], str]:
    read = read_interchanges(text)
    return read.transactions, read.gap
