"""The HTML report of 10,000 cases with 500 failures: its size, the time to write it, and the time to the first rows in a browser."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.report.html_samples import large_run

from benchmarks.measure import cpu_seconds, find_chromium
from benchmarks.report import Figure
from proctor.report.html.report import render_html

CASES, FAILURES = 10_000, 500
OPENINGS = 3


def figures() -> Iterator[Figure]:
    """Megabytes, seconds, and milliseconds from the start of the navigation."""
    run, entries = large_run(CASES, FAILURES)
    pages: list[str] = []
    spent = cpu_seconds(lambda: pages.append(render_html(run, entries)), 2)
    size = len(pages[-1].encode()) / 1e6
    yield Figure(f"report.html of {CASES:,} cases, {FAILURES} failed, megabytes", size, at_most=8)
    yield Figure("writing it, seconds of CPU", spent)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        path.write_text(pages[-1], encoding="utf-8")
        yield from _in_browser(path)


def _in_browser(path: Path) -> Iterator[Figure]:
    chromium = find_chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        print("  the time to the first rows needs playwright and chromium")
        return
    if chromium is None:
        print("  the time to the first rows needs chromium")
        return
    first_rows: list[float] = []
    opened: list[float] = []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        for _ in range(OPENINGS):
            page = browser.new_page()
            page.goto(path.as_uri())
            page.wait_for_selector("#cases > .row")
            first_rows.append(page.evaluate("performance.getEntriesByName('proctor-rows')[0].startTime"))
            before = page.evaluate("performance.now()")
            page.click("#cases .head")
            page.wait_for_selector(".timeline .step")
            opened.append(page.evaluate("performance.now()") - before)
            page.close()
        browser.close()
    yield Figure("first rows in headless Chromium, ms after navigation", min(first_rows), note=f"worst {max(first_rows):.0f}")
    yield Figure("opening a case, ms from click to timeline", min(opened), note=f"worst {max(opened):.0f}")


if __name__ == "__main__":
    for figure in figures():
        print(figure.line())
