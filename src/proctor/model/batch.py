"""What a batch came to, over all of its traces: the figures that its reports show."""

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
    """From 1; of JSON lines only where their file is one partition."""
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
    """Verdicts, or records, that are alike."""

    reason: str
    """Of the first of them."""
    count: int
    missed: int = 0
    """How many more there may be, which are counted among the others: 0 where `count` is exact."""
    outcome: str
    check: str = ""
    """The assertion; empty where the reason is that of the whole case, or of a record."""
    code: str | None = None
    samples: tuple[TracePlace, ...] = ()


class PassRate(msgspec.Struct, frozen=True, kw_only=True):
    """How often something passed, of what was decided: an error did not pass, a skip is not counted."""

    counts: dict[str, int]
    decided: int
    passed: int
    rate: float | None
    """Nothing where nothing was decided."""
    low: float
    high: float
    """Between which the true rate lies, with 95 % confidence (Wilson)."""


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one assertion came to."""

    check: str
    rate: PassRate


class JudgedRate(msgspec.Struct, frozen=True, kw_only=True):
    """How often something passes, estimated from a sample that was drawn from each outcome of the deterministic checks by itself."""

    counts: dict[str, int]
    """The sample itself, by outcome."""
    rate: float
    """Of all, each outcome weighted by how many have it; not the share of the sample."""
    low: float
    high: float


class JudgedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's results on a sample of a case."""

    judged: int
    of: int
    """How many results there are."""
    rate: JudgedRate | None
    """Of the whole case, the deterministic checks among it; nothing where nothing could be decided."""
    checks: dict[str, JudgedRate | None]
    """Of the claims that need a judge."""
    reasons: tuple[CommonReason, ...] = ()
    """Why judged results did not pass, the commonest first."""


class CaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one case came to."""

    id: str
    name: str
    rate: PassRate
    checks: tuple[CheckSummary, ...]
    reasons: tuple[CommonReason, ...]
    """The commonest first."""
    more_reasons: int = 0
    """Verdicts with reasons that are not among them."""
    judged: JudgedCase | None = None
    """A judge's results on a sample; None if no judge ran. `rate` and `checks` are about the deterministic checks."""


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """How large an amount of the traces is, within one in a hundred: half of them have at most `p50`."""

    traces: int
    """Of how many that was recorded."""
    p50: float
    p95: float
    p99: float


class CostFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What traces cost in one currency."""

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
    """What traces that have something in common came to."""

    values: tuple[str | None, ...]
    """What they have in common; None if unknown."""
    traces: int
    missed: int = 0
    """How many more there may be, which are counted among the others: 0 where `traces` is exact."""
    rate: PassRate
    """Over the results of all cases."""
    amounts: AmountFigures
    cases: dict[str, PassRate] = {}
    """By case; nothing where the suite has very many."""


class SlicedBy(msgspec.Struct, frozen=True, kw_only=True):
    """All traces by what they have in common."""

    by: tuple[str, ...]
    slices: tuple[Slice, ...]
    """In the order of their values."""
    others: Slice | None = None
    """Everything that is in none of them, because there were too many."""


class BatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch came to."""

    schema: str = SCHEMA
    suite: str
    output: str
    """The folder with `results` and `errors`."""
    started_at: str
    partitions: int
    committed: int
    """Partitions that have a result; fewer than all of them where the batch is not finished."""
    evaluated: int = 0
    """Partitions that were evaluated just now."""
    records: int
    traces: int
    errors: int
    """Rows of `errors`."""
    unread: int = 0
    """Records that could not be read or decided: a row of `errors` may stand for several."""
    left_out: int = 0
    """Rows that `where` does not ask for, in files that were read."""
    files_ruled_out: int = 0
    """Files that were not opened, because of the keys of their folders."""
    cases: tuple[CaseBatch, ...]
    amounts: AmountFigures = AmountFigures()
    judge_tokens: int = 0
    """Tokens of the judge."""
    not_judged: bool = False
    """Whether judged claims are still open: the batch ended before the judge ran, or its results are lost."""
    where: str | None = None
    """Which rows were read, where not all were."""
    days: tuple[Slice, ...] = ()
    """The traces by day; None if no day is recorded."""
    other_days: Slice | None = None
    """Everything that is in none of them, because there were too many."""
    slices: tuple[SlicedBy, ...] = ()
    """The requested tables."""
    faults: tuple[CommonReason, ...] = ()
    """Why records could not be read, the commonest first."""
    more_faults: int = 0
    """Rows of `errors` with reasons that are not among them."""
    failures: tuple[str, ...] = ()
    """Why partitions have no result, as far as that was tried just now."""
    warnings: tuple[str, ...] = ()
    """What may not be as it was meant: a name in `--where` that no line has, traces on which nothing was decided."""

    @property
    def is_complete(self) -> bool:
        """Whether every partition has its result, and the judge ran if the suite needs one."""
        return self.committed == self.partitions and not self.not_judged

    @property
    def has_passed(self) -> bool:
        """Whether everything was read, something was decided, of each judged case something was judged, and all of that passed."""
        passed = all(case.rate.passed == case.rate.decided for case in self.cases)
        judged = [case.judged for case in self.cases if case.judged is not None]
        agreed = all(each.rate is None or each.rate.counts.keys() <= {"pass", "skip"} for each in judged)
        looked = all(each.judged or not each.of for each in judged)
        return self.is_complete and not self.errors and self.has_decided and passed and agreed and looked

    def passes_at_least(self, share: float) -> bool:
        """Return whether everything was read, and each case passed on at least this share of what was decided."""
        rates = [case.rate.rate if case.judged is None or case.judged.rate is None else case.judged.rate.rate for case in self.cases]
        return self.is_complete and not self.errors and self.has_decided and all(rate is None or rate >= share for rate in rates)

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of `results` as a data frame of pandas, which has to be installed."""
        return importlib.import_module("pandas").read_parquet(f"{self.output}/results", columns=None if columns is None else list(columns))

    def _repr_html_(self) -> str:
        """Show the cases in a notebook, those that pass least often first."""
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
