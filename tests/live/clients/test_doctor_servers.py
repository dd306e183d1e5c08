"""Real MCP servers of others, examined: no crash, bounded time, a short report, and no failure that was not looked at."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.doctor.examine import examine
from proctor.doctor.model import BROKEN
from proctor.doctor.report import build_document
from proctor.report.document.terminal import write_terminal
from proctor.targets.mcp.settings import ServerSettings
from tests.foreign import install_from_index, install_from_npm

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

NPM = ("everything", "filesystem", "memory", "sequential-thinking")
OTHERS = {
    "@playwright/mcp": ("cli.js",),
    "@notionhq/notion-mcp-server": ("bin/cli.mjs",),
    "figma-developer-mcp": ("dist/bin.js", "--stdio", "--figma-api-key=x"),
    "mcp-server-commands": ("build/index.js",),
    "@upstash/context7-mcp": ("dist/index.js",),
}
"""Servers of other makers, each with its script and arguments."""
PYTHON = ("mcp-server-time", "mcp-server-fetch", "mcp-server-git", "mcp-server-sqlite")
KNOWN = {
    # Verified by hand: its process answers a discovery for an unknown version over stdio, and refuses it over HTTP.
    "@upstash/context7-mcp": {"unsupported-version"},
    # It logs without the capability, answers unknown methods with -32602, and unknown tools with a result that is no error.
    "mcp-server-sqlite": {"wire-declared-notification", "unknown-method", "unknown-tool"},
}
MOST_S, MOST_LINES = 90.0, 60


def check(settings: ServerSettings, most_s: float = MOST_S) -> None:
    found = asyncio.run(examine(settings))
    text = write_terminal(build_document(found, "terminal"))
    assert {finding.check for finding in found.list_failures()} == KNOWN.get(settings.id, set()), text
    assert not found.incomplete, text
    # No definition of a real server counts as poisoned.
    assert not [finding.reason for finding in found.findings if finding.area == "security" and finding.verdict in BROKEN]
    assert found.seconds <= most_s and len(text.splitlines()) <= MOST_LINES and found.tool_calls == 0


@pytest.mark.in_turn
@pytest.mark.parametrize("name", NPM)
def test_servers_of_the_protocols_repository(name: str, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    packages = [f"@modelcontextprotocol/server-{each}" for each in NPM]
    modules = install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-doctor")), *packages)  # type: ignore[union-attr]
    script = str(modules / f"@modelcontextprotocol/server-{name}/dist/index.js")
    check(ServerSettings(id=name, command="node", args=(script, *([str(tmp_path)] if name == "filesystem" else []))))


@pytest.mark.on_request
@pytest.mark.parametrize("name", OTHERS)
def test_servers_of_other_makers(name: str, pytestconfig: pytest.Config) -> None:
    modules = install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-doctor-others")), *OTHERS)  # type: ignore[union-attr]
    script, *arguments = OTHERS[name]
    check(ServerSettings(id=name, command="node", args=(str(modules / name / script), *arguments)))


@pytest.mark.in_turn
@pytest.mark.parametrize("name", [PYTHON[0], *(pytest.param(name, marks=pytest.mark.on_request) for name in PYTHON[1:])])
def test_servers_of_the_package_index(name: str, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    # The one for SQLite does not start with newer versions of the SDK.
    cache = Path(pytestconfig.cache.mkdir("live-python-doctor" + ("-old" if name == "mcp-server-sqlite" else "")))  # type: ignore[union-attr]
    packages = ("mcp-server-sqlite", "mcp<2") if name == "mcp-server-sqlite" else PYTHON[:3]
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    arguments = ("--db-path", str(tmp_path / "a.db")) if name == "mcp-server-sqlite" else ()
    check(ServerSettings(id=name, command=str(install_from_index(cache, *packages) / name), args=arguments, cwd=str(tmp_path)))


@pytest.mark.in_turn
def test_our_own_server(tmp_path: Path) -> None:
    settings = ServerSettings(id="proctor", command=sys.executable, args=("-m", "proctor", "mcp", "--home", str(tmp_path)))
    # Three processes load the whole service, which takes seconds of CPU each.
    check(settings, most_s=200.0)
