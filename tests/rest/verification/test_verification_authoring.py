from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rest.services import Service
from tests.rest.verial import APPOINTMENT, PORTAL, VOICE, Author, appointment


@pytest.fixture
def author(service: Service) -> Author:
    return Author(service)


@pytest.fixture
def task(author: Author) -> dict[str, Any]:
    return author.task(author.benchmark())


@pytest.fixture(scope="module")
def shared_author(shared_service: Service) -> Author:
    """For tests that read only objects they made themselves."""
    return Author(shared_service)


@pytest.fixture(scope="module")
def shared_task(shared_author: Author) -> dict[str, Any]:
    return shared_author.task(shared_author.benchmark())


def test_a_criterion_is_created_read_changed_and_deleted(author: Author, task: dict[str, Any]) -> None:
    made = author.post("/criteria", {"task_id": task["id"], "label": "booked", "assertion": APPOINTMENT}, status=201)
    assert made["id"].startswith("crit_") and made["created_at"].endswith("Z") and len(made["created_at"]) == 24
    assert (made["weight"], made["axis"], made["input_entity_id"], made["assertion"]) == (1, None, None, APPOINTMENT)
    assert author.get(f"/criteria/{made['id']}") == made
    changed = author.ask("PATCH", f"/criteria/{made['id']}", {"weight": 2.5, "axis": "safety"})
    assert (changed["weight"], changed["axis"], changed["label"]) == (2.5, "safety", "booked")
    assert author.ask("PATCH", f"/criteria/{made['id']}", {"axis": None})["axis"] is None
    listed = author.get(f"/tasks/{task['id']}")["criteria"]
    assert [set(entry) for entry in listed] == [{"id", "task_id", "label", "assertion", "weight", "created_at"}]
    author.ask("DELETE", f"/criteria/{made['id']}", status=204)
    assert author.get(f"/criteria/{made['id']}", status=404)["error"]["code"] == "NOT_FOUND"


def test_camel_case_is_read_too(author: Author, task: dict[str, Any]) -> None:
    assertion = {"assert": "portal-state-match", "correlateBy": {"resource": "r", "key": "k"}, "assertions": []}
    made = author.post("/criteria", {"taskId": task["id"], "name": "row", "assertion": assertion, "inputEntityId": None})
    assert (made["task_id"], made["label"], made["input_entity_id"]) == (task["id"], "row", None)
    assert [entry["id"] for entry in author.get(f"/criteria?taskId={task['id']}")["data"]] == [made["id"]]
    assert author.post("/tasks", {"benchmarkId": task["benchmark_id"], "name": "x", "taskItem": {"a": 1}})["task_item"] == {"a": 1}


_ROWS = [{"path": "aB", "expected": {"cD": 1}}]
SPELT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"assert": "portal-state-match", "correlateBy": {"resource": "r", "key": "requestId"}, "assertions": _ROWS},
        {"assert": "portal-state-match", "correlate_by": {"resource": "r", "key": "requestId"}, "assertions": _ROWS},
    ),
    (
        {"assert": "fhir-resource-state", "resourceType": "Task", "search": {"based-on": "x"}, "fields": _ROWS},
        {"assert": "fhir-resource-state", "resource_type": "Task", "search": {"based-on": "x"}, "fields": _ROWS},
    ),
    (
        {"assert": "hl7-structural", "correlateBy": {"triggerEvent": "A01", "PID.3.1": "7"}},
        {"assert": "hl7-structural", "correlate_by": {"trigger_event": "A01", "PID.3.1": "7"}},
    ),
    ({"assert": "voice-transcript", "mustNotContain": ["x"]}, {"assert": "voice-transcript", "must_not_contain": ["x"]}),
]


