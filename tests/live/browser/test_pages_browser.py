"""The pages in a real browser against a real service: from signing in to a compared run, by mouse, by keyboard, on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.live.browser.accessibility import open_details
from tests.live.browser.chromium import CHROMIUM, launch_chromium
from tests.live.browser.served_page import Place, Visitor, opened_place
from tests.live.serving import Serving
from tests.pages.hostile.test_hostile import HOSTILE

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need the package playwright")

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("pages browser"),  # they share servers and a browser
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    database = None
    if request.param == "postgresql":
        cluster = request.getfixturevalue("postgres")
        # In a thread of its own: the browser keeps an event loop running in this one.
        with ThreadPoolExecutor(1) as threads:
            database = threads.submit(cluster.new_database).result()
    with opened_place(tmp_path_factory.mktemp(f"pages-{request.param}"), database) as opened:
        yield opened


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service with two runs of four cases, the second one worse, and one with hostile text."""
    with opened_place(tmp_path_factory.mktemp("pages-filled"), None) as opened:
        hostile = [
            {"id": f"h{number}", "name": text, "input": text, "expect": [{"response_contains": "\u2603", "label": text[:100] or "x"}]}
            for number, text in enumerate(HOSTILE)
            if text.strip() and text.isprintable()
        ]
        opened.runs = [opened.start_run(repeat=5)]
        opened.wait_for(opened.runs[0])
        opened.agent.bad = True
        opened.runs.append(opened.start_run(repeat=5, note="a new prompt"))
        opened.wait_for(opened.runs[1])
        opened.agent.bad = False
        opened.hostile = opened.start_run(hostile, concurrency=8, note=HOSTILE[0])
        opened.wait_for(opened.hostile)
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = launch_chromium(started)
        yield opened
        opened.close()


def test_a_day_from_signing_in_to_a_compared_run(browser: Any, place: Place) -> None:
    place.wait_for(place.start_run(repeat=5))
    place.agent.bad = True
    with Visitor(browser, place) as visitor:
        page = visitor.page
        page.goto(f"/ui/p/{place.project}/runs")
        page.fill("#key", "vk_wrong")
        page.click("button.main")
        assert "expired key" in page.inner_text("[role=alert]")
        # A refused login is a 401, which Chromium itself notes in the console; it is the only such note.
        assert [note for note in visitor.complaints if "401" not in note] == []
        visitor.complaints.clear()
        page.fill("#key", str(place.key))
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/ui/p/{place.project}/runs")

        place.agent.may_answer.clear()
        run = place.start_run(repeat=5, concurrency=2)
        page.goto(f"/ui/p/{place.project}/runs/{run}")
        page.wait_for_selector("label:has-text('0 of 20 attempts finished')")
        page.evaluate("window.same = true")
        # Typed text and the cursor survive an update of the page.
        page.fill("#search", "refund")
        place.agent.may_answer.set()
        page.wait_for_selector("h1 .outcome.fail")
        assert page.input_value("#search") == "refund" and page.evaluate("document.activeElement.id") == "search"
        assert page.evaluate("window.same") is True
        assert page.locator("#part-failures .groups > li").count() == 2
        assert page.locator("progress").count() == 0 and page.locator("#part-actions form").count() == 0
        assert "20" in str(page.get_attribute("time >> nth=0", "title")) and "UTC" not in page.inner_text("time >> nth=0")

        page.click("#part-failures .links a >> nth=0")
        page.wait_for_selector(".assertions")
        assert "I do not know." in page.inner_text(".timeline")
        page.click(".pointer >> nth=0")
        assert page.evaluate("document.querySelector('.step:target') !== null")
        page.click("nav.attempts li:nth-child(3) a")
        page.wait_for_selector("nav.attempts li:nth-child(3) a[aria-current]")

        page.click("header nav a:has-text('Runs')")
        for number in (0, 1):
            page.check(f"tbody tr:nth-child({number + 1}) input")
        page.click("button:has-text('Compare')")
        page.wait_for_selector("h1 .outcome.fail:has-text('regressed')")
        assert page.locator("#newly_failing ~ .wide tbody tr").count() == 2
        page.click("summary[aria-label=Service]")
        page.click("text=Log out")
        page.wait_for_url("**/ui/login")
        page.goto(f"/ui/p/{place.project}")
        assert "/ui/login?next=" in page.url
        assert visitor.complaints == []
    place.agent.bad = False


def test_everything_works_by_keyboard(browser: Any, filled: Place) -> None:
    with Visitor(browser, filled) as visitor:
        page = visitor.page
        visitor.log_in()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/p/{filled.project}")
        for _ in range(10):  # changed cases come before the runs
            page.keyboard.press("j")
            if page.evaluate("(document.activeElement.closest('[data-row]')?.id)") == filled.runs[1]:
                break
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/runs/{filled.runs[1]}")
        page.keyboard.press("n")
        page.keyboard.press("Enter")
        visitor.arrive(".assertions")
        page.keyboard.press("e")
        assert page.evaluate("document.activeElement.id") == "evidence"
        page.keyboard.press("u")
        page.wait_for_url(f"**/runs/{filled.runs[1]}")
        page.keyboard.press("c")
        page.wait_for_url("**/compare?runs=*")
        page.keyboard.press("?")
        assert page.is_visible("dialog#help")
        page.uncheck("#keys-on")
        page.keyboard.press("Escape")
        page.keyboard.press("u")
        page.keyboard.press("?")
        assert "/compare?" in page.url and not page.is_visible("dialog#help")
        assert visitor.complaints == []


