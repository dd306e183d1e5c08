"""A working folder, a foreign folder, and traps: requests are counted, and started or imported code leaves a mark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.judge_server import Judge, judge_server
from tests.integration.running import Done, proctor

SECRET = "sk-of-the-cloud-account-77"
VARIABLE = "SOME_CLOUD_SECRET"
CLAIM = {"judged": {"criteria": "is friendly"}}
PLAIN = {"response_contains": "hello"}
EVIDENCE = '{"case": "one", "input": "hi", "text": "hello, a good day"}\n'


class World(NamedTuple):
    """Where the traps are."""

    folder: Path
    """The working folder."""
    outside: Path
    """A foreign folder."""
    trap: Judge

    @property
    def mark(self) -> Path:
        return self.outside / "mark"

    def untouched(self) -> bool:
        return not self.trap.requests and not self.mark.exists()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    folder, outside = tmp_path / "here", tmp_path / "elsewhere"
    folder.mkdir()
    outside.mkdir()
    monkeypatch.chdir(folder)
    for name in ("PROCTOR_TRUST", "PROCTOR_JUDGE_MODEL", "PROCTOR_JUDGE_BASE_URL", "PROCTOR_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, SECRET)
    # The traps are no tool servers; do not wait for them.
    monkeypatch.setattr("proctor.targets.mcp.connection.RETRY_WAITS_S", (0.01,))
    (folder / "runs.jsonl").write_text(EVIDENCE)
    with judge_server() as trap:
        # A foreign suite must not use the user's own provider either.
        monkeypatch.setenv("OPENAI_BASE_URL", trap.url)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        yield World(folder, outside, trap)


def describe_model(world: World) -> dict[str, Any]:
    return {"provider": "openai", "model": "stub-1", "base_url": world.trap.url, "api_key": f"${{{VARIABLE}}}"}


def describe_program(world: World) -> dict[str, Any]:
    return {
        "id": "s",
        "transport": "stdio",
        "command": sys.executable,
        "args": ["-c", f"open({str(world.mark)!r}, 'w')"],
        "env": {"KEY": f"${{{VARIABLE}}}"},
    }


def judges(world: World) -> dict[str, dict[str, Any]]:
    """Every way to name a judge in a suite."""
    return {
        "a model at an address": {"models": {"m": describe_model(world)}, "judge": {"model": "m"}},
        "a jury": {"models": {"m": describe_model(world), "n": describe_model(world)}, "judge": {"model": ["m", "n"]}},
        "a provider": {"judge": {"model": "openai/stub-1"}},
        "a model and a file": {"models": {"m": describe_model(world)}, "judge": {"model": "m", "prompt": "prompt.md"}},
    }


def targets(world: World) -> dict[str, dict[str, Any]]:
    """Every kind of target, described by a suite."""
    url, key = world.trap.url, f"${{{VARIABLE}}}"
    (world.outside / "foreign_agent.py").write_text(
        f"import pathlib\n\npathlib.Path({str(world.mark)!r}).touch()\n\ndef answer(message):\n    return 'hello'\n"
    )
    model = {"models": {"m": describe_model(world)}}
    return {
        "http": {"targets": {"t": {"type": "http", "url": url, "auth": {"type": "bearer", "token": key}}}},
        "n8n": {"targets": {"t": {"type": "n8n", "webhook": f"{url}/hook", "api": url, "api_key": key}}},
        "flowise": {"targets": {"t": {"type": "flowise", "url": url, "flow": "f1", "api_key": key}}},
        "callable": {"targets": {"t": {"type": "callable", "function": "foreign_agent:answer"}}},
        "command": {
            "targets": {"t": {"type": "command", "command": [sys.executable, "-c", f"open({str(world.mark)!r}, 'w'); print('hello')"]}}
        },
        "recorded": {"targets": {"t": {"type": "recorded", "evidence": ["../here/runs.jsonl"]}}},
        "a program": {**model, "targets": {"t": {"type": "mcp_agent", "model": "m", "servers": [describe_program(world)]}}},
        "a server": {
            **model,
            "targets": {"t": {"type": "mcp_agent", "model": "m", "servers": [{"id": "s", "transport": "http", "url": url}]}},
        },
    }


JUDGES = ("a model at an address", "a jury", "a provider", "a model and a file")
TARGETS = ("http", "n8n", "flowise", "callable", "command", "recorded", "a program", "a server")


def suite_with(settings: dict[str, Any], place: Path, *claims: dict[str, Any]) -> Path:
    document = {"proctor": 1, "name": "foreign", "cases": [{"id": "one", "input": "hi", "expect": list(claims) or [PLAIN]}], **settings}
    place.write_text(json.dumps(document))
    (place.parent / "prompt.md").write_text("Judge. {checks} {data}")
    return place


def store_run(world: World) -> None:
    """A run of the user's own, to be decided again."""
    own = {"targets": {"t": {"type": "recorded", "evidence": ["runs.jsonl"]}}}
    suite_with(own, world.folder / "own.json")
    assert proctor("run", "own.json", "--quiet").code == 0


def refused(done: Done, world: World) -> None:
    assert done.code == 4, done
    assert "nothing was started and nothing was sent" in done.err
    assert "--trust" in done.err
    assert SECRET not in done.err + done.out
    assert world.untouched()


PLUGIN = "proctor.pytest_plugin.plugin"


def live_session(world: World, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`pytest --proctor-live ARGUMENTS...` in the working folder."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        PLUGIN,
        "-p",
        "xdist",
        "--proctor-live",
        *map(str, arguments),
    ]
    # Other plugins of this environment take longer to load than everything else here.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=world.folder, timeout=120, check=False, env=environment)
