"""Search on the FHIR server, which finds what the check `fhir_resource` finds."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.checks.registry import default_registry
from proctor.model.evidence import Evidence
from proctor.simulators.kinds.fhir import SIMULATOR
from tests.simulators.workplace import BASE, Workplace, read


def make_appointment(number: int, patient: str, day: int, status: str = "booked") -> dict[str, Any]:
    actors = [
        {"actor": {"reference": patient}, "status": "accepted"},
        {"actor": {"reference": "Practitioner/rivera"}, "status": "accepted"},
    ]
    return {
        "resourceType": "Appointment",
        "id": f"a{number}",
        "status": status,
        "start": f"2026-11-{day:02}T09:00:00Z",
        "participant": actors,
    }


def make_weight(number: int, patient: str, kilograms: float) -> dict[str, Any]:
    value = {"value": kilograms, "unit": "kg", "system": "http://unitsofmeasure.org", "code": "kg"}
    coded = {"coding": [{"system": "http://loinc.org", "code": "29463-7"}]}
    return {
        "resourceType": "Observation",
        "id": f"w{number}",
        "status": "final",
        "code": coded,
        "subject": {"reference": patient},
        "valueQuantity": value,
    }


SEED: list[dict[str, Any]] = [
    {
        "resourceType": "Patient",
        "id": "ann",
        "name": [{"family": "Smith"}],
        "managingOrganization": {"reference": "Organization/north"},
    },
    {"resourceType": "Patient", "id": "bob", "name": [{"family": "Jones"}]},
    {"resourceType": "Organization", "id": "north", "name": "North Clinic"},
    {"resourceType": "Practitioner", "id": "rivera", "name": [{"family": "Rivera"}]},
    make_appointment(1, "Patient/ann", 18),
    make_appointment(2, "Patient/bob", 17),
    make_appointment(3, "Patient/ann", 19, "cancelled"),
    make_weight(1, "Patient/ann", 61.5),
    make_weight(2, "Patient/bob", 92),
]
SEARCHES = [
    ("Appointment", "patient=Patient/ann", ["a1", "a3"]),
    ("Appointment", "patient=ann&status=booked", ["a1"]),
    ("Appointment", "date=ge2026-11-18&date=lt2026-11-19", ["a1"]),
    ("Appointment", "status=booked,cancelled&_sort=-date", ["a3", "a1", "a2"]),
    ("Appointment", "patient.family=Smith", ["a1", "a3"]),
    ("Appointment", "patient.family:exact=smith", []),
    ("Appointment", "actor:Practitioner.family=rivera", ["a1", "a2", "a3"]),
    ("Appointment", "actor:Patient.family=rivera", []),
    ("Appointment", "patient.organization.name=north", ["a1", "a3"]),
    ("Observation", "subject.name=jones", ["w2"]),
    ("Observation", "value-quantity=gt90", ["w2"]),
    ("Observation", "value-quantity=61.5|http://unitsofmeasure.org|kg", ["w1"]),
    ("Observation", "value-quantity=ap60||kg", ["w1"]),
    ("Observation", "code=http://loinc.org|29463-7&patient.family=Smith", ["w1"]),
]


@pytest.fixture
def clinic() -> Workplace:
    return Workplace("fhir", SEED)


def ids(bundle: Any, mode: str = "match") -> list[str]:
    return [entry["resource"]["id"] for entry in bundle.get("entry", []) if entry["search"]["mode"] == mode]


@pytest.mark.parametrize(("kind", "query", "expected"), SEARCHES)
def test_get_and_post_find_the_same(clinic: Workplace, kind: str, query: str, expected: list[str]) -> None:
    found = clinic.get(f"/{kind}?{query}")
    assert (ids(found), found["total"]) == (expected, len(expected))
    posted = clinic.ask("POST", f"/{kind}/_search", query.encode(), content_type="application/x-www-form-urlencoded")
    assert read(posted)["entry" if expected else "total"] == found["entry" if expected else "total"]


@pytest.mark.parametrize(("kind", "query", "expected"), [row for row in SEARCHES if row[1].count("date=") < 2])
def test_the_check_finds_what_the_server_answers(clinic: Workplace, kind: str, query: str, expected: list[str]) -> None:
    registry = default_registry()
    spec = registry.get("fhir_resource").spec(
        resource_type=kind, search=dict(pair.split("=", 1) for pair in query.split("&")), count=len(expected)
    )
    verdict = registry.prepare("fhir_resource", spec)(Evidence(state=clinic.state()))
    assert verdict.passed, verdict.reason


def test_pages_lead_to_each_other_by_absolute_addresses(clinic: Workplace) -> None:
    first = clinic.get("/Appointment?_count=2&_sort=date")
    links = {link["relation"]: link["url"] for link in first["link"]}
    assert (ids(first), first["total"]) == (["a2", "a1"], 3)
    assert links["next"].startswith(f"{BASE}/Appointment?")
    second = clinic.get(links["next"].removeprefix(BASE))
    assert (ids(second), second["total"]) == (["a3"], 3)
    assert {link["relation"] for link in second["link"]} == {"self", "previous"}


@pytest.mark.parametrize("query", ["_count=0", "_summary=count"])
def test_a_client_may_ask_for_the_total_alone(clinic: Workplace, query: str) -> None:
    found = clinic.get(f"/Appointment?{query}")
    assert (found["total"], found.get("entry")) == (3, None)


@pytest.mark.parametrize(
    ("query", "included"),
    [
        ("_id=a1&_include=Appointment:patient", ["ann"]),
        ("_id=a1&_include=Appointment:actor", ["ann", "rivera"]),
        ("_id=a1&_include=Appointment:actor:Practitioner", ["rivera"]),
        ("_id=a1&_include=Appointment:*", ["ann", "rivera"]),
        ("_id=a1&_include=Observation:patient", []),
    ],
)
def test_resources_referenced_by_matches_are_included(clinic: Workplace, query: str, included: list[str]) -> None:
    found = clinic.get(f"/Appointment?{query}")
    assert (ids(found), ids(found, "include"), found["total"]) == (["a1"], included, 1)


def test_resources_that_reference_matches_are_included(clinic: Workplace) -> None:
    found = clinic.get("/Patient?_id=ann&_revinclude=Appointment:patient&_revinclude=Observation:subject")
    assert (ids(found), ids(found, "include")) == (["ann"], ["a1", "a3", "w1"])


def test_unknown_parameters_with_an_underscore_are_ignored(clinic: Workplace) -> None:
    found = clinic.get("/Patient?_strange=1&family=Smith&_format=json")
    assert ids(found) == ["ann"]
    assert "_strange" not in found["link"][0]["url"]


def test_elements_are_selected_and_the_resource_is_marked(clinic: Workplace) -> None:
    (entry,) = clinic.get("/Appointment?_id=a1&_elements=status")["entry"]
    assert set(entry["resource"]) == {"resourceType", "id", "meta", "status"}
    assert entry["resource"]["meta"]["tag"][0]["code"] == "SUBSETTED"


def test_tools_search_and_write(clinic: Workplace) -> None:
    tools = {tool.name: tool for tool in SIMULATOR.list_tools()}
    request = tools["fhir_search"].make_request({"resource_type": "Appointment", "search": {"patient": "Patient/ann", "status": "booked"}})
    assert ids(clinic.get(request.target)) == ["a1"]
    made = tools["fhir_create"].make_request({"resource": make_appointment(9, "Patient/bob", 20)})
    assert clinic.ask(made.method, made.target, made.body).status == 201
    gone = tools["fhir_delete"].make_request({"resource_type": "Appointment", "id": "a1"})
    assert clinic.ask(gone.method, gone.target).status == 204
