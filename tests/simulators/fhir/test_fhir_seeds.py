"""Bundles as seeds: references between their entries resolve as on a server that processed the bundle."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulators.workplace import Workplace

PERSON = "61b1f9fe-0e8a-0d5e-a6d8-1d7c4a1b0a01"
VISIT = "0a8ec7b5-7d0f-5f2f-bd4b-7a6b5b9e7a02"
DOCTOR = {"resourceType": "Practitioner", "id": "doc", "identifier": [{"system": "http://hl7.org/fhir/sid/us-npi", "value": "9999"}]}


def synthea(*, ids: bool = True) -> dict[str, Any]:
    """A patient and their records, as Synthea writes them."""
    patient = {"resourceType": "Patient", "name": [{"family": "Smith"}]}
    encounter = {
        "resourceType": "Encounter",
        "status": "finished",
        "class": {"code": "AMB"},
        "subject": {"reference": f"urn:uuid:{PERSON}"},
        "participant": [{"individual": {"reference": "Practitioner?identifier=http://hl7.org/fhir/sid/us-npi|9999"}}],
    }
    observation = {
        "resourceType": "Observation",
        "status": "final",
        "subject": {"reference": f"urn:uuid:{PERSON}"},
        "encounter": {"reference": f"urn:uuid:{VISIT}"},
    }
    entries = [("Encounter", VISIT, encounter), ("Patient", PERSON, patient), ("Observation", "", observation)]
    return {
        "resourceType": "Bundle",
        "type": "transaction",
        "entry": [
            {
                **({"fullUrl": f"urn:uuid:{id}"} if id else {}),
                "resource": {**one, "id": id} if ids and id else one,
                "request": {"method": "POST", "url": kind},
            }
            for kind, id, one in entries
        ],
    }


@pytest.mark.parametrize("ids", [True, False])
def test_references_between_entries_are_resolved(ids: bool) -> None:
    place = Workplace("fhir", [DOCTOR, synthea(ids=ids)])
    for search, total in (
        (f"Observation?patient={PERSON}", 1),
        (f"Observation?subject=Patient/{PERSON}", 1),
        ("Observation?patient.family=Smith", 1),
        ("Observation?encounter.status=finished", 1),
        ("Encounter?participant=Practitioner/doc", 1),
        ("Encounter?practitioner.identifier=9999", 1),
        ("Observation?patient=nobody", 0),
    ):
        assert place.get(f"/{search}")["total"] == total, search
    found = place.get("/Observation?_include=Observation:patient&_include=Observation:encounter")
    assert [entry["resource"]["resourceType"] for entry in found["entry"]] == ["Observation", "Patient", "Encounter"]


def test_unmatched_conditions_and_unknown_names_stay_unchanged() -> None:
    place = Workplace("fhir", [synthea(), {"resourceType": "Observation", "id": "o", "subject": {"reference": "urn:uuid:none"}}])
    assert place.get("/Encounter")["entry"][0]["resource"]["participant"][0]["individual"]["reference"].startswith("Practitioner?")
    assert place.get("/Observation/o")["subject"] == {"reference": "urn:uuid:none"}


def test_the_seed_itself_is_not_changed() -> None:
    seed = [synthea(ids=False)]
    Workplace("fhir", seed)
    assert seed == [synthea(ids=False)]
