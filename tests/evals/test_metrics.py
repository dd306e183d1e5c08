"""The figures of evals, mostly by their table."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proctor.evals.agents.prompt_result import LatencyStats
from proctor.evals.agents.test_agent import MockAgent, TestAgent
from proctor.evals.eval_suite import EvalSuite
from proctor.evals.eval_test import EvalTest
from proctor.evals.grading.results import calculate_latency_stats
from tests.evals.agents import result, saying
from tests.tables import rows


def test_statistics_of_nothing_and_of_one_value() -> None:
    assert calculate_latency_stats([]) == LatencyStats()
    assert calculate_latency_stats([7]) == LatencyStats(min=7, max=7, mean=7, p50=7, p95=7, count=1)


def test_latency_statistics() -> None:
    stats = calculate_latency_stats([100, 200, 300, 400])
    assert (stats.min, stats.max, stats.mean, stats.p50, stats.count) == (100, 400, 250, 250, 4)
    assert stats.p95 == pytest.approx(385)


class Played:
    """A test function whose iterations are written down; they start one after the other."""

    def __init__(self, iterations: list[dict[str, Any]]) -> None:
        self._left = list(iterations)

    def agent(self) -> MockAgent:
        return TestAgent.mock(lambda message: result(*message.split(), usage={"input_tokens": 10, "output_tokens": 5}))

    async def __call__(self, agent: MockAgent) -> bool:
        entry = self._left.pop(0)
        if entry.get("calls"):
            await agent.prompt(" ".join(entry["calls"]))
        if entry.get("raises"):
            raise RuntimeError(entry["raises"])
        return entry.get("answer", True)


def figures(owner: EvalTest | EvalSuite, names: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = getattr(owner, name)()
        except (ValueError, RuntimeError) as error:
            found[name] = type(error).__name__
    return found


@rows("conformance/mcpjam/eval_metrics.yaml")
def test_a_figure_is_as_listed(row: dict[str, Any]) -> None:
    played = Played(row["given"]["iterations"])
    test = EvalTest(
        "figures",
        played,
        expected_tool_calls=row["given"].get("expected", ()),
        is_negative_test=row["given"].get("negative", False),
    )
    asyncio.run(test.run(played.agent(), iterations=len(row["given"]["iterations"]), concurrency=1))
    for name, found in figures(test, row["expect"]).items():
        expected = row["expect"][name]
        assert found == (expected if isinstance(expected, str) else pytest.approx(expected)), name


FIGURES = (
    "accuracy", "precision", "recall", "true_positive_rate", "unexpected_tool_call_rate", "false_positive_rate", "average_token_use",
)  # fmt: skip


def test_no_figure_before_the_first_run() -> None:
    test = EvalTest("t", lambda agent: True, expected_tool_calls=["a"])
    assert set(figures(test, FIGURES).values()) == {"RuntimeError"}
    assert test.get_results() is None
    for ask in (test.get_all_iterations, test.get_failed_iterations, test.get_failure_report):
        with pytest.raises(RuntimeError, match="not been run"):
            ask()
    suite = EvalSuite(tests=[test])
    assert set(figures(suite, FIGURES).values()) == {"RuntimeError"} and suite.get_results() is None


def test_a_suite_pools_its_iterations() -> None:
    async def prompts(agent: MockAgent) -> bool:
        return not (await agent.prompt("go")).has_error()

    expecting = EvalTest("expects a and b", prompts, expected_tool_calls=["a", "b"])
    plain = EvalTest("expects nothing", prompts)
    silent = EvalTest("expects silence", prompts, is_negative_test=True)
    suite = EvalSuite("all", tests=[expecting, plain, silent])
    done = asyncio.run(suite.run(saying(result("a", usage={"input_tokens": 3, "output_tokens": 1}, latency=40.0)), iterations=2))
    assert list(done.tests) == ["expects a and b", "expects nothing", "expects silence"]
    aggregate = done.aggregate
    assert (aggregate.iterations, aggregate.successes, aggregate.failures) == (6, 2, 4)
    assert aggregate.accuracy == suite.accuracy() == pytest.approx(1 / 3)
    assert (aggregate.token_usage.total, aggregate.token_usage.per_test) == (24, (8, 8, 8))
    assert aggregate.latency.e2e.p95 == 40 and aggregate.latency.e2e.count == 6
    assert (suite.precision(), suite.recall(), suite.true_positive_rate()) == (1.0, 0.5, 0.5)
    assert suite.unexpected_tool_call_rate() == suite.false_positive_rate() == 0.5
    assert suite.average_token_use() == 4


def test_a_suite_without_expected_calls_has_no_precision() -> None:
    suite = EvalSuite("plain", tests=[EvalTest("t", lambda agent: False)])
    asyncio.run(suite.run(saying(result()), iterations=2))
    with pytest.raises(ValueError, match="precision needs expected_tool_calls"):
        suite.precision()
    assert suite.false_positive_rate() == 1.0 and suite.unexpected_tool_call_rate() == 0.0


def test_an_empty_suite_has_figures_of_zero() -> None:
    suite = EvalSuite()
    done = asyncio.run(suite.run(saying(result()), iterations=3))
    assert done.aggregate.iterations == 0 and suite.accuracy() == 0 and suite.average_token_use() == 0
