"""Traces and labels in a real browser against a real service: live, paused, large, labelled by keys, on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proctor.service.hub import Hub
from tests.live.browser.accessibility import find_flaws, open_details
from tests.live.browser.chromium import CHROMIUM
from tests.live.browser.served_page import Visitor
from tests.live.browser.test_pages_browser import browser
from tests.live.browser.test_pages_walk import axe
from tests.live.serving import Serving, serving
from tests.pages.trace_seeds import START, add_trace, make_spans
from tests.pages.world import World

__all__ = ("axe", "browser")  # fixtures
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("pages browser"),  # they share a browser
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]
LARGE = 3_000


class Shop:
    """A service with the traces of a shop's agent, and a key."""

    def __init__(self, server: Serving, key: str) -> None:
        self.server = server
        self.key = key
        self.project = "proj_home"

    def send(self, text: str) -> None:
        body = {"data": {"input": text, "response": "nine to five"}, "platformId": "agent_home_1"}
        headers = {"authorization": f"Bearer {self.key}", "x-request-id": text.replace(" ", "-")}
        status, answer = self.server.ask("POST", "/public/traces", body, headers)
        assert status < 300, answer


def seed(url: str, home: Path) -> str:
    """Everything the tests look at, written before the service starts; a key for it."""
    with World(url, home) as world:
        world.service.run(add_large)
        return world.keys["organization"]


async def add_large(hub: Hub) -> None:
    await add_trace(hub, "large", make_spans(more=LARGE), at=START - 10, input_text="a long one")


