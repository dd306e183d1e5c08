from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.answer.json_field import JsonField
from proctor.checks.answer.text_pattern import ResponseMatches
from proctor.checks.judged.semantic import Judged
from proctor.checks.run.nodes import NodeCalled
from proctor.errors import InputError
from proctor.formats.mibo import suite as mibo
from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Reading
from proctor.model.case import Case, Suite
from proctor.model.problem import Problem
from tests.tables import rows

CONTEXT = {"USER_ID": 12345, "PLAN": "premium"}


def read(document: Any) -> Suite:
    text = document if isinstance(document, str) else json.dumps(document, indent=1)
    reading = Reading(file="case.json", text=text)
    found = read_json(text, reading)
    assert found is not None
    assert mibo.sniff(found)
    suite = mibo.read(found, reading, name="suite")
    warnings = reading.finish()
    return Suite(name=suite.name, dialect=suite.dialect, cases=suite.cases, description=suite.description, warnings=warnings)


def sniffed(document: Any) -> bool:
    reading = Reading(file=None, text="")
    found = read_json(json.dumps(document), reading)
    assert found is not None
    return mibo.sniff(found)


def only(*procedural: dict[str, Any], **more: Any) -> Case:
    return read({"input_utterance": "hi", "assertions": {"procedural": list(procedural)}, **more}).cases[0]


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        read(text)
    return caught.value.problems


@rows("formats/cases/mibo_problems.yaml")
def test_a_problem_is_reported_at_its_place(row: dict[str, Any]) -> None:
    text = row["given"]
    if row.get("wrap"):
        text = f'{{"input_utterance": "hi", "context": {json.dumps(CONTEXT)},\n"assertions": {{"procedural": [\n{text}\n]}}}}'
    found = [problem for problem in problems(text) if problem.level == "error"]
    assert len(found) == 1, [problem.message for problem in found]
    wanted = row["expect"]
    assert wanted["message"] in found[0].message
    if "at" in wanted:
        assert f"{found[0].origin.line}:{found[0].origin.column}" == wanted["at"], found[0].render()
    else:
        assert found[0].origin.line == wanted["line"]
    if "nearest" in wanted:
        assert wanted["nearest"] in found[0].nearest
    if "hint" in wanted:
        assert wanted["hint"] in (found[0].hint or "")


def test_every_problem_is_reported_in_one_pass() -> None:
    text = """[{"scenario": "a", "input_utterance": 5,
  "assertions": {"procedural": [
    {"target": "nope"},
    {"target": "http_status", "expected_status": "x", "id": "s"},
    {"target": "http_status", "expected_status": 200, "depends_on": "s"}]}}]"""
    assert [problem.origin.line for problem in problems(text)] == [1, 3, 4]


# --- recognition ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {"scenario": "s", "input_utterance": "hi", "assertions": {"procedural": []}},
        {"custom_body": {"a": 1}, "assertions": {"procedural": []}},
        {"turns": [{"input_utterance": "a"}]},
        {"scenario": "s", "assertions": {"semantic": []}},
        {"context": {}, "content": {"scenario": "s", "input_utterance": "hi"}},
        [{"scenario": "s", "input_utterance": "hi"}],
        {"test_cases": []},
        {"data": [{"content": {"scenario": "s", "input_utterance": "hi"}}]},
        {"data": {"test_cases": []}},
    ],
)
def test_mibo_documents_are_recognised(document: Any) -> None:
    assert sniffed(document)


@pytest.mark.parametrize(
    "document",
    [
        {"proctor": 1, "cases": [{"id": "a", "input": "hi", "expect": []}]},
        {"task": {"name": "t"}, "criteria": []},
        {"servers": {}, "agents": {}, "scenarios": [{"id": "a", "prompt": "x", "eval": {}}]},
        {"schemaVersion": "1", "suite": {"id": "s"}, "cases": [{"id": "a", "steps": [], "assertions": []}]},
        [{"id": "a", "prompt": "x", "expectedToolCalls": []}],
        [],
        {},
        {"data": {"output": "hi"}},
        {"data": [{"id": 1}]},
        "text",
        5,
        None,
    ],
)
def test_other_documents_are_not_recognised(document: Any) -> None:
    assert not sniffed(document)


# --- cases ------------------------------------------------------------------------------------------------------------


