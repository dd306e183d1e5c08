"""Settings that cannot work are refused before anything is sent, and secrets are never shown."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import InputError, SpecError
from proctor.llm.build import ALIASES, PROVIDERS, ModelSettings, build_model
from proctor.llm.settings import is_loopback, show_settings

KEY = "sk-test-0123456789abcdef"


@pytest.mark.parametrize(
    ("settings", "field", "problem"),
    [
        ({"provider": "opena"}, "provider", "nearest: 'openai'"),
        ({"provider": ""}, "provider", "known are openai, openai_responses, anthropic, azure, scripted"),
        ({"provider": "openai"}, "model", "needs its name"),
        ({"provider": "openai", "model": "m"}, "api_key", "needs an API key"),
        ({"provider": "anthropic", "model": "m"}, "api_key", "needs an API key"),
        ({"provider": "azure", "model": "m", "api_key": KEY}, "base_url", "address of its resource"),
        ({"provider": "azure", "model": "m", "base_url": "https://a.openai.azure.com"}, "api_key", "needs an API key"),
        ({"provider": "openai", "model": "m", "base_url": "ftp://host"}, "base_url", "expected an address"),
        ({"provider": "openai", "model": "m", "base_url": "http://user:hunter2hunter2@ho st/"}, "base_url", "expected an address"),
        ({"provider": "openai", "model": "m", "base_url": "http://host:99999999/"}, "base_url", "cannot be read"),
        ({"provider": "openai", "model": "m", "base_url": "http://[half"}, "base_url", "cannot be read"),
        ({"provider": "openai", "model": "m", "api_key": f"{KEY}\n"}, "api_key", "the API key holds a space at an end, a line break"),
        ({"provider": "openai", "model": "m", "api_key": "schlüssel-0123456789"}, "api_key", "no header can carry"),
        ({"provider": "openai", "model": "m", "api_key": KEY, "headers": {"a b": "x"}}, "headers.a b", "cannot be the name of a header"),
        ({"provider": "openai", "model": "m", "api_key": KEY, "headers": {"x": "a\r\nb: c"}}, "headers.x", "the header x"),
        ({"provider": "openai", "model": "m", "api_key": KEY, "timeout_s": 0}, "timeout_s", "above 0"),
        ({"provider": "openai", "model": "m", "api_key": KEY, "timeout_s": float("inf")}, "timeout_s", "above 0"),
        ({"provider": "openai", "model": "m", "api_key": KEY, "max_tokens": 0}, "max_tokens", "at least 1"),
        ({"provider": "scripted", "replies": [3]}, "replies[0]", "expected text or an object, found number"),
        ({"provider": "scripted", "replies": [{"txt": "a"}]}, "replies[0].txt", "known here: text, tool_calls"),
        ({"provider": "scripted", "replies": [{"fault": "rate_limit"}]}, "replies[0].fault", "unknown fault"),
        ({"provider": "scripted", "replies": [{"tool_calls": [{}]}]}, "replies[0]", "not a reply: Object missing required field `name`"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        build_model(ModelSettings(**settings))
    assert isinstance(caught.value, InputError)
    assert caught.value.field == field
    assert problem in caught.value.message
    assert KEY not in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize("provider", [*PROVIDERS, *ALIASES])
def test_every_provider_and_alias_can_be_built(provider: str) -> None:
    model = build_model(ModelSettings(provider=provider, model="m", base_url="http://127.0.0.1:9", replies=("a",)))
    assert model.provider in PROVIDERS and model.name == "m"


def test_a_key_in_a_custom_header_is_enough() -> None:
    build_model(ModelSettings(provider="openai", model="m", headers={"Authorization": "Bearer x"}))


def test_an_authorization_header_is_always_secret() -> None:
    settings = ModelSettings(provider="openai", model="m", headers={"Authorization": f"Bearer {KEY}"})
    assert set(settings.list_secrets()) == {f"Bearer {KEY}", KEY}


def test_settings_do_not_show_secrets() -> None:
    settings = ModelSettings(
        provider="openai", model="m", api_key=KEY, headers={"x-team": "hunter2"}, base_url="https://me:hunter2@host/v1?key=hunter2"
    )
    shown = repr(settings)
    assert KEY not in shown and "hunter2" not in shown
    assert show_settings(settings) == {"provider": "openai", "model": "m", "base_url": "https://host/v1", "headers": ["x-team"]}
    assert set(settings.list_secrets()) == {KEY, "hunter2"}


@pytest.mark.parametrize(
    ("address", "expect"),
    [
        ("http://127.0.0.1:80/v1", True),
        ("http://127.9.9.9", True),
        ("http://localhost:11434", True),
        ("http://[::1]:80", True),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://10.0.0.1", False),
    ],
)
def test_only_this_machine_is_loopback(address: str, expect: bool) -> None:
    assert is_loopback(address) is expect
