"""A server of the Python SDK has no failure, in both eras, over stdio and HTTP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.doctor.examine import Options, examine
from proctor.doctor.model import Examination
from proctor.targets.mcp.settings import ServerSettings
from tests.doctor.servers import broken, unable

SCRIPT = str(Path(__file__).with_name("sdk_server.py"))
KNOWN = {
    *("unknown-cursor", "unknown-tool-code", "unknown-resource-code", "unknown-prompt-code", "prompts-required-arguments"),
    *("malformed-json", "discover-all-versions", "cache-useful"),
}
"""Advice about the SDK itself."""


def check(found: Examination) -> None:
    # A busy machine may need longer to end the process.
    assert not found.failed and not unable(found) and set(broken(found)) - {"stdio-shutdown"} <= KNOWN
    assert [part.revision for part in found.examined] == ["2025-11-25", "2026-07-28"]


@pytest.mark.in_turn
@pytest.mark.timeout(120)
def test_over_stdio() -> None:
    check(asyncio.run(examine(ServerSettings(id="sdk", command=sys.executable, args=(SCRIPT,)), Options(quiet_s=0.1))))


@pytest.mark.in_turn
@pytest.mark.timeout(120)
def test_over_http() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SCRIPT, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        url = f"http://127.0.0.1:{port}/mcp"
        check(asyncio.run(examine(ServerSettings(id="sdk", transport="http", url=url), Options(quiet_s=0.1))))
    finally:
        process.kill()
        process.wait()