def test_a_flat_case_is_read() -> None:
    suite = read(
        {
            "scenario": "Relative date handling",
            "input_utterance": "Book a meeting",
            "optimization_target": "Date Math",
            "test_dimension": "calendar_operations",
            "context": {"timezone": "America/New_York", "USER_ID": 5},
            "assertions": {"procedural": [{"target": "http_status", "expected_status": 200}], "semantic": []},
        }
    )
    case = suite.cases[0]
    assert suite.dialect == "mibo"
    assert (case.id, case.name, case.input) == ("relative-date-handling", "Relative date handling", "Book a meeting")
    assert case.tags == {"optimization_target": "Date Math", "test_dimension": "calendar_operations"}
    assert case.timezone == "America/New_York"
    assert case.context == {"timezone": "America/New_York", "USER_ID": 5}
    assert case.scoring.mode == "boolean"
    assert case.assertions[0].origin.path == "$.assertions.procedural[0]"


def test_a_record_is_read() -> None:
    case = read(
        {
            "id": 7,
            "name": "Orders",
            "state": "paused",
            "context": {"USER_ID": "u"},
            "content": {"scenario": "asks for orders", "input_utterance": "my orders?", "assertions": {"procedural": []}},
        }
    ).cases[0]
    assert (case.id, case.name, case.description) == ("7", "Orders", "asks for orders")
    assert case.tags == {"state": "paused"}
    assert case.context == {"USER_ID": "u"}


def test_the_context_of_a_record_wins_over_that_of_its_content() -> None:
    content = {"input_utterance": "hi", "context": {"A": 1, "B": 1}, "assertions": {"procedural": []}}
    assert read({"context": {"B": 2}, "content": content}).cases[0].context == {"A": 1, "B": 2}


def test_a_set_of_cases_is_read() -> None:
    suite = read(
        {"name": "Mine", "description": "d", "test_cases": [{"input_utterance": "a", "name": "x"}, {"input_utterance": "b", "name": "x"}]}
    )
    assert (suite.name, suite.description) == ("Mine", "d")
    assert [case.id for case in suite.cases] == ["x", "x-2"]


@pytest.mark.parametrize("key", ["platformId", "createdAt", "updatedAt", "status", "organization"])
def test_service_keys_are_ignored_with_one_warning(key: str) -> None:
    flat = {"input_utterance": "hi", "assertions": {"procedural": [{"target": "http_status", "expected_status": 200}]}}
    for record in ({key: "x", **flat}, {key: "x", "content": flat}):
        suite = read({"data": [record, record], "meta": {"page": 1}})
        assert len(suite.cases) == 2
        assert [(warning.code, warning.origin.path) for warning in suite.warnings] == [
            ("ignored_key", f"$.data[0].{key}"),
            ("ignored_key", "$.meta"),
        ]


def test_an_assertion_keeps_its_target_and_condition() -> None:
    procedural = [
        {"target": "node_call", "expected_name": "Agent", "label": "mine"},
        {"target": "node_call", "expected_name": "f", "expected_count": 2},
        {"target": "json_match", "field": "a.b", "expected_value": 1, "condition": "NOT_EQUALS"},
        {"target": "http_status", "expected_status": 200},
    ]
    case = read({"input_utterance": "hi", "assertions": {"procedural": procedural, "semantic": [{"criteria": "polite"}]}}).cases[0]
    assert [list(entry.rule.values()) for entry in case.assertions] == [
        ["node_call", "MUST_CALL", "Agent"],
        ["node_call", "CALL_COUNT", "f"],
        ["json_match", "NOT_EQUALS", "a.b"],
        ["http_status"],
        ["semantic", "quality_check"],
    ]
    assert list(case.assertions[0].rule) == ["target", "condition", "name"]


def test_ids_come_from_id_name_scenario_or_input() -> None:
    suite = read(
        [
            {"id": "one", "name": "n", "scenario": "s", "input_utterance": "a"},
            {"name": "n", "scenario": "s", "input_utterance": "a"},
            {"scenario": "A scenario, long!", "input_utterance": "a"},
            {"input_utterance": "Say hi"},
        ]
    )
    assert [case.id for case in suite.cases] == ["one", "n", "a-scenario-long", "say-hi"]


