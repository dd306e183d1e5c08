"""Every kind of simulated system on the service: filled, worked in with the token of a run, verified by the claim that is made for it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from proctor.simulators.ports import list_kinds
from proctor.simulators.seeds import find_kind
from tests.rest.agent_site import AgentSite
from tests.rest.services import ADDRESS, Clock, Service
from tests.rest.verial import Author
from tests.rest.verification.test_sandboxes import Agent
from tests.simulators.workplace import find_own_tests

ADT = "MSH|^~\\&|A|B|C|D|20261116||ADT^A04|7|P|2.5\rPID|1||{}||Smith^Ann\r"
PRIOR_AUTH = {"provider_npi": "1234567893", "procedure_code": "70551", "diagnosis_code": "M54.5", "urgency": "standard"}
PAYER = {"portal": "radmd", "determinations": [{"procedure_code": "70551", "status": "approved"}]}
CARD = {"summary": "Interaction", "indicator": "warning", "source": {"label": "Drugs"}}
LINES = [{"number": "+18005550100", "opening": "Member services.", "answers": [{"when": ["w1"], "say": "Active."}]}]
Work = Callable[[Agent], Any]


class Row(NamedTuple):
    type: str
    """The type as one of Verial's clients writes it, or ours."""
    criterion: dict[str, Any]
    right: Work
    wrong: Work
    config: dict[str, Any] | None = None
    data: Any = None
    """Of a dataset."""


def post(name: str, path: str, body: Any) -> Work:
    return lambda agent: agent.ask("POST", agent.at(name, path), body)


def call(text: str) -> Work:
    def work(agent: Agent) -> None:
        made = agent.ask("POST", agent.at("voice", "/calls"), {"to": "+18005550100"})
        agent.ask("POST", agent.at("voice", f"/calls/{made['id']}/turns"), {"say": text})

    return work


