"""Verial documents: accepted shapes, warnings and errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.judged.semantic import Judged
from proctor.checks.run.unsupported import Unsupported
from proctor.checks.shared.fields import RowField
from proctor.checks.systems.entries import CdsCard, FaxDocument, MessageSent
from proctor.checks.systems.fhir import FhirField, FhirResource
from proctor.checks.systems.files import FilePresent
from proctor.checks.systems.portal import PortalRecord
from proctor.checks.systems.records import RecordsMatch
from proctor.checks.systems.segments import Hl7Message, X12Response
from proctor.checks.systems.voice import VoiceSaid
from proctor.errors import InputError
from proctor.formats.suites import read_suite
from proctor.model.case import Scoring, Suite
from tests.tables import rows

FILE = {"assert": "sftp-file-present", "path": "a.json"}


def criterion(assertion: object = FILE, **more: Any) -> dict[str, Any]:
    return {"label": "Found", "assertion": assertion, **more}


def read(document: object, **more: Any) -> Suite:
    text = document if isinstance(document, str) else json.dumps(document)
    return read_suite(text, file="v.json", **more)


def spec_of(assertion: dict[str, Any], **more: Any) -> msgspec.Struct:
    suite = read({"task": {"id": "t", **more}, "criteria": [criterion(assertion)]})
    assert not suite.warnings, suite.warnings
    return suite.cases[0].assertions[0].spec


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {"task": {"id": "t", "name": "T"}, "criteria": [criterion()]},
        {"id": "t", "name": "T", "criteria": [criterion()]},
        [{"id": "t", "name": "T", "criteria": [criterion()]}],
        {"name": "B", "tasks": [{"id": "t", "criteria": [criterion()]}]},
        {"benchmark": {"name": "B", "timeout": 30}, "tasks": [{"id": "t"}], "criteria": [criterion(task_id="t")]},
        {"benchmark": {"name": "B"}, "task": {"id": "t", "criteria": [criterion()]}},
        {"benchmark": {"name": "B"}, "task": {"id": "t"}, "criteria": [criterion()]},
        [criterion(task_id="t")],
        [criterion(taskId="t")],
        criterion(task_id="t"),
        {"action": "create", "taskId": "t", **criterion()},
        {"data": [criterion(task_id="t")], "_meta": {"next": None}},
        {"data": [{"id": "t", "criteria": [criterion()]}]},
        {"id": "t", "evals": [{"label": "Found", "assert": json.dumps(FILE)}]},
        [{**FILE, "label": "Found", "task_id": "t"}],
        {"taskId": "t", "label": "Found", "assertion": json.dumps(FILE)},
    ],
)
def test_every_documented_shape_is_read(document):
    suite = read(document)
    assert suite.dialect == "verial"
    assert [case.id for case in suite.cases] == ["t"]
    [assertion] = suite.cases[0].assertions
    assert (assertion.check, assertion.spec, assertion.label) == ("file_present", FilePresent(path="a.json"), "Found")
    assert suite.cases[0].scoring == Scoring(mode="weighted", pass_at=0.9, partial_above=0.0, when_empty="fail")
    assert not suite.warnings


def test_a_task_is_read_in_full():
    task = {
        "id": "task_1",
        "benchmark_id": "bench_1",
        "organization_id": "org",
        "created_at": "2026-04-20T17:10:02.000Z",
        "name": "Book",
        "description": "Books it",
        "taskItem": {"instruction": "Book with Dr. Rivera", "patient": "p"},
        "scenario": {"steps": []},
        "tags": ["fax", "slow"],
        "timeout": None,
        "criteria": [
            {"id": "crit_1", "task_id": "task_1", "name": "N", "assertion": FILE, "weight": 2, "axis": "safety", "created_at": "x"},
            criterion(required=True, advisory=True, whenMissing="skip", axis=None, weight=None, input_entity_id=None),
        ],
    }
    suite = read({"name": "Bench", "description": "D", "slug": "b", "version": 1, "timeout": 60, "concurrency": 2, "tasks": [task]})
    assert not suite.warnings
    assert (suite.name, suite.description) == ("Bench", "D")
    assert suite.settings == {"slug": "b", "version": 1, "timeout": 60, "concurrency": 2}
    [case] = suite.cases
    assert (case.id, case.name, case.description, case.input) == ("task_1", "Book", "Books it", "Book with Dr. Rivera")
    assert case.tags == {"fax": True, "slow": True}
    assert case.settings == {"task_item": task["taskItem"], "scenario": {"steps": []}, "timeout": 60}
    first, second = case.assertions
    assert (first.id, first.label, first.weight, first.axis, first.required, first.when_missing) == (
        "crit_1",
        "N",
        2.0,
        "safety",
        False,
        None,
    )
    assert (second.weight, second.axis, second.required, second.advisory, second.when_missing) == (1.0, None, True, True, "skip")
    assert first.origin.path == "$.tasks[0].criteria[0]"


def test_the_instruction_of_the_first_generation_is_the_input():
    assert read({"id": "t", "instruction": "Do it", "criteria": [criterion()]}).cases[0].input == "Do it"


def test_an_instruction_outside_the_item_is_read_if_the_item_has_none():
    for item in ({"patient": "p"}, {"instruction": None}, None):
        assert read({"id": "t", "instruction": "Do it", "task_item": item, "criteria": [criterion()]}).cases[0].input == "Do it"
    assert read({"id": "t", "instruction": "old", "taskItem": {"instruction": "new"}, "criteria": [criterion()]}).cases[0].input == "new"


@pytest.mark.parametrize("document", [{"threshold": 0.7}, {"benchmark": {"name": "B", "threshold": 0.7}}])
def test_the_threshold_of_the_first_generation_divides_pass_from_fail(document):
    suite = read({**document, "tasks": [{"id": "t", "criteria": [criterion()]}]})
    assert suite.cases[0].scoring == Scoring(mode="weighted", pass_at=0.7, partial_above=0.7, when_empty="fail")
    assert not suite.warnings and suite.settings["threshold"] == 0.7


@pytest.mark.parametrize("threshold", [0, 1.5, -1, True, "0.7"])
def test_a_threshold_outside_zero_to_one_is_refused(threshold):
    with pytest.raises(InputError, match="threshold: expected a number above 0 and at most 1"):
        read({"threshold": threshold, "tasks": [{"id": "t", "criteria": [criterion()]}]})


def test_criteria_are_grouped_by_task_or_the_name_of_the_suite():
    suite = read([criterion(task_id="a"), criterion(), criterion(task_id="b"), criterion(task_id="a")], name="mine")
    assert [(case.id, len(case.assertions)) for case in suite.cases] == [("a", 2), ("mine", 1), ("b", 1)]


def test_tasks_without_an_id_use_their_name_and_ids_are_unique():
    suite = read({"tasks": [{"name": "A", "criteria": [criterion()]}, {"name": "A", "criteria": [criterion()]}]})
    assert [case.id for case in suite.cases] == ["A", "A-2"]


def test_duplicate_task_ids_give_a_warning():
    suite = read({"tasks": [{"id": "t", "criteria": [criterion()]}, {"id": "t", "criteria": [criterion()]}]})
    assert [case.id for case in suite.cases] == ["t", "t-2"]
    assert [(w.code, w.origin.path) for w in suite.warnings] == [("duplicate_id", "$.tasks[1].id")]


def test_calls_without_a_criterion_are_left_out_with_a_warning():
    suite = read([{"action": "create", "taskId": "t", **criterion()}, {"action": "list", "taskId": "t"}])
    assert len(suite.cases[0].assertions) == 1
    [warning] = suite.warnings
    assert 'a call of "list" states no criterion' in warning.message


def test_weights_with_an_infinite_sum_are_refused():
    with pytest.raises(InputError, match="weight: expected at most 1,000,000,000, found 1e308"):
        read({"task": {"id": "t"}, "criteria": [criterion(weight=1e308), criterion(weight=1e308)]})


def test_a_task_without_criteria_gives_a_warning():
    suite = read({"task": {"id": "t"}, "criteria": []})
    assert [warning.code for warning in suite.warnings] == ["no_assertions"]
    assert suite.cases[0].assertions == ()


def test_unknown_keys_give_a_warning_with_the_nearest():
    suite = read({"task": {"id": "t", "scenarios": {}}, "criteria": [criterion(wieght=2)]})
    assert [(warning.code, warning.nearest) for warning in suite.warnings] == [("unknown_key", ("scenario",)), ("unknown_key", ("weight",))]
    assert suite.cases[0].assertions[0].weight == 1.0


@pytest.mark.parametrize("weight", [0, -1, 1e999, "2", True])
def test_a_weight_of_zero_or_less_is_refused(weight):
    text = json.dumps({"task": {"id": "t"}, "criteria": [criterion(weight=weight)]}).replace("Infinity", "1e999")
    with pytest.raises(InputError) as caught:
        read(text, dialect="verial")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (3, "this is not a Verial document"),
        ({"a": 1}, "this is not a Verial document"),
        ([3], "expected a task or a criterion, found number"),
        ({"task": 3, "criteria": []}, "a task: expected an object, found number 3"),
        ({"tasks": {}}, "tasks: expected a list, found object"),
        ({"tasks": [{"id": "t", "criteria": [3]}]}, "a criterion: expected an object"),
        ({"tasks": [{"id": "t"}], "criteria": [criterion(task_id="u")]}, "the criterion names no task of this benchmark"),
        ({"task": {"id": "t", "entities": 3}, "criteria": [criterion()]}, "entities: expected a list"),
        ({"task": {"id": "t"}, "criteria": [criterion(when_missing="pass")]}, "when_missing: expected fail, error or skip"),
        ({"task": {"id": "t"}, "criteria": [criterion(required="yes")]}, "required: expected true or false"),
    ],
)
def test_unusable_values_are_errors_with_their_place(document, problem):
    with pytest.raises(InputError) as caught:
        read(document, dialect="verial")
    assert problem in str(caught.value)
    assert all(problem.origin.line for problem in caught.value.problems)


# --- assertions -------------------------------------------------------------------------------------------------------


@rows("formats/cases/verial_malformed.yaml")
def test_an_unknown_assertion_fails_with_a_warning(row):
    more = row.get("criterion", {})
    suite = read(
        {"task": {"id": "t", "entities": row.get("entities", [])}, "criteria": [criterion(row["given"], weight=3, **more), criterion()]}
    )
    first, second = suite.cases[0].assertions
    assert isinstance(first.spec, Unsupported)
    assert row["expect"] in first.spec.reason
    assert (first.check, first.weight, second.check) == ("unsupported", 3.0, "file_present")
    [warning] = suite.warnings
    assert warning.code == "unsupported_assertion"
    assert row["expect"] in warning.message
    assert list(warning.nearest) == row.get("nearest", list(warning.nearest))
    assert warning.origin.path == "$.criteria[0]" + row["path"]


def test_a_key_in_two_spellings_is_refused():
    with pytest.raises(InputError, match="'taskItem' and 'task_item' are two spellings of one key"):
        read({"task": {"id": "t", "taskItem": {"a": 1}, "task_item": {"a": 2}}, "criteria": [criterion()]})
    # Null counts as missing.
    assert not read({"task": {"id": "t", "taskItem": None, "task_item": {"a": 2}}, "criteria": [criterion()]}).warnings


def test_all_kinds_are_read_in_snake_and_camel_case():
    assert spec_of(
        {"assert": "fhir-resource-state", "resourceType": "Task", "search": {"_lastUpdated": "2026", "active": True}}
    ) == FhirResource(resource_type="Task", search={"_lastUpdated": "2026", "active": "true"})
    assert spec_of({"assert": "hl7-structural", "correlateBy": {"messageType": "ADT", "PID.3.1": 7}, "absent": True}) == Hl7Message(
        correlate_by={"message_type": "ADT", "PID.3.1": 7}, absent=True
    )
    assert spec_of(
        {"assert": "portal-state-match", "correlateBy": {"resource": "r", "key": "id", "value": 3}, "assertions": []}
    ) == PortalRecord(resource="r", key="id", value=3)
    assert spec_of({"assert": "sftp_file_present", "pathPattern": "*.json"}) == FilePresent(path="*.json")
    assert spec_of({"assert": "voiceTranscript", "mustNotContain": ["x"], "contains": "y", "match": "exact"}) == VoiceSaid(
        contains=("y",), not_contains=("x",), match="exact"
    )
    assert spec_of({"assert": "x12-response", "transaction": 271, "correlate_by": {"TRN.2": "1"}, "fields": []}) == X12Response(
        transaction="271", correlate_by={"TRN.2": "1"}
    )


def test_our_assertions_are_read_in_snake_and_camel_case():
    rows = [{"path": "a", "expected": 1}]
    assert spec_of(
        {"assert": "fax-document", "to": "+1", "from": {"$starts_with": "+"}, "pages": 2, "contains": ["a"], "fields": rows}
    ) == FaxDocument(to="+1", sender={"$starts_with": "+"}, pages=2, contains=("a",), fields=(RowField(path="a", expected=1),))
    assert spec_of({"assert": "messageSent", "channel": "sms", "direction": "inbound", "notContains": "x", "subject": "s"}) == MessageSent(
        channel="sms", direction="inbound", not_contains=("x",), subject="s"
    )
    assert spec_of(
        {"assert": "cds-card", "hook": "order-select", "service": "s", "indicator": "info", "summary": "t", "absent": True}
    ) == CdsCard(hook="order-select", service="s", indicator="info", summary="t", absent=True)
    where = {"orderId": "{entity.order}"}
    found = spec_of(
        {"assert": "recordsMatch", "collection": "orders", "where": where, "match": "all", "count": 2}, entities=[{"id": "e", "order": 7}]
    )
    assert found == RecordsMatch(collection="orders", where={"orderId": 7}, match="all", count=2)


@pytest.mark.parametrize("key", ["path", "path_pattern", "pattern"])
def test_the_names_of_the_file_pattern(key):
    assert spec_of({"assert": "sftp-file-present", key: "a", "json_fields": [{"path": "b", "expected": 1}]}).fields[0].path == "b"  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["not_contains", "must_not_contain", "forbidden"])
def test_the_names_of_forbidden_phrases(key):
    assert spec_of({"assert": "voice-transcript", key: ["a"]}) == VoiceSaid(not_contains=("a",))


def test_a_call_is_identified_by_numbers_and_id():
    found = spec_of({"assert": "voice-transcript", "to": "+1", "from": "+2", "call": {"$regex": "^c"}, "contains": ["a"]})
    assert found == VoiceSaid(to="+1", sender="+2", call={"$regex": "^c"}, contains=("a",))


@pytest.mark.parametrize("kind", ["message-sent", "fax-document", "cds-card"])
def test_records_are_counted(kind):
    assert spec_of({"assert": kind, "count": 2}).count == 2  # type: ignore[attr-defined]


def test_absent_turns_phrases_into_forbidden_ones():
    assert spec_of({"assert": "voice-transcript", "contains": ["a"], "absent": True}) == VoiceSaid(not_contains=("a",))


def test_our_fhir_extensions_are_read():
    fields = [{"fhirpath": "name.exists()"}, {"path": "n", "expected": {"matcher": "any"}}]
    spec = spec_of({"assert": "fhir-resource-state", "resource_type": "Patient", "match": "all", "count": 2, "fields": fields})
    assert spec == FhirResource(
        resource_type="Patient",
        match="all",
        count=2,
        fields=(FhirField(fhirpath="name.exists()"), FhirField(path="n", expected={"matcher": "any"})),
    )


def test_invalid_fhirpath_is_an_error_at_its_place():
    with pytest.raises(InputError) as caught:
        read(
            '{"task": {"id": "t"}, "criteria": [{"label": "x", "assertion":\n'
            '  {"assert": "fhir-resource-state", "resource_type": "Patient", "fields": [{"fhirpath": "name."}]}}]}'
        )
    [problem] = caught.value.problems
    assert (problem.origin.line, problem.origin.path) == (2, "$.criteria[0].assertion.fields[0].fhirpath")


def test_criteria_in_english_need_a_judge():
    suite = read([{"task_id": "t", "label": "x", "assert": "The agent was kind."}])
    [assertion] = suite.cases[0].assertions
    assert (assertion.check, assertion.spec) == ("judged", Judged(criteria="The agent was kind.", subject="state"))


# --- entities ---------------------------------------------------------------------------------------------------------

ENTITIES = [{"id": "e1", "mrn": "M1", "age": 42, "data": {"auth": {"number": "A1"}}}, {"id": "e2", "mrn": "M2", "age": 43}]


def bound(assertion: dict[str, Any], entities: list[dict[str, Any]] = ENTITIES, **more: Any) -> msgspec.Struct:
    suite = read({"task": {"id": "t", "entities": entities}, "criteria": [criterion(assertion, **more)]})
    assert not suite.warnings, suite.warnings
    return suite.cases[0].assertions[0].spec


def test_placeholders_are_replaced_from_the_entity_of_the_criterion():
    assertion = {
        "assert": "fhir-resource-state",
        "resource_type": "Patient",
        "search": {"identifier": "urn:mrn|{entity.mrn}", "_id": "{entity.age}"},
        "fields": [{"path": "age", "expected": "{entity.age}"}, {"path": "note", "expected": "age {entity.age}"}],
    }
    spec = bound(assertion, input_entity_id="e2")
    assert spec == FhirResource(
        resource_type="Patient",
        search={"identifier": "urn:mrn|M2", "_id": "43"},
        fields=(FhirField(path="age", expected=43), FhirField(path="note", expected="age 43")),
    )


def test_placeholders_in_a_correlation_keep_their_type():
    spec = bound({"assert": "hl7-structural", "correlate_by": {"PID.3.1": "{entity.mrn}", "PID.7": "{entity.age}"}}, inputEntityId="e1")
    assert spec == Hl7Message(correlate_by={"PID.3.1": "M1", "PID.7": 42})


def test_the_only_entity_of_a_task_is_the_default():
    assert bound({"assert": "sftp-file-present", "path": "{entity.mrn}.json"}, [ENTITIES[0]]) == FilePresent(path="M1.json")


def test_the_value_of_a_portal_key_comes_from_the_entity():
    assertion = {"assert": "portal-state-match", "correlate_by": {"resource": "auths", "key": "mrn"}}
    assert bound(assertion, input_entity_id="e2") == PortalRecord(resource="auths", key="mrn", value="M2")
    nested = {"assert": "portal-state-match", "correlate_by": {"resource": "auths", "key": "auth.number"}}
    assert bound(nested, input_entity_id="e1") == PortalRecord(resource="auths", key="auth.number", value="A1")
    stated = {"assert": "portal-state-match", "correlate_by": {"resource": "auths", "key": "mrn", "value": "X"}}
    assert bound(stated, input_entity_id="e2") == PortalRecord(resource="auths", key="mrn", value="X")
    other = {"assert": "portal-state-match", "correlate_by": {"resource": "auths", "key": "request_id"}}
    assert bound(other, input_entity_id="e2") == PortalRecord(resource="auths", key="request_id")


def test_an_unknown_entity_gives_a_warning():
    suite = read([criterion(task_id="t", input_entity_id="e9")])
    assert [warning.code for warning in suite.warnings] == ["unknown_entity"]
    assert suite.cases[0].assertions[0].check == "file_present"


# --- properties -------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(
    [
        "assert",
        "assertion",
        "criteria",
        "task",
        "tasks",
        "label",
        "weight",
        "fields",
        "path",
        "expected",
        "search",
        "contains",
        "entities",
        "id",
    ]
)
VALUES = st.sampled_from(
    ["fhir-resource-state", "hl7-structural", "voice-transcript", "{entity.a}", "", "x", 0, 1, None, True, "{", "PID.5"]
)
DOCUMENTS = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20)


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS)
def test_any_document_is_read_or_refused_with_problems(document):
    try:
        suite = read_suite(json.dumps(document), dialect="verial")
    except InputError as error:
        assert error.problems
    else:
        assert suite.dialect == "verial"
