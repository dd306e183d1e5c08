"""Ends child processes when this process dies, even by `SIGKILL`.

A killed process (`SIGKILL`, a crash, a second Ctrl-C) runs no more code, and a child that ignores the end of its standard input would
stay. So the first child starts a guard: a tiny process that reads a pipe whose other end only this process has. The guard receives the ids
of process groups; when the pipe ends, it sends them SIGTERM, and SIGKILL after a grace period. It ignores signals itself, and exits when
no group is left.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

GRACE_S = 2.0
"""Seconds that children may take to end after SIGTERM when this process is gone."""
_SCRIPT = str(Path(__file__).with_name("guard_script.py"))


class ProcessGuard:
    """The guard of this process, started with the first child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._pipe: int | None = None
        self.pid: int | None = None
        """The process id of the guard, if it is running."""

    def watch_group(self, group: int) -> None:
        """End this process group when this process dies."""
        with self._lock:
            self._groups.add(group)
            self._send_to_guard(b"+%d\n" % group)

    def forget_group(self, group: int) -> None:
        """Stop watching a process group that has ended."""
        with self._lock:
            self._groups.discard(group)
            self._send_to_guard(b"-%d\n" % group)

    def kill_all(self) -> None:
        """Kill every watched process group immediately."""
        # Without the lock, which a stuck thread may hold: the process exits right after this.
        for group in list(self._groups):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def drop_after_fork(self) -> None:
        """Drop the guard in a fork: the guard and the children belong to the parent process."""
        # Otherwise the pipe would stay open in the fork, and the guard would not notice the death of the parent.
        if self._pipe is not None:
            os.close(self._pipe)
        # A new lock, too: another thread, which does not exist here, may have held the old one during the fork.
        self.__init__()

    def _send_to_guard(self, line: bytes) -> None:
        pipe = self._start() if self._pipe is None else self._pipe
        # A killed guard is not replaced.
        with suppress(BrokenPipeError):
            os.write(pipe, line)

    def _start(self) -> int:
        # Python lets children inherit neither end: a child with the writing end would keep the pipe open after this process is gone.
        reading, writing = os.pipe()
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        # Isolated and without `site`: it starts in a few milliseconds, and the environment cannot change its behaviour.
        command = [sys.executable, "-I", "-S", _SCRIPT, str(GRACE_S)]
        try:
            # Its own group: Ctrl-C on a terminal goes to the group of this process.
            self.pid = os.posix_spawn(sys.executable, command, {}, file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), *quiet], setpgroup=0)
        finally:
            os.close(reading)
        self._pipe = writing
        return writing


GUARD = ProcessGuard()
if hasattr(os, "register_at_fork"):  # Windows forks no processes
    os.register_at_fork(after_in_child=GUARD.drop_after_fork)
