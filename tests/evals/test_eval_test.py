"""Evals: repeats, retries, timeouts and decisions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from proctor.evals.agents.client_manager import MCPClientManager
from proctor.evals.agents.prompt_result import LatencyBreakdown, LatencyStats, PromptResult
from proctor.evals.agents.test_agent import EvalAgent, MockAgent, TestAgent
from proctor.evals.eval_suite import EvalSuite
from proctor.evals.eval_test import NO_FAILURES, EvalTest
from proctor.evals.grading.results import EvalRunResult, Tokens
from proctor.llm.ports import ChatReply, ChatRequest, ModelFault
from proctor.llm.scripted import ScriptedModel
from tests.evals.agents import answering, calling, result, saying, scripted
from tests.tables import rows
from tests.targets.mcp_twins import run
from tests.targets.shop_server import shop

AGENT = saying(result("a", usage={"input_tokens": 8, "output_tokens": 2}, latency={"e2e_ms": 50, "llm_ms": 40, "mcp_ms": 5}))


async def asks(agent: EvalAgent) -> bool:
    return not (await agent.prompt("go")).has_error()


def evaluate(test: EvalTest, agent: EvalAgent = AGENT, **options: Any) -> EvalRunResult:
    return run(test.run(agent, **{"iterations": 1, **options}))


# --- results ----------------------------------------------------------------------------------------------------------------


def test_a_run_sums_up_its_iterations() -> None:
    async def twice(agent: MockAgent) -> bool:
        await agent.prompt("one")
        await agent.prompt("two")
        return True

    done = evaluate(EvalTest("twice", twice), iterations=3)
    assert (done.iterations, done.successes, done.failures, done.results) == (3, 3, 0, (True, True, True))
    first = done.iteration_details[0]
    assert first.passed and first.error is None and first.retry_count == 0 and len(first.prompts) == 2
    assert first.latencies == (LatencyBreakdown(e2e_ms=50, llm_ms=40, mcp_ms=5),) * 2
    assert first.tokens == Tokens(total=20, input=16, output=4)
    assert (done.token_usage.total, done.token_usage.input, done.token_usage.output) == (60, 48, 12)
    assert done.token_usage.per_iteration == (first.tokens,) * 3
    assert done.latency.e2e == LatencyStats(min=50, max=50, mean=50, p50=50, p95=50, count=6)
    assert len(done.latency.per_iteration) == 6 and done.latency.mcp.mean == 5
    assert first.tool_match is None and first.predicate_results == ()


def test_an_iteration_without_prompts_has_one_latency_of_zeros() -> None:
    done = evaluate(EvalTest("silent", lambda agent: True))
    assert done.iteration_details[0].latencies == (LatencyBreakdown(),) and done.latency.e2e.count == 1


@pytest.mark.parametrize("iterations", [0, -3])
def test_no_iterations_give_an_empty_run(iterations: int) -> None:
    seen: list[Any] = []
    done = evaluate(EvalTest("none", asks), iterations=iterations, on_progress=lambda *counts: seen.append(counts), on_failure=seen.append)
    assert done.iterations == 0 and done.results == () and done.latency.e2e == LatencyStats() and not seen


def test_results_are_in_start_order_and_progress_in_order_of_completion() -> None:
    waits = iter([0.06, 0.03, 0.0])
    ended: list[float] = []
    progress: list[tuple[int, int]] = []

    async def waiting(agent: MockAgent) -> bool:
        wait = next(waits)
        await asyncio.sleep(wait)
        ended.append(wait)
        return wait != 0.03

    test = EvalTest("order", waiting)
    done = evaluate(test, iterations=3, on_progress=lambda completed, total: progress.append((completed, total)))
    assert done.results == (True, False, True) and ended == [0.0, 0.03, 0.06]
    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert len(test.get_all_iterations()) == 3 and len(test.get_failed_iterations()) == 1 and len(test.get_successful_iterations()) == 2


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (50, 8)])
def test_concurrency_is_bounded(concurrency: int, most: int) -> None:
    now = peak = 0

    async def counting(agent: MockAgent) -> bool:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.01)
        now -= 1
        return True

    evaluate(EvalTest("count", counting), iterations=8, concurrency=concurrency)
    assert peak == most


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": float("inf")},
        {"concurrency": True},
        {"retries": -1},
        {"timeout_ms": 0},
        {"timeout_ms": float("nan")},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        evaluate(EvalTest("t", asks), **options)


def test_iterations_do_not_see_each_other() -> None:
    async def first(agent: MockAgent) -> bool:
        fresh = agent.get_prompt_history() == []
        await agent.prompt("x")
        return fresh

    assert evaluate(EvalTest("fresh", first), iterations=4).successes == 4
    assert AGENT.get_prompt_history() == []


# --- the answer of the function -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "passed"), [(True, True), (1, True), ("yes", True), (False, False), (0, False), ("", False)])
def test_truth_decides(answer: Any, passed: bool) -> None:
    async def passes(agent: MockAgent) -> Any:
        return answer

    found = evaluate(EvalTest("truth", passes)).iteration_details[0]
    assert found.passed is passed and found.error is None


def test_a_function_without_a_return_value_fails_and_is_reported() -> None:
    found = evaluate(EvalTest("forgot", lambda agent: None), retries=2).iteration_details[0]
    assert not found.passed and "returned None" in (found.error or "") and found.retry_count == 0


def test_a_function_may_block_or_return_a_coroutine() -> None:
    threads: set[int] = set()

    def blocking(agent: MockAgent) -> bool:
        threads.add(threading.get_ident())
        return agent.prompt_sync("x").has_tool_call("a")

    assert evaluate(EvalTest("blocking", blocking), iterations=2).successes == 2 and threading.get_ident() not in threads
    assert evaluate(EvalTest("coroutine", lambda agent: asks(agent))).successes == 1


def test_an_exception_fails_the_iteration_with_its_message() -> None:
    async def broken(agent: MockAgent) -> bool:
        await agent.prompt("x")
        raise AssertionError("not what I wanted")

    def silent(agent: MockAgent) -> bool:
        raise KeyError

    found = evaluate(EvalTest("broken", broken, expected_tool_calls=["a"])).iteration_details[0]
    assert not found.passed and found.error == "not what I wanted" and len(found.prompts) == 1
    assert found.tool_match is not None and found.tool_match.passed, "the calls of a broken attempt are compared all the same"
    assert evaluate(EvalTest("silent", silent)).iteration_details[0].error == "KeyError"
    assert "StopIteration" in (evaluate(EvalTest("stops", lambda agent: next(iter(())))).iteration_details[0].error or "")


def test_a_pytest_outcome_is_an_error_of_the_iteration() -> None:
    found = evaluate(EvalTest("pytest", lambda agent: pytest.fail("no good"))).iteration_details[0]
    assert not found.passed and found.error == "no good"


# --- retries ----------------------------------------------------------------------------------------------------------------


def test_an_exception_is_retried_and_a_plain_no_is_final() -> None:
    tries: list[int] = []

    async def late(agent: MockAgent) -> bool:
        await agent.prompt("x")
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return True

    started = time.monotonic()
    found = evaluate(EvalTest("late", late), retries=2).iteration_details[0]
    assert found.passed and found.retry_count == 2 and found.error is None and len(found.prompts) == 1
    assert time.monotonic() - started >= 0.3, "100 ms, then 200 ms"
    no = EvalTest("no", lambda agent: tries.append(1))
    tries.clear()
    assert evaluate(no, retries=3).iteration_details[0].retry_count == 0 and len(tries) == 1


def test_a_provider_error_is_retried() -> None:
    answers = iter([PromptResult.error("overloaded"), result("a")])
    found = evaluate(EvalTest("flaky provider", asks), TestAgent.mock(lambda message: next(answers)), retries=1).iteration_details[0]
    assert found.passed and found.retry_count == 1 and not found.prompts[0].has_error()


def test_a_provider_error_of_a_real_agent_is_retried_until_no_try_is_left() -> None:
    model = scripted(ModelFault("rate_limited", "slow"), ModelFault("overloaded", "busy"), answering("Hello."))
    agent = TestAgent(tools=[], model=model)
    found = evaluate(EvalTest("hello", asks), agent, retries=1).iteration_details[0]
    assert not found.passed and found.retry_count == 1 and found.prompts[0].get_error() == "busy"
    assert evaluate(EvalTest("hello", asks), agent, retries=1).results == (True,)


def test_a_test_that_expects_the_error_is_not_retried() -> None:
    async def wants_error(agent: MockAgent) -> bool:
        return (await agent.prompt("x")).has_error()

    found = evaluate(EvalTest("wants", wants_error), saying(PromptResult.error("down")), retries=3).iteration_details[0]
    assert found.passed and found.retry_count == 0


# --- time -------------------------------------------------------------------------------------------------------------------


def test_a_function_that_takes_too_long_is_ended_and_fails() -> None:
    ended: list[str] = []

    async def slow(agent: MockAgent) -> bool:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")
        return True

    found = evaluate(EvalTest("slow", slow), timeout_ms=50).iteration_details[0]
    assert not found.passed and found.error == "Operation timed out after 50ms" and ended == ["cancelled"]


def test_a_late_true_does_not_count() -> None:
    async def late(agent: MockAgent) -> bool:
        await asyncio.sleep(0.07)
        return True

    found = evaluate(EvalTest("late", late), timeout_ms=50).iteration_details[0]
    assert not found.passed and found.error == "Operation timed out after 50ms"


def test_a_function_that_ignores_cancellation_is_abandoned() -> None:
    release = asyncio.Event()

    async def stubborn(agent: MockAgent) -> bool:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise RuntimeError("nobody listens")

    async def main() -> EvalRunResult:
        done = await EvalTest("stubborn", stubborn).run(AGENT, iterations=2, timeout_ms=30)
        release.set()
        await asyncio.sleep(0.01)
        return done

    started = time.monotonic()
    done = run(main())
    assert done.failures == 2 and time.monotonic() - started < 20


def test_an_endless_blocking_function_is_abandoned() -> None:
    release = threading.Event()
    try:
        found = evaluate(EvalTest("blocks", lambda agent: release.wait(30)), timeout_ms=30).iteration_details[0]
        assert found.error == "Operation timed out after 30ms"
    finally:
        release.set()


def test_prompts_end_at_the_deadline_and_keep_their_evidence() -> None:
    async def main() -> EvalRunResult:
        async with MCPClientManager({"shop": shop()}) as manager:
            model = scripted(calling(("search", {"query": "tea"}), ("hang", {})))
            agent = TestAgent(mcp_client_manager=manager, model=model)
            return await EvalTest("hangs", asks, expected_tool_calls=["search"]).run(agent, iterations=1, timeout_ms=500)

    found = run(main()).iteration_details[0]
    assert not found.passed and found.error == "Operation timed out after 500ms"
    assert found.prompts[0].tools_called() == ["search", "hang"]
    assert found.prompts[0].get_error() == "the iteration ran out of time"
    assert found.tool_match is not None and found.tool_match.passed


def test_a_timeout_is_retried() -> None:
    tries: list[int] = []

    async def slow_once(agent: MockAgent) -> bool:
        tries.append(1)
        await asyncio.sleep(30 if len(tries) == 1 else 0)
        return True

    assert evaluate(EvalTest("slow once", slow_once), timeout_ms=40, retries=1).iteration_details[0].retry_count == 1


def test_a_cancelled_run_leaves_nothing_running() -> None:
    async def main() -> None:
        test = EvalTest("endless", lambda agent: asyncio.sleep(60))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await test.run(AGENT, iterations=3)
        assert test.get_results() is None

    run(main())


# --- expected calls and predicates ----------------------------------------------------------------------------------------


def test_calls_of_all_prompts_are_matched_together() -> None:
    async def both(agent: MockAgent) -> bool:
        await agent.prompt("a")
        await agent.prompt("b")
        return True

    def answer(message: str) -> PromptResult:
        return PromptResult(prompt=message, tool_calls=[{"name": message, "arguments": {"n": 1}}])

    agent = TestAgent.mock(answer)
    wanted = [{"toolName": "b", "arguments": {"n": "number"}}, {"toolName": "a"}]
    assert evaluate(EvalTest("any order", both, expected_tool_calls=wanted), agent).successes == 1
    strict = EvalTest("strict", both, expected_tool_calls=wanted, match_options={"tool_call_order": "strict"})
    assert evaluate(strict, agent).successes == 0
    none_extra = EvalTest("no extra", both, expected_tool_calls=["a"], match_options={"maxExtraToolCalls": 0})
    found = evaluate(none_extra, agent).iteration_details[0]
    assert not found.passed and found.tool_match is not None and [call.name for call in found.tool_match.extra] == ["b"]


def test_a_negative_test_passes_without_calls() -> None:
    assert evaluate(EvalTest("quiet", asks, is_negative_test=True), saying(result())).successes == 1
    assert evaluate(EvalTest("quiet", asks, is_negative_test=True), saying(result("a"))).successes == 0
    with pytest.raises(ValueError, match="not both"):
        EvalTest("both", asks, is_negative_test=True, expected_tool_calls=["a"])


@pytest.mark.parametrize(
    ("predicate", "passed"),
    [
        ({"type": "toolCalledAtLeastOnce", "toolName": "a"}, True),
        ({"type": "tool_called_at_least_once", "tool_name": "b"}, False),
        ({"type": "toolCalledWith", "toolName": "a", "args": {"args": {}, "argument_matching": "ignore"}, "min_count": 2}, False),
        ({"type": "toolNeverCalled", "toolName": "a"}, False),
        ({"type": "firstToolWas", "toolName": "a"}, True),
        ({"type": "responseContains", "needle": "DONE"}, True),
        ({"type": "responseMatches", "pattern": "^Done\\.$"}, True),
        ({"type": "noToolErrors"}, True),
        ({"type": "finalAssistantMessageNonEmpty"}, True),
        ({"type": "tokenBudgetUnder", "tokens": 10}, False),
        ({"type": "tokenBudgetUnder", "tokens": 11}, True),
        ({"type": "turnCountUnder", "turns": 2}, True),
        ({"type": "turnCountUnder", "turns": 1}, False),
    ],
)
def test_a_predicate_decides_with(predicate: dict[str, Any], passed: bool) -> None:
    found = evaluate(EvalTest("predicates", asks, predicates=[predicate])).iteration_details[0]
    assert found.passed is passed and found.predicate_results[0].passed is passed and found.predicate_results[0].reason


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ({"type": "widgetRendered"}, "draws no widgets"),
        ({"type": "responseContain", "needle": "x"}, "responseContains"),
        ({"type": "responseContains"}, "needle"),
        ({"type": "tokenBudgetUnder", "tokens": 0}, "tokens"),
        ({}, "needs 'type'"),
    ],
)
def test_a_predicate_that_cannot_be_used_is_refused_at_once(predicate: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvalTest("predicates", asks, predicates=[predicate])


def test_match_options_that_cannot_be_used_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="order"):
        EvalTest("t", asks, expected_tool_calls=["a"], match_options={"tool_call_order": "reversed"})
    with pytest.raises(TypeError, match="nearest: 'max_extra"):
        EvalTest("t", asks, expected_tool_calls=["a"], match_options={"max_extr": 1})


# --- names and reports ----------------------------------------------------------------------------------------------------


def test_an_id_is_given_or_derived_from_the_name() -> None:
    assert EvalTest("Finds the Order!", asks).get_id() == "finds-the-order"
    assert EvalTest("x", asks, id="c_1").get_id() == "c_1"
    for bad in ("", "a b", "x" * 129, "ä"):
        with pytest.raises(ValueError, match="id"):
            EvalTest("x", asks, id=bad)
    with pytest.raises(TypeError):
        EvalTest("x", True)  # type: ignore[arg-type]


def test_the_configuration_can_be_read() -> None:
    test = EvalTest("x", asks, expected_tool_calls=["a"], expected_output="text")
    config = test.get_config()
    assert (config["name"], config["id"], config["expected_tool_calls"], config["expected_output"]) == ("x", "x", ("a",), "text")
    assert test.get_name() == "x" and "x" in repr(test)


def test_the_failure_report_lists_error_calls_predicates_and_messages() -> None:
    async def broken(agent: MockAgent) -> bool:
        await agent.prompt("go")
        raise ValueError("wrong order")

    reports: list[str] = []
    test = EvalTest(
        "report",
        broken,
        expected_tool_calls=[{"name": "b"}, {"name": "a", "arguments": {"x": 1}}],
        predicates=[{"type": "toolNeverCalled", "toolName": "a"}],
    )
    evaluate(test, iterations=2, on_failure=reports.append)
    assert reports == [test.get_failure_report()], "once, for all of them"
    for part in ("iteration 2 of 2 failed", "error: wrong order", "missing call: b", "arguments of a", "toolNeverCalled", '"role": "user"'):
        assert part in reports[0], part
    passing = EvalTest("fine", asks)
    evaluate(passing, on_failure=reports.append)
    assert passing.get_failure_report() == NO_FAILURES and len(reports) == 1


def test_callbacks_may_be_asynchronous_and_their_errors_are_raised() -> None:
    seen: list[int] = []

    async def progress(completed: int, total: int) -> None:
        seen.append(completed)

    def broken(completed: int, total: int) -> None:
        raise LookupError("callback")

    evaluate(EvalTest("t", asks), iterations=2, on_progress=progress)
    assert seen == [1, 2]
    with pytest.raises(LookupError, match="callback"):
        evaluate(EvalTest("t", asks), iterations=2, on_progress=broken)


# --- suites -----------------------------------------------------------------------------------------------------------------


def test_a_suite_runs_its_tests_one_after_the_other() -> None:
    order: list[str] = []
    progress: list[tuple[int, int]] = []

    def named(name: str) -> EvalTest:
        async def test(agent: MockAgent) -> bool:
            order.append(name)
            await asyncio.sleep(0)
            return name != "b"

        return EvalTest(name, test)

    suite = EvalSuite("three").add(named("a")).add(named("b")).add(named("c"))
    assert (suite.size(), suite.get_name()) == (3, "three") and suite.get("d") is None
    failures: list[str] = []
    done = run(suite.run(AGENT, iterations=2, on_progress=lambda *counts: progress.append(counts), on_failure=failures.append))
    assert order == ["a", "a", "b", "b", "c", "c"] and progress == [(number, 6) for number in range(1, 7)]
    assert len(failures) == 1 and done.tests["b"].failures == 2 and suite.get_results() is done
    assert [test.get_name() for test in suite.get_all()] == ["a", "b", "c"] and "three" in repr(suite)


def test_a_suite_refuses_a_name_or_id_twice() -> None:
    suite = EvalSuite(tests=[EvalTest("a", asks)])
    with pytest.raises(ValueError, match="named 'a'"):
        suite.add(EvalTest("a", asks, id="other"))
    with pytest.raises(ValueError, match="id 'a'"):
        suite.add(EvalTest("A", asks))


def test_match_options_of_a_suite_are_for_tests_that_have_none() -> None:
    own = EvalTest("own", asks, expected_tool_calls=[], match_options={"argument_matching": "exact"})
    without = EvalTest("without", asks, expected_tool_calls=["b"])
    EvalSuite(match_options={"max_extra_tool_calls": 0}, tests=[own, without])
    assert own.get_config()["match_options"] == {"argument_matching": "exact"}
    assert without.get_config()["match_options"] == {"max_extra_tool_calls": 0}
    assert evaluate(without, saying(result("b", "a"))).successes == 0


def test_blocking_runs_of_tests_and_suites() -> None:
    test = EvalTest("t", lambda agent: agent.prompt_sync("x").has_tool_call("a"))
    assert test.run_sync(AGENT, iterations=2).successes == 2
    assert EvalSuite(tests=[test]).run_sync(AGENT, iterations=1).aggregate.accuracy == 1.0


def test_pytest_does_not_take_them_for_tests() -> None:
    for kind in (TestAgent, EvalTest, EvalSuite, MockAgent):
        assert kind.__test__ is False


async def never(request: ChatRequest) -> ChatReply:
    await asyncio.Event().wait()
    raise AssertionError


SILENT = TestAgent(model=ScriptedModel(never), tools=[])


def test_an_iteration_with_a_timed_out_prompt_fails_whatever_its_function_returns() -> None:
    async def does_not_care(agent: TestAgent) -> bool:
        await agent.prompt("x")
        return True

    found = evaluate(EvalTest("careless", does_not_care), SILENT, timeout_ms=50).iteration_details[0]
    assert not found.passed and found.error == "Operation timed out after 50ms"
    assert found.prompts[0].get_error() == "the iteration ran out of time"


def test_a_limit_of_the_prompt_is_left_to_the_function() -> None:
    async def gives_up(agent: TestAgent) -> bool:
        return (await agent.prompt("x", timeout_ms=20)).get_error() == "Operation timed out after 20ms"

    assert evaluate(EvalTest("gives up", gives_up), SILENT).successes == 1


class Doing:
    """The functions that the table speaks of; each remembers its first try."""

    def __init__(self) -> None:
        self.tries = 0

    def agent(self) -> MockAgent:
        return TestAgent.mock(lambda message: PromptResult.error("overloaded") if self.tries == 1 else result("a"))

    async def answers_late(self, agent: MockAgent) -> bool:
        await asyncio.sleep(0.07)
        return True

    async def provider_fails_once(self, agent: MockAgent) -> bool:
        self.tries += 1
        return not (await agent.prompt("x")).has_error()

    async def raises_once(self, agent: MockAgent) -> bool:
        self.tries += 1
        if self.tries == 1:
            raise ConnectionError
        return True

    async def refuses_once(self, agent: MockAgent) -> bool:
        self.tries += 1
        return self.tries > 1

    def yields(self, agent: MockAgent) -> Iterator[bool]:
        yield 1 / 0 > 0

    async def yields_later(self, agent: MockAgent) -> AsyncIterator[bool]:
        yield 1 / 0 > 0

    async def passes_on_error(self, agent: MockAgent) -> bool:
        self.tries += 1
        return (await agent.prompt("x")).has_error()

    async def passes_without_answer(self, agent: MockAgent) -> bool:
        return True


@rows("conformance/mcpjam/eval_runs.yaml")
def test_an_iteration_ends_as_listed(row: dict[str, Any]) -> None:
    doing = Doing()
    given = dict(row["given"])
    does = getattr(doing, given.pop("does"))
    expected = {name: given.pop(name) for name in ("is_negative_test", "predicates") if name in given}
    done = evaluate(EvalTest("row", does, **expected), doing.agent(), **given)
    assert ("passed" if done.results[0] else "failed") == row["expect"]


# --- functions that would end the program -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
def test_a_function_that_would_end_the_program_ends_its_iteration_and_the_next_one_runs(error: BaseException, kind: str) -> None:
    def plain(agent: MockAgent) -> bool:
        raise error

    async def asynchronous(agent: MockAgent) -> bool:
        raise error

    test = EvalTest("ends", plain if kind == "plain" else asynchronous)
    for done in (test.run_sync(AGENT, iterations=2), evaluate(test, iterations=2)):
        assert (done.successes, done.failures) == (0, 2)
        assert all(each.error is not None and type(error).__name__ in each.error for each in done.iteration_details)
    assert EvalTest("next", lambda agent: True).run_sync(AGENT, iterations=1).successes == 1


def test_a_task_of_a_function_that_calls_exit_does_not_end_the_loop_that_all_blocking_calls_share() -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    async def starts_one(agent: MockAgent) -> bool:
        (ended,), _ = await asyncio.wait({asyncio.ensure_future(leaves())})
        # Looked at, or the garbage collector reports it in the middle of something else.
        return isinstance(ended.exception(), SystemExit)

    assert EvalTest("starts", starts_one).run_sync(AGENT, iterations=1).successes == 1
    assert EvalTest("next", lambda agent: True).run_sync(AGENT, iterations=1).successes == 1