ROWS = {
    "fhir": Row(
        "Fhir",
        {"assert": "fhir-resource-state", "resource_type": "Patient", "search": {"family": "Smith"}, "match": "exactly_one"},
        post("fhir", "/Patient", {"resourceType": "Patient", "name": [{"family": "Smith"}]}),
        post("fhir", "/Patient", {"resourceType": "Patient", "name": [{"family": "Jones"}]}),
    ),
    "files": Row(
        "SFTP",
        {"assert": "sftp-file-present", "path": "outbound/*.json", "fields": [{"path": "claim", "expected": "C-17"}]},
        lambda agent: agent.ask("PUT", agent.at("files", "/outbound/a.json"), b'{"claim": "C-17"}'),
        lambda agent: agent.ask("PUT", agent.at("files", "/outbound/a.json"), b'{"claim": "C-18"}'),
    ),
    "records": Row(
        "records",
        {"assert": "records-match", "collection": "orders", "where": {"id": 1}, "fields": [{"path": "status", "expected": "paid"}]},
        lambda agent: agent.ask("PATCH", agent.at("records", "/orders/1"), {"status": "paid"}),
        lambda agent: agent.ask("PATCH", agent.at("records", "/orders/1"), {"status": "lost"}),
        config={"seed": {"orders": [{"id": 1, "status": "open"}]}},
    ),
    "hl7": Row(
        "HL7",
        {"assert": "hl7-structural", "correlate_by": {"message_type": "ADT"}, "fields": [{"path": "PID.3", "expected": "W1"}]},
        post("hl7", "/outbound", {"payload": ADT.format("W1")}),
        post("hl7", "/outbound", {"payload": ADT.format("W2")}),
        config={"accepts": ["ADT"]},
        data=[ADT.format("W0")],
    ),
    "x12": Row(
        "Clearinghouse",
        {"assert": "x12-response", "transaction": "271", "fields": [{"path": "NM1[IL].9", "expected": "W1"}]},
        post("x12", "/eligibility", {"patient_id": "ann"}),
        post("x12", "/eligibility", {"patient_id": "bob"}),
        config={"payer": {"name": "Acme", "id": "60054"}},
        data={"members": [{"patient_id": "ann", "member_id": "W1", "first_name": "Ann", "last_name": "Smith"}]},
    ),
    "messages": Row(
        "Message",
        {"assert": "message-sent", "channel": "sms", "to": "+15550101", "contains": ["tuesday"]},
        post("messages", "", {"channel": "sms", "patient_id": "ann", "body": "Tuesday at ten"}),
        post("messages", "", {"channel": "sms", "patient_id": "ann", "body": "Monday at ten"}),
        data={"people": [{"id": "ann", "phone": "+15550101", "answers": ["Fine."]}]},
    ),
    "voice": Row(
        "Voice",
        {"assert": "voice-transcript", "speaker": "agent", "contains": ["member W1"]},
        call("It is member W1."),
        call("It is nobody."),
        config={"lines": LINES},
    ),
    "fax": Row(
        "Fax",
        {"assert": "fax-document", "to": "+15550222", "contains": ["referral for Ann"]},
        post("fax", "/faxes", {"to_number": "+15550222", "patient_id": "ann", "document_type": "referral", "text": "Referral for Ann"}),
        post("fax", "/faxes", {"to_number": "+15550222", "patient_id": "bob", "document_type": "referral", "text": "Referral for Bob"}),
        config={"number": "+15550200"},
    ),
    "portal": Row(
        "Payer",
        {
            "assert": "portal-state-match",
            "correlate_by": {"resource": "prior_auth_requests", "key": "patient_member_id", "value": "W1"},
            "assertions": [{"path": "status", "expected": "approved"}],
        },
        post("portal", "/api/prior-auths", {"patient_member_id": "W1", **PRIOR_AUTH}),
        post("portal", "/api/prior-auths", {"patient_member_id": "W1", **PRIOR_AUTH, "procedure_code": "70552"}),
        config=PAYER,
        data={"patients": [{"member_id": "W1", "name": "Ann Smith"}]},
    ),
    "cds": Row(
        "CDS Hooks",
        {"assert": "cds-card", "hook": "order-select", "indicator": "warning"},
        post("cds", "/hooks/order-select", {"patient_id": "ann"}),
        post("cds", "/hooks/patient-view", {"patient_id": "ann"}),
        config={"services": [{"id": "drugs", "hook": "order-select", "cards": [CARD]}]},
    ),
}


def send(kind: str, method: str, path: str, body: Any) -> Work:
    return lambda agent: agent.ask(method, agent.at(kind, path), body)


for _kind, _module in find_own_tests(ROWS).items():
    _works = (send(_kind, *_module.RIGHT), send(_kind, *_module.WRONG))
    ROWS[_kind] = Row(_kind, _module.CRITERION, *_works, config={"seed": _module.SEED})


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service, service.keys()["organization"])


def start(author: Author, row: Row, **task: Any) -> Agent:
    """An agent whose task is started in a system of this row."""
    environment = author.post("/environments", {"name": row.type})
    simulator = author.post("/simulators", {"name": row.type, "type": row.type, "config": row.config})
    author.post(f"/environments/{environment['id']}/simulators/{simulator['id']}")
    if row.data is not None:
        dataset = author.post("/datasets", {"name": row.type, "type": row.type, "data": row.data})
        author.post(f"/environments/{environment['id']}/datasets/{dataset['id']}")
    benchmark = author.benchmark(f"Work with {row.type}", environment_id=environment["id"])
    author.criterion(author.task(benchmark, "work", **task), row.criterion)
    agent = Agent(author, author.post(f"/benchmarks/{benchmark['id']}/publish")["reference"])
    agent.start()
    return agent


