"""Options of evals: every one is part of the signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.test_agent import TestAgent
from proctor.evals.eval_test import EvalTest
from proctor.evals.grading.judge_scorer import judge_scorer
from proctor.evals.grading.scorers import scorer

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
