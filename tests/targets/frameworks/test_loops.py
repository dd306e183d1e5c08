"""Hand-written loops around a provider's client: their messages mix the client's objects with mappings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.model.evidence import Evidence
from proctor.targets.local.callable import CallableTarget
from tests.targets.frameworks.shapes import make
from tests.targets.loopback import attempt


def drive(function: Callable[..., Any]) -> Evidence:
    return asyncio.run(CallableTarget("agent", function).run(attempt("hi"), LIVE))


@pytest.mark.parametrize("package", ["openai.types.chat", "groq.types.chat", "litellm.types.utils", "mistralai.models", "ollama._types"])
def test_messages_of_a_loop_may_hold_client_responses(package: str) -> None:
    function = make(f"{package}:Function", name="lookup_order", arguments='{"id": 17}')
    call = make(f"{package}:ToolCall", id="call_1", type="function", function=function)
    asking = make(f"{package}:ChatCompletionMessage", role="assistant", content=None, refusal=None, tool_calls=[call])
    last = make(f"{package}:ChatCompletionMessage", role="assistant", content="It is on its way.", tool_calls=None)
    tool = {"role": "tool", "tool_call_id": "call_1", "content": "on its way"}
    for returned in (
        [{"role": "user", "content": "hi"}, asking, tool, last],
        {"messages": ({"role": "user", "content": "hi"}, asking, tool, last)},
    ):
        evidence = drive(lambda message, found=returned: found)
        assert evidence.text == "It is on its way." and evidence.tool_calls is not None
        assert [(each.name, each.arguments, each.result) for each in evidence.tool_calls] == [("lookup_order", {"id": 17}, "on its way")]


def test_messages_may_hold_blocks_of_a_response() -> None:
    used = make("anthropic.types.tool_use_block:ToolUseBlock", type="tool_use", id="t1", name="lookup_order", input={"id": 17})
    answer = make("anthropic.types.text_block:TextBlock", type="text", text="It is on its way.", citations=None)
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "on its way"}]}
    evidence = drive(
        lambda message: [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [used]},
            result,
            {"role": "assistant", "content": [answer]},
        ]
    )
    assert evidence.text == "It is on its way." and [call.arguments for call in evidence.tool_calls or ()] == [{"id": 17}]
