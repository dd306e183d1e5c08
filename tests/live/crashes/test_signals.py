"""Runs ended by signals at any moment: no child is left, every finished result is stored, and the run can be finished.

`PROCTOR_SIGNAL_ROUNDS` is the number of runs; the default is one per ending.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ENDINGS: tuple[tuple[signal.Signals, ...], ...] = (
    (signal.SIGTERM,),
    (signal.SIGHUP,),
    (signal.SIGINT,),
    (signal.SIGINT, signal.SIGINT),
    (signal.SIGKILL,),
)
ROUNDS = int(os.environ.get("PROCTOR_SIGNAL_ROUNDS", str(len(ENDINGS))))
pytestmark = [pytest.mark.live, pytest.mark.timeout(120 + 20 * ROUNDS)]
CASES = 6
INTERRUPTED = 2
WORKSPACE = """\
targets:
  shop:
    type: mcp_agent
    model: unused
    servers:
      - {{id: shop, command: {python}, args: ["-S", "-m", "tests.live.clients.stubborn_server", {stubborn}], cwd: {root}, era: handshake}}
models: {{unused: {{provider: openai, model: none, base_url: "http://127.0.0.1:9", api_key: none}}}}
"""


def prepare(place: Path) -> None:
    stubborn = place / "stubborn"
    stubborn.touch()
    words = {"python": json.dumps(sys.executable), "stubborn": json.dumps(str(stubborn)), "root": json.dumps(str(ROOT))}
    (place / "proctor.yaml").write_text(WORKSPACE.format(**words))
    step = {"id": "s1", "kind": "toolCall", "serverName": "shop", "toolName": "search", "arguments": {"query": "tea"}}
    predicate = [{"type": "toolCalledAtLeastOnce", "toolName": "search"}]
    cases = [{"id": f"c{number}", "title": f"c{number}", "steps": [step], "predicates": predicate} for number in range(CASES)]
    (place / "suite.json").write_text(json.dumps({"name": "Signals", "cases": cases}))


def start(place: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "proctor", "run", "suite.json", "-j", "3", "--quiet", "--format", "json", *words]
    with (place / "stderr.log").open("a") as log:
        return subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=log, text=True)


def list_processes(place: Path) -> list[str]:
    """The processes that were started for this run and are still there."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(place / "stubborn").encode() in words and state != "Z":
            found.append(f"{path.name} {words!r}")
    return found


def begun(place: Path) -> bool:
    return any(place.glob(".proctor/runs/*/run.json"))


def read_results(place: Path) -> list[str]:
    found = sorted(place.glob(".proctor/runs/*/results.jsonl"))
    return [line for line in found[-1].read_text().splitlines(keepends=True) if line.endswith("\n")] if found else []


def run_once(place: Path, ending: tuple[signal.Signals, ...], chance: random.Random) -> str:
    """End a run by these signals at a random moment, look for remains, and finish it; return the problem or ""."""
    prepare(place)
    process = start(place)
    wanted, patience = chance.randrange(CASES), time.monotonic() + 60
    while (not begun(place) or len(read_results(place)) < wanted) and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 0.3))
    for number in ending:
        process.send_signal(number)
        time.sleep(chance.uniform(0.0, 0.2))
    process.communicate(timeout=60)
    end = time.monotonic() + 10
    while (left := list_processes(place)) and time.monotonic() < end:
        time.sleep(0.02)
    if left:
        return f"processes are left: {left}"
    expected = {INTERRUPTED, -ending[0]} | ({0} if len(read_results(place)) == CASES else set())
    if process.returncode not in expected:
        return f"exit code {process.returncode}: {(place / 'stderr.log').read_text()}"
    before = read_results(place)
    (place / "stubborn").unlink()
    again = start(place, "--resume", "latest")
    out, _ = again.communicate(timeout=60)
    if again.returncode != 0 or json.loads(out)["counts"]["pass"] != CASES or json.loads(out).get("incomplete") is not None:
        return f"not finished: {again.returncode} {(place / 'stderr.log').read_text()}"
    if read_results(place)[: len(before)] != before or len(read_results(place)) != CASES:
        return f"results were lost: {len(before)} before, {len(read_results(place))} after"
    return ""


@pytest.mark.on_request
def test_no_signal_at_any_moment_leaves_a_child_or_loses_a_result(tmp_path: Path) -> None:
    seed = int(os.environ.get("PROCTOR_SIGNAL_SEED", "0")) or random.randrange(1 << 30)

    def one(number: int) -> str:
        place = tmp_path / f"round-{number}"
        place.mkdir()
        ending = ENDINGS[number % len(ENDINGS)]
        wrong = run_once(place, ending, random.Random(seed + number))
        return f"round {number}, {' '.join(each.name for each in ending)}, seed {seed}: {wrong}" if wrong else ""

    with ThreadPoolExecutor(5) as rounds:
        wrong = [problem for problem in rounds.map(one, range(ROUNDS)) if problem]
    assert not wrong, "\n".join(wrong)
