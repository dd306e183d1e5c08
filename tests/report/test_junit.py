"""JUnit XML, read back by parsers of others."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

from proctor.model.case import Case
from proctor.model.evidence import Source
from proctor.model.result import CaseResult, RunResult
from proctor.model.verdict import failed, skipped
from proctor.report.data.junit import render_junit
from tests.report import samples
from tests.report.strategies import runs


def suite_of(run: RunResult) -> TestSuite:
    document = JUnitXml.fromstring(render_junit(run).encode())
    suites = list(document)
    assert len(suites) == 1
    return suites[0]


def test_counts_agree_with_what_a_parser_counts() -> None:
    suite = suite_of(samples.troubled_run())
    written = (suite.tests, suite.failures, suite.errors, suite.skipped)
    assert written == (9, 2, 2, 1)
    suite.update_statistics()
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == written


ELEMENTS = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set[str](), {"property"}),
    "property": ({"name", "value"}, set[str]()),
    "testcase": ({"name", "time", "classname", "group"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    **{name: ({"type", "message"}, set[str]()) for name in ("skipped", "error", "failure")},
    **{name: (set[str](), set[str]()) for name in ("system-out", "system-err")},
}
"""What the schema of the xunit plugin of Jenkins (`junit-10.xsd`) allows: attributes and elements inside."""


def test_the_document_has_only_what_the_schema_of_jenkins_allows() -> None:
    document = ET.fromstring(render_junit(samples.troubled_run()).encode())
    assert {name: document.get(name) for name in ("tests", "failures", "errors")} == {"tests": "9", "failures": "2", "errors": "2"}
    for element in document.iter():
        attributes, inside = ELEMENTS[element.tag]
        assert set(element.keys()) <= attributes and {child.tag for child in element} <= inside, element.tag


def test_suite_is_named_after_the_suite_and_cases_after_their_ids() -> None:
    suite = suite_of(samples.troubled_run())
    assert suite.name == "refunds"
    assert [case.name for case in suite] == [
        "greeting",
        "refund-twice",
        "book-visit",
        "slow-pattern",
        "traces/support.jsonl:12",
        "refund-late",
        "polite",
        "retry [attempt 1]",
        "retry [attempt 2]",
    ]
    assert {case.classname for case in suite} == {"refunds/native"}


def test_outcomes_are_failure_error_skipped_or_nothing() -> None:
    kinds = {case.name: [type(entry) for entry in case.result] for case in suite_of(samples.troubled_run())}
    assert kinds["greeting"] == []
    assert kinds["refund-twice"] == [Failure]
    assert kinds["slow-pattern"] == [Error]
    assert kinds["refund-late"] == [Skipped]


def test_a_failure_has_label_reason_and_origin_of_every_failed_assertion() -> None:
    case = next(case for case in suite_of(samples.troubled_run()) if case.name == "refund-twice")
    (failure,) = case.result
    assert failure.type == "tool_called"
    assert failure.message == (
        "the order is looked up with its number: arguments of lookup_order: expected id 17, found id 71 (and 2 more)"
    )
    for part in (
        "turn 2 · the reply names the amount",
        'expected text containing "9.00 EUR", found',
        "suites/refund.yaml:19:7",
        'missing   notify {"channel":"mail"',
        "$.tool_calls[0].arguments.id",
        "evidence: traces/support.jsonl:3",
    ):
        assert part in failure.text


def test_an_error_is_typed_by_its_code() -> None:
    case = next(case for case in suite_of(samples.troubled_run()) if case.name == "slow-pattern")
    assert case.result[0].type == "regex_timeout"


def test_score_and_verdict_are_properties_of_the_run_and_the_output_of_a_case() -> None:
    run = samples.troubled_run()
    suite = suite_of(run)
    assert {p.name: p.value for p in suite.properties()} == {
        "dialect": "native",
        "outcome": "fail",
        "score": "0.799",
        "run_id": "run-1",
        "suite_path": "suites/refund.yaml",
        "cases_without_evidence": "0",
        "records_without_case": "0",
        "records_not_selected": "0",
        "records_with_other_input": "0",
    }
    weighted = next(case for case in suite if case.name == "book-visit")
    found = dict(line.split(": ", 1) for line in weighted._elem.find("system-out").text.splitlines())
    assert found["score"] == "0.542" and found["verdict"] == "fail" and found["axis:safety"] == "1.00"


def test_several_results_of_a_case_are_distinguished_by_their_evidence() -> None:
    places = [Source(file="a.jsonl", line=1), Source(file="a.jsonl", line=2), Source(file="b.json"), Source(file="b.json")]
    results = [samples.passing_case(source=place, attempt=attempt) for attempt, place in enumerate(places)]
    names = [case.name for case in suite_of(samples.run_of(*results))]
    assert names == ["greeting [a.jsonl:1]", "greeting [a.jsonl:2]", "greeting [b.json]", "greeting [b.json] #2"]


def test_a_case_skipped_by_its_assertions_shows_why() -> None:
    case = Case(id="c", assertions=(samples.claim("holds"),))
    (found,) = suite_of(samples.run_of(samples.decided(case, skipped("dependency_failed", "'a' did not pass"))))
    assert found.result[0].message == "holds: 'a' did not pass"


def test_hostile_text_survives_a_real_parser() -> None:
    evil = ']]><x a="b">&amp; \x00\x1b[31m\ufffe\ud800 \u202e\' 漢字 \U0001f600'
    case = Case(id=evil, name=evil, assertions=(samples.claim(evil, file=evil),))
    run = samples.run_of(samples.decided(case, failed(f"first {evil}\nsecond")), suite_name=evil, dialect=evil, run_id=evil)
    document = ET.fromstring(render_junit(run).encode())
    (found,) = document.iter("testcase")
    shown = ']]><x a="b">&amp; \\x00\\x1b[31m\\ufffe\\ud800 \\u202e\' 漢字 \U0001f600'
    assert found.get("name") == shown
    failure = found.find("failure")
    assert failure is not None and failure.text is not None
    assert f"    first {shown}\n    second\n" in failure.text
    assert [child.tag for child in found] == ["failure", "system-out"]


def test_many_failed_assertions_of_one_case_are_bounded() -> None:
    case = Case(id="wide", assertions=tuple(samples.claim(f"claim {n};") for n in range(150)))
    (found,) = suite_of(samples.run_of(samples.decided(case, *[failed("no")] * 150)))
    text = found.result[0].text
    assert "claim 99;" in text and "claim 100;" not in text
    assert text.endswith("… 50 more")


def test_an_empty_run_is_an_empty_suite() -> None:
    suite = suite_of(samples.run_of())
    assert (suite.tests, len(list(suite))) == (0, 0)


@given(runs())
@settings(max_examples=25, deadline=None)
@pytest.mark.timeout(60)
def test_any_run_is_well_formed_with_right_counts_and_unique_names(run: RunResult) -> None:
    document = ET.fromstring(render_junit(run).encode())
    found = list(document.iter("testcase"))
    assert len(found) == len(run.cases)
    assert len({case.get("name") for case in found}) == len(found)
    for element, outcome in (("failure", "fail"), ("error", "error"), ("skipped", "skip")):
        assert len(list(document.iter(element))) == sum(result.outcome == outcome for result in run.cases)


def test_long_names_that_are_cut_alike_stay_apart() -> None:
    results = [CaseResult(Case(id="a" * 300 + letter + "b" * 300), "pass", 1.0, ()) for letter in "xyz"]
    names = [case.name for case in suite_of(samples.run_of(*results))]
    assert len(set(names)) == 3
