"""Cases of schemas, workflows and OpenAPI documents."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.generating import generate_documents
from proctor.cli.main import run
from proctor.formats.suites import read_suite
from proctor.formats.text.yaml_text import to_yaml
from proctor.generation.schema_cases import SchemaValues, make_openapi_cases, make_tool_cases, pair_up
from proctor.generation.workflow_cases import Workflow, choose_output, make_workflow_cases, read_field, read_workflow
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.rest.app import make_app
from proctor.rest.settings import ServeSettings
from proctor.service.settings import ServiceSettings
from proctor.targets.mcp.settings import ServerSettings

ROOT = Path(__file__).parents[2]

KEYWORDS = frozenset(
    (
        *("type", "enum", "const", "default", "examples", "properties", "required", "additionalProperties", "items", "$ref", "allOf"),
        *("anyOf", "oneOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "format", "minItems", "maxItems", "uniqueItems", "nullable"),
    )
)
RULES = {
    "minimum": ({"type": "integer", "minimum": 3}, [3, 4], [2]),
    "maximum": ({"type": "integer", "maximum": 3}, [3, 2], [4]),
    "exclusiveMinimum": ({"type": "integer", "exclusiveMinimum": 3}, [4], [3, 2]),
    "exclusiveMaximum": ({"type": "number", "exclusiveMaximum": 3}, [2.5], [3, 3.5]),
    "multipleOf": ({"type": "integer", "multipleOf": 5}, [10], [12.5]),
    "minLength": ({"type": "string", "minLength": 3}, ["tex", "text"], ["te"]),
    "maxLength": ({"type": "string", "maxLength": 3}, ["tex", "te"], ["text"]),
    "minItems": ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [[1, 1], [1, 1, 1]], [[1]]),
    "maxItems": ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [[1, 1], [1]], [[1, 1, 1]]),
    "uniqueItems": ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [[1]], [[1, 1]]),
    "enum": ({"enum": ["a", "b"]}, ["a", "b"], ["no such value"]),
    "const": ({"const": 7}, [7], ["no such value"]),
    "pattern": ({"type": "string", "pattern": "^[A-Z]{3}-[0-9]{3}$"}, ["ABC-123"], ["\u0000 no match"]),
    "type": ({"type": "boolean"}, [True, False], ["text"]),
    "format": ({"type": "string", "format": "email"}, ["ada@example.org"], [1]),
    "default": ({"type": "string", "default": "home"}, ["home"], [1]),
    "examples": ({"type": "string", "examples": ["Oslo"]}, ["Oslo"], [1]),
    "anyOf": ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}, [1, "te"], [True]),
    "oneOf": ({"oneOf": [{"type": "boolean"}, {"type": "null"}]}, [True, None], ["text"]),
    "allOf": ({"allOf": [{"type": "integer"}, {"minimum": 9}]}, [9, 10], [8]),
    "$ref": ({"$ref": "#/$defs/size"}, ["S"], ["no such value"]),
    "items": ({"type": "array", "items": {"type": "string"}}, [["text"]], ["text"]),
    "nullable": ({"type": ["integer", "null"]}, [None, 1], ["text"]),
}


@pytest.mark.parametrize("keyword", RULES)
def test_every_keyword_gives_values_at_its_bound_and_beyond(keyword: str) -> None:
    member, valid, invalid = RULES[keyword]
    schema = {"type": "object", "properties": {"a": member}, "required": ["a"], "$defs": {"size": {"enum": ["S"]}}}
    found = list(SchemaValues(schema).iterate_objects())
    assert [value for value in valid if not any(each.valid and _is_same(each.value.get("a"), value) for each in found)] == []
    assert [value for value in invalid if not any(not each.valid and _is_same(each.value.get("a"), value) for each in found)] == []
    assert any(each.value == {} and not each.valid for each in found)


def _is_same(one: Json, other: Json) -> bool:
    return type(one) is type(other) and one == other


def test_the_list_of_keywords_is_covered() -> None:
    assert KEYWORDS - RULES.keys() == {"properties", "required", "additionalProperties"}


def test_additional_and_missing_members_break_a_closed_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    rules = {each.rule: each.valid for each in SchemaValues(schema).iterate_objects()}
    assert rules["an additional member"] is False and rules["a is missing"] is False and rules["only required members"] is True


def test_pairs_cover_every_two_values_with_few_rows() -> None:
    choices = {name: [0, 1, 2] for name in "abcdef"}
    rows = list(pair_up(choices))
    assert len(rows) <= 25
    for one in choices:
        for two in choices:
            if one < two:
                assert {(row[one], row[two]) for row in rows} == {(x, y) for x in range(3) for y in range(3)}


def _list_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Real schemas: those of our own format, and of every operation of the service."""
    native = json.loads((ROOT / "docs/reference/native-schema.json").read_text())
    for name, schema in native["$defs"].items():
        yield name, {**schema, "$defs": _pick_used(schema, native["$defs"], "#/$defs/")}
    document = _make_openapi()
    for name, schema in document["components"]["schemas"].items():
        used = _pick_used(schema, document["components"]["schemas"], "#/components/schemas/")
        yield name, {**schema, "components": {"schemas": used}}


