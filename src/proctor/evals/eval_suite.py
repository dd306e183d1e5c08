"""Several tests of one agent, run one after the other, and their combined figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proctor.evals.agents.calling import run_blocking
from proctor.evals.agents.test_agent import EvalAgent
from proctor.evals.eval_test import EvalTest, Figures, OnProgress
from proctor.evals.grading.results import (
    EvalRunResult,
    EvalSuiteResult,
    IterationResult,
    SuiteAggregate,
    SuiteTokens,
    accuracy,
    summarise_latency,
)
from proctor.evals.grading.score_rows import suite_config_hash


class EvalSuite(Figures):
    """Tests by name. A test without match options uses those of the suite."""

    __test__ = False

    def __init__(
        self,
        name: str = "EvalSuite",
        *,
        match_options: Mapping[str, object] | None = None,
        tests: Iterable[EvalTest] = (),
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
        """Add a test. Raises `ValueError` for a duplicate name or id."""
        if test.get_name() in self._tests:
            raise ValueError(f"suite {self._name!r} has a test named {test.get_name()!r} already")
        if any(test.get_id() == other.get_id() for other in self._tests.values()):
            raise ValueError(f"suite {self._name!r} has a test with the id {test.get_id()!r} already")
        if self._match_options is not None:
            test.inherit_match_options(self._match_options)
        self._tests[test.get_name()] = test
        return self

    def get(self, name: str) -> EvalTest | None:
        """Return the test of that name."""
        return self._tests.get(name)

    def get_all(self) -> list[EvalTest]:
        """Return all tests, in the order they were added."""
        return list(self._tests.values())

    def size(self) -> int:
        """Return how many tests there are."""
        return len(self._tests)

    def get_name(self) -> str:
        """Return the name of the suite."""
        return self._name

    def get_results(self) -> EvalSuiteResult | None:
        """Return the last run; None before the first."""
        return self._result

    async def run(self, agent: EvalAgent, *, iterations: int, on_progress: OnProgress | None = None, **options: Any) -> EvalSuiteResult:
        """Run every test with the same options. `on_progress` counts over all tests; `on_failure` is called once per test that failed."""
        per_test, finished = max(0, iterations), 0
        total = per_test * len(self._tests)

        def counted(completed: int, _of_this_test: int) -> object:
            # `finished` is read at every call: it grows with each test that has ended.
            return on_progress(finished + completed, total) if on_progress is not None else None

        results: dict[str, EvalRunResult] = {}
        for name, test in self._tests.items():
            results[name] = await test.run(agent, iterations=iterations, on_progress=counted, **options)
            finished += per_test
        hashes = [result.evaluation_config.hash for result in results.values() if result.evaluation_config is not None]
        aggregate = _aggregate(results.values())
        self._result = EvalSuiteResult(tests=results, aggregate=aggregate, evaluation_config_hash=suite_config_hash(hashes))
        return self._result

    def run_sync(self, agent: EvalAgent, **options: Any) -> EvalSuiteResult:
        """`run` for code that is not asynchronous."""
        return run_blocking(self.run(agent, **options))

    def list_runs(self) -> list[tuple[Sequence[IterationResult], int]]:
        """Return the iterations of every test in its last run, and the number of calls it expects."""
        return [run for test in self._tests.values() for run in test.list_runs()]

    def _get_totals(self) -> SuiteAggregate:
        if self._result is None:
            raise RuntimeError(f"suite {self._name!r} has not been run yet")
        return self._result.aggregate


def _aggregate(results: Iterable[EvalRunResult]) -> SuiteAggregate:
    listed = list(results)
    iterations, successes = sum(test.iterations for test in listed), sum(test.successes for test in listed)
    spent = tuple(test.token_usage.total for test in listed)
    return SuiteAggregate(
        iterations=iterations,
        successes=successes,
        failures=iterations - successes,
        accuracy=accuracy(successes, iterations),
        token_usage=SuiteTokens(total=sum(spent), per_test=spent),
        latency=summarise_latency(part for test in listed for part in test.latency.per_iteration),
    )
