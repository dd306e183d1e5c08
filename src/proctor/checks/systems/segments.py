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

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import (
    LAST,
    Comparison,
    FieldResult,
    TextField,
    decide_absence,
    decide_fields,
    declare_state_reads,
    describe_found,
    fail_no_match,
    fail_unreadable,
    find_scope,
    refuse_contradictions,
)
from proctor.codecs.segments import Hl7Message as ReadMessage
from proctor.codecs.segments import (
    SegmentPath,
    X12Transaction,
    compile_segment_path,
    explain_position,
    find_gap,
    read_interchanges,
    read_messages,
)
from proctor.errors import EvidenceError, SpecError
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, Json, State
from proctor.model.json_values import MISSING
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, missing
from proctor.work import spend

Segmented = ReadMessage | X12Transaction
"""A message or transaction: text by path."""


class Sought(msgspec.Struct, frozen=True):
    """One path with the value it must have, prepared."""

    path: str
    at: SegmentPath
    comparison: Comparison

    @classmethod
    def prepare(cls, name: str, path: str, expected: Json, *, place: str, field: str) -> Sought:
        """Compile a path that the spec has at `place`, and its expected value at `field`; `name` is how the author wrote the path."""
        try:
            at = compile_segment_path(path)
        except SpecError as error:
            raise error.move_to(place) from None
        return cls(name, at, Comparison(expected, field=field, text_only=True))

    def look(self, message: Segmented, scope: Scope) -> FieldResult:
        """Compare the value in a message."""
        text = message.value(self.at)
        found = self.comparison.compare(self.path, MISSING if text is None else text, scope)
        hint = explain_position(message.segments, self.at) if text is None and not found.passed else None
        return found if hint is None else msgspec.structs.replace(found, why=f"{found.why} ({hint})")


class ReadSegments(msgspec.Struct):
    """The messages that could be read, each with the path of its text, and the problems of the others."""

    messages: list[tuple[str, Segmented]] = []
    problems: list[str] = []
    gaps: list[str] = []
    """Gaps in texts that could be read."""


Read = Callable[[str], tuple[Sequence[Segmented], str]]
"""Reads a text: returns its messages, and a gap if it is incomplete."""


class SegmentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields that both kinds of claims have."""

    correlate_by: dict[str, Json] = {}
    """Which message: path to value."""
    fields: tuple[TextField, ...] = ()
    """The values to compare: `PID.5.1`, `EB[2].3`, `NM1[IL].3`."""
    absent: bool = False
    """The claim is that no message fits."""


class SegmentClaim:
    """A prepared claim about the last message that fits."""

    def __init__(
        self,
        spec: SegmentSpec,
        kind: str,
        *,
        find_texts: Callable[[State], tuple[str, Sequence[str]] | None],
        read: Read,
        all_of_them: str,
        aliases: Mapping[str, str] = {},
        chosen_by: tuple[Sought, ...] = (),
        fits: Callable[[Sought, Segmented, Scope], bool] = lambda sought, message, scope: sought.look(message, scope).passed,
    ) -> None:
        """Raises `SpecError`. `find_texts` returns the texts of an end state with their path; `fits` decides one correlation."""
        refuse_contradictions(spec.absent, spec.fields)
        self._absent = spec.absent
        self._fields = tuple(
            Sought.prepare(each.path, each.path, each.expected, place=f"fields.{index}.path", field=f"fields.{index}.expected")
            for index, each in enumerate(spec.fields)
        )
        self._correlation = chosen_by + tuple(
            Sought.prepare(key, aliases.get(key, key), value, place=f"correlate_by.{key}", field=f"correlate_by.{key}")
            for key, value in spec.correlate_by.items()
        )
        listed = ", ".join(f"{key} {show(value)}" for key, value in spec.correlate_by.items())
        self._what = f"{kind} with {listed}" if listed else kind
        self._find_texts = find_texts
        self._read_text = read
        self._all_of_them = all_of_them
        self._fits = fits

    def decide(self, evidence: Evidence) -> Verdict:
        """Return the verdict on the last message that fits."""
        if (reading := self._read(evidence)) is None:
            return missing(self._all_of_them)
        scope = self._find_scope(evidence)
        found = self._find_last(reading, scope)
        if self._absent:
            if found is None and (reading.problems or reading.gaps):
                return fail_unreadable(self._what, (*reading.problems, *reading.gaps))
            return decide_absence(found[0] if found else None, self._what, pointers=(found[0],) if found else ())
        if found is None:
            seen = f"{len(reading.messages)} read" if reading.messages else "none recorded"
            unread = f"; unreadable: {'; '.join(reading.problems[:3])}" if reading.problems else ""
            others = [[one.look(message, scope) for one in self._correlation] for _, message in reading.messages[-LAST:]]
            instead = describe_found([[(one.path, one.actual) for one in each if not one.passed] for each in others])
            wanted = [(field.path, field.comparison.expected) for field in self._fields]
            return fail_no_match(f"no {self._what} ({seen}{unread}){instead}", wanted)
        place, message = found
        results = self._look(message, scope)
        verdict = decide_fields(self._what, results, pointers=(place,), matched=place)
        if verdict.passed and not message.is_whole and (unseen := next((one for one in results if one.actual is None), None)):
            return missing(f"{unseen.path} of {place}, which breaks off,")
        return verdict

    def locate(self, evidence: Evidence) -> Iterator[TextRange]:
        """Yield the fields of the deciding message: all if they hold, else those that fail; without fields, those it was chosen by.

        A missing field is located by its segment, if that exists.
        """
        reading, scope = self._read(evidence), self._find_scope(evidence)
        if reading is None or (found := self._find_last(reading, scope)) is None:
            return
        place, message = found
        results = self._look(message, scope)
        holds = all(result.passed for result in results)
        deciding = [field for field, result in zip(self._fields, results, strict=True) if result.passed == holds] or self._correlation
        for sought in deciding:
            spend(_count_steps(message))
            span = message.locate(sought.at) or message.locate(sought.at.find_segment_path())
            if span is not None:
                yield TextRange(place, *span)

    def _find_scope(self, evidence: Evidence) -> Scope:
        return find_scope(evidence, (sought.comparison for sought in (*self._fields, *self._correlation)))

    def _read(self, evidence: Evidence) -> ReadSegments | None:
        """Read every text; one that cannot be read is noted and left out."""
        if evidence.state is None or (found := self._find_texts(evidence.state)) is None:
            return None
        base, texts = found
        reading = ReadSegments()
        for index, text in enumerate(texts):
            place = f"{base}[{index}]"
            try:
                messages, gap = self._read_text(text)
            except EvidenceError as error:
                reading.problems.append(f"{place}: {error.message}")
                continue
            reading.messages += [(place, message) for message in messages]
            reading.gaps += [f"{place}: {gap}"] if gap else []
        return reading

    def _find_last(self, reading: ReadSegments, scope: Scope) -> tuple[str, Segmented] | None:
        for place, message in reversed(reading.messages):
            # Each path walks over the segments and splits one of them; a type of a message takes three.
            spend(3 * len(self._correlation) * _count_steps(message))
            if all(self._fits(sought, message, scope) for sought in self._correlation):
                return place, message
        return None

    def _look(self, message: Segmented, scope: Scope) -> list[FieldResult]:
        spend(len(self._fields) * _count_steps(message))
        return [field.look(message, scope) for field in self._fields]


def _count_steps(message: Segmented) -> int:
    """Return the maximum number of steps to look up one path."""
    return 3 + len(message.segments) // 2 + max((len(segment.text) for segment in message.segments), default=0) // 64


class Hl7Message(SegmentSpec, frozen=True, kw_only=True, omit_defaults=True):
    """The last outbound HL7 v2 message that fits has the given values; the score is the share of fields that hold."""

    correlate_by: dict[str, Json] = {}
    """Which message: any HL7 path, or `message_type`, `trigger_event`, `control_id`, with its value."""


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
    return _prepare(spec).decide


def _prepare(spec: Hl7Message) -> SegmentClaim:
    needs_type = not _TYPED.isdisjoint(spec.correlate_by)

    def read(text: str) -> tuple[Sequence[Segmented], str]:
        messages = read_messages(text)
        # A message does not mark its end, so a cut between two segments cannot be detected.
        if needs_type and any(message.value(_TYPE) is None for message in messages):
            return messages, "a message has no type (MSH.9)"
        return messages, find_gap(messages) if spec.absent else ""

    return SegmentClaim(
        spec,
        "outbound HL7 message",
        find_texts=lambda state: state.hl7 and ("$.state.hl7.outbound", state.hl7.outbound),
        read=read,
        all_of_them="HL7 messages",
        aliases=_ALIASES,
        fits=_does_correlate,
    )


def _does_correlate(sought: Sought, message: Segmented, scope: Scope) -> bool:
    if sought.path not in ("message_type", "trigger_event"):
        return sought.look(message, scope).passed
    # Before version 2.3.1 only EVN has the event.
    kind, trigger = message.value(_TYPE), message.value(_TRIGGER) or message.value(_EVENT)
    wanted = sought.comparison.expected
    if isinstance(wanted, str) and "^" in wanted:
        return [kind, trigger] == wanted.split("^")[:2]
    actual = kind if sought.path == "message_type" else trigger
    return sought.comparison.find_mismatch(MISSING if actual is None else actual, scope, sought.path) is None


class X12Response(SegmentSpec, frozen=True, kw_only=True, omit_defaults=True):
    """The last X12 transaction that fits has the given values; the score is the share of fields that hold."""

    transaction: str | None = None
    """The transaction set: `271`, `277`, `278`."""


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
    return _prepare_x12(spec).decide


def _prepare_x12(spec: X12Response) -> SegmentClaim:
    kind, chosen_by = "X12 response", ()
    if spec.transaction is not None:
        kind = f"X12 {spec.transaction} response"
        chosen_by = (Sought("ST.1", _KIND, Comparison(spec.transaction, field="transaction")),)

    def fits(sought: Sought, transaction: Segmented, scope: Scope) -> bool:
        if sought.at is _KIND:
            return (transaction.value(_KIND) or "").strip() == spec.transaction
        return sought.look(transaction, scope).passed

    return SegmentClaim(
        spec,
        kind,
        find_texts=lambda state: state.x12 and ("$.state.x12.responses", state.x12.responses),
        read=read_interchanges,
        all_of_them="X12 responses",
        chosen_by=chosen_by,
        fits=fits,
    )
