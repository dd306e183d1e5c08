"""The guard: whatever ends a process, its children end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from proctor.processes.guard import ProcessGuard

PARENT = """\
import os, subprocess, sys
from proctor.processes.guard import GUARD
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
GUARD.watch_group(child.pid)
print(child.pid, GUARD.pid, flush=True)
sys.stdin.read()
if sys.argv[1] == "tidy":
    child.kill(); child.wait(); GUARD.forget_group(child.pid)
if sys.argv[1] == "at once":
    os._exit(3)
"""


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone_within(pids: list[int], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while any(map(is_there, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.timeout(30)
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGHUP", "at once", "well", "tidy"])
def test_children_end_with_their_process(ending: str) -> None:
    command = [sys.executable, "-c", PARENT, ending]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        child, guard = map(int, parent.stdout.readline().split())
        assert is_there(child) and is_there(guard)
        if ending.startswith("SIG"):
            parent.send_signal(getattr(signal, ending))
        parent.stdin.close()
        parent.wait(10)
    assert gone_within([child, guard])


def test_a_guard_that_was_killed_stops_nothing() -> None:
    guard = ProcessGuard()
    guard.watch_group(999_999_999)
    assert guard.pid is not None
    os.kill(guard.pid, signal.SIGKILL)
    os.waitpid(guard.pid, 0)
    guard.forget_group(999_999_999)
    guard.drop_after_fork()
