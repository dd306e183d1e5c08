"""Batches and transactions on the FHIR server."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.simulators.workplace import Workplace, read

SEED = [{"resourceType": "Patient", "id": "ann", "identifier": [{"system": "urn:mrn", "value": "17"}]}]


@pytest.fixture
def clinic() -> Workplace:
    return Workplace("fhir", SEED)


def entry(method: str, url: str, resource: Any = None, full_url: str | None = None, **more: str) -> dict[str, Any]:
    made: dict[str, Any] = {"request": {"method": method, "url": url, **more}}
    if resource is not None:
        made["resource"] = resource
    if full_url is not None:
        made["fullUrl"] = full_url
    return made


def send(clinic: Workplace, kind: str, *entries: Any) -> Any:
    return clinic.ask("POST", "/", {"resourceType": "Bundle", "type": kind, "entry": list(entries)})


def statuses(response: Any) -> list[str]:
    assert response.status == 200, response.body
    return [one["response"]["status"] for one in read(response)["entry"]]


def visit(patient: str) -> dict[str, Any]:
    return {"resourceType": "Encounter", "status": "planned", "class": {"code": "AMB"}, "subject": {"reference": patient}}


def test_references_inside_a_transaction_are_resolved(clinic: Workplace) -> None:
    response = send(
        clinic,
        "transaction",
        entry("POST", "Encounter", visit("urn:uuid:1"), "urn:uuid:2"),
        entry("POST", "Patient", {"resourceType": "Patient", "active": True}, "urn:uuid:1"),
        entry("POST", "Encounter", visit("Patient?identifier=urn:mrn|17")),
        entry("GET", "Patient?active=true"),
    )
    assert statuses(response) == ["201", "201", "201", "200"]
    first, patient, second, found = (one["resource"] for one in read(response)["entry"])
    assert first["subject"]["reference"] == f"Patient/{patient['id']}"
    assert second["subject"]["reference"] == "Patient/ann"
    assert found["total"] == 1, "reads come last"
    assert clinic.get(f"/Encounter?patient={patient['id']}")["total"] == 1


@pytest.mark.parametrize(
    "last",
    [
        entry("POST", "Patient", {"resourceType": "Person"}),
        entry("PUT", "Patient/ann", {"resourceType": "Patient", "id": "ann"}, ifMatch='W/"9"'),
        entry("PUT", "Patient/ann"),
        entry("GET", "Patient/nobody"),
        entry("POST", "Encounter", visit("Patient?identifier=nobody")),
        entry("POST", "Shoe", {"resourceType": "Shoe"}),
        {"resource": {}},
        entry("MOVE", "Patient/ann"),
    ],
)
def test_a_transaction_that_fails_in_the_middle_keeps_nothing(clinic: Workplace, last: dict[str, Any]) -> None:
    response = send(
        clinic,
        "transaction",
        entry("DELETE", "Patient/ann"),
        entry("POST", "Patient", {"resourceType": "Patient"}),
        last,
    )
    assert 400 <= response.status < 500
    assert read(response)["resourceType"] == "OperationOutcome"
    assert clinic.state().changes == ()


def test_a_transaction_writes_nothing_twice(clinic: Workplace) -> None:
    body = {"resourceType": "Patient", "id": "ann"}
    assert send(clinic, "transaction", entry("PUT", "Patient/ann", body), entry("DELETE", "/Patient/ann")).status == 400
    assert send(clinic, "transaction", entry("PUT", "Patient/ann", body), entry("PUT", "Patient/ann", body)).status == 400


def test_a_conditional_create_links_to_the_existing_resource(clinic: Workplace) -> None:
    patient = entry("POST", "Patient", {"resourceType": "Patient"}, "urn:uuid:1", ifNoneExist="identifier=urn:mrn|17")
    response = send(clinic, "transaction", patient, entry("POST", "Encounter", visit("urn:uuid:1")))
    assert statuses(response) == ["200", "201"]
    assert read(response)["entry"][1]["resource"]["subject"]["reference"] == "Patient/ann"
    assert [change.place.split("/")[0] for change in clinic.state().changes or ()] == ["Encounter"]


def test_the_entries_of_a_batch_are_independent(clinic: Workplace) -> None:
    response = send(
        clinic,
        "batch",
        entry("POST", "Patient", {"resourceType": "Patient", "active": True}),
        entry("GET", "Patient/nobody"),
        entry("PUT", "Patient/ann", {"resourceType": "Patient", "id": "ann", "active": False}),
    )
    assert statuses(response) == ["201", "404", "200"]
    assert read(response)["entry"][1]["response"]["outcome"]["issue"][0]["code"] == "not-found"
    assert sorted(change.change for change in clinic.state().changes or ()) == ["added", "changed"]


BATCH = {"resourceType": "Bundle", "type": "batch"}
NO_BUNDLES = [
    {"resourceType": "Patient"},
    {"resourceType": "Bundle", "type": "document"},
    {**BATCH, "entry": {}},
    {**BATCH, "entry": [entry("GET", "Patient/nobody")] * 2001},
    [],
    b"{",
]


@pytest.mark.parametrize("body", NO_BUNDLES, ids=range(len(NO_BUNDLES)))
def test_an_invalid_bundle_of_requests_is_refused(clinic: Workplace, body: Any) -> None:
    assert clinic.ask("POST", "/", body).status == 400


def test_a_bundle_with_a_patch(clinic: Workplace) -> None:
    data = base64.b64encode(b'[{"op": "add", "path": "/active", "value": true}]').decode()
    patch = {"resourceType": "Binary", "contentType": "application/json-patch+json", "data": data}
    assert statuses(send(clinic, "transaction", entry("PATCH", "Patient/ann", patch))) == ["200"]
    assert clinic.get("/Patient/ann")["active"] is True


def test_requests_inside_a_bundle_are_reported_with_their_entry(clinic: Workplace) -> None:
    send(clinic, "batch", entry("DELETE", "Patient/ann"), entry("GET", "Patient/nobody"))
    send(clinic, "transaction", entry("POST", "Encounter", visit("Patient/ann")), entry("DELETE", "Patient?_id="))
    first, second = (request.inside for request in clinic.state().requests or ())
    assert [(one.method, one.path, one.status) for one in first] == [("DELETE", "/Patient/ann", 204), ("GET", "/Patient/nobody", 404)]
    assert [(one.method, one.path) for one in second] == [("POST", "/Encounter"), ("DELETE", "/Patient?_id=")]
