"""One tenant floods the service with slow requests: another is hardly delayed, and the memory is returned.

`PROCTOR_FLOOD_ROUNDS` is the number of rounds; `make torture` has thirty, and then one percent of the answers may take three times as
long as in quiet, and no longer. Next to other tests on a shared machine, times below a second mean nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.crashes.test_ingest_crash import memory
from tests.live.floods.floods import MCP, check_call, pattern_suite, send_and_hold
from tests.live.floods.test_slow_client_flood import p99
from tests.live.floods.test_slow_patterns import children_of
from tests.live.serving import Serving, serving

ROUNDS = int(os.environ.get("PROCTOR_FLOOD_ROUNDS", "1"))
REQUESTS = 60 if ROUNDS == 1 else 150
"""Requests of the quiet tenant in each round, before the flood and in it."""
LEAST_S = 1 / 3 if ROUNDS == 1 else 0.1
"""Durations below this do not count."""
SENDERS = 6
SETTLED_S = 60.0
"""Idle processes are kept for half a minute."""
pytestmark = [pytest.mark.live, pytest.mark.timeout(240 + 60 * ROUNDS)]
SMALL = check_call({"proctor": 1, "cases": [{"id": "a", "expect": [{"response_contains": "a"}]}]}, "a b c")


def voice_call() -> dict[str, Any]:
    """Thousands of phrases over thousands of turns."""
    suite = {"proctor": 1, "cases": [{"id": "a", "expect": [{"voice_said": {"contains": [f"never {n}" for n in range(2_000)]}}]}]}
    call = check_call(suite)
    turns = {"voice": {"turns": [{"speaker": "agent", "text": "some words"}] * 2_000}}
    call["params"]["arguments"]["evidence"] = [{"case": "a", "state": turns}] * 3
    return call


FLOODS = {"patterns": check_call(pattern_suite(40), count=20), "voices": voice_call()}


def make_key(home: Path, organization: str) -> dict[str, str]:
    words = ["keys", "create", "--kind", "organization", "--organization", organization, "--home", str(home)]
    made = subprocess.run([sys.executable, "-m", "proctor", *words], capture_output=True, text=True, check=True).stdout.split()
    return {**MCP, "authorization": f"Bearer {next(word for word in made if word.startswith('proctor_org_'))}"}


def times(server: Serving, headers: dict[str, str], count: int = REQUESTS) -> list[float]:
    """Ask one thing after the other; how long each took."""
    took: list[float] = []
    for _ in range(count):
        began = time.monotonic()
        status, answer = server.ask("POST", "/mcp", SMALL, headers)
        took.append(time.monotonic() - began)
        assert status == 200 and answer["result"]["structuredContent"]["counts"]["pass"] == 1
    return took


@contextlib.contextmanager
def flooded(server: Serving, call: dict[str, Any], headers: dict[str, str]) -> Iterator[list[int]]:
    """Have several senders repeat a request; return the response statuses."""
    stop = threading.Event()
    answered: list[int] = []

    def send() -> None:
        while not stop.is_set():
            with contextlib.suppress(ConnectionError), contextlib.closing(send_and_hold(server.url, "/mcp", call, headers)) as opened:
                opened.settimeout(0.2)
                head = b""
                # A client that disconnects does not wait for the answer, like a flood.
                while not stop.is_set() and b"\r\n" not in head:
                    with contextlib.suppress(TimeoutError):
                        got = opened.recv(4_096)
                        if not got:
                            break
                        head += got
                if b"\r\n" in head:
                    answered.append(int(head.split()[1]))

    threads = [threading.Thread(target=send, daemon=True) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    stop.wait(1.5)
    try:
        yield answered
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def family_memory(server: Serving) -> int:
    """The memory of the service and all its processes."""
    total = memory(server.process.pid)
    for child in children_of(server.process.pid):
        with contextlib.suppress(OSError, StopIteration):
            total += memory(child)
    return total


def settled_memory(server: Serving, most: float) -> int:
    end = time.monotonic() + SETTLED_S
    while (found := family_memory(server)) > most and time.monotonic() < end:
        time.sleep(0.5)
    return found


@pytest.mark.on_request
@pytest.mark.parametrize("kind", list(FLOODS))
def test_a_flood_of_one_tenant_slows_no_other_down_by_more_than_three(kind: str, tmp_path: Path) -> None:
    quiet_tenant, hostile = make_key(tmp_path, "quiet"), make_key(tmp_path, "flood")
    with serving(tmp_path) as server:
        with flooded(server, SMALL, hostile):
            times(server, quiet_tenant, 20)
        before = family_memory(server)
        quiet: list[float] = []
        during: list[float] = []
        for _ in range(ROUNDS):
            quiet += times(server, quiet_tenant)
            with flooded(server, FLOODS[kind], hostile) as answered:
                during += times(server, quiet_tenant)
            assert set(answered) <= {200, 429, 503}, set(answered)
        after = settled_memory(server, 1.3 * before)
        measured = f"p99 {p99(quiet) * 1000:.0f} ms quiet, {p99(during) * 1000:.0f} ms during a flood"
        print(f"{kind}: {measured}; {before >> 20} MB before, {after >> 20} after")
        assert p99(during) <= 3 * max(p99(quiet), LEAST_S)
        assert after <= 1.3 * before
