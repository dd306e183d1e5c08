"""Both sides of CDS Hooks; `tests/sandboxes/test_outside.py` calls a real service over a wire."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from proctor.errors import SpecError
from proctor.simulators.exchange import Errand, Fetched, Request, Response
from tests.simulators.workplace import BASE, NOW, Workplace, read, refusal

CARD = {"summary": "Interaction", "indicator": "warning", "source": {"label": "Drugs"}}
SEED: dict[str, Any] = {
    "fhir_server": "http://ehr.example/fhir",
    "services": [
        {
            "id": "interactions",
            "hook": "order-select",
            "title": "Interactions",
            "cards": [
                {"when": {"context.patientId": "ann"}, **CARD},
                {"summary": "Always"},
                {"when": {"context.patientId": {"$regex": "^bo"}, "context.draft": None}, "summary": "Of Bob"},
            ],
        },
        {"id": "greeter", "hook": "patient-view", "cards": [{"summary": "Hello"}]},
    ],
}


@pytest.fixture
def ehr() -> Workplace:
    return Workplace("cds", SEED)


def summaries(ehr: Workplace) -> list[tuple[str, str, str]]:
    state = ehr.state()
    assert state.cds is not None
    return [(card["hook"], card["service"], card["summary"]) for card in state.cds.cards]


class Agent:
    """The agent's service, without a wire."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, str, Any]] = []

    async def fetch(self, errand: Errand) -> Fetched:
        self.requests.append((errand.method, errand.url, msgspec.json.decode(errand.body) if errand.body else None))
        answer = self.answers.get(errand.url)
        if answer is None:
            return Fetched(url=errand.url, problem="the service cannot be reached")
        return Fetched(url=errand.url, status=200, body=answer if isinstance(answer, bytes) else msgspec.json.encode(answer))

    def ask(self, ehr: Workplace, path: str, body: Any) -> Response:
        request = Request(method="POST", path=path, body=msgspec.json.encode(body), base=BASE)
        return asyncio.run(ehr.sandbox.handle("cds", request, fetch=self.fetch))


def test_a_hook_is_answered_by_the_services_of_the_suite(ehr: Workplace) -> None:
    answer = read(ehr.ask("POST", "/hooks/order-select", {"patient_id": "ann", "user_id": "Practitioner/1"}))
    assert [card["summary"] for card in answer["cards"]] == ["Interaction", "Always"] and answer["problems"] == []
    assert [card["summary"] for card in read(ehr.ask("POST", "/hooks/order-select", {"patient_id": "bob"}))["cards"]] == [
        "Always",
        "Of Bob",
    ]
    assert read(ehr.ask("POST", "/hooks/order-sign", {}))["cards"] == []
    assert summaries(ehr)[0] == ("order-select", "interactions", "Interaction")


def test_feedback_is_stored_with_its_card(ehr: Workplace) -> None:
    card = read(ehr.ask("POST", "/hooks/patient-view", {}))["cards"][0]["uuid"]
    assert read(ehr.ask("POST", "/feedback", {"card": card, "outcome": "overridden", "reason": "known"}))["feedback"] == "overridden"
    state = ehr.state()
    assert state.cds is not None and state.cds.cards[0]["feedback_reason"] == "known"
    assert refusal(ehr.ask("POST", "/feedback", {"card": card, "outcome": "liked"})) == (422, "wrong_value")
    assert refusal(ehr.ask("POST", "/feedback", {"card": "x", "outcome": "ignored"})) == (404, "not_found")


