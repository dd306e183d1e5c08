"""Proposals in a real browser: generated, read, edited, accepted and rejected, with every rule of accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.browser.accessibility import find_flaws, open_details
from tests.live.browser.served_page import Place, Visitor, opened_place
from tests.live.browser.test_pages_browser import browser, playwright, pytestmark  # noqa: F401  # `browser` is a fixture
from tests.live.browser.test_pages_walk import axe
from tests.service.runs.test_proposals import DOCUMENT, make_refund

__all__ = ["axe", "browser", "pytestmark"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with opened_place(tmp_path_factory.mktemp("proposals"), None) as opened:
        yield opened


@pytest.mark.in_turn
def test_a_person_walks_through_the_queue(browser: Any, place: Place, axe: str) -> None:
    place.ask("POST", "/api/agents", {"project_id": place.project, "name": "shop", "service_name": "shop"})
    for number in range(100, 106):
        place.ask("POST", "/v1/traces", make_refund(number))
    key = place.ask("POST", "/api/keys", {"kind": "project", "name": "agent", "project_id": place.project})["key"]
    sent = {"project_id": place.project, "document": DOCUMENT.replace("refund\n", "a<b>&\"'\n"), "because": "<img src=x> " + "reason " * 60}
    assert place.server.ask("POST", "/api/proposals", sent, {"authorization": f"Bearer {key}"})[0] == 201
    flaws: list[str] = []

    def look(page: Any, name: str) -> None:
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name}: wider than {width} px"
        open_details(page)
        flaws.extend(find_flaws(page, axe, name))

    with Visitor(browser, place, color_scheme="light", bypass_csp=True, reduced_motion="reduce") as visitor:
        page = visitor.page
        visitor.log_in()
        page.goto(f"/ui/p/{place.project}/cases")
        page.click("main >> text=Proposals")
        page.wait_for_selector("h1:has-text('Proposals')")
        look(page, "queue")
        page.click("button:has-text('Generate')")
        page.wait_for_selector("[role=status]:has-text('1 new proposal')")
        look(page, "queue after generating")
        page.click("main >> text=lookup-order-refund")
        page.wait_for_selector("#document")
        look(page, "proposal")
        page.click("main >> text=Edit")
        page.wait_for_selector("#text")
        look(page, "editor of a proposal")
        page.click("button:has-text('Try')")
        page.wait_for_selector("#trial")
        look(page, "editor of a proposal, tried")
        page.fill("#text", page.input_value("#text").replace("expect:\n", "expect:\n      - response_contains: Refunded\n"))
        page.click("button.main")
        page.wait_for_selector("pre:has-text('response_contains: Refunded')")
        page.click("button:has-text('Accept')")
        page.wait_for_selector("h1:has-text('lookup-order-refund')")
        assert "/cases/case_" in page.url
        page.goto(f"/ui/p/{place.project}/proposals")
        page.click("tbody a")
        page.fill("[name=reason]", "not ours")
        page.click("button:has-text('Reject')")
        page.wait_for_selector("text=No pending proposals.")
        page.click("text=Rejected")
        page.wait_for_selector("td:has-text('not ours')")
        look(page, "rejected")
        page.click("tbody a")
        look(page, "a rejected proposal")
        page.click("main >> text=Delete")
        page.wait_for_selector("h1:has-text('Delete the proposal')")
        look(page, "deleting a proposal")
        page.click("button.main")
        page.wait_for_selector("h1:has-text('Proposals')")
        assert visitor.complaints == []
    assert flaws == []