def test_every_kind_there_is_has_a_row() -> None:
    assert sorted(ROWS) == sorted(list_kinds()), "a kind has a row here, or SEED, CRITERION, RIGHT and WRONG in its test file"


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ROWS)
def test_right_work_passes_its_criterion_and_wrong_or_no_work_fails_it(author: Author, kind: str) -> None:
    row = ROWS[kind]
    verdicts: list[Any] = []
    for work in (row.right, row.wrong, lambda agent: None):
        agent = start(author, row)
        (sandbox,) = agent.run["sandboxes"]
        assert find_kind(sandbox["type"]) == kind and agent.run["endpoints"][kind].endswith(f"/{kind}")
        work(agent)
        events = author.get(f"/sandboxes/{sandbox['id']}/events")["data"]
        assert all(event["system"] == kind and event["status"] < 300 for event in events)
        verdicts.append(agent.complete()["verdict"])
    assert verdicts == ["pass", "fail", "fail"]


# --- how they are filled and reached ----------------------------------------------------------------------------------


def sandbox(author: Author, type: str, config: Any = None) -> dict[str, Any]:
    simulator = author.post("/simulators", {"name": type, "type": type, "config": config})
    return author.post("/sandboxes", {"simulator_id": simulator["id"]}, status=201)


def add_dataset(author: Author, made: dict[str, Any], data: Any) -> None:
    dataset = author.post("/datasets", {"name": "more", "type": made["type"], "data": data})
    author.post(f"/sandboxes/{made['id']}/datasets/{dataset['id']}", status=201)


def test_data_loaded_later_removes_nothing(author: Author) -> None:
    portal = sandbox(author, "Payer", PAYER)
    root = f"/sandboxes/{portal['id']}/portal/api"
    for member in ("W1", "W2"):
        add_dataset(author, portal, {"patients": [{"member_id": member}]})
    made = author.post(f"{root}/prior-auths", {"patient_member_id": "W2", **PRIOR_AUTH})
    assert made["status"] == "approved" and len(author.get(f"{root}/patients")["patients"]) == 2

    x12 = sandbox(author, "X12", {"payer": {"name": "Acme", "id": "1"}, "seed": {"members": [{"member_id": "W0"}]}})
    add_dataset(author, x12, {"members": [{"member_id": "W1"}]})
    add_dataset(author, x12, {"claims": [{"claim_number": "C-1", "member_id": "W1"}]})
    for member in ("W0", "W1"):
        answer = author.post(f"/sandboxes/{x12['id']}/clearinghouse/eligibility", {"patient_id": member})
        assert (answer["active"], answer["payer"]) == (True, "Acme")

    hl7 = sandbox(author, "HL7", {"accepts": ["ORU"]})
    add_dataset(author, hl7, [ADT.format("W0")])
    assert author.post(f"/sandboxes/{hl7['id']}/hl7/outbound", {"payload": ADT.format("W1")})["accepted"] is False
    assert len(author.get(f"/sandboxes/{hl7['id']}/hl7/inbox")["messages"]) == 1
    events = author.get(f"/sandboxes/{hl7['id']}/events")["data"]
    assert [event["type"] for event in events] == ["request", "hl7_outbound", "step"]
    assert events[1]["body"] == {"payload": ADT.format("W1")}

    people = sandbox(author, "Message", {"phone": "+15550199"})
    for id in ("ann", "bob"):
        add_dataset(author, people, {"people": [{"id": id, "phone": "+15550101" if id == "ann" else "+15550102"}]})
    sent = author.post(f"/sandboxes/{people['id']}/messages", {"channel": "sms", "patient_id": "ann", "body": "Hello"}, status=201)
    assert (sent["to"], sent["from"], sent["body"]) == ("+15550101", "+15550199", "Hello")


def test_the_paths_of_verials_clients_lead_to_the_same_systems(author: Author) -> None:
    fax = sandbox(author, "Fax")
    root = f"/sandboxes/{fax['id']}/faxes"
    sent = author.post(root, {"patient_id": "ann", "to_number": "+15550222", "document_type": "referral", "text": "Hello"}, status=201)
    assert author.get(f"{root}/{sent['id']}")["text"] == author.get(f"{fax['credentials']['fax_url']}/{sent['id']}")["text"] == "Hello"
    agent = start(author, ROWS["x12"])
    agent.ask("POST", agent.at("x12").removesuffix("/x12") + "/clearinghouse/eligibility", {"patient_id": "ann"})
    assert agent.complete()["verdict"] == "pass"


