"""Every operation of the verification API on a page, from the rows of the authorization table.

A row of REST has a path, a body and a status; here the same is done with the form generated from the declaration.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.pages import nouns
from proctor.pages.inputs import write_record
from proctor.pages.nouns import OPERATIONS, collect_names, find_operation, find_title
from proctor.service.verification.shared.declaration import Operation
from tests.pages.hostile.test_hostile import HOSTILE
from tests.pages.markup import Markup
from tests.pages.world import World, WorldTemplate, copy_world, keep_world
from tests.rest.seeds import sow
from tests.rest.server.test_authorization import ROWS, expected, route_of
from tests.rest.verial import Author

OURS = {f"{operation.method} {operation.path}": operation for operation in OPERATIONS}
VERIFICATION = [row for row in ROWS if route_of(row) in OURS]
READS = [row for row in VERIFICATION if row["id"].startswith("GET ")]
PATIENT: dict[str, Any] = {"resourceType": "Patient", "id": "ann", "name": [{"family": "Smith"}]}
WRITES = [row for row in VERIFICATION if not row["id"].startswith("GET ")]


@pytest.fixture(scope="module")
def sown(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> WorldTemplate:
    """A world with one of everything."""
    return keep_world(sqlite_template, tmp_path_factory.mktemp("sown"), sow)


@pytest.fixture(scope="module")
def shared(sown: WorldTemplate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with copy_world(sown, tmp_path_factory.mktemp("nouns")) as opened:
        yield opened


@pytest.fixture
def own(sown: WorldTemplate, tmp_path: Path) -> Iterator[World]:
    """The same for a test that takes something away."""
    with copy_world(sown, tmp_path) as opened:
        yield opened


@pytest.mark.in_turn
@pytest.mark.parametrize("row", READS, ids=lambda row: row["id"])
def test_every_read_has_a_page(shared: World, row: dict[str, Any]) -> None:
    path = "/ui" + row.get("path", route_of(row).partition(" ")[2])
    answer = shared.get(path, "organization", headers={"accept-encoding": "gzip"})
    page = Markup(answer.text)
    assert answer.status_code == 200 and page.problems == []
    assert page.elements <= 2_000 and int(answer.headers["content-length"]) <= 30_000
    assert shared.get(path, "project").status_code == 403
    assert shared.get(path).status_code == 303
    foreign = shared.get(path, "foreign_organization")
    assert foreign.status_code == expected(row, "foreign")["organization"]
    assert foreign.status_code != 200 or "?" in path or "_home" not in foreign.text


def test_unnamed_objects_are_named_by_their_subject() -> None:
    snapshot = {"id": "task_1", "name": "Book", "criteria": [{"id": "crit_1", "label": "greets"}, {"id": "crit_2", "label": None}]}
    names = collect_names(snapshot)
    assert names == {"task_1": "Book", "crit_1": "greets"}
    assert find_title({"id": "crun_1", "task_run_id": "tr_1", "criterion_id": "crit_1"}, names) == "greets"
    assert find_title({"id": "crun_2", "criterion_id": "crit_2"}, names) == "crun_2"
    assert find_title({"id": "x", "name": "own", "criterion_id": "crit_1"}, names) == "own"
    assert collect_names(None) == {}


def test_the_page_of_a_task_run_names_its_criteria(world: World) -> None:
    key = {"x-api-key": world.keys["organization"]}

    def ask(method: str, path: str, body: Any = None) -> Any:
        answer = world.ask(method, path, json=body, headers=key)
        assert answer.status_code < 300, answer.text
        return answer.json()

    benchmark = ask("POST", "/benchmarks", {"name": "Calls"})["id"]
    task = ask("POST", "/tasks", {"benchmark_id": benchmark, "name": "Book", "task_item": {"instruction": "book"}})["id"]
    claim = {"assert": "voice-transcript", "speaker": "agent", "contains": ["hello"]}
    ask("POST", "/criteria", {"task_id": task, "label": "greets the caller", "assertion": claim})
    run = ask("POST", "/benchmark-runs", {"benchmark_id": benchmark, "agent": "one"})["id"]
    ask("PUT", f"/benchmark-runs/{run}/state", {"voice": {"turns": [{"speaker": "agent", "text": "good morning"}]}})
    done = ask("POST", f"/benchmark-runs/{run}/complete")
    text = world.get(f"/ui/task-runs/{done['task_runs'][0]['id']}", "organization").text
    rows = text[text.index("criterion-runs") :]
    assert re.search(r'<th scope="row"[^>]*><a href="/ui/criterion-runs/[^"]+"><bdi>greets the caller</bdi></a>', rows)
    assert re.search(r'<a href="/ui/criteria/[^"]+"><bdi>greets the caller</bdi></a>', rows)


def find_form(operation: Operation, row: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The address of a form, and the input that has the effect of a REST row."""
    path = "/ui" + row.get("path", operation.path)
    typed: dict[str, str] = {}
    if operation.takes is not None:
        body = {"state": row["body"]} if operation.takes_whole else row.get("body", {})
        typed = write_record({name: field for name, field in operation.takes.fields.items() if name in body}, body)
    if operation.method == "PATCH":
        return f"{path}/change", typed
    if operation.method == "DELETE":
        return f"{path}/delete", typed
    if operation.path.endswith("}"):
        above, _, last = path.rpartition("/")
        return above, {operation.ids[-1]: last}
    return path, typed


