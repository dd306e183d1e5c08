"""Computes the figures of an eval.

Per iteration with expected calls, let E be their number, m the missing, x the extra calls and a the argument mismatches:
tp = max(0, E - m - a), fp = x + a, fn = m + a. The sums over all iterations give

    precision = tp / (tp + fp)        recall = tp / (tp + fn)        0 where nothing is divided by

Percentiles interpolate linearly between the two nearest of the sorted values (type 7).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from proctor.evals.agents.prompt_result import LatencyBreakdown, LatencyStats, LatencySummary
from proctor.evals.grading.results import EvalRunResult, IterationResult, Tokens, TokenSummary
from proctor.evals.grading.score_rows import EvaluationConfig


class Counts:
    """Expected calls that were made, calls that were not expected, expected calls that were not made; over many iterations."""

    __slots__ = ("fn", "fp", "matched", "tp", "with_extra")

    def __init__(self) -> None:
        self.tp = self.fp = self.fn = 0
        self.matched = self.with_extra = 0

    def add(self, iterations: Iterable[IterationResult], expected: int) -> Counts:
        """Count the iterations of one test that expects `expected` calls; 0: none by name, so only extra calls count."""
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
        return self

    def precision(self) -> float:
        """Return the share of calls that were expected."""
        return _divide(self.tp, self.tp + self.fp)

    def recall(self) -> float:
        """Return the share of expected calls that were made."""
        return _divide(self.tp, self.tp + self.fn)

    def unexpected_rate(self) -> float:
        """Return the share of iterations with a call that was not expected."""
        return _divide(self.with_extra, self.matched)


def _divide(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def accuracy(successes: int, iterations: int) -> float:
    """Return the share of iterations that passed; 0 where there are none."""
    return _divide(successes, iterations)


def compute_mean_tokens(total: int, iterations: int) -> float:
    """Return the tokens per iteration; 0 where there are none."""
    return _divide(total, iterations)


def calculate_percentile(values: Sequence[float], percentile: float) -> float:
    """Return a percentile from 0 to 100. Raises `ValueError` for no values."""
    if not values:
        raise ValueError("no percentile of no values")
    if not 0 <= percentile <= 100:
        raise ValueError(f"expected a percentile from 0 to 100, found {percentile}")
    ordered = sorted(values)
    index = percentile / 100 * (len(ordered) - 1)
    low, high = math.floor(index), math.ceil(index)
    return ordered[low] + (ordered[high] - ordered[low]) * (index - low)


def calculate_latency_stats(values: Sequence[float]) -> LatencyStats:
    """Return the spread of some times. Raises `ValueError` for no values."""
    if not values:
        raise ValueError("no statistics of no values")
    return LatencyStats(
        min=min(values),
        max=max(values),
        mean=math.fsum(values) / len(values),
        p50=calculate_percentile(values, 50),
        p95=calculate_percentile(values, 95),
        count=len(values),
    )


def summarise_latency(parts: Iterable[LatencyBreakdown]) -> LatencySummary:
    """Return the spread of the parts of time; zeros for none."""
    listed = tuple(parts)
    if not listed:
        return LatencySummary()
    return LatencySummary(
        e2e=calculate_latency_stats([part.e2e_ms for part in listed]),
        llm=calculate_latency_stats([part.llm_ms for part in listed]),
        mcp=calculate_latency_stats([part.mcp_ms for part in listed]),
        per_iteration=listed,
    )


def sum_up_run(
    iterations: Sequence[IterationResult], *, config: EvaluationConfig | None = None, case_id: str = "", scenario_hash: str = ""
) -> EvalRunResult:
    """Return the iterations of a test, summed up."""
    spent = sum((each.tokens for each in iterations), Tokens())
    successes = sum(each.passed for each in iterations)
    return EvalRunResult(
        iterations=len(iterations),
        successes=successes,
        failures=len(iterations) - successes,
        results=tuple(each.passed for each in iterations),
        iteration_details=tuple(iterations),
        token_usage=TokenSummary(
            total=spent.total, input=spent.input, output=spent.output, per_iteration=tuple(each.tokens for each in iterations)
        ),
        latency=summarise_latency(part for each in iterations for part in each.latencies),
        evaluation_config=config,
        case_id=case_id,
        scenario_hash=scenario_hash,
    )
