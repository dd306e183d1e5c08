"""Simulated systems on the service: the work of an author and an agent, and their permissions."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.service.hub import Hub
from tests.rest.services import ADDRESS, Clock, Service
from tests.rest.verial import Author

ANN = {"resourceType": "Patient", "id": "ann", "name": [{"family": "Smith"}]}
BOB = {"resourceType": "Patient", "id": "bob", "name": [{"family": "Jones"}]}
PATIENTS = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": ANN}, {"resource": BOB}]}
REFERRAL = {"simulator": "Files", "step": "drop_file_inbox", "given": {"path": "referral.json", "content": {"patient": "ann"}}}
LATE = {"step": "drop_file_inbox", "given": {"path": "late.txt", "content": "call back"}, "after_s": 60}
BOOKED = {"assert": "fhir-resource-state", "resource_type": "Appointment", "search": {"patient.family": "Smith"}, "match": "exactly_one"}
WRITTEN = {"assert": "sftp-file-present", "path": "outbox/done.json", "fields": [{"path": "patient", "expected": "ann"}]}
NOTHING_ELSE = {
    "assert": "unchanged",
    "allowed": [{"place": "fhir/Appointment/*", "change": "added", "at_most": 1}, {"place": "files/outbox/*", "change": "added"}],
}
READ_IT = {"assert": "request-made", "method": "GET", "path": "/inbox/referral.json"}


def appointment(patient: str = "ann") -> dict[str, Any]:
    actors = [{"actor": {"reference": f"Patient/{patient}"}, "status": "accepted"}]
    return {"resourceType": "Appointment", "status": "booked", "start": "2026-11-20T09:00:00Z", "participant": actors}


def read_diagnostics(outcome: Any, code: str) -> str:
    """The text of an OperationOutcome."""
    assert (outcome["resourceType"], outcome["issue"][0]["code"]) == ("OperationOutcome", code)
    return outcome["issue"][0]["diagnostics"]


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service, service.keys()["organization"])


def environment(author: Author, *types: str) -> str:
    """A clinic with patients, and a drop for files."""
    made: str = author.post("/environments", {"name": "clinic"})["id"]
    for type in types or ("FHIR", "Files"):
        simulator = author.post("/simulators", {"name": type, "type": type})
        author.post(f"/environments/{made}/simulators/{simulator['id']}")
    dataset = author.post("/datasets", {"name": "patients", "type": "FHIR", "data": PATIENTS})
    found = author.post(f"/environments/{made}/datasets/{dataset['id']}")
    assert [entry["name"] for entry in found["datasets"]] == ["patients"]
    return made


def benchmark(author: Author, environment_id: str, *, tasks: int = 1, **task: Any) -> str:
    """A published benchmark with four criteria per task."""
    made = author.benchmark("Referrals", environment_id=environment_id)
    for number in range(tasks):
        found = author.task(made, f"book {number}", **{"scenario": {"steps": [REFERRAL]}, "task_item": {"instruction": "Book it."}, **task})
        for label, assertion in (("booked", BOOKED), ("written", WRITTEN), ("nothing else", NOTHING_ELSE), ("read", READ_IT)):
            author.criterion(found, assertion, label=label)
    return author.post(f"/benchmarks/{made['id']}/publish")["reference"]


class Agent:
    """A client of the systems of a run that has only its token."""

    def __init__(self, author: Author, reference: str, *, key: str | None = None, **more: Any) -> None:
        self.service = author.service
        solver_key = key or author.solver_key(f"agent-{id(self)}")
        self.run = author.post("/v1/benchmark-runs", {"benchmark": reference, **more}, key=solver_key)
        self.token: str = self.run["bearer_token"]
        self.task: str = self.run["task_runs"][0]["id"]

    def ask(self, method: str, path: str, body: Any = None, *, status: int | None = None, **more: Any) -> Any:
        sent = {} if body is None else {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = self.service.ask(method, path, key=self.token, **sent, **more)
        assert answer.status_code == status if status is not None else answer.status_code < 300, answer.text
        return answer.json() if answer.headers.get("content-type", "").partition(";")[0].endswith("json") else answer.text

    def sandbox(self, type: str) -> dict[str, Any]:
        return next(sandbox for sandbox in self.run["sandboxes"] if sandbox["type"] == type)

    def at(self, name: str, path: str = "") -> str:
        return self.run["endpoints"][name] + path

    def start(self) -> Any:
        return self.ask("POST", f"/v1/task-runs/{self.task}/start")

    def complete(self) -> dict[str, bool]:
        """Complete the task and return which criteria passed."""
        done = self.ask("POST", f"/v1/task-runs/{self.task}/complete")
        return {check["criterion_id"]: check["passed"] for check in done["criterion_runs"]} | {"verdict": done["verdict"]}

    def work(self, patient: str = "ann") -> None:
        (arrived,) = self.ask("GET", self.at("files_inbox"))["files"]
        referral = self.ask("GET", self.at("files", f"/{arrived['path']}"))
        self.ask("POST", self.at("fhir", "/Appointment"), appointment(patient))
        self.ask("PUT", self.at("files", "/outbox/done.json"), referral.encode() if isinstance(referral, str) else referral)


def test_the_day_of_an_author_and_an_agent(author: Author) -> None:
    reference = benchmark(author, environment(author))
    agent = Agent(author, reference)
    run = agent.run["benchmark_run_id"]
    assert agent.run["endpoints"] == {
        "fhir": f"/v1/benchmark-runs/{run}/fhir",
        "files": f"/v1/benchmark-runs/{run}/files",
        "files_inbox": f"/v1/benchmark-runs/{run}/files/inbox",
        "mcp": f"/v1/benchmark-runs/{run}/mcp",
    }
    assert {sandbox["type"]: sandbox["status"] for sandbox in agent.run["sandboxes"]} == {"FHIR": "provisioning", "Files": "provisioning"}
    assert agent.sandbox("FHIR")["credentials"]["fhir_base_url"] == ADDRESS + agent.at("fhir")
    assert "start one first" in read_diagnostics(agent.ask("GET", agent.at("fhir", "/Patient"), status=409), "conflict")

    assert agent.start()["task_item"] == {"instruction": "Book it."}
    assert agent.ask("GET", agent.at("fhir", "/Patient?family=Smith"))["total"] == 1
    agent.work()
    fhir, files = agent.sandbox("FHIR")["id"], agent.sandbox("Files")["id"]
    # Agents never read what authors read.
    for path in ("events", "state", "diff"):
        agent.ask("GET", f"/sandboxes/{fhir}/{path}", status=403)
    agent.ask("GET", f"/sandboxes/{fhir}/fhir/Patient", status=403)
    before = author.get(f"/sandboxes/{fhir}/state")
    assert before["status"] == "active" and len(before["state"]["fhir"]["resources"]) == 3

    held = agent.complete()
    assert held.pop("verdict") == "pass" and set(held.values()) == {True}
    assert "start one first" in read_diagnostics(agent.ask("GET", agent.at("fhir", "/Patient"), status=409), "conflict")
    # Torn down with its task, and readable all the same.
    events = author.get(f"/sandboxes/{files}/events")["data"]
    assert [(event["type"], event["method"], event["path"], event["status"]) for event in reversed(events)] == [
        ("step", None, None, None),
        ("request", "GET", "/inbox", 200),
        ("request", "GET", "/inbox/referral.json", 200),
        ("request", "PUT", "/outbox/done.json", 201),
    ]
    assert events[-1]["step"] == "drop_file_inbox" and events[0]["duration_ms"] is not None
    after = author.get(f"/sandboxes/{fhir}/state")
    assert (after["status"], after["state"]) == ("teardown", before["state"])
    diff = author.get(f"/sandboxes/{fhir}/diff")
    assert [entry["place"].partition("/")[0] for entry in diff["added"]] == ["Appointment"] and not diff["changed"] + diff["removed"]
    author.post(f"/sandboxes/{fhir}/reset", status=409)
    # The dataset is unchanged, and the results are there.
    dataset = author.get("/datasets")["data"][0]
    assert author.get(f"/datasets/{dataset['id']}")["data"] == PATIENTS
    whole = author.get(f"/benchmark-runs/{run}")
    assert (whole["status"], whole["verdict"], whole["score"]) == ("completed", "pass", 1.0)
    playground = author.get(f"/playgrounds/{whole['task_runs'][0]['playground_id']}")
    assert playground["status"] == "teardown" and {sandbox["credentials"] for sandbox in playground["sandboxes"]} == {None}
    # And others are shown how it went.
    author.post(f"/benchmark-runs/{run}/publish")
    (place,) = author.get("/leaderboard/referrals")["places"]
    assert (place["score"], place["runs"], place["passed"], place["decided"]) == (1.0, 1, 1, 1)
    link = author.post(f"/benchmark-runs/{run}/shares")
    assert author.service.get(link["json_path"]).json()["verdict"] == "pass"


def test_a_fhir_server_refuses_with_an_operation_outcome(author: Author) -> None:
    agent = Agent(author, benchmark(author, environment(author)))
    agent.start()
    patients, foreign = agent.at("fhir", "/Patient"), f"/sandboxes/{agent.sandbox('FHIR')['id']}/fhir/Patient"
    assert "unknown" in read_diagnostics(author.service.ask("GET", patients, key="vrl_slv_nobody").json(), "login")
    assert "token of the run" in read_diagnostics(author.service.ask("GET", patients, key=author.key).json(), "forbidden")
    assert "no sandbox" in read_diagnostics(author.service.ask("GET", "/sandboxes/nope/fhir/Patient", key=author.key).json(), "not-found")
    read_diagnostics(agent.ask("GET", foreign, status=403), "forbidden")
    deep = b"[" * 300 + b"]" * 300
    answer = author.service.ask("POST", patients, key=agent.token, content=deep)
    assert answer.headers["content-type"].startswith("application/fhir+json")
    assert "--deepest-body" in read_diagnostics(answer.json(), "structure")
    # Refusals of other systems are unchanged.
    assert (
        "the started task has no system 'hl7'; its environment has"
        in agent.ask("GET", patients.replace("fhir", "hl7"), status=409)["error"]["message"]
    )
    assert "there are cds, fax, fhir" in agent.ask("GET", patients.replace("fhir", "hl8"), status=404)["error"]["message"]


SABOTAGES = {
    "wrong patient": ("booked", lambda agent: agent.work("bob")),
    "extra booking": (
        "nothing else",
        lambda agent: (agent.work(), agent.ask("POST", agent.at("fhir", "/Appointment"), appointment("bob"))),
    ),
    "file not written": ("written", lambda agent: (agent.work(), agent.ask("DELETE", agent.at("files", "/outbox/done.json")))),
    "deleted resource": ("nothing else", lambda agent: (agent.work(), agent.ask("DELETE", agent.at("fhir", "/Patient/bob")))),
}


@pytest.mark.parametrize("name", SABOTAGES)
def test_each_sabotage_fails_exactly_the_criterion_that_names_it(author: Author, name: str) -> None:
    label, work = SABOTAGES[name]
    agent = Agent(author, benchmark(author, environment(author)))
    agent.start()
    work(agent)
    held = agent.complete()
    assert held.pop("verdict") == "partial"
    task = author.get(f"/task-runs/{agent.task}")["snapshot"]
    labels = {criterion["id"]: criterion["label"] for criterion in task["criteria"]}
    assert [labels[id] for id, passed in held.items() if not passed] == [label]


def test_every_task_has_systems_of_its_own(author: Author) -> None:
    agent = Agent(author, benchmark(author, environment(author), tasks=2))
    agent.start()
    agent.work()
    agent.complete()
    agent.task = agent.run["task_runs"][1]["id"]
    agent.ask("GET", agent.at("files_inbox"), status=409)
    agent.start()
    assert agent.ask("GET", agent.at("fhir", "/Appointment"))["total"] == 0
    assert set(agent.complete().values()) == {False, True, "partial"}, "nothing was changed, and nothing was done"


def test_a_state_that_was_uploaded_counts_and_not_the_live_one(author: Author) -> None:
    agent = Agent(author, benchmark(author, environment(author)))
    agent.start()
    agent.work()
    author.upload(agent.task, {"fhir": {"resources": []}})
    assert not any(held is True for held in agent.complete().values())


def test_a_late_step_happens_when_its_time_has_come_and_is_no_deed_of_the_agent(author: Author, clock: Clock) -> None:
    agent = Agent(author, benchmark(author, environment(author), scenario={"steps": [REFERRAL, LATE]}))
    agent.start()
    agent.work()
    clock.at += 59
    assert [file["path"] for file in agent.ask("GET", agent.at("files_inbox"))["files"]] == ["inbox/referral.json"]
    clock.at += 2
    assert [file["path"] for file in agent.ask("GET", agent.at("files_inbox"))["files"]] == ["inbox/referral.json", "inbox/late.txt"]
    held = agent.complete()
    assert held.pop("verdict") == "pass" and all(held.values()), "nothing else has changed that the agent changed"
    steps = [event["step"] for event in author.get(f"/sandboxes/{agent.sandbox('Files')['id']}/events")["data"] if event["type"] == "step"]
    assert steps == ["drop_file_inbox", "drop_file_inbox"]


def test_a_task_over_its_time_has_no_systems_any_more(author: Author, clock: Clock) -> None:
    agent = Agent(author, benchmark(author, environment(author), timeout=30))
    agent.start()
    agent.work()
    clock.at += 31
    agent.ask("GET", agent.at("fhir", "/Patient"), status=409)
    assert agent.complete()["verdict"] == "fail"
    assert author.get(f"/task-runs/{agent.task}")["status"] == "timed_out"


def test_a_token_of_another_run_finds_nothing(author: Author) -> None:
    reference = benchmark(author, environment(author))
    one, other = Agent(author, reference), Agent(author, reference)
    one.start()
    other.start()
    other.ask("GET", one.at("fhir", "/Patient"), status=404)
    assert "token of the run" in read_diagnostics(author.get(one.at("fhir", "/Patient"), status=403), "forbidden")
    one.ask("POST", f"/v1/task-runs/{other.task}/start", status=404)


REFUSED = [
    ({"steps": [{"simulator": "fhri", "step": "add_resource"}]}, "scenario.steps.0.simulator", "nearest: fhir"),
    ({"steps": [{"simulator": "files", "step": "drop_file"}]}, "scenario.steps.0.step", "nearest: drop_file_inbox"),
    ({"drop_file_inbx": {}}, "scenario.drop_file_inbx", "nearest: drop_file_inbox"),
    ({"steps": [{"step": "drop_file_inbox", "given": {"path": "../x"}}]}, "scenario.steps.0", "not a path inside the drop"),
    ({"steps": [{"step": "drop_file_inbox", "after": 3}]}, "scenario.steps.0.after", "nearest: after_s"),
    ({"steps": [{"step": "drop_file_inbox", "after_s": -1}]}, "scenario.steps.0.after_s", "expected seconds"),
    ({"steps": {}}, "scenario.steps", "expected a list"),
    ({"steps": [], "then": 1}, "scenario.then", "unknown key"),
]


@pytest.mark.parametrize(("scenario", "place", "message"), REFUSED)
def test_a_scenario_that_names_what_is_not_there_is_refused_when_written(author: Author, scenario: Any, place: str, message: str) -> None:
    task = author.task(author.benchmark("x"))
    for answer in (
        author.post("/tasks", {"benchmark_id": task["benchmark_id"], "name": "y", "scenario": scenario}, status=400),
        author.ask("PATCH", f"/tasks/{task['id']}", {"scenario": scenario}, status=400),
    ):
        assert message in answer["error"]["details"][place][0]


def test_a_scenario_for_a_system_that_the_environment_does_not_have_starts_nothing(author: Author) -> None:
    made = environment(author)
    reference = benchmark(author, made)
    files = next(one for one in author.get(f"/environments/{made}")["simulators"] if one["type"] == "Files")
    author.ask("DELETE", f"/environments/{made}/simulators/{files['id']}")
    agent = Agent(author, reference)
    message = agent.ask("POST", f"/v1/task-runs/{agent.task}/start", status=409)["error"]["message"]
    assert "kind files" in message
    assert author.get(f"/task-runs/{agent.task}")["phase"] == "created"


# --- by hand ----------------------------------------------------------------------------------------------------------


def sandbox(author: Author, type: str = "Records", **config: Any) -> dict[str, Any]:
    seed = {"orders": {"rows": [{"id": 1, "status": "open"}], "rules": [{"on": "delete", "refuse": "never"}]}}
    simulator = author.post("/simulators", {"name": type, "type": type, "config": {"seed": seed} if type == "Records" else None, **config})
    return author.post("/sandboxes", {"simulator_id": simulator["id"]}, status=201)


def test_a_sandbox_is_worked_in_compared_reset_and_torn_down(author: Author) -> None:
    made = sandbox(author)
    id, token = made["id"], made["credentials"]["token"]
    assert (made["status"], made["type"], made["credentials"]["records_url"]) == ("active", "Records", f"{ADDRESS}/sandboxes/{id}/records")
    shown = {"records_url": f"{ADDRESS}/sandboxes/{id}/records", "mcp_url": f"{ADDRESS}/sandboxes/{id}/mcp"}
    assert author.get(f"/sandboxes/{id}")["credentials"] == shown, "a token is shown once"
    root = f"/sandboxes/{id}/records"
    author.ask("PATCH", f"{root}/orders/1", {"status": "paid"}, key=token)
    author.post(f"{root}/orders", {"id": 2}, key=token, status=201)
    assert author.ask("DELETE", f"{root}/orders/1", key=token, status=409)["error"]["code"] == "refused_by_rule"
    assert author.get(f"{root}/orders/1")["status"] == "paid", "the organization's key will do, too"
    diff = author.get(f"/sandboxes/{id}/diff")
    assert [(entry["place"], entry["before"]["status"], entry["after"]["status"]) for entry in diff["changed"]] == [
        ("orders/1", "open", "paid")
    ]
    assert [entry["place"] for entry in diff["added"]] == ["orders/2"] and diff["removed"] == []
    author.post(f"/sandboxes/{id}/reset")
    assert author.get(f"/sandboxes/{id}/diff")["changed"] == []
    assert author.get(f"{root}/orders/1", key=token)["status"] == "open"
    assert len(author.get(f"/sandboxes/{id}/events")["data"]) == 5, "a reset forgets nothing that happened"
    for path in (f"/sandboxes/{id}", f"/sandboxes/{id}/events", f"/sandboxes/{id}/state", "/sandboxes"):
        author.get(path, key=token, status=403)

    author.post(f"/sandboxes/{id}/teardown")
    author.get(f"{root}/orders", key=token, status=401)
    author.get(f"{root}/orders", status=409)
    assert author.get(f"/sandboxes/{id}/state")["state"]["records"]["orders"] == [{"id": 1, "status": "open"}]
    assert len(author.get(f"/sandboxes/{id}/events")["data"]) == 5


def test_the_events_are_paged_in_the_order_in_which_they_happened(author: Author) -> None:
    made = sandbox(author)
    for number in range(7):
        author.get(f"/sandboxes/{made['id']}/records/orders?_limit={number}")
    first = author.get(f"/sandboxes/{made['id']}/events?limit=5")
    rest = author.get(f"/sandboxes/{made['id']}/events?limit=5&cursor={first['_meta']['next']}")
    assert [event["number"] for event in first["data"] + rest["data"]] == [7, 6, 5, 4, 3, 2, 1]


def test_a_playground_gives_each_sandbox_a_token_of_its_own(author: Author) -> None:
    playground = author.post("/playgrounds", {"environment_id": environment(author)}, status=201)
    fhir, files = playground["sandboxes"]
    assert playground["status"] == fhir["status"] == "active"
    assert author.get(f"/sandboxes/{fhir['id']}/fhir/Patient", key=fhir["credentials"]["token"])["total"] == 2
    author.get(f"/sandboxes/{fhir['id']}/fhir/Patient", key=files["credentials"]["token"], status=404)
    author.get(f"/sandboxes/{fhir['id']}/files/", key=fhir["credentials"]["token"], status=404)
    author.post(f"/playgrounds/{playground['id']}/teardown")
    for one in (fhir, files):
        author.get(
            one["credentials"].get("files_url", one["credentials"].get("fhir_base_url")), key=one["credentials"]["token"], status=401
        )


def test_only_public_paths_are_answered_without_a_token(author: Author, service: Service) -> None:
    made = sandbox(author, "FHIR")
    credentials = made["credentials"]
    root = credentials["fhir_base_url"]
    answer = service.get(f"{root}/metadata")
    assert answer.status_code == 200 and answer.json()["resourceType"] == "CapabilityStatement"
    smart = service.get(f"{root}/.well-known/smart-configuration").json()
    assert smart["token_endpoint"].endswith(credentials["token_url"])
    assert service.get(f"{root}/Patient").status_code == 401
    assert service.get("/sandboxes/sb_none/fhir/metadata").status_code == 401
    assert service.post(f"{root}/Patient", content=b"x" * 5_000).status_code == 401


@pytest.mark.parametrize("way", ["form", "basic"])
def test_a_client_gets_its_token_for_its_secret(author: Author, service: Service, way: str) -> None:
    credentials = sandbox(author, "FHIR")["credentials"]
    form = {"grant_type": "client_credentials", "scope": "system/*.*"}
    headers = {}

    def ask(secret: str) -> Any:
        if way == "form":
            return service.post(credentials["token_url"], data={**form, "client_id": credentials["client_id"], "client_secret": secret})
        word = base64.b64encode(f"{credentials['client_id']}:{secret}".encode()).decode()
        return service.post(credentials["token_url"], data=form, headers={**headers, "authorization": f"Basic {word}"})

    assert ask("wrong").status_code == 401
    without = service.post(credentials["token_url"], data={**form, "client_secret": ""}, key=author.key)
    assert without.status_code == 401 and "access_token" not in without.json(), "who sent no secret gets no token"
    found = ask(credentials["client_secret"]).json()
    assert service.get(f"{credentials['fhir_base_url']}/Patient", key=found["access_token"]).status_code == 200
    events = author.get(f"/sandboxes/{credentials['client_id']}/events")
    assert credentials["client_secret"] not in str(events), "no event keeps a token"


def test_a_sandbox_ends_when_its_time_is_over(author: Author, clock: Clock) -> None:
    made = sandbox(author)
    playground = author.post("/playgrounds", {"environment_id": environment(author)}, status=201)
    clock.at += 24 * 3600 + 1
    author.get(f"/sandboxes/{made['id']}/records/orders", status=409)
    assert author.get(f"/sandboxes/{made['id']}")["status"] == "teardown"
    assert author.get(f"/playgrounds/{playground['id']}")["status"] == "teardown"
    author.get(f"/sandboxes/{made['id']}/records/orders", key=made["credentials"]["token"], status=401)
    assert author.get(f"/sandboxes/{made['id']}/state")["state"]["records"]["orders"]


def test_a_dataset_that_is_added_is_part_of_how_a_sandbox_began(author: Author) -> None:
    made = sandbox(author, "FHIR")
    dataset = author.post("/datasets", {"name": "patients", "type": "FHIR", "data": PATIENTS})
    author.post(f"/sandboxes/{made['id']}/datasets/{dataset['id']}", status=201)
    assert author.get(f"/sandboxes/{made['id']}/fhir/Patient")["total"] == 2
    assert author.get(f"/sandboxes/{made['id']}/diff")["added"] == []
    author.ask("DELETE", f"/sandboxes/{made['id']}/fhir/Patient/ann")
    assert author.get(f"/datasets/{dataset['id']}")["data"] == PATIENTS
    author.post(f"/sandboxes/{made['id']}/reset")
    assert author.get(f"/sandboxes/{made['id']}/fhir/Patient")["total"] == 2
    files = author.post("/datasets", {"name": "files", "type": "Files", "data": {"a.txt": "x"}})
    author.post(f"/sandboxes/{made['id']}/datasets/{files['id']}", status=409)
    broken = author.post("/datasets", {"name": "broken", "type": "FHIR", "data": {"resourceType": "Nothing"}})
    assert "Nothing" in author.post(f"/sandboxes/{made['id']}/datasets/{broken['id']}", status=409)["error"]["message"]


def test_a_config_that_cannot_fill_its_system_is_refused_when_written(author: Author) -> None:
    seed = {"orders": {"rows": "many"}}
    error = author.post("/simulators", {"name": "x", "type": "Records", "config": {"seed": seed}}, status=400)
    assert "orders" in error["error"]["details"]["config"][0]


def test_an_environment_has_one_simulator_of_a_type_that_is_simulated(author: Author) -> None:
    made = environment(author)
    second = author.post("/simulators", {"name": "another", "type": "FHIR"})
    assert (
        "already has a simulator of type FHIR"
        in author.post(f"/environments/{made}/simulators/{second['id']}", status=409)["error"]["message"]
    )


def test_binary_content_is_returned_unchanged(author: Author, service: Service) -> None:
    made = sandbox(author, "Files")
    data = bytes(range(256)) * 400 + b"[" * 300_000
    address = f"/sandboxes/{made['id']}/files/a%2Fb/%C3%A4.bin"
    assert service.put(address, key=made["credentials"]["token"], content=data).status_code == 201
    answer = service.get(address, key=made["credentials"]["token"])
    assert answer.content == data
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy == ["default-src 'none'", "sandbox", "form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'"]
    assert service.get(f"/sandboxes/{made['id']}/files/%2e%2e/x", key=author.key).status_code in (400, 404)
    deep = b"[" * 300 + b"]" * 300
    assert service.post(f"/sandboxes/{made['id']}/files/x.json", key=author.key, content=deep).status_code == 400


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow(database_url: str, tmp_path: Path) -> Iterator[Author]:
    limits: dict[str, Any] = {"sandboxes": 2, "sandbox_rows": 3, "sandbox_bytes": 6_000, "sandbox_requests_per_minute": 30}
    with Service(database_url, tmp_path, **limits) as running:
        yield Author(running, running.keys()["organization"])


def test_there_are_no_more_sandboxes_than_an_organization_may_have(narrow: Author) -> None:
    one, _ = sandbox(narrow), sandbox(narrow)
    simulator = narrow.get(f"/sandboxes/{one['id']}")["simulator_id"]
    error = narrow.post("/sandboxes", {"simulator_id": simulator}, status=409)["error"]
    assert "2 sandboxes are active" in error["message"]
    narrow.post(f"/sandboxes/{one['id']}/teardown")
    narrow.post("/sandboxes", {"simulator_id": simulator}, status=201)


def test_a_sandbox_that_is_full_takes_nothing_more(narrow: Author) -> None:
    made = sandbox(narrow, "Files")
    root = f"/sandboxes/{made['id']}/files"
    for name in "abc":
        assert narrow.service.put(f"{root}/{name}", key=narrow.key, content=b"x").status_code == 201
    full = narrow.service.put(f"{root}/d", key=narrow.key, content=b"x")
    assert full.status_code == 413 and "3 rows" in full.json()["error"]["message"]
    large = narrow.service.put(f"{root}/a", key=narrow.key, content="".join(map(chr, range(0x4E00, 0x6000))).encode())
    assert large.status_code == 413 and "6000 bytes" in large.json()["error"]["message"]
    assert len(narrow.get(f"{root}/")["files"]) == 3
    seed = {"orders": [{"id": number} for number in range(9)]}
    simulator = narrow.post("/simulators", {"name": "x", "type": "Records", "config": {"seed": seed}})
    assert "3 rows" in narrow.post("/sandboxes", {"simulator_id": simulator["id"]}, status=409)["error"]["message"]


def test_requests_to_the_sandboxes_of_an_organization_are_counted_together(narrow: Author) -> None:
    one, other = sandbox(narrow), sandbox(narrow)
    statuses = [
        narrow.service.get(f"/sandboxes/{made['id']}/records/orders", key=made["credentials"]["token"]).status_code
        for _ in range(20)
        for made in (one, other)
    ]
    assert statuses[:30] == [200] * 30 and 429 in statuses[30:]


def test_many_at_once_lose_nothing(author: Author) -> None:
    """Requests that come together are handled one after the other, each with its event."""
    import asyncio

    from proctor.service.verification.sandboxes.requests import answer_request
    from proctor.simulators.exchange import Request
    from proctor.store.accounts.sandboxes import find_heads

    made = sandbox(author)

    async def crowd(hub: Hub) -> list[int]:
        async with hub.database.reading() as connection:
            head = (await find_heads(connection, [made["id"]]))[made["id"]]
        # Half of them by another server, which shares nothing but the database.
        hubs = (hub, Hub(database=hub.database, settings=hub.settings))
        requests = [
            answer_request(hubs[number % 2], head, Request(method="POST", path="/orders", body=b'{"id": %d}' % (number + 10)))
            for number in range(30)
        ]
        return [answer.status for answer in await asyncio.gather(*requests)]

    assert author.service.run(crowd) == [201] * 30
    assert [event["status"] for event in author.get(f"/sandboxes/{made['id']}/events?limit=40")["data"]].count(201) == 30
    assert len(author.get(f"/sandboxes/{made['id']}/diff")["added"]) == 30