@pytest.mark.in_turn
@pytest.mark.parametrize("row", WRITES, ids=lambda row: row["id"])
def test_every_action_has_a_form(shared: World, request: pytest.FixtureRequest, row: dict[str, Any]) -> None:
    world = shared
    if row["id"].startswith("DELETE ") or row.get("fresh"):
        world = request.getfixturevalue("own")
    operation = OURS[route_of(row)]
    path, typed = find_form(operation, row)
    proof = world.find_proof("/ui/benchmarks", "organization")
    shown = [path, f"{path}/new"]
    if typed and find_operation("POST", path.split("/")[2:]) is None:
        # A change begins with the current values, so the sent form has all of them.
        forms = [text for text in (world.get(one, "organization").text for one in shown) if 'class="sheet fields"' in text]
        assert forms, path
        typed = {**read_form(forms[0]), **typed}
    for who, other in (("project", 403), ("foreign_organization", 404)):
        refused = world.post(path, who, proof=world.find_proof("/ui/health", who), **typed)
        wanted = {other, 201, 200, 400} if expected(row, "foreign")["organization"] == 201 else {other}
        assert refused.status_code in wanted or (who == "foreign_organization" and refused.status_code == 303 and 201 in wanted), (
            refused.text
        )
    answer = world.post(path, "organization", proof=proof, **typed)
    wanted = expected(row, "own")["organization"]
    assert answer.status_code == wanted if wanted >= 400 else answer.status_code == 303 or "Shown once" in answer.text, answer.text
    if answer.status_code == 303:
        assert world.get(answer.headers["location"], "organization").status_code == 200, answer.headers["location"]


