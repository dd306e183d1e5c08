"""Cases, runs to be started and agents in a real browser: written, tried, saved and run by hand, by keys, without script, on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.browser.accessibility import WIDTHS, find_flaws, open_details
from tests.live.browser.served_page import Place, Visitor, opened_place
from tests.live.browser.test_pages_browser import browser, pytestmark
from tests.live.browser.test_pages_walk import axe

__all__ = ["axe", "browser", "pytestmark"]
DOCUMENT = "proctor: 1\nname: manners\ncases:\n" + "".join(
    f"  - id: {case}\n    input: {message}\n    expect:\n      - response_contains: {message}\n"
    for case, message in (("greeting", "hello"), ("parcel", "parcel 7"), ("hours", "when are you open"))
)
CHOSEN = "document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)"
APART = """(() => {
  const text = document.getElementById("text"), style = getComputedStyle(text);
  const row = document.querySelector(".layer .bad").getBoundingClientRect();
  const top = text.getBoundingClientRect().top + parseFloat(style.borderTopWidth) + parseFloat(style.paddingTop) - text.scrollTop;
  return [row.top - top - 10 * parseFloat(style.lineHeight), row.height - parseFloat(style.lineHeight)];
})()"""
BROKEN = DOCUMENT.replace("response_contains: parcel", "response_containz: parcel")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with an agent, its traces, a case of two versions, and runs of it: good, bad, mixed."""
    with opened_place(tmp_path_factory.mktemp("case-pages"), None) as place:
        of = {"project_id": place.project}
        place.ask("PATCH", f"/api/projects/{place.project}", {"settings": {"targets": {"Concierge": place.agent.target}}})
        agent = place.ask("POST", "/api/agents", {**of, "name": "Concierge", "kind": "http", "service_name": "concierge"})["id"]
        case = place.ask("POST", "/api/cases", {**of, "agent_id": agent, "document": DOCUMENT, "name": "Good manners"})["id"]
        place.ask("PATCH", f"/api/cases/{case}", {"document": DOCUMENT.replace("name: manners", "name: good manners")})
        for number in range(6):
            text = "hello, parcel 7 is here; when are you open" if number % 3 else "hello"
            place.ask("POST", "/public/traces", {"data": {"text": text}, "externalId": f"e-{number}", "platformId": agent})
        for bad in (False, True, False):
            place.agent.bad = bad
            place.wait_for(place.ask("POST", "/api/runs", {**of, "cases": [case], "target": "Concierge", "repeat": 3})["id"])
        place.agent.bad = False
        place.case, place.agent_id = case, agent
        yield place


def test_a_case_is_typed_checked_tried_saved_and_run(browser: Any, desk: Place) -> None:
    project = f"/ui/p/{desk.project}"
    with Visitor(browser, desk) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto(f"{project}/cases")
        page.click("main a:has-text('New case')")
        visitor.arrive(".gutter")
        assert page.inner_text(".gutter").split()[:3] == ["1", "2", "3"]
        page.fill("#text", BROKEN)
        page.wait_for_selector("#problems li:has-text('response_containz')")
        assert "✕ 11" in page.inner_text(".gutter") and page.get_attribute("#text", "aria-invalid") == "true"
        assert page.inner_text(".layer .bad .message").startswith("✕ ") and "response_contains" in page.inner_text(".layer .bad .message")
        page.click("#problems a")
        assert page.inner_text("#place").startswith("11: ") and "response_containz" in page.inner_text("#place")
        assert page.evaluate(CHOSEN).startswith("response_containz")
        page.fill("#text", DOCUMENT)
        page.wait_for_selector("#problems-state:has-text('No problems found')")
        assert page.inner_text("#read-as").endswith((" case", " cases"))
        assert page.locator("#problems li").count() == 0 and "✕" not in page.inner_text(".gutter")
        page.fill("#name", "Typed in a browser")
        page.select_option("#agent", label="Concierge")
        page.click("button:has-text('Try')")
        page.wait_for_selector("h2:has-text('Tried on 6 traces')")
        assert page.input_value("#text") == DOCUMENT and page.locator("#trial .groups > li").count() == 6
        page.click("button.main:has-text('Save')")
        page.wait_for_selector("h1:has-text('Typed in a browser')")

        page.click("text=Run now")
        page.wait_for_selector("input[name=case]:checked")
        page.fill("#repeat", "many")
        page.click("button:has-text('Dry run')")
        page.wait_for_selector("#repeat-wrong")
        page.fill("#repeat", "2")
        page.select_option("#target", label="Concierge")
        page.fill("#tags", "browser")
        page.click("button:has-text('Dry run')")
        page.wait_for_selector("h2:has-text('Ready to start')")
        page.click("button:has-text('Start')")
        page.wait_for_url("**/runs/run_*")
        page.wait_for_selector("h1 .outcome.pass")
        page.goto(f"{project}/cases")
        page.wait_for_selector("tr:has-text('Typed in a browser') .outcome.pass")
        # A form that came back is a 400, which Chromium itself notes in the console.
        assert [note for note in visitor.complaints if "400" not in note] == []


