"""The guard itself, run as a script. It imports only built-in modules, so that it starts fast and uses little memory.

Standard input lists what to guard: `+GROUP`, `-GROUP`, and `q` on a normal exit of the parent. At its end the groups are ended.
"""

import os
import signal
import sys
import time


def main(mark: str, grace_s: float) -> None:
    """Listen until the parent is gone, then end its remaining processes."""
    # Signals to a whole session must not end the process that cleans up after it.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups, ended_well = listen()
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 0.0)):
        end = time.monotonic() + wait_s
        # Searched again before each signal: a process that dies may have started another.
        strays = [] if ended_well else marked_processes(mark.encode())
        alive = send(number, groups, strays)
        while alive and time.monotonic() < end:
            time.sleep(0.02)
            alive = any_alive(groups, strays)
        if not alive:
            return


def listen() -> "tuple[set[int], bool]":
    """Read process groups until the pipe ends; return them, and whether the parent exited normally."""
    groups: set[int] = set()
    pending, ended_well = b"", False
    while data := os.read(0, 65536):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if line.startswith(b"+"):
                groups.add(int(line[1:]))
            elif line.startswith(b"-"):
                groups.discard(int(line[1:]))
            ended_well = ended_well or line == b"q"
    return groups, ended_well


def any_alive(groups: "set[int]", strays: "list[int]") -> bool:
    """Return whether any of them still runs; zombies do not count."""
    if not os.path.isdir("/proc"):
        return send(0, groups, strays)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The program name is in brackets and may contain any character.
                    state, _parent, group = file.read().rpartition(b")")[2].split()[:3]
            except OSError:
                continue
            if state not in (b"Z", b"X") and (int(group) in groups or int(name) in strays):
                return True
    return False


def send(number: int, groups: "set[int]", strays: "list[int]") -> bool:
    """Send a signal to all of them (0 only checks) and return whether any still exists."""
    alive = False
    for kill, targets in ((os.killpg, groups), (os.kill, strays)):
        for target in list(targets):
            try:
                kill(target, number)
                alive = True
            # It exists, under another user.
            except PermissionError:
                alive = True
            except ProcessLookupError:
                targets.discard(target) if isinstance(targets, set) else targets.remove(target)
    return alive


def marked_processes(mark: bytes) -> "list[int]":
    """Return every process with the mark in its environment, if the system exposes that."""
    pids: list[int] = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        pids.append(int(name))
            # Already ended, or of another user.
            except OSError:
                continue
    return pids


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