def test_a_line_with_bare_menus_answers_under_the_phone_number_of_its_sandbox(author: Author) -> None:
    for config in ({"ivr": {"start": {"say": "Welcome."}}}, {"ivr": {"say": "Welcome."}, "phone": "+18005550100", "voice": "calm"}):
        access = sandbox(author, "Voice", config)["credentials"]
        heard = author.post(access["voice_url"], {"to": access["phone_number"]}, key=access["token"])["turns"]
        assert [turn["text"] for turn in heard] == ["Welcome."]
    refused = author.post("/simulators", {"name": "line", "type": "Voice", "config": {"ivr": {"start": {"go": "nowhere"}}}}, status=400)
    assert "no menu" in str(refused)


NAMED = {
    "HL7": {"hl7_url", "inbox_url", "outbound_url"},
    "X12": {"x12_url", "eligibility_url", "response_url"},
    "Voice": {"voice_url", "phone_number"},
    "Fax": {"fax_url", "fax_number"},
    "Message": {"messages_url"},
    "CDSHooks": {"cds_url", "registration_url"},
    "Payer": {"portal_url", "api_url", "username", "password"},
}


def test_credentials_have_the_names_clients_expect_and_secrets_are_shown_once(author: Author) -> None:
    for type, names in NAMED.items():
        made = sandbox(author, type, {"number": "+15550777"} if type == "Fax" else None)
        assert set(made["credentials"]) == names | {"token", "mcp_url"}
        assert set(author.get(f"/sandboxes/{made['id']}")["credentials"]) == (names | {"mcp_url"}) - {"password"}
        if type == "Fax":
            assert made["credentials"]["fax_number"] == "+15550777"
    own = sandbox(author, "Payer", {"username": "clinic"})["credentials"]
    assert (own["username"], own["password"]) == ("clinic", own["token"])


def test_a_person_signs_in_to_the_portal_with_the_token_and_goes_through_its_pages(author: Author, service: Service) -> None:
    access = sandbox(author, "Payer", {**PAYER, "patients": [{"member_id": "W1", "name": "Ann"}]})["credentials"]
    root = access["portal_url"].removesuffix("/").removeprefix(ADDRESS)
    browser = service.client
    browser.cookies.set("proctor_session", "ours")

    def send(path: str, form: dict[str, str]) -> Any:
        return browser.post(root + path, data=form, follow_redirects=True)

    assert "Sign in" in browser.get(root + "/", follow_redirects=True).text
    assert send("/login", {"username": access["username"], "password": "wrong"}).status_code == 403
    assert "0 requests so far" in send("/login", {"username": access["username"], "password": access["password"]}).text
    page = browser.get(root + "/requests/new", follow_redirects=True)
    for form in ({"patient_member_id": "W1"}, {"provider_npi": "1234567893"}, {"procedure_code": "70551", "diagnosis_code": "M54.5"}):
        page = send(str(page.url.path).removeprefix(root), form)
    page = send(str(page.url.path).removeprefix(root), {"urgency": "standard"})
    page = send(str(page.url.path).removeprefix(root).rpartition("/")[0] + "/submit", {})
    policy = page.headers["content-security-policy"]
    assert "approved" in page.text and policy.startswith("default-src 'none'; style-src 'sha256-") and "script-src" not in policy
    assert service.get(f"{root}/api/prior-auths").status_code == 401, "pages are for people who have signed in, REST is for tokens"
    assert access["password"] not in str(author.get(f"/sandboxes/{root.split('/')[2]}/events?limit=100"))
    browser.cookies.clear()
    assert "Sign in" in browser.get(root + "/requests", follow_redirects=True).text


