"""What maps work over tasks: one small protocol, so that nothing about the work depends on where it is done.

Work is named rather than handed over, and its tasks and results are bytes: they cross processes and machines alike. `setup` is called
once wherever work is done, with `payload`, and returns the function that does one task after another.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec


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
    """`module:function`, a function from `payload` to a function from a task to its result."""
    payload: bytes


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one task."""

    task: int
    """Its number among the tasks."""
    result: bytes = b""
    error: str | None = None
    """Why there is no result."""
    deaths: int = 0
    """How often a process ended while it did this task."""


class StopWork(Exception):
    """Raised by work that cannot continue with any task; nothing more is started."""


class Executor(Protocol):
    """Does tasks, several at a time."""

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        """Yield the result of each task as it ends, in any order; closing the iterator cancels the rest. Raises `StopWork`."""
        ...

    def cancel(self) -> None:
        """Give up what is being done; `map` then comes to its end."""
        ...


def load_setup(name: str) -> Callable[[bytes], DoTask]:
    """Return the function that `Work.setup` names."""
    import importlib

    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
