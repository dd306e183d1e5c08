"""Traces of real frameworks that are easily misread: the outcome of checks, and never a pass on unseen parts."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.checks.registry import default_registry
from proctor.evidence.otlp.spans import read_trace_groups
from proctor.evidence.reading import read_document
from proctor.model.evidence import Evidence
from tests.evidence.test_readers import SAMPLES, at, plain_form
from tests.tables import rows

REGISTRY = default_registry()


def evidence_in(row: dict[str, Any]) -> Evidence:
    """The run that a row is about."""
    requests = msgspec.json.decode((SAMPLES / "traces" / f"{row['file']}.json").read_bytes())
    return read_document(requests)[row.get("trace", 0)]


def outcome_of(claim: dict[str, Any], evidence: Evidence) -> str:
    fields = {key: value for key, value in claim.items() if key not in ("check", "is")}
    name = claim["check"]
    return REGISTRY.prepare(name, msgspec.convert(fields, REGISTRY.get(name).spec))(evidence).outcome


@rows("evidence/cases/traces.yaml")
def test_a_trace_that_is_easily_misread_is_judged_right(row: dict[str, Any]) -> None:
    evidence = evidence_in(row)
    claims = row.get("claims", [])
    assert [{**claim, "is": outcome_of(claim, evidence)} for claim in claims] == claims
    document = plain_form(evidence)
    assert {path: at(document, path) for path in row.get("expect", {})} == row.get("expect", {})


def test_empty_groups_of_a_request_are_left_out() -> None:
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "chat"}
    request: dict[str, Any] = {"resourceSpans": [{}, {"scopeSpans": [{"spans": [span]}]}, None, {}]}
    (group,) = read_trace_groups(request)
    assert [read.name for read in group.spans] == ["chat"]