def test_a_token_may_be_the_password_of_basic(author: Author, service: Service) -> None:
    one, other = sandbox(author, "Message"), sandbox(author, "Message")
    path = f"/sandboxes/{one['id']}/messages/2010-04-01/Accounts/AC1/Messages.json"

    def ask(password: str) -> int:
        word = base64.b64encode(f"AC1:{password}".encode()).decode()
        form = {"To": "+15550101", "Body": "Hello"}
        return service.post(path, data=form, headers={"authorization": f"Basic {word}"}).status_code

    assert ask(one["credentials"]["token"]) == 201
    assert [ask(other["credentials"]["token"]), ask("wrong"), ask("")] == [404, 401, 401]


# --- slow operations --------------------------------------------------------------------------------------------------


def test_a_determination_with_a_delay_is_seen_by_who_reads_the_state(author: Author, clock: Clock) -> None:
    late = {"default_determination": {"status": "approved", "delay_seconds": 60}}
    row = ROWS["portal"]._replace(config=late)
    for waited, verdict in ((59, "fail"), (61, "pass")):
        agent = start(author, row)
        row.right(agent)
        clock.at += waited
        assert agent.complete()["verdict"] == verdict
        (made,) = agent.run["sandboxes"]
        clock.at += 600
        status = author.get(f"/sandboxes/{made['id']}/state")["state"]["portal"]["prior_auth_requests"][0]["status"]
        assert status == ("approved" if verdict == "pass" else "submitted"), "what has ended stays as it was"


class Outside(AgentSite):
    """The agent's CDS Hooks service, which reads from the sandbox during a call."""

    def __init__(self) -> None:
        super().__init__("/cds-services", self._answer)

    def _answer(self, method: str, headers: Mapping[str, str], sent: bytes) -> bytes:
        card = {"summary": "Careful", "indicator": "warning", "source": {"label": "Agent"}}
        services = [{"id": "mine", "hook": "order-select", "title": "Mine", "description": "Mine"}]
        return msgspec.json.encode({"cards": [card]} if method == "POST" else {"services": services})


@pytest.fixture
def outside() -> Iterator[Outside]:
    running = Outside()
    yield running
    running.close()


@pytest.mark.timeout(60)
def test_an_allowed_service_of_the_agent_is_called_without_a_lock(database_url: str, tmp_path: Path, outside: Outside) -> None:
    with Service(database_url, tmp_path, allowed_addresses=("127.0.0.1",)) as service:
        author = Author(service, service.keys()["organization"])
        agent = start(author, ROWS["cds"]._replace(config=None))
        seen: list[Any] = []

        # A lock held during the call would be a deadlock here.
        def look() -> None:
            seen.append(agent.ask("GET", agent.at("cds", "/services"))["services"])

        outside.before_answer = look
        agent.ask("POST", agent.at("cds", "/services"), {"discovery_url": outside.address})
        answer = agent.ask("POST", agent.at("cds", "/hooks/order-select"), {"patient_id": "ann"})
        assert [card["summary"] for card in answer["cards"]] == ["Careful"] and answer["problems"] == []
        assert [len(services) for services in seen] == [0, 1]
        assert agent.complete()["verdict"] == "pass"


def test_an_address_that_the_guard_refuses_is_never_contacted(author: Author, outside: Outside) -> None:
    contacted: list[str] = []
    outside.before_answer = lambda: contacted.append("called")
    made = sandbox(author, "CDSHooks")
    answer = author.post(f"/sandboxes/{made['id']}/cds/services", {"discovery_url": outside.address}, status=422)
    assert "refused" in answer["error"]["message"] and not contacted
    (event,) = author.get(f"/sandboxes/{made['id']}/events")["data"]
    assert event["status"] == 422


@pytest.mark.parametrize(("type", "config", "name"), [("HL7", {"mllp": True}, "MLLP"), ("Files", {"seed": {"sftp": True}}, "SFTP")])
def test_a_closed_port_is_refused(author: Author, type: str, config: dict[str, Any], name: str) -> None:
    refused = author.post("/simulators", {"name": type, "type": type, "config": config}, status=400)
    assert f"opens no {name} port" in refused["error"]["details"]["config"][0]
    author.post("/simulators", {"name": type, "type": type})
