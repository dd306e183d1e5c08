"""Providers through pydantic-ai, with its own model doubles: nothing is sent."""

from __future__ import annotations

import asyncio
import base64
import builtins
import sys
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest
from pydantic_ai import exceptions as known
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.usage import RequestUsage

from proctor.actions.workspace.models import fill_from_environment, model_settings
from proctor.errors import MissingExtra, SpecError
from proctor.evals.agents.models import make_model
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Workspace
from proctor.llm.build import PROVIDERS, build_model
from proctor.llm.ports import Attachment, ChatMessage, ChatReply, ChatRequest, ModelCall, ModelFault, ToolDefinition
from proctor.llm.providers import KNOWN, ProviderModel, is_provider
from proctor.llm.settings import ModelSettings
from proctor.llm.taped import TapedModel

KEY = "sk-test-0123456789abcdef"
LOOK = ToolDefinition(name="look", description="Look it up.", schema={"type": "object", "properties": {"id": {"type": "integer"}}})
SHAPE = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"], "additionalProperties": False}
MESSAGES = (ChatMessage(role="system", text="Be brief."), ChatMessage(role="user", text="Order 3?"))

Answer = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


class Double:
    """A pydantic-ai model that records what it receives."""

    def __init__(self, *parts: ModelResponsePart, error: Exception | None = None, native: bool = False, **response: Any) -> None:
        self.messages: list[ModelMessage] = []
        self.info: AgentInfo | None = None
        self._answer = ModelResponse(parts=list(parts), **response)
        self._error = error
        self.model = FunctionModel(self._reply, profile=ModelProfile(supports_json_schema_output=native))

    async def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.messages, self.info = messages, info
        if self._error is not None:
            raise self._error
        return self._answer

    def ask(self, request: ChatRequest, **settings: Any) -> ChatReply:
        return asyncio.run(self._ask(request, **settings))

    async def _ask(self, request: ChatRequest, **settings: Any) -> ChatReply:
        model = ProviderModel("groq", self.model, ModelSettings(provider="groq", model="m", **settings))
        try:
            return await model.complete(request)
        finally:
            await model.close()


def parts_of(messages: list[ModelMessage]) -> list[tuple[str, Any]]:
    return [(part.part_kind, getattr(part, "content", None) or getattr(part, "args", None)) for each in messages for part in each.parts]


def test_a_conversation_is_sent_in_order_with_its_system_prompt() -> None:
    double = Double(TextPart("Shipped."), finish_reason="stop")
    request = ChatRequest(
        messages=(
            *MESSAGES,
            ChatMessage(role="assistant", text="Looking.", tool_calls=(ModelCall(id="c1", name="look", arguments={"id": 3}),)),
            ChatMessage(role="tool", call_id="c1", text="shipped"),
            ChatMessage(role="user", text="So?"),
        ),
        tools=(LOOK,),
    )
    reply = double.ask(request)
    assert (reply.text, reply.finish, reply.model, reply.tool_calls) == ("Shipped.", "stop", "function:_reply:", ())
    assert parts_of(double.messages) == [
        ("system-prompt", "Be brief."),
        ("user-prompt", "Order 3?"),
        ("text", "Looking."),
        ("tool-call", {"id": 3}),
        ("tool-return", "shipped"),
        ("user-prompt", "So?"),
    ]
    assert double.messages[2].parts[0].tool_name == "look"  # type: ignore[union-attr] - a tool result names its tool
    assert double.info is not None
    (tool,) = double.info.function_tools
    assert (tool.name, tool.description, tool.parameters_json_schema) == (LOOK.name, LOOK.description, LOOK.schema)