def test_an_agent_as_the_ehr_calls_the_services_by_the_specification(ehr: Workplace) -> None:
    assert [one["id"] for one in ehr.get("/cds-services")["services"]] == ["interactions", "greeter"]
    request = {"hook": "order-select", "hookInstance": "d1577c69-dfbe-44ad-ba6d-3e05e953b2ea", "context": {"patientId": "ann"}}
    cards = read(ehr.ask("POST", "/cds-services/interactions", request))["cards"]
    assert [card["summary"] for card in cards] == ["Interaction", "Always"]
    given = {"feedback": [{"card": cards[0]["uuid"], "outcome": "accepted"}]}
    assert ehr.ask("POST", "/cds-services/interactions/feedback", given).status == 200
    state = ehr.state()
    assert state.cds is not None and [card.get("feedback") for card in state.cds.cards] == ["accepted", None]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/cds-services/nothing", {}, 404, "not_found"),
        ("/cds-services/interactions", {"hook": "patient-view"}, 400, "wrong_hook"),
        ("/cds-services/interactions", {"hook": "order-select"}, 400, "wrong_request"),
        ("/cds-services/interactions/feedback", {"feedback": []}, 400, "wrong_request"),
        ("/cds-services/interactions/feedback", {"feedback": [{"card": "x", "outcome": "accepted"}]}, 404, "not_found"),
        ("/cds-services", {}, 405, "method_not_allowed"),
        ("/hooks/Patient View", {}, 422, "wrong_value"),
        ("/hooks/patient-view", b"[", 400, "bad_json"),
        ("/services", {"discovery_url": "ftp://x"}, 422, "wrong_value"),
        ("/services", {}, 422, "wrong_value"),
        ("/services", {"discovery_url": "http://a.example/", "services_url": "x"}, 422, "wrong_value"),
        ("/services", {"discovery_url": "http://a.example/cds-services"}, 422, "discovery_failed"),
        ("/what", {}, 404, "not_found"),
    ],
)
def test_impossible_requests_are_refused(ehr: Workplace, path: str, body: Any, status: int, code: str) -> None:
    assert refusal(ehr.ask("POST", path, body)) == (status, code)
    assert ehr.state().changes == ()


def test_the_service_of_the_agent_is_registered_and_called(ehr: Workplace) -> None:
    place = "http://agent.example/cds-services"
    agent = Agent({place: {"services": [{"id": "mine", "hook": "patient-view"}]}, f"{place}/mine": {"cards": [CARD, {"summary": "x"}]}})
    assert agent.ask(ehr, "/services", {"discovery_url": place}).status == 201
    answer = read(agent.ask(ehr, "/hooks/patient-view", {"patient_id": "ann", "prefetch": {"patient": {"id": "ann"}}}))
    assert [card["summary"] for card in answer["cards"]] == ["Hello", "Interaction"]
    assert answer["problems"] == ["mine: cards.1: indicator: expected one of info, warning, critical, found null"]
    _, (method, url, request) = agent.requests
    assert (method, url) == ("POST", f"{place}/mine")
    assert (request["hook"], request["context"], request["fhirServer"]) == ("patient-view", {"patientId": "ann"}, "http://ehr.example/fhir")
    assert request["prefetch"] == {"patient": {"id": "ann"}} and len(request["hookInstance"]) == 36
    assert summaries(ehr) == [("patient-view", "greeter", "Hello"), ("patient-view", "mine", "Interaction")]
    assert {one["id"]: one["url"] for one in ehr.get("/services")["services"]}["mine"] == f"{place}/mine"
    assert len(ehr.state().requests or ()) == 3, "requests to outside are not counted"


def test_feedback_reaches_the_service_that_answered_the_card(ehr: Workplace) -> None:
    discovery, place = "http://agent.example/cds-discovery", "http://agent.example/services"
    services = {"services": [{"id": "mine", "hook": "order-sign"}]}
    agent = Agent({discovery: services, f"{place}/mine": {"cards": [CARD]}, f"{place}/mine/feedback": {}})
    assert agent.ask(ehr, "/services", {"discovery_url": discovery, "services_url": place}).status == 201
    (card,) = read(agent.ask(ehr, "/hooks/order-sign", {}))["cards"]
    answer = read(agent.ask(ehr, "/feedback", {"card": card["uuid"], "outcome": "overridden", "reason": {"code": "known"}}))
    assert (answer["feedback"], answer["delivered"], answer["problems"]) == ("overridden", True, [])
    one = {"card": card["uuid"], "outcome": "overridden", "outcomeTimestamp": NOW, "overrideReason": {"code": "known"}}
    assert agent.requests[-1] == ("POST", f"{place}/mine/feedback", {"feedback": [one]})
    unheard = read(Agent({}).ask(ehr, "/feedback", {"card": card["uuid"], "outcome": "accepted"}))
    assert (unheard["feedback"], unheard["delivered"], unheard["problems"]) == ("accepted", False, ["the service cannot be reached"])
    assert "delivered" not in read(agent.ask(ehr, "/feedback", {"card": card["uuid"], "outcome": "ignored"}))