@pytest.mark.parametrize(("written", "shown"), SPELT, ids=[row[0]["assert"] for row in SPELT])
@pytest.mark.parametrize("snake", [False, True], ids=["camel", "snake"])
def test_an_assertion_is_answered_in_snake_case_however_it_was_written(
    author: Author, task: dict[str, Any], written: dict[str, Any], shown: dict[str, Any], snake: bool
) -> None:
    # Search parameters, paths and expected values are the author's and stay.
    made = author.criterion(task, shown if snake else written)
    path = f"/criteria/{made['id']}"
    assert made["assertion"] == author.get(path)["assertion"] == shown
    assert [entry["assertion"] for entry in author.get(f"/criteria?task_id={task['id']}")["data"]] == [shown]
    assert [entry["assertion"] for entry in author.get(f"/tasks/{task['id']}")["criteria"]] == [shown]
    changed = author.ask("PATCH", path, {"assertion": {**written, "description": "by the author"}})
    assert changed["assertion"] == {**shown, "description": "by the author"}
    run = author.post("/benchmark-runs", {"benchmark_id": task["benchmark_id"]})
    frozen = author.get(f"/task-runs/{run['task_runs'][0]['id']}")["snapshot"]["criteria"]
    assert [entry["assertion"] for entry in frozen] == [changed["assertion"]]


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("an unknown kind", {"assertion": {**APPOINTMENT, "assert": "fhir-resource-sate"}}, "assertion.assert", "nearest: fhir-resource-state"),
    ("a misspelt key", {"assertion": {**APPOINTMENT, "feilds": []}}, "assertion.feilds", "nearest: fields"),
    ("a field without a path", {"assertion": {**APPOINTMENT, "fields": [{"expected": 1}]}}, "assertion.fields[0]", "path"),
    ("no kind", {"assertion": {"resource_type": "Patient"}}, "assertion", "assert"),
    ("no phrase", {"assertion": {"assert": "voice-transcript"}}, "assertion", "contains"),
    ("FHIRPath that cannot be read", {"assertion": {**APPOINTMENT, "fields": [{"fhirpath": "a.(("}]}}, "assertion.fields[0].fhirpath", ""),
    ("a weight of zero", {"weight": 0}, "weight", "greater than 0"),
    ("a negative weight", {"weight": -1}, "weight", "greater than 0"),
    ("an unknown field", {"wieght": 1}, "wieght", ""),
    ("a sentence", {"assertion": "the appointment was booked"}, "assertion", ""),
    ("an entity that is not bound", {"input_entity_id": "ent_1"}, "input_entity_id", "bind it first"),
    ("no entity to read from", {"assertion": {**APPOINTMENT, "search": {"_id": "{entity.ref}"}}}, "assertion.search._id", "no entity"),
    ("no assertion", {"assertion": None}, "assertion", ""),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "path", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_criterion_that_cannot_be_understood_is_refused_with_its_path(
    shared_author: Author, shared_task: dict[str, Any], wrong: dict[str, Any], path: str, message: str
) -> None:
    body = {"task_id": shared_task["id"], "label": "x", "assertion": APPOINTMENT, **wrong}
    error = shared_author.post("/criteria", body, status=400)["error"]
    assert error["code"] == "VALIDATION_ERROR"
    assert path in error["details"], error
    assert message in " ".join(error["details"][path])
    made = shared_author.criterion(shared_task)
    if "assertion" in wrong:
        shared_author.ask("PATCH", f"/criteria/{made['id']}", wrong, status=400)
        assert shared_author.get(f"/criteria/{made['id']}") == made


def test_a_criterion_needs_a_label(shared_author: Author, shared_task: dict[str, Any]) -> None:
    error = shared_author.post("/criteria", {"task_id": shared_task["id"], "assertion": APPOINTMENT}, status=400)["error"]
    assert error["details"] == {"label": ["required"]}


