"""`proctor view` over a folder with two runs of 100,000 attempts, and one of four attempts with an answer of 10 MB each.

What the server takes, asked over HTTP without a browser: the first opening, which reads the log and the suite, and the best of several
afterwards. `PROCTOR_BENCH_ATTEMPTS` is the number of attempts of the runs. Pages of the long run are compared with those of a run of
200 attempts: a page costs what it shows, however long the run is.

    python -m benchmarks.view_pages
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import msgspec

from benchmarks.page_seed import ATTEMPTS, CASES, WIDE, make_entry, make_wide_entry, write_suite
from benchmarks.pages import find_megabytes, serve
from benchmarks.report import Figure
from proctor.model.run import RunEntry, RunHeader

LONG, LONG_BEFORE, SHORT, LONG_ANSWERS = "20310103-090000-b", "20310102-090000-a", "20310101-090000-s", "20310104-090000-w"
_SHORT = 200
_ROUNDS = 5


def fill_folder(home: Path, attempts: int = ATTEMPTS) -> None:
    """Write the runs into a folder, as `proctor run` does."""
    for id, count, failing in ((SHORT, _SHORT, 3), (LONG_BEFORE, attempts, 5), (LONG, attempts, 3)):
        _keep_run(home, id, count, (make_entry(number, failing=failing) for number in range(count)))
    _keep_run(home, LONG_ANSWERS, WIDE, map(make_wide_entry, range(WIDE)))


def _keep_run(home: Path, id: str, count: int, entries: Iterator[RunEntry]) -> None:
    folder = home / "runs" / id
    folder.mkdir(parents=True)
    (folder / "suite.yaml").write_text(write_suite(), encoding="utf-8")
    started = f"{id[:4]}-{id[4:6]}-{id[6:8]}T09:00:00Z"
    header = RunHeader(run_id=id, started_at=started, suite_name="shop", target="shop-agent", repeat=max(1, count // CASES), planned=count)
    with (folder / "results.jsonl").open("wb") as file:
        file.writelines(msgspec.json.encode(entry) + b"\n" for entry in entries)
    (folder / "ended.json").write_text('{"ended": "completed"}', encoding="utf-8")
    (folder / "run.json").write_bytes(msgspec.json.encode(header))


def measure(url: str) -> Iterator[tuple[str, float, float]]:
    """Yield each page with the milliseconds of its first opening and of the best one afterwards."""
    middle = ATTEMPTS // 2
    pages = {
        "run": f"runs/{LONG}",
        "rows in the middle": f"runs/{LONG}/rows?position={middle}",
        "one result": f"runs/{LONG}/r/{middle}",
        "short run": f"runs/{SHORT}",
        "short rows": f"runs/{SHORT}/rows?position=100",
        "runs": "runs",
        "overview": "",
        "compare": f"compare?runs={LONG_BEFORE},{LONG}",
        "10 MB result": f"runs/{LONG_ANSWERS}/r/2",
    }
    for name, path in pages.items():
        first, *again = [_ask(f"{url}/{path}".rstrip("/")) for _ in range(_ROUNDS + 1)]
        yield name, first, min(again)


def _ask(url: str) -> float:
    begun = time.perf_counter()
    with urlopen(url, timeout=300) as answer:
        answer.read()
    return (time.perf_counter() - begun) * 1000


def _find_address(log: Path) -> str | None:
    line = next((line for line in log.read_text(errors="replace").splitlines() if "on http://" in line), None)
    return None if line is None else line.partition(" on ")[2].partition(";")[0].strip()


def figures() -> Iterator[Figure]:
    """Request every page and yield its cost."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        fill_folder(home)
        with serve([sys.executable, "-m", "proctor", "view", "--no-open", "--home", str(home)], home, _find_address) as server:
            again: dict[str, float] = {}
            for name, first, best in measure(server.url.rstrip("/")):
                again[name] = best
                yield Figure(f"view: {name}: opened for the first time, ms", first)
                yield Figure(f"view: {name}: opened again, ms", best, note=f"{ATTEMPTS:,} attempts")
            for name in ("run", "rows in the middle"):
                short = again["short run" if name == "run" else "short rows"]
                yield Figure(f"view: {name}: long run / short run", again[name] / short, at_most=3)
            yield Figure(
                "view: memory after all of it, MB", find_megabytes(server.pid), at_most=400, note=f"{server.megabytes:.0f} at the start"
            )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        for one in figures():
            print(one.line(), flush=True)
