"""Every entry point gives the same answer: the command line, Python, MCP, the service and pytest.

Every dialect is tried with every verb of an entry point. Whole documents are compared, except ids, times and file locations.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp.client import Client

import proctor
import proctor.pytest_plugin.items  # a session in this process forgets the modules it loaded
import proctor.pytest_plugin.reporting
from proctor.actions.checking.recheck import recheck
from proctor.actions.history.compare import compare
from proctor.actions.workspace.run_history import open_run
from proctor.errors import InputError
from proctor.mcp_server.http import make_service_server
from proctor.model.result import RunResult
from proctor.report.blocks.exchange import add_exchanges
from proctor.report.data.json_text import render_json
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.store.files.run_files import RunFiles
from tests.actions.mcplab.test_mcplab_command import model_server
from tests.actions.mcplab_world import clerk
from tests.integration.running import proctor as command
from tests.llm.provider_server import ReceivedRequest, ScriptedResponse
from tests.mcp_server.clients import connected
from tests.rest.services import Service
from tests.service.agents import LOOPBACK
from tests.tables import load
from tests.targets.mcp_twins import http_shop

pytest_plugins = ["pytester"]

TABLE: dict[str, dict[str, Any]] = {row["id"]: row for row in load("actions/cases/same_answer.yaml")}
ANSWER = {"text": "It has shipped.", "tool_calls": [{"name": "lookup_order", "arguments": {"id": 17}}]}
IDS_TIMES_AND_PLACES = {"run_id", "started_at", "file", "path", "suite_path", "suite_hash", "duration_ms", "latency", "chosen"}
Answers = dict[str, Any]

every_dialect = pytest.mark.parametrize("dialect", list(TABLE))


def answer(request: ReceivedRequest) -> ScriptedResponse:
    """The agent of the workspace, and the model of MCPLab's own agent."""
    return ScriptedResponse(body=ANSWER) if request.path == "/agent" else clerk(request)


class World:
    """A workspace with suites of all dialects, and a service that has the same targets and keys."""

    def __init__(self, folder: Path, service: Service, project: str) -> None:
        self.folder = folder
        self.service = service
        self.project = project

    def suite(self, dialect: str) -> Path:
        return self.folder / dialect / "suite.yaml"

    def home(self, entry_point: str, dialect: str) -> Path:
        return self.folder / "homes" / entry_point / dialect / ".proctor"

    def ask_local_mcp(self, door_home: Path, tool: str, **given: Any) -> Any:
        async def use() -> Any:
            async with connected(door_home) as (client, _):
                return await call(client, tool, given)

        door_home.mkdir(parents=True, exist_ok=True)
        return asyncio.run(use())

    def ask_service_mcp(self, tool: str, **given: Any) -> Any:
        async def use(hub: Hub) -> Any:
            server = make_service_server(hub, lambda context: LOCAL)
            async with Client(server) as client:
                return await call(client, tool, given)

        return self.service.run(use)

    def ask_rest(self, path: str) -> Any:
        found = self.service.get(path)
        assert found.status_code == 200, found.text
        return found.json()

    def start_over_rest(self, dialect: str) -> str:
        sent = self.service.post("/api/runs", json={"project_id": self.project, "suite": self.suite(dialect).read_text()})
        assert sent.status_code == 202, sent.text
        self.service.get(f"/api/runs/{sent.json()['id']}/events")  # ends with the run
        return str(sent.json()["id"])


