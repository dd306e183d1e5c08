from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cassettes.entries import REDACTED, Scrubber
from proctor.cassettes.redaction import names_a_secret, redact, redact_text

HIDDEN_NAMES = [
    "authorization", "Authorization", "proxy-authorization", "cookie", "Set-Cookie", "password", "PASSWD", "api-key", "X-API-Key", "apiKey",
    "api_key", "access-token", "accessToken", "refresh_token", "secret", "client-secret", "clientSecret", "private-key", "databasePassword",
    "myApiKey", "openAiKey", "http.request.header.authorization", "token", "aws_secret_access_key", "x-n8n-api-key", "credentials",
]  # fmt: skip
OPEN_NAMES = [
    "promptTokens", "totalTokens", "max_tokens", "gen_ai.usage.input_tokens", "tokens", "token_count", "key", "id", "primaryKey",
    "keyboard",
    "secretary", "password_hint_shown", "author", "cookies_accepted", "nextPageToken", "tokenizer", "monkey", "name",
]  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN_NAMES)
def test_values_under_a_secret_name_are_redacted(name: str) -> None:
    assert names_a_secret(name)
    for value in ("hunter2", {"any": "thing"}, ["a", "b"]):
        assert redact({"a": [{name: value, "b": 1}]}) == {"a": [{name: REDACTED, "b": 1}]}
        assert redact([{"key": name, "value": value}])[0]["value"] == REDACTED
        assert redact({"headers": [{"name": name, "value": value}]})["headers"][0]["value"] == REDACTED


@pytest.mark.parametrize("name", OPEN_NAMES)
def test_values_under_similar_names_are_not_redacted(name: str) -> None:
    for value in ("hunter2", 12, {"any": "thing"}, ["a"]):
        assert redact({name: value}) == {name: value}


def test_harmless_values_are_not_redacted() -> None:
    for value in ("", None, True, False, [], {}):
        assert redact({"password": value}) == {"password": value}
    assert redact({"token": 17, "password": 1234}) == {"token": 17, "password": REDACTED}


def test_attributes_of_otlp_stay_valid_otlp() -> None:
    given = [
        {"key": "http.request.header.authorization", "value": {"arrayValue": {"values": [{"stringValue": "Basic abc"}]}}},
        {"key": "db.password", "value": {"stringValue": "hunter2"}},
        {"key": "has_password", "value": {"boolValue": True}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
    ]
    hidden = {"stringValue": REDACTED}
    assert redact({"attributes": given})["attributes"] == [{**given[0], "value": hidden}, {**given[1], "value": hidden}, *given[2:]]


def test_a_field_schema_is_not_a_secret() -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string"}, "token": {"$ref": "#/x"}}}
    assert redact({"inputSchema": schema}) == {"inputSchema": schema}
    assert redact({"properties": {"password": "hunter2"}}) == {"properties": {"password": REDACTED}}


SECRETS = [
    "vk_" + "aB3" * 12, "mibo_" + "x9_" * 12, "vrl_slv_" + "q1-" * 12, "vrl_run_" + "q1-" * 12,
    "vrl_sbx_" + "q1-" * 12, "vrl_shr_" + "q1-" * 12,
    "sk-proj-abcdefghijklmnop1234", "ghp_" + "a1" * 15, "AKIAABCDEFGHIJKLMNOP", "AIza" + "x" * 35, "xoxb-123456789012-abc",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmno",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_text_that_looks_like_a_key_is_redacted(secret: str) -> None:
    redacted = redact({"messages": [{"content": f"my key is {secret}, thanks"}]})
    assert redacted == {"messages": [{"content": f"my key is {REDACTED}, thanks"}]}


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("curl -H 'Authorization: Bearer abc123def456ghi'", "abc123def456ghi"),
        ("postgresql://user:hunter2@db/x", "hunter2"),
        ('{"user": "a", "password": "hunter2", "n": 1}', "hunter2"),
        ('"{\\"api_key\\": \\"hunter2hunter2\\"}"', "hunter2"),
        ("https://x.example/?api_key=hunter2&x=1", "hunter2"),
    ],
)
def test_secrets_inside_longer_texts_are_redacted(text: str, without: str) -> None:
    assert without not in redact_text(text)
    assert REDACTED in redact_text(text)


def test_redaction_copies_its_input_and_reads_any_depth() -> None:
    given: dict[str, Any] = {"a": {"password": "x"}, "b": [{"password": "y"}]}
    redact(given)
    assert given == {"a": {"password": "x"}, "b": [{"password": "y"}]}
    deep: Any = {"password": "hunter2"}
    for _ in range(sys.getrecursionlimit() * 3):
        deep = [deep]
    redacted = redact(deep)
    while isinstance(redacted, list):
        redacted = redacted[0]
    assert redacted == {"password": REDACTED}


TEXTS = st.text(max_size=30) | st.sampled_from(
    [*SECRETS, "Bearer abc123def456ghi", '{"password": "x1"}', "a://b:c@d", "x?key=abc", "cookie: a"]
)


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(HIDDEN_NAMES + OPEN_NAMES), inner))
)
@pytest.mark.timeout(60)
def test_redaction_is_idempotent(value: Any) -> None:
    once = redact(value)
    assert redact(once) == once


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS | st.sampled_from(["token=", "sk-", "_", " ", '"secret": "', '"']), max_size=6).map("".join))
def test_the_fast_check_finds_everything_the_rules_redact(text: str) -> None:
    assert redact_text(text) == (Scrubber().scrub_text(text) if len(text) >= 8 else text)
