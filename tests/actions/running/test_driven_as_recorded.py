"""An answer in our own format is decided alike, whether recorded in a file or returned by a driven agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.model.account import PLAIN_READERS
from proctor.targets.answers import no_answer
from proctor.targets.local import callable as functions
from proctor.targets.local import command

CLAIMS = (
    "no_tool_errors",
    "no_tools_called",
    "tool_called: lookup",
    "tool_not_called: refund",
    'that: "tool_calls[*].error == null"',
    'that: "all(tool_calls[*].error == null)"',
    "that: \"not any(tool_calls[*].name == 'refund')\"",
    "that: \"model != 'large'\"",
    "response_not_contains: no",
    "tokens_within: {total: 5}",
)
SUITE = "proctor: 1\ncases:\n  - id: a\n    input: hi\n    expect:\n" + "".join(f"      - {claim}\n" for claim in CLAIMS)
ANSWERS: tuple[dict[str, Any], ...] = (
    {"text": "hi"},
    {"text": "hi", "tool_calls": None},
    {"text": "hi", "tool_calls": []},
    {"text": "hi", "tool_calls": [{"name": "lookup"}]},
    {"text": "hi", "tool_calls": [{"name": "lookup", "arguments": {"id": 17}, "result": None}]},
    {"text": "hi", "tool_calls": [{"name": "lookup", "result": "on its way"}, {"name": "lookup"}]},
    {"text": "hi", "tool_calls": [{"name": "lookup", "success": True}]},
    {"text": "hi", "tool_calls": [{"name": "lookup", "error": "down"}]},
)


@pytest.mark.parametrize("answer", ANSWERS, ids=json.dumps)
def test_an_answer_in_our_format_is_decided_alike(answer: dict[str, Any], tmp_path: Path) -> None:
    suite = proctor.parse_suite(SUITE)
    (tmp_path / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    program = {"type": "command", "command": ["cat", str(tmp_path / "answer.json")]}
    results = {
        "recorded": proctor.check(suite, {"case": "a", **answer}),
        "function": proctor.run(suite, target=lambda message: answer, home=tmp_path / "function"),
        "program": proctor.run(suite, target=program, home=tmp_path / "program"),
    }
    verdicts = {source: [(one.outcome, one.code) for one in result.cases[0].verdicts] for source, result in results.items()}
    assert verdicts["function"] == verdicts["recorded"]
    assert verdicts["program"] == verdicts["recorded"]


@pytest.mark.parametrize("reader", [functions.READER, command.READER, no_answer.READER])
def test_readers_of_our_format_are_marked_as_such(reader: str) -> None:
    assert reader in PLAIN_READERS
