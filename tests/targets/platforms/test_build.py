"""Building a target from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section, read_workspace
from proctor.model.case import Case, Suite
from proctor.targets.build import TYPES, build_target, check_cases, problems_with
from proctor.targets.platforms.http import HttpSettings

SOUND: dict[str, dict[str, Any]] = {
    "http": {"url": "http://127.0.0.1:9/chat"},
    "flowise": {"url": "http://127.0.0.1:9", "flow": "f"},
    "n8n": {"webhook": "http://127.0.0.1:9/webhook/x"},
    "command": {"command": ["cat"]},
    "callable": {"function": "tests.targets.functions:shout"},
    "recorded": {"evidence": "runs.jsonl"},
    "mcp_agent": {"model": "main", "servers": {}},
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_kind_is_built_from_its_settings_and_fits_any_case(kind: str) -> None:
    target = build_target("it", {"type": kind, **SOUND[kind]}, model_for=lambda tape: None)  # type: ignore[arg-type, return-value]
    assert target.name == "it"
    check_cases(target, Suite(name="s", cases=(Case(id="a", input="hi"),)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"<input>: target 'it' needs 'type'\n  at \$\.targets\.it\n  expected one of http, flowise"),
        ({"type": "htp"}, "unknown type \"htp\".*nearest: 'http'"),
        ({"type": 5}, "unknown type 5"),
        ({"type": "http"}, "target 'it' needs 'url'"),
        ({"type": "http", "url": "x", "headres": {}}, "nearest: 'headers'"),
        ({"type": "http", "url": "x"}, "url: expected an address such as"),
        ({"type": "http", "url": "http://[::1"}, "url: expected an address such as"),
        ({"type": "http", "url": "http://x:99999/"}, "url: expected an address such as"),
        ({"type": "http", "url": "http://x/{"}, "a lone '{' is not a placeholder"),
        ({"type": "http", "url": "http://x", "method": "P OST"}, "method: 'P OST' is not an HTTP method"),
        ({"type": "http", "url": "http://x", "timeout_s": 0}, "timeout_s: expected a number above 0"),
        ({"type": "http", "url": "http://x", "answer_format": "opanai"}, "answer_format: unknown format 'opanai'.*nearest: 'openai'"),
        ({"type": "http", "url": "http://x", "auth": {"type": "bearer"}}, "a bearer token is missing or empty"),
        ({"type": "http", "url": "http://x", "auth": {"token": "t"}}, "a token needs type bearer"),
        ({"type": "http", "url": "http://x", "auth": {"type": "headers"}}, "no headers are given"),
        ({"type": "http", "url": "http://x", "auth": {"headers": {"a": "b"}}}, "headers need type headers"),
        ({"type": "http", "url": "http://x", "auth": {"type": "headers", "headers": {"a b": "c"}}}, "the header 'a b' cannot be sent"),
        ({"type": "mcp_agent"}, "needs a model"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        build_target("it", settings)


def test_a_refused_token_and_settings_are_not_shown() -> None:
    references = References({"T": "very-secret\nvalue"})
    with pytest.raises(InputError) as caught:
        build_target("it", {"type": "http", "url": "http://x", "auth": {"type": "bearer", "token": "${T}"}}, references)
    assert "very-secret" not in str(caught.value)
    built = Section.of({"url": "http://u:very-secret@x", "auth": {"type": "bearer", "token": "very-secret"}}).build(
        HttpSettings, References({}), "it"
    )
    assert "very-secret" not in repr(built) and "very-secret" not in repr(built.auth)


def test_files_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    text = "targets: {it: {type: callable, function: 'next_to_the_workspace:answer'}}"
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match="cannot import 'next_to_the_workspace'"):
        build_target(*read_workspace(text, file=str(tmp_path / "elsewhere" / "proctor.yaml")).find_target(), base=tmp_path)


def test_a_target_without_a_case_check_accepts_every_case() -> None:
    assert problems_with(object(), [Case(id="a")]) == []


@pytest.mark.parametrize("page", ["test-an-http-agent", "test-n8n", "test-flowise"])
def test_the_target_of_the_guide_can_be_built(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    workspace = read_workspace(text.split("<!-- file: proctor.yaml -->\n```yaml\n")[1].split("```")[0], file=None)
    variables = dict.fromkeys(("SHOP_TOKEN", "N8N_API_KEY", "FLOWISE_KEY"), "a-secret-value")
    assert build_target(*workspace.find_target(), References(variables)).name in workspace.targets