def _pick_used(schema: Json, known: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The definitions that a schema refers to: every tool has its own, and not those of the whole document."""
    found: dict[str, Any] = {}
    waiting = [schema]
    while waiting:
        for name in re.findall(rf'"{re.escape(prefix)}([^"]+)"', json.dumps(waiting.pop())):
            if name not in found:
                found[name] = known[name]
                waiting.append(known[name])
    return found


def _make_openapi() -> dict[str, Any]:
    service = ServiceSettings(home=Path(".proctor"))
    return make_app(ServeSettings(service=service)).openapi()


@pytest.mark.in_turn
@pytest.mark.timeout(120)
def test_real_schemas_give_cases_without_a_crash() -> None:
    schemas = list(_list_schemas())
    assert len(schemas) >= 300
    empty = []
    for name, schema in schemas:
        cases = list(make_tool_cases([{"name": name, "description": "Does it. Well.", "inputSchema": schema}], "shop"))
        assert len({case["id"] for case in cases}) == len(cases)
        if not cases and schema.get("properties"):
            empty.append(name)
    assert len(empty) <= 0.05 * len(schemas), empty


def test_a_schema_without_a_known_valid_value_gives_a_skipped_case() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string", "pattern": "^Z{3}-[aeiou]+$"}}, "required": ["id"]}
    (case,) = make_tool_cases([{"name": "find", "inputSchema": schema}], "shop")
    assert "write valid arguments" in case["skip"]


def test_the_first_values_of_every_member_come_before_the_limit() -> None:
    members = {f"m{number}": {"type": "string", "enum": ["a", "b", "c"], "minLength": 1} for number in range(30)}
    cases = list(make_tool_cases([{"name": "find", "inputSchema": {"type": "object", "properties": members}}], "shop"))
    tried = {name for case in cases for name in case["settings"]["direct_calls"][0]["arguments"] if case["id"].startswith("find-accepts")}
    assert tried == members.keys()


def _read(cases: list[dict[str, Json]]) -> Suite:
    return read_suite(to_yaml({"proctor": 1, "name": "generated", "cases": cases}), name="generated")


def test_a_prompt_without_a_required_value_must_lead_to_a_question() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "reason": {"enum": ["late"]}}, "required": ["id", "reason"]}
    cases = list(make_tool_cases([{"name": "refund", "description": "Refund an order. Careful.", "inputSchema": schema}], "shop"))
    asks = next(case for case in cases if case["id"] == "refund-asks-for-id")
    assert asks["input"] == "Please do this: Refund an order. Use reason: late."
    assert [claim.get("tool_not_called") for claim in asks["expect"]] == ["refund", None]
    suite = _read(cases)
    assert suite.cases[0].settings["direct_calls"][0]["server"] == "shop"
    assert not suite.warnings


def test_request_bodies_of_openapi_are_tried_at_their_bounds() -> None:
    schema = {"$ref": "#/components/schemas/Refund"}
    operation = {"operationId": "refund", "requestBody": {"content": {"application/json": {"schema": schema}}}, "responses": {"201": {}}}
    amount = {"type": "number", "minimum": 1}
    refund = {"type": "object", "properties": {"amount": amount}, "required": ["amount"]}
    document = {"paths": {"/refunds": {"post": operation, "get": {}}}, "components": {"schemas": {"Refund": refund}}}
    cases = list(make_openapi_cases(document))
    statuses = {json.dumps(case["body"]): case["expect"][0].get("http_status") for case in cases}
    assert statuses['{"amount": 1}'] == 201 and statuses['{"amount": 0.5}'] is None and statuses["{}"] is None
    _read(cases)


V1, V2 = "v1", "v2"


def _make_if(version: str, *conditions: tuple[str, str, Json], either: bool = False) -> dict[str, Any]:
    if version == V1:
        listed = [
            {"value1": f"={{{{ $json.{field} }}}}", "operation": operation, "value2": value} for field, operation, value in conditions
        ]
        return {
            "conditions": {"number" if isinstance(conditions[0][2], int) else "string": listed},
            "combineOperation": "any" if either else "all",
        }
    listed = [
        {"leftValue": f"={{{{ $json.body.{field} }}}}", "rightValue": value, "operator": {"type": kind, "operation": operation}}
        for field, operation, value in conditions
        for kind in ["string" if isinstance(value, str) else "number"]
    ]
    return {"conditions": {"options": {"version": 2}, "conditions": listed, "combinator": "or" if either else "and"}}


def _make_switch(version: str, field: str, values: list[Json], *, fallback: bool = True) -> dict[str, Any]:
    if version == V1:
        rules = [{"value2": value, "operation": "equal", "output": at} for at, value in enumerate(values)]
        return {
            "dataType": "string",
            "value1": f"={{{{ $json['{field}'] }}}}",
            "rules": {"rules": rules},
            "fallbackOutput": len(values) if fallback else -1,
        }
    return {
        "rules": {"values": [{**_make_if(V2, (field, "equals", value)), "outputKey": str(value)} for value in values]},
        "options": {"fallbackOutput": "extra"} if fallback else {},
    }


def _make_workflow(*steps: tuple[str, dict[str, Any], int]) -> dict[str, Any]:
    """A webhook, then branch nodes: each but the last leads to the next by its first output, and to a leaf by the others."""
    nodes = [{"name": "Webhook", "type": "n8n-nodes-base.webhook", "parameters": {}}]
    connections: dict[str, Any] = {"Webhook": {"main": [[{"node": "Step 1"}]]}}
    for number, (kind, parameters, outputs) in enumerate(steps, 1):
        nodes.append({"name": f"Step {number}", "type": f"n8n-nodes-base.{kind}", "parameters": parameters})
        links = []
        for output in range(outputs):
            target = f"Step {number + 1}" if output == 0 and number < len(steps) else f"Leaf {number}.{output + 1}"
            links.append([{"node": target}])
            if target.startswith("Leaf"):
                nodes.append({"name": target, "type": "n8n-nodes-base.noOp", "parameters": {}})
        connections[f"Step {number}"] = {"main": links}
    return {"name": "workflow", "nodes": nodes, "connections": connections}


WORKFLOWS = [
    *(
        _make_workflow(("if", _make_if(V2, ("amount", operation, 100)), 2))
        for operation in ("gt", "gte", "lt", "lte", "equals", "notEquals")
    ),
    *(_make_workflow(("if", _make_if(V1, ("amount", operation, 100)), 2)) for operation in ("larger", "smallerEqual", "equal")),
    *(
        _make_workflow(("if", _make_if(V1, ("text", operation, "urgent")), 2))
        for operation in ("contains", "startsWith", "endsWith", "isEmpty")
    ),
    _make_workflow(("if", _make_if(V2, ("amount", "gt", 100), ("items", "lt", 3)), 2)),
    _make_workflow(("if", _make_if(V2, ("amount", "gt", 100), ("items", "lt", 3), either=True), 2)),
    _make_workflow(("switch", _make_switch(V1, "kind", ["refund", "order", "other"]), 4)),
    _make_workflow(("switch", _make_switch(V2, "kind", ["refund", "order", "other"]), 4)),
    _make_workflow(("if", _make_if(V2, ("amount", "gt", 100)), 2), ("switch", _make_switch(V2, "kind", ["a", "b"]), 3)),
    _make_workflow(("if", _make_if(V2, ("amount", "gt", 100)), 2), ("if", _make_if(V2, ("amount", "lt", 200)), 2)),
    _make_workflow(("switch", _make_switch(V1, "kind", ["a", "b"]), 3), ("if", _make_if(V1, ("n", "larger", 0)), 2)),
    _make_workflow(("if", _make_if(V1, ("a", "larger", 1), ("b", "larger", 2), either=True), 2), ("if", _make_if(V2, ("c", "lte", 9)), 2)),
]


def test_there_are_twenty_workflows() -> None:
    assert len(WORKFLOWS) >= 20


@pytest.mark.parametrize("number", range(len(WORKFLOWS)))
def test_every_branch_is_covered_by_a_case_that_takes_it(number: int) -> None:
    workflow = read_workflow(WORKFLOWS[number])
    cases = list(make_workflow_cases(workflow))
    assert {because for case in cases for because in [case["expect"][0]["because"]]} == {
        f"branch of the workflow: {node.name}, output {at + 1}, to {node.targets[at][0]}"
        for node in workflow.branches
        for at in range(len(node.targets))
    }
    assert not [case for case in cases if "skip" in case]
    for case in cases:
        ran = _walk(workflow, case["body"])
        for claim in case["expect"]:
            named = claim["node_called"]
            assert (named in ran) if isinstance(named, str) else (named["name"] not in ran), case
    _read(cases)


def _walk(workflow: Workflow, body: dict[str, Json]) -> list[str]:
    """The nodes that run for a body, by the rules of the workflow."""
    known = {node.name: node for node in workflow.branches}
    fields = {(name,): value for name, value in body.items()}
    ran, name = ["Webhook"], "Webhook"
    while True:
        node = known.get(name)
        following = workflow.following.get(name, ()) if node is None else node.targets[choose_output(node, fields) or 0]
        if not following:
            return ran
        name = following[0]
        ran.append(name)


def test_values_are_at_and_next_to_each_bound() -> None:
    cases = list(make_workflow_cases(read_workflow(WORKFLOWS[0])))
    assert sorted(case["body"]["amount"] for case in cases) == [99, 100, 101]


SOMETHING = {"name": "something"}
# type, operation, value, inputs of the first output, inputs of the second; None: the field is missing. `executeFilter` of n8n-workflow
# 1.120.31 takes these outputs, and refuses a value of another type.
N8N_CONDITIONS: list[tuple[str, str, Json, list[Json], list[Json]]] = [
    ("string", "exists", "", ["something"], [None]),
    ("string", "notExists", "", [None], ["something"]),
    ("string", "empty", "", [""], ["something"]),
    ("array", "exists", "", [["something"]], [None]),
    ("array", "notEmpty", "", [["something"]], [[]]),
    ("array", "contains", "vip", [["vip"]], [["something else"]]),
    ("object", "exists", "", [SOMETHING], [None]),
    ("object", "empty", "", [{}], [SOMETHING]),
    ("number", "exists", "", [1], [None]),
    ("number", "equals", 5, [5], [6]),
    ("boolean", "notExists", "", [None], [True]),
    ("dateTime", "notEmpty", "", ["2026-01-31T09:00:00Z"], [None]),
    # Whether case matters is an option of the node: `something else` would take either output.
    ("string", "contains", "Some", ["Some text", "text Some", "Some"], []),
]


@pytest.mark.parametrize(("kind", "operation", "value", "first", "second"), N8N_CONDITIONS)
def test_values_have_the_type_and_output_that_n8n_declares(
    kind: str, operation: str, value: Json, first: list[Json], second: list[Json]
) -> None:
    workflow = _make_workflow(("if", _make_if(V2, ("a", operation, value)), 2))
    condition = workflow["nodes"][1]["parameters"]["conditions"]["conditions"][0]
    condition["operator"]["type"] = kind
    cases = list(make_workflow_cases(read_workflow(workflow)))
    ways: list[list[Json]] = [
        [case["body"].get("a") for case in cases if "body" in case and f"output {number}," in case["expect"][0]["because"]]
        for number in (1, 2)
    ]
    assert ways == [first, second]


@pytest.mark.parametrize(("kind", "operation"), [("dateTime", "equals"), ("object", "equals"), ("array", "equals"), ("number", "contains")])
def test_a_comparison_whose_values_n8n_may_refuse_gives_a_skipped_case(kind: str, operation: str) -> None:
    workflow = _make_workflow(("if", _make_if(V2, ("a", operation, "x")), 2))
    workflow["nodes"][1]["parameters"]["conditions"]["conditions"][0]["operator"]["type"] = kind
    assert all("skip" in case for case in make_workflow_cases(read_workflow(workflow)))


def test_a_condition_that_is_not_understood_gives_a_skipped_case() -> None:
    workflow = _make_workflow(("if", _make_if(V2, ("amount", "gt", 100)), 2))
    workflow["nodes"][1]["parameters"]["conditions"]["conditions"][0]["leftValue"] = "={{ $json.a + $json.b }}"
    cases = list(make_workflow_cases(read_workflow(workflow)))
    assert len(cases) == 2 and all("not a comparison of a field" in case["skip"] for case in cases)
    _read(cases)


@pytest.mark.parametrize(
    ("kind", "left", "runs"),
    [
        ("noOp", "={{ $json.body.amount }}", True),
        ("httpRequest", "={{ $json.body.amount }}", False),
        ("httpRequest", "={{ $('Webhook').item.json.body.amount }}", True),
        ("httpRequest", '={{ $node["Webhook"].json["amount"] }}', True),
        ("httpRequest", "={{ $('Step 1').item.json.amount }}", False),
    ],
)
def test_a_condition_on_what_a_step_computed_is_no_condition_on_the_input(kind: str, left: str, runs: bool) -> None:
    workflow = _make_workflow((kind, {}, 1), ("if", _make_if(V2, ("amount", "gt", 100)), 2))
    workflow["nodes"][2]["parameters"]["conditions"]["conditions"][0]["leftValue"] = left
    assert workflow["nodes"][2]["name"] == "Step 2"
    cases = list(make_workflow_cases(read_workflow(workflow)))
    assert [case for case in cases if "skip" in case] == ([] if runs else cases)


def test_workflows_in_odd_shapes_give_skipped_cases() -> None:
    workflow = _make_workflow(("if", _make_if(V2, ("user", "equals", 1), ("user.name", "equals", 2)), 2))
    assert all("no value of the input" in case["skip"] for case in make_workflow_cases(read_workflow(workflow)))
    workflow["nodes"][1]["parameters"]["conditions"] = []
    workflow["connections"]["Leaf 1.1"] = {"main": [["Leaf 1.2"]]}
    assert all("skip" in case for case in make_workflow_cases(read_workflow(workflow)))


def test_flowise_conditions_are_branches() -> None:
    condition = {"type": "number", "value1": "{{ $flow.state.amount }}", "operation": "larger", "value2": "100"}
    nodes = [
        {"id": "start", "data": {"name": "startAgentflow", "label": "Start"}},
        {"id": "c", "data": {"name": "conditionAgentflow", "label": "Big?", "inputs": {"conditions": [condition]}}},
        {"id": "x", "data": {"name": "llmAgentflow", "label": "Ask"}},
        {"id": "y", "data": {"name": "llmAgentflow", "label": "Pay"}},
    ]
    edges = [
        {"source": "start", "target": "c", "sourceHandle": "start-output-startAgentflow"},
        {"source": "c", "target": "x", "sourceHandle": "c-output-0"},
        {"source": "c", "target": "y", "sourceHandle": "c-output-1"},
    ]
    cases = list(make_workflow_cases(read_workflow({"nodes": nodes, "edges": edges})))
    assert [(case["body"], case["expect"][0]["node_called"]) for case in cases] == [
        ({"amount": 101}, "Ask"),
        ({"amount": 100}, "Pay"),
        ({"amount": 99}, "Pay"),
    ]


def test_the_recorded_workflow_of_a_real_n8n_is_read() -> None:
    execution = json.loads((ROOT / "tests/evidence/samples/n8n/n8n-2.8.4-execution-order-confirmed.json").read_text())
    found = execution.get("workflowData") or execution["data"]["workflowData"]
    workflow = read_workflow(found)
    cases = list(make_workflow_cases(workflow))
    assert len(cases) >= sum(len(node.rules) for node in workflow.branches) >= 2


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("={{ $json.body.amount }}", ("amount",)),
        ('={{$node["Webhook"].json["body"]["text"]}}', ("text",)),
        ("={{ $('Start').item.json.user.name }}", ("user", "name")),
        ("{{ question }}", ("chatInput",)),
        ("={{ $json.a + $json.b }}", ()),
        ("fixed", ()),
        (17, ()),
    ],
)
def test_an_expression_is_read_as_a_field(text: Json, field: tuple[str, ...]) -> None:
    assert read_field(text) == field


def test_the_command_proposes_cases_of_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    Path("flow.json").write_text(json.dumps(WORKFLOWS[0]))
    assert run(["generate", "workflow", "flow.json"]) == 0
    assert "flow.json, 3 cases: 3 new" in capsys.readouterr().out
    assert run(["accept", "--all"]) == 0 == run(["validate", "suite.yaml"])
    schema = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"], "additionalProperties": False}
    Path("tools.json").write_text(json.dumps({"tools": [{"name": "a", "description": "Finds a.", "inputSchema": schema}]}))
    assert run(["generate", "tools", "tools.json", "--suite", "tools.yaml"]) == 0
    assert run(["accept", "--all"]) == 0 == run(["validate", "tools.yaml"])
    Path("api.yaml").write_text(to_yaml({"openapi": "3.1.0", "paths": {}}))
    assert run(["generate", "openapi", "api.yaml"]) == 5
    assert run(["generate", "openapi", "flow.json"]) == 4


@pytest.mark.in_turn
def test_the_tools_of_a_running_server_are_listed_and_called_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    server = ROOT / "tests/targets/shop_server.py"
    assert run(["generate", "tools", f"{sys.executable} {server}", "--server", "shop"]) == 0
    assert "direct_calls" in Path("suite.pending.yaml").read_text()
    assert run(["accept", "--all"]) == 0
    servers = [{"id": "shop", "command": sys.executable, "args": [str(server)]}]
    Path("proctor.yaml").write_text(to_yaml({"targets": {"tools": {"type": "mcp_agent", "servers": servers}}}))
    monkeypatch.delenv("PROCTOR_MODEL", raising=False)
    assert run(["run", "suite.yaml", "--target", "tools", "-k", "lookup-order-rejects", "--quiet"]) == 0


def test_a_server_is_named_as_for_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    tools = [{"name": "a", "inputSchema": {"type": "object"}}]
    examined: list[tuple[str, str, str]] = []

    async def list_tools(settings: ServerSettings) -> list[dict[str, Json]]:
        examined.append((settings.id, settings.command, settings.url))
        return tools

    monkeypatch.setattr(generate_documents, "_list_tools", list_tools)
    program = tmp_path / "my-server"
    program.write_text("#!/bin/sh\n")
    Path("proctor.yaml").write_text(
        to_yaml({"targets": {"desk": {"type": "mcp_agent", "servers": [{"id": "shop", "command": "shop-server"}]}}})
    )
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"office": {"command": "office-server"}}}))
    for source in (str(program), f"{program} --fast", "shop", "mcp.json", "mcp.json:office", "http://127.0.0.1/mcp"):
        assert run(["generate", "tools", source]) == 0, source
    assert examined == [
        ("server", str(program), ""),
        ("server", str(program), ""),
        ("shop", "shop-server", ""),
        ("office", "office-server", ""),
        ("office", "office-server", ""),
        ("server", "", "http://127.0.0.1/mcp"),
    ]
    assert run(["generate", "tools", "nosuch-server"]) == 4
    assert "no such program" in capsys.readouterr().err
