"""Several tests of one agent, run one after the other, and their figures together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proctor.evals.blocking import run_blocking
from proctor.evals.eval_test import EvalTest, OnProgress
from proctor.evals.metrics import Counts, accuracy, latency_summary, mean_tokens
from proctor.evals.results import EvalRunResult, EvalSuiteResult, SuiteAggregate, SuiteTokens
from proctor.evals.test_agent import EvalAgent


class EvalSuite:
    """Tests by name. A test without match options of its own takes those of the suite."""

    __test__ = False

    def __init__(
        self, name: str = "EvalSuite", *, match_options: Mapping[str, object] | None = None, tests: Iterable[EvalTest] = ()
    ) -> None:
        self._name = name
        self._match_options = match_options
        self._tests: dict[str, EvalTest] = {}
        self._result: EvalSuiteResult | None = None
        for test in tests:
            self.add(test)

    def __repr__(self) -> str:
        return f"EvalSuite(name={self._name!r}, tests={list(self._tests)!r})"

    def add(self, test: EvalTest) -> EvalSuite:
        """Add a test. Raises `ValueError` for a name or id that is taken."""
        if test.get_name() in self._tests:
            raise ValueError(f"suite {self._name!r} has a test named {test.get_name()!r} already")
        if any(test.get_id() == other.get_id() for other in self._tests.values()):
            raise ValueError(f"suite {self._name!r} has a test with the id {test.get_id()!r} already")
        if self._match_options is not None:
            test.inherit_match_options(self._match_options)
        self._tests[test.get_name()] = test
        return self

    def get(self, name: str) -> EvalTest | None:
        """The test of that name."""
        return self._tests.get(name)

    def get_all(self) -> list[EvalTest]:
        """All tests, in the order they were added."""
        return list(self._tests.values())

    def size(self) -> int:
        """How many there are."""
        return len(self._tests)

    def get_name(self) -> str:
        """What the suite is called."""
        return self._name

    def get_results(self) -> EvalSuiteResult | None:
        """The last run; nothing before the first."""
        return self._result

    async def run(self, agent: EvalAgent, *, iterations: int, on_progress: OnProgress | None = None, **options: Any) -> EvalSuiteResult:
        """Run every test with the same options. `on_progress` counts over all tests; `on_failure` is called once per test that failed."""
        each, before = max(0, iterations), 0
        total = each * len(self._tests)

        def counted(completed: int, _of_this_test: int) -> object:
            return on_progress(before + completed, total) if on_progress is not None else None

        found: dict[str, EvalRunResult] = {}
        for name, test in self._tests.items():
            found[name] = await test.run(agent, iterations=iterations, on_progress=counted, **options)
            before += each
        self._result = EvalSuiteResult(tests=found, aggregate=_together(found.values()))
        return self._result

    def run_sync(self, agent: EvalAgent, **options: Any) -> EvalSuiteResult:
        """`run` for code that is not asynchronous."""
        return run_blocking(self.run(agent, **options))

    # --- figures --------------------------------------------------------------------------------------------------------------

    def accuracy(self) -> float:
        """The share of all iterations that passed."""
        return self._ran().aggregate.accuracy

    def precision(self) -> float:
        """The share of calls that were expected. Raises `ValueError` when no test has `expected_tool_calls`."""
        return self._counts_of_expected("precision").precision()

    def recall(self) -> float:
        """The share of expected calls that were made. Raises `ValueError` when no test has `expected_tool_calls`."""
        return self._counts_of_expected("recall").recall()

    def true_positive_rate(self) -> float:
        """The same as `recall`."""
        return self._counts_of_expected("true_positive_rate").recall()

    def unexpected_tool_call_rate(self) -> float:
        """The share of iterations with a call that was not expected."""
        return self._counts(self._tests.values()).unexpected_rate()

    def false_positive_rate(self) -> float:
        """The share of iterations with a call that was not expected; without expected calls, of those that failed."""
        aggregate = self._ran().aggregate
        if any(test.expects_calls for test in self._tests.values()):
            return self.unexpected_tool_call_rate()
        return accuracy(aggregate.failures, aggregate.iterations)

    def average_token_use(self) -> float:
        """Tokens per iteration."""
        aggregate = self._ran().aggregate
        return mean_tokens(aggregate.token_usage.total, aggregate.iterations)

    def _counts_of_expected(self, what: str) -> Counts:
        self._ran()
        expecting = [test for test in self._tests.values() if test.expects_calls]
        if not expecting:
            raise ValueError(f"{what} needs expected_tool_calls, and no test of suite {self._name!r} has any")
        return self._counts(expecting)

    def _counts(self, tests: Iterable[EvalTest]) -> Counts:
        self._ran()
        counts = Counts()
        for test in tests:
            test.add_counts(counts)
        return counts

    def _ran(self) -> EvalSuiteResult:
        if self._result is None:
            raise RuntimeError(f"suite {self._name!r} has not been run yet")
        return self._result


def _together(results: Iterable[EvalRunResult]) -> SuiteAggregate:
    listed = list(results)
    iterations, successes = sum(each.iterations for each in listed), sum(each.successes for each in listed)
    spent = tuple(each.token_usage.total for each in listed)
    return SuiteAggregate(
        iterations=iterations,
        successes=successes,
        failures=iterations - successes,
        accuracy=accuracy(successes, iterations),
        token_usage=SuiteTokens(total=sum(spent), per_test=spent),
        latency=latency_summary(part for each in listed for part in each.latency.per_iteration),
    )
