"""`convert`: the converted suite, what is dropped, and what a dialect cannot express."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import proctor as package
from proctor.actions.checking.convert import FORMATS, convert
from proctor.errors import InputError
from tests.actions.mcplab.test_mcplab_command import model_server
from tests.actions.mcplab_world import CONFIG, workspace
from tests.integration.running import proctor
from tests.targets.mcp_twins import http_shop

JUDGED = CONFIG.replace("    extract:", "      agent_assertions: [{label: kind, prompt: Is it kind?}]\n    extract:", 1)


def test_a_converted_mcplab_config_runs_instead_of_the_workspace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "agent.py").write_text("def other(message):\n    raise AssertionError('driven')\n")
    (here / "proctor.yaml").write_text('targets: {other: {type: callable, function: "agent:other"}}\n')
    with http_shop() as (url, gate), model_server() as model:
        gate.accepted = {"Bearer shop-token"}
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model}/v1")
        monkeypatch.setenv("SHOP_TOKEN", "shop-token")
        config = workspace(tmp_path / "mcplab", url, auth=", auth: {type: bearer, env: SHOP_TOKEN}")
        assert proctor("convert", config, "--output", "suite.yaml").code == 0
        done = proctor("run", "suite.yaml", "--quiet")
    assert done.code == 0 and "2 passed" in done.out, done


def test_agents_servers_and_the_judge_of_mcplab_become_targets_models_and_a_judge(tmp_path: Path) -> None:
    config = workspace(tmp_path, "http://127.0.0.1:9", config=JUDGED)
    (tmp_path / ".mcplab-app-settings.yaml").write_text("evaluation_judge_agent_name: mini\n")
    text, problems = convert(config)
    settings = package.parse_suite(text).settings
    assert settings["targets"]["gpt"] == {
        "type": "mcp_agent",
        "model": "gpt",
        "system": "You are the shop's clerk.",
        "temperature": 0,
        "tool_errors": "json",
        "unknown_tools": "end",
        "servers": {"shop": {"transport": "http", "url": "http://127.0.0.1:9/mcp", "era": "handshake"}},
    }
    assert list(settings["targets"]) == ["gpt", "mini"] and settings["default_target"] == "gpt"
    assert settings["models"]["mini"] == {"provider": "openai", "model": "mini-test"} and settings["judge"] == {"model": "mini"}
    assert "settings" not in settings and [problem.code for problem in problems] == ["not_written"] * 2, (
        "the browser, and one target of two"
    )
    (tmp_path / ".mcplab-app-settings.yaml").unlink()
    assert any("no judge is written" in problem.message for problem in convert(config)[1])


@pytest.mark.parametrize(
    ("auth", "written"),
    [
        ({"type": "bearer", "env": "T"}, {"type": "bearer", "token": "${T}"}),
        ({"type": "bearer", "token": "a ${T}"}, {"type": "bearer", "token": "a $${T}"}),
        ({"type": "api_key", "value": "${T}", "header_name": "X"}, {"type": "api_key", "value": "${T}", "header_name": "X"}),
        (
            {"type": "oauth_client_credentials", "token_url": "http://t", "client_id_env": "I", "client_secret_env": "S", "scope": "a"},
            {"type": "oauth_client_credentials", "token_url": "http://t", "client_id": "${I}", "client_secret": "${S}", "scope": "a"},
        ),
        ({"type": "oauth_authorization_code"}, None),
    ],
)
def test_an_mcplab_login_is_written_or_reported_as_dropped(tmp_path: Path, auth: dict[str, Any], written: Any) -> None:
    text, problems = convert(
        workspace(tmp_path, "http://127.0.0.1:9", auth=f", auth: {auth}", agents="gpt: {provider: openai, model: m}\n")
    )
    assert package.parse_suite(text).settings["targets"]["gpt"]["servers"]["shop"].get("auth") == written
    assert any("login" in problem.message for problem in problems) == (written is None)


SUITE = """\
proctor: 1
name: s
targets: {shop: {type: http, url: "http://127.0.0.1:9"}}
cases:
  - id: a
    input: hi
    repeat: 3
    expect:
      - tool_called: search
      - responded_within: 10
"""
LOST = {
    "mcplab": [(5, "repetitions"), (10, "responded_within")],
    "mcpjam": [(10, "responded_within")],
    "mibo": [(5, "repetitions"), (9, "tool_called")],
    "verial": [(5, "repetitions, scoring"), (9, "tool_called"), (10, "responded_within")],
}


@pytest.mark.parametrize("dialect", LOST)
def test_inexpressible_parts_are_listed_with_their_place(tmp_path: Path, dialect: str) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    with pytest.raises(InputError) as caught:
        convert(tmp_path / "suite.yaml", to=dialect)
    errors = [problem for problem in caught.value.problems if problem.level == "error"]
    assert [problem.origin.line for problem in errors] == [line for line, _ in LOST[dialect]]
    assert all(word in problem.message for problem, (_, word) in zip(errors, LOST[dialect], strict=True))
    assert any("target" in problem.message for problem in caught.value.problems if problem.level == "warning")
    done = proctor("convert", tmp_path / "suite.yaml", "--to", dialect)
    assert (done.code, done.out) == (4, "") and f"suite.yaml:{LOST[dialect][0][0]}:" in done.err


EXAMPLES = {"mcplab": "orders.yaml", "mcpjam": "calculator.yaml", "mibo": "calculator.json", "verial": "appointment.json"}


@pytest.mark.parametrize("dialect", FORMATS[1:])
def test_the_example_of_a_dialect_survives_a_round_trip(tmp_path: Path, dialect: str) -> None:
    example = Path(package.__file__).parent / "examples" / dialect / EXAMPLES[dialect]
    (tmp_path / "native.yaml").write_text(convert(example)[0])
    text, _ = convert(tmp_path / "native.yaml", to=dialect)
    (tmp_path / "back").write_text(text)
    (tmp_path / "again.yaml").write_text(convert(tmp_path / "back", dialect=dialect)[0])
    assert convert(tmp_path / "again.yaml", to=dialect)[0] == text


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    with pytest.raises(InputError):
        convert(tmp_path / "suite.yaml", to="mcpjamm")
