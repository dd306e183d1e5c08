"""What a batch came to, over all of its traces: the figures that its reports show."""

from __future__ import annotations

import msgspec

SCHEMA = "proctor.batch-summary/1"


class TracePlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a trace stands."""

    file: str
    row: int | None = None
    """From 1; of JSON lines only where their file is one partition."""
    offset: int | None = None
    """The byte at which its line begins."""
    trace: str | None = None
    """Its id, where the recording tells it."""

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


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long the runs took, in milliseconds, within one in a hundred."""

    traces: int
    """Of how many that was recorded."""
    p50: float
    p95: float
    p99: float


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
    cases: tuple[CaseBatch, ...]
    latency: Latency | None = None
    """Nothing where it was recorded nowhere."""
    faults: tuple[CommonReason, ...] = ()
    """Why records could not be read, the commonest first."""
    failures: tuple[str, ...] = ()
    """Why partitions have no result, as far as that was tried just now."""

    @property
    def is_complete(self) -> bool:
        """Whether every partition has its result."""
        return self.committed == self.partitions

    @property
    def has_passed(self) -> bool:
        """Whether everything was read, something was decided, and all of that passed."""
        return not self.errors and self.has_decided and all(case.rate.passed == case.rate.decided for case in self.cases)

    @property
    def has_decided(self) -> bool:
        """Whether any case was decided on any trace."""
        return any(case.rate.decided for case in self.cases)
