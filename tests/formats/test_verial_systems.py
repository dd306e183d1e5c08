"""The simulated systems in Verial documents, and the ones that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

import proctor
from proctor.errors import InputError
from proctor.formats.native.text import write_native
from proctor.formats.suites import read_suite
from proctor.model.case import Step, Suite, System

ANN = {"resourceType": "Patient", "id": "ann"}
BUNDLE = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": ANN}]}
FHIR = {"type": "Fhir", "name": "EHR"}
FILES = {"type": "SFTP", "config": {"seed": {"notes.txt": "hello"}}}
PATIENTS = {"name": "patients", "format": "fhir", "data": BUNDLE}
BOOKED = {"label": "booked", "assertion": {"assert": "fhir-resource-state", "resource_type": "Appointment", "fields": []}}
TASK = {"id": "t1", "task_item": {"instruction": "Book it."}, "scenario": {"drop_file_inbox": {"path": "a.txt", "content": "hi"}}}
ENVIRONMENT = {"name": "clinic", "simulators": [FHIR, FILES], "datasets": [PATIENTS]}
EXPECTED = (
    System(name="fhir", kind="fhir", seed=BUNDLE),
    System(
        name="files",
        kind="files",
        seed={"notes.txt": "hello"},
        scenario=(Step(name="drop_file_inbox", given={"path": "a.txt", "content": "hi"}),),
    ),
)


def read(document: Any) -> Suite:
    suite = read_suite(json.dumps(document), file="task.json")
    assert suite.dialect == "verial"
    return suite


@pytest.mark.parametrize(
    "document",
    [
        {"environment": ENVIRONMENT, "task": TASK, "criteria": [BOOKED]},
        {"simulators": [FHIR, FILES], "datasets": [PATIENTS], "task": TASK, "criteria": [BOOKED]},
        {**TASK, "environment": ENVIRONMENT, "criteria": [BOOKED]},
        {"name": "b", "environment": ENVIRONMENT, "tasks": [{**TASK, "criteria": [BOOKED]}]},
        {"benchmark": {"name": "b", "environment": ENVIRONMENT}, "tasks": [{**TASK, "criteria": [BOOKED]}]},
        {"environment": "env_1", "simulators": [FHIR, FILES], "datasets": [PATIENTS], "task": TASK, "criteria": [BOOKED]},
    ],
    ids=["next to the task", "without the environment", "inside the task", "of a benchmark", "of a benchmark apart", "next to an id"],
)
def test_systems_are_found_in_every_place(document: Any) -> None:
    (case,) = read(document).cases
    assert case.systems == EXPECTED
    assert (case.input, case.context) == ("Book it.", {"task_item": {"instruction": "Book it."}})


def test_systems_are_converted_to_a_native_suite() -> None:
    suite = read({"environment": ENVIRONMENT, "task": TASK, "criteria": [BOOKED]})
    (case,) = proctor.parse_suite(write_native(suite)).cases
    assert case.systems == EXPECTED


def test_a_task_with_its_own_systems_has_only_those() -> None:
    tasks = [
        {**TASK, "criteria": [BOOKED]},
        {"id": "t2", "task_item": {"order": 7}, "simulators": [{"type": "Records"}], "criteria": [BOOKED]},
    ]
    first, second = read({"environment": ENVIRONMENT, "tasks": tasks}).cases
    assert first.systems == EXPECTED
    assert second.systems == (System(name="records", kind="records"),)
    assert second.input == '{"order":7}', "without an instruction the agent gets the task item"


def test_a_document_without_systems_is_read_as_before() -> None:
    (case,) = read({"task": TASK, "criteria": [BOOKED]}).cases
    assert (case.systems, case.context, case.settings["scenario"]) == ((), {}, TASK["scenario"])


def test_config_and_datasets_are_merged_and_steps_may_be_delayed() -> None:
    payer = {"type": "Payer", "config": {"portal": "radmd", "url": "https://elsewhere.example"}}
    members = {"name": "m", "type": "Payer", "data": {"patients": [{"member_id": "W1", "name": "Ann"}]}}
    step = {"simulator": "FHIR", "step": "add_resource", "given": {"resourceType": "Patient", "id": "bob"}, "after_s": 30}
    task = {
        "id": "t",
        "scenario": {"steps": [step]},
        "simulators": [payer, FHIR],
        "datasets": [members, PATIENTS, {**PATIENTS, "data": [{**ANN, "id": "eve"}]}],
    }
    (case,) = read({**task, "criteria": [BOOKED]}).cases
    portal, fhir = case.systems
    assert portal.seed == {"portal": "radmd", "patients": [{"member_id": "W1", "name": "Ann"}]}
    assert (fhir.seed, fhir.datasets) == (BUNDLE, ([{**ANN, "id": "eve"}],))
    assert [(one.name, one.after_s) for one in fhir.scenario] == [("add_resource", 30.0)]


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({"simulators": [{"type": "Fhri"}]}, 'unknown simulator "Fhri"; nearest: fhir'),
        ({"simulators": [{"name": "x"}]}, "a simulator needs 'type'"),
        ({"simulators": [FHIR, {"type": "FHIR"}]}, "two simulators are of kind fhir"),
        (
            {"simulators": [FHIR], "datasets": [{"type": "FHIR", "data": {"resourceType": "Patientt"}}]},
            "a system of kind fhir cannot be filled",
        ),
        (
            {"simulators": [FHIR], "scenario": {"drop_file_inbox": {"path": "a"}}},
            "is for a simulator of kind files, and the environment has none",
        ),
        ({"simulators": [FILES], "scenario": {"drop_file_inbx": {}}}, "nearest: drop_file_inbox"),
        (
            {"simulators": [FILES], "scenario": {"steps": [{"step": "drop_file_inbox", "given": {"path": "../a"}}]}},
            "not a path inside the drop",
        ),
        ({"simulators": [FILES], "scenario": {"steps": [{"step": "drop_file_inbox", "after_s": -1}]}}, "expected seconds"),
        ({"simulators": {}}, "simulators"),
    ],
)
def test_invalid_systems_are_refused_at_their_place(task: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as wrong:
        read({"id": "t", "criteria": [BOOKED], **task})
    assert problem in str(wrong.value)


def test_unused_data_gives_a_warning() -> None:
    suite = read(
        {"id": "t", "simulators": [FHIR], "datasets": [{"type": "Files", "data": {"a": "b"}}, {"type": "FHIR"}], "criteria": [BOOKED]}
    )
    warnings = " ".join(problem.message for problem in suite.warnings)
    assert "no simulator of kind files" in warnings and "has no data" in warnings
