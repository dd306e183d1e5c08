"""Starts the template server, and examines it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proctor.doctor.calls import read_calls
from proctor.doctor.examine import Options, examine
from proctor.doctor.model import BROKEN, Examination
from proctor.targets.mcp.settings import ServerSettings

SCRIPT = Path(__file__).with_name("run_template.py")
QUICK = {"timeout_s": 2.0, "quiet_s": 0.06, "start_s": 10.0, "total_s": 30.0}
ANSWER = {"action": "accept", "content": {"sure": True}}
PLAN = {
    "calls": [
        {"tool": "find_order", "arguments": {"id": "17"}},
        {"tool": "list_stock", "arguments": {}, "error": True},
        {"tool": "slow_report", "arguments": {"days": "3"}, "cancel": True, "task": True},
        {"tool": "place_order", "arguments": {"product": "tea"}, "answers": {"elicitation/create": ANSWER}},
    ],
    "prompts": {"complain": {"order": "17"}},
}


def settings_of(*arguments: str) -> ServerSettings:
    return ServerSettings(id="template", command=sys.executable, args=("-S", str(SCRIPT), *arguments))


@contextlib.contextmanager
def http_server(*arguments: str) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-S", str(SCRIPT), "--http", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def profiles_of(revision: str) -> tuple[str, ...]:
    return () if revision == "both" else (f"mcp-{revision}@1",)


def look(
    defect: str = "", *, transport: str = "stdio", revision: str = "both", calls: bool = False, arguments: tuple[str, ...] = (), **more: Any
) -> Examination:
    plan = read_calls(PLAN, "calls.yaml") if calls else None
    foreign = frozenset({"send_email"}) if defect == "foreign-tools" else frozenset[str]()
    options = Options(profiles=profiles_of(revision), calls=plan, fuzz=8 if calls else 0, other_tools=foreign, **{**QUICK, **more})
    given = (*(("--defect", defect) if defect else ()), *arguments)
    if transport == "stdio":
        return asyncio.run(examine(settings_of(*given), options))
    with http_server(*given) as url:
        return asyncio.run(examine(ServerSettings(id="template", transport="http", url=url), options))


def broken(found: Examination) -> dict[str, str]:
    return {finding.check: finding.reason for finding in found.findings if finding.verdict in BROKEN}


def unable(found: Examination) -> dict[str, str]:
    return {finding.check: finding.reason for finding in found.findings if finding.verdict == "could_not_run"}
