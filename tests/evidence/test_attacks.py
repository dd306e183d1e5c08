"""Findings of attacks on the evidence rule: refused side fields, and claims that passed on unseen data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import proctor
from proctor.errors import EvidenceError
from tests.tables import rows

RECORD = {"input": "Where is order 17?", "text": "Order 17 was shipped.", "tool_calls": []}
CLAIMS = ["no_tools_called", {"response_contains": "shipped"}, {"response_not_contains": "zebra"}]


def decide(claims: list[Any], given: Any, **how: Any) -> dict[str, str]:
    suite = proctor.parse_suite(json.dumps({"proctor": 1, "cases": [{"id": "17", "expect": claims}]}))
    [case] = proctor.check(suite, [proctor.read_evidence(given, **how)]).cases
    if case.outcome != "pass" and case.code is not None:
        return {str(claim): f"{case.outcome}: {case.reason}" for claim in claims}
    return {str(claim): f"{verdict.outcome}: {verdict.reason}" for claim, verdict in zip(claims, case.verdicts, strict=True)}


@rows("evidence/cases/side_fields.yaml")
def test_a_field_next_to_a_whole_record_changes_nothing(row: dict[str, Any]) -> None:
    wrong = {claim: found for claim, found in decide(CLAIMS, {**RECORD, **row["add"]}).items() if not found.startswith("pass")}
    assert not wrong


@rows("evidence/cases/never_seen.yaml")
def test_no_claim_passes_on_what_was_never_seen(row: dict[str, Any], tmp_path: Path) -> None:
    # As a document and as a line of a file, which has its own reader.
    line = tmp_path / "line.jsonl"
    line.write_text(json.dumps(row["given"]) + "\n")
    for given in (row["given"], line):
        try:
            found = decide(row["claims"], given, mapping=row.get("map"), complete=tuple(row.get("complete", ())))
        except EvidenceError:
            continue
        assert not {claim: outcome for claim, outcome in found.items() if outcome.startswith("pass")}
