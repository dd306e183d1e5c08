"""Results of an eval: per iteration, per test, per suite."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from proctor.evals.agents.prompt_result import LatencyBreakdown, LatencyStats, LatencySummary, PromptResult
from proctor.evals.grading.score_rows import EvaluationConfig, ScoreResult
from proctor.matchers.calls import ToolCallMatch
from proctor.model.evidence import Json

# Computes the figures of an eval.
# Per iteration with expected calls, let E be their number, m the missing, x the extra calls and a the argument mismatches: tp = max(0, E
# - m - a), fp = x + a, fn = m + a. The sums over all iterations give
# precision = tp / (tp + fp) recall = tp / (tp + fn) 0 if the divisor is 0
# Percentiles interpolate linearly between the two nearest of the sorted values (type 7).


class Counts:
    """Expected calls that were made, calls that were not expected, expected calls that were not made; over many iterations."""

    __slots__ = ("fn", "fp", "matched", "tp", "with_extra")

    def __init__(self) -> None:
        self.tp = self.fp = self.fn = 0
        self.matched = self.with_extra = 0

    def add(self, iterations: Iterable[IterationResult], expected: int) -> None:
        """Count the iterations of one test that expects `expected` calls; with 0, only extra calls count."""
        for iteration in iterations:
            match = iteration.tool_match
            if match is None:
                continue
            self.matched += 1
            self.with_extra += bool(match.extra)
            if expected:
                missing, mismatched = len(match.missing), len(match.argument_mismatches)
                self.tp += max(0, expected - missing - mismatched)
                self.fp += len(match.extra) + mismatched
                self.fn += missing + mismatched

    def precision(self) -> float:
        """Return the share of calls that were expected."""
        return accuracy(self.tp, self.tp + self.fp)

    def recall(self) -> float:
        """Return the share of expected calls that were made."""
        return accuracy(self.tp, self.tp + self.fn)

    def unexpected_rate(self) -> float:
        """Return the share of iterations with a call that was not expected."""
        return accuracy(self.with_extra, self.matched)


def accuracy(successes: float, iterations: float) -> float:
    """Return the share of iterations that passed; 0 without iterations."""
    return successes / iterations if iterations else 0.0


def calculate_latency_stats(values: Sequence[float]) -> LatencyStats:
    """Return the statistics of some durations; zeros without values."""
    if not values:
        return LatencyStats()
    percentiles = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    return LatencyStats(
        min=min(values),
        max=max(values),
        mean=math.fsum(values) / len(values),
        p50=percentiles[49],
        p95=percentiles[94],
        count=len(values),
    )


def summarise_latency(parts: Iterable[LatencyBreakdown]) -> LatencySummary:
    """Return the statistics of each part of the latency; zeros without values."""
    listed = tuple(parts)
    return LatencySummary(
        e2e=calculate_latency_stats([part.e2e_ms for part in listed]),
        llm=calculate_latency_stats([part.llm_ms for part in listed]),
        mcp=calculate_latency_stats([part.mcp_ms for part in listed]),
        per_iteration=listed,
    )


def sum_up_run(
    iterations: Sequence[IterationResult], *, config: EvaluationConfig | None = None, case_id: str = "", scenario_hash: str = ""
) -> EvalRunResult:
    """Return the summary of the iterations of a test."""
    spent = sum((iteration.tokens for iteration in iterations), Tokens())
    successes = sum(iteration.passed for iteration in iterations)
    return EvalRunResult(
        iterations=len(iterations),
        successes=successes,
        failures=len(iterations) - successes,
        results=tuple(iteration.passed for iteration in iterations),
        iteration_details=tuple(iterations),
        token_usage=TokenSummary(
            total=spent.total, input=spent.input, output=spent.output, per_iteration=tuple(iteration.tokens for iteration in iterations)
        ),
        latency=summarise_latency(part for iteration in iterations for part in iteration.latencies),
        evaluation_config=config,
        case_id=case_id,
        scenario_hash=scenario_hash,
    )


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens spent."""

    total: int = 0
    input: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(total=self.total + other.total, input=self.input + other.input, output=self.output + other.output)


class TokenSummary(Tokens, frozen=True, kw_only=True):
    """Tokens spent over all iterations."""

    per_iteration: tuple[Tokens, ...] = ()


class PredicateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one predicate."""

    predicate: dict[str, Json]
    passed: bool
    reason: str


class IterationResult(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition of a test."""

    passed: bool
    latencies: tuple[LatencyBreakdown, ...] = (LatencyBreakdown(),)
    """One per prompt; a single one of zeros without prompts."""
    tokens: Tokens = Tokens()
    error: str | None = None
    """Why the test function gave no answer: it raised, ran out of time, or forgot to return one."""
    retry_count: int = 0
    prompts: tuple[PromptResult, ...] = ()
    tool_match: ToolCallMatch | None = None
    """How the calls match the expected ones; None if none are expected."""
    predicate_results: tuple[PredicateResult, ...] = ()
    scores: tuple[ScoreResult, ...] = ()
    """One row per definition: the answer of the function, the calls, the predicates, the scorers."""


class EvalRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """All repetitions of a test, in the order they were started."""

    iterations: int
    successes: int
    failures: int
    results: tuple[bool, ...]
    iteration_details: tuple[IterationResult, ...]
    token_usage: TokenSummary
    latency: LatencySummary
    evaluation_config: EvaluationConfig | None = None
    """The definitions that graded the iterations."""
    case_id: str = ""
    """The id of the test."""
    scenario_hash: str = ""
    """Equal for runs with the same task."""


class SuiteTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens spent by a suite."""

    total: int = 0
    per_test: tuple[int, ...] = ()


class SuiteAggregate(msgspec.Struct, frozen=True, kw_only=True):
    """All tests of a suite together."""

    iterations: int
    successes: int
    failures: int
    accuracy: float
    token_usage: SuiteTokens
    latency: LatencySummary


class EvalSuiteResult(msgspec.Struct, frozen=True, kw_only=True):
    """Every test of a suite by name, and all of them together."""

    tests: dict[str, EvalRunResult]
    aggregate: SuiteAggregate
    evaluation_config_hash: str = ""
    """Equal for runs that were graded alike, over all tests."""
