"""MCPLab's verdicts about final texts and JSONPath, for specs as its reader creates them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from proctor.checks.answer import json_path, text, text_pattern
from proctor.checks.registry import collect
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict
from tests.tables import rows

REGISTRY = collect([json_path, text, text_pattern])
DOCUMENT = {"a": None, "b": False, "c": [], "d": "", "e": 0, "f": {"g": [1, 2, {"h": 3}]}, "n": 1, "s": "1", "x.y": 5}
JSONPATH = {"syntax": "mcplab", "source": "text", "unfence": False, "scalars_only": True, "falsy_is_empty": True}
REGEX = {"flags": "i", "drop_inline_flags": True, "on_invalid": "fail"}


def decide(check: str, fields: dict[str, Any], answer: str) -> Verdict:
    spec = msgspec.convert(fields, REGISTRY.get(check).spec)
    return REGISTRY.prepare(check, spec)(Evidence(text=answer))


def explained(row: dict[str, Any]) -> None:
    assert row["original"] == row["expect"] or row.get("why"), "a difference from the original needs a reason"


@rows("conformance/mcplab/jsonpath.yaml")
def test_a_path_is_evaluated_as_in_mcplab(row: dict[str, Any]) -> None:
    explained(row)
    fields = {**row["given"], **JSONPATH}
    if row["expect"] == "load error":
        with pytest.raises(SpecError) as caught:
            decide("json_path", fields, "{}")
        assert caught.value.field == "path" and caught.value.offset is not None
    else:
        assert decide("json_path", fields, json.dumps(DOCUMENT)).outcome == row["expect"]


@rows("conformance/mcplab/final_text.yaml")
def test_a_final_text_is_read_as_in_mcplab(row: dict[str, Any]) -> None:
    explained(row)
    claims = {"root": {"path": "$"}, "exists": {"path": "$.a"}, "equals": {"path": "$.a", "equals": 1}}
    for name, claim in claims.items():
        verdict = decide("json_path", {**claim, **JSONPATH}, row["given"]["text"])
        if row["expect"][name] == "invalid JSON":
            assert (verdict.outcome, verdict.code) == ("fail", "not_json")
        else:
            assert (verdict.outcome, verdict.code) == (row["expect"][name], None)
    absent = decide("json_path", {"path": "$.a", "exists": False, **JSONPATH}, row["given"]["text"])
    assert absent.passed == (row["expect"]["exists"] == "fail")


def test_a_fenced_answer_is_named_in_the_hint() -> None:
    assert "fenced" in decide("json_path", {"path": "$", **JSONPATH}, '```json\n{"a":1}\n```').details["hint"]


@rows("conformance/mcplab/response_regex.yaml")
def test_a_pattern_is_searched_as_in_mcplab(row: dict[str, Any]) -> None:
    explained(row)
    verdict = decide("response_matches", {"pattern": row["given"]["pattern"], **REGEX}, row["given"]["text"])
    if row["expect"] == "invalid":
        assert (verdict.outcome, verdict.code) == ("fail", "invalid_pattern")
        assert verdict.reason.startswith("Invalid regex: ")
    else:
        assert (verdict.outcome, verdict.code) == (row["expect"], None)


@rows("conformance/mcplab/response_text.yaml")
def test_a_text_is_compared_as_in_mcplab(row: dict[str, Any]) -> None:
    explained(row)
    if row["expect"] == "load error":
        with pytest.raises(msgspec.ValidationError):
            decide(row["check"], row["given"], row["answer"])
    else:
        assert decide(row["check"], row["given"], row["answer"]).outcome == row["expect"]
