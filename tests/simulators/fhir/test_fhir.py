"""The FHIR server: reading and writing, versions, conditions, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulators.workplace import BASE, NOW, Workplace, read

SEED: list[dict[str, Any]] = [
    {"resourceType": "Patient", "id": "ann", "name": [{"family": "Smith", "given": ["Ann"]}], "birthDate": "1980-05-01"},
    {"resourceType": "Patient", "id": "bob", "name": [{"family": "Jones"}], "identifier": [{"system": "urn:mrn", "value": "17"}]},
    {
        "resourceType": "Appointment",
        "id": "a1",
        "status": "booked",
        "start": "2026-11-20T09:00:00Z",
        "participant": [{"actor": {"reference": "Patient/ann"}, "status": "accepted"}],
    },
]


@pytest.fixture
def clinic() -> Workplace:
    return Workplace("fhir", SEED)


def outcome(response: Any) -> tuple[int, str]:
    body = read(response)
    assert body["resourceType"] == "OperationOutcome"
    return response.status, body["issue"][0]["code"]


def test_a_resource_is_created_read_updated_and_deleted(clinic: Workplace) -> None:
    made = clinic.ask("POST", "/Patient", {"resourceType": "Patient", "id": "ignored", "name": [{"family": "New"}]})
    assert made.status == 201
    assert made.headers["location"] == f"{BASE}/Patient/new-1/_history/1"
    assert made.headers["etag"] == 'W/"1"'
    assert read(made)["meta"] == {"versionId": "1", "lastUpdated": NOW}
    changed = clinic.ask("PUT", "/Patient/new-1", {"resourceType": "Patient", "id": "new-1", "active": True}, if_match='W/"1"')
    assert (changed.status, read(changed)["meta"]["versionId"]) == (200, "2")
    assert clinic.get("/Patient/new-1")["active"] is True
    assert clinic.get("/Patient/new-1/_history/1")["name"] == [{"family": "New"}]
    assert clinic.get("/Patient/new-1/_history/2")["active"] is True
    assert clinic.ask("DELETE", "/Patient/new-1").status == 204
    assert outcome(clinic.ask("GET", "/Patient/new-1")) == (410, "deleted")
    assert outcome(clinic.ask("GET", "/Patient/new-1/_history/3")) == (410, "deleted")
    assert clinic.ask("DELETE", "/Patient/new-1").status == 204, "what is deleted stays so"
    again = clinic.ask("PUT", "/Patient/new-1", {"resourceType": "Patient", "id": "new-1"})
    assert (again.status, read(again)["meta"]["versionId"]) == (201, "4"), "no version is used twice"


def test_the_history_starts_with_the_newest(clinic: Workplace) -> None:
    clinic.ask("PUT", "/Patient/ann", {"resourceType": "Patient", "id": "ann", "active": True})
    clinic.ask("DELETE", "/Patient/ann")
    bundle = clinic.get("/Patient/ann/_history")
    assert [(entry["request"]["method"], entry["response"]["etag"]) for entry in bundle["entry"]] == [
        ("DELETE", 'W/"3"'),
        ("PUT", 'W/"2"'),
        ("POST", 'W/"1"'),
    ]
    assert bundle["total"] == 3
    assert clinic.get("/Patient/_history")["total"] == 4


def test_a_resource_is_patched_both_ways(clinic: Workplace) -> None:
    operations = [{"op": "replace", "path": "/name/0/family", "value": "Brown"}, {"op": "add", "path": "/active", "value": True}]
    changed = clinic.ask("PATCH", "/Patient/ann", operations, content_type="application/json-patch+json")
    assert changed.status == 200
    assert read(changed)["name"] == [{"family": "Brown", "given": ["Ann"]}]
    merged = clinic.ask("PATCH", "/Patient/ann", {"active": None, "gender": "female"}, content_type="application/merge-patch+json")
    assert (read(merged).get("active"), read(merged)["gender"], read(merged)["meta"]["versionId"]) == (None, "female", "3")
    # As fhirpy sends them: plain JSON, whose content decides which of the two it is.
    assert read(clinic.ask("PATCH", "/Patient/ann", {"gender": "other"}, content_type="application/json"))["gender"] == "other"
    operations = [{"op": "remove", "path": "/gender"}]
    assert "gender" not in read(clinic.ask("PATCH", "/Patient/ann", operations, content_type="application/json; charset=utf-8"))
    assert SEED[0]["name"][0]["family"] == "Smith"


def test_a_free_text_time_is_stored_where_r4_allows_it(clinic: Workplace) -> None:
    given = {"resourceType": "Immunization", "occurrenceString": "January 2012"}
    assert clinic.ask("POST", "/Immunization", given).status == 201
    assert clinic.ask("POST", "/Immunization", {"resourceType": "Immunization", "occurrenceDateTime": "January 2012"}).status == 422


def test_clients_may_prefer_less(clinic: Workplace) -> None:
    body = {"resourceType": "Patient"}
    assert clinic.ask("POST", "/Patient", body, prefer="return=minimal").body == b""
    assert read(clinic.ask("POST", "/Patient", body, prefer="return=OperationOutcome"))["resourceType"] == "OperationOutcome"
    assert clinic.ask("GET", "/Patient/ann", if_none_match='W/"1"').status == 304


def test_conditions_decide_whether_something_is_made(clinic: Workplace) -> None:
    new = {"resourceType": "Patient", "identifier": [{"system": "urn:mrn", "value": "17"}]}
    found = clinic.ask("POST", "/Patient", new, if_none_exist="identifier=urn:mrn|17")
    assert (found.status, read(found)["id"]) == (200, "bob")
    assert clinic.ask("POST", "/Patient", new, if_none_exist="identifier=urn:mrn|18").status == 201
    changed = clinic.ask("PUT", "/Patient?family=Jones", {"resourceType": "Patient", "name": [{"family": "Jones"}], "active": True})
    assert (changed.status, read(changed)["id"]) == (200, "bob")
    made = clinic.ask("PUT", "/Patient?family=Nobody", {"resourceType": "Patient", "id": "own"})
    assert (made.status, read(made)["id"]) == (201, "own")
    assert clinic.ask("DELETE", "/Patient?family=Smith").status == 204
    assert outcome(clinic.ask("GET", "/Patient/ann")) == (410, "deleted")
    assert clinic.ask("DELETE", "/Patient?family=Smith").status == 204


def test_a_search_with_too_many_values_is_refused(clinic: Workplace) -> None:
    huge = {"resourceType": "Patient", "name": [{"given": [f"n{number}" for number in range(101)]}] * 101}
    assert clinic.ask("POST", "/Patient", huge).status == 201
    assert outcome(clinic.ask("GET", "/Patient?given=Ann")) == (400, "too-costly")
    assert outcome(clinic.ask("DELETE", "/Patient?given=Ann")) == (400, "too-costly")
    batch = {"resourceType": "Bundle", "type": "batch", "entry": [{"request": {"method": "GET", "url": "Patient?given=Ann"}}]}
    assert [entry["response"]["status"][:3] for entry in read(clinic.ask("POST", "/", batch))["entry"]] == ["400"]
    assert clinic.get("/Patient?family=Smith")["total"] == 1


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "expected"),
    [
        ("GET", "/Patients", None, {}, (404, "not-supported")),
        ("GET", "/Patient/nobody", None, {}, (404, "not-found")),
        ("GET", "/Patient/nobody/_history", None, {}, (404, "not-found")),
        ("GET", "/Patient/ann/_history/7", None, {}, (404, "not-found")),
        ("GET", "/Patient/ann/$everything", None, {}, (404, "not-supported")),
        ("GET", "/Patient/ann/x/y/z", None, {}, (404, "not-found")),
        ("GET", "/Patient/a_b", None, {}, (400, "value")),
        ("GET", "/Patient?shoe-size=42", None, {}, (400, "not-supported")),
        ("GET", "/Patient?birthdate=soon", None, {}, (400, "value")),
        ("GET", "/Patient?_count=x", None, {}, (400, "value")),
        ("GET", "/Patient?_offset=x", None, {}, (400, "value")),
        ("GET", "/Patient?_include=Patient", None, {}, (400, "value")),
        ("GET", "/Patient?_strange=1", None, {"prefer": "handling=strict"}, (400, "not-supported")),
        ("GET", "/", None, {}, (405, "not-supported")),
        ("POST", "/Patient/ann", {}, {}, (405, "not-supported")),
        ("POST", "/Patient/_history", {}, {}, (405, "not-supported")),
        ("GET", "/Patient/_search", None, {}, (405, "not-supported")),
        ("POST", "/Patient", b"{", {}, (400, "structure")),
        ("POST", "/Patient", b"<Patient/>", {"content_type": "application/fhir+xml"}, (415, "not-supported")),
        ("POST", "/Patient", [], {}, (400, "structure")),
        ("POST", "/Patient", {"resourceType": "Person"}, {}, (400, "invariant")),
        ("POST", "/Patient", {"resourceType": "Patient", "name": []}, {}, (422, "value")),
        ("POST", "/Patient", {"resourceType": "Patient", "name": [{}]}, {}, (422, "value")),
        ("POST", "/Patient", {"resourceType": "Patient", "gender": None}, {}, (422, "value")),
        ("POST", "/Patient", {"resourceType": "Patient", "gender": ""}, {}, (422, "value")),
        ("POST", "/Patient", {"resourceType": "Patient", "birthDate": "tomorrow"}, {}, (422, "value")),
        ("PUT", "/Patient/ann", {"resourceType": "Patient"}, {}, (400, "invariant")),
        ("PUT", "/Patient/ann", {"resourceType": "Patient", "id": "bob"}, {}, (400, "invariant")),
        ("PUT", "/Patient/ann", {"resourceType": "Patient", "id": "ann"}, {"if_match": 'W/"7"'}, (412, "conflict")),
        ("PUT", "/Patient/new", {"resourceType": "Patient", "id": "new"}, {"if_match": 'W/"1"'}, (412, "conflict")),
        ("PUT", "/Patient", {"resourceType": "Patient"}, {}, (412, "required")),
        ("PUT", "/Patient?_id=ann,bob", {"resourceType": "Patient"}, {}, (412, "multiple-matches")),
        ("POST", "/Patient", {"resourceType": "Patient"}, {"if_none_exist": "_id=ann,bob"}, (412, "multiple-matches")),
        ("DELETE", "/Patient?_id=ann,bob", None, {}, (412, "multiple-matches")),
        ("DELETE", "/Patient/nobody", None, {}, (404, "not-found")),
        ("DELETE", "/Patient/ann", None, {"if_match": 'W/"2"'}, (412, "conflict")),
        ("PATCH", "/Patient/ann", {}, {}, (415, "not-supported")),
        ("PATCH", "/Patient/ann", {"id": "x"}, {"content_type": "application/merge-patch+json"}, (422, "invariant")),
        ("PATCH", "/Patient/ann", [{"op": "remove", "path": "/x"}], {"content_type": "application/json-patch+json"}, (422, "processing")),
        (
            "PATCH",
            "/Patient/ann",
            [{"op": "add", "path": "/active", "value": True}, {"op": "test", "path": "/gender", "value": "male"}],
            {"content_type": "application/json-patch+json"},
            (422, "processing"),
        ),
    ],
)
def test_every_refusal_is_an_outcome_and_changes_nothing(
    clinic: Workplace, method: str, target: str, body: Any, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    assert outcome(clinic.ask(method, target, body, **headers)) == expected
    assert clinic.state().changes == ()


def test_the_server_describes_itself(clinic: Workplace) -> None:
    statement = clinic.get("/metadata")
    assert (statement["resourceType"], statement["fhirVersion"]) == ("CapabilityStatement", "4.0.1")
    assert "Appointment" in [each["type"] for each in statement["rest"][0]["resource"]]
    assert clinic.get("/.well-known/smart-configuration")["token_endpoint"] == f"{BASE}/token"
    # Whichever of the two a client reads, it finds the same.
    (security,) = statement["rest"][0]["security"]["extension"]
    assert security["extension"] == [{"url": "token", "valueUri": f"{BASE}/token"}]


def test_the_state_is_every_resource_with_its_version(clinic: Workplace) -> None:
    fhir = clinic.state().fhir
    assert fhir is not None
    assert [resource["id"] for resource in fhir.resources] == ["ann", "bob", "a1"]
    assert clinic.state().changes == ()


def test_changes_name_resources_and_leave_out_earlier_versions(clinic: Workplace) -> None:
    clinic.ask("PUT", "/Patient/ann", {"resourceType": "Patient", "id": "ann", "active": True})
    clinic.ask("DELETE", "/Appointment/a1")
    assert [(change.change, change.place) for change in clinic.state().changes or ()] == [
        ("changed", "Patient/ann"),
        ("removed", "Appointment/a1"),
    ]