async def call(client: Client, tool: str, given: dict[str, Any]) -> Any:
    found = await client.call_tool(tool, given)
    assert not found.is_error, found
    return found.structured_content


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("workspace")
    with http_shop() as (url, _), model_server(answer) as model, pytest.MonkeyPatch.context() as patch:
        for row in TABLE.values():
            # A suite without a name of its own has that of its file; one that was sent is called so, too.
            (folder / row["id"]).mkdir()
            (folder / row["id"] / "suite.yaml").write_text(row["suite"].replace("URL", url))
            (folder / f"{row['id']}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in row["evidence"]))
            (folder / row["id"] / "broken.yaml").write_text(row["broken"])
        settings = {"targets": {"shop": {"type": "http", "url": f"{model}/agent"}}, "default_target": "shop"}
        keys = {"OPENAI_API_KEY": "sk-very-secret", "OPENAI_BASE_URL": f"{model}/v1", "PROCTOR_TRUST": "1"}
        for name, value in keys.items():
            patch.setenv(name, value)
        for entry_point in ("command line", "python", "local mcp", "pytest"):
            for dialect in TABLE:
                place = folder / "homes" / entry_point / dialect
                place.mkdir(parents=True)
                (place / "proctor.yaml").write_text(json.dumps(settings))
        home = tmp_path_factory.mktemp("service")
        with Service(f"sqlite:///{home / 'proctor.db'}", home, with_workers=True, allowed_addresses=LOOPBACK) as service:
            project = service.post("/api/projects", json={"name": "shop", "settings": settings}).json()["id"]
            for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
                stored = service.put(f"/api/projects/{project}/secrets/{name}", json={"value": keys[name]})
                assert stored.status_code < 300, stored.text
            yield World(folder, service, project)


def to_json(result: RunResult) -> Any:
    return json.loads(render_json(result))


def bare(document: Any) -> Any:
    """A document without what differs between runs and entry points."""
    if isinstance(document, dict):
        members = {key: bare(value) for key, value in document.items() if key not in IDS_TIMES_AND_PLACES}
        if members.get("dialect") == "native":
            # The header of a stored run may omit the default.
            del members["dialect"]
        if "evidence" in members:
            # Where it was read from: a line of a file, or nothing.
            members["evidence"] = {key: value for key, value in (members["evidence"] or {}).items() if key not in ("line", "id")}
        return members
    return [bare(each) for each in document] if isinstance(document, list) else document


def assert_all_alike(answers: Answers) -> None:
    first, *others = answers
    for other in others:
        found = list(differences(bare(answers[first]), bare(answers[other])))
        assert not found, f"{first} and {other} answer differently: {found}"


def differences(left: Any, right: Any, place: str = "$") -> Iterator[str]:
    """Every place where two documents differ, with both values."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            yield from differences(left.get(key), right.get(key), f"{place}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for at, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from differences(one, other, f"{place}[{at}]")
    elif left != right:
        yield f"{place}: {left!r} and {right!r}"


@every_dialect
def test_a_suite_is_checked_alike(world: World, dialect: str) -> None:
    suite, evidence = world.suite(dialect), TABLE[dialect]["evidence"]
    shown = command("check", suite, world.folder / f"{dialect}.jsonl", "--format", "json")
    given = {"document": suite.read_text(), "evidence": evidence, "detail": "full"}
    answers = {
        "command line": json.loads(shown.out),
        "local mcp": world.ask_local_mcp(world.home("local mcp", dialect), "check_evidence", **given),
        "service": world.ask_service_mcp("check_evidence", **given),
        "python": to_json(proctor.check(proctor.load_suite(suite), evidence)),
    }
    exchanges: dict[str, Any] = {}
    for entry_point, case in ((entry_point, case) for entry_point, found in answers.items() for case in found["cases"]):
        # The account of plain evidence, the exchange and the deciding characters are not computed for results that
        # stay in Python: the caller of `check` has the evidence.
        account = (case["evidence"] or {}).pop("account", None)
        exchange = case.pop("exchange", None), [one.pop("ranges", None) for one in case["assertions"]]
        assert entry_point == "python" or (account["reader"] == "plain" and exchange[0] is not None)
        assert entry_point == "python" or exchanges.setdefault(case["id"], exchange) == exchange
    assert_all_alike(answers)
    assert answers["python"]["counts"]["fail"] == 1 and shown.code == 1


@every_dialect
@pytest.mark.timeout(60)
def test_a_suite_is_run_rechecked_and_compared_alike(world: World, dialect: str) -> None:
    suite = world.suite(dialect)
    homes = {entry_point: world.home(entry_point, dialect) for entry_point in ("command line", "python", "local mcp")}
    shown = command("run", suite, "--home", homes["command line"], "--format", "json", "--quiet")
    assert shown.code == 1, shown
    in_local_mcp = world.ask_local_mcp(homes["local mcp"], "run_suite", path=str(suite), waitS=30, detail="full")
    over_mcp = world.ask_service_mcp("run_suite", document=suite.read_text(), projectId=world.project, waitS=30, detail="full")
    over_rest = world.start_over_rest(dialect)
    runs = {
        "command line": json.loads(shown.out),
        "python": to_json(proctor.run(suite, home=homes["python"])),
        "local mcp": in_local_mcp["result"],
        "service over mcp": over_mcp["result"],
        "service over rest": world.ask_rest(f"/api/runs/{over_rest}/report?format=json"),
    }
    assert_all_alike(runs)
    assert all(case["exchange"]["answer"] for case in runs["service over rest"]["cases"])
    one, *_ = world.ask_rest(f"/api/runs/{over_rest}/results")["data"]
    alone = world.ask_rest(f"/api/runs/{over_rest}/results/{one['id']}")["result"]
    assert bare(alone) in bare(runs["service over rest"]["cases"])
    again = command("recheck", "latest", "--home", homes["command line"], "--format", "json")
    assert_all_alike({"run": runs["python"], "command line": json.loads(again.out), "python": to_json(recheck(homes["python"], "latest"))})
    for home in homes.values():
        proctor.run(suite, home=home)
    first = {entry_point: RunFiles(home).list_ids()[-1] for entry_point, home in homes.items()}
    side_by_side = command("compare", first["command line"], "latest", "--home", homes["command line"], "--format", "json")
    found = compare(homes["python"], first["python"], "latest")
    base, id = in_local_mcp["id"], over_mcp["id"]
    assert_all_alike(
        {
            "command line": json.loads(side_by_side.out),
            "python": json.loads(msgspec.json.encode(found)),
            "local mcp": world.ask_local_mcp(homes["local mcp"], "compare_runs", base=base, candidate="latest"),
            "service over mcp": world.ask_service_mcp("compare_runs", base=id, candidate=over_rest),
            "service over rest": world.ask_rest(f"/api/runs/{over_rest}/compare?base={id}"),
        }
    )


@every_dialect
def test_pytest_decides_and_drives_alike(world: World, dialect: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    place = world.home("pytest", dialect).parent
    monkeypatch.chdir(place)
    file = place / "suite.proctor.yaml"
    file.write_text(world.suite(dialect).read_text())
    suite = proctor.load_suite(file)

    def outcomes(*arguments: object) -> dict[str, str]:
        words = [str(each) for each in ("--rootdir", place, *arguments, file)]
        done = pytester.runpytest_inprocess("-p", "proctor.pytest_plugin.plugin", "-p", "no:cacheprovider", *words)
        return {word: str(count) for word, count in done.parseoutcomes().items()}

    checked = proctor.check(suite, TABLE[dialect]["evidence"])
    assert outcomes("--proctor-evidence", world.folder / f"{dialect}.jsonl") == words_for(checked)
    driven = proctor.run(suite, home=world.home("python", dialect))
    assert outcomes("--proctor-live") == words_for(driven)
    home = world.home("pytest", dialect)
    stored = [case for id in reversed(RunFiles(home).list_ids()) for case in to_json(add_exchanges(*open_run(home, id)))["cases"]]
    assert not list(differences(bare(stored), bare(to_json(driven)["cases"])))


def words_for(result: RunResult) -> dict[str, str]:
    counts = {"passed": result.counts["pass"], "failed": result.counts["fail"] + result.counts["error"], "skipped": result.counts["skip"]}
    return {word: str(count) for word, count in counts.items() if count}


@every_dialect
def test_mistakes_are_reported_alike(world: World, dialect: str) -> None:
    file = world.folder / dialect / "broken.yaml"
    text = file.read_text()
    with pytest.raises(InputError) as refused:
        proctor.load_suite(file)
    places = [[each.origin.line, each.origin.column, each.message] for each in refused.value.problems]
    shown = command("validate", file)
    heads = [f"{file}:{line}:{column}: {message}" for line, column, message in places]
    assert shown.code == 4 and all(head in shown.out for head in heads), shown
    sent = world.service.post("/api/runs", json={"project_id": world.project, "suite": text})
    assert sent.status_code == 400
    problems = {
        "local mcp": world.ask_local_mcp(world.home("local mcp", dialect), "validate_suite", path=str(file))["problems"],
        "service over mcp": world.ask_service_mcp("validate_suite", document=text)["problems"],
    }
    for entry_point, found in problems.items():
        assert [[each["line"], each["column"], each["message"]] for each in found] == places, entry_point
    assert all(message in sent.text.replace('\\"', '"') for _, _, message in places), sent.text
