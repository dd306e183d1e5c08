"""Options of evals: every one is shown, and one that does not exist is refused with the nearest."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.test_agent import TestAgent
from proctor.evals.eval_test import EvalTest
from proctor.evals.grading.judge_scorer import judge_scorer
from proctor.evals.grading.scorers import scorer


def say_yes(agent: Any) -> bool:
    return True


AGENT = TestAgent(model="openai/some-model")

SHOWN: dict[str, tuple[Callable[..., object], set[str]]] = {
    "scorer": (
        scorer,
        {
            "id", "function", "threshold=1.0", "role='gating'", "deterministic=True", "config=None", "on_error=None", "on_skipped=None",
            "timeout_ms=None", "label=None", "model=None", "scorer_version='1'",
        },
    ),
    "judge_scorer": (
        judge_scorer,
        {
            "id", "model=None", "judge=None", "api_key=None", "base_url=None", "custom_providers=None", "rubric=None", "prompt=None",
            "threshold=0.7", "role='advisory'", "on_error=None", "on_skipped=None", "timeout_ms=60000", "label=None", "scorer_version='1'",
        },
    ),
    "PromptResult": (
        PromptResult,
        {
            "prompt=''", "text=''", "messages=None", "tool_calls=()", "usage=None", "latency=None", "error=None", "error_code=None",
            "provider=None", "model=None", "spans=()", "widget_snapshots=()", "stop_reason=None", "available_tools=None", "servers=()",
        },
    ),
    "TestAgent": (
        TestAgent,
        {
            "model", "tools=None", "api_key=None", "system_prompt='You are a helpful assistant.'", "temperature=None", "max_steps=10",
            "base_url=None", "custom_providers=None", "mcp_client_manager=None",
        },
    ),
    "EvalTest": (
        EvalTest,
        {
            "name", "test", "id=None", "expected_tool_calls=()", "match_options=None", "predicates=()", "is_negative_test=False",
            "expected_output=None", "scorers=()",
        },
    ),
    "EvalTest.run": (
        EvalTest.run,
        {
            "self", "agent", "iterations", "concurrency=5", "retries=0", "timeout_ms=30000", "scorer_concurrency=4",
            "scorer_timeout_ms=60000", "on_progress=None", "on_failure=None",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_every_option_is_shown_with_its_default(name: str) -> None:
    function, expected = SHOWN[name]
    parameters = inspect.signature(function).parameters.values()
    shown = {each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in parameters}
    assert shown - {"function=None"} == expected - {"function"}
    # Options passed by name or by position still work.
    assert not [each for each in parameters if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scorer("s", say_yes, treshold=0.5), r"scorer\(\) has no option 'treshold'; nearest: 'threshold'"),
        (lambda: scorer("s", say_yes, lable="x"), r"scorer\(\) has no option 'lable'; nearest: 'label'"),
        (lambda: judge_scorer(id="s", rubrik=["x"]), r"judge_scorer\(\) has no option 'rubrik'; nearest: 'rubric'"),
        (lambda: PromptResult(txt="x"), r"PromptResult\(\) has no option 'txt'; nearest: 'text'"),
        (lambda: TestAgent(model="a/b", max_step=3), r"TestAgent\(\) has no option 'max_step'; nearest: 'max_steps'"),
        (lambda: AGENT.with_options(temprature=1), r"TestAgent\(\) has no option 'temprature'; nearest: 'temperature'"),
        (lambda: EvalTest("t", say_yes, predicate=[]), r"EvalTest\(\) has no option 'predicate'; nearest: 'predicates'"),
        (
            lambda: asyncio.run(EvalTest("t", say_yes).run(AGENT, iterations=1, on_progres=print)),
            r"EvalTest.run\(\) has no option 'on_progres'; nearest: 'on_progress'",
        ),
        (lambda: EvalTest("t", say_yes, qqqq=1), r"EvalTest\(\) has no option 'qqqq'$"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()
