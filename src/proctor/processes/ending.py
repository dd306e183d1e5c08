"""How a child process is ended that answers over pipes."""

from __future__ import annotations

import contextlib
import subprocess


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, wait until it is gone, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
