"""Changes in simulated systems: before and after, field by field, in the report file and on the pages."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

import proctor
from proctor.formats.suites import read_suite
from proctor.model.evidence import State, StateChange, StateRequest
from proctor.model.run import RunEntry
from proctor.report.blocks.attempt import draw_attempt
from proctor.report.blocks.attempt_layout import lay_out_attempt
from proctor.report.blocks.systems import draw_systems
from proctor.report.html.case import MOST_CHANGES, MOST_REQUESTS, iterate_differences, write_attempt, write_systems
from proctor.report.words.html_text import write_markup
from tests.pages.markup import Markup

PAID = {"ID": 7, "STATUS": "PAID", "LINES": [1, 2], "SHIP": {"TO": "BERLIN", "BY": None}}
SENT = {"ID": 7, "STATUS": "SENT", "LINES": [1, 3], "SHIP": {"TO": "BERLIN", "BY": "VAN"}, "NOTE": "FRAGILE"}
STATE = State(
    changes=(
        StateChange(system="SHOP", change="changed", place="ORDERS/7", before=PAID, after=SENT),
        StateChange(system="SHOP", change="added", place="ORDERS/8", after={"id": 8}),
        StateChange(system="SHOP", change="removed", place="ORDERS/9", before={"id": 9}),
    ),
    requests=(
        StateRequest(system="SHOP", method="PATCH", path="/ORDERS/7", status=200, body={"status": "SENT"}, duration_ms=1500),
        StateRequest(system="SHOP", method="GET", path="/ORDERS/1", status=404, response="NONE"),
    ),
)


def draw(state: State | None) -> str:
    return "".join(write_markup(node) for node in draw_systems(write_systems(state)))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [("a.c", 2, 3)]),
        ({"a": [1]}, {"a": [1, 2]}, [("a", [1], [1, 2])]),
        ("x", "y", [("", "x", "y")]),
        ({"a": 1}, [1], [("", {"a": 1}, [1])]),
    ],
)
def test_differences_are_found_field_by_field(before: Any, after: Any, found: list[Any]) -> None:
    assert list(iterate_differences(before, after)) == found


def test_a_field_that_came_or_went_has_one_side_only() -> None:
    change = write_systems(STATE)["changes"][0]  # type: ignore[index]
    assert [field[0] for field in change["fields"]] == ["STATUS", "LINES", "SHIP.BY", "NOTE"]
    assert change["fields"][0][1:] == ["PAID", "SENT"] and change["fields"][2][1:] == ["null", "VAN"]
    assert change["fields"][3][1:] == [None, "FRAGILE"]


def test_changes_are_expanded_with_both_sides_and_requests_are_collapsed() -> None:
    text = draw(STATE)
    words = Markup(text).words
    assert "3 changes" in words and "± changed" in words and "ORDERS/7" in words
    assert '<del><span class="hidden">Before: </span><bdi class="pre">PAID</bdi></del><ins>' in text
    assert text.startswith('<details open="">') and "2 requests to the systems" in words
    assert "PATCH /ORDERS/7" in words and "404" in words and "1.5 s" in words
    assert Markup(text).problems == []


def test_missing_systems_are_omitted_and_unchanged_ones_are_noted() -> None:
    assert draw(None) == draw(State()) == ""
    assert "No changes in the systems." in draw(State(changes=()))
    assert "No changes" not in draw(State(requests=STATE.requests))


def test_very_many_changes_and_hostile_values_are_bounded_and_harmless() -> None:
    evil = "</td><script>alert(1)</script>\u202e" + "x" * 100_000
    change = StateChange(system=evil, change="changed", place=evil, before={f"{evil}{n}": n for n in range(100)}, after=evil)
    many = StateChange(
        system="S", change="changed", place="P", before={str(n): n for n in range(100)}, after={str(n): -n for n in range(100)}
    )
    request = StateRequest(system=evil, method=evil, path=evil, status=500, body=evil, response={evil: evil})
    text = draw(State(changes=(change, *[many] * 10_000), requests=(request,) * 10_000))
    page = Markup(text)
    assert page.problems == [] and "<script" not in text and "\u202e" not in text
    assert len(text) < 1_000_000 and "More fields changed." in page.words
    assert f"and {10_001 - MOST_CHANGES:,} more" in page.words and f"and {10_000 - MOST_REQUESTS:,} more" in page.words


def test_an_assertion_leads_to_the_change_the_request_and_the_state_that_it_is_about() -> None:
    suite = read_suite(
        "proctor: 1\ncases:\n  - id: SHIP\n    input: GO\n    expect:\n"
        "      - unchanged: {besides: [SHOP/ORDERS/7]}\n"
        "      - request_not_made: {system: SHOP, method: GET}\n"
        "      - records_match: {collection: ORDERS, where: {ID: 8}, fields: [{path: STATUS, expected: LOST}]}\n",
        name="ship",
    )
    state = msgspec.structs.replace(STATE, records={"ORDERS": [{"ID": 8, "STATUS": "OPEN"}]})
    evidence = msgspec.structs.replace(proctor.read_evidence({"case": "SHIP", "input": "GO", "text": "DONE"}), state=state)
    (result,) = proctor.check(suite, evidence).cases
    entry = RunEntry(case="SHIP", outcome=result.outcome, verdicts=result.verdicts, evidence=evidence)
    drawn = draw_attempt(lay_out_attempt(write_attempt(result, entry, with_evidence=True)))
    text = "".join(map(write_markup, drawn))
    links = dict(re.findall(r'<a class="pointer" href="#([^"]+)">([^<]+)</a>', text))
    assert {"c2": "$.state.changes[1]", "c3": "$.state.changes[2]", "q2": "$.state.requests[1]"}.items() <= links.items(), links
    assert [name for name, place in links.items() if place.startswith("$.state.records")] == ["o1"]
    assert links.keys() <= set(Markup(text).ids)
