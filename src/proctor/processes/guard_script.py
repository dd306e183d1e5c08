"""The guard itself, run as a script. It imports only built-in modules, so that it starts fast and uses little memory.

Standard input lists the process groups to guard: `+GROUP` and `-GROUP`. At its end the groups are ended.
"""

import os
import signal
import sys
import time


def main(grace_s: float) -> None:
    """Listen until the parent is gone, then end its remaining processes."""
    # Signals to a whole session must not end the process that cleans up after it.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups = listen()
    end = time.monotonic() + grace_s
    alive = send(signal.SIGTERM, groups)
    while alive and time.monotonic() < end:
        time.sleep(0.02)
        alive = send(0, groups)
    if alive:
        send(signal.SIGKILL, groups)


def listen() -> "set[int]":
    """Read process groups until the pipe ends."""
    groups: set[int] = set()
    pending = b""
    while data := os.read(0, 65536):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if line.startswith(b"+"):
                groups.add(int(line[1:]))
            else:
                groups.discard(int(line[1:]))
    return groups


def send(number: int, groups: "set[int]") -> bool:
    """Send a signal to all groups (0 only checks) and return whether any still exists."""
    for group in list(groups):
        try:
            os.killpg(group, number)
        except PermissionError:
            continue  # it exists, under another user
        except ProcessLookupError:
            groups.discard(group)
    return bool(groups)


if __name__ == "__main__":
    main(float(sys.argv[1]))