def test_a_late_answer_is_dropped(browser: Any, desk: Place) -> None:
    with Visitor(browser, desk) as visitor:
        page = visitor.page
        visitor.log_in()
        held: list[Any] = []

        def answer(route: Any) -> None:
            # The first question is answered only after the second.
            if held:
                route.continue_()
            else:
                held.append(route)

        page.route("**/cases/check", answer)
        page.goto(f"/ui/p/{desk.project}/cases/new")
        with page.expect_request("**/cases/check"):
            page.fill("#text", BROKEN)
        with page.expect_response("**/cases/check"):
            page.fill("#text", DOCUMENT)
        page.wait_for_selector("#problems-state:has-text('No problems found')")
        with page.expect_response("**/cases/check"):
            held[0].continue_()
        page.evaluate("new Promise((done) => setTimeout(done))")
        assert "No problems found" in page.inner_text("#problems-state") and page.locator("#problems li").count() == 0
        page.unroute("**/cases/check")
        page.route("**/cases/check", lambda route: route.abort())
        page.fill("#text", BROKEN)
        page.wait_for_selector("#read-as:has-text('Your text is unchanged')")
        assert page.input_value("#text") == BROKEN


def test_a_session_that_ends_while_typing_loses_nothing(browser: Any, desk: Place) -> None:
    key = desk.ask("POST", "/api/keys", {"kind": "organization", "name": "short"})
    mine, desk.key = desk.key, key["key"]
    typed = DOCUMENT + "# typed for an hour </textarea>\n"
    try:
        with Visitor(browser, desk) as visitor:
            page = visitor.page
            visitor.log_in()
            page.goto(f"/ui/p/{desk.project}/cases/new")
            page.fill("#text", typed)
            page.fill("#name", "Survivor")
            desk.key = mine
            desk.ask("DELETE", f"/api/keys/{key['id']}")
            page.click("button.main:has-text('Save')")
            page.wait_for_selector("h2:has-text('Your input')")
            assert page.input_value("textarea") == typed
            other = visitor.context.new_page()
            other.goto("/ui/login")
            other.fill("#key", str(mine))
            other.keyboard.press("Enter")
            other.wait_for_url("**/ui/")
            page.click("button:has-text('Submit again')")
            page.wait_for_selector("h1:has-text('Form of another session')")
            assert page.input_value("textarea") == typed
            page.click("button:has-text('Submit again')")
            page.wait_for_selector("h1:has-text('Survivor')")
    finally:
        desk.key = mine


def test_writing_works_without_script(browser: Any, desk: Place) -> None:
    project = f"/ui/p/{desk.project}"
    with Visitor(browser, desk, java_script_enabled=False) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto(f"{project}/cases/{desk.case}")
        page.click("main a:has-text('Edit')")
        page.fill("#text", BROKEN)
        page.click("button:has-text('Check')")
        assert "response_containz" in page.inner_text("#problems") and page.input_value("#text") == BROKEN
        page.fill("#text", DOCUMENT + "# again\n")
        page.click("button.main")
        assert "Version 3" in page.inner_text("main")
        page.click("a:has-text('Diff 2 → 3')")
        assert "# again" in page.inner_text("table.diff")
        page.goto(f"{project}/agents/new")
        page.fill("#f-name", "Porter")
        page.click("button.main")
        page.click("main a:has-text('Edit agent')")
        page.fill("#f-service_name", "porter")
        page.click("button.main")
        assert "porter" in page.inner_text("dl")
        page.check("[name=sure]")
        page.click("button:has-text('Delete this agent')")
        assert "Porter" not in page.inner_text("main")


def test_the_editor_is_used_by_keys_alone(browser: Any, desk: Place) -> None:
    with Visitor(browser, desk) as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto(f"/ui/p/{desk.project}/cases")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "find"
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector("#document")
        page.keyboard.press("u")
        page.wait_for_url("**/cases")
        page.goto(f"/ui/p/{desk.project}/cases/new")
        page.focus("#text")
        page.keyboard.press("Control+a")
        page.keyboard.type("proctor: 1\ncases: nothing\n")
        page.wait_for_selector("#problems li a")
        page.keyboard.press("Escape")
        page.wait_for_selector("#place:has-text('Tab leaves the text now.')")
        for _ in range(3):
            page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.matches('#problems a')")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "text"
        type_with_help(page)
        assert visitor.complaints == []


