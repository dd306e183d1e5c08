"""A repeated test of an agent, because agents do not give the same answer twice.

Options and figures are those of MCPJam's `EvalTest`, version 6.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isasyncgen, isawaitable, isgenerator
from typing import Any, Final

import msgspec

from proctor.evals.agents.calling import DEADLINE, Deadline, call_function, copy_context, describe_exception, end_task, run_blocking
from proctor.evals.agents.prompt_result import LatencyBreakdown, PromptResult
from proctor.evals.agents.test_agent import EvalAgent
from proctor.evals.grading.expectations import Expectations, Predicate
from proctor.evals.grading.results import (
    Counts,
    EvalRunResult,
    IterationResult,
    PredicateResult,
    SuiteAggregate,
    Tokens,
    accuracy,
    sum_up_run,
)
from proctor.evals.grading.score_rows import (
    EvaluationConfig,
    ScoreDefinition,
    ScoreOutcome,
    ScoreResult,
    canonical_digest,
    is_passed,
    make_error_outcome,
    make_row,
    not_applicable,
    scored,
)
from proctor.evals.grading.scorers import DEFAULT_LIMITS, Scenario, Scorer, ScorerLimits, define_predicate, make_context, run_scorers
from proctor.formats.native.drafting import make_slug
from proctor.matchers.calls import ToolCallMatch
from proctor.model.evidence import Json, ToolCall
from proctor.model.json_values import is_finite, is_integer
from proctor.model.show import show
from proctor.validators import CallLike, evaluate_tool_calls, read_options


class Figures(ABC):
    """Rates over the iterations of the last run. Raises `RuntimeError` before the first."""

    def accuracy(self) -> float:
        """Return the share of iterations that passed."""
        totals = self._get_totals()
        return accuracy(totals.successes, totals.iterations)

    def precision(self) -> float:
        """Return the share of calls that were expected. Raises `ValueError` without `expected_tool_calls`."""
        return self._count_calls("precision").precision()

    def recall(self) -> float:
        """Return the share of expected calls that were made. Raises `ValueError` without `expected_tool_calls`."""
        return self._count_calls("recall").recall()

    def true_positive_rate(self) -> float:
        """Return the same as `recall`."""
        return self._count_calls("true_positive_rate").recall()

    def unexpected_tool_call_rate(self) -> float:
        """Return the share of iterations with a call that was not expected."""
        return self._count_calls().unexpected_rate()

    def false_positive_rate(self) -> float:
        """Return the share of iterations with a call that was not expected; without expected calls, of those that failed."""
        totals = self._get_totals()
        expects_calls = any(expected for _, expected in self.list_runs())
        return self.unexpected_tool_call_rate() if expects_calls else accuracy(totals.failures, totals.iterations)

    def average_token_use(self) -> float:
        """Tokens per iteration."""
        totals = self._get_totals()
        return accuracy(totals.token_usage.total, totals.iterations)

    def _count_calls(self, figure: str | None = None) -> Counts:
        """Return the counts over all tests, or, for a figure that needs expected calls, over those that have any."""
        self._get_totals()
        runs = [(iterations, expected) for iterations, expected in self.list_runs() if expected or figure is None]
        if figure is not None and not runs:
            raise ValueError(f"{figure} needs expected_tool_calls, and there are none")
        counts = Counts()
        for iterations, expected in runs:
            counts.add(iterations, expected)
        return counts

    @abstractmethod
    def list_runs(self) -> list[tuple[Sequence[IterationResult], int]]:
        """Return the iterations of every test in its last run, and the number of calls it expects."""

    @abstractmethod
    def _get_totals(self) -> EvalRunResult | SuiteAggregate:
        """Return the sums of the last run. Raises `RuntimeError` before the first."""


TestFunction = Callable[[Any], object | Awaitable[object]]
_GRACE_S: Final = 1.0
_FIRST_WAIT_S: Final = 0.1


class _Attempt(msgspec.Struct, frozen=True):
    answer: bool
    error: str | None
    again: bool
    """Whether a retry may help."""
    prompts: Sequence[PromptResult]


async def run_iteration(
    test: TestFunction,
    agent: EvalAgent,
    grading: Grading,
    *,
    timeout_ms: float,
    retries: int,
    limits: ScorerLimits = DEFAULT_LIMITS,
    number: int = 1,
) -> IterationResult:
    """Run the test function until it returns an answer or has no retries left, and decide."""
    tried = 0
    while True:
        attempt = await _run_attempt(test, agent, timeout_ms)
        result = _decide_attempt(attempt, grading, tried)
        again = attempt.again or (not result.passed and any(prompt.has_error() for prompt in attempt.prompts))
        if not again or tried >= retries:
            break
        # Longer each time: an immediate retry does not help an overloaded provider.
        await asyncio.sleep(_FIRST_WAIT_S * 2**tried)
        tried += 1
    rows = (*result.scores, *await grading.make_scorer_rows(result.prompts, limits, iteration=number, failed=attempt.again))
    return msgspec.structs.replace(result, scores=rows, passed=is_passed(rows, grading.config))


def _decide_attempt(attempt: _Attempt, grading: Grading, tried: int) -> IterationResult:
    """Return the result without the scorers."""
    prompts = tuple(attempt.prompts)
    calls: list[ToolCall] = [call for prompt in prompts for call in prompt.get_tool_calls()]
    match = grading.expectations.match_calls(calls)
    predicates = grading.expectations.decide_predicates(prompts)
    return IterationResult(
        passed=attempt.answer and (match is None or match.passed) and all(predicate.passed for predicate in predicates),
        latencies=tuple(prompt.get_latency() for prompt in prompts) or (LatencyBreakdown(),),
        tokens=sum(
            (Tokens(total=each.total_tokens(), input=each.input_tokens(), output=each.output_tokens()) for each in prompts), Tokens()
        ),
        error=attempt.error,
        retry_count=tried,
        prompts=prompts,
        tool_match=match,
        predicate_results=predicates,
        scores=grading.make_built_in_rows(attempt.answer, attempt.error, match, predicates),
    )


async def _run_attempt(test: TestFunction, agent: EvalAgent, timeout_ms: float) -> _Attempt:
    fresh_agent = agent.with_options()
    limit_s = timeout_ms / 1000
    context = copy_context()
    deadline = Deadline(limit_s)
    context.run(DEADLINE.set, deadline)
    task = asyncio.create_task(call_function(test, fresh_agent, context), context=context)
    try:
        await asyncio.wait({task}, timeout=limit_s)
        timed_out = not task.done()
        if timed_out:
            # Its prompts have just ended: the function may still read them.
            await asyncio.wait({task}, timeout=min(_GRACE_S, limit_s))
    finally:
        # Also if this iteration is cancelled: `wait` would leave the task running.
        await end_task(task)
    # Checked before the answer: a function may return true in its grace period, or after a prompt that was cut off.
    answer: object = None
    error, again = None, True
    if timed_out or deadline.missed:
        error = f"Operation timed out after {timeout_ms:g}ms"
    elif task.cancelled():
        error = "the test was cancelled"
    elif (raised := task.exception()) is not None:
        error = describe_exception(raised)
    else:
        answer, again = task.result(), False
        if answer is None:
            error = "the test function returned None: it must return true or false"
        elif isgenerator(answer) or isasyncgen(answer):
            error = "the test function is a generator, of which nothing was run: it must return true or false and not yield"
    return _Attempt(error is None and bool(answer), error, again, fresh_agent.get_prompt_history())


OnProgress = Callable[[int, int], object | Awaitable[object]]
OnFailure = Callable[[str], object | Awaitable[object]]
NO_FAILURES: Final = "No failed iterations."
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class EvalTest(Figures):
    """One test: a function of an agent that returns true or false, and other expectations of every iteration.

    `id` joins runs of the test, by default derived from its name; without `match_options` expected calls are compared as the suite does;
    `expected_output` is what a good answer looks like, for scorers that ask a judge.
    """

    __test__ = False

    def __init__(
        self,
        name: str,
        test: TestFunction,
        *,
        id: str | None = None,
        expected_tool_calls: Iterable[CallLike | str] = (),
        match_options: Mapping[str, object] | None = None,
        predicates: Iterable[Predicate] = (),
        is_negative_test: bool = False,
        expected_output: str | None = None,
        scorers: Iterable[Scorer] = (),
    ) -> None:
        if not callable(test):
            raise TypeError(f"test: expected a function of an agent, found {type(test).__name__}")
        self._name = name
        self._id = make_slug(name) if id is None else id
        if not _ID.fullmatch(self._id):
            raise ValueError(f"id: expected 1 to 128 letters, digits, '_' and '-', found {show(self._id)}")
        self._test = test
        self._calls = tuple(expected_tool_calls)
        self._match_options = dict(match_options) if match_options is not None else None
        self._predicates = tuple(predicates)
        self._negative = is_negative_test
        self._expected_output = expected_output
        self._scorers = tuple(scorers)
        self._grading = self._make_grading(self._match_options or {})
        self._result: EvalRunResult | None = None

    def __repr__(self) -> str:
        return f"EvalTest(name={self._name!r}, id={self._id!r})"

    def _make_grading(self, match_options: Mapping[str, object]) -> Grading:
        expectations = Expectations(self._calls, match_options, self._predicates, negative=self._negative)
        scenario = Scenario(title=self._name, key=self._id, is_negative_test=self._negative)
        return Grading(expectations, self._scorers, scenario, self._expected_output)

    def inherit_match_options(self, match_options: Mapping[str, object]) -> None:
        """Use the match options of a suite if the test has none. Raises the errors of invalid options."""
        if self._match_options is None:
            self._grading = self._make_grading(match_options)
            self._match_options = dict(match_options)

    async def run(
        self,
        agent: EvalAgent,
        *,
        iterations: int,
        concurrency: int = 5,
        retries: int = 0,
        timeout_ms: float = 30_000,
        scorer_concurrency: int = 4,
        scorer_timeout_ms: float = 60_000,
        on_progress: OnProgress | None = None,
        on_failure: OnFailure | None = None,
    ) -> EvalRunResult:
        """Repeat the test. Raises `ValueError` for invalid options; an error in an iteration is its result.

        `on_progress(completed, total)` is called after every iteration; `on_failure(report)` once at the end, if an iteration failed.
        """
        if not is_integer(concurrency) or concurrency < 1:
            raise ValueError(f"concurrency: expected a whole number of at least 1, found {show(concurrency)}")
        if retries < 0:
            raise ValueError(f"retries: expected at least 0, found {retries}")
        if not (is_finite(timeout_ms) and timeout_ms > 0):
            raise ValueError(f"timeout_ms: expected more than 0, found {show(timeout_ms)}")
        limits = ScorerLimits(scorer_concurrency, scorer_timeout_ms)
        gate = asyncio.Semaphore(concurrency)
        total, completed = max(0, iterations), 0
        grading = self._grading

        async def one(number: int) -> IterationResult:
            nonlocal completed
            async with gate:
                result = await run_iteration(
                    self._test, agent, grading, timeout_ms=timeout_ms, retries=retries, limits=limits, number=number
                )
            completed += 1
            if on_progress is not None:
                await _await_answer(on_progress(completed, total))
            return result

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(number)) for number in range(1, total + 1)]
        except BaseExceptionGroup as raised:
            # A task group wraps exceptions; callers expect the exception itself.
            raise raised.exceptions[0] from None
        self._result = sum_up_run(
            [task.result() for task in tasks], config=grading.config, case_id=self._id, scenario_hash=grading.scenario_hash
        )
        if on_failure is not None and self._result.failures:
            await _await_answer(on_failure(self.get_failure_report()))
        return self._result

    def run_sync(self, agent: EvalAgent, **options: Any) -> EvalRunResult:
        """`run` for code that is not asynchronous."""
        return run_blocking(self.run(agent, **options))

    def list_runs(self) -> list[tuple[Sequence[IterationResult], int]]:
        """Return the iterations of the last run, and the number of expected calls."""
        return [(self._get_totals().iteration_details, len(self._calls))]

    def _get_totals(self) -> EvalRunResult:
        if self._result is None:
            raise RuntimeError(f"test {self._name!r} has not been run yet")
        return self._result

    def get_results(self) -> EvalRunResult | None:
        """Return the last run; None before the first."""
        return self._result

    def get_name(self) -> str:
        """Return the name of the test."""
        return self._name

    def get_id(self) -> str:
        """Return the id by which runs of the test are joined."""
        return self._id

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the test."""
        return {
            "id": self._id,
            "name": self._name,
            "test": self._test,
            "expected_tool_calls": self._calls,
            "match_options": dict(self._match_options or {}),
            "predicates": self._predicates,
            "is_negative_test": self._negative,
            "expected_output": self._expected_output,
            "scorers": self._scorers,
        }

    def get_evaluation_config_snapshot(self) -> EvaluationConfig:
        """Return the definitions that grade its iterations, and their hash."""
        return self._grading.config

    def get_all_iterations(self) -> list[IterationResult]:
        """Return every iteration of the last run."""
        return list(self._get_totals().iteration_details)

    def get_failed_iterations(self) -> list[IterationResult]:
        """Return the iterations that failed."""
        return [iteration for iteration in self._get_totals().iteration_details if not iteration.passed]

    def get_successful_iterations(self) -> list[IterationResult]:
        """Return the iterations that passed."""
        return [iteration for iteration in self._get_totals().iteration_details if iteration.passed]

    def get_failure_report(self) -> str:
        """Return a text about every failed iteration: the error, mismatches, and the messages of every prompt."""
        details = self._get_totals().iteration_details
        failed = [(number, scorer) for number, scorer in enumerate(details, 1) if not scorer.passed]
        if not failed:
            return NO_FAILURES
        scorer_ids = {scorer.definition.scorer_id for scorer in self._scorers}
        return "\n\n".join(
            _report_iteration(f"{self._name}: iteration {number} of {len(details)} failed", scorer, scorer_ids) for number, scorer in failed
        )


