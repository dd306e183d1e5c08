"""Alerts, keys and benchmarks in a real browser: made by hand and by keys, refused in place, and nothing lost when a session ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.browser.chromium import CHROMIUM
from tests.live.browser.served_page import Place, Visitor, opened_place
from tests.live.browser.test_pages_browser import browser, playwright  # noqa: F401  # `browser` is a fixture

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("pages browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]


ON_ONE_DATABASE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
"""For behaviour of the browser alone, which does not depend on the database."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    from concurrent.futures import ThreadPoolExecutor

    database = None
    if request.param == "postgresql":
        cluster = request.getfixturevalue("postgres")
        with ThreadPoolExecutor(1) as threads:
            database = threads.submit(cluster.new_database).result()
    with opened_place(tmp_path_factory.mktemp(f"settings-{request.param}"), database) as opened:
        yield opened


@pytest.mark.in_turn
def test_a_rule_a_key_and_a_benchmark_are_made_by_hand(browser: Any, place: Place) -> None:  # noqa: F811
    with Visitor(browser, place) as visitor:
        page = visitor.page
        visitor.log_in()
        page.click("main >> text=Corner shop")
        page.click("header >> text=Alerts")
        page.click("text=Low pass rate")
        page.fill("[name=name]", "few pass")
        page.fill("[name=webhook_url]", "https://example.com/hook")
        page.click("button:has-text('Preview')")
        page.wait_for_selector("#preview")
        assert page.input_value("[name=name]") == "few pass"
        page.fill("[name=below]", "7")
        page.click("button.main")
        page.wait_for_selector(".wrong:has-text('expected a number from 0 to 1')")
        assert page.input_value("[name=webhook_url]") == "https://example.com/hook"
        page.fill("[name=below]", "0.7")
        page.click("button.main")
        page.wait_for_selector("code:has-text('whsec_')")
        page.click("text=I have copied it")
        page.wait_for_selector("h1:has-text('few pass')")
        page.click("text=Disable")
        page.wait_for_selector("h1:has-text('off')")

        page.goto("/ui/benchmarks")
        page.click("text=New benchmark")
        page.fill("[name=name]", "Calls")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('Calls')")
        page.click("section:has(#s-tasks) >> text=Add")
        page.fill("[name=name]", "Book")
        page.fill("[name=task_item]", "{oops")
        page.click("button.main")
        page.wait_for_selector(".wrong:has-text('line 1, column 2')")
        page.fill("[name=task_item]", '{"instruction": "book"}')
        page.click("button.main")
        page.wait_for_selector("h1:has-text('Book')")
        page.click("section:has(#s-criteria) >> text=Add")
        page.fill("[name=label]", "greets")
        page.fill("[name=assertion]", '{"assert": "voice-transcript", "contains": ["hello"]}')
        page.fill("[name=axis]", "manner")
        page.click("button.main")
        page.wait_for_selector("h1:has-text('greets')")
        # A refused form is a 400, which Chromium itself notes in the console.
        assert [note for note in visitor.complaints if "400" not in note] == []


@ON_ONE_DATABASE
def test_typed_text_survives_a_revoked_key(browser: Any, place: Place) -> None:  # noqa: F811
    made = place.ask("POST", "/api/keys", {"kind": "organization", "name": "short-lived"})
    with Visitor(browser, place) as visitor:
        page = visitor.page
        page.goto("/ui/login")
        page.fill("#key", made["key"])
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/")
        # Another window of the same session follows the run.
        place.agent.may_answer.clear()
        run = place.start_run()
        watching = visitor.context.new_page()
        watching.goto(f"/ui/p/{place.project}/runs/{run}")
        watching.wait_for_selector("label:has-text('0 of 4 attempts finished')")
        page.click("text=New project")
        page.fill("[name=name]", "a project")
        page.fill("[name=description]", "first line\nsecond line")
        place.ask("DELETE", f"/api/keys/{made['id']}")
        watching.wait_for_url("**/ui/login?next=*", timeout=30_000)
        assert "Your session has ended" in watching.inner_text("main")
        place.agent.may_answer.set()
        page.click("button.main")
        page.wait_for_selector("#entered")
        assert page.input_value("textarea[name=description]") == "first line\nsecond line"
        other = visitor.context.new_page()
        other.goto("/ui/login")
        other.fill("#key", str(place.key))
        other.keyboard.press("Enter")
        other.wait_for_url("**/ui/")
        page.click("button:has-text('Submit again')")
        page.wait_for_selector("h1:has-text('Form of another session')")
        page.click("button:has-text('Submit again')")
        page.wait_for_selector("h1:has-text('a project')")
        assert page.url.rpartition("/")[0].endswith("/ui/p")


@ON_ONE_DATABASE
def test_a_run_deleted_while_followed_is_reported(browser: Any, place: Place) -> None:  # noqa: F811
    other = place.ask("POST", "/api/projects", {"name": "Short-lived"})["id"]
    place.agent.may_answer.clear()
    run = place.start_run(project_id=other)
    with Visitor(browser, place) as visitor:
        visitor.log_in()
        visitor.page.goto(f"/ui/p/{other}/runs/{run}")
        visitor.page.wait_for_selector("label:has-text('0 of 4 attempts finished')")
        place.ask("DELETE", f"/api/projects/{other}")
        visitor.page.wait_for_selector("h1:has-text('Page not found')", timeout=30_000)
        assert "was deleted" in visitor.page.inner_text("main")
    place.agent.may_answer.set()


@ON_ONE_DATABASE
def test_all_settings_are_reachable_by_keyboard(browser: Any, place: Place) -> None:  # noqa: F811
    with Visitor(browser, place) as visitor:
        page = visitor.page
        visitor.log_in()
        page.keyboard.press("/")
        page.wait_for_url("**/ui/search")
        page.wait_for_selector("input[type=search]:focus")
        page.keyboard.type("corner")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/search?q=corner")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/ui/p/{place.project}")
        page.goto(f"/ui/p/{place.project}/settings/change")
        page.focus("[name=name]")
        page.keyboard.press("Control+A")
        page.keyboard.type("Corner shop")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/ui/p/{place.project}/settings")
        assert visitor.complaints == []
