"""Claims about the shape of a JSON answer."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from proctor.checks.answer.json_schema import JsonSchema, compute_limits, json_schema, measure_depth, measure_size
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict
from tests.tables import rows


def decide(schema: Any, body: Any) -> Verdict:
    return json_schema(JsonSchema(schema=schema))(Evidence(body=body))


def nested(depth: int, leaf: Any = 1) -> Any:
    value = [leaf]
    for _ in range(depth - 1):
        value = [value]
    return value


@rows("checks/cases/json_schema.yaml")
def test_a_claim_by_schema_is_decided(row: dict[str, Any]) -> None:
    verdict = json_schema(msgspec.convert(row["given"], JsonSchema))(Evidence(body=row.get("body"), text=row.get("text")))
    assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code"))
    assert row.get("reason", "") in verdict.reason
    if "pointers" in row:
        assert list(verdict.pointers) == row["pointers"]


def test_a_pass_is_one_object_again_and_again() -> None:
    prepared = json_schema(JsonSchema(schema={"type": "integer"}))
    assert prepared(Evidence(body=1)) is prepared(Evidence(body=2))


@pytest.mark.parametrize(
    ("schema", "field", "message"),
    [
        ({"$ref": "http://example.com/x.json"}, "schema", '"http://example.com/x.json"'),
        ({"$ref": "file:///etc/passwd"}, "schema", '"file:///etc/passwd"'),
        ({"properties": {"a": {"$ref": "other.json#/a"}}}, "schema", '"other.json#/a"'),
        ({"$defs": {"never": {"$ref": "http://example.com/unused"}}}, "schema", "never fetched"),
        ({"$schema": "http://example.com/meta"}, "schema.$schema", '"http://example.com/meta"'),
        ({"$ref": "#/$defs/nope"}, "schema", "nope"),
        ({"type": "strin"}, "schema.type", "strin"),
        ({"properties": {"a": {"minimum": "1"}}}, "schema.properties.a.minimum", "not of type"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "schema.properties.a.pattern", "regex"),
        ({"pattern": "("}, "schema.pattern", "regex"),
        ({"const": "\ud800"}, "schema", "invalid schema"),
        (5, "schema", "found number 5"),
        (None, "schema", "found null"),
    ],
)
def test_a_schema_that_cannot_be_used_is_an_error_of_the_suite(schema: Any, field: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        json_schema(JsonSchema(schema=schema))
    assert caught.value.field == field
    assert message in caught.value.message


def doubling(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**definitions, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def test_a_schema_that_doubles_its_work_is_refused_before_it_is_used() -> None:
    assert decide(doubling(8), "x").passed
    with pytest.raises(SpecError, match="too many times over"):
        json_schema(JsonSchema(schema=doubling(40)))


def test_a_schema_that_doubles_its_work_with_the_depth_of_the_value_is_bounded() -> None:
    branches = {"anyOf": [{"items": {"$ref": "#"}, "minItems": 1, "type": "array"}, {"items": {"$ref": "#"}, "type": "array"}]}
    assert decide(branches, nested(5)).outcome == "fail"
    for body in (nested(12), [nested(8)] * 100):
        began = time.process_time()
        assert decide(branches, body).outcome == "fail"
        assert time.process_time() - began < 2
    with pytest.raises(CheckFault) as caught:
        decide(branches, nested(40))
    assert caught.value.code == "schema_limit"


def chain(levels: int) -> dict[str, Any]:
    step = {f"c{i}": {"allOf": [{"properties": {"a": {"$ref": f"#/$defs/c{i + 1}"}}}] * 2} for i in range(levels)}
    return {"$defs": {**step, f"c{levels}": {"type": "string"}}, "$ref": "#/$defs/c0"}


def test_doubling_through_children_is_bounded_too() -> None:
    value: Any = "x"
    for _ in range(40):
        value = {"a": value}
    with pytest.raises(CheckFault) as caught:
        decide(chain(40), value)
    assert caught.value.code == "schema_limit"
    assert decide(chain(40), {"a": {"a": {}}}).passed


def test_large_values_are_refused_where_the_schema_multiplies_them() -> None:
    with pytest.raises(CheckFault) as caught:
        decide({"items": doubling(12)["$defs"]["d0"], "$defs": doubling(12)["$defs"]}, ["x"] * 50_000)
    assert caught.value.code == "schema_limit"


def test_a_value_nested_thousands_deep_is_a_fault_and_no_crash() -> None:
    recursive = {"type": "array", "items": {"$ref": "#"}}
    assert decide(recursive, nested(90, [])).passed
    for depth in (300, 100_000):
        with pytest.raises(CheckFault) as caught:
            decide(recursive, nested(depth))
        assert caught.value.code == "schema_limit"
    assert decide({"type": "array"}, nested(100_000)).passed
    assert decide({"type": "object"}, nested(100_000)).outcome == "fail"


def test_a_deep_or_long_schema_is_an_error_and_no_crash() -> None:
    deep: Any = {"type": "string"}
    for _ in range(5_000):
        deep = {"not": deep}
    items: Any = {}
    for _ in range(5_000):
        items = {"items": items}
    references = {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(3_000)}, "$ref": "#/$defs/d0"}
    for schema in (deep, items, references):
        with pytest.raises(SpecError):
            json_schema(JsonSchema(schema=schema))


def test_circles_of_references_end() -> None:
    assert decide({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1).outcome in ("pass", "fail")


def test_many_errors_are_not_collected_one_by_one() -> None:
    began = time.process_time()
    verdict = decide({"items": {"type": "string"}}, list(range(200_000)))
    assert verdict.outcome == "fail" and "too large to locate" in verdict.reason
    assert time.process_time() - began < 2


def test_text_that_is_no_unicode_is_a_fault() -> None:
    with pytest.raises(CheckFault) as caught:
        decide({"type": "string"}, "\ud800")
    assert caught.value.code == "schema_limit"


def test_the_limits_of_ordinary_schemas_do_not_bite() -> None:
    assert compute_limits({"type": "object", "properties": {"a": {"type": "string"}}}).deepest is None
    assert compute_limits({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}).deepest == 100
    assert compute_limits({"$dynamicAnchor": "node", "properties": {"children": {"items": {"$dynamicRef": "#node"}}}}).deepest == 100
    assert compute_limits({"$defs": {"a%25/b": {"items": {"$ref": "#/$defs/a%2525~1b"}}}, "$ref": "#/$defs/a%2525~1b"}).deepest == 100
    assert compute_limits({"$defs": {"n": {"$id": "node.json", "items": {"$ref": "node.json"}}}, "$ref": "node.json"}).deepest == 100
    tree = {"items": {"$ref": "#/$defs/n"}}
    assert compute_limits({"$id": "https://example.com/tree", "$defs": {"n": tree}, "$ref": "#/$defs/n"}).deepest == 100
    assert compute_limits({"$id": "https://example.com/tree", "items": {"$ref": "#"}}).deepest == 100
    assert compute_limits({"$defs": {"n": {"$anchor": "node", "items": {"$ref": "#node"}}}, "$ref": "#node"}).deepest == 100
    assert compute_limits({"definitions": [{"items": {"$ref": "#/definitions/0"}}], "$ref": "#/definitions/0"}).deepest == 100


def test_depth_and_size_are_counted_no_further_than_needed() -> None:
    assert [measure_depth(value, 10) for value in (1, [], [1], [[1]], {"a": [{}]}, nested(50))] == [0, 1, 1, 2, 3, 11]
    assert [measure_size(value, 100) for value in (1, [], [1, 2], {"a": [1, {}]})] == [1, 1, 3, 4]
    assert measure_size([[0] * 1_000] * 1_000, 100) < 3_000


@pytest.mark.parametrize("reference", ["#", "#/$defs/again"])
def test_a_reference_inside_of_a_resource_counts_from_there(reference: str) -> None:
    inner: dict[str, Any] = {"$id": "child", "properties": {"a": {"allOf": [{"$ref": reference} for _ in range(10)]}}}
    inner["$defs"] = {"again": {"$ref": "child"}}
    limits = compute_limits({"$id": "https://example.com/root", "properties": {"x": {"$ref": "child"}}, "$defs": {"c": inner}})
    # Ten times as much at every level, and not at every second.
    assert limits.deepest is not None
    assert limits.deepest <= 5
