"""Results of an eval: per iteration, per test, per suite."""

from __future__ import annotations

import msgspec

from proctor.evals.agents.prompt_result import LatencyBreakdown, LatencySummary, PromptResult
from proctor.evals.grading.score_rows import EvaluationConfig, ScoreResult
from proctor.matchers.calls import ToolCallMatch
from proctor.model.evidence import Json


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens spent."""

    total: int = 0
    input: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(total=self.total + other.total, input=self.input + other.input, output=self.output + other.output)


class TokenSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens spent over all iterations."""

    total: int = 0
    input: int = 0
    output: int = 0
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
    """One per prompt; a single one of zeros where there was no prompt."""
    tokens: Tokens = Tokens()
    error: str | None = None
    """Why the test function gave no answer: it raised, ran out of time, or forgot to return one."""
    retry_count: int = 0
    prompts: tuple[PromptResult, ...] = ()
    tool_match: ToolCallMatch | None = None
    """How the calls fit the expected ones; nothing where none are expected."""
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
    """What the iterations were graded by."""
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
    """Whether another run was graded alike, over all tests."""
