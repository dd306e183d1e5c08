"""Whole MCPLab suites decided on recorded runs, compared with the verdicts of MCPLab itself."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
import pytest

import proctor
from proctor.checks.registry import default_registry
from proctor.errors import CheckFault, InputError
from proctor.formats.mcplab import suite as mcplab
from proctor.formats.mcplab.library import Library, LibraryDocument, read_library
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Reading
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence
from tests.tables import load, rows

FILES = ("conformance/mcplab_suites/documentation.yaml", "conformance/mcplab_suites/vectors.yaml")
SAME = {"passed": "pass", "failed": "fail", "load error": "load error"}


def opened(text: str, file: str) -> LibraryDocument:
    reading = Reading(file=file, text=text)
    return LibraryDocument(read_text(text, file=file, reading=reading), reading)


def library_of(given: dict[str, Any] | None) -> Library | None:
    if given is None:
        return None
    return read_library(
        servers=opened(given["servers"], "servers.yaml"),
        agents=opened(given["agents"], "agents.yaml"),
        scenarios=[opened(text, f"test-cases/{number}.yaml") for number, text in enumerate(given["scenarios"])],
    )


def case_of(row: dict[str, Any]) -> Case:
    text = row.get("suite") or f"id: only\nprompt: hi\neval:\n{textwrap.indent(row['eval'], '  ')}\n"
    suite_file = opened(text, "suite.yaml")
    assert suite_file.document is not None
    assert mcplab.sniff(suite_file.document)
    suite = mcplab.read(suite_file.document, suite_file.reading, name="suite", library=library_of(row.get("library")))
    suite_file.reading.finish()
    return next(case for case in suite.cases if case.id == row.get("case", case.id))


def outcome(assertion: Assertion, evidence: Evidence) -> str:
    try:
        return default_registry().prepare(assertion.check, assertion.spec)(evidence).outcome
    except CheckFault:
        return "error"


def decide(row: dict[str, Any]) -> Any:
    evidence = msgspec.convert(row["given"], Evidence)
    try:
        case = case_of(row)
    except InputError:
        return "load error"
    return [outcome(assertion, evidence) for assertion in case.assertions]


@rows(FILES[0])
def test_a_documented_example_is_decided(row: dict[str, Any]) -> None:
    assert decide(row) == row["expect"]


@rows(FILES[1])
def test_a_vector_is_decided(row: dict[str, Any]) -> None:
    assert decide(row) == row["expect"]


@rows("conformance/mcplab_suites/browser.yaml")
def test_a_browser_agent_recording_is_judged_on_what_it_shows(row: dict[str, Any]) -> None:
    agents = "agents: [{id: gpt, provider: openai, model: m}, {id: page, type: browser, provider: claude, url: 'https://chat.example'}]"
    rules = textwrap.indent(row["eval"], "      ")
    suite = proctor.parse_suite(f"{agents}\nscenarios:\n  - id: only\n    prompt: hi\n    eval:\n{rules}\n")
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    messages.append({"role": "assistant", "content": [{"type": "text", "text": row["given"]["text"]}]})
    about = {"type": "scenario_run", "scenario_id": "only", "agent": row["given"]["agent"], "model": row["given"]["model"]}
    result = proctor.check(suite, {**about, "messages": messages})
    assert [verdict.code or verdict.outcome for verdict in result["only"].verdicts] == row["expect"]
    unseen = [verdict for verdict in result["only"].verdicts if verdict.code == "missing_evidence"]
    assert not any(verdict.passed for verdict in unseen) and all("chat page in a browser" in verdict.reason for verdict in unseen)


@pytest.mark.parametrize("file", FILES)
def test_exactly_the_rows_that_differ_from_the_original_have_a_reason(file: str) -> None:
    for row in load(file):
        original, expect = row["original"], row["expect"]
        agrees = [SAME.get(word) for word in original] == expect if isinstance(original, list) else SAME.get(original) == expect
        assert agrees != ("why" in row), row["id"]
