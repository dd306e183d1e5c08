"""What an MCPLab suite brings, on every path and at every entry point: untrusted, nothing of it is used.

Its agents name only their provider. The address and the key come from the environment and from
the `.env` files of the workspace: one of those sends the user's own key to the trap.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import proctor as library
from proctor.errors import InputError
from tests.integration.running import proctor
from tests.integration.trust_world import SECRET, World, live_session, refused, world
from tests.mcp_server.clients import connected

__all__ = ["world"]
pytestmark = pytest.mark.timeout(60)

AGENT = {"provider": "openai", "model": "stub-1"}
EVIDENCE = '{"case": "one", "input": "hi", "text": "hello, a good day"}\n'
FILES = ("agents.yaml", "servers.yaml", ".env", ".mcplab-app-settings.yaml", "test-cases/more.yaml")


@pytest.fixture(autouse=True)
def only_the_workspace_leads_to_the_trap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.setenv(name, SECRET)


def configs(world: World) -> dict[str, dict[str, Any]]:
    """Everything an MCPLab config can bring."""
    plain = {"id": "one", "prompt": "hi", "eval": {"response_assertions": [{"type": "contains", "value": "hello"}]}}
    judged = {"id": "one", "prompt": "hi", "eval": {"agent_assertions": [{"label": "nice", "prompt": "is nice"}]}}
    server = {"id": "s", "transport": "http", "url": world.trap.url, "auth": {"type": "bearer", "env": "SOME_CLOUD_SECRET"}}
    return {
        "an agent of its own": {"agents": [{"id": "a", **AGENT}], "scenarios": [plain]},
        "an agent of Anthropic": {"agents": [{"id": "a", "provider": "anthropic", "model": "stub-1"}], "scenarios": [plain]},
        "an agent of Azure": {"agents": [{"id": "a", "provider": "azure_openai", "model": "stub-1"}], "scenarios": [plain]},
        "an agent of the library": {"agents": [{"ref": "gpt"}], "scenarios": [plain]},
        "a server": {"agents": [{"id": "a", **AGENT}], "servers": [server], "scenarios": [{**plain, "servers": ["s"]}]},
        "a judge": {"agents": [{"id": "a", **AGENT}], "scenarios": [judged]},
    }


CONFIGS = ("an agent of its own", "an agent of Anthropic", "an agent of Azure", "an agent of the library", "a server", "a judge")
VARIABLES = {
    "an agent of its own": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "an agent of Anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "an agent of Azure": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
    "a server": ("SOME_CLOUD_SECRET",),
}


def write_workspace(folder: Path, world: World, config: dict[str, Any]) -> Path:
    """Write a workspace whose variables point to the trap; return the path of its config."""
    (folder / "evals").mkdir(parents=True)
    (folder / "test-cases").mkdir()
    (folder / "agents.yaml").write_text(json.dumps({"gpt": AGENT}))
    (folder / "servers.yaml").write_text("{}\n")
    (folder / ".mcplab-app-settings.yaml").write_text("evaluation_judge_agent_name: gpt\n")
    (folder / "test-cases" / "more.yaml").write_text("id: more\nprompt: hi\n")
    names = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT")
    (folder / ".env").write_text("".join(f"{name}={world.trap.url}\n" for name in names))
    path = folder / "evals" / "o.proctor.yaml"
    path.write_text(json.dumps(config))
    return path


def reach(way: str, world: World, config: dict[str, Any]) -> Path:
    """Write a foreign workspace; return its path."""
    theirs = write_workspace(world.outside / "ws", world, config)
    if way == "elsewhere":
        return theirs
    if way == "a link to the config":
        link = write_workspace(world.folder / "ws", world, config)
        link.unlink()
        link.symlink_to(theirs)
        return link
    if way == "a link to the workspace":
        (world.folder / "ws").symlink_to(theirs.parents[1])
        return world.folder / "ws" / "evals" / "o.proctor.yaml"
    ours = write_workspace(world.folder / "ws", world, config)
    linked = world.folder / "ws" / way.removeprefix("a link to ")
    linked.unlink()
    linked.symlink_to(world.outside / "ws" / way.removeprefix("a link to "))
    return ours


WAYS = ("elsewhere", "a link to the config", "a link to the workspace", *(f"a link to {name}" for name in FILES))


@pytest.mark.in_turn
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("way", WAYS)
def test_run_uses_nothing_of_a_foreign_mcplab_workspace(world: World, name: str, way: str) -> None:
    path = reach(way, world, configs(world)[name])
    done = proctor("run", path, "--quiet")
    refused(done, world)
    for variable in VARIABLES.get(name, ()):
        assert variable in done.err
    with pytest.raises(InputError, match="not trusted"):
        library.run(path)
    assert world.untouched()


@pytest.mark.parametrize("name", CONFIGS)
def test_run_uses_a_foreign_mcplab_workspace_with_trust(world: World, name: str) -> None:
    path = reach("elsewhere", world, configs(world)[name])
    proctor("run", path, "--quiet", "--trust", "--retries", "0")
    assert world.trap.requests or name in ("a server", "an agent of Anthropic", "an agent of Azure")


def test_run_uses_an_mcplab_workspace_of_the_working_folder(world: World) -> None:
    path = write_workspace(world.folder / "ws", world, configs(world)["an agent of the library"])
    proctor("run", path, "--quiet", "--retries", "0")
    assert world.trap.requests


@pytest.mark.parametrize("way", ["elsewhere", "a link to .env"])
def test_pytest_uses_nothing_of_a_foreign_mcplab_workspace(world: World, way: str) -> None:
    path = reach(way, world, configs(world)["an agent of its own"])
    done = live_session(world, path)
    assert "not trusted" in done.stdout + done.stderr and "OPENAI_API_KEY" in done.stdout + done.stderr
    assert world.untouched()


@pytest.mark.parametrize("way", ["elsewhere", "a link to .env"])
def test_an_assistant_runs_no_foreign_mcplab_workspace(world: World, way: str) -> None:
    path = reach(way, world, configs(world)["an agent of its own"])

    async def ask() -> None:
        async with connected(world.folder / ".proctor") as (client, _):
            result = await client.call_tool("run_suite", {"path": str(path)})
            assert result.is_error, result

    asyncio.run(ask())
    assert world.untouched()


def test_variables_outside_the_working_folder_are_not_read_for_a_workspace_inside(world: World) -> None:
    config = configs(world)["an agent of the library"]
    path = write_workspace(world.folder / "ws", world, config)
    (world.folder / "ws" / ".env").rename(world.folder / ".env")
    (world.folder / "ws" / "proctor.yaml").touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(world.folder / "ws")
        done = proctor("run", path, "--quiet")
        refused(done, world)
        assert str(world.folder / ".env") in done.err


@pytest.mark.parametrize("name", ["an agent of its own", "a judge"])
def test_validate_and_convert_open_no_model_of_an_mcplab_workspace(world: World, name: str) -> None:
    path = reach("elsewhere", world, configs(world)[name])
    for command in ("validate", "convert"):
        assert proctor(command, path).code == 0
    assert world.untouched()


# --- the judge of a workspace, where evidence is only read --------------------------------------------------------------------


@pytest.mark.parametrize("root", [".", "ws"])
def test_check_calls_no_judge_that_only_an_mcplab_workspace_names(world: World, root: str) -> None:
    path = write_workspace(world.folder / root / "", world, configs(world)["a judge"])
    done = proctor("check", path, "runs.jsonl")
    refused(done, world)
    assert "OPENAI_API_KEY" in done.err and ".env" in done.err
    assert "list its file under `trust:` in proctor.yaml" in done.err
    assert proctor("check", path, "runs.jsonl", "--no-judge").code == 1
    assert world.untouched()
    assert proctor("check", path, "runs.jsonl", "--trust").code == 0
    assert world.trap.requests


def test_a_line_of_the_workspace_file_allows_the_judge_of_an_mcplab_workspace(world: World) -> None:
    path = write_workspace(world.folder, world, configs(world)["a judge"])
    (world.folder / "proctor.yaml").write_text('trust: ["evals/o.proctor.yaml"]\n')
    assert proctor("check", path, "runs.jsonl").code == 0
    assert world.trap.requests


@pytest.mark.parametrize("file", FILES)
def test_that_line_allows_nothing_over_a_link_out_of_the_folder(world: World, file: str) -> None:
    path = reach(f"a link to {file}", world, configs(world)["a judge"])
    (world.folder / "proctor.yaml").write_text('trust: ["ws/evals/o.proctor.yaml"]\n')
    refused(proctor("check", path, "runs.jsonl"), world)


def test_a_judge_of_the_command_uses_the_address_of_the_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_workspace(world.folder, world, configs(world)["a judge"])
    (world.folder / ".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:9/not-there\n")
    monkeypatch.setenv("OPENAI_BASE_URL", world.trap.url)
    assert proctor("check", path, "runs.jsonl", "--judge-model", "openai/stub-1").code == 0
    assert world.trap.requests


def test_workspace_variables_do_not_redirect_a_judge_of_the_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_workspace(world.folder, world, configs(world)["a judge"])
    # Without a key the request cannot even be made.
    monkeypatch.delenv("OPENAI_API_KEY")
    assert proctor("check", path, "runs.jsonl", "--judge-model", "openai/stub-1").code == 4
    assert world.untouched()


def test_an_assistant_calls_no_judge_that_only_an_mcplab_workspace_names(world: World) -> None:
    path = write_workspace(world.folder, world, configs(world)["a judge"])

    async def ask() -> None:
        async with connected(world.folder / ".proctor") as (client, _):
            result = await client.call_tool("check_evidence", {"path": str(path), "evidence": [json.loads(EVIDENCE)]})
            assert result.is_error and "OPENAI_API_KEY" in str(result.content), result

    asyncio.run(ask())
    assert world.untouched()
