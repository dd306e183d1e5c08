"""A test of an agent that is repeated, because agents do not answer twice alike.

Options and figures are those of MCPJam's `EvalTest`, version 6.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Final

from proctor.evals.blocking import run_blocking
from proctor.evals.expectations import Expectations, Predicate
from proctor.evals.iteration import TestFunction, run_iteration
from proctor.evals.metrics import Counts, accuracy, mean_tokens, run_result
from proctor.evals.results import EvalRunResult, IterationResult
from proctor.evals.test_agent import EvalAgent
from proctor.formats.drafting import slug
from proctor.model.show import show
from proctor.validators import CallLike

OnProgress = Callable[[int, int], object | Awaitable[object]]
OnFailure = Callable[[str], object | Awaitable[object]]
NO_FAILURES: Final = "No failed iterations."
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class EvalTest:
    """One test: a function of an agent that answers true or false, and what else is expected of every iteration."""

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
    ) -> None:
        if not callable(test):
            raise TypeError(f"test: expected a function of an agent, found {type(test).__name__}")
        self._name = name
        self._id = slug(name) if id is None else id
        if not _ID.fullmatch(self._id):
            raise ValueError(f"id: expected 1 to 128 letters, digits, '_' and '-', found {show(self._id)}")
        self._test = test
        self._calls = tuple(expected_tool_calls)
        self._match_options = dict(match_options) if match_options is not None else None
        self._predicates = tuple(predicates)
        self._negative = is_negative_test
        self._expected_output = expected_output
        self._expectations = self._expect()
        self._result: EvalRunResult | None = None

    def __repr__(self) -> str:
        return f"EvalTest(name={self._name!r}, id={self._id!r})"

    def _expect(self) -> Expectations:
        return Expectations(self._calls, self._match_options or {}, self._predicates, negative=self._negative)

    def inherit_match_options(self, options: Mapping[str, object]) -> None:
        """Take the options of a suite, where the test has none of its own."""
        if self._match_options is None:
            self._match_options = dict(options)
            self._expectations = self._expect()

    async def run(
        self,
        agent: EvalAgent,
        *,
        iterations: int,
        concurrency: int = 5,
        retries: int = 0,
        timeout_ms: float = 30_000,
        on_progress: OnProgress | None = None,
        on_failure: OnFailure | None = None,
    ) -> EvalRunResult:
        """Repeat the test. Raises `ValueError` for options that cannot be used; what goes wrong in an iteration is its result.

        `on_progress(completed, total)` is called after every iteration; `on_failure(report)` once, when all is done and something failed.
        """
        _check(concurrency, retries, timeout_ms)
        gate = asyncio.Semaphore(concurrency)
        total, completed = max(0, iterations), 0

        async def one() -> IterationResult:
            nonlocal completed
            async with gate:
                result = await run_iteration(self._test, agent, self._expectations, timeout_ms=timeout_ms, retries=retries)
            completed += 1
            if on_progress is not None:
                await _tell(on_progress(completed, total))
            return result

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one()) for _ in range(total)]
        except BaseExceptionGroup as raised:
            raise raised.exceptions[0] from None
        self._result = run_result([task.result() for task in tasks])
        if on_failure is not None and self._result.failures:
            await _tell(on_failure(self.get_failure_report()))
        return self._result

    def run_sync(self, agent: EvalAgent, **options: Any) -> EvalRunResult:
        """`run` for code that is not asynchronous."""
        return run_blocking(self.run(agent, **options))

    # --- figures --------------------------------------------------------------------------------------------------------------

    def accuracy(self) -> float:
        """The share of iterations that passed."""
        result = self._ran()
        return accuracy(result.successes, result.iterations)

    def precision(self) -> float:
        """The share of calls that were expected. Raises `ValueError` without `expected_tool_calls`."""
        return self._counts_of_expected("precision").precision()

    def recall(self) -> float:
        """The share of expected calls that were made. Raises `ValueError` without `expected_tool_calls`."""
        return self._counts_of_expected("recall").recall()

    def true_positive_rate(self) -> float:
        """The same as `recall`."""
        return self._counts_of_expected("true_positive_rate").recall()

    def unexpected_tool_call_rate(self) -> float:
        """The share of iterations with a call that was not expected."""
        return self.add_counts(Counts()).unexpected_rate()

    def false_positive_rate(self) -> float:
        """The share of iterations with a call that was not expected; without expected calls, of those that failed."""
        result = self._ran()
        if self.expects_calls:
            return self.unexpected_tool_call_rate()
        return accuracy(result.failures, result.iterations)

    def average_token_use(self) -> float:
        """Tokens per iteration."""
        result = self._ran()
        return mean_tokens(result.token_usage.total, result.iterations)

    @property
    def expects_calls(self) -> bool:
        """Whether calls are expected by name."""
        return bool(self._calls)

    def add_counts(self, counts: Counts) -> Counts:
        """Add the iterations of the last run to some counts."""
        return counts.add(self._ran().iteration_details, len(self._calls))

    def _counts_of_expected(self, what: str) -> Counts:
        self._ran()
        if not self._calls:
            raise ValueError(f"{what} needs expected_tool_calls, and test {self._name!r} has none")
        return self.add_counts(Counts())

    def _ran(self) -> EvalRunResult:
        if self._result is None:
            raise RuntimeError(f"test {self._name!r} has not been run yet")
        return self._result

    # --- what came out --------------------------------------------------------------------------------------------------------

    def get_results(self) -> EvalRunResult | None:
        """The last run; nothing before the first."""
        return self._result

    def get_name(self) -> str:
        """What it is called."""
        return self._name

    def get_id(self) -> str:
        """By which runs of it are joined."""
        return self._id

    def get_config(self) -> dict[str, Any]:
        """What it was made of."""
        return {
            "id": self._id,
            "name": self._name,
            "test": self._test,
            "expected_tool_calls": self._calls,
            "match_options": dict(self._match_options or {}),
            "predicates": self._predicates,
            "is_negative_test": self._negative,
            "expected_output": self._expected_output,
        }

    def get_all_iterations(self) -> list[IterationResult]:
        """Every iteration of the last run."""
        return list(self._ran().iteration_details)

    def get_failed_iterations(self) -> list[IterationResult]:
        """Those that failed."""
        return [each for each in self._ran().iteration_details if not each.passed]

    def get_successful_iterations(self) -> list[IterationResult]:
        """Those that passed."""
        return [each for each in self._ran().iteration_details if each.passed]

    def get_failure_report(self) -> str:
        """Every failed iteration in words: the error, what did not fit, and the messages of every prompt."""
        details = self._ran().iteration_details
        failed = [(number, each) for number, each in enumerate(details, 1) if not each.passed]
        if not failed:
            return NO_FAILURES
        return "\n\n".join(_report(f"{self._name}: iteration {number} of {len(details)} failed", each) for number, each in failed)


def _report(header: str, iteration: IterationResult) -> str:
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
    for number, prompt in enumerate(iteration.prompts, 1):
        told = f" (error: {prompt.get_error()})" if prompt.has_error() else ""
        lines += [f"--- prompt {number}: {show(prompt.prompt, 200)}{told}", prompt.format_trace()]
    return "\n".join(lines)


def _check(concurrency: float, retries: int, timeout_ms: float) -> None:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError(f"concurrency: expected a whole number of at least 1, found {show(concurrency)}")
    if retries < 0:
        raise ValueError(f"retries: expected at least 0, found {retries}")
    if not (math.isfinite(timeout_ms) and timeout_ms > 0):
        raise ValueError(f"timeout_ms: expected more than 0, found {show(timeout_ms)}")


async def _tell(answer: object) -> None:
    if isawaitable(answer):
        await answer