def test_a_body_is_unchanged() -> None:
    body = {"action": "x", "$gt": {"a": [1, None]}}
    assert read({"custom_body": body, "assertions": {"procedural": []}}).cases[0].custom_body == body


def test_assertions_of_turns_have_their_turn_and_file_order() -> None:
    status = {"target": "http_status", "expected_status": 200}
    case = read(
        {
            "assertions": {"procedural": [{**status, "id": "whole"}]},
            "turns": [{"input_utterance": "a"}, {"input_utterance": "b", "assertions": {"procedural": [{**status, "id": "second"}]}}],
        }
    ).cases[0]
    assert [turn.input for turn in case.turns] == ["a", "b"]
    assert [(entry.id, entry.turn) for entry in case.assertions] == [("whole", None), ("second", 1)]


def test_a_turn_cannot_depend_on_the_whole_conversation() -> None:
    status = {"target": "http_status", "expected_status": 200}
    document = {
        "turns": [{"input_utterance": "a", "assertions": {"procedural": [{**status, "depends_on": "whole"}]}}],
        "assertions": {"procedural": [{**status, "id": "whole"}]},
    }
    assert "about the whole conversation" in problems(json.dumps(document))[0].message
    swapped = {
        "turns": [{"input_utterance": "a", "assertions": {"procedural": [{**status, "id": "turn"}]}}],
        "assertions": {"procedural": [{**status, "depends_on": ["turn"]}]},
    }
    assert read(swapped).cases[0].assertions[1].depends_on == ("turn",)


def test_two_assertions_with_one_id_are_reported() -> None:
    status = {"target": "http_status", "expected_status": 200, "id": "a"}
    text = json.dumps({"input_utterance": "hi", "assertions": {"procedural": [status, status]}})
    assert "duplicate assertion id 'a'" in problems(text)[0].message


def test_a_null_key_counts_as_missing() -> None:
    case = read(
        {
            "id": None, "scenario": "s", "input_utterance": "hi", "turns": None, "custom_body": None, "context": None, "state": None,
            "assertions": {
                "semantic": None,
                "procedural": [
                    {"target": "json_match", "field": "a", "expected_value": None, "condition": None, "id": None, "depends_on": None},
                    {"target": "node_call", "expected_name": "x", "expected_index": None, "expected_count": None,
                     "expected_arguments": {"a": None},
                     "expected_tool_calls": [{"expected_name": "f", "expected_arguments": None}]},
                ],
            },
        }
    ).cases[0]  # fmt: skip
    field, call = (entry.spec for entry in case.assertions)
    assert field == JsonField(field="a", value=None)
    assert isinstance(call, NodeCalled)
    assert (call.condition, call.arguments) == ("called", {"a": None})


# --- warnings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "warning_text"),
    [
        ({"input_utterance": "hi", "assertions": {"procedural": []}}, "asserts nothing"),
        ({"scenario": "s", "assertions": {"procedural": [{"target": "http_status", "expected_status": 200}]}}, "no input"),
        ({"input_utterance": "hi", "context": {"timezone": "Mars"}}, "unknown time zone 'Mars'"),
        ({"test_cases": []}, "no test cases"),
        (
            {"input_utterance": "hi", "assertions": {"procedural": [
                {"target": "node_call", "expected_name": "x", "condition": "MUST_CALL", "expected_count": 2}]}},
            "only with CALL_COUNT",
        ),
        (
            {"input_utterance": "hi", "assertions": {"procedural": [
                {"target": "json_match", "field": "a", "condition": "EXISTS", "expected_value": 2}]}},
            "no effect",
        ),
        (
            {"input_utterance": "hi", "assertions": {"procedural": [
                {"target": "node_call", "expected_name": "x", "condition": "MUST_NOT_CALL",
                 "expected_tool_calls": [{"expected_name": "f"}]}]}},
            "must not run calls no tools",
        ),
        (
            {"input_utterance": "hi", "context": {"TODAY": "mine"}, "assertions": {"procedural": [
                {"target": "json_match", "field": "a", "expected_value": {"matcher": "exact", "expression": "TODAY"}}]}},
            "'TODAY' is a variable of the context here",
        ),
    ],
)  # fmt: skip
def test_unusual_but_usable_values_are_warnings(document: Any, warning_text: str) -> None:
    assert any(warning_text in warning.message for warning in read(document).warnings)


