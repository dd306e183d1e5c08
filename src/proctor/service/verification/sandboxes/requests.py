"""Requests to simulated systems: who may ask which, and what comes of it.

A sandbox that was made by hand is asked with its own token or a key of its organization; the systems of a started task run with the token
of its run. What is due to happen by itself happens before a request is answered. Requests to one sandbox are answered one after the other
here; between servers, whoever comes second does its work again. While somebody outside is asked on behalf of a system, nothing is held:
who is asked may use the systems of the sandbox meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json, State, StateChange, StateRequest
from proctor.model.show import nearest, show
from proctor.model.system import System
from proctor.processes.call_limit import CallTooLong, run_within
from proctor.sandboxes.outside import fetch_outside
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.seeding import make_surroundings
from proctor.service.verification.sandboxes.lifecycle import open_store, perform_step
from proctor.simulators.exchange import GO_ON, Errand, Fetched, Request, Response
from proctor.simulators.ports import Desk, Simulator, Surroundings, Tool
from proctor.simulators.registry import find_simulator, list_kinds
from proctor.simulators.sandbox import Sandbox, answer_counted, is_open_path, join_state
from proctor.simulators.store import SandboxClosed, SandboxFull
from proctor.simulators.tools import describe_wrong_call, find_tools, make_tool_request, write_tool_refusal, write_tool_result
from proctor.store.accounts.sandboxes import DatabaseStore, find_heads, find_open_of_run, list_open_of_run
from proctor.store.sql.pages import Row

ANSWER_S = 30.0
"""How long a simulated system may compute for one request. The count of steps ends all requests before that whose work is counted."""
_TRIES = 20
_LOG = logging.getLogger("proctor.serve")
_MOST_ERRANDS = 20
"""How often somebody outside is asked on behalf of one request."""


class _Away(Exception):
    """A system has to ask somebody outside: whoever waits for its turn goes first."""

    def __init__(self, errand: Errand) -> None:
        super().__init__(errand.url)
        self.errand = errand


async def find_sandbox(hub: Hub, caller: Caller | None, id: str, system: str, path: str) -> Row:
    """Return a sandbox that was asked for by its id. Raises `Refusal` for who may not, and where there is nothing to ask."""
    async with hub.database.reading() as connection:
        head = (await find_heads(connection, [id])).get(id)
    if head is None or not is_open(head, system, path):
        head = _require_own(caller, head, id)
        if head["kind"] != system:
            raise not_found("system in this sandbox", system)
    return _require_active(hub, head)


async def find_whole_sandbox(hub: Hub, caller: Caller | None, id: str) -> Row:
    """Return a sandbox for whoever may use all of it. Raises `Refusal` as `find_sandbox`."""
    async with hub.database.reading() as connection:
        head = (await find_heads(connection, [id])).get(id)
    return _require_active(hub, _require_own(caller, head, id))


async def find_sandbox_of_run(hub: Hub, caller: Caller | None, run_id: str, system: str, path: str) -> Row:
    """Return the sandbox in which the started task of a run works. Raises `Refusal`: 409 where no task is started."""
    async with hub.database.reading() as connection:
        head = await find_open_of_run(connection, run_id, system)
        others = [] if head is not None else await list_open_of_run(connection, run_id)
    # Before anything is said about the run: what follows tells which systems it has.
    if head is None or not is_open(head, system, path):
        _require_run(caller, run_id)
    if head is None and system not in list_kinds():
        raise not_found(f"kind of system (there are {', '.join(list_kinds())})", system)
    if head is None and others:
        kinds = ", ".join(other["kind"] for other in others)
        raise Refusal("CONFLICT", f"the started task has no system {system!r}; its environment has {kinds}")
    if head is None or _is_over(hub, head):
        raise Refusal("CONFLICT", f"no task of the run is started that has a system {system!r}; start one first")
    return head


async def list_sandboxes_of_run(hub: Hub, caller: Caller | None, run_id: str) -> list[Row]:
    """Return all sandboxes in which the started task of a run works. Raises `Refusal`: 409 where no task is started."""
    _require_run(caller, run_id)
    async with hub.database.reading() as connection:
        heads = await list_open_of_run(connection, run_id)
    found = [head for head in heads if not _is_over(hub, head)]
    if not found:
        raise Refusal("CONFLICT", "no task of the run is started that has systems; start one first")
    return found


def _require_own(caller: Caller | None, head: Row | None, id: str) -> Row:
    if caller is None:
        raise _refuse_stranger()
    if caller.kind not in ("organization", "sandbox"):
        raise Refusal("FORBIDDEN", "a sandbox is asked with its own token or an organization key")
    if head is None or not _owns(caller, head):
        raise not_found("sandbox", id)
    return head


def _require_active(hub: Hub, head: Row) -> Row:
    if _is_over(hub, head):
        raise Refusal("CONFLICT", "the sandbox has been torn down")
    return head


def _require_run(caller: Caller | None, run_id: str) -> None:
    if caller is None:
        raise _refuse_stranger()
    if caller.kind != "run":
        raise Refusal("FORBIDDEN", "the systems of a run are asked with the token of the run")
    if caller.benchmark_run_id != run_id:
        raise not_found("benchmark run", run_id)


def _is_over(hub: Hub, head: Row) -> bool:
    return head["closed_at"] is not None or (head["expires_at"] is not None and head["expires_at"] <= hub.now())


def is_open(head: Row, system: str, path: str) -> bool:
    """Return whether a path is answered without a token."""
    return head["kind"] == system and is_open_path(find_simulator(system), path)


def owns_token(caller: Caller, head: Row) -> bool:
    """Return whether a token is that of a sandbox, or of the run that works in it."""
    if caller.kind == "run":
        return caller.benchmark_run_id == head["benchmark_run_id"]
    return caller.kind == "sandbox" and caller.sandbox_id == head["id"]


def _owns(caller: Caller, head: Row) -> bool:
    return caller.organization_id == head["organization_id"] and (caller.kind == "organization" or caller.sandbox_id == head["id"])


def _refuse_stranger() -> Refusal:
    return Refusal("UNAUTHORIZED", "the token of the sandbox, or of the run, is needed: Authorization: Bearer ...")


async def answer_request(hub: Hub, head: Row, request: Request) -> Response:
    """Answer a request to a sandbox, and keep it with what it changed; what the system has left to do then is done beside."""
    response = await _answer(hub, head, request)
    if response.then:
        task = asyncio.create_task(_go_on(hub, head, request, response.then), name="a simulated system goes on")
        # asyncio itself holds tasks weakly: one that nobody else holds may be collected before it is done.
        hub.sandbox_tasks.add(task)
        task.add_done_callback(hub.sandbox_tasks.discard)
    return response


async def _go_on(hub: Hub, head: Row, request: Request, then: str) -> None:
    """Let a system do what it has left to do, until it is done or its sandbox is torn down."""
    while then:
        async with hub.database.reading() as connection:
            now = (await find_heads(connection, [head["id"]])).get(head["id"])
        if now is None or _is_over(hub, now):
            return
        try:
            response = await _answer(hub, now, Request(method=GO_ON, path=then, base=request.base, token=request.token))
        except Refusal as refusal:
            _LOG.info("a simulated system does not go on: %s", refusal)
            return
        then = response.then


async def stop_going_on(hub: Hub) -> None:
    """Leave undone what simulated systems have left to do."""
    tasks = list(hub.sandbox_tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(hub: Hub, head: Row, request: Request) -> Response:
    for _ in range(_MOST_ERRANDS):
        try:
            return await _answer_in_turn(hub, head, request)
        except _Away as away:
            fetched = await fetch_outside(away.errand, allowed=hub.settings.allowed_addresses)
        # Answered again from the beginning, with all that was fetched so far: nothing of the try that broke off was kept.
        request = msgspec.structs.replace(request, fetched=(*request.fetched, fetched))
    raise Refusal("CONFLICT", f"more than {_MOST_ERRANDS} services would have to be asked for one request")


async def _answer_in_turn(hub: Hub, head: Row, request: Request) -> Response:
    """Answer a request when it is its turn. Raises `_Away` where somebody outside has to be asked first, and then nothing is kept."""
    store = open_store(hub, head["organization_id"])
    answer = functools.partial(_answer_in_thread, hub, head)
    sandbox = Sandbox(head["id"], _list_systems(head), store, make_surroundings(hub), answer=answer)
    async with hub.sandbox_turns.get(head["id"]):
        try:
            await perform_due_steps(hub, store, head)
            return await sandbox.handle(head["kind"], request, fetch=_leave)
        except SandboxClosed:
            raise Refusal("CONFLICT", "the sandbox has been torn down") from None
        except SandboxFull as error:
            raise Refusal("PAYLOAD_TOO_LARGE", f"{error} (--sandbox-rows, --sandbox-bytes)") from None


async def _leave(errand: Errand) -> Fetched:
    raise _Away(errand)


async def _answer_in_thread(hub: Hub, head: Row, simulator: Simulator, request: Request, desk: Desk) -> Response:
    """Let a simulator answer in a thread, a few at a time. Raises `CheckFault` where that takes too long."""
    place = hub.sandbox_places.enter((head["organization_id"], head["id"]))
    began = 0.0
    try:
        await place.granted
        began = time.monotonic()
        return await run_within(lambda: answer_counted(simulator, request, desk), ANSWER_S)
    except CallTooLong:
        raise CheckFault("too_much_work", f"answering this request takes more than {ANSWER_S:g} s") from None
    finally:
        hub.sandbox_places.leave(place, time.monotonic() - began if began else 0.0)


async def perform_due_steps(hub: Hub, store: DatabaseStore, head: Row) -> None:
    """Let happen what was to happen by now; each step once, whoever comes first."""
    steps = cast("list[dict[str, Json]]", head["steps"] or [])
    done: int = head["steps_done"]
    for number in range(done, len(steps)):
        # What would have come after the end of a sandbox comes never, whenever somebody looks.
        if steps[number]["at"] > min(hub.now(), head["expires_at"] or hub.now()):
            return
        for _ in range(_TRIES):
            snapshot = await store.load(head["id"])
            step = steps[number]
            note, changes = await asyncio.to_thread(perform_step, hub, head["kind"], snapshot.rows, step["step"], step["given"])
            if await store.advance(head["id"], snapshot.revision, changes, note, step=number):
                break
            async with hub.database.reading() as connection:
                now = (await find_heads(connection, [head["id"]])).get(head["id"])
            # Somebody changed the sandbox meanwhile. If it was by this very step, it is done; else it is tried on what is there now.
            if now is None or now["steps_done"] > number:
                break


def _list_systems(head: Row) -> tuple[System, ...]:
    return (System(name=head["kind"], kind=head["kind"]),)


# --- what is left behind ----------------------------------------------------------------------------------------------


class Ended(msgspec.Struct, frozen=True):
    """What sandboxes hold, and which moment of them it is."""

    state: State
    stamps: tuple[str, ...]
    unplayed: tuple[str, ...] = ()
    """Steps of the scenario that did not happen, and why."""


async def read_end_state(hub: Hub, heads: Sequence[Row]) -> Ended:
    """Return the state of sandboxes together: what they hold, every request, and what differs from how they began."""
    families: dict[str, Json] = {}
    requests: list[StateRequest] = []
    changes: list[StateChange] = []
    stamps: list[str] = []
    unplayed: list[str] = []
    for head in heads:
        store = open_store(hub, head["organization_id"])
        async with hub.sandbox_turns.get(head["id"]):
            full = await _perform_last_steps(hub, store, head)
            async with hub.database.reading() as connection:
                now = (await find_heads(connection, [head["id"]])).values()
            stamps += make_stamps(now)
            notes = await store.list_notes(head["id"]) if head["steps"] else ()
            unplayed += [told for one in now for told in _list_unplayed(one, notes, full)]
            around = _make_surroundings_until(hub, head)
            state = await Sandbox(head["id"], _list_systems(head), store, around, read=asyncio.to_thread).read_state()
        requests += state.requests or ()
        changes += state.changes or ()
        join_state(families, msgspec.structs.replace(state, requests=None, changes=None, systems=None))
    families["requests"] = tuple(sorted(requests, key=lambda request: request.at or ""))
    families["changes"] = tuple(changes)
    families["systems"] = tuple(dict.fromkeys(head["kind"] for head in heads))
    return Ended(State(**families), tuple(stamps), tuple(unplayed))


async def _perform_last_steps(hub: Hub, store: DatabaseStore, head: Row) -> str:
    """Let happen what was to happen before somebody looks; returns why there was no room for it, if so."""
    if head["closed_at"] is None:
        try:
            await perform_due_steps(hub, store, head)
        except SandboxFull as error:
            return str(error)
    return ""


def _list_unplayed(head: Row, notes: Iterable[Mapping[str, Json]], full: str) -> list[str]:
    """Return the steps of a scenario that were not performed, in sentences: those that failed, and those that were left."""
    failed = [f"the step {one['step']} of {head['kind']} could not be performed: {one['error']}" for one in notes if one.get("error")]
    steps = cast("list[dict[str, Json]]", head["steps"] or [])[head["steps_done"] :]
    return failed + [f"the step {one['step']} of {head['kind']} did not happen: {full or 'its time had not come'}" for one in steps]


def _make_surroundings_until(hub: Hub, head: Row) -> Surroundings:
    """Return surroundings in which no time passes after the end of a sandbox: what has ended stays as it was."""
    ends = [moment for moment in (head["closed_at"], head["expires_at"]) if moment is not None]
    return msgspec.structs.replace(make_surroundings(hub), now=lambda: min([hub.now(), *ends]))


def make_stamps(heads: Iterable[Row]) -> list[str]:
    """Return a text for each sandbox that is another one after every request to it."""
    return [f"{head['id']} {head['revision']} {head['events']}" for head in heads]


# --- what a model can do in the sandboxes of a service: the tools of their kinds, each a request like any other


class Reached(msgspec.Struct, frozen=True):
    """The sandboxes that somebody may use, and below which address."""

    heads: tuple[Row, ...]
    base: str
    token: str = ""
    """What they are reached with, which no event may show."""


def list_system_tools(reached: Reached) -> dict[str, tuple[Row, Tool]]:
    """Return the tools of all systems by name, each with its sandbox."""
    # Every tool begins with its kind, and a run has one system of a kind.
    return {tool.name: (head, tool) for head in reached.heads for tool in find_tools(find_simulator(head["kind"]))}


async def call_system_tool(hub: Hub, reached: Reached, name: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Call a tool, and return a result of MCP; what is refused is one that says `isError`. Raises `SpecError` for an unknown tool."""
    tools = list_system_tools(reached)
    if name not in tools:
        raise SpecError(f"there is no tool {show(name, 100)}", field="name", nearest=nearest(name, tools))
    head, tool = tools[name]
    try:
        request = make_tool_request(tool, arguments)
    except SpecError as error:
        return write_tool_refusal(describe_wrong_call(error))
    try:
        request = msgspec.structs.replace(request, base=f"{reached.base}/{head['kind']}", token=reached.token)
        answer = await answer_request(hub, head, request)
    except Refusal as refusal:
        return write_tool_refusal(refusal.message)
    return write_tool_result(answer)