ON_ONE_DATABASE = pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
"""For behaviour of the browser alone, which does not depend on the database."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp(f"traces-{request.param}")
    # In a thread of its own: the browser keeps an event loop running in this one.
    with ThreadPoolExecutor(1) as threads:
        url = f"sqlite:///{home / 'proctor.db'}"
        if request.param == "postgresql":
            url = threads.submit(request.getfixturevalue("postgres").new_database).result()
        key = threads.submit(seed, url, home).result()
    with serving(home, database=url) as server:
        yield Shop(server, key)


def test_traces_appear_as_they_come_in_and_wait_while_the_page_is_paused(browser: Any, shop: Shop) -> None:
    with Visitor(browser, shop) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto("/ui/p/proj_home/traces")
        page.wait_for_selector("#live-status:has-text('Live')")
        page.evaluate("window.same = true")
        shop.send("when are you open")
        page.wait_for_selector("tbody tr:has-text('when-are-you-open')")
        page.keyboard.press(".")
        assert page.inner_text("#pause").startswith("Resume")
        shop.send("first of two")
        shop.send("second of two")
        page.wait_for_selector("#live-status:has-text('2 new or changed')")
        assert page.locator("tbody tr:has-text('of-two')").count() == 0
        page.keyboard.press(".")
        page.wait_for_selector("tbody tr:has-text('second-of-two')")
        assert page.evaluate("window.same") is True
        page.fill("#search", "charged twice")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Clear filters")
        assert "q=charged" in page.url and page.locator("tbody tr:has-text('of-two')").count() == 0
        page.click(".facet a:has-text('failed')")
        page.wait_for_url("**outcome=fail**")
        assert page.locator(".feed tbody tr").count() == 2
        page.wait_for_url("**outcome=fail**")
        # Typed in the zone in which times are shown; the browser is in Tokyo.
        page.click("summary:has-text('Time, tool, metadata')")
        page.fill("input[name=since]", "2026-11-15 09:00")
        page.keyboard.press("Enter")
        page.wait_for_url("**since=2026-11-15T00%3A00%3A00.000Z**")
        assert visitor.complaints == []


@ON_ONE_DATABASE
def test_a_large_trace_is_scrolled_and_searched_and_never_grows(browser: Any, shop: Shop) -> None:
    with Visitor(browser, shop) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto("/ui/p/proj_home/traces/trc_large?level=99")
        assert page.evaluate("document.querySelectorAll('*').length") <= 2_000
        page.evaluate("document.getElementById('span-box').scrollTop = 1e9")
        page.wait_for_selector(f"#r{LARGE + 5}")
        assert "3,006" in page.inner_text("#span-place")
        assert page.evaluate("document.querySelectorAll('*').length") <= 2_000
        page.fill("#search", "step 2999")
        page.keyboard.press("Enter")
        page.click("#found a")
        page.wait_for_selector(".span.current")
        assert "step 2999" in page.inner_text("#span")
        box = page.locator(".span.current").bounding_box()
        around = page.locator("#span-box").bounding_box()
        assert around["y"] <= box["y"] <= around["y"] + around["height"], "the row is visible"
        page.goto("/ui/p/proj_home/traces/trc_large?level=1")
        page.click(".turn >> nth=0")
        page.wait_for_url("**turned=**")
        assert visitor.complaints == []


@ON_ONE_DATABASE
def test_spans_are_walked_next_to_the_tree_without_a_reload_or_a_jump(browser: Any, shop: Shop) -> None:
    with Visitor(browser, shop, bypass_csp=True) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto("/ui/p/proj_home/traces/trc_shop")
        visitor.arrive("#span:has-text('execute_tool refund')")
        assert "1 failing span" in page.inner_text(".failing") and page.locator(".span.leads").count() == 1
        page.evaluate("window.same = true")
        page.locator(".span >> nth=5").scroll_into_view_if_needed()
        at = page.evaluate("scrollY")
        page.click(".span .name >> nth=2")
        page.wait_for_selector("#span:has-text('execute_tool lookup_order')")
        assert "span=0000000000000003" in page.url and page.evaluate("[window.same, scrollY]") == [True, at]
        page.keyboard.press("j")
        page.wait_for_selector("#span:has-text('SELECT orders')")
        page.keyboard.press("n")
        page.wait_for_selector("#span:has-text('execute_tool refund')")
        page.click(".turn >> nth=1")
        page.wait_for_selector("#spans[data-visible='5']")
        assert page.evaluate("[window.same, document.activeElement.className]") == [True, "turn"]
        page.click("nav[aria-label=View] a:has-text('Conversation')")
        page.wait_for_selector(".timeline .step.agent")
        assert visitor.complaints == []


@ON_ONE_DATABASE
def test_a_judge_is_contested_where_its_verdict_is_shown_and_a_label_is_undone(browser: Any, shop: Shop) -> None:
    with Visitor(browser, shop, bypass_csp=True) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto("/ui/p/proj_home/traces/trc_rude")
        visitor.arrive(".contest")
        page.click(".contest button[value=pass] >> nth=0")
        visitor.arrive(".contest [aria-pressed]:has-text('Pass')")
        assert page.url.endswith("trc_rude#res_rude")
        page.goto("/ui/p/proj_home/labels")
        visitor.arrive("text=3 to label")
        page.keyboard.press("s")
        visitor.arrive("[role=status]:has-text('Saved: Skip')")
        assert page.evaluate("document.activeElement.id") == "ask" and "2 to label" in page.inner_text("main")
        page.keyboard.press("z")
        visitor.arrive("text=3 to label")
        # As it was before.
        page.goto("/ui/p/proj_home/labels/all")
        page.click("tbody a >> nth=0")
        press_on(page, "Delete")
        page.wait_for_selector("h1:has-text('Delete label?')")
        press_on(page, "Delete")
        page.wait_for_url("**/labels/all")
        assert visitor.complaints == []


def press_on(page: Any, text: str) -> None:
    """Press Enter on a link or a button, like a user who reached it with Tab."""
    page.locator(f"main a:has-text('{text}'), main button:has-text('{text}')").first.focus()
    page.keyboard.press("Enter")


@ON_ONE_DATABASE
def test_answers_are_labelled_with_two_keys(browser: Any, shop: Shop) -> None:
    with Visitor(browser, shop) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto("/ui/p/proj_home/runs")
        page.keyboard.press("l")
        visitor.arrive("text=4 to label")
        for key, left in (("2", "3 to label"), ("1", "2 to label"), ("2", "1 to label")):
            page.keyboard.press(key)
            visitor.arrive(f"text={left}")
        page.fill("input[name=note]", "names the amount")
        # Enter is no label: neither pass nor fail was chosen.
        page.keyboard.press("Enter")
        assert "1 to label" in page.inner_text("main") and page.input_value("input[name=note]") == "names the amount"
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        page.wait_for_selector("text=Nothing to label")
        assert "names the amount" in page.inner_text(".comments")
        assert page.locator(".curve svg").count() == 1
        with page.expect_download() as download:
            page.click("text=Download labels (JSONL)")
        lines = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
        assert len(lines) == 4 and {line["label"] for line in lines} == {True, False}

        # By keyboard only: the label is opened, changed and deleted.
        page.focus(".comments a >> nth=0")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('passed')")
        assert "The answer" in page.inner_text("#judged + .sheet")
        press_on(page, "Edit")
        page.wait_for_selector("h1:has-text('Edit label')")
        page.focus("#f-label")
        page.keyboard.type("Fail")
        page.keyboard.press("Tab")
        page.keyboard.type("Not quite: ")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('failed')")
        assert "Not quite: names the amount" in page.inner_text("#note + p")
        press_on(page, "Delete")
        page.wait_for_selector("h1:has-text('Delete label?')")
        press_on(page, "Delete")
        page.wait_for_url("**/labels/all")
        assert page.locator("tbody tr").count() == 4  # three of these, and one that was there
        assert visitor.complaints == []


@ON_ONE_DATABASE
def test_everything_can_be_read_and_labelled_without_script(browser: Any, shop: Shop) -> None:
    with Visitor(browser, shop, java_script_enabled=False) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto("/ui/p/proj_home/traces/trc_large?level=99")
        page.click("text=Later rows")
        assert "101–200" in page.inner_text("#span-place")
        page.goto("/ui/p/proj_home/traces/trc_shop")
        page.click(".span .name >> nth=4")
        assert "gen_ai.tool.name" in page.inner_text(".one-span")
        page.fill("input[name=note]", "looked at without script")
        page.click("text=Save note")
        assert "looked at without script" in page.inner_text("ul.comments")
        page.click("ul.comments a >> nth=0")
        page.click("main a:has-text('Edit')")
        page.fill("[name=note]", "looked at twice")
        page.click("button.main")
        assert "looked at twice" in page.inner_text("#note + p")
        page.click("main a:has-text('Delete')")
        page.click("button.main")
        assert "looked at twice" not in page.inner_text("main")
        page.goto("/ui/p/proj_home/traces/trc_shop")
        page.click("main a:has-text('Re-evaluate')")
        assert page.input_value("[name=trace_ids]") == "trc_shop"
        page.fill("[name=since]", "soon")
        page.click("button.main")
        assert "expected a time" in page.inner_text("#wrong-since") and page.input_value("[name=trace_ids]") == "trc_shop"
        page.fill("[name=since]", "")
        page.click("button.main")
        assert "1 trace will be re-evaluated." in page.inner_text("main")


SCREENS = (
    "traces", "traces?q=charged&outcome=fail", "traces?q=nobody", "traces/trc_rude", "traces/trc_shop?span=0000000000000005&q=order",
    "traces/trc_large?level=99", "traces/trc_plain", "traces/trc_shop?view=conversation", "labels",
    "labels?subject=result&id=res_shop&claim=1",
    "labels/all", "labels/ann_note", "labels/ann_note/change", "labels/ann_note/delete", "traces/reevaluate?case=case_apology",
    "traces/reevaluate?done=2", "cases/new?trace=trc_shop",
)  # fmt: skip


@pytest.mark.in_turn
@ON_ONE_DATABASE
def test_no_accessibility_rule_is_broken_and_nothing_overflows(browser: Any, shop: Shop, axe: str) -> None:
    with Visitor(browser, shop, color_scheme="light", bypass_csp=True, reduced_motion="reduce") as visitor:
        page = visitor.page
        visitor.log_in()
        flaws: list[str] = []
        for path in SCREENS:
            page.goto(f"/ui/p/proj_home/{path}")
            open_details(page)
            flaws += find_flaws(page, axe, path)
        assert not flaws, "\n".join(flaws)


@ON_ONE_DATABASE
def test_a_feed_with_a_revoked_key_leads_to_the_sign_in_even_while_paused(browser: Any, shop: Shop) -> None:
    mine = {"authorization": f"Bearer {shop.key}"}
    status, made = shop.server.ask("POST", "/api/keys", {"kind": "organization", "name": "short-lived"}, mine)
    assert status < 300, made
    with Visitor(browser, shop) as visitor:
        page = visitor.page
        page.goto("/ui/login?next=/ui/p/proj_home/traces")
        page.fill("#key", made["key"])
        page.keyboard.press("Enter")
        page.wait_for_selector("#live-status:has-text('Live')")
        page.keyboard.press(".")
        page.wait_for_selector("#live-status:has-text('Paused')")
        shop.server.ask("DELETE", f"/api/keys/{made['id']}", None, mine)
        page.wait_for_url("**/ui/login?next=*traces", timeout=30_000)
        assert "Your session has ended" in page.inner_text("main")


@pytest.mark.in_turn
@ON_ONE_DATABASE
def test_a_lost_stream_shows_since_when(browser: Any, shop: Shop) -> None:
    # The last one: the service is gone afterwards.
    with Visitor(browser, shop) as visitor:
        visitor.log_in()
        page = visitor.page
        # A refused stream loses nothing while the page answers: it polls instead.
        page.route("**/api/traces/events*", lambda route: route.fulfill(status=503, body="{}"))
        page.goto("/ui/p/proj_home/traces")
        page.wait_for_selector("#live-status:has-text('Live')")
        shop.send("sent without a stream")
        page.wait_for_selector("tbody tr:has-text('sent-without-a-stream')")
        away = "<title>x</title><h1>Database unavailable</h1>"
        page.route("**/ui/p/proj_home/traces", lambda route: route.fulfill(status=503, content_type="text/html", body=away))
        page.wait_for_selector("#live-status:has-text('reconnecting. Database unavailable')")
        page.unroute_all()
        page.wait_for_selector("#live-status:has-text('Live')")
        shop.server.kill()
        visitor.page.wait_for_selector("#live-status:has-text('Connection lost at')")
