"""What the server describes (tools, schemas, annotations, pages, prompts), and its answers to invalid calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from proctor.errors import StoreError
from proctor.formats.suites import read_suite
from proctor.mcp_server import server as prompts
from proctor.mcp_server.server import all_tools
from tests.mcp_server.clients import ERAS, use
from tests.mcp_server.scenario import call, refusal

DOCUMENTED = {
    "criteria": ["list", "create", "get", "update", "delete"],
    "evals": ["list", "create", "get", "update", "delete"],
    "criterion-runs": ["list", "get"],
    "eval-runs": ["list", "get"],
    "tasks": ["list", "create", "get", "update", "delete"],
    "simulators": ["list", "create", "get", "update", "delete"],
    "environments": ["list", "create", "get", "update", "delete", "addSimulator"],
    "datasets": ["list", "create", "get", "update", "delete"],
    "benchmarks": ["list", "create", "get", "update", "delete"],
    "benchmark_runs": ["start", "get"],
    "task-runs": ["list", "get"],
    "playgrounds": ["list", "create", "get", "teardown"],
    "sandboxes": ["list", "create", "get", "events", "state", "diff", "reset", "teardown"],
    "solvers": ["list", "create", "get", "update", "delete", "createKey"],
}
OURS = [
    "validate_suite",
    "check_evidence",
    "run_suite",
    "examine_server",
    "list_runs",
    "get_run",
    "compare_runs",
    "search_traces",
    "describe",
]


@pytest.mark.parametrize("mode", ERAS)
def test_every_documented_tool_and_action_is_listed(tmp_path: Path, mode: str) -> None:
    async def doing(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {*DOCUMENTED, *OURS}
        for name, actions in DOCUMENTED.items():
            assert set(actions) <= set(tools[name].input_schema["properties"]["action"]["enum"]), name
        for tool in tools.values():
            assert tool.title and tool.description and tool.annotations is not None
            assert tool.input_schema["type"] == "object" and not {"oneOf", "anyOf", "allOf"} & set(tool.input_schema)
            assert tool.output_schema is not None and tool.output_schema["type"] == "object"
            for schema in (tool.input_schema, tool.output_schema):
                jsonschema_rs.meta.validate(schema)
        read_only = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
        assert read_only == {"criterion-runs", "eval-runs", *OURS} - {"run_suite", "examine_server"}
        destructive = {name for name, tool in tools.items() if tool.annotations and tool.annotations.destructive_hint}
        assert destructive == set(DOCUMENTED) - {"criterion-runs", "eval-runs"}
        outside = {name for name, tool in tools.items() if tool.annotations and tool.annotations.open_world_hint}
        assert outside == {"run_suite", "examine_server"}

    use(tmp_path / "home", doing, mode=mode)


def test_every_parameter_of_every_action_is_described() -> None:
    for local in (True, False):
        for tool in all_tools(local=local):
            actions = list(tool.actions.values()) or [tool.single]
            used = {name for action in actions if action is not None for name in action.allowed}
            assert used <= set(tool.properties), tool.name
            described = set(tool.input_schema["properties"]) - {"action"}
            assert used == described, tool.name
            assert all(tool.properties[name].get("description") for name in used), tool.name


def test_files_are_named_on_the_own_machine_only(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "path" not in tools["validate_suite"].input_schema["properties"]
        error = await refusal(client, "validate_suite", path="/etc/passwd")
        assert error["path"] == "path" and "does not take it" in error["message"]
        error = await refusal(client, "check_evidence", document="proctor: 1", evidencePath="/etc/passwd")
        assert error["path"] == "evidencePath"

    use(tmp_path / "home", doing, local=False)


def test_tools_are_found_by_the_names_of_all_generations(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        for name in ("criterionRuns", "criterion_runs", "criterion-runs"):
            found = (await client.session.call_tool(name, {"action": "list"})).structured_content
            assert found["data"] == []
        with pytest.raises(MCPError, match="nearest: criteria"):
            await client.call_tool("criterias", {})

    use(tmp_path / "home", doing)


def test_errors_say_what_to_do_next(tmp_path: Path) -> None:
    async def doing(client: Client) -> None:
        error = await refusal(client, "criteria", action="remove")
        assert (error["path"], error["code"]) == ("action", "VALIDATION_ERROR") and "list, create, get, update, delete" in error["message"]
        error = await refusal(client, "criteria")
        assert error["path"] == "action"
        error = await refusal(client, "tasks", action="get", id="task_none")
        assert error["code"] == "NOT_FOUND" and "tasks {action: list}" in error["nextStep"]
        # A missing object may be listed by another tool than the called one.
        for action in ("create", "list"):
            more = {"label": "x", "assertion": {"assert": "sftp-file-present", "path": "a"}} if action == "create" else {}
            error = await refusal(client, "criteria", action=action, taskId="task_none", **more)
            assert error["code"] == "NOT_FOUND" and "tasks {action: list}" in error["nextStep"], error
        error = await refusal(client, "benchmark_runs", action="start", benchmarkId="bench_none")
        assert "benchmarks {action: list}" in error["nextStep"]
        error = await refusal(client, "describe", kind="check", name="tool_called")
        assert "checks" in error["nearest"]
        error = await refusal(client, "describe", kind="checks", name="tool_cald")
        assert "tool_called" in error["nearest"]
        error = await refusal(
            client, "check_evidence", document="proctor: 1\ncases: [{id: a, expect: [{tool_caled: x}]}]", evidence={"text": "x"}
        )
        assert error["problems"][0]["line"] == 2 and error["problems"][0]["path"] and "tool_called" in error["nearest"]

    use(tmp_path / "home", doing)


def test_a_bug_is_reported_without_internals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret 42")

    async def doing(client: Client) -> None:
        error = await refusal(client, "search_traces")
        assert error["code"] == "INTERNAL_ERROR" and "42" not in str(error)

    monkeypatch.setattr("proctor.mcp_server.runs.list_traces", broken)
    use(tmp_path / "home", doing)
    assert "secret 42" in caplog.text


def test_a_lost_database_is_reported_as_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: Any, **__: Any) -> None:
        raise StoreError("the database cannot be used")

    async def doing(client: Client) -> None:
        error = await refusal(client, "search_traces")
        assert (error["code"], error["message"]) == ("UNAVAILABLE", "the database cannot be used")
        assert error["retryAfterS"] > 0 and "again" in error["nextStep"]

    monkeypatch.setattr("proctor.mcp_server.runs.list_traces", gone)
    use(tmp_path / "home", doing)


@pytest.mark.parametrize("mode", ERAS)
def test_pages_can_be_read(tmp_path: Path, mode: str) -> None:
    async def doing(client: Client) -> None:
        pages = {str(page.uri): page for page in (await client.list_resources()).resources}
        assert pages["proctor://docs/reference/verial.md"].title == "Verial documents"
        verial = (await client.read_resource("proctor://docs/reference/verial.md")).contents[0]
        assert verial.mime_type == "text/markdown" and "fhir-resource-state" in verial.text
        checks = (await client.read_resource("proctor://describe/checks")).contents[0]
        assert "## tool_called" in checks.text
        schema = (await client.read_resource("proctor://schema/native.json")).contents[0]
        assert schema.mime_type == "application/json" and schema.text.startswith("{")
        templates = {page.uri_template for page in (await client.list_resource_templates()).resource_templates}
        assert {"proctor://runs/{id}", "proctor://task-runs/{id}"} <= templates
        for uri in ("proctor://docs/../pyproject.toml", "proctor://docs/reference/verrial.md", "file:///etc/passwd", "proctor://runs/none"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)

    use(tmp_path / "home", doing, mode=mode)


@pytest.mark.parametrize("mode", ERAS)
def test_the_prompt_names_every_check(tmp_path: Path, mode: str) -> None:
    async def doing(client: Client) -> None:
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "write_suite" and prompt.arguments is not None and prompt.arguments[0].required
        found = await client.get_prompt("write_suite", {"goal": "Refund only what was paid", "tools": "refund(order)"})
        text = found.messages[0].content.text  # type: ignore[union-attr]
        assert "Refund only what was paid" in text and "refund(order)" in text
        for entry in (await call(client, "describe", kind="checks"))["entries"]:
            assert f"`{entry['name']}`" in text
        for given in ({}, {"goal": " "}, {"goal": "x", "dialect": "yaml"}, {"goal": "x", "more": "y"}):
            with pytest.raises(MCPError):
                await client.get_prompt("write_suite", given)

    use(tmp_path / "home", doing, mode=mode)


def test_the_example_of_the_prompt_is_a_suite() -> None:
    suite = read_suite(prompts._EXAMPLE)
    assert len(suite.cases) == 1 and not suite.warnings
