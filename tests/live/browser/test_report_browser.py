"""The HTML report in a real browser: it filters, searches and opens cases, sends no requests, and runs nothing it contains."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.model.run import RunEntry
from proctor.report.html.report import render_html
from tests.live.browser.chromium import CHROMIUM, launch_chromium
from tests.report.html_samples import hostile_run, large_run, live_run

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need the package playwright")

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(180),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = launch_chromium(started)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for name, (run, entries) in {"live": live_run(), "hostile": hostile_run()}.items():
        (folder / f"{name}.html").write_text(render_html(run, entries), encoding="utf-8")
    return folder


class Watched:
    """A page with its requests and console errors."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(20_000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append("a dialog"), dialog.dismiss()))

    def ids(self) -> list[str]:
        return self.page.locator("#cases > .row .names b").all_inner_texts()


@pytest.fixture
def opened(browser: Any, files: Path) -> Iterator[Any]:
    contexts: list[Any] = []

    def open_file(name: str, address: str = "", **options: Any) -> Watched:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.goto(f"{(files / name).as_uri()}{address}")
        watched.page.wait_for_selector("#cases > .row")
        return watched

    yield open_file
    for context in contexts:
        context.close()


def test_filter_search_and_a_case_answer_to_clicks(opened: Any) -> None:
    watched = opened("live.html")
    page = watched.page
    assert watched.ids()[:3] == ["refund-twice", "book-visit", "greeting-in-german"]
    assert page.inner_text("#shown") == "9 cases"

    page.click("#outcomes button:has-text('errors')")
    assert watched.ids() == ["slow-pattern", "traces/support.jsonl:12"]
    page.click("#outcomes button:has-text('skipped')")
    assert page.inner_text("#shown") == "3 cases"
    page.click("#outcomes button:has-text('errors')")
    page.click("#outcomes button:has-text('skipped')")

    page.select_option("#tag", "team: logistics")
    assert watched.ids() == ["greeting-in-german"]
    page.select_option("#tag", "")

    page.fill("#search", "CHARGED lookup_order")
    assert watched.ids() == ["refund-twice"]
    page.click("#cases .head")
    page.wait_for_selector(".timeline")
    assert "track_parcel" not in page.inner_text(".body")
    assert page.locator(".comparison .expected pre").first.inner_text() == "id 17"
    assert page.locator(".comparison .found pre").first.inner_text() == "id 71"
    assert page.locator(".timeline .step").count() == 9

    page.click(".pointer:has-text('$.tool_calls[2]')")
    assert "refund" in page.inner_text(".step.pointed .who")
    page.click("summary:has-text('result')")
    assert "9007199254740993" in page.inner_text(".step.pointed details pre")

    page.fill("#search", "no such case")
    assert page.is_visible("#notice") and page.inner_text("#shown") == "0 cases"
    assert watched.complaints == []
    assert len(watched.requests) == 1 or all(url.startswith("data:") for url in watched.requests[1:])


