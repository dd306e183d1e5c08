"""The report file and the web pages share their elements: the same functions draw both."""

from __future__ import annotations

import re
from typing import Any

import pytest

from proctor.pages.rendering import make_environment
from proctor.pages.static_files import load_static_files
from proctor.report.blocks import attempt as drawn_assertions
from proctor.report.document.html import read_template
from proctor.report.html.report import list_rows, render_html
from proctor.report.words.html_text import Element, make, read_text, write_markup
from tests.pages.screens.test_result import OBSERVED, show
from tests.pages.world import World
from tests.report.html_reading import Page
from tests.report.html_samples import live_run


def read_elements(node: Any) -> Any:
    """The content of a packet, as its original elements."""
    return Element(map(read_elements, node)) if isinstance(node, list) else node


def find_elements(node: Any, head: str) -> list[Element]:
    """Every element with this tag and these classes."""
    if not isinstance(node, Element):
        return []
    return [*([node] if node[0] == head else []), *(found for child in node.children for found in find_elements(child, head))]


def read_report(world: World) -> list[Element]:
    text = world.get("/api/runs/run_marks/report?format=html", "organization").text
    return [read_elements(node) for node in Page(text).details("a")["attempts"][0]["view"]]


@pytest.mark.parametrize("head", ["ol assertions", "ol timeline", "table known", "div comparison", "mark fail"])
def test_the_page_of_an_attempt_and_the_report_have_the_same_elements(world: World, head: str) -> None:
    page = show(world, OBSERVED)
    found = [one for node in read_report(world) for one in find_elements(node, head)]
    assert found
    for one in found:
        # A timeline on a page has links to whole texts, which only a service can answer.
        assert write_markup(one) in page


def test_a_change_to_one_part_is_seen_in_both(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_otherwise(row: Any) -> Element:
        return make("p", "otherwise", f"another way to show {row['expected']}")

    monkeypatch.setattr(drawn_assertions, "draw_comparison", draw_otherwise)
    page = show(world, OBSERVED)
    shown = "".join(map(read_text, read_report(world)))
    changed = set(re.findall(r'<p class="otherwise">([^<]*)</p>', page))
    assert changed and all(text.replace("&quot;", '"') in shown for text in changed)


def test_marks_counts_and_rates_are_the_same_in_both() -> None:
    template = make_environment().from_string(
        "{% import 'parts.html' as part with context %}{{ outcome_blocks.draw_sprite() }}{{ part.outcome('fail') }}{{ part.rate(counts) }}"
    )
    rows = list_rows(live_run()[0])
    counts = {outcome: sum(row.counts.get(outcome, 0) for row in rows) for outcome in ("fail", "error", "pass", "skip")}
    shown = template.render(counts=counts)
    report = render_html(*live_run())
    for piece in re.findall(r"<svg.*?</svg>|<span class=\"outcome.*?</span></span>", shown):
        assert piece in report


def test_both_style_sheets_begin_with_the_same_tokens_and_family() -> None:
    shared = read_template("tokens.css") + read_template("family.css")
    assert load_static_files()["pages.css"].body.decode().startswith(shared)
    assert Page(render_html(*live_run())).blocks["style"].startswith(shared)
