"""Grades the iterations of one test by rows: the answer of its function, its expected calls, its predicates and its scorers.

What MCPJam calls built in has the ids `legacy:test`, `tool-match` and `predicate:<type>#<ordinal>`; no other scorer may have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.grading.expectations import Expectations
from proctor.evals.grading.results import PredicateResult
from proctor.evals.grading.score_rows import (
    EvaluationConfig,
    GatingVerdict,
    ScoreDefinition,
    ScoreOutcome,
    ScoreResult,
    canonical_digest,
    gating_verdict,
    make_error_outcome,
    make_row,
    not_applicable,
    scored,
)
from proctor.evals.grading.scorers import Scenario, Scorer, ScorerContext, ScorerLimits, define_predicate, make_context, run_scorers
from proctor.matchers.calls import ToolCallMatch
from proctor.model.evidence import Json, ToolCall
from proctor.validators import evaluate_tool_calls, read_options

LEGACY_TEST: Final = "legacy:test"
TOOL_MATCH: Final = "tool-match"


class Grading:
    """Everything that decides an iteration. Raises `ValueError` or `TypeError` for scorers that cannot be used together."""

    def __init__(self, expectations: Expectations, scorers: Iterable[Scorer], scenario: Scenario, expected_output: str | None) -> None:
        self.expectations = expectations
        self.scorers = tuple(scorers)
        for each in self.scorers:
            # What is in the list is the caller's: the type is only a promise.
            if not isinstance(each, Scorer):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"scorers: expected scorers, made by `scorer` or `judge_scorer`, found {type(each).__name__}")
        self._scenario = scenario
        self._expected_output = expected_output
        # Held against no call at all, every expected one is missing: so they come back in one form, however they were written.
        self._calls = tuple(evaluate_tool_calls(expectations.calls, ()).missing)
        self._test = ScoreDefinition(scorer_id=LEGACY_TEST, implementation_hash=canonical_digest({"kind": "legacy-test"}), label="test()")
        self._match = self._define_match()
        self._predicates = tuple(define_predicate(each, ordinal=index) for index, each in enumerate(expectations.predicates))
        self.config = EvaluationConfig.of((self._test, self._match, *self._predicates, *(each.definition for each in self.scorers)))

    def _define_match(self) -> ScoreDefinition:
        options = read_options(self.expectations.options)
        graded_by: dict[str, Json] = {
            "expectedToolCalls": [_write_call(call) for call in self._calls],
            "matchOptions": {
                "toolCallOrder": options.order,
                "argumentMatching": options.arguments,
                "maxExtraToolCalls": options.max_extra,
            },
        }
        # Only where they say something, so that other definitions keep the hash they had without them.
        graded_by.update({"isNegativeTest": True} if options.negative else {})
        graded_by.update({"positiveOnly": True} if options.positive_only else {})
        return ScoreDefinition(scorer_id=TOOL_MATCH, implementation_hash=canonical_digest(graded_by), label="expected tool calls")

    @property
    def scenario_hash(self) -> str:
        """Hash of a test without its function: equal for runs with the same task."""
        return canonical_digest(
            {
                "title": self._scenario.title,
                "isNegativeTest": self._scenario.is_negative_test,
                "expectedOutput": self._expected_output,
                "expectedToolCalls": [_write_call(call) for call in self._calls],
            }
        )

    def make_built_in_rows(
        self, answer: bool, error: str | None, match: ToolCallMatch | None, predicates: Sequence[PredicateResult]
    ) -> tuple[ScoreResult, ...]:
        """Return the rows of the answer, the calls and the predicates."""
        outcome = scored(float(answer), f"test() returned {'true' if answer else 'false'}") if error is None else make_error_outcome(error)
        rows = [make_row(self._test, outcome), make_row(self._match, _score_match(match))]
        for definition, found in zip(self._predicates, predicates, strict=True):
            rows.append(make_row(definition, scored(float(found.passed), found.reason)))
        return tuple(rows)

    async def make_scorer_rows(
        self, prompts: Sequence[PromptResult], limits: ScorerLimits, *, iteration: int, failed: bool
    ) -> tuple[ScoreResult, ...]:
        """Return the rows of the scorers; of an iteration that `failed` to give an answer only deterministic ones say something."""
        if not self.scorers:
            return ()
        return await run_scorers(self.scorers, self.make_context(prompts, iteration), limits, only_deterministic=failed)

    def make_context(self, prompts: Sequence[PromptResult], iteration: int) -> ScorerContext:
        """Return what the scorers are shown."""
        return make_context(
            prompts, self._scenario, expected_output=self._expected_output, expected_tool_calls=self._calls, iteration=iteration
        )

    def decide(self, rows: Iterable[ScoreResult]) -> GatingVerdict:
        """Return whether an iteration with these rows passes."""
        return gating_verdict(rows, self.config)


def _write_call(call: ToolCall) -> Mapping[str, Json]:
    return {"toolName": call.name, "arguments": {} if call.arguments is None else call.arguments}


def _score_match(match: ToolCallMatch | None) -> ScoreOutcome:
    if match is None:
        return not_applicable("no tool calls are expected and none are forbidden")
    parts = {
        "missing": [call.name for call in match.missing],
        "other arguments": [each.tool_name for each in match.argument_mismatches],
        "out of order": [each.tool_name for each in match.out_of_order],
        "extra": [call.name for call in match.extra],
    }
    outcome = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    if not match.passed:
        return scored(0.0, outcome or "no tool was called")
    return scored(1.0, f"the tool calls fit{f' ({outcome}, which is allowed)' if outcome else ''}")