def type_with_help(page: Any) -> None:
    """Indent, take back, choose a name, see a bracket's other end, and find, by keys alone."""

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    def value() -> str:
        return page.input_value("#text")

    press("Control+a", "Delete")
    page.keyboard.type("one\ntwo")
    press("Control+a", "Tab")
    assert value() == "  one\n  two"
    press("Shift+Tab", "Shift+Tab")
    assert value() == "one\ntwo"
    press("Control+z")
    assert value() == "  one\n  two", "what a key did can be taken back"
    press("Control+a", "Delete")
    page.keyboard.type("expect:\n- response_conta")
    assert value() == "expect:\n  - response_conta", "the next line is indented"
    page.wait_for_selector("#proposals li:has-text('response_contains')")
    assert "names:" in page.inner_text("#place") and page.get_attribute("#text", "aria-activedescendant") is None
    press("ArrowDown")
    active = page.get_attribute("#text", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    press("Enter")
    assert value() == "expect:\n  - response_contains: " and not page.is_visible("#proposals")
    press("Control+z")
    assert value() == "expect:\n  - response_conta"
    press("Escape", "End", "Control+Space")
    page.wait_for_selector("#proposals li")
    press("Tab")
    assert value() == "expect:\n  - response_contains: "
    page.keyboard.type("{a: [1]}")
    assert page.locator(".layer .pair").count() == 2
    press("Control+f")
    assert page.evaluate("document.activeElement.id") == "find-text"
    page.keyboard.type("NT")
    assert page.locator(".layer .found").count() == 1 and "1 of 1" in page.inner_text(".find-bar")
    page.keyboard.press("Control+a")
    page.keyboard.type("e")
    assert "1 of " in page.inner_text(".find-bar") or "2 of " in page.inner_text(".find-bar")
    press("Enter", "Escape")
    assert page.evaluate("document.activeElement.id") == "text" and page.evaluate(CHOSEN) == "e"
    press("Escape", "Tab")
    assert page.evaluate("document.activeElement.id") != "text", "there is a way out"
    press("Shift+Tab", "Shift+Tab")
    assert page.evaluate("document.activeElement.id") != "text", "who only passes by is let through"


def list_screens(desk: Place) -> list[str]:
    project = f"/ui/p/{desk.project}"
    case = f"{project}/cases/{desk.case}"
    return [
        f"{project}/cases", f"{case}?from=1&to=2", f"{case}/edit", f"{project}/cases/new", f"{project}/runs/new?case={desk.case}",
        f"{project}/agents", f"{project}/agents/{desk.agent_id}", f"{project}/agents/{desk.agent_id}/edit", f"{project}/agents/new",
    ]  # fmt: skip


@pytest.mark.in_turn
def test_no_accessibility_rule_is_broken_and_nothing_overflows(browser: Any, desk: Place, axe: str) -> None:
    with Visitor(browser, desk, color_scheme="light", bypass_csp=True, reduced_motion="reduce") as visitor:
        page = visitor.page
        flaws: list[str] = []
        visitor.log_in()
        for path in list_screens(desk):
            page.goto(path)
            open_details(page)
            flaws += find_flaws(page, axe, path.partition(desk.project)[2])
        page.goto(f"/ui/p/{desk.project}/cases/new")
        page.fill("#text", BROKEN)
        page.wait_for_selector("#problems li")
        flaws += find_flaws(page, axe, "editor with problems")
        for width in (*WIDTHS, WIDTHS[0]):
            page.set_viewport_size({"width": width, "height": 844})
            apart = page.evaluate(APART)
            assert max(map(abs, apart)) < 2, f"the mark is not at its line after a change to {width} px: {apart}"
        page.fill("#text", DOCUMENT)
        page.click("button:has-text('Try')")
        page.wait_for_selector("#trial")
        flaws += find_flaws(page, axe, "editor tried")
        # The draft is not saved yet: the page asks before it is left, and the visitor stays.
        with pytest.raises(Exception, match="ERR_ABORTED"):
            page.goto(f"/ui/p/{desk.project}/runs/new")
        assert page.locator("#trial").count() == 1 and visitor.complaints[-1].startswith("a dialog")
        page.evaluate("document.querySelector('form.editor').dispatchEvent(new Event('submit'))")
        page.goto(f"/ui/p/{desk.project}/runs/new")
        page.click("button:has-text('Dry run')")
        page.wait_for_selector("#dry-run")
        flaws += find_flaws(page, axe, "dry run")
        assert not flaws, "\n".join(flaws)
