"""Claims about a JSON answer by path."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.checks.answer.json_path import JsonPath, json_path
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict
from tests.tables import rows


def decide(fields: dict[str, Any], **seen: Any) -> Verdict:
    return json_path(msgspec.convert(fields, JsonPath))(Evidence(**seen))


@rows("checks/cases/json_path.yaml")
def test_a_claim_by_path_is_decided(row: dict[str, Any]) -> None:
    verdict = decide(row["given"], body=row.get("body"), text=row.get("text"))
    assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code"))
    assert row.get("reason", "") in verdict.reason


def test_a_failure_points_to_where_the_document_was() -> None:
    assert decide({"path": "$.z"}, body={}).pointers == ("$.body",)
    assert decide({"path": "$.z"}, text="{}").pointers == ("$.text",)


def test_a_pass_is_one_object_again_and_again() -> None:
    prepared = json_path(JsonPath(path="$.a"))
    assert prepared(Evidence(body={"a": 1})) is prepared(Evidence(text='{"a": 2}'))


def test_a_bad_path_is_an_error_of_the_suite_with_its_place() -> None:
    with pytest.raises(SpecError) as caught:
        json_path(JsonPath(path="$.a["))
    assert (caught.value.field, caught.value.offset) == ("path", 4)


def test_equals_with_exists_false_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        json_path(JsonPath(path="$.a", equals=1, exists=False))
    assert caught.value.field == "exists"


def test_hostile_json_is_a_fault_and_no_crash() -> None:
    for text in ("[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "9" * 5_000):
        with pytest.raises(CheckFault) as caught:
            decide({"path": "$.a"}, text=text)
        assert caught.value.code == "json_limit"


def test_a_deeply_nested_body_is_walked() -> None:
    value: Any = {"leaf": 1}
    for _ in range(20_000):
        value = [value]
    assert decide({"path": "$..leaf", "equals": 1}, body=value).passed
    assert decide({"path": "$..leaf", "equals": 2}, body=value).outcome == "fail"
    assert decide({"path": "$.leaf"}, body=value).outcome == "fail"
