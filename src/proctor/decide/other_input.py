"""Records whose input differs from the input of their case: they are decided, with the warning `other_input`.

Production recordings never repeat the wording of a test, so a record that names a case, or that is checked against the only case, is
decided whatever its input was. `--strict` rejects it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proctor.decide.matching import list_messages, list_recorded_messages, show_messages
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.problem import NOWHERE, Origin, Problem

OTHER_INPUT = "other_input"
"""The code of such a record."""
_MOST_WARNINGS = 100
"""The maximum number of cases with their own warning; records of further cases are counted together."""
_PLACEHOLDER = lazy_pattern(r"\{[\w .-]+\}")


class OtherInput(msgspec.Struct, omit_defaults=True):
    """The records of one case whose input differs from the input of the case."""

    expected: str = msgspec.field(name="asked")
    """The input of the case, shortened."""
    recorded: str
    """The input of the first of these records, shortened."""
    origin: Origin = NOWHERE
    records: int = 0

    def describe(self) -> str:
        """Return both inputs in a sentence."""
        return f"the case has {self.expected}, the record has {self.recorded}"


class OtherInputs(msgspec.Struct, omit_defaults=True):
    """Counts records that were decided although their input differs from the input of their case, with one example for each case."""

    records: int = 0
    cases: dict[str, OtherInput] = {}
    """The first `_MOST_WARNINGS` cases, by id."""

    def note(self, case: Case, evidence: Evidence) -> None:
        """Count a record if its input differs from the input of its case."""
        if not has_other_input(case, evidence):
            return
        self.records += 1
        other_input = self.cases.get(case.id)
        if other_input is None and len(self.cases) < _MOST_WARNINGS:
            other_input = self.cases[case.id] = describe_other_input(case, evidence)
        if other_input is not None:
            other_input.records += 1

    def merge(self, other: OtherInputs) -> None:
        """Add the counts of other records."""
        self.records += other.records
        for case, theirs in other.cases.items():
            if case in self.cases:
                self.cases[case].records += theirs.records
            elif len(self.cases) < _MOST_WARNINGS:
                self.cases[case] = msgspec.structs.replace(theirs)

    def list_warnings(self) -> Iterator[Problem]:
        """Yield one warning for each case."""
        for case, other_input in self.cases.items():
            yield _make_warning(other_input.records, f"that of the case {case!r}: {other_input.describe()}", other_input.origin)
        more = self.records - sum(other_input.records for other_input in self.cases.values())
        if more:
            yield _make_warning(more, "that of their case, in further cases")


def _make_warning(count: int, differs_from: str, origin: Origin = NOWHERE) -> Problem:
    records = "1 record was decided although its" if count == 1 else f"{count:,} records were decided although their"
    message = f"{records} input differs from {differs_from}"
    return Problem(message=message, origin=origin, level="warning", code=OTHER_INPUT, hint="`--strict` rejects such records")


def describe_other_input(case: Case, evidence: Evidence) -> OtherInput:
    """Return the inputs of a case and of a record that differ."""
    return OtherInput(show_messages(list_messages(case)), show_messages(list_recorded_messages(evidence)), case.origin)


def has_other_input(case: Case, evidence: Evidence) -> bool:
    """Return whether the input of a record differs from the input of the case that it answers.

    Only texts are compared, without white space. An input with a placeholder (`{name}`) may have been filled with any value. A record may
    contain one message of a conversation, or go on after the only message of a case.
    """
    inputs, recorded = list_messages(case), list_recorded_messages(evidence)
    if not inputs or not recorded or inputs == recorded:
        return False
    if not all(isinstance(text, str) and text.strip() for text in (*inputs, *recorded)) or any(map(_PLACEHOLDER.search, inputs)):
        return False
    expected, actual = ["".join(text.split()) for text in inputs], ["".join(text.split()) for text in recorded]
    if len(actual) == 1:
        return actual[0] not in expected
    return actual != expected if len(expected) > 1 else expected[0] not in actual
