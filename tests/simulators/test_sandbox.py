"""Sandboxes: events, differences, resets, and conflicting or failing requests."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.errors import SpecError
from proctor.model.case import Step, System
from proctor.model.evidence import Evidence, FaxState, State, StateChange, StateRequest
from proctor.simulators.exchange import Request
from proctor.simulators.kinds import records
from proctor.simulators.kinds.files import FilesSimulator
from proctor.simulators.ports import Desk, Simulator, find_simulator, list_kinds
from proctor.simulators.rows import Change, MemoryStore
from proctor.simulators.sandbox import MOST_BODY, Sandbox, join_state, provision_rows
from proctor.simulators.seeds import MOST_STEPS, ScenarioStep, join_config, read_scenario
from tests.simulators.workplace import NOW, Workplace, make_surroundings, read

SHOP: dict[str, Any] = {"orders": [{"id": "1", "status": "open"}, {"id": "2", "status": "paid"}]}
DROP = {"step": "drop_file_inbox", "given": {"path": "a"}}


def test_every_request_is_an_event() -> None:
    shop = Workplace("records", SHOP)
    shop.ask("PATCH", "/orders/1?x=1", {"status": "paid"})
    shop.ask("GET", "/nothing")
    patch, get = shop.state().requests or ()
    assert patch == StateRequest(
        system="records",
        method="PATCH",
        path="/orders/1?x=1",
        status=200,
        body={"status": "paid"},
        response={"id": "1", "status": "paid"},
        at=NOW,
        duration_ms=0.0,
    )
    assert (get.method, get.path, get.status) == ("GET", "/nothing", 404)


def test_bodies_in_events_are_bounded() -> None:
    shop = Workplace("files")
    shop.ask("PUT", "/a.txt", b"x" * (2 * MOST_BODY))
    shop.ask("PUT", "/a.bin", b"\xff\xfe")
    one, two = shop.state().requests or ()
    assert len(one.body) < MOST_BODY + 50
    assert two.body == "(2 bytes that are not text)"
    assert (one.cut, two.cut) == (("body",), ("body",))


@pytest.mark.parametrize(
    "claim",
    [
        "state.requests[*].body.amount < 100",
        'not ("refund" in state.requests[1].body)',
        'all("refund" not in state.requests[*].body)',
        "not exists(state.requests[1].body.amount)",
        "len(state.requests[1].response) < 100",
    ],
)
def test_no_claim_is_decided_on_a_part_of_a_body(claim: str) -> None:
    shop = Workplace("records", {"orders": []})
    shop.ask("POST", "/orders", {"amount": 5})
    shop.ask("POST", "/orders", {"note": "x" * MOST_BODY, "refund": True, "amount": 500})
    registry = default_registry()
    verdict = registry.prepare("that", registry.get("that").spec(expression=claim))(Evidence(state=shop.state()))
    assert (verdict.outcome, verdict.code) == ("error", "missing_evidence"), verdict.reason


def test_differences_list_added_changed_and_removed_items() -> None:
    shop = Workplace("records", SHOP)
    shop.ask("POST", "/orders", {"id": "3"})
    shop.ask("PATCH", "/orders/1", {"status": "paid"})
    shop.ask("DELETE", "/orders/2")
    assert shop.state().changes == (
        StateChange(
            system="records", change="changed", place="orders/1", before={"id": "1", "status": "open"}, after={"id": "1", "status": "paid"}
        ),
        StateChange(system="records", change="removed", place="orders/2", before={"id": "2", "status": "paid"}),
        StateChange(system="records", change="added", place="orders/3", after={"id": "3"}),
    )
    asyncio.run(shop.sandbox.reset())
    assert shop.state().changes == ()
    assert shop.state().records == SHOP


def test_a_scenario_is_part_of_the_initial_state() -> None:
    drop = Workplace("files", {"a.txt": "a"}, scenario=(Step(name="drop_file_inbox", given={"path": "b.txt", "content": "b"}),))
    assert [file.path for file in drop.state().files or ()] == ["a.txt", "inbox/b.txt"]
    assert drop.state().changes == ()


def test_nothing_an_agent_does_changes_the_dataset() -> None:
    seed = copy.deepcopy(SHOP)
    around = make_surroundings()
    systems = (System(name="shop", kind="records", seed=seed),)
    rows = provision_rows(systems, around)
    before = copy.deepcopy(rows)
    shop = Workplace("records", seed)
    shop.ask("PATCH", "/orders/1", {"status": "paid", "more": {"deep": 1}})
    shop.ask("PATCH", "/orders/1", {"more": {"deep": 2}})
    shop.ask("DELETE", "/orders/2")
    assert seed == SHOP
    assert rows == before


def test_a_conflicting_request_is_repeated_on_the_newer_rows() -> None:
    class Meddler(MemoryStore):
        met = False

        async def commit(self, sandbox: str, revision: int, changes: tuple[Change, ...], event: StateRequest) -> bool:
            if not self.met:
                self.met = True
                await super().commit(sandbox, revision, (Change("records/orders", "1", {"id": "1", "count": 1}),), event)
            return await super().commit(sandbox, revision, changes, event)

    shop = Workplace("records", SHOP, store=Meddler())
    assert read(shop.ask("PATCH", "/orders/1", {"mine": True})) == {"id": "1", "count": 1, "mine": True}


def test_a_bug_in_a_system_keeps_nothing_but_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(request: object, desk: Desk) -> object:
        desk.rows.put("orders", "9", {"id": "9"})
        raise RuntimeError("no")

    shop = Workplace("records", SHOP)
    monkeypatch.setattr(records.SIMULATOR, "handle", break_off)
    assert shop.ask("POST", "/orders", {}).status == 500
    state = shop.state()
    assert state.changes == ()
    assert [one.status for one in state.requests or ()] == [500]


@pytest.mark.parametrize("kind", list_kinds())
def test_every_kind_has_a_description_and_tools_with_schemas(kind: str) -> None:
    simulator: Simulator = find_simulator(kind)
    assert simulator.kind == kind
    assert simulator.summary.endswith(".")
    tools = simulator.list_tools()
    assert tools
    for tool in tools:
        assert tool.name.startswith(f"{kind}_")
        assert tool.schema["type"] == "object"
        assert set(tool.schema.get("required", ())) <= set(tool.schema["properties"])


def test_tools_do_what_requests_do() -> None:
    shop = Workplace("records", SHOP)

    def call(tool: str, **given: Any) -> Any:
        response = asyncio.run(shop.sandbox.call_tool("records", tool, given))
        return read(response) if response.body else response.status

    assert call("records_create", collection="orders", row={"id": "3", "status": "open"})["id"] == "3"
    assert call("records_list", collection="orders", filters={"status": "open"})["total"] == 2
    assert call("records_update", collection="orders", id="3", row={"status": "paid"}) == {"id": "3", "status": "paid"}
    assert call("records_delete", collection="orders", id="3") == 204
    with pytest.raises(SpecError, match="unknown tool"):
        call("records_delet")


def add_row(content: Any) -> System:
    return System(name="a", kind="records", seed={"x": [{"id": 1}]}, scenario=(Step(name="add_row", given=content),))


_ADDED = "a.scenario.0.add_row"


@pytest.mark.parametrize(
    ("system", "field", "message"),
    [
        (System(name="a", kind="recrods"), "kind", "unknown kind"),
        (System(name="a", kind="records", seed=[]), "a.seed", "collections"),
        (System(name="a", kind="records", seed={"x": {"rowz": []}}), "a.seed.x.rowz", "unknown key"),
        (System(name="a", kind="records", seed={"x": [{"id": 1}, {"id": "1"}]}), "a.seed.x.1", "already"),
        (System(name="a", kind="records", seed={"x": {"schema": {"type": "obj"}}}), "a.seed.x.schema", "schema"),
        (System(name="a", kind="records", seed={"x": {"rules": [{"on": "creation"}]}}), "a.seed.x.rules.0.on", "creation"),
        (System(name="a", kind="files", seed={"../x": ""}), "a.seed.../x", "inside the drop"),
        (System(name="a", kind="files", scenario=(Step(name="drop"),)), "a.scenario.0", "drop_file_inbox"),
        (System(name="a", kind="files", scenario=(Step(name="drop_file_inbox"),)), "a.scenario.0.drop_file_inbox", "path"),
        (add_row(None), _ADDED, "collection and row"),
        (add_row({"collection": "x"}), _ADDED, "collection and row"),
        (add_row({"collection": 1, "row": {}}), _ADDED, "collection and row"),
        (add_row({"collection": "y", "row": {}}), _ADDED, 'no collection "y"'),
        (add_row({"collection": "x", "row": {"id": 1}}), _ADDED, "already"),
    ],
)
def test_an_unusable_seed_field_is_refused_at_its_place(system: System, field: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        provision_rows((system,), make_surroundings())
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("scenario", "field"),
    [
        ([], None),
        ({"steps": [], "stepz": 1}, "stepz"),
        ({"steps": {}}, "steps"),
        ({"steps": [DROP] * (MOST_STEPS + 1)}, "steps"),
        ({"steps": ["drop_file_inbox"]}, "steps.0"),
        ({"steps": [DROP, {**DROP, "aftr_s": 1}]}, "steps.1.aftr_s"),
        ({"steps": [{"given": {}}]}, "steps.0.step"),
        ({"steps": [{**DROP, "after_s": -1}]}, "steps.0.after_s"),
        ({"steps": [{**DROP, "after_s": 2e7}]}, "steps.0.after_s"),
        ({"steps": [{**DROP, "after_s": True}]}, "steps.0.after_s"),
        ({"steps": [{"step": "drop"}]}, "steps.0"),
        ({"drop": {}}, "drop"),
        ({"steps": [{**DROP, "simulator": "filez"}]}, "steps.0.simulator"),
        ({"steps": [{**DROP, "simulator": "records"}]}, "steps.0.step"),
    ],
)
def test_an_unusable_scenario_is_refused_at_its_place(scenario: Any, field: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        read_scenario(scenario)
    assert caught.value.field == field


def test_a_scenario_has_a_short_and_a_long_form() -> None:
    assert read_scenario(None) == ()
    step = ScenarioStep(kind="files", step="drop_file_inbox", given={"path": "a"})
    assert read_scenario({"drop_file_inbox": {"path": "a"}}) == read_scenario({"steps": [{**DROP, "simulator": "Files"}]}) == (step,)
    steps = [{**DROP, "after_s": 10_000_000}] * MOST_STEPS
    assert read_scenario({"steps": steps}) == (msgspec.structs.replace(step, after_s=1e7),) * MOST_STEPS


def test_systems_of_one_sandbox_are_separate() -> None:
    around = make_surroundings()
    systems = (System(name="shop", kind="records", seed=SHOP), System(name="drop", kind="files", seed={"orders/1": "a file"}))
    sandbox = Sandbox("s", systems, MemoryStore(), around)
    asyncio.run(sandbox.provision(provision_rows(systems, around)))
    state = asyncio.run(sandbox.read_state())
    assert state.records == SHOP
    assert [file.path for file in state.files or ()] == ["orders/1"]


class LateDrop:
    """A drop into which files come later, on a clock that a test sets."""

    def __init__(self, *steps: Step, seed: Any = None) -> None:
        self.seconds = 100.0
        around = msgspec.structs.replace(make_surroundings(), seconds=lambda: self.seconds)
        systems = (System(name="drop", kind="files", seed=seed, scenario=steps),)
        self.sandbox = Sandbox("s", systems, MemoryStore(), around)
        asyncio.run(self.sandbox.provision(provision_rows(systems, around)))

    def list_files(self) -> list[str]:
        answer = read(asyncio.run(self.sandbox.handle("drop", Request(method="GET"))))
        return [file["path"] for file in answer["files"]]


def drop(path: str, after_s: float) -> Step:
    return Step(name="drop_file_inbox", given={"path": path, "content": "x"}, after_s=after_s)


def test_late_steps_are_visible_to_the_next_request_and_are_no_change() -> None:
    late = LateDrop(drop("c.txt", 60), drop("b.txt", 30), drop("a.txt", 0))
    assert late.list_files() == ["inbox/a.txt"]
    late.seconds += 45
    assert late.list_files() == ["inbox/a.txt", "inbox/b.txt"]
    late.seconds += 45
    # A client of SFTP may open a file, or ask for its size, before it lists any.
    seen = read(asyncio.run(late.sandbox.look("drop", Request(method="GET"))))
    assert [file["path"] for file in seen["files"]] == ["inbox/a.txt", "inbox/b.txt", "inbox/c.txt"]
    state = asyncio.run(late.sandbox.read_state())
    assert [file.path for file in state.files or ()] == ["inbox/a.txt", "inbox/b.txt", "inbox/c.txt"]
    assert (state.changes, late.sandbox.failed_steps) == ((), [])


def test_an_impossible_late_step_is_reported() -> None:
    late = LateDrop(Step(name="drop_file_inbox", given={"path": "../a"}, after_s=5))
    late.seconds += 10
    assert late.list_files() == []
    (message,) = late.sandbox.failed_steps
    assert message.startswith("drop: drop_file_inbox: ")


def test_datasets_are_added_to_the_seed() -> None:
    system = System(name="a", kind="files", seed={"a": "1"}, datasets=({"b": "2"}, {"../c": "3"}))
    with pytest.raises(SpecError) as caught:
        provision_rows((system,), make_surroundings())
    assert (caught.value.field or "").startswith("a.datasets.1")
    rows = provision_rows((msgspec.structs.replace(system, datasets=({"b": "2"},)),), make_surroundings())
    assert list(rows["a/"]) == ["a", "b"]


def test_a_late_step_with_a_bug_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(self: object, step: str, given: object, desk: object) -> None:
        raise ZeroDivisionError("by mistake")

    late = LateDrop(drop("a", 5))
    monkeypatch.setattr(FilesSimulator, "perform", break_down)
    late.seconds += 10
    assert late.list_files() == []
    assert late.sandbox.failed_steps == ["drop: drop_file_inbox: a bug in the simulated system: ZeroDivisionError: by mistake"]


@pytest.mark.parametrize(("was", "now"), [(True, 1), (0, False), (1, 1.0), ([{"a": True}], [{"a": 1}])])
def test_a_value_of_another_type_is_a_change(was: object, now: object) -> None:
    shop = Workplace("records", {"orders": [{"id": 7, "paid": was, "item": "lamp"}]})
    shop.ask("PUT", "/orders/7", {"paid": now, "item": "lamp"})
    assert [change.change for change in shop.state().changes or ()] == ["changed"]
    shop.ask("PUT", "/orders/7", {"item": "lamp", "paid": was})
    assert shop.state().changes == ()


def test_systems_whose_state_is_of_one_family_keep_all_of_it() -> None:
    families: dict[str, object] = {}
    join_state(families, State(records={"rings": [{"who": "ann"}], "notes": [{"id": 1}]}, fax=FaxState(documents=({"id": "1"},))))
    join_state(families, State(records={"orders": [], "notes": [{"id": 2}]}, fax=FaxState(documents=({"id": "2"},)), files=()))
    assert families == {
        "records": {"rings": [{"who": "ann"}], "orders": [], "notes": [{"id": 1}, {"id": 2}]},
        "fax": FaxState(documents=({"id": "1"}, {"id": "2"})),
        "files": (),
    }


@pytest.mark.parametrize(
    ("kind", "seed", "place", "message"),
    [
        ("records", {"o": {"rules": 5}}, "o.rules", "expected a list"),
        ("records", {"o": {"rules": [{"on": "updte", "refuse": "x"}]}}, "o.rules.0.on", "one of create, update, delete"),
        ("records", {"o": {"rules": [{"on": "update"}]}}, "o.rules.0", "does nothing"),
        ("records", {"o": {"rules": [{"on": "create", "was": {"a": 1}, "refuse": "x"}]}}, "o.rules.0.was", "never holds"),
        ("records", {"o": {"rules": [{"on": [], "refuse": "x"}]}}, "o.rules.0.on", "never holds"),
        ("records", {"o": {"rules": [{"set": {"id": 5}}]}}, "o.rules.0.set.id", "stays"),
        ("records", {"o": {"unique": "number"}}, "o.unique", "expected a list"),
        ("records", {"o": {"schema": True}}, "o.schema", "expected an object"),
        ("records", {"o": {"read_only": "yes"}}, "o.read_only", "true or false"),
        ("portal", {"patients": [{"member_id": "a"}, {"member_id": "a"}]}, "patients.1.member_id", "twice"),
        ("portal", {"requests": [{"status": "aproved"}]}, "requests.0.status", "approved"),
        ("portal", {"requests": [{"stauts": "approved"}]}, "requests.0.stauts", "status"),
        ("portal", {"requests": [{"procedurecode": "70551"}]}, "requests.0.procedurecode", "procedure_code"),
        ("portal", {"requests": [{}, {"submitted_at": "yesterday"}]}, "requests.1.submitted_at", "expected a moment"),
        ("portal", {"patients": [{"member_id": "a", "nmae": "Ann"}]}, "patients.0.nmae", "name"),
        ("portal", {"requests": [{"request_id": "1"}, {"request_id": "1"}]}, "requests.1.request_id", "already"),
        ("x12", {"members": [{"member_id": "a"}, {"member_id": "a"}]}, "members.1.member_id", "twice"),
        ("messages", {"people": [{"id": "a"}, {"id": "a"}]}, "people.1.id", "twice"),
        ("messages", {"people": [{"id": "a", "phone": "+15550101"}, {"id": "b", "phone": "+1 5550101"}]}, "people.1.phone", "twice"),
        ("voice", {"lines": [{"number": "+1555", "answers": []}, {"number": "+1 555", "answers": []}]}, "lines.1.number", "twice"),
        ("hl7", {"accepts": ["ORM^O01", "orm"]}, "accepts.1", "a type such as"),
    ],
)
def test_a_seed_that_would_lose_data_is_refused(kind: str, seed: Any, place: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        provision_rows((System(name="a", kind=kind, seed=seed),), make_surroundings())
    assert caught.value.field == f"a.seed.{place}"


def test_pending_steps_are_reported() -> None:
    late = LateDrop(drop("a.txt", 5), drop("b.txt", 60))
    late.seconds += 10
    late.list_files()
    assert late.sandbox.list_unplayed() == ("the step drop_file_inbox of drop, due after 60 s, did not happen: the agent was done before",)


def test_config_and_dataset_are_merged() -> None:
    config, dataset = {"patients": [{"member_id": "a"}], "portal": "radmd"}, {"patients": [{"member_id": "b"}]}
    assert join_config("portal", config, [dataset]) == [config, dataset]
    assert join_config("portal", {"portal": "radmd"}, [dataset]) == [{"portal": "radmd", **dataset}]
