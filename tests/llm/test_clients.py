"""Every provider over a real socket: the request it receives, and the reply read from its response."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from proctor.llm import client
from proctor.llm.build import ModelSettings, build_model
from proctor.llm.ports import ChatMessage, ChatReply, ChatRequest, ModelFault
from tests.llm.provider_server import Provider, ReceivedRequest, ScriptedResponse, provider
from tests.tables import rows

KEY = "sk-test-0123456789abcdef"
HI = ChatRequest(messages=(ChatMessage(role="user", text="Hi"),))


def openai_answer(text: str = "Hello.") -> ScriptedResponse:
    return ScriptedResponse(body={"model": "m", "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]})


async def ask(seen: Provider, request: ChatRequest = HI, **settings: Any) -> ChatReply:
    suffix = settings.pop("base_suffix", "")
    model = build_model(ModelSettings(base_url=seen.url + suffix, **{"provider": "openai", "model": "m", **settings}))
    try:
        return await model.complete(request)
    finally:
        await model.close()


@rows("llm/cases/dialects.yaml")
async def test_requests_and_replies_use_the_providers_format(row: dict[str, Any]) -> None:
    request = msgspec.convert(row["request"], ChatRequest)
    async with provider([ScriptedResponse(body=row["answer"])]) as seen:
        reply = await ask(seen, request, **row["settings"])
    (request,) = seen.requests
    assert request.path == row["path"]
    assert request.body == row["sent"]
    assert {name: request.headers.get(name) for name in row.get("headers", {})} == row.get("headers", {})
    assert "api_key" in row["settings"] or not {"authorization", "x-api-key", "api-key"} & set(request.headers)
    assert reply.raw_request == row["sent"] and reply.raw_response == row["answer"]
    assert reply.duration_ms is not None and reply.duration_ms > 0
    actual = json.loads(msgspec.json.encode(msgspec.structs.replace(reply, raw_request=None, raw_response=None, duration_ms=None)))
    assert actual == row["reply"]


@rows("llm/cases/faults.yaml")
def test_every_failure_has_a_code(row: dict[str, Any]) -> None:
    response = dict(row["response"])
    if "text" in response:
        response["body"] = response.pop("text").encode()

    async def run() -> ModelFault:
        async with provider([ScriptedResponse(**response)]) as seen:
            with pytest.raises(ModelFault) as caught:
                await ask(seen, provider=row.get("provider", "openai"), api_key=KEY, timeout_s=row.get("timeout_s", 5))
        return caught.value

    fault = asyncio.run(run())
    assert (fault.code, fault.safe) == (row["code"], row["safe"])
    assert fault.retry_after_s == row.get("retry_after_s")
    for words in row.get("message", []):
        assert str(words) in fault.message
    assert KEY not in str(fault)


async def test_a_refused_connection_is_a_transport_fault_with_the_address() -> None:
    async with provider([]) as gone:
        pass
    with pytest.raises(ModelFault, match=r"http://127\.0\.0\.1:\d+/chat/completions") as caught:
        await ask(gone, timeout_s=5)
    assert caught.value.code == "transport" and caught.value.safe


@pytest.mark.parametrize("host", ["a..b\u00fc.example", "a..b", ".com", "a" * 70])
async def test_an_address_refused_by_the_client_is_a_fault(host: str) -> None:
    model = build_model(ModelSettings(provider="openai", model="m", base_url=f"http://{host}/v1"))
    with pytest.raises(ModelFault) as caught:
        await model.complete(HI)
    assert caught.value.code == "bad_request"
    await model.close()


async def test_an_oversized_response_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 1024 * 1024)
    async with provider([ScriptedResponse(body=b" " * (1024 * 1024 + 1))]) as seen:
        with pytest.raises(ModelFault) as caught:
            await ask(seen)
    assert caught.value.code == "too_large"


async def test_a_deeply_nested_response_is_refused() -> None:
    deep = b'{"choices":' + b"[" * 3000 + b"]" * 3000 + b"}"
    for body in (deep, b'{"choices":' + b"[" * 400 + b"]" * 400 + b"}"):
        async with provider([ScriptedResponse(body=body)]) as seen:
            with pytest.raises(ModelFault, match="nested") as caught:
                await ask(seen)
        assert caught.value.code == "bad_answer"


async def test_a_redirect_never_carries_the_key_to_another_host() -> None:
    async with provider([openai_answer()]) as other:
        async with provider([ScriptedResponse(status=307, headers={"location": f"{other.url}/chat/completions"})]) as seen:
            with pytest.raises(ModelFault) as caught:
                await ask(seen, api_key=KEY)
        assert (caught.value.code, caught.value.status) == ("bad_answer", 307)
        assert other.requests == []


async def test_a_redirect_to_an_invalid_address_is_a_fault() -> None:
    async with provider([ScriptedResponse(status=302, headers={"location": "http://[half"})]) as seen:
        with pytest.raises(ModelFault) as caught:
            await ask(seen)
    assert (caught.value.code, caught.value.status) == ("bad_answer", 302)


async def test_cancelling_closes_the_connection() -> None:
    async with provider([ScriptedResponse(silent=True)]) as seen:
        model = build_model(ModelSettings(provider="openai", model="m", base_url=seen.url))
        task = asyncio.create_task(model.complete(HI))
        while not seen.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.close()
        await model.close()


async def test_custom_headers_win_in_any_letter_case() -> None:
    async with provider([openai_answer()]) as seen:
        await ask(seen, api_key=KEY, headers={"Authorization": "Token mine", "X-Team": "a"})
    assert seen.requests[0].headers["authorization"] == "Token mine"
    assert seen.requests[0].headers["x-team"] == "a"


async def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with provider([openai_answer()]) as seen:
        assert (await ask(seen)).text == "Hello."


async def test_a_proxy_in_the_settings_is_used() -> None:
    async with provider([openai_answer("by proxy")]) as seen:
        model = build_model(ModelSettings(provider="openai", model="m", base_url="http://model.invalid/v1", proxy=seen.url))
        assert (await model.complete(HI)).text == "by proxy"
        await model.close()
    assert seen.requests[0].path == "http://model.invalid/v1/chat/completions"


async def test_half_a_surrogate_pair_and_huge_integers_can_be_sent() -> None:
    async with provider([openai_answer()]) as seen:
        arguments = {"n": 10**30, "s": "half \ud83d"}
        message = ChatMessage(role="user", text="half \ud83d")
        await ask(seen, ChatRequest(messages=(message,), answer_schema={"const": arguments}))
    assert seen.requests[0].body["messages"][0]["content"] == "half \ud83d"
    assert seen.requests[0].body["response_format"]["json_schema"]["schema"]["const"] == arguments


# --- parameters that a model refuses ---------------------------------------------------------------------------------------------


def picky(*unwanted: tuple[str, str]) -> Any:
    """A server that refuses parameters, given as pairs of name and message."""

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        for name, message in unwanted:
            if name in request.body:
                return ScriptedResponse(status=400, body={"error": {"message": message, "type": "invalid_request_error", "param": name}})
        if "tool_choice" in request.body:
            block = {"type": "tool_use", "id": "t", "name": request.body["tools"][-1]["name"], "input": {"ok": True}}
            return ScriptedResponse(body={"type": "message", "content": [block], "stop_reason": "tool_use"})
        return (
            openai_answer()
            if "/chat/" in request.path
            else ScriptedResponse(body={"type": "message", "content": [], "stop_reason": "end_turn"})
        )

    return answer


NO_TEMPERATURE = (
    "temperature",
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
)
NO_MAX_TOKENS = ("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")


async def test_a_refused_temperature_is_dropped_noted_and_not_resent() -> None:
    async with provider(picky(NO_TEMPERATURE, NO_MAX_TOKENS)) as seen:
        model = build_model(ModelSettings(provider="openai", model="m", base_url=seen.url, temperature=0.2, max_tokens=9))
        first = await model.complete(HI)
        second = await model.complete(HI)
        plain = await model.complete(HI)
        await model.close()
    assert [sorted(set(request.body) - {"model", "messages"}) for request in seen.requests] == [
        ["max_tokens", "temperature"],
        ["max_tokens"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]
    assert seen.requests[-1].body["max_completion_tokens"] == 9
    assert first.notes == second.notes == plain.notes
    assert "max_tokens was sent as max_completion_tokens" in first.notes[0]
    assert first.notes[1].startswith("temperature was left out, the model refused it: ")
    assert first.raw_request == seen.requests[-1].body


async def test_no_note_if_the_refused_parameter_was_not_requested() -> None:
    async with provider(picky(NO_TEMPERATURE)) as seen:
        model = build_model(ModelSettings(provider="openai", model="m", base_url=seen.url))
        await model.complete(msgspec.structs.replace(HI, temperature=0.2))
        assert (await model.complete(HI)).notes == ()
        await model.close()


@pytest.mark.parametrize(
    "message",
    ["temperature: Input should be less than or equal to 1", "Invalid 'temperature': decimal above maximum value. Expected a value <= 2"],
)
async def test_a_value_out_of_range_is_a_bad_request(message: str) -> None:
    async with provider(picky(("temperature", message))) as seen:
        with pytest.raises(ModelFault, match="temperature") as caught:
            await ask(seen, temperature=9)
    assert caught.value.code == "bad_request" and len(seen.requests) == 1


async def test_a_repeated_refusal_fails_after_one_retry() -> None:
    async with provider(picky(NO_MAX_TOKENS, ("max_completion_tokens", "Unknown parameter: 'max_completion_tokens'"))) as seen:
        model = build_model(ModelSettings(provider="openai", model="m", base_url=seen.url, max_tokens=9))
        for _ in range(2):
            with pytest.raises(ModelFault, match="max_completion_tokens"):
                await model.complete(HI)
        await model.close()
    assert len(seen.requests) == 4


async def test_a_refused_seed_and_schema_are_left_out() -> None:
    async with provider(picky(("seed", "Extra inputs are not permitted"), ("response_format", "json_schema is not supported"))) as seen:
        reply = await ask(seen, msgspec.structs.replace(HI, seed=1, answer_schema={"type": "object"}))
    assert [note.split()[0] for note in reply.notes] == ["answer_schema", "seed"]
    assert set(seen.requests[-1].body) == {"model", "messages"}


@pytest.mark.parametrize("with_tools", [False, True])
async def test_anthropic_without_structured_output_answers_through_a_tool(with_tools: bool) -> None:
    refusal = ("output_config", "output_config: Extra inputs are not permitted")
    request = msgspec.convert(
        {
            "messages": [{"role": "user", "text": "Judge"}],
            "answer_schema": {"type": "object"},
            "answer_name": "verdict",
            "tools": [{"name": "look"}] if with_tools else [],
        },
        ChatRequest,
    )
    async with provider(picky(refusal)) as seen:
        reply = await ask(seen, request, provider="anthropic")
    body = seen.requests[-1].body
    assert body["tool_choice"] == ({"type": "any"} if with_tools else {"type": "tool", "name": "verdict"})
    assert body["tools"][-1]["input_schema"] == {"type": "object"}
    assert json.loads(reply.text) == {"ok": True}
    assert reply.tool_calls == () and reply.finish == "stop"
    assert reply.notes[0].startswith("answer_schema was sent as a tool")


async def test_fifty_concurrent_requests_share_one_client() -> None:
    async with provider(picky(NO_TEMPERATURE)) as seen:
        model = build_model(ModelSettings(provider="openai", model="m", base_url=seen.url, temperature=0.2))
        replies = await asyncio.gather(*(model.complete(HI) for _ in range(50)))
        await model.close()
    assert {reply.text for reply in replies} == {"Hello."}
    assert all(len(reply.notes) == 1 for reply in replies)
