"""The MCP server as a process of its own, used by real clients: over stdio and over HTTP, in both eras, ended as clients end servers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.foreign import install_from_npm
from tests.mcp_server.clients import ERAS
from tests.mcp_server.scenario import author_and_verify, call

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

PROCTOR = [sys.executable, "-m", "proctor"]
HELLO = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, '
    '"clientInfo": {"name": "t", "version": "1"}}}\n'
)


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}


def over_stdio(folder: Path, *flags: str) -> StdioServerParameters:
    return StdioServerParameters(command=PROCTOR[0], args=[*PROCTOR[1:], "mcp", *flags], cwd=folder, env=environment())


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", ERAS)
async def test_both_examples_over_stdio(tmp_path: Path, mode: Any) -> None:
    async with asyncio.timeout(120):
        async with Client(over_stdio(tmp_path), mode=mode) as client:
            await author_and_verify(client)
            (task, *_) = (await call(client, "tasks", action="list"))["data"]
        # The next server finds what the first one stored.
        async with Client(over_stdio(tmp_path, "--home", str(tmp_path / ".proctor")), mode=mode) as client:
            assert len((await call(client, "criteria", action="list", taskId=task["id"]))["data"]) == 2


def test_a_workspace_is_used_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(
        "import os\ndef answer(message):\n    print('noise on standard output')\n    os.system('echo noise of a program; cat')\n"
        "    return 'hello ' + message\n"
    )
    (tmp_path / "proctor.yaml").write_text("targets:\n  me: {type: callable, function: 'my_agent:answer'}\ndefault_target: me\n")
    (tmp_path / "suite.yaml").write_text("proctor: 1\ncases:\n  - {id: a, input: you, expect: [{response_contains: hello you}]}\n")

    async def main() -> None:
        async with asyncio.timeout(120), Client(over_stdio(tmp_path)) as client:
            assert (await call(client, "validate_suite", path="suite.yaml"))["valid"]
            run = await call(client, "run_suite", path="suite.yaml")
            assert (run["status"], run["result"]["outcome"]) == ("completed", "pass")

    asyncio.run(main())
    shown = subprocess.run([*PROCTOR, "list"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert "1 pass" in shown.stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A `proctor serve` of its own: its address, and an organization key."""
    home = str(tmp_path_factory.mktemp("clients") / "home")
    made = subprocess.run(
        [*PROCTOR, "keys", "create", "--kind", "organization", "--home", home],
        env=environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    with subprocess.Popen(
        [*PROCTOR, "serve", "--port", "0", "--home", home], env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found[0], made.stdout.strip()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


@pytest.mark.parametrize("mode", ERAS)
async def test_both_examples_over_http(service: tuple[str, str], mode: Any) -> None:
    url, key = service
    async with asyncio.timeout(120), httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60) as web:
        before = {run["id"] for run in (await web.get(f"{url}/task-runs")).json()["data"]}
        async with Client(streamable_http_client(f"{url}/mcp", http_client=web), mode=mode) as client:
            await author_and_verify(client)
        task_runs = (await web.get(f"{url}/task-runs")).json()["data"]
        assert sorted(run["verdict"] for run in task_runs if run["id"] not in before) == ["fail", "partial", "pass"]


@pytest.mark.parametrize("mode", ERAS)
async def test_simulated_systems_are_servers_for_a_run_and_for_a_sandbox(service: tuple[str, str], mode: Any) -> None:
    """An agent with only an MCP client and the token of its run: it works, and is verified on the end state."""
    url, key = service
    async with asyncio.timeout(120), httpx2.AsyncClient(base_url=url, timeout=60) as web:

        async def ask(method: str, path: str, body: Any = None, token: str = key) -> Any:
            answer = await web.request(method, path, json=body, headers={"authorization": f"Bearer {token}"})
            assert answer.status_code < 300, answer.text
            return answer.json()

        simulator = await ask("POST", "/simulators", {"name": "s", "type": "Records", "config": {"seed": {"orders": [{"id": "7"}]}}})
        environment = await ask("POST", "/environments", {"name": "e"})
        await ask("POST", f"/environments/{environment['id']}/simulators/{simulator['id']}")
        benchmark = await ask("POST", "/benchmarks", {"name": f"Orders {mode}", "environment_id": environment["id"]})
        task = await ask("POST", "/tasks", {"benchmark_id": benchmark["id"], "name": "ship"})
        shipped = {"assert": "records-match", "collection": "orders", "where": {"id": "7", "status": "shipped"}}
        await ask("POST", "/criteria", {"task_id": task["id"], "label": "shipped", "assertion": shipped})
        reference = (await ask("POST", f"/benchmarks/{benchmark['id']}/publish"))["reference"]
        run = await ask("POST", "/v1/benchmark-runs", {"benchmark": reference})
        task_run = f"/v1/task-runs/{run['task_runs'][0]['id']}"
        await ask("POST", f"{task_run}/start", token=run["bearer_token"])
        made = await ask("POST", "/sandboxes", {"simulator_id": simulator["id"]})
        places = [(url + run["endpoints"]["mcp"], run["bearer_token"]), (made["credentials"]["mcp_url"], made["credentials"]["token"])]
        for place, token in places:
            headers = {"authorization": f"Bearer {token}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=60) as own,
                Client(streamable_http_client(place, http_client=own), mode=mode) as client,
            ):
                assert "records_update" in {tool.name for tool in (await client.list_tools()).tools}
                change = {"collection": "orders", "id": "7", "row": {"status": "shipped"}}
                assert not (await client.call_tool("records_update", change)).is_error
                assert (await client.call_tool("records_get", {"collection": "orders", "id": "8"})).is_error
        done = await ask("POST", f"{task_run}/complete", token=run["bearer_token"])
        assert done["verdict"] == "pass", done
        assert len((await ask("GET", f"/sandboxes/{made['id']}/events"))["data"]) == 2


def test_a_wrong_key_is_refused_over_http(service: tuple[str, str]) -> None:
    for key in (None, "vk_" + "x" * 43):
        headers = {"authorization": f"Bearer {key}"} if key else {}
        assert (
            httpx2.post(f"{service[0]}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=headers).status_code == 401
        )


@pytest.mark.in_turn
@pytest.mark.parametrize(("how", "code"), [("closed", 0), (signal.SIGTERM, 0), (signal.SIGINT, 2)], ids=str)
def test_the_server_ends_with_its_client(tmp_path: Path, how: Any, code: int) -> None:
    with subprocess.Popen(
        [*PROCTOR, "mcp"], cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(HELLO)
        process.stdin.flush()
        assert '"serverInfo"' in process.stdout.readline()
        if how == "closed":
            process.stdin.close()
        else:
            process.send_signal(how)
        assert process.wait(20) == code
        assert process.stderr.read() == ""


@pytest.mark.in_turn
def test_the_program_of_the_guide_works_as_described(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "author-criteria-from-a-coding-agent.md").read_text(encoding="utf-8")
    program, printed = re.search(r"```py\n(.*?)```", page, re.DOTALL), re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert program is not None and printed is not None
    shim = tmp_path / "bin" / "proctor"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proctor "$@"\n')
    shim.chmod(0o755)
    environ = {**environment(), "PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-c", program[1]]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == printed[1]


INSPECTOR = "@modelcontextprotocol/inspector"


@pytest.fixture(scope="session")
def inspector(pytestconfig: pytest.Config) -> str:
    """The inspector of the protocol's authors, a client in another language; installed once into pytest's cache."""
    folder = Path(pytestconfig.cache.mkdir("live-mcp-inspector"))  # type: ignore[union-attr]
    return str(install_from_npm(folder, INSPECTOR) / ".bin" / "mcp-inspector")


@pytest.mark.on_request
def test_a_client_in_another_language_is_served(tmp_path: Path, inspector: str) -> None:
    def ask(*words: str) -> str:
        command = [inspector, "--cli", *PROCTOR, "mcp", "--home", str(tmp_path), *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert '"criteria"' in ask("--method", "tools/list")
    made = ask("--method", "tools/call", "--tool-name", "simulators", "--tool-arg", "action=create", "type=FHIR", "name=EHR")
    assert "sim_" in made and '"isError": true' not in made
    output = ask("--method", "tools/call", "--tool-name", "simulators", "--tool-arg", "action=create", "type=FIHR", "name=EHR")
    assert '"isError": true' in output and "nextStep" in output