@pytest.mark.parametrize(
    ("given", "expect"),
    [
        ({"id": 3}, {"id": 3}),
        ('{"id": 3}', {"id": 3}),
        ("", {}),
        (None, {}),
        ('{"id":', '{"id":'),
        ("[1]", "[1]"),
    ],
)
def test_tool_calls_are_returned_unchanged(given: Any, expect: Any) -> None:
    reply = Double(ThinkingPart("hm"), ToolCallPart("look", given, "c1"), finish_reason="tool_call").ask(ChatRequest(messages=MESSAGES))
    assert reply.tool_calls == (ModelCall(id="c1", name="look", arguments=expect),)
    assert (reply.text, reply.finish) == ("", "tool_calls")


@pytest.mark.parametrize(
    ("reason", "expect"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("error", "other"), (None, "stop")],
)
def test_the_finish_reason_is_returned(reason: Any, expect: str) -> None:
    assert Double(TextPart("x"), finish_reason=reason).ask(ChatRequest(messages=MESSAGES)).finish == expect


def test_usage_is_complete_and_request_and_response_stay_readable() -> None:
    usage = RequestUsage(input_tokens=12, output_tokens=5, cache_read_tokens=4, output_reasoning_tokens=2)
    reply = Double(TextPart("x"), usage=usage).ask(ChatRequest(messages=MESSAGES, tools=(LOOK,)))
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.total_tokens) == (12, 5, 17)
    assert reply.raw_response["usage"]["cache_read_tokens"] == 4 and reply.raw_response["usage"]["output_reasoning_tokens"] == 2
    assert reply.raw_request["messages"][0]["parts"][0]["content"] == "Be brief."
    assert reply.raw_request["tools"][0]["name"] == "look"
    assert reply.duration_ms is not None
    msgspec.json.encode(reply)


def test_usage_that_was_not_measured_is_not_zero() -> None:
    class Silent(TestModel):
        async def request(self, *arguments: Any, **more: Any) -> ModelResponse:
            return ModelResponse(parts=[TextPart("x")], usage=RequestUsage(unmeasured_requests=1))

    async def run() -> ChatReply:
        return await ProviderModel("groq", Silent(), ModelSettings(provider="groq", model="m")).complete(ChatRequest(messages=MESSAGES))

    assert asyncio.run(run()).usage is None


def test_settings_are_defaults_of_a_request_and_the_sdk_does_not_retry() -> None:
    double = Double(TextPart("x"))
    double.ask(
        ChatRequest(messages=MESSAGES, seed=7, temperature=0.1), temperature=0.9, max_tokens=50, timeout_s=9, headers={"x-team": "a"}
    )
    assert double.info is not None
    assert double.info.model_settings == {
        "temperature": 0.1,
        "max_tokens": 50,
        "seed": 7,
        "timeout": 9,
        "max_retries": 0,
        "extra_headers": {"x-team": "a"},
    }


def test_an_unsupported_setting_is_left_out_and_noted() -> None:
    class Seedless(TestModel):
        unsupported_settings = frozenset({"seed"})

    async def run() -> ChatReply:
        model = ProviderModel("groq", Seedless(custom_output_text="x"), ModelSettings(provider="groq", model="m"))
        return await model.complete(ChatRequest(messages=MESSAGES, seed=7))

    reply = asyncio.run(run())
    assert reply.notes == ("seed is unknown to this API and was left out",)
    assert reply.raw_request["settings"] == {}


def test_headers_that_cannot_be_sent_are_refused() -> None:
    class Headless(TestModel):
        unsupported_settings = frozenset({"extra_headers"})

    with pytest.raises(SpecError, match="take no custom headers"):
        ProviderModel("mistral", Headless(), ModelSettings(provider="mistral", model="m", headers={"x-team": "a"}))


def test_structured_output_is_native_where_the_model_supports_it() -> None:
    double = Double(TextPart('{"total": 9.5}'), native=True)
    reply = double.ask(ChatRequest(messages=MESSAGES, answer_schema=SHAPE, answer_name="bill"))
    assert (reply.text, reply.notes) == ('{"total": 9.5}', ())
    assert double.info is not None
    shape = double.info.model_request_parameters.output_object
    assert shape is not None and (shape.name, shape.json_schema) == ("bill", SHAPE)


