"""The local executor: every task has one result, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from proctor.processes import executor as local_executor
from proctor.processes.executor import DoTask, LocalExecutor, StopWork, Work

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[2]


def open_work(payload: bytes) -> DoTask:
    """The work of the processes; `payload` chooses the fault."""
    if payload == b"no setup":
        raise ValueError("nothing to work with")

    def do_task(task: bytes) -> bytes:
        print("what a library prints is no reply")
        if task == b"raise":
            raise RuntimeError("this one")
        if task == b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == b"stop":
            raise StopWork("nothing more")
        if task == b"sleep":
            time.sleep(60)
        return b"%d %s" % (os.getpid(), task)

    return do_task


def make_work(payload: bytes = b"") -> Work:
    return Work(setup=f"{__name__}:open_work", payload=payload)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_tasks_are_done_by_processes_that_are_prepared_once() -> None:
    done = list(LocalExecutor(2).map(make_work(), [b"%d" % number for number in range(20)]))
    assert sorted(int(one.result.split()[1]) for one in done) == list(range(20))
    assert sorted(one.task for one in done) == list(range(20))
    processes = {one.result.split()[0] for one in done}
    assert len(processes) <= 2 and str(os.getpid()).encode() not in processes


def test_a_task_that_fails_or_kills_is_reported_and_others_complete() -> None:
    done = {one.task: one for one in LocalExecutor(1, tries=2).map(make_work(), [b"a", b"raise", b"die", b"b"])}
    assert done[0].error is None and done[3].error is None
    assert done[1].error == "RuntimeError: this one"
    assert done[2].error is not None and "2 times: killed" in done[2].error and done[2].deaths == 2


def test_a_process_that_ends_before_it_is_prepared_is_reported_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_executor, "_COMMAND", (sys.executable, "-S", "-c", "raise SystemExit(3)"))
    executor = LocalExecutor(1, tries=2)
    # More than a pipe takes: the process has ended before all of it is written.
    (done,) = executor.map(make_work(b"x" * 1_000_000), [b"a"])
    assert done.error == "every process that took it ended, 2 times: exit code 3"
    assert executor.list_processes() == []


@pytest.mark.parametrize(("payload", "task", "message"), [(b"no setup", b"a", "nothing to work with"), (b"", b"stop", "nothing more")])
def test_an_unrecoverable_fault_stops_the_work(payload: bytes, task: bytes, message: str) -> None:
    with pytest.raises(StopWork, match=message):
        list(LocalExecutor(2).map(make_work(payload), [task, task, task]))


def test_cancelling_ends_the_processes_and_the_wait() -> None:
    executor = LocalExecutor(2)

    def cancel_when_at_work() -> None:
        while len(executor.list_processes()) < 2:
            time.sleep(0.01)
        executor.cancel()

    threading.Thread(target=cancel_when_at_work, daemon=True).start()
    assert list(executor.map(make_work(), [b"sleep"] * 4)) == []
    assert executor.list_processes() == []