def test_found_evidence_is_marked_and_linked_both_ways(browser: Any, tmp_path: Path) -> None:
    suite = proctor.parse_suite(
        "proctor: 1\nname: s\ncases:\n"
        "  - {id: a, expect: [response_not_contains: secret, json_field: {field: status, value: {$contains: ok}}]}\n"
    )
    evidence = proctor.read_evidence({"case": "a", "text": "the </script><b>secret</b> " * 3, "body": {"status": "it is ok"}})
    run = proctor.check(suite, evidence)
    entry = RunEntry(case="a", outcome="fail", verdicts=run.cases[0].verdicts, evidence=evidence)
    (tmp_path / "marked.html").write_text(render_html(run, {("a", 0): entry}), encoding="utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 800})
    watched = Watched(context.new_page())
    page = watched.page
    page.goto((tmp_path / "marked.html").as_uri())
    page.click("#cases .head")
    page.wait_for_selector(".timeline")
    assert page.locator("mark.fail").count() == 3 and "ok" in page.locator("mark.pass").inner_text()
    page.click("text=Show forbidden text")
    assert page.locator("mark.pointed").count() == 1 and page.evaluate("document.activeElement.tagName") == "MARK"
    page.click("mark.pass .back")
    assert page.evaluate("document.activeElement.id").endswith("-a2")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert watched.complaints == []
    context.close()


def test_attempts_of_a_flaky_case_can_be_compared(opened: Any) -> None:
    page = opened("live.html", "#only=flaky").page
    assert "60 % (23.1 % – 88.2 %)" in page.inner_text(".row .rate-row")
    page.click("#cases .head")
    page.wait_for_selector(".attempts")
    assert "Your parcel is on its way." in page.inner_text(".timeline")
    page.click(".attempts button:has-text('Attempt 3')")
    assert "Ihr Paket ist unterwegs." in page.inner_text(".timeline")


def test_a_link_shows_the_same_case_again(opened: Any) -> None:
    page = opened("live.html").page
    page.click("#outcomes button:has-text('failed')")
    page.click(".head:has-text('book-visit')")
    page.wait_for_selector(".timeline")
    address = page.evaluate("location.hash")
    again = opened("live.html", address)
    again.page.wait_for_selector(".timeline")
    assert len(again.ids()) == 3
    assert again.page.locator("[aria-expanded=true] .names b").inner_text() == "book-visit"


def test_everything_is_reachable_by_keyboard(opened: Any) -> None:
    page = opened("live.html").page
    page.keyboard.press("/")
    page.keyboard.type("visit")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_selector(".timeline")
    assert page.locator("[aria-expanded=true] .names b").inner_text() == "book-visit"
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.querySelector('b').textContent") == "book-visit"
    page.keyboard.press("Enter")
    page.wait_for_selector("[aria-expanded=true]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows_and_text_is_readable(opened: Any, scheme: str, width: int) -> None:
    page = opened("live.html", color_scheme=scheme).page
    page.set_viewport_size({"width": width, "height": 844})
    for head in page.locator("#cases .head").all():
        head.click()
    page.wait_for_selector("[aria-busy]", state="detached")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    assert contrast(ground, ink) >= 7
    muted = page.evaluate("getComputedStyle(document.querySelector('.muted')).color")
    assert contrast(ground, muted) >= 4.5


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_hostile_text_is_only_shown(opened: Any) -> None:
    watched = opened("hostile.html")
    page = watched.page
    page.click("#cases .head")
    page.wait_for_selector(".timeline")
    for summary in page.locator("summary").all():
        summary.click()
    assert page.locator("img").count() == 0
    assert page.locator(".body b img, .body script").count() == 0
    assert "onerror=" in page.inner_text(".body")
    assert watched.complaints == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []


def test_the_policy_stops_markup_even_if_the_script_made_some(opened: Any) -> None:
    page = opened("live.html").page
    assert (
        page.evaluate("(() => { try { document.body.innerHTML = '<b>x</b>'; return 'drawn'; } catch (e) { return e.name; } })()")
        == "TypeError"
    )
    assert page.evaluate("fetch('data:,x').then(() => 'fetched', () => 'refused')") == "refused"


def test_a_served_report_is_one_request(browser: Any, files: Path) -> None:
    paths: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(files))

        def log_message(self, format: str, *args: Any) -> None:
            paths.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/live.html")
        page.wait_for_selector("#cases > .row")
        page.click("#cases .head")
        page.wait_for_selector(".timeline")
        context.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
    assert paths == ["/live.html"]


def test_a_damaged_file_is_reported(browser: Any, files: Path, tmp_path: Path) -> None:
    text = (files / "live.html").read_text(encoding="utf-8")
    at = text.index('id="index">') + 40
    (tmp_path / "damaged.html").write_text(text[:at] + "AAAA" + text[at + 4 :], encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "damaged.html").as_uri())
    page.wait_for_selector("#notice:has-text('damaged')")
    context.close()


@pytest.mark.on_request
def test_ten_thousand_cases_fit_in_eight_megabytes_and_are_drawn_a_page_at_a_time(opened: Any, files: Path) -> None:
    run, entries = large_run(10_000, 500)
    path = files / "large.html"
    path.write_text(render_html(run, entries), encoding="utf-8")
    assert path.stat().st_size <= 8_000_000
    watched = opened("large.html")
    page = watched.page
    assert page.locator("#cases > .row").count() == 100
    assert page.locator("#cases > .row.fail").count() == 100
    assert page.inner_text("#shown") == "1–100 of 10,000 cases"
    page.click("#pages button:has-text('Last')")
    assert page.inner_text("#shown") == "9,901–10,000 of 10,000 cases"
    assert page.locator("#cases > .row.pass").count() == 100
    page.click("#outcomes button:has-text('failed')")
    assert page.inner_text("#shown") == "1–100 of 500 cases"
    page.fill("#search", "case-0999")
    page.click("#outcomes button:has-text('failed')")
    assert len(watched.ids()) == 10
    page.click(".head:has-text('case-09990')")
    page.wait_for_selector(".timeline .step.call")
    assert watched.complaints == []