@pytest.mark.parametrize("tools", [(), (LOOK,)])
def test_structured_output_falls_back_to_tool_arguments(tools: tuple[ToolDefinition, ...]) -> None:
    double = Double(ToolCallPart("bill", {"total": 9.5}, "c1"), finish_reason="tool_call")
    reply = double.ask(ChatRequest(messages=MESSAGES, tools=tools, answer_schema=SHAPE, answer_name="bill"))
    assert (reply.text, reply.tool_calls, reply.finish) == ('{"total":9.5}', (), "stop")
    assert "sent as a tool" in reply.notes[0]
    assert double.info is not None
    assert [tool.name for tool in double.info.output_tools] == ["bill"]
    assert double.info.allow_text_output is bool(tools)


async def test_thinking_is_sent_back_with_its_tool_call() -> None:
    double = Double(ThinkingPart("hm", signature="s1"), TextPart("Looking."), ToolCallPart("look", '{"id": 3}', "c1"))
    model = ProviderModel("groq", double.model, ModelSettings(provider="groq", model="m"))
    first = await model.complete(ChatRequest(messages=MESSAGES, tools=(LOOK,)))
    reply_message = ChatMessage(role="assistant", text=first.text, tool_calls=first.tool_calls)
    result = ChatMessage(role="tool", call_id="c1", text="shipped")
    await model.complete(ChatRequest(messages=(*MESSAGES, reply_message, result), tools=(LOOK,)))
    assert [part.part_kind for part in double.messages[1].parts] == ["thinking", "text", "tool-call"]
    # The same id with other text is a different conversation.
    other = msgspec.structs.replace(reply_message, text="Guessing.")
    await model.complete(ChatRequest(messages=(*MESSAGES, other, result), tools=(LOOK,)))
    assert [part.part_kind for part in double.messages[1].parts] == ["text", "tool-call"]


def test_attachments_are_distinguished_by_type() -> None:
    data = base64.b64encode(b"abc").decode()
    double = Double(TextPart("x"))
    attachments = (
        Attachment(media_type="text/plain", data=data, name="a.txt"),
        Attachment(media_type="image/png", data=data),
        Attachment(media_type="image/png", url="https://host/a.png"),
        Attachment(media_type="application/pdf", url="https://host/a.pdf"),
    )
    double.ask(ChatRequest(messages=(ChatMessage(role="user", text="See.", attachments=attachments),)))
    content = double.messages[0].parts[0].content  # type: ignore[union-attr] - a user prompt
    assert content[:2] == ["See.", "a.txt:\nabc"]
    assert [getattr(each, "kind", "") for each in content[2:]] == ["binary", "image-url", "document-url"]
    with pytest.raises(ModelFault) as caught:
        broken = (Attachment(media_type="image/png", data="%%"),)
        double.ask(ChatRequest(messages=(ChatMessage(role="user", attachments=broken),)))
    assert caught.value.code == "bad_request"


def http_error(status: int, category: Any = None, **more: Any) -> Exception:
    return known.ModelHTTPError.for_category(category, status_code=status, model_name="m", body=f"no {KEY}", **more)


