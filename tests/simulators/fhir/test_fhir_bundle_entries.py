"""Entries of FHIR bundles: hostile ones, references between them, and claims about their requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.model.evidence import Evidence
from tests.simulators.workplace import Workplace, read

ANN = {"resourceType": "Patient", "id": "ann", "name": [{"family": "Smith"}]}


@pytest.fixture
def clinic() -> Workplace:
    return Workplace("fhir", [ANN])


def make_entry(method: str, url: str, resource: Any = None, full_url: str | None = None) -> dict[str, Any]:
    named = {"fullUrl": full_url} if full_url else {}
    return {**named, **({"resource": resource} if resource else {}), "request": {"method": method, "url": url}}


def send(clinic: Workplace, kind: str, *entries: Any) -> Any:
    return clinic.ask("POST", "/", {"resourceType": "Bundle", "type": kind, "entry": list(entries)})


def make_appointment(*actors: str) -> dict[str, Any]:
    listed = [{"actor": {"reference": actor}, "status": "accepted"} for actor in actors]
    return {"resourceType": "Appointment", "status": "booked", "participant": listed}


def list_actors(answer: Any, index: int) -> list[str]:
    return [one["actor"]["reference"] for one in read(answer)["entry"][index]["resource"]["participant"]]


def decide(clinic: Workplace, check: str, **spec: Any) -> str:
    entry = default_registry().get(check)
    return entry.prepare(msgspec.convert(spec, entry.spec))(Evidence(state=clinic.state())).outcome


# --- entries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["batch", "transaction"])
@pytest.mark.parametrize("method", [[], {}, None, 7, "post", "SWALLOW"])
def test_an_invalid_method_is_refused(clinic: Workplace, kind: str, method: Any) -> None:
    answer = send(clinic, kind, {"request": {"method": method, "url": "Patient"}})
    assert answer.status == 400
    assert "Bundle.entry[0].request: expected method (DELETE, POST," in read(answer)["issue"][0]["diagnostics"]


def test_an_entry_may_ask_for_a_head(clinic: Workplace) -> None:
    (entry,) = read(send(clinic, "batch", make_entry("HEAD", "Patient/ann")))["entry"]
    assert entry == {"response": {"status": "200", "etag": 'W/"1"'}}


# --- references --------------------------------------------------------------------------------------------------------


def test_a_resource_of_a_conditional_update_can_be_referenced(clinic: Workplace) -> None:
    doctor = {"resourceType": "Practitioner", "identifier": [{"value": "z"}]}
    made = send(
        clinic,
        "transaction",
        make_entry("PUT", "Practitioner?identifier=z", doctor, "urn:uuid:1"),
        make_entry("POST", "Appointment", make_appointment("urn:uuid:1")),
    )
    name = f"Practitioner/{read(made)['entry'][0]['resource']['id']}"
    assert list_actors(made, 1) == [name]
    again = send(
        clinic,
        "transaction",
        make_entry("PUT", "Practitioner?identifier=z", doctor, "urn:uuid:1"),
        make_entry("POST", "Appointment", make_appointment("urn:uuid:1")),
    )
    assert (read(again)["entry"][0]["response"]["status"], list_actors(again, 1)) == ("200", [name])


def test_a_relative_reference_is_one_to_an_entry_of_the_same_server(clinic: Workplace) -> None:
    old, other = "http://old.test/fhir", "http://other.test/fhir"
    made = send(
        clinic,
        "transaction",
        make_entry("POST", "Patient", {"resourceType": "Patient"}, f"{old}/Patient/77"),
        make_entry("POST", "Appointment", make_appointment("Patient/77", "Patient/ann"), f"{old}/Appointment/1"),
        make_entry("POST", "Appointment", make_appointment("Patient/77"), f"{other}/Appointment/1"),
    )
    key = read(made)["entry"][0]["resource"]["id"]
    assert list_actors(made, 1) == [f"Patient/{key}", "Patient/ann"]
    assert list_actors(made, 2) == ["Patient/77"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([make_entry("POST", "Appointment", make_appointment("urn:uuid:missing"))], "is the fullUrl of no entry"),
        ([make_entry("POST", "Patient", {"resourceType": "Patient"}, "urn:uuid:1")] * 2, "duplicate fullUrl"),
    ],
)
def test_a_transaction_with_unresolvable_references_is_not_stored(clinic: Workplace, entries: list[Any], message: str) -> None:
    answer = send(clinic, "transaction", *entries)
    assert (answer.status, message in read(answer)["issue"][0]["diagnostics"]) == (400, True)
    assert not clinic.state().changes


# --- claims about requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["batch", "transaction"])
def test_a_request_inside_of_a_bundle_was_made(clinic: Workplace, kind: str) -> None:
    send(clinic, kind, make_entry("DELETE", "Patient/ann"), make_entry("POST", "Appointment", make_appointment("Patient/ann")))
    assert decide(clinic, "request_not_made", method="DELETE", path="/Patient/*") == "fail"
    assert decide(clinic, "request_made", method="POST", path="/Appointment", status=201, at_most=1) == "pass"
    assert decide(clinic, "request_made", method="POST", path="/", then=[{"method": "DELETE", "path": "/Patient/ann"}]) == "pass"


@pytest.mark.parametrize("path", ["/Patient/%61nn", "/Patient/ann/", "//Patient/ann", "/%50atient/ann//"])
def test_a_path_is_the_same_however_it_is_written(clinic: Workplace, path: str) -> None:
    assert clinic.ask("DELETE", path).status == 204
    assert decide(clinic, "request_not_made", method="DELETE", path="/Patient/ann") == "fail"


def test_a_path_too_long_to_compare_is_no_pass(clinic: Workplace) -> None:
    clinic.ask("GET", "/Patient/" + "a" * 5_000)
    assert decide(clinic, "request_not_made", path="/Patient/*") == "fail"
    assert decide(clinic, "request_not_made", method="DELETE") == "pass"


def test_a_claim_about_a_missing_system_is_no_pass(clinic: Workplace) -> None:
    assert decide(clinic, "request_not_made", method="DELETE", system="fhri") == "fail"
    assert decide(clinic, "request_not_made", method="DELETE", system="fhir") == "pass"


def test_an_unsendable_method_is_refused(clinic: Workplace) -> None:
    with pytest.raises(Exception, match=r'method: expected one of .*, found "POSTT"'):
        decide(clinic, "request_not_made", method="POSTT")
    assert decide(clinic, "request_not_made", method="delete") == "pass"
