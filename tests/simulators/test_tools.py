"""Tools of simulated systems: arguments checked against schemas, and responses as MCP results."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from proctor.errors import SpecError
from proctor.simulators.exchange import Response
from proctor.simulators.kinds import fhir, records
from proctor.simulators.ports import find_simulator, list_kinds
from proctor.simulators.tools import describe_wrong_call, make_query, make_tool_request, write_tool_result
from tests.simulators.workplace import Workplace

SHOP = {"orders": [{"id": "7", "status": "open"}]}
TOOLS = {tool.name: tool for simulator in (fhir.SIMULATOR, records.SIMULATOR) for tool in simulator.list_tools()}


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("fhir_read", {"resource_type": "Patient"}, "fhir_read needs id"),
        ("fhir_read", {"resource_type": "Patient", "id": None}, "fhir_read needs id"),
        ("fhir_read", {"resource_type": "Patient", "id": ""}, "id: expected an id, found none"),
        ("fhir_delete", {"resource_type": "Patient", "id": ""}, "id: expected an id, found none"),
        ("fhir_update", {"resource": {"resourceType": "Patient"}}, "the resource: expected an id, found none"),
        ("fhir_create", {"resource": {}}, "the resource needs its resourceType"),
        ("fhir_read", {"resourcetype": "Patient", "id": "a"}, "nearest: resource_type"),
        ("fhir_create", {"resource": "Patient"}, "resource: expected an object, found text"),
        ("fhir_search", {"resource_type": "Patient", "search": ["a"]}, "search: expected an object, found list"),
        ("fhir_read", {"resource_type": ["Patient"], "id": "a"}, "resource_type: expected text, found list"),
        ("records_create", {"collection": "orders", "row": {"note": "\ud800"}}, "lone surrogate"),
    ],
)
def test_invalid_arguments_make_no_request(tool: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as wrong:
        make_tool_request(TOOLS[tool], arguments)
    assert message in describe_wrong_call(wrong.value)


def test_common_mistakes_of_models_are_corrected() -> None:
    request = make_tool_request(TOOLS["fhir_search"], {"resource_type": "Patient", "search": '{"active": true, "_count": 5, "name": null}'})
    assert request.target == "/Patient?active=true&_count=5"
    assert make_tool_request(TOOLS["records_get"], {"collection": "orders", "id": 7}).path == "/orders/7"
    assert make_query({"date": ["ge2026-01-01", "lt2027-01-01"]}) == (("date", "ge2026-01-01"), ("date", "lt2027-01-01"))


@pytest.mark.parametrize("kind", list_kinds())
def test_no_arguments_break_a_kind(kind: str) -> None:
    """Every tool of every kind makes a minimal request, which is answered without a bug or refused with a reason."""
    workplace = Workplace(kind)
    samples: dict[str, Any] = {"string": "x", "object": {}, "array": [], "integer": 1, "boolean": True}
    for tool in find_simulator(kind).list_tools():
        properties = tool.schema["properties"]
        given = {
            name: properties[name]["enum"][0] if "enum" in properties[name] else samples[properties[name]["type"]] for name in properties
        }
        for arguments in (given, {name: given[name] for name in tool.schema.get("required", ())}):
            try:
                response = asyncio.run(workplace.sandbox.call_tool(kind, tool.name, arguments))
            except SpecError as wrong:
                assert describe_wrong_call(wrong)
                continue
            assert response.status < 500, (tool.name, response.body)
            assert write_tool_result(response)["content"]
    assert workplace.state().requests, "each call was a request"


def test_responses_become_results() -> None:
    assert write_tool_result(Response(status=200, body=b'{"a": 1}')) == {"content": [{"type": "text", "text": '{"a": 1}'}]}
    assert write_tool_result(Response(status=204)) == {"content": [{"type": "text", "text": "done (204)"}]}
    assert write_tool_result(Response(status=404)) == {"content": [{"type": "text", "text": "refused (404)"}], "isError": True}
    scan = b"\xff\xfe\x00"
    (part,) = write_tool_result(Response(status=200, body=scan, headers={"content-type": "image/tiff"}))["content"]
    assert part["resource"]["mimeType"] == "image/tiff" and base64.b64decode(part["resource"]["blob"]) == scan
