"""The figures of a batch over all of its traces, as its reports show them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.model.result import MOST_ROWS, write_outcome, write_table, write_text

SCHEMA = "proctor.batch-summary/1"


class TracePlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The location of a trace."""

    file: str
    row: int | None = None
    """The row number, from 1; for JSON lines only if their file is one partition."""
    offset: int | None = None
    """The byte at which its line begins."""
    trace: str | None = None
    """Its id, if recorded."""

    def describe(self) -> str:
        """Return the place in words: `trace 7f3 (day.parquet, row 12)`."""
        at = f"row {self.row:,}" if self.row is not None else f"byte {self.offset:,}" if self.offset is not None else ""
        place = f"{self.file}, {at}" if at else self.file
        return f"{self.trace} ({place})" if self.trace else place


class CommonReason(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts or records with the same reason."""

    reason: str
    """The reason of the first of them."""
    count: int
    missed: int = 0
    """How many more there may be among the others: 0 if `count` is exact."""
    outcome: str
    check: str = ""
    """The assertion; empty if the reason is that of the whole case, or of a record."""
    code: str | None = None
    samples: tuple[TracePlace, ...] = ()


class PassRate(msgspec.Struct, frozen=True, kw_only=True):
    """The pass rate of decided results: an error did not pass, a skip is not counted."""

    counts: dict[str, int]
    decided: int
    passed: int
    rate: float | None
    """None if nothing was decided."""
    low: float
    high: float
    """The 95 % confidence interval of the rate (Wilson)."""


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one assertion."""

    check: str
    rate: PassRate


class JudgedRate(msgspec.Struct, frozen=True, kw_only=True):
    """A pass rate estimated from a sample that was drawn separately for each outcome of the deterministic checks."""

    counts: dict[str, int]
    """The sample itself, by outcome."""
    rate: float
    """The rate of all, each outcome weighted by its frequency; not the share of the sample."""
    low: float
    high: float


class JudgedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's results on a sample of a case."""

    judged: int
    of: int
    """How many results there are."""
    rate: JudgedRate | None
    """The rate of the whole case, including its deterministic checks; None if nothing could be decided."""
    checks: dict[str, JudgedRate | None]
    """The rate of the claims that need a judge."""
    reasons: tuple[CommonReason, ...] = ()
    """Why judged results did not pass, most frequent first."""


class CaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one case."""

    id: str
    name: str
    rate: PassRate
    checks: tuple[CheckSummary, ...]
    reasons: tuple[CommonReason, ...]
    """The most frequent first."""
    more_reasons: int = 0
    """The number of verdicts with other reasons."""
    judged: JudgedCase | None = None
    """A judge's results on a sample; None if no judge ran. `rate` and `checks` are about the deterministic checks."""


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """The size of an amount over the traces, within one percent: half of them have at most `p50`."""

    traces: int
    """The number of traces with a recorded amount."""
    p50: float
    p95: float
    p99: float


class CostFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of traces in one currency."""

    currency: str
    total: float
    each: Percentiles


class AmountFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Durations, tokens and costs of traces, as far as recorded."""

    latency: Percentiles | None = None
    """In milliseconds."""
    tokens: Percentiles | None = None
    cost: tuple[CostFigures, ...] = ()


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The results of traces with a common value."""

    values: tuple[str | None, ...]
    """The common value; None if unknown."""
    traces: int
    missed: int = 0
    """How many more there may be among the others: 0 if `traces` is exact."""
    rate: PassRate
    """Over the results of all cases."""
    amounts: AmountFigures
    cases: dict[str, PassRate] = {}
    """By case; empty if the suite has very many."""


class SlicedBy(msgspec.Struct, frozen=True, kw_only=True):
    """All traces, grouped by a value."""

    by: tuple[str, ...]
    slices: tuple[Slice, ...]
    """In the order of their values."""
    others: Slice | None = None
    """The traces beyond the maximum number of groups."""


class BatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a batch."""

    schema: str = SCHEMA
    suite: str
    output: str
    """The folder with `results` and `errors`."""
    started_at: str
    partitions: int
    committed: int
    """Partitions with a result; fewer than all if the batch is not finished."""
    evaluated: int = 0
    """Partitions that were evaluated in this run."""
    records: int
    traces: int
    errors: int
    """Rows of `errors`."""
    unread: int = 0
    """Records that could not be read or decided: a row of `errors` may cover several."""
    left_out: int = 0
    """Rows excluded by `where`, in files that were read."""
    files_ruled_out: int = 0
    """Files that were skipped because of the keys of their folders."""
    cases: tuple[CaseBatch, ...]
    amounts: AmountFigures = AmountFigures()
    judge_tokens: int = 0
    """Tokens of the judge."""
    not_judged: bool = False
    """Whether judged claims are still open: the batch ended before the judge ran, or its results are lost."""
    where: str | None = None
    """Which rows were read, if not all."""
    days: tuple[Slice, ...] = ()
    """The traces by day; None if no day is recorded."""
    other_days: Slice | None = None
    """The traces beyond the maximum number of days."""
    slices: tuple[SlicedBy, ...] = ()
    """The requested tables."""
    faults: tuple[CommonReason, ...] = ()
    """Why records could not be read, most frequent first."""
    more_faults: int = 0
    """The number of rows of `errors` with other reasons."""
    failures: tuple[str, ...] = ()
    """Why partitions have no result, of those tried in this run."""
    warnings: tuple[str, ...] = ()
    """Possible mistakes: a name in `--where` that no line has, traces on which nothing was decided."""

    @property
    def is_complete(self) -> bool:
        """Whether every partition has its result, and the judge ran if the suite needs one."""
        return self.committed == self.partitions and not self.not_judged

    @property
    def has_passed(self) -> bool:
        """Whether everything was read, something was decided, something of each judged case was judged, and all of that passed."""
        passed = all(case.rate.passed == case.rate.decided for case in self.cases)
        judged = [case.judged for case in self.cases if case.judged is not None]
        all_judged_passed = all(result.rate is None or result.rate.counts.keys() <= {"pass", "skip"} for result in judged)
        each_was_judged = all(result.judged or not result.of for result in judged)
        return self.is_complete and not self.errors and self.has_decided and passed and all_judged_passed and each_was_judged

    def passes_at_least(self, share: float) -> bool:
        """Return whether everything was read, and each case passed on at least this share of its decided results."""
        rates = [case.rate.rate if case.judged is None or case.judged.rate is None else case.judged.rate.rate for case in self.cases]
        return self.is_complete and not self.errors and self.has_decided and all(rate is None or rate >= share for rate in rates)

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of `results` as a pandas data frame; pandas must be installed."""
        return importlib.import_module("pandas").read_parquet(f"{self.output}/results", columns=None if columns is None else list(columns))

    def _repr_html_(self) -> str:
        """Show the cases in a notebook, lowest pass rate first."""
        ranked = sorted(self.cases, key=lambda case: 2.0 if case.rate.rate is None else case.rate.rate)[:MOST_ROWS]
        rows = [
            (
                write_text(case.id),
                f"{case.rate.passed:,} of {case.rate.decided:,}",
                write_text("".join(reason.reason for reason in case.reasons[:1])),
            )
            for case in ranked
        ]
        warnings = "".join(f"<p>warning: {write_text(warning)}</p>" for warning in self.warnings)
        title = f"<p>{write_outcome('pass' if self.has_passed else 'fail')} {write_text(self.suite)}: {self.traces:,} traces</p>{warnings}"
        return title + write_table(("case", "passed", "commonest reason"), rows, more=len(self.cases) - MOST_ROWS)

    @property
    def has_decided(self) -> bool:
        """Whether any case was decided on any trace."""
        return any(case.rate.decided or (case.judged is not None and case.judged.rate is not None) for case in self.cases)
