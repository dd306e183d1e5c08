"""A run followed from two browsers while the service is restarted: nothing is missing, and nothing there twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.live.browser.chromium import CHROMIUM
from tests.live.browser.served_page import Visitor, opened_place
from tests.live.browser.test_pages_browser import browser  # noqa: F401  # a fixture
from tests.live.serving import Serving

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("pages browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]
REPEAT = 15
"""Of four cases: more attempts than one page of the list has."""
_FOLLOW = """(address) => {
    // Every event that the stream of this browser brings, with the ids, over every connection it makes.
    window.received = [];
    window.opened = 0;
    const stream = new EventSource(address);
    stream.addEventListener("open", () => { window.opened += 1; });
    for (const kind of ["queued", "running", "started", "finished", "retrying", "slowed", "waiting", "completed", "failed", "cancelled"])
        stream.addEventListener(kind, (event) => {
            window.received.push({ id: Number(event.lastEventId), kind, data: JSON.parse(event.data) });
            // Where a test can wait for it: the policy of the page forbids to evaluate text.
            document.documentElement.dataset.last = kind;
            document.documentElement.dataset.finished = window.received.filter((one) => one.kind === "finished").length;
            if (["completed", "failed", "cancelled"].includes(kind)) stream.close();
        });
}"""


class Turnstile:
    """Releases a number of answers, and finally all; replaces the event of the agent."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(0)

    def let(self, count: int) -> None:
        self._free.release(count)

    def set(self) -> None:
        self._free.release(10_000)

    def wait(self, timeout: float) -> bool:
        return self._free.acquire(timeout=timeout)


def list_rows(page: Any) -> list[list[str]]:
    """The attempts at the start and the end of a run's list; the end fills the visible height."""
    found: list[list[str]] = []
    for position in (0, 50):
        page.goto(f"{page.url.partition('?')[0].partition('#')[0]}?position={position}")
        found.append(page.eval_on_selector_all(".attempts-table tr[data-row]", "rows => rows.map(row => row.id)"))
    return found


def see_window(page: Any, address: str) -> None:
    """Scroll through the attempts of a run: each row is at its number's position, and missing rows are reported."""
    # Not at the start of a page of rows, as a user may type it.
    page.goto(f"{address}?position=7")
    page.wait_for_selector("[data-window][data-ready]")
    page.evaluate("document.querySelector('[data-window]').scrollTop = 0")
    page.wait_for_selector("tr[aria-rowindex='2']")
    shown = page.eval_on_selector_all(".attempts-table tr[data-row]", "rows => rows.map(row => Number(row.getAttribute('aria-rowindex')))")
    assert shown == list(range(2, 2 + len(shown)))
    page.goto(address)
    page.route("**/rows?*", lambda route: route.fulfill(status=503, body="away"))
    page.evaluate("document.querySelector('[data-window]').scrollTop = 1e6")
    page.wait_for_selector("[data-shown]:has-text('Could not load')")
    page.unroute("**/rows?*")
    page.wait_for_selector(f"tr[aria-rowindex='{4 * REPEAT + 1}']")
    assert f"of {4 * REPEAT}" in page.inner_text("[data-shown]")


@pytest.mark.in_turn
def test_two_browsers_follow_a_run_over_a_restart(browser: Any, tmp_path: Path) -> None:  # noqa: F811  # the fixture
    with opened_place(tmp_path, None, "--lease-s", "2") as place:
        port = place.server.url.rpartition(":")[2]
        place.agent.may_answer = gate = Turnstile()
        run = place.start_run(repeat=REPEAT, concurrency=2)
        with Visitor(browser, place) as first, Visitor(browser, place) as second:
            address = f"/ui/p/{place.project}/runs/{run}"
            for visitor in (first, second):
                visitor.log_in()
                visitor.page.goto(address)
                visitor.page.evaluate(_FOLLOW, f"/api/runs/{run}/events")
            # Paused by the reader: new events are counted and shown on resume.
            first.page.keyboard.press(".")
            # Killed in the middle: some attempts are finished, some are running, some have not started.
            gate.let(7)
            second.page.wait_for_selector("html[data-finished='7']", state="attached")
            first.page.wait_for_selector("#live-status:has-text('7 new or changed')")
            assert first.page.inner_text("label[for=progress]").startswith("0 of")
            first.page.keyboard.press(".")
            first.page.wait_for_selector("label:has-text('7 of')")
            place.server.kill()
            second.page.wait_for_selector("#live-status:has-text('Connection lost')")
            again = Serving(tmp_path, flags=("--allowed-address", "127.0.0.1", "--port", port, "--lease-s", "2"))
            try:
                gate.set()
                for visitor in (first, second):
                    visitor.page.wait_for_selector("h1 .outcome.pass", timeout=90_000)
                    visitor.page.wait_for_selector("html[data-last='completed']", state="attached")
                    events: list[dict[str, Any]] = visitor.page.evaluate("window.received")
                    assert visitor.page.evaluate("window.opened") >= 2, "the stream was never interrupted"
                    # By id: nothing left out, nothing brought twice, although the connection was another one.
                    assert [one["id"] for one in events] == list(range(1, len(events) + 1))
                    finished = [(one["data"]["case"], one["data"]["attempt"]) for one in events if one["kind"] == "finished"]
                    assert len(finished) == len(set(finished)) == 4 * REPEAT
                    assert f"{4 * REPEAT} passed" in " ".join(visitor.page.inner_text(".summary").split())
                    assert visitor.page.inner_text("#live-status") == ""
                    parts = list_rows(visitor.page)
                    assert [len(part) for part in parts] == [len(set(part)) for part in parts]
                    assert len(set().union(*parts)) == 4 * REPEAT
                see_window(second.page, address)
            finally:
                again.stop()