def _report_iteration(header: str, iteration: IterationResult, scorers: set[str]) -> str:
    lines = [f"=== {header} ==="]
    if iteration.error is not None:
        lines.append(f"error: {iteration.error}")
    if iteration.retry_count:
        lines.append(f"tried {iteration.retry_count + 1} times")
    match = iteration.tool_match
    if match is not None and not match.passed:
        lines += [f"missing call: {call.name} {show(call.arguments)}" for call in match.missing]
        lines += [f"call not expected: {call.name} {show(call.arguments)}" for call in match.extra]
        lines += [
            f"arguments of {entry.tool_name}: expected {show(entry.expected_args)}, found {show(entry.actual_args)}"
            for entry in match.argument_mismatches
        ]
    lines += [f"predicate {entry.predicate.get('type')}: {entry.reason}" for entry in iteration.predicate_results if not entry.passed]
    lines += [
        _describe_row(row) for row in iteration.scores if row.scorer_id in scorers and not row.passed and row.status != "not_applicable"
    ]
    for number, prompt in enumerate(iteration.prompts, 1):
        suffix = f" (error: {prompt.get_error()})" if prompt.has_error() else ""
        lines += [f"--- prompt {number}: {show(prompt.prompt, 200)}{suffix}", prompt.format_trace()]
    return "\n".join(lines)


