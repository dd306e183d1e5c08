"""The 13 predicates, read from a document and decided on evidence, against the results of the original."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import InputError
from tests.formats.mcpjam_documents import decide, read_document
from tests.tables import load, rows


def spelled_out(evidence: dict[str, Any]) -> dict[str, Any]:
    kind, _, count = evidence.get("text", "").partition(" ")
    if kind == "LONG":
        return {"text": "x" * int(count)}
    if kind == "ASTRAL":
        return {"text": "\U0001f600" * (int(count) - 1) + "xx"}
    return evidence


@rows("conformance/mcpjam/predicates.yaml")
def test_a_predicate_gives_the_expected_verdict(row: dict[str, Any]) -> None:
    document = [{"id": "c", "prompt": "p", "predicates": [row["given"]["predicate"]]}]
    if row["expect"] == "load_error":
        with pytest.raises(InputError) as caught:
            read_document(document)
        [problem] = [problem for problem in caught.value.problems if problem.level == "error"]
        assert problem.origin.line and problem.origin.path.startswith("$[0].predicates[0]")
        return
    [case] = read_document(document).cases
    [verdict] = decide(case, spelled_out(row["given"]["evidence"]))
    assert verdict.outcome == row["expect"], verdict.reason
    if "code" in row:
        assert verdict.code == row["code"]


def test_every_predicate_type_has_a_passing_and_a_failing_row() -> None:
    from proctor.formats.mcpjam.predicates import PREDICATES

    seen = {(row["given"]["predicate"].get("type"), row["expect"]) for row in load("conformance/mcpjam/predicates.yaml")}
    assert {(kind, outcome) for kind in PREDICATES for outcome in ("pass", "fail")} <= seen


def test_every_difference_from_the_original_has_a_reason() -> None:
    for row in load("conformance/mcpjam/predicates.yaml"):
        assert (row["original"] != row["expect"]) is bool(row.get("why")), row["id"]
