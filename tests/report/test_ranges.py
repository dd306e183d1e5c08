"""Which characters of the evidence a verdict is about."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.actions.checking.check import check, read_evidence
from proctor.actions.checking.check_stream import CheckStream
from proctor.checks.registry import Registry, default_registry
from proctor.checks.shared.places import find_spans, find_value_spans, iterate_texts, locate_in_json
from proctor.checks.shared.quotes import locate_quotes
from proctor.decide.prepare import decide_guarded
from proctor.evidence.unknowns.account import turn_evidence
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Evidence, Node, Source, ToolCall
from proctor.model.judgement import Opinion, PendingVerdict
from proctor.model.result import CaseResult
from proctor.model.verdict import TextRange, Verdict, errored, failed
from proctor.report.blocks.marked_text import Mark
from proctor.report.data.json_text import CaseEncoder
from proctor.report.html.timeline import build_timeline
from proctor.report.words.ranges import add_ranges, find_ranges
from proctor.sources.records import Record
from tests.tables import load, rows

REGISTRY = default_registry()


def make_assertion(check: str, given: dict[str, Any], turn: int | None = None) -> Assertion:
    return Assertion(check=check, spec=msgspec.convert(given, REGISTRY.get(check).spec), turn=turn)


def decide(assertion: Assertion, evidence: Evidence) -> Verdict:
    seen = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
    assert seen is not None
    return decide_guarded(REGISTRY.prepare(assertion.check, assertion.spec), seen)


def read_text(evidence: Evidence, path: str) -> str:
    value: Any = msgspec.to_builtins(evidence)
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        value = value[name] if name else value[int(index)]
    return value


@rows("report/cases/ranges.yaml")
def test_a_verdict_is_about_these_characters(row: dict[str, Any]) -> None:
    assertion = make_assertion(row["check"], row["given"], row.get("turn"))
    evidence = read_evidence(row["evidence"])
    verdict = decide(assertion, evidence)
    if isinstance(verdict, PendingVerdict) and "judge" in row:
        verdict = verdict.settle_with([Opinion(**row["judge"], score=1.0) for _ in verdict.questions])
    found = find_ranges(assertion, verdict, evidence)
    assert found == tuple(TextRange(*place) for place in row["expect"])
    whole = evidence if assertion.turn is None else turn_evidence(evidence, assertion.turn)
    assert whole is not None
    if "found" in row:
        assert [read_text(whole, one.path)[one.start : one.end] for one in found] == row["found"]


TABLE = {row["id"]: row for row in load("report/cases/ranges_of_checks.yaml")}


def check_table(registry: Registry) -> None:
    """Fail where a check finds characters and the table has no row for it, or has a row for a check that is not there."""
    table = "tests/report/cases/ranges_of_checks.yaml"
    finding = {entry.name for entry in registry if entry.owner.startswith("proctor.") and (entry.locate or entry.locate_by)}
    unsaid = sorted(finding - TABLE.keys())
    assert not unsaid, f"add to {table}: " + "\n".join(f"- {{id: {name}, ranges: carries}}" for name in unsaid)
    gone = sorted(TABLE.keys() - {entry.name for entry in registry})
    assert not gone, f"take out of {table}, since there is no such check: {', '.join(gone)}"


def test_every_check_that_names_characters_is_in_the_table() -> None:
    check_table(REGISTRY)


@pytest.mark.in_turn
@rows("report/cases/ranges_of_checks.yaml")
def test_reported_ranges_of_a_check_are_true(row: dict[str, Any]) -> None:
    entry = REGISTRY.get(row["id"])
    finds = entry.locate is not None or entry.locate_by is not None
    shown = [case for case in load("report/cases/ranges.yaml") if case["check"] == row["id"] and case["expect"] and case.get("found")]
    if row["ranges"] == "carries":
        assert finds and shown, "needs a way to find them, and a case that shows them"
    else:
        assert not finds and not shown and row["why"]


def test_the_results_page_covers_every_check_with_ranges() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/results.md").read_text()
    section = page.split("### Ranges")[1].split("\n## ")[0]
    assert [name for name, row in TABLE.items() if row["ranges"] == "carries" and f"`{name}`" not in section] == []


@given(st.text("aAİıßΣσ.😀", max_size=12), st.text("aAİıßΣσ.😀", min_size=1, max_size=3), st.booleans())
def test_reported_text_is_present_whenever_the_claim_holds(text: str, wanted: str, ignore_case: bool) -> None:
    assertion = make_assertion("response_contains", {"text": wanted, "ignore_case": ignore_case})
    evidence = Evidence(text=text)
    verdict = decide(assertion, evidence)
    found = find_ranges(assertion, verdict, evidence)
    assert bool(found) == verdict.passed
    for one in found:
        assert 0 <= one.start < one.end <= len(text)
        if not ignore_case:
            assert text[one.start : one.end] == wanted


LETTERS = 'ab"\\\n€😀'
TREES = st.recursive(
    st.text(LETTERS, max_size=6) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("k1.", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(TREES, st.text("ab€😀", min_size=1, max_size=2))
def test_places_in_the_json_text_of_arguments_are_places_in_their_texts(arguments: Any, wanted: str) -> None:
    found = list(locate_in_json(arguments, "$", lambda text: find_spans(text, wanted, ignore_case=False)))
    texts = {path: text for _, path, text in iterate_texts(arguments, "$")}
    # The searched letters are not in the keys, so each match is inside a text.
    assert [texts[one.path][one.start : one.end] for one in found] == [wanted] * len(found)
    assert len(found) == min(20, sum(text.count(wanted) for text in texts.values()))


@given(TREES, st.sampled_from([None, 2]), st.randoms(use_true_random=False))
def test_a_value_is_at_its_reported_place_in_a_json_text(document: Any, indent: int | None, random: Any) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=bool(indent))
    places: list[tuple[Any, tuple[str | int, ...]]] = [(document, ())]
    for value, keys in places:
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        places += [(item, (*keys, key)) for key, item in inside]
    sampled = random.sample(places, min(len(places), 5))
    found = find_value_spans(f"  {text} ", [keys for _, keys in sampled], 2)
    for value, keys in sampled:
        start, end = found[keys]
        written = f"  {text} "[start:end]
        assert json.loads(f'"{written}"' if isinstance(value, str) and value else written) == value


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, '"' * 200_001, '{"a":{"b":1},' * 50_000 + '"a":1}', "\\" * 400_000, '["' + '\\"' * 200_000 + '"]'],
)
def test_a_hostile_text_takes_no_longer_than_it_is(text: str) -> None:
    # The time limit of tests is the assertion: anything quadratic would take minutes.
    find_value_spans(text, [("a", "b"), (0, 0, 0)])


def test_a_reason_full_of_quotation_marks_is_searched_in_linear_time() -> None:
    reason = failed('"' * 2_000 + "'" * 2_000)
    assert list(locate_quotes("'" * 100_000, "$.text", reason)) == []


@pytest.mark.parametrize("verdict", [errored("judge_unavailable", "no"), failed("no", code="missing_evidence")])
def test_verdicts_not_decided_by_text_have_no_range(verdict: Verdict) -> None:
    assert find_ranges(make_assertion("response_contains", {"text": "a"}), verdict, Evidence(text="a")) == ()


def test_a_limit_that_is_reached_leaves_the_verdict_without_a_range() -> None:
    slow = make_assertion("response_matches", {"pattern": "(a+)+$"})
    assert find_ranges(slow, failed("no"), Evidence(text="a" * 40 + "b")) == ()


def test_json_appends_ranges_after_the_existing_fields() -> None:
    assertions = (make_assertion("response_contains", {"text": "b"}), make_assertion("response_not_empty", {}))
    case = Case(id="a", assertions=assertions)
    evidence = Evidence(text="abc")
    bare = CaseResult(case, "pass", 1.0, tuple(decide(one, evidence) for one in assertions))
    encoder = CaseEncoder()
    before, with_ranges, after = (msgspec.json.decode(encoder.encode(one)) for one in (bare, add_ranges(bare, evidence), bare))
    assert before == after
    assert with_ranges["assertions"][0].pop("ranges") == [{"pointer": "$.text", "start": 1, "end": 2}]
    assert with_ranges == before


def test_marks_are_drawn_in_what_steps_put_out_and_tools_gave_back() -> None:
    evidence = Evidence(
        nodes=(Node(name="n", output={"a": "xyz"}, parameters={"u": "vw"}),), tool_calls=(ToolCall(name="t", result={"r": "abc"}),)
    )
    places = {"$.nodes[0].output.a": 1, "$.nodes[0].parameters.u": 2, "$.tool_calls[0].result.r": 3}
    node, call = build_timeline(evidence, {place: [Mark(1, 2, number, fails=False)] for place, number in places.items()})
    marked = {**node["marked"], **call["marked"]}
    found = {name: [piece for piece in pieces if not isinstance(piece, str)] for name, pieces in marked.items()}
    assert {name: [(piece["text"], piece["of"]) for piece in pieces] for name, pieces in found.items()} == {
        "output": [("y", [1])],
        "parameters": [("w", [2])],
        "result": [("b", [3])],
    }


def test_a_line_of_a_long_file_keeps_its_own_ranges() -> None:
    case = Case(id="a", assertions=(make_assertion("response_contains", {"text": "b"}),))
    suite, encoder = Suite(name="s", cases=(case,)), CaseEncoder()
    ranges = [
        msgspec.json.decode(encoder.encode(add_ranges(result, evidence) if shown else result))["assertions"][0].get("ranges")
        for text, shown in (("b", False), ("ab", True), ("aab", True), ("b", False))
        for evidence in [Evidence(text=text)]
        for result in CheckStream(suite).over([Record(source=Source(file="f", line=1), evidence=evidence)])
    ]
    assert [places and places[0]["start"] for places in ranges] == [None, 1, 2, None]


def test_a_stream_of_verdicts_looks_for_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> object:
        raise AssertionError("ranges were computed while deciding")

    monkeypatch.setattr("proctor.report.words.ranges.find_ranges", refuse)
    case = Case(id="a", assertions=(make_assertion("response_not_contains", {"text": "b"}),))
    suite = Suite(name="s", cases=(case,))
    for evidence in (Evidence(text="b"), Evidence(text="a")):
        assert check(suite, evidence).cases[0].ranges == ()
