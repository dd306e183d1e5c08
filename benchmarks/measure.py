"""CPU time, best of several: the least disturbed run is the closest to the truth."""

from __future__ import annotations

import gc
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


def cpu_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU time of `repeats` runs of `work` in this process."""
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def interleaved(works: dict[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """The least CPU time of each, alternating so that a slow moment of the machine hits all alike."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            best[name] = min(best[name], cpu_seconds(work, 1))
    return best


def child_cpu_seconds(command: list[str], repeats: int = 10, *, sent: bytes = b"", expected: bytes = b"") -> float:
    """The least CPU time (user and system) of `repeats` runs of a command with an input; raises if the output lacks what is `expected`."""
    best = float("inf")
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, input=sent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if expected not in done.stdout:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]!r}")
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


class ChildTook(NamedTuple):
    """The cost of one run of a command."""

    peak_bytes: int
    cpu_s: float


def measure_child(command: list[str], folder: Path | None = None, *, allowed: tuple[int, ...] | None = None) -> ChildTook:
    """Run a command once, in a folder where one is named; raises where its exit code is not `allowed`."""
    watcher = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=False); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(done.returncode, used.ru_maxrss, used.ru_utime + used.ru_stime)"
    )
    done = subprocess.run([sys.executable, "-c", watcher, *command], capture_output=True, text=True, check=True, cwd=folder)
    code, kilobytes, cpu_s = done.stdout.split()[-3:]
    if allowed is not None and int(code) not in allowed:
        raise RuntimeError(f"{' '.join(command)} ended with {code}: {done.stderr[-2000:]}")
    return ChildTook(int(kilobytes) * (1 if sys.platform == "darwin" else 1024), float(cpu_s))


def child_peak_bytes(command: list[str], folder: Path | None = None) -> int:
    """Return the peak resident memory of one run of a command."""
    return measure_child(command, folder).peak_bytes


def find_chromium() -> str | None:
    """Return the path of a Chromium on this machine."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def is_compiled() -> bool:
    """Return whether the reader of traces is compiled, as in a native wheel."""
    from proctor.evidence.traces import build  # importing it is what other parts measure

    return not str(build.__file__).endswith(".py")