def test_lists_are_paged_newest_first(author: Author) -> None:
    names = [author.post("/environments", {"name": f"e{number}"})["name"] for number in range(5)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = author.get(f"/environments?limit=2{cursor}")
        assert page["_meta"]["limit"] == 2
        seen += [entry["name"] for entry in page["data"]]
        if page["_meta"]["next"] is None:
            break
        cursor = f"&cursor={page['_meta']['next']}"
    assert seen == names[::-1]
    for limit in (101, 1000, 99999999999999999999):
        assert author.get(f"/environments?limit={limit}")["_meta"]["limit"] == 100
    for limit in ("0", "-1"):
        author.get(f"/environments?limit={limit}", status=400)
    assert author.get("/environments?cursor=nonsense", status=400)["error"]["code"] == "BAD_REQUEST"


@pytest.mark.parametrize("noun", ["environments", "simulators", "datasets", "benchmarks", "tasks", "criteria", "solvers", "playgrounds"])
def test_unknown_ids_are_not_found(shared_author: Author, noun: str) -> None:
    assert shared_author.get(f"/{noun}/x_1", status=404)["error"]["code"] == "NOT_FOUND"
    if noun != "playgrounds":
        shared_author.ask("PATCH", f"/{noun}/x_1", {}, status=404)
        shared_author.ask("DELETE", f"/{noun}/x_1", status=404)


PARENTS: list[tuple[str, dict[str, Any]]] = [
    ("/tasks", {"benchmark_id": "bench_1", "name": "x"}),
    ("/criteria", {"task_id": "task_1", "label": "x", "assertion": VOICE}),
    ("/benchmarks", {"name": "x", "environment_id": "env_1"}),
    ("/playgrounds", {"environment_id": "env_1"}),
    ("/sandboxes", {"simulator_id": "sim_1"}),
    ("/benchmark-runs", {"benchmark_id": "bench_1"}),
    ("/datasets/ds_1/entities", {}),
    ("/tasks/task_1/entities", {"entity_id": "ent_1"}),
    ("/solvers/slv_1/api-keys", {}),
]


@pytest.mark.parametrize(("path", "body"), PARENTS)
def test_nothing_is_made_below_what_is_not_there(shared_author: Author, path: str, body: dict[str, Any]) -> None:
    shared_author.post(path, body, status=404)


def test_environments_hold_simulators(author: Author) -> None:
    environment = author.post("/environments", {"name": "Clinic", "description": "two systems"}, status=201)
    assert environment["simulators"] == []
    ehr = author.post("/simulators", {"type": "fhir", "name": "EHR"})
    lines = author.post("/simulators", {"type": "Clearinghouse", "name": "X", "config": {"a": 1}})
    assert (ehr["type"], ehr["config"], lines["type"]) == ("FHIR", None, "X12")
    for simulator in (ehr, lines, ehr):
        found = author.post(f"/environments/{environment['id']}/simulators/{simulator['id']}")
    assert found["simulators"] == [
        {"id": ehr["id"], "type": "FHIR", "name": "EHR"},
        {"id": lines["id"], "type": "X12", "name": "X"},
    ]
    assert author.get("/environments")["data"][0]["simulators"] == found["simulators"]
    left = author.ask("DELETE", f"/environments/{environment['id']}/simulators/{ehr['id']}")
    assert [entry["id"] for entry in left["simulators"]] == [lines["id"]]
    author.ask("DELETE", f"/simulators/{lines['id']}", status=204)
    assert author.get(f"/environments/{environment['id']}")["simulators"] == []
    error = author.post("/simulators", {"type": "Fhirr", "name": "x"}, status=400)["error"]
    assert "nearest: FHIR" in error["details"]["type"][0]


@pytest.mark.parametrize("path", ["/simulators", "/datasets"])
def test_a_config_that_holds_a_secret_is_refused(author: Author, path: str) -> None:
    body = {"name": "EHR", "type": "FHIR", "config": {"auth": {"clientSecret": "hunter2hunter2"}, "size": 3}}
    answer = author.post(path, body, status=400)
    assert "config" in answer["error"]["details"] and "hunter2" not in str(answer)
    body["config"] = {"auth": {"clientSecret": "${EHR_SECRET}"}, "size": 3}
    assert author.post(path, body)["config"] == body["config"]


def test_a_dataset_is_stored_whole_and_listed_without_its_data(author: Author) -> None:
    bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": appointment()}], "nul": "\x00"}
    made = author.post("/datasets", {"name": "patients", "format": "fhir", "data": bundle})
    assert (made["type"], made["format"], made["parent_id"], made["data"]) == ("FHIR", "fhir", None, bundle)
    assert author.get(f"/datasets/{made['id']}")["data"] == bundle
    assert "data" not in author.get("/datasets")["data"][0]
    assert author.ask("PATCH", f"/datasets/{made['id']}", {"name": "others"})["data"] == bundle
    assert author.ask("PATCH", f"/datasets/{made['id']}", {"data": None})["data"] is None


def test_entities_scope_criteria(author: Author) -> None:
    dataset = author.post("/datasets", {"name": "requests", "type": "FHIR"})
    one, two = (
        author.post(f"/datasets/{dataset['id']}/entities", {"name": id, "data": {"request_id": id, "wanted": wanted}})
        for id, wanted in (("R-1", "submitted"), ("R-2", "draft"))
    )
    benchmark = author.benchmark()
    task = author.task(benchmark)
    for entity in (one, two):
        author.post(f"/tasks/{task['id']}/entities", {"entity_id": entity["id"]}, status=201)
    assert [entity["id"] for entity in author.get(f"/tasks/{task['id']}")["entities"]] == [one["id"], two["id"]]
    scoped = {**PORTAL, "assertions": [{"path": "status", "expected": "{entity.wanted}"}]}
    for entity in (one, two):
        author.criterion(task, scoped, input_entity_id=entity["id"])
    author.criterion(task, APPOINTMENT, advisory=True)
    error = author.post("/criteria", {"task_id": task["id"], "label": "x", "assertion": scoped}, status=400)["error"]
    assert "input_entity_id" in str(error["details"])
    wrong = {**PORTAL, "assertions": [{"path": "status", "expected": "{entity.wantd}"}]}
    error = author.post("/criteria", {"task_id": task["id"], "label": "x", "assertion": wrong, "input_entity_id": one["id"]}, status=400)
    assert "nearest: wanted" in str(error)
    # An entity that a criterion reads can be neither removed nor changed.
    author.ask("DELETE", f"/tasks/{task['id']}/entities/{one['id']}", status=409)
    author.ask("DELETE", f"/datasets/{dataset['id']}/entities/{one['id']}", status=409)
    author.ask("DELETE", f"/datasets/{dataset['id']}", status=409)
    author.ask("PATCH", f"/datasets/{dataset['id']}/entities/{one['id']}", {"data": {"request_id": "R-1"}}, status=409)
    assert author.get(f"/datasets/{dataset['id']}/entities/{one['id']}")["data"]["wanted"] == "submitted"

    run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
    rows = [{"request_id": "R-1", "status": "submitted"}, {"request_id": "R-2", "status": "submitted"}]
    author.upload(run["task_runs"][0]["id"], {"portal": {"prior_auth_requests": rows}})
    done = author.post(f"/task-runs/{run['task_runs'][0]['id']}/complete")
    assert [entry["passed"] for entry in done["criterion_runs"]] == [True, False, False]
    assert done["score"] == 0.5


def test_an_entity_that_nothing_reads_can_go(author: Author, task: dict[str, Any]) -> None:
    dataset = author.post("/datasets", {"name": "x"})
    entity = author.post(f"/datasets/{dataset['id']}/entities", {})
    author.post(f"/tasks/{task['id']}/entities", {"entity_id": entity["id"]})
    author.criterion(task)
    assert len(author.get(f"/tasks/{task['id']}/entities")["data"]) == 1
    author.ask("DELETE", f"/tasks/{task['id']}/entities/{entity['id']}", status=204)
    author.ask("DELETE", f"/tasks/{task['id']}/entities/{entity['id']}", status=404)
    author.ask("DELETE", f"/datasets/{dataset['id']}", status=204)
    author.get(f"/datasets/{dataset['id']}/entities/{entity['id']}", status=404)


def test_benchmarks_have_slugs_of_their_own(author: Author) -> None:
    first, second = author.benchmark("Fax Referral!"), author.benchmark("fax referral")
    assert (first["slug"], second["slug"]) == ("fax-referral", "fax-referral-2")
    assert (first["version"], first["published"], first["visibility"], first["concurrency"]) == (None, False, "Private", 1)
    author.post("/benchmarks", {"name": "x", "slug": "fax-referral"}, status=409)
    author.ask("PATCH", f"/benchmarks/{second['id']}", {"slug": "fax-referral"}, status=409)
    author.post("/benchmarks", {"name": "x", "slug": "Fax"}, status=400)


def test_deleting_a_benchmark_keeps_its_runs(author: Author) -> None:
    benchmark = author.published()
    run = author.post("/benchmark-runs", {"benchmark_id": benchmark["id"]})
    task = author.get("/tasks")["data"][0]
    author.ask("DELETE", f"/benchmarks/{benchmark['id']}", status=204)
    author.get(f"/tasks/{task['id']}", status=404)
    assert author.get("/criteria")["data"] == []
    author.post("/v1/benchmark-runs", {"benchmark": "booking@1"}, status=404)
    done = author.post(f"/task-runs/{run['task_runs'][0]['id']}/complete")
    assert len(done["criterion_runs"]) == 2
    assert author.get(f"/benchmark-runs?benchmark_id={benchmark['id']}")["data"][0]["status"] == "completed"


def test_the_instruction_of_the_first_generation_is_read_into_the_item(author: Author, task: dict[str, Any]) -> None:
    benchmark = {"benchmark_id": task["benchmark_id"], "name": "old"}
    made = author.post("/tasks", {**benchmark, "instruction": "Book it."})
    assert made["task_item"] == {"instruction": "Book it."} and "instruction" not in made
    path = f"/tasks/{made['id']}"
    author.ask("PATCH", path, {"task_item": {"patient": "p"}})
    assert author.ask("PATCH", path, {"instruction": "Book it now."})["task_item"] == {"patient": "p", "instruction": "Book it now."}
    assert author.ask("PATCH", path, {"name": "older"})["task_item"] == {"patient": "p", "instruction": "Book it now."}
    same = {"instruction": "a", "task_item": {"instruction": "a", "patient": "p"}}
    assert author.post("/tasks", {**benchmark, **same})["task_item"] == same["task_item"]
    refused = author.post("/tasks", {**benchmark, "instruction": "a", "task_item": {"instruction": "b"}}, status=400)
    assert "differs from task_item.instruction" in str(refused["error"]["details"]["instruction"])
    run = author.post("/benchmark-runs", {"benchmark_id": task["benchmark_id"]})
    old = next(entry for entry in run["task_runs"] if entry["task_id"] == made["id"])
    assert author.get(f"/task-runs/{old['id']}")["snapshot"]["task_item"]["instruction"] == "Book it now."


def test_null_clears_what_a_task_may_do_without(author: Author, task: dict[str, Any]) -> None:
    changed = author.ask("PATCH", f"/tasks/{task['id']}", {"timeout": 5, "task_item": {"a": 1}, "tags": ["x", "x"]})
    assert (changed["timeout"], changed["task_item"], changed["tags"]) == (5, {"a": 1}, ["x"])
    cleared = author.ask("PATCH", f"/tasks/{task['id']}", {"timeout": None, "task_item": None})
    assert (cleared["timeout"], cleared["task_item"], cleared["tags"]) == (None, None, ["x"])
    author.ask("PATCH", f"/tasks/{task['id']}", {"name": None}, status=400)
    author.ask("PATCH", f"/tasks/{task['id']}", {"benchmark_id": "bench_1"}, status=400)


def test_sandboxes_get_branches_of_datasets(author: Author) -> None:
    simulator = author.post("/simulators", {"type": "Files", "name": "drop"})
    sandbox = author.post("/sandboxes", {"simulator_id": simulator["id"]}, status=201)
    assert (sandbox["playground_id"], sandbox["status"]) == (None, "active")
    dataset = author.post("/datasets", {"name": "files", "type": "Files", "data": {"a.txt": "x"}})
    branch = author.post(f"/sandboxes/{sandbox['id']}/datasets/{dataset['id']}", status=201)
    assert branch["parent_id"] == dataset["id"] and branch["id"] != dataset["id"]
    assert author.get(f"/datasets/{branch['id']}")["data"] == {"a.txt": "x"}
    author.post(f"/sandboxes/{sandbox['id']}/datasets/{dataset['id']}", status=409)
    author.ask("DELETE", f"/sandboxes/{sandbox['id']}/datasets/{dataset['id']}", status=204)
    author.get(f"/datasets/{branch['id']}", status=404)
    (added,) = author.get(f"/sandboxes/{sandbox['id']}/events")["data"]
    assert (added["type"], added["step"], added["given"]) == ("step", "add_dataset", dataset["id"])
    assert author.post(f"/sandboxes/{sandbox['id']}/teardown")["status"] == "teardown"
    author.post(f"/sandboxes/{sandbox['id']}/teardown", status=409)


def test_a_playground_is_torn_down_with_its_sandboxes(author: Author) -> None:
    environment = author.post("/environments", {"name": "x"})
    simulator = author.post("/simulators", {"type": "HL7", "name": "feed"})
    author.post(f"/environments/{environment['id']}/simulators/{simulator['id']}")
    playground = author.post("/playgrounds", {"environment_id": environment["id"]}, status=201)
    assert [sandbox["simulator_id"] for sandbox in playground["sandboxes"]] == [simulator["id"]]
    assert len(author.get(f"/sandboxes?playground_id={playground['id']}")["data"]) == 1
    down = author.post(f"/playgrounds/{playground['id']}/teardown")
    assert down["status"] == "teardown" and down["sandboxes"][0]["status"] == "teardown"
    author.post(f"/playgrounds/{playground['id']}/teardown", status=409)


def test_solvers_and_their_keys(author: Author) -> None:
    author.key = author.service.keys()["organization"]
    solver = author.post("/solvers", {"alias": "a-1", "real_name": "A", "contact_email": "a@example.org"}, status=201)
    author.post("/solvers", {"alias": "a-1"}, status=409)
    author.post("/solvers", {"alias": "a 1"}, status=400)
    author.post("/solvers", {"alias": "b", "contact_email": "nobody"}, status=400)
    made = author.post(f"/solvers/{solver['id']}/api-keys", status=201)
    assert made["prefix"] == "vrl_slv_" and made["key"].startswith("vrl_slv_") and made["key"].endswith(made["suffix"])
    assert made["createdAt"] == made["created_at"]
    (listed,) = author.get(f"/solvers/{solver['id']}/api-keys")["data"]
    assert "key" not in listed and listed["id"] == made["id"]
    author.post("/v1/benchmark-runs", {"benchmark": "x@1"}, key=made["key"], status=404)
    other = author.post("/solvers", {"alias": "b"})
    author.ask("DELETE", f"/solvers/{other['id']}/api-keys/{made['id']}", status=404)
    assert author.ask("DELETE", f"/solvers/{solver['id']}/api-keys/{made['id']}")["revoked_at"]
    author.post("/v1/benchmark-runs", {"benchmark": "x@1"}, key=made["key"], status=401)
    again = author.post(f"/solvers/{solver['id']}/api-keys", {"name": "ci"})["key"]
    author.ask("DELETE", f"/solvers/{solver['id']}", status=204)
    author.post("/v1/benchmark-runs", {"benchmark": "x@1"}, key=again, status=401)


def test_evals_are_criteria_with_a_text(author: Author, task: dict[str, Any]) -> None:
    english = author.post("/evals", {"task_id": task["id"], "label": "called back", "assert": "The patient was called back."}, status=201)
    typed = author.post("/evals", {"task_id": task["id"], "label": "booked", "assert": json.dumps(APPOINTMENT), "weight": 2})
    assert json.loads(typed["assert"]) == APPOINTMENT and english["assert"] == "The patient was called back."
    assert author.get(f"/criteria/{typed['id']}")["assertion"] == APPOINTMENT
    assert author.get(f"/criteria/{english['id']}")["assertion"] == english["assert"]
    assert len(author.get(f"/evals?task_id={task['id']}")["data"]) == 2
    for wrong in ('{"assert": "fhir-resource"}', "{not json", " "):
        author.post("/evals", {"task_id": task["id"], "label": "x", "assert": wrong}, status=400)
    assert author.ask("PATCH", f"/evals/{english['id']}", {"assert": "No one was called."})["assert"] == "No one was called."

    run = author.post("/runs", {"benchmark_id": task["benchmark_id"]}, status=201)
    assert run["status"] == "pending" and run["run_id"] == run["id"]
    author.upload(run["task_runs"][0]["id"], {"fhir": {"resources": [appointment()]}})
    done = author.post(f"/runs/{run['id']}/complete")
    assert done["status"] == "completed"
    first, second = author.get("/eval-runs")["data"][::-1]
    by_eval = {entry["eval_id"]: entry for entry in (first, second)}
    # Without a judge English is an error, which here is a fail.
    assert (by_eval[typed["id"]]["result"], by_eval[typed["id"]]["score"]) == ("pass", 1.0)
    assert (by_eval[english["id"]]["result"], by_eval[english["id"]]["score"]) == ("fail", 0.0)
    assert by_eval[english["id"]]["details"].startswith("error: ")
    assert author.get(f"/eval-runs/{first['id']}") == first
    author.ask("DELETE", f"/evals/{english['id']}", status=204)
