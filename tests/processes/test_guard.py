"""The guard: whatever ends a process, its children end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from proctor.processes.guard import ProcessGuard

# A parent with two children: one in the group that is watched, and one that left it and carries only the mark.
PARENT = """\
import os, subprocess, sys, time
from proctor.processes.guard import GUARD
stay = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(stay, start_new_session=True, env={**os.environ, **GUARD.mark_child()})
GUARD.watch_group(child.pid)
stray = subprocess.Popen(stay, start_new_session=True, env={**os.environ, **GUARD.mark_child()})
print(child.pid, stray.pid, GUARD.pid, flush=True)
sys.stdin.read()
if sys.argv[1] == "tidy":
    child.kill(); child.wait(); GUARD.forget_group(child.pid)
if sys.argv[1] == "interrupted":
    GUARD.note_interruption()
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
@pytest.mark.parametrize(
    ("ending", "stray_stays"),
    [("SIGKILL", False), ("SIGTERM", False), ("SIGHUP", False), ("at once", False), ("interrupted", False), ("well", True), ("tidy", True)],
)
def test_children_end_with_their_process(ending: str, stray_stays: bool) -> None:
    command = [sys.executable, "-c", PARENT, ending]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        child, stray, guard = map(int, parent.stdout.readline().split())
        assert is_there(child) and is_there(stray) and is_there(guard)
        if ending.startswith("SIG"):
            parent.send_signal(getattr(signal, ending))
        parent.stdin.close()
        parent.wait(10)
    try:
        assert gone_within([child, guard] if stray_stays else [child, stray, guard])
        assert is_there(stray) == stray_stays
    finally:
        if is_there(stray):
            os.kill(stray, signal.SIGKILL)


def end_guard(guard: ProcessGuard) -> None:
    assert guard.pid is not None
    os.kill(guard.pid, signal.SIGKILL)
    os.waitpid(guard.pid, 0)


def test_a_guard_that_was_ended_is_replaced_and_hears_the_goodbye() -> None:
    guard = ProcessGuard()
    stay = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(stay, start_new_session=True, env={**os.environ, **guard.mark_child()}) as stray:
        try:
            end_guard(guard)
            guard.say_goodbye()
            second = guard.pid
            guard.drop_after_fork()
            assert second is not None and os.waitpid(second, 0)[1] == 0
            assert is_there(stray.pid), "it was meant to stay"
        finally:
            stray.kill()


def test_an_irreplaceable_guard_gets_nothing_through_a_foreign_file(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = ProcessGuard()
    guard.mark_child()
    end_guard(guard)
    with monkeypatch.context() as broken, pytest.raises(OSError, match="too many"):
        broken.setattr(os, "pipe", lambda: (_ for _ in ()).throw(OSError("too many open files")))
        guard.forget_group(0)
    # It takes the number that the pipe to the guard had.
    with tempfile.TemporaryFile() as file:
        guard.mark_child()
        assert file.tell() == file.seek(0, os.SEEK_END) == 0
    guard.drop_after_fork()


def test_a_guard_that_was_ended_is_replaced_and_knows_what_there_is() -> None:
    guard = ProcessGuard()
    stay = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(stay, start_new_session=True, env={**os.environ, **guard.mark_child()}) as child:
        try:
            guard.watch_group(child.pid)
            first = guard.pid
            end_guard(guard)
            guard.forget_group(0)
            assert guard.pid not in (None, first) and is_there(guard.pid or 0)
            guard.drop_after_fork()
            child.wait(10)
            assert child.returncode == -signal.SIGTERM
        finally:
            child.kill()
