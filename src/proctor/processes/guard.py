"""Ends child processes when this process dies, however it dies.

A process that is killed (`SIGKILL`, a crash, a second Ctrl-C) runs no code any more, and a child that ignores the end of its standard input
would stay. So the first child brings a guard with it: a tiny process that reads a pipe of which only this process has the other end. It is
told which process groups there are; when the pipe ends, it sends them SIGTERM, and SIGKILL after a grace. It ignores signals itself, and
ends as soon as nothing is left to end.

A child is also marked in its environment: one that was started and not told of in time, or that moved into a group of its own, is found by
that mark, where there is a `/proc`. After a process that ended well, and was not interrupted, only what it was told of is ended.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

MARK = "PROCTOR_GUARD"
"""The variable that marks children in their environment."""
GRACE_S = 2.0
"""How long children may take to end after SIGTERM, once this process is gone."""
_SCRIPT = str(Path(__file__).with_name("guard_script.py"))


class ProcessGuard:
    """The guard of this process; started when the first child is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mark = secrets.token_hex(16)
        self._groups: set[int] = set()
        self._pipe: int | None = None
        self._interrupted = False
        self.pid: int | None = None
        """The process of the guard, once there is one."""

    def mark_child(self) -> dict[str, str]:
        """Return what to add to the environment of a child, and make sure that a guard looks for it."""
        with self._lock:
            # An empty line says nothing, but finds out whether the guard is there, and starts one before there is a child.
            self._tell_guard(b"")
        return {MARK: self._mark}

    def watch_group(self, group: int) -> None:
        """End this process group when this process dies."""
        with self._lock:
            # Noted before it is told: a guard that must be started anew for this is told everything that is noted.
            self._groups.add(group)
            self._tell_guard(b"+%d\n" % group)

    def forget_group(self, group: int) -> None:
        """Stop watching a process group that has ended."""
        with self._lock:
            self._groups.discard(group)
            self._tell_guard(b"-%d\n" % group)

    def kill_all(self) -> None:
        """Kill every process group that is watched, at once."""
        # Without the lock, which somebody who is stuck may hold: the process ends right after this.
        for group in list(self._groups):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def note_interruption(self) -> None:
        """Let nothing stay when this process ends: somebody broke off what the children were started for."""
        self._interrupted = True

    def say_goodbye(self) -> None:
        """Tell the guard that this process ends well, so that what left its process group was meant to stay."""
        with self._lock:
            if self._pipe is not None and not self._interrupted:
                self._tell_guard(b"q\n")

    def drop_after_fork(self) -> None:
        """Drop the guard in a fork: it and the children belong to the process that was forked."""
        # The other end would otherwise stay open in the fork, and the guard would never hear that our process has died.
        if self._pipe is not None:
            os.close(self._pipe)
        # A new lock, too: another thread may have held the old one during the fork, and that thread does not exist here.
        self.__init__()

    def _tell_guard(self, line: bytes) -> None:
        if self._pipe is not None:
            try:
                os.write(self._pipe, line or b"\n")
                return
            except BrokenPipeError:
                # Somebody ended the guard; there must be one.
                # Forgotten first: if no other pipe can be had, its number belongs to whatever is opened next.
                broken, self._pipe = self._pipe, None
                os.close(broken)
                # It was our child and stays a zombie until somebody waits for it; the program around us may have done so.
                if self.pid is not None:
                    with suppress(ChildProcessError):
                        os.waitpid(self.pid, os.WNOHANG)
        self._start_guard()
        assert self._pipe is not None
        # A new guard knows nothing of what the last one was told.
        os.write(self._pipe, b"".join(b"+%d\n" % group for group in self._groups) + line)

    def _start_guard(self) -> None:
        # Python lets children inherit neither end: one that had the writing end would hide from the guard that this process is gone.
        reading, self._pipe = os.pipe()
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        # Isolated and without `site`: it starts in a few milliseconds, and nothing in the environment can change what it does.
        command = [sys.executable, "-I", "-S", _SCRIPT, f"{MARK}={self._mark}", str(GRACE_S)]
        try:
            # A group of its own: Ctrl-C on a terminal goes to the group of this process.
            self.pid = os.posix_spawn(sys.executable, command, {}, file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), *quiet], setpgroup=0)
        finally:
            os.close(reading)


GUARD = ProcessGuard()
atexit.register(GUARD.say_goodbye)
if hasattr(os, "register_at_fork"):  # Windows forks no processes
    os.register_at_fork(after_in_child=GUARD.drop_after_fork)
