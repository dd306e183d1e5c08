"""Claims over documents that were once decided wrongly: a false refusal or a false green.

`claims` are checks with their fields, the outcome (or a list of allowed ones) and its `code`. `case` is the outcome of the whole case,
`refused` the code of a document that is not read.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import proctor
from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from tests.tables import rows

DECIDED = ("check", "outcome", "code")


@rows("evidence/cases/known.yaml")
def test_claims_are_decided_on_what_is_known(row: dict[str, Any]) -> None:
    if "refused" in row:
        with pytest.raises(EvidenceError) as refused:
            read_document(row["given"])
        assert refused.value.code == row["refused"]
        return
    claims = row["claims"]
    expect = [{claim["check"]: {key: value for key, value in claim.items() if key not in DECIDED}} for claim in claims]
    suite = proctor.parse_suite(json.dumps({"proctor": 1, "cases": [{"id": "only", "expect": expect}]}))
    [case] = proctor.check(suite, read_document(row["given"], format=row.get("format"))).cases
    wrong = [
        f"{claim['check']}: {verdict.outcome} ({verdict.code}), expected {claim['outcome']} ({claim.get('code')}): {verdict.reason}"
        for claim, verdict in zip(claims, case.verdicts, strict=True)
        if verdict.outcome not in claim["outcome"] or verdict.code != claim.get("code", verdict.code)
    ]
    assert not wrong, "\n".join(wrong)
    if "case" in row:
        assert case.outcome == row["case"], case.reason
