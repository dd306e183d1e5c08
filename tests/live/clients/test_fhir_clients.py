"""The FHIR server, used by third-party clients: `fhirpy` and `fhirclient` for Python, `fhir-kit-client` for Node.js."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.model.case import System
from tests.foreign import install_from_index, install_from_npm
from tests.live.clients.simulated_sites import Site, run

CLIENTS = ("fhirpy==2.3.1", "fhirclient==4.4.0")
KIT = "fhir-kit-client@2.0.3"
pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

SEED: list[Any] = [
    {"resourceType": "Organization", "id": "o1", "name": "Ward"},
    *(
        {
            "resourceType": "Patient",
            "id": f"p{number}",
            "name": [{"family": "Smith"}],
            "identifier": [{"system": "urn:mrn", "value": str(number)}],
            "managingOrganization": {"reference": "Organization/o1"},
        }
        for number in range(1, 6)
    ),
]
WEIGHT = {"resourceType": "Observation", "status": "final", "code": {"text": "weight"}, "subject": {"reference": "urn:uuid:1"}}
ENTRIES = [
    {
        "fullUrl": "urn:uuid:1",
        "resource": {"resourceType": "Patient", "name": [{"family": "Both"}]},
        "request": {"method": "POST", "url": "Patient"},
    },
    {"resource": WEIGHT, "request": {"method": "POST", "url": "Observation"}},
]
"""A transaction: a patient and resources about them."""


@pytest.fixture
def clinic(sites: Any) -> Site:
    return sites(System(name="clinic", kind="fhir", seed=SEED))


@pytest.fixture(scope="session")
def clients(pytestconfig: pytest.Config) -> Path:
    """The `bin` of an environment with the clients for Python."""
    return install_from_index(Path(pytestconfig.cache.mkdir("live-fhir-clients")), *CLIENTS)  # type: ignore[union-attr]


def work(site: Site, *command: str | Path) -> list[str]:
    """Let a client do its work, and return the lines it prints."""
    output = run(*command, CLINIC_URL=site.variables["clinic_url"], CLINIC_TOKEN=site.place.token, ENTRIES=json.dumps(ENTRIES))
    return output.splitlines()


def list_observed(site: Site) -> list[str]:
    """Return whom the observations are about: one transaction alone left something."""
    resources = site.state().fhir.resources
    families = {f"Patient/{one['id']}": one["name"][0]["family"] for one in resources if one["resourceType"] == "Patient" and "name" in one}
    return [families[one["subject"]["reference"]] for one in resources if one["resourceType"] == "Observation"]


FHIRPY = """
import json
import os

from fhirpy import SyncFHIRClient
from fhirpy.base.exceptions import MultipleResourcesFound, OperationOutcome, ResourceNotFound

address, token = os.environ["CLINIC_URL"], "Bearer " + os.environ["CLINIC_TOKEN"]
client = SyncFHIRClient(address, authorization=token)
ann = client.resource("Patient", name=[{"family": "Müller", "given": ["Ann"]}], gender="female")
ann.save()
read = client.reference("Patient", ann.id).to_resource()
print(read.name[0].family, read.meta.versionId)
read["birthDate"] = "1980-02-01"
read.save()
print(read.meta.versionId, client.get("Patient", ann.id).birthDate)
read.patch(gender="other")
late = SyncFHIRClient(address, authorization=token, extra_headers={"If-Match": 'W/"1"'})
try:
    late.resource("Patient", **{**read, "gender": "male"}).save()
except MultipleResourcesFound as error:  # what this client calls every 412
    print(json.loads(str(error))["issue"][0]["code"])
found = client.resources("Patient").search(family="Smith").limit(2)
print(len(found.fetch()), [one.id for one in found.fetch_all()], found.count())
print([one.id for one in client.resources("Patient").search(identifier="urn:mrn|3").include("Patient", "organization").fetch()])
try:
    client.resources("Patient").search(family="Smith").get()
except MultipleResourcesFound:
    print("several")
numbered = client.resource("Patient", identifier=[{"system": "urn:mrn", "value": "99"}])
condition = client.resources("Patient").search(identifier="urn:mrn|99")
made, is_new = condition.update(numbered)
print(is_new, condition.update(numbered)[1])
entries = json.loads(os.environ["ENTRIES"])
bundle = client.resource("Bundle", type="transaction", entry=entries)
answered = client.execute("", method="post", data=bundle.serialize())
print([entry["response"]["status"] for entry in answered["entry"]])
seen = client.resources("Observation").search(subject__Patient__family="Both").first()
print(seen.subject.to_resource().name[0].family)
made.delete()
try:
    client.get("Patient", made.id)
except (ResourceNotFound, OperationOutcome) as error:
    print(type(error).__name__)
"""


def test_fhirpy_works_on_the_server(clinic: Site, clients: Path) -> None:
    assert work(clinic, clients / "python", "-c", FHIRPY) == [
        "Müller 1",
        "2 1980-02-01",
        "conflict",
        "2 ['p1', 'p2', 'p3', 'p4', 'p5'] 5",
        "['p3']",
        "several",
        "True False",
        "['201', '201']",
        "Both",
        "ResourceNotFound",
    ]
    assert list_observed(clinic) == ["Both"]


FHIRCLIENT = """
import json
import os

import requests
from fhirclient import client
from fhirclient.models.bundle import Bundle
from fhirclient.models.observation import Observation
from fhirclient.models.patient import Patient