def _describe_row(row: ScoreResult) -> str:
    if row.status == "scored":
        return f"scorer {row.scorer_id}: {row.value:g} is below {row.pass_threshold:g}: {row.rationale or 'no reason given'}"
    return f"scorer {row.scorer_id}: {row.status}: {row.error or row.rationale or 'no reason given'}"


async def _await_answer(answer: object) -> None:
    if isawaitable(answer):
        await answer


# Grades the iterations of one test with one row each for the answer of its function, its expected calls, its predicates and its scorers.
# MCPJam's built-in scorers have the ids `legacy:test`, `tool-match` and `predicate:<type>#<ordinal>`; no other scorer may use them.

LEGACY_TEST: Final = "legacy:test"
TOOL_MATCH: Final = "tool-match"


class Grading:
    """Everything that decides an iteration. Raises `ValueError` or `TypeError` for invalid scorers or duplicate ids."""

    def __init__(self, expectations: Expectations, scorers: Iterable[Scorer], scenario: Scenario, expected_output: str | None) -> None:
        self.expectations = expectations
        self.scorers = tuple(scorers)
        for scorer in self.scorers:
            # The list comes from the caller and may have other types.
            if not isinstance(scorer, Scorer):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"scorers: expected scorers, made by `scorer` or `judge_scorer`, found {type(scorer).__name__}")
        self._scenario = scenario
        self._expected_output = expected_output
        # Compared with no calls, every expected one is missing, so they are returned in one form, however they were written.
        self._calls = tuple(evaluate_tool_calls(expectations.calls, ()).missing)
        self._test = ScoreDefinition(scorer_id=LEGACY_TEST, implementation_hash=canonical_digest({"kind": "legacy-test"}), label="test()")
        options = read_options(self.expectations.options)
        graded_by: dict[str, Json] = {
            "expectedToolCalls": [_write_call(call) for call in self._calls],
            "matchOptions": {
                "toolCallOrder": options.order,
                "argumentMatching": options.arguments,
                "maxExtraToolCalls": options.max_extra,
            },
        }
        # Only if they are set, so that other definitions keep their hash.
        graded_by.update({"isNegativeTest": True} if options.negative else {})
        graded_by.update({"positiveOnly": True} if options.positive_only else {})
        self._match = ScoreDefinition(scorer_id=TOOL_MATCH, implementation_hash=canonical_digest(graded_by), label="expected tool calls")
        self._predicates = tuple(define_predicate(scorer, ordinal=index) for index, scorer in enumerate(expectations.predicates))
        self.config = EvaluationConfig.of((self._test, self._match, *self._predicates, *(scorer.definition for scorer in self.scorers)))

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
        """Return the rows of the scorers; if the iteration `failed`, only deterministic ones are run."""
        if not self.scorers:
            return ()
        context = make_context(
            prompts, self._scenario, expected_output=self._expected_output, expected_tool_calls=self._calls, iteration=iteration
        )
        return await run_scorers(self.scorers, context, limits, only_deterministic=failed)


def _write_call(call: ToolCall) -> Mapping[str, Json]:
    return {"toolName": call.name, "arguments": {} if call.arguments is None else call.arguments}


def _score_match(match: ToolCallMatch | None) -> ScoreOutcome:
    if match is None:
        return not_applicable("no tool calls are expected and none are forbidden")
    parts = {
        "missing": [call.name for call in match.missing],
        "other arguments": [entry.tool_name for entry in match.argument_mismatches],
        "out of order": [entry.tool_name for entry in match.out_of_order],
        "extra": [call.name for call in match.extra],
    }
    outcome = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    if not match.passed:
        return scored(0.0, outcome or "no tool was called")
    return scored(1.0, f"the tool calls fit{f' ({outcome}, which is allowed)' if outcome else ''}")
