"""What the server takes for every page of the service, asked over HTTP without a browser: processor time, first and again.

The budget of a page is 50 ms. What is measured is the processor time of the server's process, so that other work on the machine counts
for little. It also reports ratios within the run: a page of a run of 100,000 attempts (`PROCTOR_BENCH_ATTEMPTS`) and the same page of
a short one; two such runs compared for the first time and a hand-written loop that reads their stored attempts; an attempt of
10 MB opened for the first time and unpacking it. Left out where the system does not report the time of another process.

A worker stores the figures of a run when it ends, and so do the runs here; with `PROCTOR_BENCH_FIGURES=0` they are as earlier
versions stored them, and everything is computed from their attempts.

    python -m benchmarks.page_times
"""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import msgspec

from benchmarks.measure import cpu_seconds
from benchmarks.page_seed import ATTEMPTS, PROJECT, RUN, RUN_BEFORE, RUN_SMALL, RUN_SMALL_BEFORE, RUN_WIDE, fill
from benchmarks.pages import find_megabytes, find_ours, serve
from benchmarks.report import Figure
from proctor.model.run import EntryDigest, RunEntry

BUDGET_MS = 50
_AGAIN = 8
_WIDE = "att_wide_000000"
_HOME = f"/ui/p/{PROJECT}"
PAGES = {
    "projects": "/ui/",
    "overview": _HOME,
    "agents": f"{_HOME}/agents",
    "cases": f"{_HOME}/cases",
    "new case": f"{_HOME}/cases/new",
    "runs": f"{_HOME}/runs",
    "new run": f"{_HOME}/runs/new",
    "short run": f"{_HOME}/runs/{RUN_SMALL}",
    "run": f"{_HOME}/runs/{RUN}",
    "rows at the end of the run": f"{_HOME}/runs/{RUN}/rows?position={ATTEMPTS - 50}",
    "result": f"{_HOME}/runs/{RUN}/r/att_large_{ATTEMPTS // 2:07}",
    "result of 10 MB": f"{_HOME}/runs/{RUN_WIDE}/r/{_WIDE}1",
    "short runs compared": f"{_HOME}/compare?runs={RUN_SMALL_BEFORE},{RUN_SMALL}",
    "runs compared": f"{_HOME}/compare?runs={RUN_BEFORE},{RUN}",
    "answers": f"{_HOME}/compare/answers?runs={RUN_BEFORE},{RUN}&case=case-3",
    "traces": f"{_HOME}/traces",
    "labels": f"{_HOME}/labels",
    "alerts": f"{_HOME}/alerts",
    "settings": f"{_HOME}/settings",
    "keys": "/ui/keys",
    "audit": "/ui/audit",
    "health": "/ui/health",
    "search": "/ui/search?q=shop",
    "benchmarks": "/ui/benchmarks",
}
FOUND_OUT: dict[str, float | None] = {"overview": 100, "run": BUDGET_MS, "result of 10 MB": BUDGET_MS, "runs compared": 150}
"""Pages for which something is found out once, about runs that have ended, and what finding it out may take: of two runs together, or of
all that changed in a project, more than a page else."""


class Took(NamedTuple):
    """The cost of one page."""

    cpu_ms: float
    wall_ms: float
    bytes_sent: int


def find_cpu_s(pid: int) -> float:
    """Return the processor time of another process so far, to the microsecond; its threads that have ended count. Raises `OSError`."""
    # As clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


def ask(url: str, pid: int) -> Took:
    """Ask for one page."""
    wall, cpu = time.perf_counter(), find_cpu_s(pid)
    with urlopen(Request(url, headers={"accept-encoding": "gzip"}), timeout=300) as answer:
        sent = answer.read()
    took = Took((find_cpu_s(pid) - cpu) * 1000, (time.perf_counter() - wall) * 1000, len(sent))
    body = gzip.decompress(sent) if answer.headers["content-encoding"] == "gzip" else sent
    assert b"</html>" in body or "/rows" in url, url
    return took


