"""The HTML report, parsed: its content, and that hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proctor.report
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Source, ToolCall
from proctor.model.verdict import Verdict, failed, passed
from proctor.report.html import report as html
from proctor.report.html.case import MOST_COMPARISONS, explain_in_rows, write_attempt
from proctor.report.html.report import render_html
from proctor.report.html.timeline import MOST_STEPS, build_timeline
from proctor.report.words.html_text import duration_words, write_pretty, write_tool_result
from proctor.report.words.wording import split_reason
from tests.report import samples
from tests.report.html_reading import Page, read_text
from tests.report.html_samples import HOSTILE, Entries, entry_of, hostile_run, large_run, live_run, refund_conversation, visit_workflow
from tests.report.samples import claim, decided, passing_case, run_of
from tests.report.strategies import json, runs, words

LEFT_OUT = "The conversation was left out to keep this file small. Those of cases that did not pass go in first."
NO_EVIDENCE = "The conversation is not part of this report."
TEMPLATES = Path(proctor.report.__file__).parent / "templates"


@pytest.fixture(scope="module")
def live() -> Page:
    return Page(render_html(*live_run()))


# --- the page itself --------------------------------------------------------------------------------------------------


def test_the_policy_allows_one_script_and_one_style_sheet_by_hash_and_nothing_else(live: Page) -> None:
    def hashed(name: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(live.blocks[name].encode()).digest()).decode()}'"

    rules = dict(rule.strip().split(" ", 1) for rule in live.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == hashed("script")
    assert rules["style-src"] == hashed("style")
    assert rules["require-trusted-types-for"] == "'script'"
    assert set(rules) == {
        "default-src", "script-src", "style-src", "img-src", "base-uri", "form-action", "require-trusted-types-for", "trusted-types",
    }  # fmt: skip


def test_nothing_is_loaded_from_anywhere(live: Page) -> None:
    links = [value for _, attrs in live.elements for name, value in attrs.items() if name in ("src", "href", "action", "srcset", "data")]
    assert links[:1] == ["data:,"] and "#cases" in links and all(str(link).startswith("#") for link in links[1:])
    for name in ("script", "style"):
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|import\(", live.blocks[name])


def test_the_script_draws_text_only() -> None:
    for path in TEMPLATES.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setHTML|srcdoc", text), (
            path.name
        )
        assert "</" not in text


def test_the_head_shows_the_outcome_before_any_script_runs(live: Page) -> None:
    assert "Refunds & visits: 53.8 % of 13 attempts passed; 3 of 9 cases" in live.seen
    # Every heading below the head is inside a landmark.
    names = [name for name, _ in live.elements]
    assert names.index("h1") < names.index("main") < names.index("h2")


def test_the_head_has_the_name_of_the_run_before_that_of_its_suite() -> None:
    run, *more = live_run()
    named = Page(render_html(msgspec.structs.replace(run, title="nightly · a new prompt"), *more))
    seen = " ".join(named.seen.split())
    assert "nightly · a new prompt Refunds & visits 53.8 % of 13 attempts passed" in seen
    assert "nightly · a new prompt: 53.8 %" in seen  # the title of the page


def test_hostile_text_stays_text_everywhere() -> None:
    page, harmless = Page(render_html(*hostile_run())), Page(render_html(*live_run()))
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in harmless.elements}
    # The head has a few facts more or less; no element comes from the text.
    assert [element for element in page.elements if element[1].get("id") == "suite"] == [("span", {"id": "suite", "dir": "auto"})]
    assert page.policy == harmless.policy
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b").replace("\ud800", "\\ud800")
    assert page.index["rows"][0]["id"] == shown
    assert shown in page.seen
    text = page.read_case(shown)
    assert "\x1b" not in text and "\u202e" not in text
    assert f"User{shown}" in text


@given(runs())
@settings(max_examples=40, deadline=None)
@pytest.mark.timeout(60)
def test_any_run_becomes_a_page_whose_every_packet_can_be_read(run: Any) -> None:
    page = Page(render_html(run))
    assert len(page.index["rows"]) <= len(run.cases)
    for row in page.index["rows"]:
        assert page.packet(f"packet-{row['packet']}")[row["place"]]["attempts"]
    assert sum(page.index["counts"].values()) == len(page.index["rows"])


@given(words, json, json)
@settings(max_examples=60, deadline=None)
def test_any_conversation_can_be_drawn(text: str, value: Any, other: Any) -> None:
    result = passing_case()
    call = ToolCall(name=text, arguments=value, result=other, error=value)
    evidence = Evidence(input=other, text=text, body=value, tool_calls=(call,), error=text, metadata={"x": value})
    page = Page(render_html(run_of(result), {("greeting", 0): entry_of(result, evidence, duration_ms=3.0)}))
    assert "li step call" in repr(page.details("greeting")["attempts"][0]["view"])


def test_an_empty_run_is_a_page_too() -> None:
    page = Page(render_html(run_of()))
    assert page.index["rows"] == [] and not page.find("svg", "bar")
    assert "nothing was checked" in page.seen


def test_the_same_run_gives_the_same_page() -> None:
    assert render_html(*live_run()) == render_html(*live_run())


# --- the list ---------------------------------------------------------------------------------------------------------


def test_failures_come_first_then_errors_then_what_was_skipped(live: Page) -> None:
    outcomes = [row["outcome"] for row in live.index["rows"]]
    assert outcomes == ["fail"] * 3 + ["error"] * 2 + ["skip"] + ["pass"] * 3


def test_repeats_are_one_row_with_a_pass_rate_and_its_interval(live: Page) -> None:
    row = next(row for row in live.index["rows"] if row["id"] == "greeting-in-german")
    assert row["flaky"] is True
    # Wilson, 3 of 5, 95 %: 0.2307 to 0.8824.
    assert read_text(row["rate"]) == "60 % (23.1 % – 88.2 %)"
    assert [attempt["outcome"] for attempt in live.details("greeting-in-german")["attempts"]] == ["pass", "fail", "pass", "fail", "pass"]


def test_records_checked_against_one_case_are_a_row_each() -> None:
    results = [passing_case(source=Source(file="traces.jsonl", line=line)) for line in (1, 2, 3)]
    rows = Page(render_html(run_of(*results))).index["rows"]
    assert [row["at"] for row in rows] == ["traces.jsonl:1", "traces.jsonl:2", "traces.jsonl:3"]
    assert not any("rate" in row for row in rows)


def test_a_case_with_a_threshold_passes_although_it_is_flaky() -> None:
    case = Case(id="often", assertions=(claim("greets", 3),), pass_threshold=0.5)
    results = [decided(case, passed("yes") if number else failed("no"), attempt=number) for number in range(4)]
    row = Page(render_html(run_of(*results))).index["rows"][0]
    assert row["outcome"] == "pass" and row["flaky"] and "3 of 4 decided attempts passed" in repr(row["rate"])


def test_a_row_is_found_by_its_tags_and_by_its_input(live: Page) -> None:
    row = next(row for row in live.index["rows"] if row["id"] == "greeting-in-german")
    assert "Guten Tag, wo ist mein Paket?" in row["words"]
    assert [live.index["tags"][number] for number in row["tags"]] == [
        ["test_dimension", "manners"], ["language", "de"], ["team", "support"], ["team", "logistics"],
    ]  # fmt: skip


def test_the_overview_has_groups_axes_warnings_and_unmatched_evidence(live: Page) -> None:
    index = live.index
    assert index["groups"][0][0] == "test_dimension"
    assert ["correctness", "0.333"] in index["axes"]
    assert len(index["warnings"]) == 2 and len(index["unmatched"]) == 2
    assert "of 13 decided attempts passed" in (live.find("svg", "bar")[0]["aria-label"] or "")


# --- one case ---------------------------------------------------------------------------------------------------------


def assertion(case_id: str, title: str) -> Any:
    run, entries = live_run()
    result = next(result for result in run.cases if result.case.id == case_id)
    written = write_attempt(result, entries[case_id, 0], with_evidence=True)
    return next(one for one in written["assertions"] if title in one["title"])


def test_expected_is_next_to_found_with_its_origin() -> None:
    one = assertion("refund-twice", "looked up")
    assert one["comparisons"] == [{"about": "arguments of lookup_order", "expected": "id 17", "found": "id 71"}]
    assert one["place"] == "suites/refund.yaml:14:7"
    assert "reason" not in one


def test_a_claim_about_one_turn_points_into_that_turn() -> None:
    assert assertion("refund-twice", "names the amount")["at"] == ["$.turns[1].text"]


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (
            {"missing": [{"name": "notify", "arguments": {"to": "ann"}}]},
            {"about": "missing call", "expected": 'notify\n{"to":"ann"}', "found": "not called"},
        ),
        ({"extra": ["search"]}, {"about": "further call", "expected": "no such call", "found": "search"}),
        (
            {"argument_mismatches": [{"tool_name": "pay", "expected_args": {"eur": 9}, "actual_args": {"eur": 90}}]},
            {"about": "arguments of pay", "expected": '{"eur":9}', "found": '{"eur":90}'},
        ),
        (
            {"out_of_order": [{"tool": "pay", "expected_index": 0, "actual_index": 2}]},
            {"about": "order of pay", "expected": "call 1", "found": "call 3"},
        ),
        (
            {"field_results": [{"path": "n", "expected": "1", "actual": 1, "passed": False}]},
            {"about": "n", "expected": '"1"', "found": "1"},
        ),
        (
            {"field_results": [{"path": "n", "expected": None, "actual": None, "passed": True}]},
            {"about": "n", "expected": "null", "found": "null", "holds": True},
        ),
        (
            {"phrase_results": [{"phrase": "bye", "found": True, "forbidden": True, "turn": 4}]},
            {"about": "phrase", "expected": 'never "bye"', "found": "found in turn 5"},
        ),
        ({"expected": ["a", "b"], "tools_called": ["b"], "found": 1}, {"expected": '["a","b"]', "found": '["b"]'}),
        ({"differences": [{"path": "$.x", "why": "expected 1, found 2"}]}, {"about": "$.x", "expected": "1", "found": "2"}),
        ({"errors": [{"path": "$.x", "message": "is not a number"}]}, {"about": "$.x", "remark": "is not a number"}),
        ({"traceback": "Traceback\n  boom"}, {"about": "traceback", "remark": "Traceback\n  boom"}),
    ],
)
def test_details_become_comparisons(details: dict[str, Any], expected: dict[str, Any]) -> None:
    words = explain_in_rows(failed("it does not hold", details=details))
    assert words.rows == [expected]
    assert words.reason == "it does not hold"


@pytest.mark.parametrize(
    ("reason", "sides"),
    [
        ("expected 1, found 2", ("1", "2")),
        ('expected a call of "pay"; "pay" was never called, no tool was', None),
        ("HTTP status not recorded in this evidence", None),
    ],
)
def test_a_reason_is_taken_apart_only_where_that_is_safe(reason: str, sides: tuple[str, str] | None) -> None:
    found = split_reason(reason)
    assert (None if found is None else (found.expected, found.found)) == sides


def test_details_that_are_no_comparison_stay_json() -> None:
    words = explain_in_rows(failed("no", details={"position": 4, "missing": "not a list", "hint": "fold the case"}))
    assert words.rest == {"position": 4, "missing": "not a list"}
    assert words.rows == [{"about": "hint", "remark": "fold the case"}]


def test_a_thousand_fields_are_bounded() -> None:
    rows = [{"path": str(number), "expected": 1, "actual": 2, "passed": False} for number in range(1000)]
    assert len(explain_in_rows(failed("no", details={"field_results": rows})).rows) == MOST_COMPARISONS + 1


def test_a_verdict_without_anything_to_say_is_shown_as_it_is() -> None:
    assert explain_in_rows(Verdict("pass", 1.0, "")).rows == []


def test_every_pointer_of_the_conversation_leads_to_a_step() -> None:
    known = {pointer for step in build_timeline(refund_conversation()) for pointer in step["at"]}
    assert {"$.turns[0].tool_calls[1]", "$.tool_calls[1]", "$.tool_calls[2]", "$.turns[1].text", "$.text"} <= known


def test_a_call_listed_for_the_run_and_for_its_step_is_shown_once() -> None:
    steps = build_timeline(visit_workflow())
    assert [step["kind"] for step in steps] == ["user", "node", "node", "call", "node", "agent"]
    assert steps[3]["at"] == ["$.nodes[1].tool_calls[0]", "$.tool_calls[0]"]


def test_an_mcp_error_is_an_error_and_its_result_is_not_shown_twice() -> None:
    call = ToolCall(name="pay", result={"isError": True, "content": [{"type": "text", "text": "no funds"}]})
    step = build_timeline(Evidence(tool_calls=(call,)))[0]
    assert step["error"] == "no funds" and step["error_kind"] == "content-error" and "result" not in step


def test_a_long_conversation_is_cut_with_a_note() -> None:
    steps = build_timeline(Evidence(tool_calls=tuple(ToolCall(name=f"t{number}") for number in range(1000)), error="broken off"))
    assert len(steps) == MOST_STEPS + 2
    assert steps[-2]["text"] == "800 more steps are not shown here"
    assert steps[-1] == {"kind": "broken", "text": "broken off", "at": ["$.error"]}


def test_without_entries_the_page_shows_that_there_is_no_conversation() -> None:
    page = Page(render_html(samples.troubled_run()))
    assert NO_EVIDENCE in page.read_case("refund-twice")


def test_the_time_of_a_case_is_the_agents_where_it_was_measured() -> None:
    case = Case(id="quick", assertions=(claim("greets", 3),))
    result = decided(case, passed("yes"))
    for evidence, took in ((Evidence(text="hi", duration_ms=4.0), "4 ms"), (Evidence(text="hi"), "107 ms")):
        text = render_html(run_of(result), {(case.id, 0): entry_of(result, evidence, duration_ms=107.0)})
        assert f"Duration{took}" in Page(text).read_case("quick")


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9007199254740993, "9007199254740993"),
        (1.0, "1.0"),
        ("plain", "plain"),
        ('{"n": 9007199254740993.0}', '{"n":9007199254740993.0}'),
        ("{not json", "{not json"),
        ({"half": "\ud800"}, '{"half":"\\ud800"}'),
        ({"a": "x" * 80}, '{\n  "a": "' + "x" * 80 + '"\n}'),
    ],
)
def test_values_are_laid_out_without_being_changed(value: Any, text: str) -> None:
    assert write_pretty(value) == text


def test_a_value_nested_thousands_deep_or_of_many_megabytes_is_shown_short() -> None:
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]
    assert len(write_pretty(deep)) < 100
    assert len(write_pretty("[" * 100_000)) < 7000
    assert len(write_pretty({"big": "x" * 5_000_000})) < 7000


def test_an_mcp_result_of_text_is_shown_as_that_text() -> None:
    assert write_tool_result({"content": [{"type": "text", "text": "12 °C"}, {"type": "text", "text": '{"a":1}'}]}) == '12 °C\n{"a":1}'
    assert write_tool_result({"content": []}) == '{"content":[]}'


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0.25, "0.25 ms"),
        (12, "12 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (59_960, "1 min"),
        (125_000, "2 min 5 s"),
        (7_169_000, "119 min 29 s"),
        (7_170_000, "2 h"),
        (12_000_000, "3 h 20 min"),
        (86_400_000, "24 h"),
        (47.5 * 3_600_000, "2 d"),
        (604_800_000, "7 d"),
        (1e14, "1,157,407 d 10 h"),
        (float("nan"), "unknown"),
    ],
)
def test_durations_use_the_unit_that_fits(ms: float, words: str) -> None:
    assert duration_words(ms) == words


# --- size -------------------------------------------------------------------------------------------------------------


def test_hundreds_of_conversations_stay_below_their_share_of_eight_megabytes() -> None:
    page = render_html(*large_run(400, 20))
    once = sum(len(Page(page).blocks[name]) for name in ("script", "style"))
    assert once <= 40_000 and len(page.encode()) - once <= (8_000_000 - once) / 10_000 * 400
    assert LEFT_OUT not in Page(page).read_case("case-00000")


def test_conversations_of_failures_come_first_when_space_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "CONVERSATION_BUDGET", 400_000)
    chance = random.Random(5)
    results, entries = [], Entries()
    for number in range(200):
        case = Case(id=f"c{number}", assertions=(claim("greets", 3),))
        result = decided(case, failed("no") if number % 10 == 0 else passed("yes"))
        results.append(result)
        entries[case.id, 0] = entry_of(result, Evidence(text=base64.b64encode(chance.randbytes(4000)).decode()))
    text = render_html(run_of(*results), entries)
    page = Page(text)
    assert len(text) < 800_000
    with_conversation = {result.case.id for result in results if LEFT_OUT not in page.read_case(result.case.id)}
    assert {result.case.id for result in results if not result.passed} <= with_conversation
    assert len(with_conversation) < 200


def test_with_very_many_attempts_only_some_have_their_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_MOST_OF_A_CASE", 20_000)
    case = Case(id="often", assertions=(claim("greets", 3),))
    results = [decided(case, passed("yes") if number < 19 else failed("no"), attempt=number) for number in range(20)]
    entries = {(case.id, result.attempt): entry_of(result, Evidence(text="word " * 1000)) for result in results}
    attempts = Page(render_html(run_of(*results), entries)).details("often")["attempts"]
    assert [attempt["number"] for attempt in attempts] == list(range(1, 21))
    assert "ol timeline" in repr(attempts[19]) and "ol timeline" not in repr(attempts[18])


@given(st.lists(st.sampled_from(["pass", "fail", "error", "skip"]), min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_a_pass_rate_counts_what_was_decided(outcomes: list[str]) -> None:
    case = Case(id="often", assertions=(claim("greets", 3),))
    results = [decided(case, Verdict(outcome, 0.0, ""), attempt=number) for number, outcome in enumerate(outcomes)]  # type: ignore[arg-type]
    row = Page(render_html(run_of(*results))).index["rows"][0]
    decided_ones = [outcome for outcome in outcomes if outcome != "skip"]
    assert (f"of {len(decided_ones)} decided attempts passed" in repr(row.get("rate"))) is bool(decided_ones)
    assert row.get("flaky", False) is (0 < outcomes.count("pass") < len(decided_ones))


def test_failures_are_grouped_by_reason_the_most_frequent_first_with_links_to_their_cases() -> None:
    def wrong(id: str, attempt: int, reason: str) -> Any:
        result = decided(Case(id=id, assertions=(claim("says it", 3),)), failed(f'expected "{reason}", found nothing'))
        return msgspec.structs.replace(result, attempt=attempt)

    other = decided(Case(id="c&d", assertions=(claim("is short", 3),)), failed("too long"))
    text = render_html(run_of(other, wrong("a", 0, "hi"), wrong("a", 1, "hello"), wrong("b", 0, "hi"), passing_case()))
    page = Page(text)
    titles = re.findall(r"<b>(\d+ attempts?)</b> <span class=\"muted\">(in \d+ cases?)", text)
    assert titles == [("3 attempts", "in 2 cases"), ("1 attempt", "in 1 case")]
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a" and (attrs.get("href") or "").startswith("#case=")]
    assert links == ["#case=a", "#case=b", "#case=c%26d"]
    assert not Page(render_html(run_of(passing_case()))).find("section", "failures")


def test_an_agent_that_broke_off_is_shown_what_it_was_sent_and_its_error_once() -> None:
    reason = "the agent answered status 500"
    case = Case(id="down", input="when are you open", assertions=(claim("says it", 3),))
    verdict = Verdict(outcome="error", score=0.0, reason=reason, code="http_status")
    result = msgspec.structs.replace(decided(case, verdict), outcome="error", reason=reason, code="http_status")
    read = Page(render_html(run_of(result), {(case.id, 0): entry_of(result, Evidence(error=reason, http_status=500))})).read_case("down")
    # Once at the top, and twice as why evidence is missing, which is folded.
    assert "Userwhen are you open" in read and read.partition("Evidence coverage")[0].count(reason) == 1
    assert "1 assertion not decided, because the attempt failed" in read
