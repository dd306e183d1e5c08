"""A recorded model: replaying gives the same replies without a call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cassettes.cassette import CassetteMiss, open_tape
from proctor.cassettes.ports import LIVE
from proctor.llm.build import ModelSettings, build_model
from proctor.llm.ports import ChatMessage, ChatModel, ChatReply, ChatRequest, ModelCall, ModelFault, ToolDefinition
from proctor.llm.scripted import ScriptedModel
from proctor.llm.taped import TapedModel
from proctor.model.evidence import Usage
from tests.llm.provider_server import ScriptedResponse, provider

HI = ChatRequest(messages=(ChatMessage(role="user", text="Hi"),))

# Without what a recording would scrub: the property is about everything else.
WORDS = st.text(st.characters(exclude_characters='"?&@:=_-'), max_size=15)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("a", "b", "id")), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(ModelCall, id=WORDS, name=WORDS, arguments=st.dictionaries(st.sampled_from(("x", "y")), PLAIN, max_size=2) | WORDS)
COUNTS = st.none() | st.integers(0, 10**9)
USAGES = st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS, total_tokens=COUNTS)
REPLIES = st.builds(
    ChatReply,
    text=WORDS,
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    finish=st.sampled_from(("stop", "tool_calls", "length", "content_filter", "other")),
    usage=st.none() | USAGES,
    model=WORDS.filter(bool),
    raw_request=PLAIN,
    raw_response=PLAIN,
    duration_ms=st.none() | st.floats(0, 1e6),
    notes=st.lists(WORDS, max_size=2).map(tuple),
)
FAULTS = st.builds(
    ModelFault,
    st.sampled_from(("rate_limited", "overloaded", "timeout", "transport", "bad_request", "unauthorized", "bad_answer")),
    WORDS,
    retry_after_s=st.none() | st.floats(0, 100),
    status=st.none() | st.integers(400, 599),
)
MESSAGES = st.builds(
    ChatMessage,
    role=st.sampled_from(("system", "user", "assistant", "tool")),
    text=WORDS,
    tool_calls=st.lists(CALLS, max_size=1).map(tuple),
)
REQUESTS = st.builds(
    ChatRequest,
    messages=st.lists(MESSAGES, min_size=1, max_size=3).map(tuple),
    tools=st.lists(st.builds(ToolDefinition, name=WORDS, schema=st.just({"type": "object"})), max_size=1).map(tuple),
    temperature=st.none() | st.floats(0, 2),
)


async def hear(model: ChatModel, request: ChatRequest) -> Any:
    try:
        return await model.complete(request)
    except ModelFault as fault:
        return fault.code, fault.message, fault.retry_after_s, fault.status, fault.safe


def settled(reply: Any) -> Any:
    """A scripted model's text, or its `tool_calls` if there are any."""
    if isinstance(reply, ChatReply) and reply.tool_calls and reply.finish == "stop":
        return msgspec.structs.replace(reply, finish="tool_calls")
    return reply


@given(st.lists(st.tuples(REQUESTS, REPLIES | FAULTS), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
@pytest.mark.timeout(60)
async def test_recorded_then_replayed_gives_identical_replies(tmp_path_factory: pytest.TempPathFactory, exchanges: list[Any]) -> None:
    path = tmp_path_factory.mktemp("cassette") / "c.jsonl"
    script = [reply for _, reply in exchanges]
    direct = ScriptedModel(script)
    expected = [await hear(direct, request) for request, _ in exchanges]
    with open_tape(path, "record") as cassette:
        taped = TapedModel(ScriptedModel(script), cassette.scope("a"))
        assert [await hear(taped, request) for request, _ in exchanges] == expected
    silent = ScriptedModel([])
    player = open_tape(path, "replay")
    for _ in range(2):
        taped = TapedModel(silent, player.scope("a"))
        assert [await hear(taped, request) for request, _ in exchanges] == expected
    assert silent.requests == []


async def test_a_live_tape_changes_nothing() -> None:
    reply = ChatReply(text="a", tool_calls=(ModelCall(id="1", name="t", arguments="not json"),), raw_response={"x": [1]}, notes=("n",))
    taped = TapedModel(ScriptedModel([reply], name="m"), LIVE)
    assert await taped.complete(HI) == settled(msgspec.structs.replace(reply, model="m"))
    assert (taped.provider, taped.name) == ("scripted", "m")
    await taped.close()


async def test_a_provider_is_replayed_without_a_network_and_without_its_key(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    key = "sk-test-0123456789abcdef"
    answer = {
        "model": "m-1",
        "choices": [{"message": {"content": f"your key is {key}"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    async with provider([ScriptedResponse(body=answer), ScriptedResponse(status=429, headers={"retry-after": "4"})]) as seen:
        known = ModelSettings(provider="openai", model="m", base_url=seen.url, api_key=key, temperature=0.3)
        model = build_model(known)
        with open_tape(path, "record", secrets=known.list_secrets()) as cassette:
            taped = TapedModel(model, cassette.scope("a"))
            live = [await hear(taped, HI), await hear(taped, HI)]
        await model.close()
    assert key not in path.read_text(encoding="utf-8")
    elsewhere = build_model(ModelSettings(provider="openai", model="m", base_url="http://127.0.0.1:1", temperature=0.3))
    player = open_tape(path, "replay")
    taped = TapedModel(elsewhere, player.scope("a"))
    again = [await hear(taped, HI), await hear(taped, HI)]
    assert again[0].text == "your key is [redacted]"
    assert again[0].usage == live[0].usage and again[0].raw_response["usage"] == answer["usage"]
    assert again[1] == live[1] and again[1][0] == "rate_limited" and again[1][2] == 4
    colder = build_model(ModelSettings(provider="openai", model="m", base_url="http://127.0.0.1:1", temperature=0.1))
    with pytest.raises(CassetteMiss, match=r"differs at \$\.temperature\n    recorded 0\.3\n    now      0\.1"):
        await TapedModel(colder, player.scope("a")).complete(HI)


@pytest.mark.parametrize("recorded", [{"reply": {"text": 3}}, {}, {"fault": {"code": "no such"}}, "text", None])
def test_an_invalid_recorded_reply_is_a_fault(recorded: Any) -> None:
    class Odd:
        async def exchange(self, kind: str, request: Any, send: Any) -> Any:
            return recorded

    with pytest.raises(ModelFault) as caught:
        asyncio.run(TapedModel(ScriptedModel([]), Odd()).complete(HI))
    assert caught.value.code == "bad_answer"
