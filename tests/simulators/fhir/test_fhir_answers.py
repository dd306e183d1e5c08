"""Answers to unsupported FHIR requests: refused or reported, and never more results than requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.errors import CheckFault
from proctor.evidence.reading import read_document
from proctor.model.evidence import Evidence
from tests.simulators.workplace import BASE, Workplace, read

SEED: list[dict[str, Any]] = [
    {
        "resourceType": "Patient",
        "id": "ann",
        "text": {"status": "generated", "div": "<div/>"},
        "name": [{"family": "Smith"}],
        "birthDate": "1980-05-01",
    },
    {"resourceType": "Patient", "id": "bob", "gender": "male"},
    {"resourceType": "Observation", "id": "o1", "status": "final", "code": {"text": "x"}, "subject": {"reference": "Patient/ann"}},
]
FORM = "application/x-www-form-urlencoded"
BOOKED = {"resourceType": "Appointment", "id": "a1", "status": "booked"}


@pytest.fixture
def clinic() -> Workplace:
    return Workplace("fhir", SEED)


def list_ids(bundle: Any) -> list[str]:
    return [entry["resource"]["id"] for entry in bundle.get("entry", []) if entry["search"]["mode"] == "match"]


def read_message(response: Any) -> str:
    body = read(response)
    assert body["resourceType"] == "OperationOutcome"
    return body["issue"][0]["diagnostics"]


def decide(clinic: Workplace, evidence: Evidence | None = None, **spec: Any) -> str:
    entry = default_registry().get("fhir_resource")
    return entry.prepare(msgspec.convert(spec, entry.spec))(evidence or Evidence(state=clinic.state())).outcome


# --- a Bundle is a resource like any other -----------------------------------------------------------------------------


def test_entries_of_a_posted_bundle_are_not_found(clinic: Workplace) -> None:
    bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [{"resource": BOOKED}]}
    made = clinic.ask("POST", "/Bundle", bundle)
    assert made.status == 201
    assert clinic.get("/Appointment?status=booked")["total"] == 0
    assert decide(clinic, resource_type="Appointment", search={"status": "booked"}) == "fail", "the check finds what the server finds"
    assert list_ids(clinic.get("/Bundle?_lastUpdated=ge2026")) == [read(made)["id"]]
    assert decide(clinic, resource_type="Bundle", search={"_id": read(made)["id"]}) == "pass"


def test_the_state_of_a_server_reads_the_same_when_it_was_recorded(clinic: Workplace) -> None:
    clinic.ask("POST", "/Bundle", {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": BOOKED}]})
    state = msgspec.to_builtins(clinic.state())
    (evidence,) = read_document({"text": "ok", "state": state}, format="plain")
    assert evidence.state == clinic.state()
    assert decide(clinic, evidence, resource_type="Appointment") == "fail"
    (uploaded,) = read_document({"text": "ok", "state": {"fhir": {"resources": state["fhir"]["resources"]}}}, format="plain")
    assert decide(clinic, uploaded, resource_type="Appointment") == "pass", "what was uploaded is opened, as ever"


# --- conditions without a value ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/Patient?name=", "/Patient?name=Zed,", "/Patient?name=,"])
@pytest.mark.parametrize("method", ["DELETE", "PATCH"])
def test_a_condition_without_a_value_changes_nothing(clinic: Workplace, method: str, target: str) -> None:
    answer = clinic.ask(method, target, {"gender": "other"}, content_type="application/merge-patch+json")
    assert answer.status == 400
    assert "name: expected a value" in read_message(answer)
    assert clinic.get("/Patient")["total"] == 2
    assert not clinic.state().changes


@pytest.mark.parametrize("target", ["/Patient?name=Zed,", "/Patient?bogus", "/Patient?nam=Smith"])
def test_a_meaningless_search_is_refused(clinic: Workplace, target: str) -> None:
    assert clinic.ask("GET", target).status == 400


def test_an_unknown_parameter_is_reported_with_the_nearest(clinic: Workplace) -> None:
    assert read_message(clinic.ask("GET", "/Patient?famly=Smith")).endswith("nearest: family")


def test_a_form_is_a_form(clinic: Workplace) -> None:
    answer = clinic.ask("POST", "/Patient/_search", {"name": "Zed"}, content_type="application/json")
    assert (answer.status, FORM in read_message(answer)) == (415, True)
    assert read(clinic.ask("POST", "/Patient/_search", b"name=Zed", content_type=FORM))["total"] == 0
    assert read(clinic.ask("POST", "/Patient/_search", b"name=Smith", content_type=f"{FORM}; charset=utf-8"))["total"] == 1


@pytest.mark.parametrize("query", ["_unheard=9", "name=", "_summary=true", "_include:iterate=Observation:subject"])
def test_ignored_parameters_are_reported_or_refused(clinic: Workplace, query: str) -> None:
    bundle = clinic.get(f"/Patient?{query}")
    (outcome,) = [entry["resource"] for entry in bundle["entry"] if entry["search"]["mode"] == "outcome"]
    assert outcome["issue"][0]["severity"] == "warning"
    assert query.partition("=")[0] in outcome["issue"][0]["diagnostics"]
    assert len(list_ids(bundle)) == bundle["total"] == 2
    assert clinic.ask("GET", f"/Patient?{query}", prefer="handling=strict").status == 400


@pytest.mark.parametrize("name", ["_has:Observation:patient:code", "_filter", "_text", "_content", "_list", "_query", "_contained"])
def test_server_and_check_agree_on_unsupported_parameters(clinic: Workplace, name: str) -> None:
    assert clinic.ask("GET", f"/Patient?{name}=9").status == 400
    with pytest.raises(CheckFault):
        decide(clinic, resource_type="Patient", search={name: "9"})


INVALID = [
    ({"status": "boked", "participant": [{"status": "accepted"}]}, "value", "Appointment.status"),
    ({"status": "booked"}, "required", "Appointment.participant"),
    ({"status": "booked", "participant": [{"actor": {"reference": "Patient/ann"}}]}, "required", "Appointment.participant[0].status"),
    ({"status": "booked", "participant": [{"status": "accepted"}], "patient": "ann"}, "structure", "Appointment.patient"),
    ({"status": "booked", "participant": [{"status": "accepted"}], "minutesDuration": "20"}, "value", "Appointment.minutesDuration"),
    ({"status": "booked", "participant": [{"status": "accepted"}], "start": "2026-11-20"}, "value", "Appointment.start"),
    ({"status": "booked", "participant": ["Patient/ann"]}, "structure", "Appointment.participant[0]"),
    # Another element whose name begins alike is not the required one, except for a choice of types.
    (
        {
            "resourceType": "Encounter",
            "statusHistory": [{"status": "planned", "period": {"start": "2026-11-20"}}],
            "class": {"code": "AMB"},
        },
        "required",
        "Encounter.status",
    ),
    ({"resourceType": "MedicationRequest", "status": "active", "intent": "order"}, "required", "MedicationRequest.medication[x]"),
]


@pytest.mark.parametrize(("body", "code", "place"), INVALID)
def test_an_invalid_resource_is_refused_by_a_validating_server(body: dict[str, Any], code: str, place: str) -> None:
    server = Workplace("fhir", {"validate": True, "resources": [{"resourceType": "Patient", "id": "ann"}]})
    resource = {"resourceType": "Appointment", **body}
    transaction = {
        "resourceType": "Bundle",
        "type": "transaction",
        "entry": [{"resource": resource, "request": {"method": "POST", "url": resource["resourceType"]}}],
    }
    answer = server.ask("POST", f"/{resource['resourceType']}", resource)
    outcome = read(answer)
    assert (answer.status, outcome["resourceType"]) == (422, "OperationOutcome")
    assert (code, [place]) in [(issue["code"], issue["expression"]) for issue in outcome["issue"]]
    assert server.ask("POST", "/", transaction).status == 422
    assert [one["resourceType"] for one in server.state().fhir.resources] == ["Patient"]  # type: ignore[union-attr]


def test_valid_resources_are_accepted_by_a_validating_server() -> None:
    server = Workplace("fhir", {"validate": True})
    for path in sorted(Path("tests/codecs/samples/fhir").glob("*.json")):
        resource = msgspec.json.decode(path.read_bytes())
        answer = server.ask("PUT", f"/{resource['resourceType']}/{resource['id']}", resource)
        assert answer.status in (200, 201), (path, read(answer))


def test_a_wrong_value_is_reported_with_its_parameter_and_a_valid_form(clinic: Workplace) -> None:
    message = read_message(clinic.ask("GET", "/Patient?birthdate=xx2020"))
    assert message == 'birthdate: not a FHIR date: "xx2020"; write 2026, 2026-11, 2026-11-15 or 2026-11-15T09:00:00Z'


# --- requirements of an answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/Patient?_format=xml", "/Patient/ann?_format=application/fhir%2Bxml"])
def test_a_client_that_accepts_no_json_is_refused(clinic: Workplace, target: str) -> None:
    assert clinic.ask("GET", target).status == 406
    assert clinic.ask("GET", "/Patient/ann", accept="application/fhir+xml").status == 406
    assert clinic.ask("GET", "/Patient/ann?_format=json", accept="application/fhir+xml").status == 200
    assert clinic.ask("GET", "/Patient/ann", accept="application/fhir+xml;q=0.5, */*;q=0.1").status == 200


@pytest.mark.parametrize("query", ["_summary=nonsense", "_total=nonsense", "_offset=x"])
def test_an_option_has_one_of_its_values(clinic: Workplace, query: str) -> None:
    assert clinic.ask("GET", f"/Patient?{query}").status == 400
    assert clinic.ask("GET", f"/Patient/ann?{query}").status == 400


def test_a_part_of_a_resource_is_marked_as_one(clinic: Workplace) -> None:
    whole = {"resourceType", "id", "meta", "text", "name", "birthDate"}
    for query, members in (("_summary=data", whole - {"text"}), ("_summary=text", whole - {"name", "birthDate"}), ("_elements=name", None)):
        found = clinic.get(f"/Patient/ann?{query}")
        assert set(found) == (members or {"resourceType", "id", "meta", "name"})
        assert found["meta"]["tag"][0]["code"] == "SUBSETTED"
    assert set(clinic.get("/Patient/ann?_summary=false")) == whole


def test_a_head_is_a_get_without_its_answer(clinic: Workplace) -> None:
    answer = clinic.ask("HEAD", "/Patient/ann")
    assert (answer.status, answer.body, answer.headers["etag"]) == (200, b"", 'W/"1"')
    assert clinic.ask("HEAD", "/Patient/nobody").status == 404


def test_history_is_answered_in_pages_and_since_a_moment(clinic: Workplace) -> None:
    for family in ("Jones", "Brown"):
        clinic.ask("PUT", "/Patient/ann", {"resourceType": "Patient", "id": "ann", "name": [{"family": family}]})
    etags: list[list[str]] = []
    path = "/Patient/ann/_history?_count=1&_since=2026"
    while path:
        page = clinic.get(path)
        assert page["total"] == 3
        etags.append([entry["response"]["etag"] for entry in page["entry"]])
        path = next((link["url"].removeprefix(BASE) for link in page["link"] if link["relation"] == "next"), "")
    assert etags == [['W/"3"'], ['W/"2"'], ['W/"1"']]
    assert clinic.get("/Patient/ann/_history?_since=2099-01-01T00:00:00Z")["total"] == 0
    assert clinic.get("/Patient/ann/_history?_since=2026")["total"] == 3
    assert clinic.ask("GET", "/Patient/ann/_history?_since=soon").status == 400
    assert clinic.get("/Patient/ann/_history?_at=2026")["entry"][-1]["search"]["mode"] == "outcome"
    assert clinic.ask("GET", "/Patient/ann/_history?_at=2026", prefer="handling=strict").status == 400


# --- versions ----------------------------------------------------------------------------------------------------------


def test_an_update_conditional_on_absence_replaces_nothing(clinic: Workplace) -> None:
    ann = {"resourceType": "Patient", "id": "ann"}
    assert clinic.ask("PUT", "/Patient/ann", ann, if_none_match="*").status == 412
    assert clinic.ask("PUT", "/Patient?name=Smith", ann, if_none_match="*").status == 412
    assert clinic.ask("PUT", "/Patient/new", {**ann, "id": "new"}, if_none_match="*").status == 201
    assert clinic.ask("PUT", "/Patient/ann", ann, if_match="*").status == 200
    assert clinic.ask("PUT", "/Patient/ann", ann, if_match='W/"9", W/"2"').status == 200
    assert clinic.ask("PUT", "/Patient/nobody", {**ann, "id": "nobody"}, if_match="*").status == 412


def test_a_meta_value_that_is_no_object_is_refused(clinic: Workplace) -> None:
    assert clinic.ask("PUT", "/Patient/ann", {"resourceType": "Patient", "id": "ann", "meta": "x"}).status == 422


# --- claims that would pass for any result ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"search": {"_count": "1"}, "count": 1},
        {"search": {"_count": "1"}, "match": "exactly_one"},
        {"search": {"_count": "0"}, "absent": True},
    ],
)
def test_a_number_that_count_decides_is_refused(clinic: Workplace, spec: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="_count"):
        decide(clinic, resource_type="Patient", **spec)
    assert decide(clinic, resource_type="Patient", search={"_sort": "-_id", "_count": "1"}) == "pass", "the last one alone may be looked at"


def test_a_condition_of_a_check_has_a_value(clinic: Workplace) -> None:
    with pytest.raises(Exception, match="name: expected a value, found nothing"):
        decide(clinic, resource_type="Patient", search={"name": ""})


@pytest.mark.parametrize("claim", [{"absent": True}, {"count": 0}])
def test_absence_of_a_type_unknown_to_r4_is_no_pass(clinic: Workplace, claim: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="nearest: Appointment"):
        decide(clinic, resource_type="Apointment", **claim)
    assert decide(clinic, resource_type="Appointment", **claim) == "pass"
