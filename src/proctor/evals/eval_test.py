"""A test of an agent that is repeated, because agents do not answer twice alike.

Options and figures are those of MCPJam's `EvalTest`, version 6.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Final, TypedDict, Unpack

from proctor.evals.agents.blocking import run_blocking
from proctor.evals.agents.options import refuse_unknown_options, show_options
from proctor.evals.agents.test_agent import EvalAgent
from proctor.evals.figures import Figures
from proctor.evals.grading.expectations import Expectations, Predicate
from proctor.evals.grading.grade import Grading
from proctor.evals.grading.results import EvalRunResult, IterationResult
from proctor.evals.grading.score_rows import EvaluationConfig, ScoreResult
from proctor.evals.grading.scorer_context import Scenario
from proctor.evals.grading.scorers import Scorer, ScorerLimits
from proctor.evals.iteration import TestFunction, run_iteration
from proctor.evals.metrics import Counts, sum_up_run
from proctor.formats.native.drafting import make_slug
from proctor.model.json_values import is_finite
from proctor.model.show import show
from proctor.validators import CallLike

OnProgress = Callable[[int, int], object | Awaitable[object]]
OnFailure = Callable[[str], object | Awaitable[object]]
NO_FAILURES: Final = "No failed iterations."
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class EvalTestOptions(TypedDict, total=False):
    """What else may be said about a test."""

    id: str | None
    """By which runs of the test are joined; left out, made of its name."""
    match_options: Mapping[str, object] | None
    """How expected calls are compared; left out, as the suite says."""
    expected_output: str | None
    """What a good answer looks like, for scorers that ask a judge."""


class RunWatchers(TypedDict, total=False):
    """Who is told how a run of a test goes."""

    on_progress: OnProgress | None
    """Called with (completed, total) after every iteration."""
    on_failure: OnFailure | None
    """Called with a report, once, when all is done and something failed."""


class EvalTest(Figures):
    """One test: a function of an agent that answers true or false, and what else is expected of every iteration."""

    __test__ = False

    @show_options(EvalTestOptions)
    def __init__(
        self,
        name: str,
        test: TestFunction,
        *,
        expected_tool_calls: Iterable[CallLike | str] = (),
        predicates: Iterable[Predicate] = (),
        is_negative_test: bool = False,
        scorers: Iterable[Scorer] = (),
        **options: Unpack[EvalTestOptions],
    ) -> None:
        refuse_unknown_options(EvalTest.__init__, options)
        if not callable(test):
            raise TypeError(f"test: expected a function of an agent, found {type(test).__name__}")
        self._name = name
        id, match_options = options.get("id"), options.get("match_options")
        self._id = make_slug(name) if id is None else id
        if not _ID.fullmatch(self._id):
            raise ValueError(f"id: expected 1 to 128 letters, digits, '_' and '-', found {show(self._id)}")
        self._test = test
        self._calls = tuple(expected_tool_calls)
        self._match_options = dict(match_options) if match_options is not None else None
        self._predicates = tuple(predicates)
        self._negative = is_negative_test
        self._expected_output = options.get("expected_output")
        self._scorers = tuple(scorers)
        self._grading = self._make_grading()
        self._result: EvalRunResult | None = None

    def __repr__(self) -> str:
        return f"EvalTest(name={self._name!r}, id={self._id!r})"

    def _make_grading(self) -> Grading:
        expectations = Expectations(self._calls, self._match_options or {}, self._predicates, negative=self._negative)
        scenario = Scenario(title=self._name, key=self._id, is_negative_test=self._negative)
        return Grading(expectations, self._scorers, scenario, self._expected_output)

    def inherit(self, match_options: Mapping[str, object] | None, scorers: Iterable[Scorer]) -> None:
        """Take the options of a suite, where the test has none of its own, and its scorers, before its own.

        Raises `ValueError` where two scorers have one id, and what options raise that cannot be used.
        """
        before = self._match_options, self._scorers
        if self._match_options is None and match_options is not None:
            self._match_options = dict(match_options)
        self._scorers = (*(each for each in scorers if each not in self._scorers), *self._scorers)
        try:
            self._grading = self._make_grading()
        except Exception:
            # The test stays as it was, so that it can still be used without the suite.
            self._match_options, self._scorers = before
            raise

    @show_options(RunWatchers)
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
        **watchers: Unpack[RunWatchers],
    ) -> EvalRunResult:
        """Repeat the test. Raises `ValueError` for options that cannot be used; what goes wrong in an iteration is its result.

        `on_progress(completed, total)` is called after every iteration; `on_failure(report)` once, when all is done and something failed.
        """
        refuse_unknown_options(EvalTest.run, watchers)
        on_progress, on_failure = watchers.get("on_progress"), watchers.get("on_failure")
        _check_options(concurrency, retries, timeout_ms)
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
            # A task group wraps whatever is raised in it; callers look for the exception itself.
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

    # --- figures --------------------------------------------------------------------------------------------------------------

    @property
    def expects_calls(self) -> bool:
        """Whether calls are expected by name."""
        return bool(self._calls)

    def add_counts(self, counts: Counts, *, expecting: bool = False) -> Counts:
        """Add the iterations of the last run to some counts; `expecting`: only if calls are expected by name."""
        return counts if expecting and not self._calls else counts.add(self._get_run().iteration_details, len(self._calls))

    def _get_totals(self) -> EvalRunResult:
        return self._get_run()

    def _describe_without_calls(self) -> str:
        return f"test {self._name!r} has none"

    def _get_run(self) -> EvalRunResult:
        if self._result is None:
            raise RuntimeError(f"test {self._name!r} has not been run yet")
        return self._result

    # --- what came out --------------------------------------------------------------------------------------------------------

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
        """Return what the test was made of."""
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
        """Return what its iterations are graded by, and the hash of that."""
        return self._grading.config

    def get_all_iterations(self) -> list[IterationResult]:
        """Return every iteration of the last run."""
        return list(self._get_run().iteration_details)

    def get_failed_iterations(self) -> list[IterationResult]:
        """Return the iterations that failed."""
        return [each for each in self._get_run().iteration_details if not each.passed]

    def get_successful_iterations(self) -> list[IterationResult]:
        """Return the iterations that passed."""
        return [each for each in self._get_run().iteration_details if each.passed]

    def get_failure_report(self) -> str:
        """Return every failed iteration in words: the error, what did not fit, and the messages of every prompt."""
        details = self._get_run().iteration_details
        failed = [(number, each) for number, each in enumerate(details, 1) if not each.passed]
        if not failed:
            return NO_FAILURES
        own = {each.definition.scorer_id for each in self._scorers}
        return "\n\n".join(
            _report_iteration(f"{self._name}: iteration {number} of {len(details)} failed", each, own) for number, each in failed
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
            f"arguments of {each.tool_name}: expected {show(each.expected_args)}, found {show(each.actual_args)}"
            for each in match.argument_mismatches
        ]
    lines += [f"predicate {each.predicate.get('type')}: {each.reason}" for each in iteration.predicate_results if not each.passed]
    lines += [
        _describe_row(row) for row in iteration.scores if row.scorer_id in scorers and not row.passed and row.status != "not_applicable"
    ]
    for number, prompt in enumerate(iteration.prompts, 1):
        told = f" (error: {prompt.get_error()})" if prompt.has_error() else ""
        lines += [f"--- prompt {number}: {show(prompt.prompt, 200)}{told}", prompt.format_trace()]
    return "\n".join(lines)


def _describe_row(row: ScoreResult) -> str:
    if row.status == "scored":
        return f"scorer {row.scorer_id}: {row.value:g} is below {row.pass_threshold:g}: {row.rationale or 'no reason given'}"
    return f"scorer {row.scorer_id}: {row.status}: {row.error or row.rationale or 'no reason given'}"


def _check_options(concurrency: float, retries: int, timeout_ms: float) -> None:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency: expected a whole number of at least 1, found {show(concurrency)}")
    if retries < 0:
        raise ValueError(f"retries: expected at least 0, found {retries}")
    if not (is_finite(timeout_ms) and timeout_ms > 0):
        raise ValueError(f"timeout_ms: expected more than 0, found {show(timeout_ms)}")


async def _await_answer(answer: object) -> None:
    if isawaitable(answer):
        await answer
