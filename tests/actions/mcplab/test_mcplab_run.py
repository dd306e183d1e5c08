"""MCPLab workspaces run unchanged: agents, servers, secrets, and errors before a run starts."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.checking.check import check, read_all_evidence
from proctor.actions.mcplab.plan import Planned, ServerOverrides, plan, read_overrides, read_tokens
from proctor.actions.running.mcplab_run import request_id, resolved_config
from proctor.actions.running.run import LiveRun
from proctor.actions.workspace.run_history import open_run
from proctor.actions.workspace.suites import load_suite
from proctor.errors import InputError, TargetError
from proctor.formats.text.yaml_text import to_yaml
from proctor.model.case import Case, Suite
from tests.actions.mcplab_world import AGENTS, CONFIG, answering, clerk, completion, drive_mcplab, prepare_mcplab, restless, workspace
from tests.llm.provider_server import Provider, ReceivedRequest, ScriptedResponse, provider
from tests.targets.mcp_twins import Gate, http_shop, local_shop, run

KEYS = {"OPENAI_API_KEY": "sk-very-secret"}
NOWHERE = "http://127.0.0.1:9"


def drive(path: Path, model: Any, home: Path, *, environment: dict[str, str] | None = None, **options: Any) -> tuple[LiveRun, Provider]:
    async def work() -> tuple[LiveRun, Provider]:
        async with provider(model) as seen:
            known = {**KEYS, "OPENAI_BASE_URL": f"{seen.url}/v1", **(environment or {})}
            return await drive_mcplab(path, environment=known, home=home, **options), seen

    return run(work())


def loaded(folder: Path, **more: Any) -> Suite:
    return load_suite(workspace(folder, NOWHERE, **more))


def all_text(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.rglob("*") if path.is_file())


# --- whole runs ---------------------------------------------------------------------------------------------------------


def test_a_workspace_runs_against_an_openai_server_and_a_real_mcp_server(tmp_path: Path) -> None:
    with http_shop() as (url, gate):
        live, seen = drive(workspace(tmp_path / "mcplab", url), clerk, tmp_path / "home")
    assert live.ended == "completed"
    assert [(case.id, case.outcome) for case in live.result.cases] == [("lookup", "pass"), ("total", "pass")]
    assert live.result["total"].extracted == {"total": 9.5}
    first = seen.requests[0]
    assert first.path == "/v1/chat/completions"
    assert first.headers["authorization"] == "Bearer sk-very-secret"
    assert first.body["model"] == "gpt-test"
    assert first.body["temperature"] == 0
    assert first.body["messages"][0] == {"role": "system", "content": "You are the shop's clerk."}
    assert "lookup_order" in [tool["function"]["name"] for tool in first.body["tools"]]
    ids = {headers["x-request-id"] for headers in gate.seen if "x-request-id" in headers}
    run_id = live.result.run_id
    assert ids == {f"mcplab-run:{run_id}:{name}:gpt:{name}-gpt-run1" for name in ("lookup", "total")}
    assert "sk-very-secret" not in all_text(tmp_path / "home")


def test_a_failing_scenario_fails_the_run(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        live, _ = drive(workspace(tmp_path / "mcplab", url), answering("no idea"), tmp_path / "home")
    assert live.result.outcome == "fail"
    assert live.result.counts["fail"] == 2


def test_reaching_the_turn_limit_is_no_pass_even_where_every_rule_holds(tmp_path: Path) -> None:
    config = CONFIG.split("  - id: total")[0].replace("- ref: lookup", "- {id: only, prompt: go, mcp_servers: [{ref: shop}]}")
    with http_shop() as (url, _):
        live, seen = drive(workspace(tmp_path / "mcplab", url, config=config), restless, tmp_path / "home", agents=["mini"])
    assert len(seen.requests) == 2
    assert live.result["only"].outcome == "error"
    evidence = live.entries[("only", 0)].evidence
    assert evidence is not None
    assert len(evidence.tool_calls or ()) == 2


def test_a_call_of_a_tool_that_no_server_has_ends_the_run_in_an_error(tmp_path: Path) -> None:
    config = CONFIG.split("  - id: total")[0].replace("- ref: lookup", "- {id: only, prompt: go, mcp_servers: [{ref: shop}]}")

    def invents(request: ReceivedRequest) -> ScriptedResponse:
        return completion(calls=[("teleport", {})])

    with http_shop() as (url, _):
        live, seen = drive(workspace(tmp_path / "mcplab", url, config=config), invents, tmp_path / "home", agents=["mini"])
    assert len(seen.requests) == 1
    evidence = live.entries[("only", 0)].evidence
    assert live.result["only"].outcome == "error"
    assert evidence is not None and evidence.metadata["code"] == "unknown_tool"


def test_every_scenario_runs_with_every_selected_agent_and_browser_agents_are_skipped(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        live, seen = drive(workspace(tmp_path / "mcplab", url), clerk, tmp_path / "home", agents_all=True)
    assert [(case.id, case.outcome, case.code) for case in live.result.cases] == [
        ("lookup-gpt", "pass", None),
        ("lookup-mini", "pass", None),
        ("lookup-page", "skip", "unsupported_agent"),
        ("total-gpt", "pass", None),
        ("total-mini", "pass", None),
        ("total-page", "skip", "unsupported_agent"),
    ]
    assert {request.body["model"] for request in seen.requests} == {"gpt-test", "mini-test"}
    assert live.result["lookup-mini"].case.tags == {"agent": "mini", "scenario": "lookup"}


def test_an_agent_without_its_key_fails_alone(tmp_path: Path) -> None:
    agents = AGENTS + "claude: {provider: anthropic, model: claude-test}\n"
    with http_shop() as (url, _):
        live, _ = drive(workspace(tmp_path / "mcplab", url, agents=agents), clerk, tmp_path / "home", agents=["claude", "gpt"])
    assert [(case.id, case.outcome, case.code) for case in live.result.cases] == [
        ("lookup-claude", "error", "missing_variable"),
        ("lookup-gpt", "pass", None),
        ("total-claude", "error", "missing_variable"),
        ("total-gpt", "pass", None),
    ]
    reason = "agent 'claude' needs the environment variable ANTHROPIC_API_KEY: export ANTHROPIC_API_KEY=..."
    assert live.result["total-claude"].reason == reason


def test_headers_and_tokens_reach_the_server_and_are_stored_nowhere(tmp_path: Path) -> None:
    auth = ', headers: {X-Tenant: acme, X-Shop-Key: "${SHOP_KEY}"}, auth: {type: bearer, token: "${SHOP_TOKEN}"}'
    secrets = {"SHOP_TOKEN": "tok-1234567", "SHOP_KEY": "key-7654321"}
    with http_shop() as (url, gate):
        gate.accepted = {"Bearer tok-1234567"}
        path = workspace(tmp_path / "mcplab", url, auth=auth)
        live, _ = drive(path, clerk, tmp_path / "home", environment=secrets, record=tmp_path / "home" / "tape.jsonl", artifacts=True)
        seen = gate.seen[-1]
    assert live.result.outcome == "pass"
    assert (seen["x-tenant"], seen["x-shop-key"]) == ("acme", "key-7654321")
    stored = all_text(tmp_path / "home")
    assert "${SHOP_TOKEN}" in stored
    assert not [secret for secret in (*secrets.values(), *KEYS.values()) if secret in stored]


def test_a_token_written_into_a_file_is_sent_and_not_copied(tmp_path: Path) -> None:
    with http_shop() as (url, gate):
        gate.accepted = {"Bearer literal-token"}
        path = workspace(tmp_path / "mcplab", url, auth=", auth: {type: bearer, token: literal-token}")
        live, _ = drive(path, clerk, tmp_path / "home", artifacts=True)
        again, seen = drive(path, clerk, tmp_path / "home", resume=live.result.run_id)
    assert live.result.outcome == again.result.outcome == "pass"
    assert not seen.requests
    assert "literal-token" not in all_text(tmp_path / "home")


def test_the_trace_of_a_real_run_is_decided_alike(tmp_path: Path) -> None:
    def half_right(request: ReceivedRequest) -> ScriptedResponse:
        return completion("shipped? sorry") if request.body["messages"][-1]["role"] == "tool" else clerk(request)

    with http_shop() as (url, _):
        path = workspace(tmp_path / "mcplab", url)
        live, _ = drive(path, half_right, tmp_path / "home", artifacts=True)
    again = check(load_suite(path), read_all_evidence(live.folder / "mcplab" / "trace.jsonl"))
    assert {case.outcome for case in live.result.cases} == {"pass", "fail"}
    for before, after in zip(live.result.cases, again.cases, strict=True):
        assert (before.id, before.outcome, before.extracted) == (after.id, after.outcome, after.extracted)
        assert [verdict.outcome for verdict in before.verdicts] == [verdict.outcome for verdict in after.verdicts]


def test_a_stored_run_of_several_agents_can_be_opened(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        live, _ = drive(workspace(tmp_path / "mcplab", url), clerk, tmp_path / "home", agents=["gpt", "mini"], repeat=2)
    result, entries = open_run(tmp_path / "home" / ".proctor", live.result.run_id)
    assert (result.counts, len(entries)) == (live.result.counts, 8)
    assert [verdict.outcome for verdict in result["total-mini"].verdicts] == ["pass"] * 8


def test_an_authorization_code_server_takes_the_token_that_was_given(tmp_path: Path) -> None:
    with http_shop() as (url, gate):
        gate.accepted = {"Bearer from=login"}
        path = workspace(tmp_path / "mcplab", url, auth=", auth: {type: oauth_authorization_code, mode: dcr}")
        live, _ = drive(path, clerk, tmp_path / "home", oauth_tokens=read_tokens(["shop=from=login"]), artifacts=tmp_path / "runs")
    assert live.result.outcome == "pass"
    assert "from=login" not in all_text(tmp_path / "home") + all_text(tmp_path / "runs")
    assert (tmp_path / "runs" / live.result.run_id / "results.json").is_file()


def test_client_credentials_are_fetched_by_the_names_of_variables(tmp_path: Path) -> None:
    with http_shop() as (url, gate):
        gate.accepted = {"Bearer fetched-token"}
        gate.tokens = [{"access_token": "fetched-token", "expires_in": 3600}]
        auth = (
            f', auth: {{type: oauth_client_credentials, token_url: "{url}/token", client_id_env: SHOP_ID, client_secret_env: SHOP_SECRET,'
            " scope: read, token_params: {resource: shop}}"
        )
        known = {"SHOP_ID": "clerk", "SHOP_SECRET": "hush-hush"}
        live, _ = drive(workspace(tmp_path / "mcplab", url, auth=auth), clerk, tmp_path / "home", environment=known)
        assert "client_id=clerk" in gate.forms[0] and "resource=shop" in gate.forms[0] and "scope=read" in gate.forms[0]
    assert live.result.outcome == "pass"


def test_attachments_reach_the_model(tmp_path: Path) -> None:
    config = CONFIG.replace("    prompt: total of order 17\n", "    prompt: total of order 17\n    attachments: [{path: files/a.png}]\n")
    with http_shop() as (url, _):
        path = workspace(tmp_path / "mcplab", url, config=config)
        (tmp_path / "mcplab" / "files").mkdir()
        (tmp_path / "mcplab" / "files" / "a.png").write_bytes(b"\x89PNG picture")

        def look(request: ReceivedRequest) -> ScriptedResponse:
            parts = next(message["content"] for message in request.body["messages"] if message["role"] == "user")
            if request.body["messages"][-1]["role"] == "tool":
                return completion('{"total": 9.5} shipped' if isinstance(parts, str) else '{"total": 9.5}')
            return completion("", [("lookup_order", {"id": 17})])

        live, seen = drive(path, look, tmp_path / "home")
    assert live.result.outcome == "pass"
    wanted = "data:image/png;base64," + base64.b64encode(b"\x89PNG picture").decode()
    assert wanted in json.dumps([request.body for request in seen.requests])


def test_a_recorded_run_is_replayed_without_servers_keys_or_variables(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with http_shop() as (url, _):
        path = workspace(tmp_path / "mcplab", url, auth=', auth: {type: bearer, token: "${SHOP_TOKEN}"}')
        first, _ = drive(path, clerk, tmp_path / "one", environment={"SHOP_TOKEN": "tok-1234567"}, record=tape)
    again = run(drive_mcplab(path, environment={}, home=tmp_path / "two", replay=tape))
    assert again.result.counts == first.result.counts == {"pass": 2, "fail": 0, "error": 0, "skip": 0}


def test_the_same_suite_runs_on_a_server_in_this_process(tmp_path: Path) -> None:
    path = workspace(tmp_path / "mcplab", NOWHERE, auth=", auth: {type: oauth_authorization_code}")
    live, _ = drive(path, clerk, tmp_path / "home", reached_by={"shop": local_shop()})
    assert live.result.counts["pass"] == 2


def test_an_unreachable_server_ends_the_run_before_the_first_case(tmp_path: Path) -> None:
    path = workspace(tmp_path / "mcplab", NOWHERE)
    with pytest.raises(TargetError, match="'shop'"):
        drive(path, clerk, tmp_path / "home")


def test_a_run_is_resumed_only_with_its_own_agents(tmp_path: Path) -> None:
    with http_shop() as (url, _):
        path = workspace(tmp_path / "mcplab", url)
        live, _ = drive(path, clerk, tmp_path / "home")
        again, seen = drive(path, clerk, tmp_path / "home", resume=live.result.run_id)
        assert again.result.counts["pass"] == 2
        assert not seen.requests
        with pytest.raises(InputError, match="started with the agents gpt, not mini"):
            drive(path, clerk, tmp_path / "home", resume=live.result.run_id, agents=["mini"])


# --- errors before a run starts -----------------------------------------------------------------------------------------


def prepared(suite: Suite, environment: dict[str, str] | None = None, **options: Any) -> Any:
    return prepare_mcplab(suite, KEYS if environment is None else environment, **options)


def test_all_missing_keys_and_variables_are_reported_at_once(tmp_path: Path) -> None:
    suite = loaded(tmp_path, auth=', headers: {X-Key: "${A_KEY}"}, auth: {type: api_key, value: "${B_KEY}"}')
    with pytest.raises(InputError) as caught:
        prepared(suite, {"B_KEY": ""})
    text = str(caught.value)
    assert "the environment variable A_KEY of its header X-Key is not set" in text
    assert "the environment variable B_KEY of its API key is empty" in text
    assert "agent 'gpt' needs the environment variable OPENAI_API_KEY" in text


def test_a_missing_login_is_reported_before_the_run(tmp_path: Path) -> None:
    suite = loaded(tmp_path, auth=", auth: {type: oauth_authorization_code}")
    with pytest.raises(InputError, match=r"--oauth-token shop=TOKEN"):
        prepared(suite)
    with pytest.raises(InputError, match="an OAuth token for 'shpo'"):
        prepared(suite, oauth_tokens={"shpo": "t"})


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret.txt", "is outside the workspace"),
        ("files/../../secret.txt", "is outside the workspace"),
        ("/etc/hosts.txt", "is outside the workspace"),
        ("..\\\\secret.txt", "is outside the workspace"),
        ("link.txt", "is outside the workspace"),
        ("folder/secret.txt", "is outside the workspace"),
        ("none.txt", "is no file"),
        ("dir.txt", "is no file"),
    ],
)
def test_an_attachment_outside_the_workspace_is_refused(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    config = CONFIG.replace("    prompt: total of order 17\n", f'    prompt: total\n    attachments: [{{path: "{path}"}}]\n')
    suite = loaded(tmp_path / "mcplab", config=config)
    (tmp_path / "mcplab" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "mcplab" / "folder").symlink_to(tmp_path)
    (tmp_path / "mcplab" / "dir.txt").mkdir()
    with pytest.raises(InputError, match=why) as caught:
        prepared(suite)
    assert "scenario 'total'" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["gpt"]),
        ({"agents": ["mini", "gpt", "mini"]}, ["mini", "gpt"]),
        ({"agents": ["mini"], "agents_all": True}, ["gpt", "mini", "page"]),
    ],
)
def test_agents_are_selected_by_flag_then_by_default(tmp_path: Path, options: dict[str, Any], expected: list[str]) -> None:
    assert [agent["id"] for agent in plan(loaded(tmp_path), **options).agents()] == expected


def test_without_any_selection_all_agents_run(tmp_path: Path) -> None:
    suite = loaded(tmp_path, config=CONFIG.replace("run_defaults: {selected_agents: [gpt]}\n", ""))
    assert [agent["id"] for agent in plan(suite).agents()] == ["gpt", "mini", "page"]


def test_an_unknown_agent_lists_the_available_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no agent 'gtp'; nearest: gpt; available: gpt, mini, page"):
        plan(loaded(tmp_path), agents=["gtp"])


def test_a_browser_default_does_not_skip_a_model_that_was_selected(tmp_path: Path) -> None:
    suite = loaded(tmp_path, config=CONFIG.replace("selected_agents: [gpt]", "selected_agents: [page]"))
    assert {row.case.skip.code for row in plan(suite).rows if row.case.skip} == {"unsupported_agent"}
    assert [row.case.skip for row in plan(suite, agents=["gpt"]).rows] == [None, None]


def test_a_case_run_by_one_agent_is_the_case_that_was_read(tmp_path: Path) -> None:
    suite = loaded(tmp_path)
    assert plan(suite).suite == suite


def test_overrides_replace_servers_and_the_one_for_a_scenario_wins(tmp_path: Path) -> None:
    path = workspace(tmp_path, NOWHERE)
    with (tmp_path / "servers.yaml").open("a") as file:
        file.write("".join(f'{name}: {{transport: http, url: "{NOWHERE}/{name}"}}\n' for name in ("staging", "local")))
    suite = load_suite(path)
    planned = plan(suite, overrides=read_overrides("staging", ["total=local, staging"]))
    assert {row.scenario: row.servers for row in planned.rows} == {"lookup": ("staging",), "total": ("local", "staging")}
    assert set(planned.servers) == {"staging", "local"}
    assert plan(suite, overrides=read_overrides(None, ["total="])).rows[1].servers == ()


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (ServerOverrides(everywhere=()), "names no server"),
        (ServerOverrides(everywhere=("shpo",)), "no server 'shpo'; available: shop"),
        (ServerOverrides(scenarios={"totl": ("shop",)}), "no scenario 'totl'; nearest: total"),
    ],
)
def test_an_override_without_a_target_is_refused(tmp_path: Path, overrides: ServerOverrides, why: str) -> None:
    with pytest.raises(InputError, match=why):
        plan(loaded(tmp_path), overrides=overrides)


def test_flags_that_cannot_be_read_are_refused_without_showing_a_token() -> None:
    with pytest.raises(InputError, match="SCENARIO=SERVER"):
        read_overrides(None, ["total"])
    with pytest.raises(InputError) as caught:
        read_tokens(["secret-without-server"])
    assert "secret" not in str(caught.value)


def test_a_suite_of_another_dialect_or_without_agents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no MCPLab suite"):
        plan(Suite(name="x"))
    with pytest.raises(InputError, match="names no agents"):
        plan(loaded(tmp_path, agents="{}\n", config=CONFIG.replace("agents: [{ref: gpt}]", "agents: []").partition("run_defaults")[0]))


def test_a_workspace_folder_with_one_config_runs_and_finds_its_files(tmp_path: Path) -> None:
    config = CONFIG.replace("    prompt: total of order 17\n", "    prompt: total\n    attachments: [{path: a.txt}]\n")
    workspace(tmp_path, NOWHERE, config=config)
    (tmp_path / "a.txt").write_text("hello")
    ready = prepared(load_suite(tmp_path))
    (sent,) = ready.config["scenarios"][1]["attachments"]
    assert sent == {"media_type": "text/plain", "type": "document", "data": "aGVsbG8=", "name": "a.txt"}


# --- models -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deployments", "path"),
    [
        ({}, "/openai/deployments/big-model/"),
        ({"AZURE_OPENAI_DEPLOYMENT": "shared"}, "/openai/deployments/shared/"),
        ({"AZURE_OPENAI_DEPLOYMENT": "shared", "AZURE_OPENAI_DEPLOYMENT_MY_AZURE": "own"}, "/openai/deployments/own/"),
    ],
)
def test_azure_agents_have_deployments_of_their_own(tmp_path: Path, deployments: dict[str, str], path: str) -> None:
    config = CONFIG.split("  - id: total")[0].replace("{ref: gpt}", "{id: my-azure, provider: azure_openai, model: big-model}")
    config = config.replace("- ref: lookup", "- {id: only, prompt: go, eval: {response_assertions: [{type: contains, value: yes}]}}")
    config = config.replace("value: yes", "value: 'yes'")

    async def work() -> tuple[LiveRun, Provider]:
        async with provider(answering("Yes.")) as seen:
            known = {"AZURE_OPENAI_API_KEY": "k" * 9, "AZURE_OPENAI_ENDPOINT": seen.url, **deployments}
            return await drive_mcplab(where, environment=known, home=tmp_path / "home", agents=["my-azure"]), seen

    where = workspace(tmp_path / "mcplab", NOWHERE, config=config)
    live, seen = run(work())
    assert live.result.outcome == "pass"
    assert path in seen.requests[0].path
    assert seen.requests[0].headers["api-key"] == "k" * 9


def test_an_agent_on_anthropic_needs_its_own_key(tmp_path: Path) -> None:
    suite = loaded(tmp_path, agents=AGENTS.replace("provider: openai, model: gpt-test", "provider: anthropic, model: m"))
    with pytest.raises(InputError, match="ANTHROPIC_API_KEY"):
        prepared(suite)
    assert prepared(suite, {"ANTHROPIC_API_KEY": "key-1234"}).secrets == {"key-1234"}


def test_azure_without_an_address_names_the_missing_variable(tmp_path: Path) -> None:
    suite = loaded(tmp_path, agents=AGENTS.replace("provider: openai, model: gpt-test", "provider: azure_openai, model: m"))
    with pytest.raises(InputError, match="AZURE_OPENAI_ENDPOINT"):
        prepared(suite, {"AZURE_OPENAI_API_KEY": "k"})


# --- ids and the resolved config ----------------------------------------------------------------------------------------


def test_request_ids_keep_their_tail_and_fit_into_a_header() -> None:
    route = Planned(case=Case(id="c"), scenario="große bestellung", agent={"id": "GPT 4.1 (mini)"}, servers=())
    found = request_id("20261115-1", route, "große bestellung-x", 2)
    assert found == "mcplab-run:20261115-1:gro_e_bestellung:gpt_4_1_mini:gro_e_bestellung-x-run3"
    long = request_id("r", Planned(case=Case(id="c"), scenario="s" * 300, agent={"id": "a"}, servers=()), "c" * 50, 0)
    assert len(long) == 180
    assert long.endswith("c" * 50 + "-run1")


def test_the_resolved_config_is_the_same_suite_without_secrets(tmp_path: Path) -> None:
    auth = ", headers: {X-Api-Key: literal-key}, auth: {type: bearer, token: literal-token}"
    suite = loaded(tmp_path / "one", auth=auth)
    text = to_yaml(resolved_config(plan(suite), {}))
    assert "literal-" not in text
    (tmp_path / "again.yaml").write_text(text)
    again = load_suite(tmp_path / "again.yaml")
    assert again.dialect == "mcplab"
    for before, after in zip(suite.cases, again.cases, strict=True):
        assert (after.id, after.input, after.captures) == (before.id, before.input, before.captures)
        assert [(each.check, each.spec) for each in after.assertions] == [(each.check, each.spec) for each in before.assertions]


def test_a_cancelled_run_stores_finished_results_and_leaves_no_process(tmp_path: Path) -> None:
    started = asyncio.Event()

    def slow(request: ReceivedRequest) -> ScriptedResponse:
        if "total of" in json.dumps(request.body["messages"]):
            started.set()
            return ScriptedResponse(silent=True)
        return clerk(request)

    async def work() -> LiveRun:
        async with provider(slow) as seen:
            known = {**KEYS, "OPENAI_BASE_URL": f"{seen.url}/v1"}
            task = asyncio.create_task(drive_mcplab(path, environment=known, home=tmp_path / "home", concurrency=1, artifacts=True))
            await started.wait()
            task.cancel()
            return await task

    with http_shop() as (url, _):
        path = workspace(tmp_path / "mcplab", url)
        live = run(work())
    assert live.ended == "interrupted"
    assert [case.id for case in live.result.cases] == ["lookup"]
    results = json.loads((live.folder / "mcplab" / "results.json").read_text())
    assert results["metadata"]["execution_status"] == "stopped"
    assert [row["scenario_id"] for row in results["scenarios"]] == ["lookup"]


def test_the_gate_of_the_tests_refuses_a_wrong_token(tmp_path: Path) -> None:
    with http_shop() as (url, gate):
        assert isinstance(gate, Gate)
        gate.accepted = {"Bearer right"}
        path = workspace(tmp_path / "mcplab", url, auth=", auth: {type: bearer, token: wrong-token}")
        with pytest.raises(Exception, match="'shop'") as caught:
            drive(path, clerk, tmp_path / "home")
    assert "wrong-token" not in str(caught.value)