def read_form(text: str) -> dict[str, str]:
    """The values of the inputs of a form."""
    form = text[text.index('class="sheet fields"') :]
    found = {name: html.unescape(value) for name, value in re.findall(r'<input type="text"[^>]* name="(\w+)"[^>]* value="([^"]*)"', form)}
    found |= {name: html.unescape(value) for name, value in re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n([^<]*)</textarea>', form)}
    for name, options in re.findall(r'<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', form):
        chosen = re.search(r'<option value="([^"]*)" selected', options)
        found[name] = html.unescape(chosen[1]) if chosen else ""
    found |= dict.fromkeys(re.findall(r'<input type="checkbox" value="on" id="f-\w+" name="(\w+)"[^>]* checked', form), "on")
    return found


@pytest.mark.parametrize(
    ("path", "typed", "message"),
    [
        ("/ui/criteria", {"task_id": "task_home", "label": "c", "assertion": '{"assert": "voice-transcript",\n "contains": [}'}, "line 2"),
        ("/ui/criteria", {"task_id": "task_home", "label": "c", "assertion": '{"assert": "voice-transcrpt"}'}, "voice-transcript"),
        ("/ui/tasks", {"benchmark_id": "bench_nobody", "name": "t"}, "there is no benchmark"),
        ("/ui/benchmarks", {"name": "", "concurrency": "1"}, "required"),
        ("/ui/benchmarks", {"name": "x", "concurrency": "many"}, "expected a number"),
        ("/ui/benchmarks", {"name": "x", "concurrency": "1", "slug": "Not A Slug"}, "lower-case letters"),
        ("/ui/simulators", {"name": "x", "type": "FHIR", "config": '{"password": "hunter2hunter2"}'}, "looks like a secret"),
        ("/ui/solvers", {"alias": "x", "contact_email": "nobody"}, "an e-mail address"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_refused_form_shows_the_problem_in_place_and_loses_nothing(shared: World, path: str, typed: dict[str, str], message: str) -> None:
    proof = shared.find_proof("/ui/benchmarks", "organization")
    answer = shared.post(path, "organization", proof=proof, **typed)
    page = Markup(answer.text)
    assert answer.status_code in (400, 404), answer.text
    assert page.problems == [] and message in page.words and "Your input is below." in page.words
    for name, value in typed.items():
        assert html.escape(value) in answer.text.replace("&#34;", "&quot;"), name


def test_a_record_shows_what_belongs_to_it(shared: World) -> None:
    words = Markup(shared.get("/ui/benchmarks/bench_home", "organization").text).words
    for section in ("Tasks", "Benchmark runs", "Leaderboard", "Versions"):
        assert section in words
    task = Markup(shared.get("/ui/tasks/task_home", "organization").text).words
    assert "Criteria" in task and "Entities" in task
    run = Markup(shared.get("/ui/task-runs/tr_home", "organization").text).words
    assert "Criterion runs" in run and "passed" in run


def test_a_leaderboard_has_the_best_published_run_of_each_agent(shared: World) -> None:
    shared.service.ask("POST", "/benchmark-runs/br_home_done/publish", key=shared.keys["organization"])
    board = shared.service.get("/benchmarks/bench_home/leaderboard", key=shared.keys["organization"]).json()
    assert [place["benchmark_run_id"] for place in board["places"]] == ["br_home_done"] and board["places"][0]["rank"] == 1


def test_the_page_of_a_leaderboard_shows_every_place_and_hostile_names_stay_text(own: World) -> None:
    from proctor.service.access.callers import LOCAL
    from proctor.store.sql.verification_records import OwnedRecords, change_record

    async def publish(hub: Any) -> None:
        async with hub.database.writing() as connection:
            for kind, id, more in (
                (
                    "benchmark_run",
                    "br_home_cancel",
                    {"status": "completed", "published": True, "score": 0.625, "agent": "<b>Ann</b>\u202e"},
                ),
                ("task_run", "tr_home_cancel", {"outcome": "pass", "axes": {"safety <i>": {"score": 0.75, "weight": 2}}}),
            ):
                row = await OwnedRecords(connection, LOCAL.organization_id).find(kind, id)
                assert row is not None
                await change_record(connection, LOCAL.organization_id, id, now=hub.now(), body={**row["body"], **more})

    own.service.run(publish)
    answer = own.get("/ui/leaderboard/bench-home", "organization")
    page = Markup(answer.text)
    assert answer.status_code == 200 and page.problems == [] and "\u202e" not in answer.text
    for word in ("<b>Ann</b>", "safety <i>", "100 %", "Tasks passed", "0.75"):
        assert word in page.words, (word, page.words)
    assert 'href="/ui/leaderboard/bench-home%401"' in own.get("/ui/benchmarks/bench_home", "organization").text


def test_the_axes_of_a_task_run_are_shown_with_their_scores(own: World) -> None:
    from proctor.service.access.callers import LOCAL
    from proctor.store.sql.verification_records import OwnedRecords, change_record

    axes = {"safety <b>": {"score": 0.25, "weight": 2}}

    async def score(hub: Any) -> None:
        async with hub.database.writing() as connection:
            row = await OwnedRecords(connection, LOCAL.organization_id).find("task_run", "tr_home")
            assert row is not None
            body = {**row["body"], "axes": axes, "verdict": "partial", "score": 0.25}
            await change_record(connection, LOCAL.organization_id, "tr_home", now=hub.now(), body=body)

    own.service.run(score)
    answer = own.get("/ui/task-runs/tr_home", "organization")
    page = Markup(answer.text)
    assert page.problems == [] and "safety <b>" in page.words and "partial" in page.words and "0.25" in page.words
    # A single axis without a name repeats the score.
    axes = {"__default__": {"score": 0.25, "weight": 1}}
    own.service.run(score)
    assert "__default__" not in own.get("/ui/task-runs/tr_home", "organization").text


def test_everything_stored_is_available_as_json(shared: World) -> None:
    answer = shared.get("/ui/benchmarks/bench_home/json", "organization")
    assert answer.json() == shared.service.get("/benchmarks/bench_home", key=shared.keys["organization"]).json()


def test_unknown_ids_are_not_found(shared: World) -> None:
    for path in (
        "/ui/nowhere",
        "/ui/nowhere/x",
        "/ui/benchmarks/bench_x",
        "/ui/benchmarks/bench_home/nothing",
        "/ui/runs",
        "/ui/v1/x",
        "/ui/p/x/y/z",
    ):
        assert shared.get(path, "organization").status_code == 404, path
    proof = shared.find_proof("/ui/benchmarks", "organization")
    assert shared.post("/ui/nowhere/x/y", "organization", proof=proof).status_code == 404
    assert shared.post("/ui/benchmarks/bench_x/delete", "organization", proof=proof).status_code == 404


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_hostile_text_stays_text_in_lists_records_and_forms(own: World) -> None:
    from proctor.service.access.callers import LOCAL
    from proctor.service.access.keys import KeySpec, create_key
    from proctor.service.notify.alerts import NewAlert, create_alert
    from proctor.service.verification.authoring.benchmarks import create_benchmark
    from proctor.service.verification.authoring.criteria import create_criterion
    from proctor.service.verification.authoring.tasks import create_task

    world, stored = own, list[str]()

    async def sow_hostile(hub: Any) -> None:
        for text in HOSTILE[::4]:
            try:
                text.encode()
            except UnicodeEncodeError:
                continue
            if not text.strip() or "\0" in text:
                continue
            stored.append(text)
            benchmark = await create_benchmark(hub, LOCAL, {"name": text[:200], "description": text[:1000]})
            task = {"benchmark_id": benchmark["id"], "name": text[:200], "task_item": {text[:80]: text[:500]}, "tags": [text[:80]]}
            made = await create_task(hub, LOCAL, task)
            claim = {"assert": "voice-transcript", "contains": [f"hello {text[:500]}"]}
            await create_criterion(hub, LOCAL, {"task_id": made["id"], "label": text[:500], "axis": text[:100], "assertion": claim})
            await create_alert(
                hub, LOCAL, NewAlert(project_id="proj_home", name=text[:200], kind="pass_rate", webhook_url="https://example.com/")
            )
            await create_key(hub, LOCAL, KeySpec(kind="organization", name=text[:200]))

    world.service.run(sow_hostile)
    assert len(stored) > 20
    for path in (
        "/ui/benchmarks",
        "/ui/tasks",
        "/ui/criteria",
        "/ui/keys",
        "/ui/audit",
        "/ui/p/proj_home/alerts",
        "/ui/tasks/new",
        "/ui/benchmark-runs/new",
    ):
        assert Markup(world.get(path, "organization").text).problems == [], path
    for noun in ("benchmarks", "tasks", "criteria"):
        for row in world.service.get(f"/{noun}?limit=40", key=world.keys["organization"]).json()["data"]:
            for path in (f"/ui/{noun}/{row['id']}", f"/ui/{noun}/{row['id']}/change", f"/ui/{noun}/{row['id']}/delete"):
                answer = world.get(path, "organization")
                assert answer.status_code == 200 and Markup(answer.text).problems == [], path
    proof = world.find_proof("/ui/keys", "organization")
    for text in stored[::2]:
        answer = world.get("/ui/search", "organization", params={"q": text[:200]})
        assert answer.status_code == 200 and Markup(answer.text).problems == [], text
        typed = {"name": text[:300], "settings": text, "description": text}
        answer = world.post("/ui/projects/new", "organization", proof=proof, **typed)
        assert answer.status_code in (303, 400) and (answer.status_code == 303 or Markup(answer.text).problems == [])


def test_a_change_that_changes_nothing_writes_nothing(own: World) -> None:
    world = own
    before = world.service.get("/criteria/crit_home", key=world.keys["organization"]).json()
    form = world.get("/ui/criteria/crit_home/change", "organization").text
    typed = read_form(form)
    assert json.loads(typed["assertion"]) == before["assertion"]
    typed["assertion"] = typed["assertion"].replace("\n", "\r\n")  # as browsers send it
    answer = world.post("/ui/criteria/crit_home/change", "organization", proof=world.find_proof("/ui/keys", "organization"), **typed)
    assert answer.status_code == 303
    after = world.service.get("/criteria/crit_home", key=world.keys["organization"]).json()
    assert after["updated_at"] == before["updated_at"] and after == before


def test_a_sandbox_shows_what_differs_what_happened_and_what_it_holds(world: World) -> None:
    author = Author(world.service, world.keys["organization"])
    simulator = author.post(
        "/simulators",
        {
            "name": "clinic",
            "type": "FHIR",
            "config": {"seed": {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": PATIENT}]}},
        },
    )
    sandbox = author.post("/sandboxes", {"simulator_id": simulator["id"]})
    here = f"/ui/sandboxes/{sandbox['id']}"
    before = Markup(world.get(here, "organization").text)
    assert "No changes in the systems." in before.words and "Smith" in before.words
    token = {"authorization": f"Bearer {sandbox['credentials']['token']}"}
    address = f"{sandbox['credentials']['fhir_base_url']}/Patient/ann"
    changed = world.service.client.put(address, json={**PATIENT, "name": [{"family": "</pre>Jones"}]}, headers=token)
    assert changed.status_code == 200, changed.text
    for path in (here, f"{here}/diff"):
        text = world.get(path, "organization").text
        page = Markup(text)
        assert page.problems == [] and "± changed" in page.words and "Patient/ann" in page.words
        assert re.search(r"<del>.*Smith.*</del><ins>.*&lt;/pre&gt;Jones.*</ins>", text)
    text = world.get(here, "organization").text
    assert (
        "PUT /Patient/ann" in Markup(text).words
        and f'href="{here}/state"' in text
        and f'href="{here}/diff"' in text
        and f'href="{here}/events"' in text
    )
    assert "PUT /Patient/ann" in Markup(world.get(f"{here}/events", "organization").text).words
    shown = Markup(text).words
    assert "Changes" in shown and "Current state" in shown


def test_an_empty_sandbox_shows_that_it_has_no_data(seen: World) -> None:
    page = Markup(seen.get("/ui/sandboxes/sb_home", "organization").text)
    assert "the sandbox has no data" in page.words


def test_the_navigation_has_every_noun_but_older_names() -> None:
    grouped = [word for words in nouns.GROUPS.values() for word in words]
    assert sorted([*grouped, "evals", "eval-runs"]) == sorted(first for first, _ in nouns.list_nouns())
