"""`proctor run` on an MCPLab workspace, as a user types it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.actions.mcplab_world import clerk, workspace
from tests.integration.running import proctor
from tests.llm.provider_server import ReceivedRequest, ScriptedResponse, provider
from tests.targets.mcp_twins import http_shop


@contextmanager
def model_server(reply: Callable[[ReceivedRequest], ScriptedResponse] = clerk) -> Iterator[str]:
    """The scripted OpenAI-compatible server in a thread of its own, since the command has its own event loop."""
    started, stop = threading.Event(), None
    address: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        async with provider(reply) as seen:
            address.append(seen.url)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    started.wait(10)
    try:
        yield address[0]
    finally:
        assert stop is not None
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_a_workspace_runs_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_shop() as (url, _), model_server() as model:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model}/v1")
        config = workspace(tmp_path / "mcplab", url)
        done = proctor("run", config, "--home", tmp_path / "home", "--artifacts", "mcplab", "--quiet")
    assert done.code == 0, done
    assert "2 passed" in done.out
    written = {path.name for path in (tmp_path / "home").rglob("*")}
    assert {"results.json", "trace.jsonl", "summary.md", "report.html", "resolved-config.yaml"} <= written
    unknown = proctor("run", config, "--home", tmp_path / "home", "--agents", "gtp")
    assert (unknown.code, "gpt" in unknown.err) == (4, True), unknown


def test_progress_counts_every_scenario_with_every_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_shop() as (url, _), model_server() as model:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model}/v1")
        done = proctor("run", workspace(tmp_path / "mcplab", url), "--home", tmp_path / "home", "--agents", "gpt,mini,page", "-n", "2")
    counted = [line.split()[0] for line in done.err.splitlines() if line.partition("/")[0].isdigit()]
    assert counted == [f"{number}/12" for number in range(1, 13)], done.err


@pytest.mark.parametrize("folder", ["mcplab", ".", "here"])
def test_variables_come_from_the_env_file_of_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """In its root, next to it, or in the working folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with http_shop() as (url, gate), model_server() as model:
        gate.accepted = {"Bearer from-the-environment"}
        monkeypatch.setenv("SHOP_TOKEN", "from-the-environment")
        config = workspace(tmp_path / "mcplab", url, auth=', auth: {type: bearer, token: "${SHOP_TOKEN}"}')
        variables = f"OPENAI_API_KEY='sk-very-secret' # ours\nexport OPENAI_BASE_URL={model}/v1\nSHOP_TOKEN=from-the-file\n"
        (tmp_path / folder / ".env").write_text(variables)
        done = proctor("run", config, "--home", tmp_path / "home", "--quiet")
    assert done.code == 0, done
    stored = [path.read_text() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not any("sk-very-secret" in text or "from-the-environment" in text for text in stored)
