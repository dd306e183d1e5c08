"""What attacks on the evidence rule found: side fields that were refused, and claims that passed on data that was never seen."""

from __future__ import annotations

import json
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
def test_no_claim_passes_on_what_was_never_seen(row: dict[str, Any]) -> None:
    try:
        found = decide(row["claims"], row["given"], mapping=row.get("map"), complete=tuple(row.get("complete", ())))
    except EvidenceError:
        return
    assert not {claim: outcome for claim, outcome in found.items() if outcome.startswith("pass")}
