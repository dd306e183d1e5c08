"""The doctor and the official conformance suite: every check they share has the same verdict.

The suite speaks HTTP only and wants tools of its own, so most of its failures say nothing about a server; those of shared checks do.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.doctor.examine import examine
from proctor.doctor.model import BROKEN, Examination
from proctor.targets.mcp.settings import ServerSettings
from tests.doctor.test_sdk_server import SCRIPT as SDK_SERVER
from tests.foreign import install_from_npm
from tests.live.clients.test_mcp_servers import everything_over_http, started_on_a_port
from tests.live.clients.test_mcp_servers import npm_servers as npm_servers
from tests.live.serving import serving
from tests.tables import load

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

SHARED: dict[str, list[str]] = {row["id"]: row["ours"] for row in load("doctor/cases/official.yaml")}


@pytest.fixture(scope="session")
def referee(pytestconfig: pytest.Config) -> list[str]:
    """The command of the suite; it needs a newer Node than some machines have."""
    cache = Path(pytestconfig.cache.mkdir("live-npm-conformance"))  # type: ignore[union-attr]
    modules = install_from_npm(cache, "node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
    return [str(modules / ".bin" / "node"), str(modules / "@modelcontextprotocol/conformance/dist/index.js")]


@contextmanager
def sdk_over_http() -> Iterator[str]:
    # The server takes its port as an argument; the helper offers one in the environment.
    program = f"import os, runpy, sys; sys.argv = [{SDK_SERVER!r}, os.environ['PORT']]; runpy.run_path({SDK_SERVER!r}, run_name='__main__')"
    process, port = started_on_a_port([sys.executable, "-c", program])
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def run_referee(referee: list[str], url: str, revision: str, folder: Path) -> dict[str, str]:
    """The verdict of the suite on each of its checks: it fails if one of its scenarios does."""
    subprocess.run([*referee, "server", "--url", url, "--requirements", revision, "-o", str(folder)], capture_output=True, timeout=300)
    found: dict[str, str] = {}
    for path in folder.glob("*/checks.json"):
        for check in json.loads(path.read_text(encoding="utf-8")):
            failed = check["status"] == "FAILURE" or found.get(check["id"]) == "fail"
            found[check["id"]] = "fail" if failed else "pass"
    assert len(found) > 20
    return found


def judge(examined: Examination, revision: str, checks: list[str]) -> str | None:
    """Our verdict on these checks together; None if none of them applies."""
    part = next(part for part in examined.examined if part.revision == revision)
    verdicts = {finding.verdict for finding in part.findings if finding.check in checks} - {"not_applicable"}
    assert "could_not_run" not in verdicts
    return None if not verdicts else "fail" if verdicts & set(BROKEN) else "pass"


def compare(examined: Examination, official: dict[str, str], revision: str) -> int:
    """Assert that the verdicts agree, and return how many do."""
    ours = {name: judge(examined, revision, SHARED[name]) for name in official if name in SHARED}
    assert {name: verdict for name, verdict in ours.items() if verdict} == {
        name: official[name] for name, verdict in ours.items() if verdict
    }
    return sum(verdict is not None for verdict in ours.values())


@pytest.mark.on_request
def test_the_everything_server(npm_servers: Path, referee: list[str], tmp_path: Path) -> None:
    with everything_over_http(npm_servers, "streamableHttp") as url:
        official = run_referee(referee, url, "2025-11-25", tmp_path)
        examined = asyncio.run(examine(ServerSettings(id="all", transport="http", url=url)))
    assert compare(examined, official, "2025-11-25") >= 15
    # Over stdio the same checks pass, unless they are about HTTP.
    program = str(npm_servers / "@modelcontextprotocol/server-everything/dist/index.js")
    over_stdio = asyncio.run(examine(ServerSettings(id="all", command="node", args=(program, "stdio"))))
    rest = {name: verdict for name, verdict in official.items() if not any(check.startswith("http") for check in SHARED.get(name, ()))}
    assert compare(over_stdio, rest, "2025-11-25") >= 10


@pytest.mark.on_request
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_server_of_the_python_sdk(referee: list[str], revision: str, tmp_path: Path) -> None:
    with sdk_over_http() as url:
        official = run_referee(referee, url, revision, tmp_path)
        examined = asyncio.run(examine(ServerSettings(id="sdk", transport="http", url=url)))
    assert compare(examined, official, revision) >= (12 if revision == "2025-11-25" else 30)


@pytest.mark.in_turn
def test_our_own_service_has_no_failure_and_follows_the_advice(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        examined: Any = asyncio.run(examine(ServerSettings(id="proctor", transport="http", url=f"{server.url}/mcp")))
    assert not examined.failed and not examined.incomplete
    assert {finding.check: finding.reason for finding in examined.findings if finding.verdict in BROKEN} == {}