smart = client.FHIRClient(settings={"app_id": "agent", "api_base": os.environ["CLINIC_URL"]})
server = smart.server
print(server.capabilityStatement.fhirVersion)
server.session.headers["Authorization"] = "Bearer " + os.environ["CLINIC_TOKEN"]
made = Patient({"name": [{"family": "Müller", "given": ["Ann"]}], "gender": "female"}).create(server)
ann = Patient.read(made["id"], server)
print(ann.name[0].family, ann.meta.versionId)
ann.gender = "other"
print(ann.update(server)["meta"]["versionId"])
server.session.headers["If-Match"] = 'W/"1"'
try:
    ann.update(server)
except requests.HTTPError as error:
    print(error.response.status_code, error.response.json()["issue"][0]["code"])
del server.session.headers["If-Match"]
search = Patient.where({"family": "Smith", "_count": "2"})
print(len(search.perform(server).entry), [one.id for one in search.perform_resources_iter(server)])
entries = json.loads(os.environ["ENTRIES"])
bundle = Bundle({"type": "transaction", "entry": entries})
answered = Bundle(server.post_json("", bundle.as_json()).json())
print(answered.type, [entry.response.status for entry in answered.entry])
(seen,) = Observation.where({"subject:Patient.family": "Both"}).perform_resources(server)
print(seen.subject.resolved(Patient).name[0].family)
ann.delete(server)
try:
    Patient.read(ann.id, server)
except requests.HTTPError as error:
    print(error.response.status_code)
"""


def test_fhirclient_works_on_the_server(clinic: Site, clients: Path) -> None:
    """Its models refuse everything but R4, and validate everything read here."""
    assert work(clinic, clients / "python", "-c", FHIRCLIENT) == [
        "4.0.1",
        "Müller 1",
        "2",
        "412 conflict",
        "2 ['p1', 'p2', 'p3', 'p4', 'p5']",
        "transaction-response ['201', '201']",
        "Both",
        "410",
    ]
    assert list_observed(clinic) == ["Both"]


KIT_CLIENT = """
import { Client } from "fhir-kit-client";

const client = new Client({ baseUrl: process.env.CLINIC_URL, bearerToken: process.env.CLINIC_TOKEN });
console.log((await client.capabilityStatement()).fhirVersion, (await client.smartAuthMetadata()).tokenUrl.pathname.endsWith("/token"));
const ann = await client.create({ resourceType: "Patient", body: { resourceType: "Patient", name: [{ family: "Müller" }] } });
const read = await client.read({ resourceType: "Patient", id: ann.id });
console.log(read.name[0].family, read.meta.versionId);
const update = (body, version) =>
  client.update({ resourceType: "Patient", id: ann.id, body, options: { headers: { "If-Match": `W/"${version}"` } } });
console.log((await update({ ...read, gender: "other" }, 1)).meta.versionId);
try {
  await update({ ...read, gender: "male" }, 1);
} catch (error) {
  console.log(error.response.status, error.response.data.issue[0].code);
}
const named = { resourceType: "Patient", id: ann.id };
console.log((await client.patch({ ...named, jsonPatch: [{ op: "replace", path: "/gender", value: "female" }] })).gender);
console.log((await client.vread({ ...named, version: "2" })).gender, (await client.history(named)).total);
const ids = [];
let page = await client.search({ resourceType: "Patient", searchParams: { family: "Smith", _count: 2 } });
while (page) {
  ids.push(page.entry.map((entry) => entry.resource.id).join("+"));
  page = await client.nextPage({ bundle: page });
}
console.log(ids.join(" "));
const posted = await client.search({ resourceType: "Patient", searchParams: { identifier: "urn:mrn|3" }, options: { postSearch: true } });
console.log(posted.total, posted.entry[0].resource.id);
const entry = JSON.parse(process.env.ENTRIES);
const bundle = (type, entry) => ({ resourceType: "Bundle", type, entry });
console.log((await client.transaction({ body: bundle("transaction", entry) })).entry.map((one) => one.response.status).join(" "));
try {
  await client.transaction({ body: bundle("transaction", [...entry, { request: { method: "DELETE", url: "Patient/nobody" } }]) });
} catch (error) {
  console.log(error.response.status, error.response.data.resourceType);
}
const seen = await client.search({ resourceType: "Observation", searchParams: { "subject:Patient.family": "Both" } });
const subject = await client.resolve({ reference: seen.entry[0].resource.subject.reference, context: seen });
console.log(seen.total, subject.name[0].family);
await client.delete({ resourceType: "Patient", id: ann.id });
try {
  await client.read({ resourceType: "Patient", id: ann.id });
} catch (error) {
  console.log(error.response.status, error.response.data.issue[0].code);
}
"""


def test_fhir_kit_client_works_on_the_server(clinic: Site, pytestconfig: pytest.Config) -> None:
    modules = install_from_npm(Path(pytestconfig.cache.mkdir("live-npm-fhir")), KIT)  # type: ignore[union-attr]
    program = modules.parent / "work.mjs"
    program.write_text(KIT_CLIENT, encoding="utf-8")
    assert work(clinic, "node", program) == [
        "4.0.1 true",
        "Müller 1",
        "2",
        "412 conflict",
        "female",
        "other 3",
        "p1+p2 p3+p4 p5",
        "1 p3",
        "201 201",
        "404 OperationOutcome",
        "1 Both",
        "410 deleted",
    ]
    assert list_observed(clinic) == ["Both"]
    assert "POST /Patient/_search" in [f"{one.method} {one.path}" for one in clinic.state().requests]
