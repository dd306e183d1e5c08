"""The page of a large trace in a real browser: how soon it is there, how soon rows are there after a jump, and what it weighs.

A real `proctor serve` on SQLite takes traces of 30,000 and 100,000 spans over OTLP (they are not evaluated, which would take processor time
from what is measured). Chromium opens each for the first time (its tree is made then) and again (it is remembered), scrolls to the middle
and to the end, and jumps to a span by its id. Printed are milliseconds, bytes on the wire and elements; elements and bytes have a bound.

    python -m benchmarks.trace_page [SPANS ...]
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.live.serving import Serving, serving

from benchmarks.measure import find_chromium
from benchmarks.report import Figure

SPANS = (30_000, 100_000)
MOST_ELEMENTS, MOST_BYTES = 2_000, 30_000
_BATCH = 5_000
_START = 1_794_700_000_000_000_000


def figures() -> Iterator[Figure]:
    """Yield the cost of the page; its elements and bytes must fit the budget of every page."""
    if find_chromium() is None or importlib.util.find_spec("playwright") is None:
        print("  left out: no Chromium, or no package playwright")
        return
    measured = list(measure(SPANS))
    for one in measured:
        for name in ("open_first_ms", "open_again_ms", "first_paint_ms", "scroll_middle_ms", "scroll_end_ms", "jump_ms"):
            yield Figure(f"trace page: {one['spans']:,} spans: {name.removesuffix('_ms').replace('_', ' ')}, ms", one[name])
    yield Figure("trace page: elements", max(one["elements"] for one in measured), at_most=MOST_ELEMENTS)
    yield Figure("trace page: bytes on the wire", max(one["bytes"] for one in measured), at_most=MOST_BYTES)


def measure(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Open a trace of each size in Chromium, and yield what was measured."""
    from playwright.sync_api import sync_playwright  # only here

    with tempfile.TemporaryDirectory() as home, serving(Path(home), flags=("--evaluators", "0")) as server, sync_playwright() as started:
        project = _ask(server, "POST", "/api/projects", {"name": "large"})["id"]
        agent = _ask(server, "POST", "/api/agents", {"project_id": project, "name": "large", "service_name": "large", "kind": "otlp"})["id"]
        # A container has no user namespaces and little shared memory.
        browser = started.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        for size in sizes:
            trace = _send_trace(server, agent, size)
            yield {"spans": size, **_look(browser, f"{server.url}/ui/p/{project}/traces/{trace}", size)}
        browser.close()


def _look(browser: Any, address: str, size: int) -> dict[str, Any]:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(120_000)
    wide = f"{address}?level=99"
    found: dict[str, Any] = {"open_first_ms": _time(lambda: _open(page, wide)), "open_again_ms": _time(lambda: _open(page, wide))}
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    found["first_paint_ms"] = round(page.evaluate(paint))
    sent = "performance.getEntriesByType('navigation')[0].encodedBodySize"
    found["bytes"] = page.evaluate(sent)
    found["elements"] = page.evaluate("document.querySelectorAll('*').length")
    found["scroll_middle_ms"] = _time(lambda: _scroll(page, 0.5, size))
    found["scroll_end_ms"] = _time(lambda: _scroll(page, 1.0, size))
    found["frames"] = _count_frames(page)
    found["jump_ms"] = _time(lambda: _open(page, f"{address}?span=f{size - 10:015x}"))
    found["elements"] = max(found["elements"], page.evaluate("document.querySelectorAll('*').length"))
    found["heap_mb"] = round(page.evaluate("performance.memory.usedJSHeapSize") / 1e6, 1)
    page.context.close()
    return found


def _open(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#spans .span")


def _scroll(page: Any, share: float, size: int) -> None:
    """Scroll, and wait until the row at the top is there."""
    page.evaluate(
        """async (share) => {
             const box = document.getElementById("span-box");
             box.scrollTop = Math.floor((box.scrollHeight - box.clientHeight) * share);
             const there = () => {
               const at = box.getBoundingClientRect();
               return document.elementFromPoint(at.left + 60, at.top + at.height / 2)?.closest(".span");
             };
             while (!there()) await new Promise((done) => setTimeout(done, 5));
           }""",
        share,
    )


def _count_frames(page: Any) -> int:
    """Return how many frames per second are drawn while scrolling through the rows."""
    return page.evaluate(
        """() => new Promise((done) => {
             const box = document.getElementById("span-box"), begun = performance.now();
             let frames = 0;
             box.scrollTop = 0;
             (function next() {
               frames += 1;
               box.scrollTop += 120;
               if (performance.now() - begun < 2000) requestAnimationFrame(next); else done(Math.round(frames / 2));
             })();
           })"""
    )


def _send_trace(server: Serving, agent: str, size: int) -> str:
    trace_id = f"{size:032x}"
    for first in range(0, size, _BATCH):
        spans = [_make_span(trace_id, number) for number in range(first, min(size, first + _BATCH))]
        resource = {"attributes": [{"key": "mibo.platform_id", "value": {"stringValue": agent}}]}
        body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
        _ask(server, "POST", "/v1/traces", body)
    return _ask(server, "GET", f"/api/traces?external_id={trace_id}")["data"][0]["id"]


def _make_span(trace_id: str, number: int) -> dict[str, Any]:
    """A root, a hundred steps below it, and calls below each of these."""
    parent = {} if number == 0 else {"parentSpanId": f"f{0 if number <= 100 else 1 + number % 100:015x}"}
    begin = _START + number * 1_000_000
    attributes = [
        {"key": "step", "value": {"intValue": str(number)}},
        {"key": "note", "value": {"stringValue": f"what step {number} said"}},
    ]
    times = {"startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 5_000_000)}
    return {"traceId": trace_id, "spanId": f"f{number:015x}", "name": f"step {number}", "attributes": attributes, **parent, **times}


def _ask(server: Serving, method: str, path: str, body: Any = None) -> Any:
    status, answer = server.ask(method, path, body)
    assert status < 300, answer
    return answer


def _time(act: Any) -> int:
    begun = time.perf_counter()
    act()
    return round((time.perf_counter() - begun) * 1000)


if __name__ == "__main__":
    for line in measure(tuple(map(int, sys.argv[1:])) or SPANS):
        print(json.dumps(line), flush=True)
