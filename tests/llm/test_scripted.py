"""The scripted model replies with its lines and fails when none are left."""

from __future__ import annotations

import asyncio

import pytest

from proctor.llm.build import ModelSettings, build_model
from proctor.llm.ports import ChatMessage, ChatReply, ChatRequest, ModelCall, ModelFault
from proctor.llm.scripted import ScriptedModel


def request_with(*roles: str) -> ChatRequest:
    return ChatRequest(messages=tuple(ChatMessage(role=role, text=role) for role in roles))  # type: ignore[arg-type]


async def test_a_list_replies_line_by_line_and_then_fails() -> None:
    model = ScriptedModel(["one", ChatReply(tool_calls=(ModelCall(id="a", name="look"),))])
    assert (await model.complete(request_with("user"))).text == "one"
    assert model.remaining == 1
    second = await model.complete(request_with("user"))
    assert second.finish == "tool_calls" and second.model == "scripted"
    with pytest.raises(ModelFault) as caught:
        await model.complete(request_with("user"))
    assert caught.value.code == "bad_answer"
    assert len(model.requests) == 3 and model.remaining == 0
    await model.close()
    assert model.closed


def test_a_function_sees_the_request_and_may_be_async() -> None:
    async def slow(request: ChatRequest) -> str:
        return f"{len(request.messages)} messages"

    async def run() -> None:
        assert (await ScriptedModel(lambda request: request.messages[0].text).complete(request_with("user"))).text == "user"
        assert (await ScriptedModel(slow).complete(request_with("user", "assistant"))).text == "2 messages"

    asyncio.run(run())


async def test_a_script_in_the_settings_is_shared_by_conversations() -> None:
    replies = (
        {"tool_calls": [{"name": "look", "arguments": {"id": 1}}], "usage": {"input_tokens": 5, "output_tokens": 2}},
        "done",
        {"fault": "rate_limited", "message": "slow down", "retry_after_s": 3},
    )
    model = build_model(ModelSettings(provider="scripted", replies=replies))
    for _ in range(2):
        first = await model.complete(request_with("user"))
        assert first.tool_calls == (ModelCall(id="call_0", name="look", arguments={"id": 1}),)
        assert first.usage is not None and first.usage.input_tokens == 5
        assert (await model.complete(request_with("user", "assistant", "tool"))).text == "done"
    for _ in range(2):
        with pytest.raises(ModelFault) as caught:
            await model.complete(request_with("user", "assistant", "tool", "assistant", "user"))
        assert caught.value.code == "rate_limited" and caught.value.retry_after_s == 3