@pytest.mark.parametrize(
    ("error", "code", "status", "wait"),
    [
        (http_error(429, known.ModelRateLimitError, headers={"Retry-After": "7"}), "rate_limited", 429, 7.0),
        (http_error(429), "rate_limited", 429, None),
        (http_error(429, known.ModelQuotaExceededError), "bad_request", 429, None),
        (http_error(401, known.ModelAuthenticationError), "unauthorized", 401, None),
        (http_error(403), "unauthorized", 403, None),
        (http_error(404, known.ModelNotFoundError), "bad_request", 404, None),
        (http_error(400), "bad_request", 400, None),
        (http_error(408), "timeout", 408, None),
        (http_error(529, known.ModelOverloadedError), "overloaded", 529, None),
        (http_error(500), "overloaded", 500, None),
        (known.ModelConnectionError("m", f"cannot connect with {KEY}"), "transport", None, None),
        (known.ModelTimeoutError("m", "timed out"), "timeout", None, None),
        (known.ModelRateLimitError("m", "throttled", retry_after=2.5), "rate_limited", None, 2.5),
        (known.ModelRequestRejectedError("m", "no such model"), "bad_request", None, None),
        (known.UserError("not supported by this model"), "bad_request", None, None),
        (known.UnexpectedModelBehavior("nonsense"), "bad_answer", None, None),
        (httpx2.ConnectError("refused"), "transport", None, None),
        (httpx2.ReadTimeout("slow"), "timeout", None, None),
        (ConnectionResetError("gone"), "transport", None, None),
        (KeyError("choices"), "bad_answer", None, None),
    ],
)
def test_every_failure_has_a_code(error: Exception, code: str, status: int | None, wait: float | None) -> None:
    with pytest.raises(ModelFault) as caught:
        Double(error=error).ask(ChatRequest(messages=MESSAGES), api_key=KEY)
    assert (caught.value.code, caught.value.status, caught.value.retry_after_s) == (code, status, wait)
    assert KEY not in str(caught.value)
    assert caught.value.message.startswith("groq, m: ")


async def test_a_model_that_never_answers_is_a_timeout() -> None:
    class Stuck(TestModel):
        async def request(self, *arguments: Any, **more: Any) -> ModelResponse:
            await asyncio.Event().wait()
            raise AssertionError

    model = ProviderModel("groq", Stuck(), ModelSettings(provider="groq", model="m", timeout_s=0.01))
    with pytest.raises(ModelFault, match=r"0\.01 s") as caught:
        await model.complete(ChatRequest(messages=MESSAGES))
    assert caught.value.code == "timeout" and caught.value.safe


async def test_connections_are_opened_once_and_closed() -> None:
    class Counted(TestModel):
        entered = left = 0

        async def __aenter__(self) -> Any:
            self.entered += 1
            return self

        async def __aexit__(self, *error: Any) -> None:
            self.left += 1

    inner = Counted(custom_output_text="x")
    model = ProviderModel("groq", inner, ModelSettings(provider="groq", model="m"))
    await asyncio.gather(*(model.complete(ChatRequest(messages=MESSAGES)) for _ in range(3)))
    await model.close()
    await model.close()
    assert (inner.entered, inner.left) == (1, 1)
    await ProviderModel("groq", inner, ModelSettings(provider="groq", model="m")).close()
    assert (inner.entered, inner.left) == (1, 1)


def test_a_provider_model_can_be_recorded_and_replayed() -> None:
    requests: list[Any] = []

    class Tape:
        async def exchange(self, kind: str, request: Any, send: Callable[[], Any]) -> Any:
            requests.append(request)
            return msgspec.json.decode(msgspec.json.encode(await send()))

    async def run() -> ChatReply:
        model = ProviderModel("groq", Double(TextPart("x")).model, ModelSettings(provider="groq", model="m", temperature=0.5))
        return await TapedModel(model, Tape()).complete(ChatRequest(messages=MESSAGES))

    assert asyncio.run(run()).text == "x"
    assert (requests[0]["provider"], requests[0]["model"], requests[0]["temperature"]) == ("groq", "m", 0.5)


@pytest.mark.parametrize("name", KNOWN)
def test_every_known_provider_exists_in_pydantic_ai(name: str) -> None:
    try:
        infer_provider_class(name)
    except ImportError as error:
        assert "pip install" in str(error)  # its SDK is not installed here, but the name is known


def test_built_in_provider_names_are_not_overridden() -> None:
    assert not any(is_provider(name) for name in PROVIDERS)
    assert is_provider("Google_Cloud") and not is_provider("gruq")


