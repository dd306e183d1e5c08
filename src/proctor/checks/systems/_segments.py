"""Shared by HL7 messages and X12 transactions: choose the last one that correlates, and compare its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from proctor.checks.shared.fields import (
    LAST,
    Comparison,
    FieldResult,
    TextField,
    decide_absence,
    decide_fields,
    describe_found,
    fail_no_match,
    fail_unreadable,
)
from proctor.codecs.segments import Segment, SegmentPath, Span, compile_segment_path, explain_position
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
