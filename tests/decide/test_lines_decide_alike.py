"""A line that is decoded in one step is decided as its document is by every check, and nothing passes that was not recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.actions.workspace.custom_checks import registry_of
from proctor.checks.registry import Registry, default_registry
from proctor.checks.shared.custom_checks import read_own_check
from proctor.decide.prepare import PreparedCase, decide_guarded
from proctor.evidence.plain.fast_lines import decode_line
from proctor.evidence.reading import read_document
from proctor.formats.suites import read_suite
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult

DOCUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"text": "hi"},
    {"text": '{"a": 1}'},
    {"text": "hi", "tool_calls": []},
    {"text": "hi", "tool_calls": [{"name": "search", "arguments": {"q": "shoes"}, "result": {"a": 1}}]},
    {"text": "hi", "tool_calls": [{"name": "search"}]},
    {"text": "hi", "tool_calls": [{"name": "search", "error": "down"}]},
    {"text": "hi", "usage": {"input_tokens": 5}},
    {"text": "hi", "http_status": 200, "duration_ms": 10, "model": "small"},
    {"text": "hi", "body": {"a": 1}},
    {"text": "hi", "error": "the model went away"},
)
CONDITIONS = (
    "all(tool_calls[*].arguments.amount < 100)",
    "not any(tool_calls[*].name == 'refund')",
    "text != 'no'",
    "model != 'large'",
    "http_status != 500",
    "usage.output_tokens != 3",
    "tool_calls[0].result != 'no'",
    "tool_calls[0].duration_ms != 3",
    "len(tool_calls[*].result) == 0",
    "nodes != []",
)


def make_case(claim: str) -> Case:
    lines = claim.splitlines()
    expect = "\n".join([f"      - {lines[0]}", *(f"        {line}" for line in lines[1:])])
    return read_suite(f"proctor: 1\ncases:\n  - id: a\n    expect:\n{expect}\n", file="suite.yaml").cases[0]


def list_claims(registry: Registry) -> list[str]:
    examples = [registry.get(name).example for name in registry.list_names()]
    return [*filter(None, examples), *(f"that: {json.dumps(condition)}" for condition in CONDITIONS)]


def read_verdicts(result: CaseResult) -> list[tuple[str, str | None, str]]:
    return [(verdict.outcome, verdict.code, verdict.reason) for verdict in result.verdicts]


@pytest.mark.parametrize("document", DOCUMENTS, ids=json.dumps)
def test_a_line_is_decided_as_its_document(document: dict[str, Any]) -> None:
    line, (read,) = decode_line(json.dumps(document).encode()), read_document(document)
    assert line is not None, "this document does not show what the test is about"
    claims = list_claims(default_registry())
    assert len(claims) > 60
    for claim in claims:
        prepared = PreparedCase(make_case(claim), default_registry())
        wanted = read_verdicts(prepared.decide(read))
        assert read_verdicts(prepared.decide(line)) == wanted, claim
        assert read_verdicts(prepared.make_quick_decision()(line, None, 0, None)) == wanted, claim


@pytest.mark.parametrize("field", ["text", "tool_calls", "usage", "model", "http_status", "duration_ms", "body", "state", "turns"])
def test_a_custom_check_sees_which_parts_a_line_did_not_record(field: str) -> None:
    def looks(evidence: Evidence) -> bool:
        return getattr(evidence, field) != "no"

    line = decode_line(b"{}")
    assert line is not None
    entry = read_own_check(looks)
    verdict = decide_guarded(registry_of([looks]).prepare(entry.name, entry.spec()), line)
    assert (verdict.outcome, verdict.code) == ("error", "missing_evidence")
