"""The deciding process crashes, as the pattern engine might cause: one record is an error, and the service continues."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.floods.floods import MCP, Watch, check_call, pattern_suite
from tests.live.floods.test_slow_patterns import children_of, cpu_of
from tests.live.serving import Serving, serving

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
SMALL = check_call({"proctor": 1, "cases": [{"id": "a", "expect": [{"response_contains": "a"}]}]}, "a b c")


def deciders_of(server: Serving) -> dict[int, float]:
    """The processes that decide, and the seconds of computing that each has used."""
    found: dict[int, float] = {}
    for child in children_of(server.process.pid):
        with contextlib.suppress(OSError):
            if b"proctor.service.decisions.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                found[child] = cpu_of({child})
    return found


def busiest(server: Serving, seconds: float) -> tuple[int, float]:
    """The process that computes most from now on, and the share of a core that it uses."""
    before = deciders_of(server)
    time.sleep(seconds)
    after = deciders_of(server)
    shares = {child: (used - before.get(child, 0.0)) / seconds for child, used in after.items()}
    return max(shares.items(), key=lambda found: found[1])


def wait_until_quiet(server: Serving) -> None:
    """Wait until every process that was started to decide is ready."""
    end = time.monotonic() + 60
    while busiest(server, 0.5)[1] > 0.05:
        assert time.monotonic() < end


def busy_decider(server: Serving) -> int:
    """Wait for a process that is deciding; its id."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        child, share = busiest(server, 0.3)
        if share > 0.2:
            return child
    raise AssertionError("nothing is decided")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("crash")) as found:
        yield found


def ask_small(server: Serving) -> None:
    status, answer = server.ask("POST", "/mcp", SMALL, MCP)
    assert status == 200 and answer["result"]["structuredContent"]["counts"]["pass"] == 1


@pytest.mark.in_turn
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL], ids=lambda number: number.name)
def test_a_crash_while_deciding_is_an_error_of_one_record(server: Serving, number: signal.Signals) -> None:
    # The second one has a spare process started: from then on none is busy with starting.
    ask_small(server)
    ask_small(server)
    wait_until_quiet(server)
    answers: list[tuple[int, Any]] = []
    call = check_call(pattern_suite(6), count=2)
    asking = threading.Thread(target=lambda: answers.append(server.ask("POST", "/mcp", call, MCP)))
    with Watch(server.url) as watch:
        asking.start()
        os.kill(busy_decider(server), number)
        asking.join(60)
    ((status, answer),) = answers
    cases = answer["result"]["structuredContent"]["cases"]
    assert status == 200 and [case["outcome"] for case in cases] == ["error"] * 2
    crashed = [case for case in cases if case["code"] == "evaluation_crashed"]
    assert len(crashed) == 1 and number.name in crashed[0]["reason"], [(case["code"], case["reason"]) for case in cases]
    assert watch.took and server.process.poll() is None
    ask_small(server)
