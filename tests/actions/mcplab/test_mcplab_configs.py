"""Several MCPLab configs are one run: each keeps its agents, servers and files, flags reach all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.mcplab.plan import plan, plan_all, read_overrides
from proctor.actions.running.run import LiveRun
from proctor.actions.workspace.run_history import open_run
from proctor.actions.workspace.suites import load_suite, load_suites
from proctor.decide.selection import select
from proctor.errors import InputError, TargetError
from proctor.model.case import Suite
from tests.actions.mcplab.test_mcplab_command import model_server
from tests.actions.mcplab_world import CONFIG, answering, completion, drive_mcplab, prepare_together, workspace
from tests.integration.running import proctor
from tests.llm.provider_server import Provider, ReceivedRequest, ScriptedResponse, provider
from tests.tables import rows
from tests.targets.mcp_twins import http_shop, run

KEYS = {"OPENAI_API_KEY": "sk-very-secret"}
NOWHERE = "http://127.0.0.1:9"
LIBRARY = """\
gpt: {provider: openai, model: gpt-test}
mini: {provider: openai, model: mini-test}
"""
REFUNDS = """\
name: Refunds
agents: [{ref: mini}, {id: own, provider: openai, model: own-test, system: Refund nothing.}]
scenarios:
  - id: lookup
    prompt: status of order 17
    mcp_servers: [{ref: shop}]
    eval: {response_assertions: [{type: contains, value: shipped}]}
  - id: refund
    prompt: total of order 17
    mcp_servers: [{ref: staging}]
    attachments: [{path: note.txt}]
    eval: {response_assertions: [{type: jsonpath, path: $.total, equals: 9.5}]}
