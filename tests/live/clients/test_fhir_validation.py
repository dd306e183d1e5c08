"""Answers of the FHIR server, checked by a third-party validator: npm `fhir`, against the definitions of R4."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.simulators.exchange import Response
from tests.foreign import install_from_npm
from tests.live.clients.simulated_sites import run
from tests.simulators.workplace import Workplace

VALIDATOR = "fhir@4.12.0"
pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

PROGRAM = """
const { readFileSync } = require("fs");
const { Fhir } = require("fhir");
const fhir = new Fhir();
const wrong = {};
for (const [name, resource] of Object.entries(JSON.parse(readFileSync(process.argv[2], "utf8")))) {
  const found = fhir.validate(resource, { errorOnUnexpected: true });
  const problems = found.messages.filter((one) => one.severity !== "info").map((one) => `${one.severity} ${one.location}: ${one.message}`);
  if (!found.valid || problems.length) wrong[name] = problems;
}
console.log(JSON.stringify(wrong));
"""
PATIENT: dict[str, Any] = {
    "resourceType": "Patient",
    "identifier": [{"system": "urn:mrn", "value": "1"}],
    "name": [{"family": "Müller", "given": ["Ann"]}],
    "gender": "female",
    "birthDate": "1980-02-01",
    "managingOrganization": {"reference": "Organization/o1"},
}
OBSERVATION: dict[str, Any] = {
    "resourceType": "Observation",
    "status": "final",
    "code": {"text": "weight"},
    "subject": {"reference": "Patient/p1"},
    "effectiveDateTime": "2026-11-16T09:00:00Z",
    "valueQuantity": {"value": 61.5, "unit": "kg", "system": "http://unitsofmeasure.org", "code": "kg"},
}
SEED: list[Any] = [
    {"resourceType": "Organization", "id": "o1", "name": "Ward"},
    *({**PATIENT, "id": f"p{number}"} for number in range(1, 6)),
    {**OBSERVATION, "id": "w1"},
]


def put_entry(method: str, url: str, resource: Any = None, **more: Any) -> dict[str, Any]:
    body = {} if resource is None else {"resource": resource}
    return {**body, "request": {"method": method, "url": url}, **more}


def ask_everything(clinic: Workplace) -> Iterator[tuple[str, Response]]:
    """Ask for one of every kind of answer."""
    yield "created", clinic.ask("POST", "/Patient", PATIENT)
    yield "updated", clinic.ask("PUT", "/Patient/p1", {**PATIENT, "id": "p1", "active": True})
    yield "made by an update", clinic.ask("PUT", "/Patient/new", {**PATIENT, "id": "new"})
    yield "updated on a condition", clinic.ask("PUT", "/Observation?_id=w1", OBSERVATION)
    yield "merged", clinic.ask("PATCH", "/Patient/p2", {"gender": "other"}, content_type="application/merge-patch+json")
    patch = [{"op": "replace", "path": "/active", "value": False}]
    yield "patched", clinic.ask("PATCH", "/Patient/p1", patch, content_type="application/json-patch+json")
    for name, path in {
        "read": "/Patient/p1",
        "an old version": "/Patient/p1/_history/1",
        "history of one": "/Patient/p1/_history",
        "search": "/Patient?family=M%C3%BCller&_count=2&_sort=-_id",
        "search with what belongs to it": "/Observation?_include=Observation:subject&_revinclude=Provenance:target",
        "search for nothing": "/Patient?family=nobody",
        "search with an unknown parameter": "/Patient?_unknown=1&family=M%C3%BCller",
        "count alone": "/Patient?_summary=count",
        "capabilities": "/metadata",
        "not there": "/Patient/nobody",
        "no such type": "/Nothing/1",
        "no such parameter": "/Patient?nothing=1",
    }.items():
        yield name, clinic.ask("GET", path)
    yield "search by POST", clinic.ask("POST", "/Patient/_search", b"gender=female", content_type="application/x-www-form-urlencoded")
    born = [
        put_entry("POST", "Patient", PATIENT, fullUrl="urn:uuid:1"),
        put_entry("POST", "Observation", {**OBSERVATION, "subject": {"reference": "urn:uuid:1"}}),
    ]
    yield "transaction", clinic.ask("POST", "/", {"resourceType": "Bundle", "type": "transaction", "entry": born})
    mixed = [
        put_entry("GET", "Patient/p1"),
        put_entry("GET", "Patient/nobody"),
        put_entry("DELETE", "Patient/p5"),
        put_entry("GET", "Patient?_count=1"),
    ]
    yield "batch", clinic.ask("POST", "/", {"resourceType": "Bundle", "type": "batch", "entry": mixed})
    broken = [put_entry("POST", "Patient", PATIENT), put_entry("PUT", "Patient/p1", {"resourceType": "Observation", "id": "p1"})]
    yield "a transaction that fails", clinic.ask("POST", "/", {"resourceType": "Bundle", "type": "transaction", "entry": broken})
    yield "no JSON", clinic.ask("POST", "/Patient", b"{")
    yield "another type", clinic.ask("POST", "/Patient", OBSERVATION)
    yield "a version that is over", clinic.ask("PUT", "/Patient/p1", {**PATIENT, "id": "p1"}, if_match='W/"1"')
    yield "gone", clinic.ask("GET", "/Patient/p5")
    yield "an update without a condition", clinic.ask("PUT", "/Patient", PATIENT)


def test_every_answer_is_a_valid_resource(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    modules = install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-fhir-validator")), VALIDATOR)  # type: ignore[union-attr]
    answers = dict(ask_everything(Workplace("fhir", SEED)))
    given = {name: msgspec.json.decode(answer.body) for name, answer in answers.items()}
    kinds = {resource["resourceType"] for resource in given.values()}
    assert kinds == {"Patient", "Observation", "Bundle", "OperationOutcome", "CapabilityStatement"}
    assert answers["a version that is over"].status == 412 and answers["a transaction that fails"].status == 400
    # A validator that looked at nothing would agree with everything: these must not pass, alone and inside of a bundle.
    wrong_one = {**PATIENT, "gender": "unheard of", "nothing": 1}
    entry = {"fullUrl": "http://sandbox.test/Patient/x", "resource": wrong_one}
    given |= {"a wrong one": wrong_one, "a wrong one in a bundle": {"resourceType": "Bundle", "type": "collection", "entry": [entry]}}
    (tmp_path / "given.json").write_text(json.dumps(given), encoding="utf-8")
    program = modules.parent / "validate.cjs"
    program.write_text(PROGRAM, encoding="utf-8")
    wrong = json.loads(run("node", program, tmp_path / "given.json"))
    assert len(wrong.pop("a wrong one")) == len(wrong.pop("a wrong one in a bundle")) == 2
    assert wrong == {}
