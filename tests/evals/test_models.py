"""Models by name: the provider, address and key that are used."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import SpecError
from proctor.evals.agents.models import make_model
from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.test_agent import TestAgent
from tests.llm.provider_server import Provider, ReceivedRequest, ScriptedResponse, provider
from tests.targets.mcp_twins import run

HELLO = {
    "choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6},
}


def prompt_provider(
    model: str, *replies: ScriptedResponse, environment: dict[str, str] | None = None, **options: Any
) -> tuple[PromptResult, list[ReceivedRequest]]:
    """A prompt to a loopback provider; `URL` is replaced by its address."""

    async def main() -> tuple[PromptResult, list[ReceivedRequest]]:
        async with provider(list(replies or (ScriptedResponse(body=HELLO),))) as seen:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in (environment or {}).items():
                    patch.setenv(name, value.replace("URL", seen.url))
                given = {name: _placed(value, seen) for name, value in options.items()}
                result = await TestAgent(tools=[], model=model, **given).prompt("Hi")
            return result, seen.requests

    return run(main())


def _placed(value: Any, seen: Provider) -> Any:
    if isinstance(value, dict):
        return {key: _placed(item, seen) for key, item in value.items()}
    return value.replace("URL", seen.url) if isinstance(value, str) else value


def test_key_and_address_come_from_the_environment() -> None:
    result, requests = prompt_provider("openai/some/model", environment={"OPENAI_BASE_URL": "URL/v1", "OPENAI_API_KEY": "sk-env-1"})
    assert (
        result.text == "Hello." and result.total_tokens() == 6 and (result.get_provider(), result.get_model()) == ("openai", "some/model")
    )
    assert requests[0].path == "/v1/chat/completions" and requests[0].headers["authorization"] == "Bearer sk-env-1"
    assert requests[0].body["model"] == "some/model"


def test_given_options_win_over_the_environment() -> None:
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-env-1"}
    _, requests = prompt_provider("openai/m", environment=environment, base_url="URL/v1", api_key="sk-given-1")
    assert requests[0].headers["authorization"] == "Bearer sk-given-1"


@pytest.mark.parametrize(
    ("model", "environment"),
    [
        ("openai/m", {"OPENAI_API_KEY": "sk-env-1"}),
        ("anthropic/m", {"ANTHROPIC_API_KEY": "sk-env-1"}),
        ("mistral/m", {"MISTRAL_API_KEY": "sk-env-1"}),
        ("google/m", {"GEMINI_API_KEY": "sk-env-1"}),
    ],
)
def test_an_environment_key_is_not_sent_to_another_address(model: str, environment: dict[str, str]) -> None:
    _, requests = prompt_provider(model, environment=environment, base_url="URL/v1")
    assert len(requests) == 1 and not {"authorization", "x-api-key", "api-key"} & set(requests[0].headers)
    assert "sk-env-1" not in repr(requests[0])


def test_the_key_of_a_custom_provider_is_not_sent_to_another_address() -> None:
    custom = {"mine": {"base_url": "http://127.0.0.1:9/v1", "api_key_env_var": "MY_KEY"}}
    _, requests = prompt_provider("mine/m", environment={"MY_KEY": "key-of-mine"}, custom_providers=custom, base_url="URL/v1")
    assert len(requests) == 1 and "authorization" not in requests[0].headers


def test_a_compatible_provider_speaks_the_protocol_of_openai() -> None:
    result, requests = prompt_provider("ollama/llama", environment={"OLLAMA_BASE_URL": "URL/api"}, api_key="none")
    assert result.text == "Hello." and requests[0].path == "/v1/chat/completions"


def test_a_custom_provider() -> None:
    custom = {"mine": {"protocol": "openai-compatible", "base_url": "URL/v1", "model_ids": ["m"], "api_key_env_var": "MY_KEY"}}
    result, requests = prompt_provider("mine/m", environment={"MY_KEY": "key-of-mine"}, custom_providers=custom)
    assert result.text == "Hello." and result.get_provider() == "mine" and requests[0].headers["authorization"] == "Bearer key-of-mine"


def test_a_refusal_is_a_result_without_the_key() -> None:
    result, _ = prompt_provider(
        "openai/m", ScriptedResponse(status=401, body={"error": {"message": "bad key sk-given-1"}}), base_url="URL/v1", api_key="sk-given-1"
    )
    assert result.get_error_code() == "unauthorized" and "sk-given-1" not in (result.get_error() or "")


@pytest.mark.parametrize(
    ("model", "custom", "error"),
    [
        ("mine/x", {"mine": {"baseUrl": "http://127.0.0.1:9", "modelIds": ["m"]}}, "no model"),
        ("mine/m", {"mine": {"base_url": "http://127.0.0.1:9", "protocol": "soap"}}, "unknown protocol"),
        ("mine/m", {"mine": {"protocol": "openai-compatible"}}, "baseUrl"),
        ("mien/m", {"mine": {"base_url": "http://127.0.0.1:9"}}, "nearest: 'mine'"),
        ("/m", {}, "provider/model"),
    ],
)
def test_a_model_that_cannot_be_made(model: str, custom: dict[str, Any], error: str) -> None:
    with pytest.raises(SpecError, match=error):
        make_model(model, api_key="k-1234", base_url=None, custom=custom, environment={})