run_defaults: {selected_agents: [mini]}
"""


def clerk(request: ReceivedRequest) -> ScriptedResponse:
    """Looks the order up, then answers with its status or total; the prompt may have files attached."""
    messages = request.body["messages"]
    if messages[-1]["role"] != "tool":
        return completion("I will look.", [("lookup_order", {"id": 17})])
    return completion('{"total": 9.5}' if "total" in json.dumps(messages[:2]) else "It has shipped.")


def two_configs(folder: Path, url: str = NOWHERE, *, refunds: str = REFUNDS) -> Path:
    """A workspace with two configs, both with a scenario `lookup`."""
    workspace(folder, url, agents=LIBRARY)
    with (folder / "servers.yaml").open("a") as file:
        file.write(f'staging: {{transport: http, url: "{url}/mcp"}}\n')
    (folder / "evals" / "refunds.yaml").write_text(refunds)
    (folder / "note.txt").write_text("hello")
    return folder


def drive(suite: Any, model: Any, home: Path, **options: Any) -> tuple[LiveRun, Provider]:
    async def work() -> tuple[LiveRun, Provider]:
        async with provider(model) as seen:
            return await drive_mcplab(suite, environment={**KEYS, "OPENAI_BASE_URL": f"{seen.url}/v1"}, home=home, **options), seen

    return run(work())


def by_files(folder: Path) -> Suite:
    return load_suites([folder / "evals" / "orders.yaml", folder / "evals" / "refunds.yaml"])


@pytest.mark.parametrize("load", [load_suite, by_files])
@rows("actions/cases/mcplab_configs.yaml")
def test_each_config_is_planned_separately(tmp_path: Path, load: Any, row: dict[str, Any]) -> None:
    given, expect = row["given"], row["expect"]
    suite = select(load(two_configs(tmp_path)), given.get("k"))
    overrides = read_overrides(given.get("override_all"), given.get("overrides", ()))

    def planned() -> list[list[Any]]:
        plans = plan_all(suite, agents=given.get("agents"), agents_all=given.get("agents_all", False), overrides=overrides)
        return [[row.case.id, row.scenario, row.agent["id"], list(row.servers)] for each in plans for row in each.rows]

    if "fails" in expect:
        with pytest.raises(InputError) as caught:
            planned()
        assert expect["fails"] in str(caught.value)
    else:
        assert planned() == expect["rows"]


@pytest.mark.parametrize("load", [load_suite, by_files])
def test_both_configs_run_as_one_with_their_own_agents_servers_and_files(tmp_path: Path, load: Any) -> None:
    with http_shop() as (url, gate):
        suite = load(two_configs(tmp_path / "mcplab", url))
        live, seen = drive(suite, clerk, tmp_path / "home", agents_all=True, artifacts=True)
        ids = {headers["x-request-id"] for headers in gate.seen if "x-request-id" in headers}
    assert live.ended == "completed"
    assert {case.outcome for case in live.result.cases} == {"pass"}
    assert len(live.result.cases) == 10
    assert f"mcplab-run:{live.result.run_id}:lookup:own:Refunds/lookup-own-run1" in ids
    own = [request for request in seen.requests if request.body["model"] == "own-test"]
    assert own and all(request.body["messages"][0]["content"] == "Refund nothing." for request in own)
    assert "note.txt" in json.dumps([request.body for request in own])
    folders = {path.name for path in (live.folder / "mcplab").iterdir()}
    assert folders == {"orders", "refunds"}
    orders, refunds = (json.loads((live.folder / "mcplab" / name / "results.json").read_text()) for name in ("orders", "refunds"))
    assert [(row["scenario_id"], row["agent"]) for row in refunds["scenarios"]] == [
        ("lookup", "mini"),
        ("lookup", "own"),
        ("lookup", "gpt"),
        ("refund", "mini"),
        ("refund", "own"),
        ("refund", "gpt"),
    ]
    assert {row["scenario_id"] for row in orders["scenarios"]} == {"lookup", "total"}
    assert (orders["summary"]["total_runs"], refunds["summary"]["total_runs"]) == (4, 6)
    for name, count in (("orders", 4), ("refunds", 6)):
        folder = live.folder / "mcplab" / name
        assert {path.name for path in folder.iterdir()} == {
            "results.json",
            "trace.jsonl",
            "summary.md",
            "report.html",
            "resolved-config.yaml",
        }
        assert len((folder / "trace.jsonl").read_text().splitlines()) == count + 1
        assert load_suite(folder / "resolved-config.yaml").dialect == "mcplab"


def test_the_same_id_may_mean_another_agent_and_another_server_in_each_config(tmp_path: Path) -> None:
    config = REFUNDS.replace("{ref: mini}", "{id: gpt, provider: openai, model: other-test}").replace("[mini]", "[gpt]")
    config = config.replace("[{ref: staging}]", "[{id: shop, transport: http, url: URL}]").replace("[{ref: shop}]", "[]")
    with http_shop() as (url, _), http_shop() as (other, gate):
        folder = two_configs(tmp_path / "mcplab", url, refunds=config.replace("URL", f"'{other}/mcp'"))
        live, seen = drive(select(load_suite(folder), "not lookup"), clerk, tmp_path / "home")
        assert [headers for headers in gate.seen if "x-request-id" in headers]
    assert [(case.id, case.outcome) for case in live.result.cases] == [("total", "pass"), ("refund", "pass")]
    assert {request.body["model"] for request in seen.requests} == {"gpt-test", "other-test"}


def test_a_failure_in_one_config_fails_the_whole(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        live, _ = drive(load_suite(two_configs(tmp_path / "mcplab", url)), answering("It has shipped."), tmp_path / "home")
    assert live.result.outcome == "fail"
    assert [(case.id, case.outcome) for case in live.result.cases] == [
        ("lookup", "fail"),
        ("total", "fail"),
        ("Refunds/lookup", "pass"),
        ("refund", "fail"),
    ]


def test_a_run_of_two_configs_is_resumed_opened_and_replayed(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with http_shop() as (url, _):
        folder = two_configs(tmp_path / "mcplab", url)
        live, _ = drive(folder, clerk, tmp_path / ".proctor", record=tape)
        again, seen = drive(folder, clerk, tmp_path / ".proctor", resume=live.result.run_id)
        with pytest.raises(InputError, match="started with the agents gpt, mini, not mini"):
            drive(folder, clerk, tmp_path / ".proctor", resume=live.result.run_id, agents=["mini"])
        (folder / "evals" / "refunds.yaml").write_text(REFUNDS.replace("9.5", "9.6"))
        with pytest.raises(InputError, match="was started with another suite"):
            drive(folder, clerk, tmp_path / ".proctor", resume=live.result.run_id)
        (folder / "evals" / "refunds.yaml").write_text(REFUNDS)
    assert again.result.counts == live.result.counts == {"pass": 4, "fail": 0, "error": 0, "skip": 0}
    assert not seen.requests
    opened, _ = open_run(tmp_path / ".proctor", live.result.run_id)
    assert opened.counts == live.result.counts
    # The files are as they were, so their places are known again.
    assert {Path(case.case.origin.file or "").name for case in opened.cases} >= {"orders.yaml", "refunds.yaml"}
    replayed = run(drive_mcplab(folder, environment={}, home=tmp_path / "two", replay=tape))
    assert replayed.result.counts == live.result.counts


def test_a_stopped_run_resumes_where_it_ended(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        folder = two_configs(tmp_path / "mcplab", url)
        suite = load_suite(folder)
        live, _ = drive(suite, clerk, tmp_path / "home")
        (results,) = live.folder.glob("*.jsonl")
        text = results.read_text().splitlines(keepends=True)
        results.write_text("".join(line for line in text if '"refund' not in line and '"ended"' not in line))
        again, seen = drive(suite, clerk, tmp_path / "home", resume=live.result.run_id, artifacts=True)
    assert again.result.counts["pass"] == 4
    assert {request.body["model"] for request in seen.requests} == {"mini-test"}


def test_missing_settings_are_reported_once_for_all_configs(tmp_path: Path) -> None:
    folder = two_configs(tmp_path)
    (folder / "note.txt").unlink()
    with pytest.raises(InputError) as caught:
        prepare_together(load_suite(folder), {})
    text = str(caught.value)
    assert text.count("agent 'gpt' needs the environment variable OPENAI_API_KEY") == 1
    assert text.count("agent 'mini' needs the environment variable OPENAI_API_KEY") == 1
    assert "scenario 'refund': the attachment" in text
    with pytest.raises(InputError, match="an OAuth token for 'shpo'"):
        prepare_together(load_suite(folder), KEYS, oauth_tokens={"shpo": "t"})


def test_secrets_in_config_files_are_stored_nowhere(tmp_path: Path) -> None:
    inline = "[{id: mine, transport: http, url: 'URL/mcp', auth: {type: bearer, token: literal-token}}]"
    with http_shop() as (url, gate):
        folder = two_configs(tmp_path / "mcplab", url, refunds=REFUNDS.replace("[{ref: staging}]", inline.replace("URL", url)))
        live, _ = drive(load_suite(folder), clerk, tmp_path / "home", artifacts=True)
        assert "Bearer literal-token" in {headers.get("authorization") for headers in gate.seen}
    assert live.result.outcome == "pass"
    assert "literal-token" not in "\n".join(path.read_text() for path in (tmp_path / "home").rglob("*") if path.is_file())


def test_a_server_that_cannot_be_reached_ends_the_run_and_leaves_nothing_connected(tmp_path: Path) -> None:
    inline = f"[{{id: gone, transport: http, url: '{NOWHERE}/mcp'}}]"
    with http_shop() as (url, _):
        folder = two_configs(tmp_path / "mcplab", url, refunds=REFUNDS.replace("[{ref: staging}]", inline))
        with pytest.raises(TargetError, match="'gone'"):
            drive(load_suite(folder), clerk, tmp_path / "home")


def test_one_config_is_planned_by_itself_only(tmp_path: Path) -> None:
    suite = load_suite(two_configs(tmp_path))
    with pytest.raises(InputError, match="expected one MCPLab config, found 2"):
        plan(suite)
    with pytest.raises(InputError, match="no scenario to run"):
        prepare_together(select(suite, "nothing_like_this"), KEYS)


def test_configs_with_the_same_file_name_have_folders_of_their_own(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        paths = [workspace(tmp_path / name, url, agents=LIBRARY) for name in ("one", "two")]
        live, _ = drive(load_suites(paths), clerk, tmp_path / "home", artifacts=tmp_path / "runs")
    assert live.result.outcome == "pass"
    assert {path.name for path in (tmp_path / "runs" / live.result.run_id).iterdir()} == {"orders", "orders-2"}


def test_two_configs_run_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_shop() as (url, _), model_server(clerk) as model:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model}/v1")
        folder = two_configs(tmp_path / "mcplab", url)
        files = [folder / "evals" / name for name in ("orders.yaml", "refunds.yaml")]
        both = proctor("run", *files, "--home", tmp_path / "home", "--artifacts", "mcplab", "--quiet")
        one = proctor("run", folder, "--home", tmp_path / "home", "-k", "refund and not lookup", "--agents", "own", "--quiet")
        (folder / "evals" / "refunds.yaml").write_text(REFUNDS.replace("9.5", "9.6"))
        failed = proctor("run", folder, "--home", tmp_path / "home", "--quiet")
    assert (both.code, "4 passed" in both.out) == (0, True), both
    assert (one.code, "1 passed" in one.out) == (0, True), one
    assert failed.code == 1 and "1 failed" in failed.out, failed


def test_a_single_config_has_its_files_where_they_were(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        live, _ = drive(load_suite(workspace(tmp_path / "mcplab", url, config=CONFIG)), clerk, tmp_path / "home", artifacts=True)
    assert (live.folder / "mcplab" / "results.json").is_file()
