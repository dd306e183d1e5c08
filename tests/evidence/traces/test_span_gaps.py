"""Traces without all of a run: what an instrumentation omits, truncates or writes in an unknown form."""

from __future__ import annotations

from typing import Any

from proctor.evidence.otlp.spans import Span, read_span
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.traces.survey import survey_trace
from tests.evidence.test_readers import at, plain_form
from tests.evidence.traces.test_traces import outcome_of
from tests.tables import rows


def spans_in(row: dict[str, Any]) -> list[Span]:
    """The spans of a row: each lies in the one that it names, in the order of the table."""
    found: list[Span] = []
    for place, fields in enumerate(row["spans"]):
        entry = {
            "trace_id": "t",
            "span_id": fields.get("id", f"s{place}"),
            "parent_span_id": fields.get("in"),
            "name": fields["name"],
            "start_time_unix_nano": 1_000 + place * 10,
            "end_time_unix_nano": 1_000 + place * 10 + takes if (takes := fields.get("takes", 5)) else None,
            "attributes": fields.get("attributes", {}),
            "events": fields.get("events", []),
            "status": fields.get("status", {}),
            "kind": fields.get("kind", 1),
        }
        found.append(read_span(entry, f"spans[{place}]", scope=fields.get("scope", "shop")))
    return found


@rows("evidence/cases/span_gaps.yaml")
def test_no_check_decides_gaps_of_a_trace(row: dict[str, Any]) -> None:
    spans = spans_in(row)
    evidence = build_evidence(spans)
    claims = row["claims"]
    assert [{**claim, "is": outcome_of(claim, evidence)} for claim in claims] == claims
    document = plain_form(evidence)
    assert {path: at(document, path) for path in row.get("expect", {})} == row.get("expect", {})
    assert evidence.account is not None and evidence.account.unknown.keys() >= set(row.get("unknown", ())), evidence.account
    survey = survey_trace(spans)
    assert set(row.get("not_understood", [])) <= {*(entry.name for entry in survey.not_understood), *survey.strange}
