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
from tests.llm.provider_server import Asked, Said, provider
from tests.targets.mcp_twins import http_shop


@contextmanager
def model_server(says: Callable[[Asked], Said] = clerk) -> Iterator[str]:
    """The scripted OpenAI-compatible server in a thread of its own, since the command has its own event loop."""
    started, stop = threading.Event(), None
    address: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        async with provider(says) as seen:
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
    assert {"results.json", "trace.jsonl", "summary.md", "resolved-config.yaml"} <= written
    unknown = proctor("run", config, "--home", tmp_path / "home", "--agents", "gtp")
    assert (unknown.code, "gpt" in unknown.err) == (4, True), unknown
