"""Maps work over tasks: one small protocol, so that work does not depend on where it runs.

Work is given by the name of a function, `setup`, and its tasks and results are bytes, so that they can cross processes and machines. Each
worker calls `setup` once, with `payload`; it returns the function that does one task after another.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from proctor.errors import ProctorError
from proctor.model.typed import decode_msgpack


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, wait until it is gone, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


DoTask = Callable[[bytes], bytes]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The function that is applied to every task."""

    setup: str
    """`module:function`: a function that takes `payload` and returns the function for a task."""
    payload: bytes


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one task."""

    task: int
    """The index of the task."""
    result: bytes = b""
    error: str | None = None
    """Why there is no result."""
    deaths: int = 0
    """The number of processes that ended during this task."""


class StopWork(Exception):
    """Raised by work that cannot continue with any task; nothing more is started."""


def describe_error(error: Exception) -> str:
    """Return an error in one line."""
    return str(error) if isinstance(error, ProctorError) else f"{type(error).__name__}: {error}"


class Executor(Protocol):
    """Runs tasks, several at a time."""

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        """Yield the result of each task as it ends, in any order; closing the iterator cancels the rest. Raises `StopWork`."""
        ...

    def cancel(self) -> None:
        """Cancel running tasks; `map` then ends."""
        ...


def load_setup(name: str) -> Callable[[bytes], DoTask]:
    """Return the function that `Work.setup` names."""
    import importlib

    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


# Runs tasks in local processes: each is a new process, prepared once, and runs one task after another.
# A process that dies (killed, out of memory, a crash of a library) is replaced, and its task is done again, a few times at most: a task
# that ends every process which takes it is one that failed. Frames are eight bytes of length and MessagePack. A process ends itself when
# this one is gone, whatever it is doing.

TRIES = 4
"""Maximum processes that a task may crash before it fails."""
# `-P`: with only `-m`, a file in the current folder could replace a module of the same name.
_COMMAND = (sys.executable, "-P", "-m", "proctor.processes.worker_process")
_HOME = str(Path(__file__).resolve().parents[2])


class LocalExecutor:
    """A number of local processes."""

    def __init__(self, workers: int | None = None, *, tries: int = TRIES) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._tries = tries
        self._cancelled = threading.Event()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        """Yield the result of each task as it ends, in any order. Raises `StopWork`."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        ended: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        for number in range(len(tasks)):
            waiting.put(number)
        workers = min(self.workers, len(tasks))
        threads = [
            threading.Thread(target=self._work_through, args=(work, tasks, waiting, ended), daemon=True, name=f"worker {number + 1}")
            for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in tasks:
                done = ended.get()
                if isinstance(done, BaseException):
                    if self._cancelled.is_set():
                        return
                    raise done
                yield done
        finally:
            was_cancelled = self._cancelled.is_set()
            # Also if the caller stopped iterating early: no process continues for nothing.
            self.cancel()
            for thread in threads:
                thread.join()
            if not was_cancelled:
                # Only this work is over: more may follow.
                self._cancelled.clear()

    def cancel(self) -> None:
        """End every process; unfinished tasks are dropped."""
        self._cancelled.set()
        with self._lock:
            for process in self._processes:
                process.kill()

    def list_processes(self) -> list[int]:
        """Return the ids of the working processes."""
        with self._lock:
            return [process.pid for process in self._processes]

    def _work_through(
        self, work: Work, tasks: Sequence[bytes], waiting: queue.SimpleQueue[int], ended: queue.SimpleQueue[Done | BaseException]
    ) -> None:
        """Run tasks until none is left; one thread per process."""
        process: subprocess.Popen[bytes] | None = None
        try:
            while not self._cancelled.is_set():
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                deaths, reason = 0, ""
                while deaths < self._tries:
                    try:
                        if process is None:
                            process = self._start()
                            # Without the lock: a payload longer than the pipe waits until the process reads, and `cancel` must be able
                            # to kill it. Not in `_start`: a process that ends before it has read must be registered, to be removed.
                            write_frame(process.stdin, work)
                        write_frame(process.stdin, tasks[number])
                        reply = decode_msgpack(read_frame(process.stdout), dict[str, Any])
                        if "stop" in reply:
                            raise StopWork(reply["stop"])
                        ended.put(Done(task=number, result=reply.get("result", b""), error=reply.get("error"), deaths=deaths))
                        break
                    except (OSError, EOFError):
                        reason = _describe_end(process)
                        self._forget(process)
                        process = None
                        deaths += 1
                        if self._cancelled.is_set():
                            return
                else:
                    ended.put(Done(task=number, error=f"every process that took it ended, {deaths} times: {reason}", deaths=deaths))
        except BaseException as error:  # the caller must get any exception
            ended.put(error)
        finally:
            self._forget(process)
            if self._cancelled.is_set():
                # The caller learns that no more results follow.
                ended.put(StopWork("cancelled"))

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            # Checked under the lock of `cancel`, which would otherwise miss a process started right after it.
            if self._cancelled.is_set():
                raise EOFError
            # Workers import the same proctor as this process, and not another installed one.
            paths = [_HOME, *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            self._processes.add(process)
        return process

    def _forget(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        # Under the lock, so that `cancel` does not kill another process with the same id.
        with self._lock:
            self._processes.discard(process)
            end_process(process)


def _describe_end(process: subprocess.Popen[bytes] | None) -> str:
    if process is None:
        return "it could not be started"
    code = process.wait()
    if code == -signal.SIGKILL:
        return "killed, as the system does where memory runs out"
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"


def write_frame(file: Any, value: object) -> None:
    """Write one value, prefixed with its length."""
    data = msgspec.msgpack.encode(value)
    file.write(len(data).to_bytes(8, "big") + data)
    file.flush()


def read_frame(file: Any) -> bytes:
    """Return the bytes of the next frame; raises `EOFError` at the end."""
    size = file.read(8)
    if len(size) < 8:
        raise EOFError
    data = file.read(length := int.from_bytes(size, "big"))
    if len(data) < length:
        raise EOFError
    return data