@pytest.mark.parametrize("answer", [b"{", {"services": 1}, {"services": [{}]}, [], {"services": [{"id": "", "hook": "x"}]}])
def test_an_invalid_discovery_registers_nothing(ehr: Workplace, answer: Any) -> None:
    agent = Agent({"http://a.example/cds-services": answer})
    assert refusal(agent.ask(ehr, "/services", {"discovery_url": "http://a.example/cds-services"})) == (422, "discovery_failed")
    assert len(ehr.get("/services")["services"]) == 2


@pytest.mark.parametrize(
    ("answer", "problem"), [(b"x", "no list of cards"), ({"cards": [1]}, "a card is an object"), (None, "cannot be reached")]
)
def test_a_service_without_cards_is_reported_and_the_others_are_used(ehr: Workplace, answer: Any, problem: str) -> None:
    place = "http://a.example/cds-services"
    agent = Agent({place: {"services": [{"id": "mine", "hook": "patient-view"}]}, f"{place}/mine": answer})
    agent.ask(ehr, "/services", {"discovery_url": place})
    reply = read(agent.ask(ehr, "/hooks/patient-view", {}))
    assert [card["summary"] for card in reply["cards"]] == ["Hello"] and problem in reply["problems"][0]


@pytest.mark.parametrize(
    ("service", "message", "place"),
    [
        ({"id": "a"}, "hook is missing", "services.0"),
        ({"id": "a", "hook": "patient view"}, "the name of a hook", "services.0.hook"),
        ({"id": "a", "hook": "b", "cards": [{"summary": "x" * 141}]}, "140", "services.0.cards.0"),
        ({"id": "a", "hook": "b", "cards": [{"summary": "x", "indicator": "bad"}]}, "indicator", "services.0.cards.0"),
        ({"id": "a", "hook": "b", "cards": [{"when": [], "summary": "x"}, {"when": 1}]}, "expected an object", "services.0.cards.1.when"),
    ],
)
def test_an_unusable_seed_is_refused_at_its_place(service: Any, message: str, place: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Workplace("cds", {"services": [service]})
    assert caught.value.field == f"cds.seed.{place}"


def test_two_services_of_a_suite_have_two_names() -> None:
    service = {"id": "a", "hook": "patient-view"}
    with pytest.raises(SpecError, match="twice") as caught:
        Workplace("cds", {"services": [service, service]})
    assert caught.value.field == "cds.seed.services.1.id"


def test_an_agent_cannot_replace_a_service_of_the_suite(ehr: Workplace) -> None:
    place = "http://a.example/cds-services"
    agent = Agent({place: {"services": [{"id": "greeter", "hook": "patient-view"}]}})
    assert refusal(agent.ask(ehr, "/services", {"discovery_url": place})) == (409, "name_taken")
    assert [card["summary"] for card in read(agent.ask(ehr, "/hooks/patient-view", {}))["cards"]] == ["Hello"]


def test_a_repeated_card_does_not_replace_the_earlier_one(ehr: Workplace) -> None:
    place = "http://a.example/cds-services"
    services = {"services": [{"id": "mine", "hook": "order-sign"}]}
    for summary in ("Critical", "Harmless"):
        agent = Agent({place: services, f"{place}/mine": {"cards": [{**CARD, "summary": summary, "uuid": "same"}]}})
        agent.ask(ehr, "/services", {"discovery_url": place})
        agent.ask(ehr, "/hooks/order-sign", {})
    assert read(ehr.ask("POST", "/feedback", {"card": "same", "outcome": "ignored"}))["summary"] == "Harmless"
    assert [summary for _, _, summary in summaries(ehr)] == ["Critical", "Harmless"]


def test_services_beyond_the_limit_are_reported_and_the_others_are_used(ehr: Workplace) -> None:
    place = "http://a.example/cds-services"
    names = [f"s{number}" for number in range(25)]
    answers: dict[str, Any] = {f"{place}/{name}": {"cards": [CARD] * 101} for name in names}
    agent = Agent({place: {"services": [{"id": name, "hook": "order-sign"} for name in names]}, **answers})
    assert agent.ask(ehr, "/services", {"discovery_url": place}).status == 201
    answer = read(agent.ask(ehr, "/hooks/order-sign", {}))
    assert (len(answer["cards"]), len(answer["problems"])) == (20 * 101, 5)
    assert "one request asks at most 20" in answer["problems"][0]