# --- assertions -------------------------------------------------------------------------------------------------------


def test_a_node_call_is_read_in_full() -> None:
    case = only(
        {
            "target": "node_call",
            "expected_name": "AI Agent",
            "expected_arguments": {"text": {"matcher": "contains", "value": "x"}},
            "expected_index": -1,
            "strict": True,
            "forbidden_arguments": ["k"],
            "expected_tool_calls": [{"condition": "MUST_NOT_CALL", "expected_name": "f"}, {"expected_name": "g", "expected_count": 2}],
        }
    )
    spec = case.assertions[0].spec
    assert isinstance(spec, NodeCalled)
    assert (spec.name, spec.condition, spec.index, spec.strict, spec.forbidden_arguments) == ("AI Agent", "called", -1, True, ("k",))
    assert [(inner.name, inner.condition, inner.count) for inner in spec.tool_calls] == [("f", "not_called", None), ("g", "count", 2)]
    assert case.assertions[0].label == "calls AI Agent with not f, g"


def test_a_count_needs_no_condition_and_may_count_items() -> None:
    spec = only({"target": "node_call", "expected_name": "x", "expected_count": 3, "count": "items"}).assertions[0].spec
    assert isinstance(spec, NodeCalled)
    assert (spec.condition, spec.count, spec.count_items) == ("count", 3, True)


def test_an_object_of_dollar_keys_is_a_literal() -> None:
    spec = only({"target": "json_match", "field": "filter", "expected_value": {"age": {"$gt": 5}}}).assertions[0].spec
    assert isinstance(spec, JsonField)
    assert spec.value == {"age": {"matcher": "object", "value": {"$gt": 5}}}


def test_should_match_is_true_by_default_and_flags_are_read() -> None:
    first, second = only(
        {"target": "response_regex", "pattern": "a"}, {"target": "response_regex", "pattern": "a", "should_match": False, "flags": "i"}
    ).assertions
    assert isinstance(first.spec, ResponseMatches) and isinstance(second.spec, ResponseMatches)
    assert (first.spec.should_match, first.spec.flags) == (True, "")
    assert (second.spec.should_match, second.spec.flags) == (False, "i")


def test_a_semantic_assertion_has_defaults() -> None:
    semantic = [
        {"criteria": "Kind"},
        {"criteria": "True", "type": "hallucination_check", "threshold": 1, "negative_constraints": ["no lies"]},
    ]
    case = read({"input_utterance": "hi", "assertions": {"semantic": semantic}}).cases[0]
    first, second = (entry.spec for entry in case.assertions)
    assert isinstance(first, Judged) and isinstance(second, Judged)
    assert (first.threshold, first.kind) == (0.8, "quality")
    assert (second.threshold, second.kind, second.negative_constraints) == (1.0, "hallucination", ("no lies",))


def test_weight_and_kind_of_an_assertion_are_read() -> None:
    entry = only(
        {
            "target": "http_status", "expected_status": 200, "label": "up", "weight": 2, "axis": "health",
            "required": True, "advisory": False, "when_missing": "skip",
        }
    ).assertions[0]  # fmt: skip
    assert (entry.label, entry.weight, entry.axis, entry.required, entry.advisory, entry.when_missing) == (
        "up",
        2.0,
        "health",
        True,
        False,
        "skip",
    )


# --- properties -------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["target", "node_call", "json_match", "condition", "MUST_CALL", "expected_name", "expected_arguments", "matcher", "exact", "value",
     "expression", "TODAY()", "CONCAT(", "procedural", "semantic", "assertions", "input_utterance", "turns", "content", "context", "id",
     "depends_on", "expected_tool_calls", "field", "test_cases", "criteria", "$gt", "custom_body", "", "x"]
)  # fmt: skip
DOCUMENTS = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(-2, 300), st.just(0.5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=25,
)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
def test_any_document_is_read_or_refused_with_a_place(document: Any) -> None:
    text = json.dumps(document)
    reading = Reading(file="case.json", text=text)
    found = read_json(text, reading)
    assert found is not None
    mibo.sniff(found)
    mibo.read(found, reading, name="suite")
    try:
        reading.finish()
    except InputError as error:
        assert all(problem.origin.line for problem in error.problems)
