"""The web pages in Chromium over a project of 100,000 results: bytes on the wire, requests, first paint, a jump to the end of a long run.

`PROCTOR_BENCH_ATTEMPTS` is the number of attempts of the run. The server is a real `proctor serve` on SQLite; what is measured is the best
of several loads with an empty cache. `page_peers` has the pages of other tools. It needs Chromium and the package playwright, and is left
out without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import find_chromium
from benchmarks.page_seed import ATTEMPTS, PROJECT, RUN, RUN_BEFORE, RUN_SMALL, RUN_WIDE, fill
from benchmarks.report import Figure

ROUNDS = 4
WIDTH, HEIGHT = 1280, 844
_ROWS = "(() => { const t = performance.getEntriesByType('navigation')[0]; return t.domInteractive - t.requestStart })()"
_JUMP = """([last, link]) => new Promise((done) => {
    const begun = performance.now();
    const look = (_, seen) => { if (document.querySelector(last)) { seen.disconnect(); done(performance.now() - begun); } };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    document.querySelector(link).click();
})"""
Look = Callable[[Path], str | None]
PAGES = {
    "projects": ("/ui/", ".cards li"),
    "overview": (f"/ui/p/{PROJECT}", "#since"),
    "runs": (f"/ui/p/{PROJECT}/runs", ".runs tbody tr"),
    "short run": (f"/ui/p/{PROJECT}/runs/{RUN_SMALL}", ".attempts-table tr[data-row]"),
    "run": (f"/ui/p/{PROJECT}/runs/{RUN}", ".attempts-table tr[data-row]"),
}
"""Addresses, and an element that shows that the page is complete."""
TURN_BY_TURN = ("short run", "run")
"""Pages to compare, loaded one after the other so that a slow moment of the machine hits both alike."""
TURNS = 10


class Load(NamedTuple):
    """One page, loaded with an empty cache."""

    page_bytes: int
    """Of the page itself, on the wire."""
    script_bytes: int
    all_bytes: int
    requests: int
    rows_s: float
    """From the request to the moment when the markup is there, rows among it."""
    paint_s: float
    elements: int


class Started(NamedTuple):
    """A server that answers."""

    url: str
    seconds: float
    megabytes: float
    pid: int


@contextlib.contextmanager
def serve(command: list[str], home: Path, look: Look, environment: dict[str, str] | None = None) -> Generator[Started]:
    """Start a server and wait until `look` finds where it answers."""
    log = home / "log"
    begun = time.monotonic()
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment) as process:
        try:
            while (url := look(log)) is None:
                assert process.poll() is None and time.monotonic() - begun < 300, log.read_text(errors="replace")[-2000:]
                time.sleep(0.02)
            yield Started(url, time.monotonic() - begun, find_megabytes(process.pid), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def find_megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def find_ours(log: Path) -> str | None:
    """Return the address that `proctor serve` prints."""
    line = next((line for line in log.read_text(errors="replace").splitlines() if "serves on http://" in line), None)
    return None if line is None else line.partition("serves on ")[2].strip()


def load(browser: Any, url: str, ready: str, state: Any = None) -> Load:
    """Load a page in a browser of its own, until something on it is there; `state` are cookies."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, storage_state=state)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    kinds: dict[str, str] = {}
    sizes: dict[str, int] = {}
    session.on("Network.requestWillBeSent", lambda event: kinds.update({event["requestId"]: event.get("type", "")}))
    session.on("Network.loadingFinished", lambda event: sizes.update({event["requestId"]: int(event["encodedDataLength"])}))
    page.goto(url, wait_until="load", timeout=120_000)
    page.wait_for_selector(ready, timeout=120_000, state="attached")
    with contextlib.suppress(Exception):  # pages that ask for ever are not waited for
        page.wait_for_load_state("networkidle", timeout=15_000)
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    end = time.monotonic() + 60
    while not page.evaluate(paint):
        assert time.monotonic() < end, "nothing was painted"
        page.wait_for_timeout(50)
    found = Load(
        page_bytes=sum(size for id, size in sizes.items() if kinds.get(id) == "Document"),
        script_bytes=sum(size for id, size in sizes.items() if kinds.get(id) == "Script"),
        all_bytes=sum(sizes.values()),
        requests=len(sizes),
        rows_s=page.evaluate(_ROWS) / 1000,
        paint_s=page.evaluate(paint) / 1000,
        elements=page.evaluate("document.querySelectorAll('*').length"),
    )
    context.close()
    return found