def test_found_evidence_is_marked_and_linked_both_ways(browser: Any, filled: Place) -> None:
    with Visitor(browser, filled) as visitor:
        page = visitor.page
        visitor.log_in()
        result = filled.ask("GET", f"/api/runs/{filled.runs[0]}/results?outcome=pass&case=refund")["data"][0]["id"]
        page.goto(f"/ui/p/{filled.project}/runs/{filled.runs[0]}/r/{result}")
        assert page.locator("mark.pass").count() == 1
        page.click("text=Show match")
        assert page.url.endswith("#m1") and "refund 17" in page.inner_text("mark:target")
        # Not `wait_for_function`: where it has to wait it evaluates a text, which the policy of the pages forbids.
        playwright.expect(page.locator("mark").first).to_be_in_viewport()
        page.click("mark .back")
        assert page.url.endswith("#a1") and page.locator("li:target").count() == 1
        page.click("text=Show side by side")
        visitor.arrive(".side-columns > section")
        assert page.locator(".side-columns > section").count() == 2
        page.keyboard.press("u")
        page.wait_for_url(f"**/runs/{filled.runs[0]}")
        assert visitor.complaints == []


def test_everything_is_readable_without_script(browser: Any, filled: Place) -> None:
    with Visitor(browser, filled, java_script_enabled=False) as visitor:
        page = visitor.page
        visitor.log_in()
        page.click("main >> text=Corner shop")
        page.click("text=All runs")
        page.click(f"a[href$='{filled.runs[1]}']")
        visitor.arrive("#part-failures .groups")
        assert page.locator("#part-failures .groups > li").count() == 2
        page.fill("#search", "refund")
        page.click("main button:has-text('Filter')")
        visitor.arrive("#part-results tbody")
        assert page.locator("#part-results tbody tr").count() == 5
        page.click("#part-results tbody a >> nth=0")
        assert "I do not know." in page.inner_text(".timeline")
        assert "UTC" in page.inner_text("time >> nth=0")


def test_hostile_text_is_only_shown(browser: Any, filled: Place) -> None:
    with Visitor(browser, filled, width=390) as visitor:
        page = visitor.page
        visitor.log_in()
        run = f"/ui/p/{filled.project}/runs/{filled.hostile}"
        page.goto(run)
        title, looked = page.title(), 0
        results: list[str] = []
        while True:
            results += page.eval_on_selector_all("#part-results tbody a", "links => links.map(link => link.getAttribute('href'))")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            if not page.locator("#part-results a[rel=next]").count():
                break
            with page.expect_navigation():
                page.click("#part-results a[rel=next]")
        for address in results[:: len(results) // 12]:
            page.goto(address)
            open_details(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
            assert page.locator("main img, main script, main iframe, main style, main form").count() == 0
            looked += 1
        assert looked >= 10 and title.endswith("shop · proctor")
        assert visitor.complaints == []


def test_the_policy_stops_markup_even_if_a_script_made_some(browser: Any, filled: Place) -> None:
    with Visitor(browser, filled) as visitor:
        visitor.log_in()
        tried = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'drawn'; } catch (e) { return e.name; } })()"
        assert visitor.page.evaluate(tried) == "TypeError"
        assert visitor.page.evaluate("fetch('https://example.com/').then(() => 'fetched', () => 'refused')") == "refused"


@pytest.mark.in_turn
def test_a_run_is_followed_over_a_restart_of_the_service(browser: Any, tmp_path: Path) -> None:
    with opened_place(tmp_path, None, "--lease-s", "2") as place:
        port = place.server.url.rpartition(":")[2]
        place.agent.may_answer.clear()
        run = place.start_run(repeat=3, concurrency=2)
        with Visitor(browser, place) as visitor:
            visitor.log_in()
            visitor.page.goto(f"/ui/p/{place.project}/runs/{run}")
            visitor.page.wait_for_selector("label:has-text('0 of 12')")
            place.server.kill()
            visitor.page.wait_for_selector("#live-status:has-text('Connection lost')")
            again = Serving(tmp_path, flags=("--allowed-address", "127.0.0.1", "--port", port, "--lease-s", "2"))
            try:
                place.agent.may_answer.set()
                # The lease of the service that was killed has to run out first.
                visitor.page.wait_for_selector("h1 .outcome.pass", timeout=60_000)
                assert visitor.page.inner_text("#live-status") == ""
                assert "12 passed" in " ".join(visitor.page.inner_text(".summary").split())
            finally:
                again.stop()
