"""What a partition adds to the summary: counts, and the commonest reasons with samples. Two sketches merge into one of both.

A sketch grows with the cases and with the shapes of their reasons, never with the traces, and both are bounded: a driver that merges a
hundred thousand partitions holds one of them.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from proctor.actions.history.failures import find_shape
from proctor.batches.slices.sketch_slice import Heaviest, SliceTable, count_most_slices
from proctor.decide.other_input import OtherInputs
from proctor.model.batch import TracePlace
from proctor.model.result import CaseResult

MOST_REASONS = 200
"""Shapes of reasons that are counted for one case; the lighter ones are counted together."""
SAMPLES = 3
"""Traces that are named for a reason."""
_LONGEST_REASON = 300
_MOST_KEYS = 200


class Reason(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Verdicts that are alike."""

    check: str
    outcome: str
    code: str | None = None
    reason: str
    """Of the first of them."""
    count: int = 0
    missed: int = 0
    """How many more there may be, which are counted among the others."""
    samples: list[TracePlace] = []

    def merge(self, other: Reason) -> None:
        """Add verdicts with the same reason."""
        self.count += other.count
        self.samples = (self.samples + other.samples)[:SAMPLES]


class CaseSketch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one case came to."""

    name: str = ""
    counts: dict[str, int] = {}
    """Traces by outcome."""
    checks: list[dict[str, int]] = []
    """Verdicts by outcome, for each assertion in the order of the suite."""
    labels: list[str] = []
    reasons: Heaviest[Reason] = msgspec.field(default_factory=Heaviest[Reason])
    """By check, outcome, code and shape."""

    def count(self, result: CaseResult, number: int, place: TracePlace | None) -> None:
        """Add traces with this result; `place` is the place of one that did not pass."""
        _add(self.counts, result.outcome, number)
        if not self.checks:
            self.checks = [{} for _ in result.case.assertions]
            self.labels = [assertion.label or assertion.check for assertion in result.case.assertions]
        for held, verdict in zip(self.checks, result.verdicts, strict=False):
            _add(held, verdict.outcome, number)
        if place is None:
            return
        if result.reason is not None and not any(verdict.outcome in ("fail", "error") for verdict in result.verdicts):
            self._count_reason("", result.outcome, result.code, result.reason, number, place)
        for label, verdict in zip(self.labels, result.verdicts, strict=False):
            if verdict.outcome in ("fail", "error"):
                self._count_reason(label, verdict.outcome, verdict.code, verdict.reason, number, place)

    def _count_reason(self, check: str, outcome: str, code: str | None, reason: str, number: int, place: TracePlace) -> None:
        self.reasons.add(
            "\0".join((check, outcome, code or "", find_shape(reason[:_LONGEST_REASON]))),
            Reason(check=check, outcome=outcome, code=code, reason=reason[:_LONGEST_REASON], count=number, samples=[place]),
        )
        self.reasons.cut(MOST_REASONS)

    def merge(self, other: CaseSketch) -> None:
        """Add what the same case came to elsewhere."""
        for outcome, number in other.counts.items():
            _add(self.counts, outcome, number)
        if not self.checks:
            self.name = other.name
            self.checks, self.labels = [{} for _ in other.checks], other.labels
        for mine, theirs in zip(self.checks, other.checks, strict=False):
            for outcome, number in theirs.items():
                _add(mine, outcome, number)
        self.reasons.merge(other.reasons)
        self.reasons.cut(MOST_REASONS)


class LineNames(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What JSON lines have of the names that `--where` asks for."""

    lines: int = 0
    """Lines that were examined."""
    missing: list[str] = []
    """Names that none of them had."""
    keys: list[str] = []
    """Some of the keys that they have."""
    unlike: dict[str, int] = {}
    """Of each comparison how many lines have something else there than it is compared with."""

    def merge(self, other: LineNames) -> None:
        """Add what other lines have."""
        self.lines += other.lines
        for name, number in other.unlike.items():
            _add(self.unlike, name, number)
        self.missing = [name for name in self.missing if name in other.missing]
        self.keys = list(dict.fromkeys((*self.keys, *other.keys)))[:_MOST_KEYS]


class Sketch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one partition, or several, came to."""

    records: int = 0
    """Records that were read, valid or not."""
    traces: int = 0
    """Runs that were read."""
    errors: int = 0
    """Rows of `errors`."""
    unread: int = 0
    """Records that these represent: one row may be about a whole row group."""
    left_out: int = 0
    """Rows that `--where` does not ask for."""
    incomplete: int = 0
    """Traces that may lack spans which could not be read."""
    faults: Heaviest[Reason] = msgspec.field(default_factory=Heaviest[Reason])
    """Why records could not be read, by code and shape."""
    cases: dict[str, CaseSketch] = {}
    tables: dict[str, SliceTable] = {}
    """The traces by day, and by the names of `--by`, joined with commas."""
    other_inputs: OtherInputs = msgspec.field(default_factory=OtherInputs)
    """The traces that were decided although their input differs from the input of their case."""
    names: LineNames | None = None
    """Which names of `--where` the JSON lines have; None for Parquet, which has a schema, and if no line was read."""

    def count(self, result: CaseResult, number: int, place: TracePlace | None) -> None:
        """Add traces with this result."""
        case = result.case
        known = self.cases.get(case.id)
        if known is None:
            known = self.cases[case.id] = CaseSketch(name=case.name)
        known.count(result, number, place)

    def count_fault(self, code: str, reason: str, place: TracePlace, rows: int = 1) -> None:
        """Add one row of `errors`, which represents this many records."""
        self.errors += 1
        self.unread += rows
        shortened = reason[:_LONGEST_REASON]
        self.faults.add(
            f"{code}\0{find_shape(shortened)}", Reason(check="", outcome="error", code=code, reason=shortened, count=1, samples=[place])
        )
        self.faults.cut(MOST_REASONS)

    def merge(self, other: Sketch, cases: int = 1) -> None:
        """Add the counts of other partitions of a suite of this many cases; `other` is consumed."""
        self.records += other.records
        self.traces += other.traces
        self.errors += other.errors
        self.unread += other.unread
        self.left_out += other.left_out
        self.incomplete += other.incomplete
        self.other_inputs.merge(other.other_inputs)
        if other.names is not None:
            if self.names is None:
                # A copy: it is changed when the next one is added.
                self.names = msgspec.structs.replace(other.names, unlike=dict(other.names.unlike))
            else:
                self.names.merge(other.names)
        for names, table in other.tables.items():
            self.tables.setdefault(names, SliceTable(most=count_most_slices(cases, names))).merge(table)
        self.faults.merge(other.faults)
        self.faults.cut(MOST_REASONS)
        for id, case in other.cases.items():
            self.cases.setdefault(id, CaseSketch()).merge(case)

    def take_cases(self, other: Sketch, carried: Container[str]) -> None:
        """Take over what these cases came to in an earlier evaluation of the same records."""
        for id, case in other.cases.items():
            if id in carried:
                self.cases[id] = case
        for names, table in other.tables.items():
            self.tables.setdefault(names, SliceTable(most=table.most)).take_cases(table, carried)


def _add(counts: dict[str, int], outcome: str, number: int) -> None:
    counts[outcome] = counts.get(outcome, 0) + number
