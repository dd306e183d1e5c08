"""Warnings before a run about targets that lose conversations: one per target, none for a suite without turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.actions.running.run import RunOptions, drive, list_risks
from proctor.checks.registry import default_registry
from proctor.formats.text.references import References
from proctor.model.case import Suite
from proctor.processes.threads import wait_for_end
from proctor.runner.ports import Target
from proctor.targets.build import build_target
from proctor.targets.local.callable import CallableTarget

TURNS = proctor.parse_suite("proctor: 1\ncases: [{id: one, input: hi}, {id: two, turns: [hi, ho], expect: [{turns_within: 2}]}]")
USER = proctor.parse_suite("proctor: 1\ncases: [{id: two, user: {script: [hi, ho]}, expect: [{turns_within: 2}]}]")
SINGLE = proctor.parse_suite(
    "proctor: 1\ncases: [{id: one, input: hi}, {id: two, turns: [hi]}, {id: three, turns: [hi, ho], skip: not yet}]"
)


def list_warnings(target: Target, suite: Suite = TURNS) -> list[str]:
    return list_risks([(target, suite)], default_registry())


def http(**settings: Any) -> Target:
    return build_target("shop", {"type": "http", "url": "http://127.0.0.1:1/chat", **settings}, References({}))


@pytest.mark.parametrize("suite", [TURNS, USER], ids=["turns", "user"])
def test_an_http_agent_without_a_conversation_id_is_reported(suite: Suite) -> None:
    (line,) = list_warnings(http(), suite)
    assert line.startswith("warning: target 'shop' cannot separate conversations: it is sent neither {session_id} nor {messages}")
    assert "earlier turns of 'two'" in line


@pytest.mark.parametrize(
    "settings",
    [
        {"template": {"input": "{input}", "session": "{session_id}"}},
        {"template": {"messages": "{messages}"}},
        {"headers": {"X-Session": "{session_id}"}},
        {"url": "http://127.0.0.1:1/chat/{session_id}"},
    ],
    ids=str,
)
def test_an_http_agent_with_a_conversation_id_is_not_reported(settings: dict[str, Any]) -> None:
    assert list_warnings(http(**settings)) == []


def test_single_message_cases_need_no_conversation_id() -> None:
    assert list_warnings(http(), SINGLE) == []


def test_functions_without_a_conversation_parameter_are_reported() -> None:
    def forgets(message: str, context: Any) -> str:
        return message

    def by_session(message: str, session_id: str) -> str:
        return message

    def by_history(message: str, history: Any) -> str:
        return message

    def takes_all(message: str, **offered: Any) -> str:
        return message

    (line,) = list_warnings(CallableTarget("shop", forgets))
    assert "forgets() takes neither session_id nor history" in line
    assert [list_warnings(CallableTarget("shop", function)) for function in (by_session, by_history, takes_all)] == [[], [], []]


def test_every_target_of_a_matrix_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("def one(message): return message\ndef two(message, history): return message\n", encoding="utf-8")
    targets = "".join(f"  {name}: {{type: callable, function: 'agents:{name}'}}\n" for name in ("one", "two"))
    (tmp_path / "proctor.yaml").write_text(f"targets:\n{targets}", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text(
        "proctor: 1\nmatrix: {target: [one, two]}\n"
        "cases: [{id: a, turns: [hi, ho], expect: [{turns_within: 2}]}, {id: b, turns: [hi, ho], expect: [{turns_within: 2}]}]\n",
        encoding="utf-8",
    )
    lines: list[str] = []
    options = RunOptions(announce=lines.append)
    wait_for_end(lambda: drive(tmp_path / "suite.yaml", options, home=tmp_path / ".proctor"), called="drive", instead="drive")
    assert [line.partition(" cannot")[0] for line in lines] == ["warning: target 'one'"]