@pytest.mark.parametrize(
    ("settings", "field", "problem"),
    [
        ({"provider": "gruq", "model": "m"}, "provider", "nearest: 'groq'"),
        ({"provider": "groq"}, "model", "needs its name"),
        ({"provider": "groq", "model": "m", "base_url": "https://elsewhere.example"}, "api_key", "custom base_url"),
        ({"provider": "groq", "model": "m", "proxy": "http://127.0.0.1:1"}, "proxy", "unknown to models of groq"),
        ({"provider": "google_cloud", "model": "m", "deployment": "d"}, "deployment", "unknown to models of google-cloud"),
        ({"provider": "groq", "model": "m", "timeout_s": 0}, "timeout_s", "above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        build_model(ModelSettings(**settings))
    assert caught.value.field == field and problem in caught.value.message


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def importing(name: str, *more: Any, **named: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(f"no module named {package!r}")
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_a_missing_extra_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pydantic_ai")
    with pytest.raises(MissingExtra, match=r"pip install 'proctor-evals\[providers\]'"):
        build_model(ModelSettings(provider="groq", model="m", api_key=KEY))


def test_a_missing_provider_sdk_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "groq", None)
    monkeypatch.delitem(sys.modules, "pydantic_ai.providers.groq", raising=False)
    with pytest.raises(SpecError, match=r"pydantic-ai-slim\[groq\]"):
        build_model(ModelSettings(provider="groq", model="m", api_key=KEY))


def test_python_evals_accept_such_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ModelSettings] = []
    monkeypatch.setattr("proctor.evals.agents.models.build_model", made.append)
    for base_url in (None, "https://elsewhere.example"):
        make_model("groq/llama", api_key=None, base_url=base_url, custom={}, environment={"GROQ_API_KEY": KEY})
    assert [(each.provider, each.model, each.api_key) for each in made] == [("groq", "llama", KEY), ("groq", "llama", None)]
    with pytest.raises(SpecError, match="unknown provider"):
        make_model("gruq/llama", api_key=None, base_url=None, custom={}, environment={})


@pytest.mark.parametrize(
    ("settings", "environment", "key"),
    [
        ({"provider": "groq"}, {"GROQ_API_KEY": "a"}, "a"),
        ({"provider": "google"}, {"GEMINI_API_KEY": "b"}, "b"),
        ({"provider": "google"}, {"GEMINI_API_KEY": "b", "GOOGLE_API_KEY": "c"}, "c"),
        ({"provider": "cohere"}, {"CO_API_KEY": "d", "COHERE_API_KEY": "e"}, "d"),
        ({"provider": "groq", "api_key": "mine"}, {"GROQ_API_KEY": "a"}, "mine"),
        ({"provider": "groq", "base_url": "https://elsewhere.example"}, {"GROQ_API_KEY": "a"}, None),
        ({"provider": "bedrock"}, {}, None),
    ],
)
def test_an_environment_key_is_sent_only_to_the_providers_own_address(
    settings: dict[str, str], environment: dict[str, str], key: str | None
) -> None:
    assert fill_from_environment(ModelSettings(model="m", **settings), environment).api_key == key


@pytest.mark.parametrize(
    ("environment", "provider", "model"),
    [
        ({"PROCTOR_MODEL": "groq/llama"}, "groq", "llama"),
        ({"PROCTOR_MODEL": "google/gemini", "PROCTOR_MODEL_BASE_URL": "https://gateway.example/v1"}, "openai", "google/gemini"),
        ({"PROCTOR_MODEL": "some/model"}, "openai", "some/model"),
    ],
)
def test_a_model_from_the_environment_may_use_any_provider(environment: dict[str, str], provider: str, model: str) -> None:
    found = model_settings(None, Workspace(), References({}), environment)
    assert (found.provider, found.model) == (provider, model)