def jump_to_end(browser: Any, url: str) -> float:
    """Return the seconds from a click on the link to the end until the last row of the run is shown."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    page = context.new_page()
    page.goto(url, wait_until="load")
    page.wait_for_selector("[data-window][data-ready]")
    last = f"tr[aria-rowindex='{ATTEMPTS + 1}']"
    taken: float = page.evaluate(_JUMP, [last, f"[data-jump='{ATTEMPTS - 1}']"])
    shown = page.locator(last).bounding_box()
    frame = page.locator("[data-window]").bounding_box()
    assert shown is not None and frame is not None
    assert frame["y"] <= shown["y"] <= frame["y"] + frame["height"], "the last row is not in sight"
    context.close()
    return taken / 1000


def _measure_pages(browser: Any, url: str) -> Iterator[Figure]:
    loads: dict[str, list[Load]] = {name: [] for name in PAGES}
    for name, (path, ready) in PAGES.items():
        if name not in TURN_BY_TURN:
            loads[name] = [load(browser, url + path, ready) for _ in range(ROUNDS)]
    for _ in range(TURNS):
        for name in TURN_BY_TURN:
            loads[name].append(load(browser, url + PAGES[name][0], PAGES[name][1]))
    rows_s = {name: min(one.rows_s for one in found) for name, found in loads.items()}
    for name, found in loads.items():
        last = found[-1]
        note = f"{last.all_bytes / 1000:.0f} KB in {last.requests} requests, {ATTEMPTS:,} results"
        yield Figure(f"pages: {name}: the page, KB on the wire", last.page_bytes / 1000, at_most=30, note=note)
        yield Figure(f"pages: {name}: script, KB on the wire", last.script_bytes / 1000, at_most=10)
        yield Figure(f"pages: {name}: elements", last.elements, at_most=2_000)
        note = f"{sorted(one.rows_s for one in found)[len(found) // 2]:.2f} in the middle"
        yield Figure(f"pages: {name}: first rows, s", rows_s[name], at_most=0.15 if name == "run" else 0.5, note=note)
        yield Figure(f"pages: {name}: first contentful paint, s", min(one.paint_s for one in found), at_most=1.0)
    yield Figure("pages: first rows of the long run / of the short one", rows_s["run"] / rows_s["short run"], at_most=1.5)


def measure_ours(browser: Any) -> Iterator[Figure]:
    """Yield the figures of our own pages."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        # In a thread of its own: the browser keeps an event loop running in this one.
        with ThreadPoolExecutor(1) as threads:
            threads.submit(asyncio.run, fill(home)).result()
        words = ["serve", "--port", "0", "--home", str(home), "--requests-per-minute", "0"]
        with serve([sys.executable, "-m", "proctor", *words], home, find_ours) as server:
            yield Figure("pages: server start, s", server.seconds, at_most=10, note=f"{server.megabytes:.0f} MB once it answers")
            yield from _measure_pages(browser, server.url)
            jumps = [jump_to_end(browser, f"{server.url}/ui/p/{PROJECT}/runs/{RUN}") for _ in range(ROUNDS)]
            yield Figure("pages: run: jump to the end, s", min(jumps), at_most=0.5, note=f"the last of {ATTEMPTS:,} rows in sight")
            first, *again = [load(browser, f"{server.url}/ui/p/{PROJECT}/compare?runs={RUN_BEFORE},{RUN}", "h1") for _ in range(ROUNDS)]
            note = f"two runs of {ATTEMPTS:,} attempts"
            yield Figure("pages: compare: opened for the first time, s", first.rows_s, at_most=8, note=note)
            yield Figure("pages: compare: opened again, s", min(one.rows_s for one in again), at_most=0.5, note=note)
            first, *again = [
                load(browser, f"{server.url}/ui/p/{PROJECT}/runs/{RUN_WIDE}/r/att_wide_0000001", "#evidence") for _ in range(ROUNDS)
            ]
            # A single load by the clock: `page_times` bounds the server's part.
            yield Figure("pages: a result of 10 MB: opened for the first time, s", first.rows_s)
            yield Figure("pages: a result of 10 MB: opened again, s", min(one.rows_s for one in again), at_most=0.5)
            yield Figure("pages: memory after all of it, MB", find_megabytes(server.pid), at_most=400)


def figures() -> Iterator[Figure]:
    """Load every page and yield its cost."""
    chromium = find_chromium()
    if chromium is None or importlib.util.find_spec("playwright") is None:
        print("  left out: no Chromium, or no package playwright")
        return
    from playwright.sync_api import sync_playwright  # only here: without it everything else is measured

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        yield from measure_ours(browser)
        browser.close()


if __name__ == "__main__":
    for one in figures():
        print(one.line(), flush=True)