def read_by_hand(home: Path) -> None:
    """Read the stored attempts of both long runs for lists, and count outcomes by case: what any comparison must do."""
    counts: dict[str, dict[str, int]] = {}
    decode = msgspec.json.Decoder(EntryDigest).decode
    with closing(sqlite3.connect(home / "proctor.db")) as connection:
        for (digest,) in connection.execute("SELECT digest FROM run_entries WHERE run_id IN (?, ?)", (RUN_BEFORE, RUN)):
            entry = decode(digest)
            known = counts.setdefault(entry.case, {})
            known[entry.outcome] = known.get(entry.outcome, 0) + 1
    assert counts


def unpack_by_hand(home: Path) -> None:
    """Unpack the attempt of 10 MB."""
    with closing(sqlite3.connect(home / "proctor.db")) as connection:
        (body,) = connection.execute("SELECT body FROM run_entries WHERE id = ?", (f"{_WIDE}1",)).fetchone()
    assert msgspec.json.decode(zlib.decompress(body), type=RunEntry).evidence is not None


def warm_up(url: str, pid: int) -> tuple[str, Took]:
    """Ask for a page of every screen, and return the one that took the most: templates are compiled with the first page that needs them."""
    pages = {name: path for name, path in PAGES.items() if name not in FOUND_OUT} | {"overview": f"{_HOME}?since=2001-01-01"}
    took = {name: ask(url + path, pid) for name, path in pages.items()}
    return max(took.items(), key=lambda item: item[1].cpu_ms)


def measure(url: str, pid: int) -> Iterator[tuple[str, Took, Took]]:
    """Yield every page with the cost of its first load, and the least of several later ones."""
    for name, path in PAGES.items():
        first, *again = [ask(url + path, pid) for _ in range(_AGAIN + 1)]
        yield name, first, Took(*map(min, zip(*again, strict=True)))


def figures() -> Iterator[Figure]:
    """Request every page and yield its cost."""
    try:
        find_cpu_s(1)
    except (OSError, AttributeError):
        print("  left out: the processor time of another process is not reported here")
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        asyncio.run(fill(home))
        words = ["serve", "--port", "0", "--home", str(home), "--requests-per-minute", "0"]
        with serve([sys.executable, "-m", "proctor", *words], home, find_ours) as server:
            name, took = warm_up(server.url, server.pid)
            yield Figure("page times: the first page of a screen after the start, CPU ms", took.cpu_ms, note=f"the most: {name}")
            firsts: dict[str, float] = {}
            agains: dict[str, float] = {}
            for name, first, again in measure(server.url, server.pid):
                firsts[name], agains[name] = first.cpu_ms, again.cpu_ms
                if name in FOUND_OUT:
                    note = f"{first.wall_ms:.0f} ms by the clock"
                    yield Figure(f"page times: {name}: first, CPU ms", first.cpu_ms, at_most=FOUND_OUT[name], note=note)
                note = f"{again.wall_ms:.0f} ms by the clock, {again.bytes_sent / 1000:.1f} KB"
                yield Figure(f"page times: {name}: again, CPU ms", again.cpu_ms, at_most=BUDGET_MS, note=note)
            yield from _relate(home, firsts, agains)
            yield Figure("page times: memory after all of it, MB", find_megabytes(server.pid), at_most=400)


def _relate(home: Path, firsts: dict[str, float], agains: dict[str, float]) -> Iterator[Figure]:
    for one, other in (("run", "short run"), ("rows at the end of the run", "short run"), ("runs compared", "short runs compared")):
        yield Figure(f"page times: {one}, again / {other}", agains[one] / agains[other], at_most=1.5, note=f"{ATTEMPTS:,} attempts")
    by_hand = cpu_seconds(lambda: read_by_hand(home), 3) * 1000
    yield Figure(
        "page times: runs compared, first / reading by hand",
        firsts["runs compared"] / by_hand,
        at_most=0.5,
        note=f"{by_hand:.0f} ms by hand",
    )
    unpacked = cpu_seconds(lambda: unpack_by_hand(home)) * 1000
    yield Figure(
        "page times: result of 10 MB, first / unpacking it", firsts["result of 10 MB"] / unpacked, at_most=1, note=f"{unpacked:.0f} ms"
    )


if __name__ == "__main__":
    for one in figures():
        print(one.line(), flush=True)
