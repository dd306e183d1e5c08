"""Requests to simulated systems: access, and answers.

A sandbox of a user accepts its own token or a key of its organization; the systems of a started task run accept the token of the run. Due
scenario steps happen before a request is answered. Requests to one sandbox are answered one at a time; between servers, the second repeats
its work. While a system calls an external service nothing is locked, so that the service may use the sandbox.
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
from proctor.model.case import System
from proctor.model.evidence import Json, State, StateChange, StateRequest
from proctor.model.show import nearest, show
from proctor.processes.call_limit import CallTooLong, run_within
from proctor.sandboxes.outside import fetch_outside
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.seeding import make_surroundings
from proctor.service.verification.sandboxes.playgrounds import open_store, perform_step
from proctor.simulators.exchange import GO_ON, Errand, Fetched, Request, Response
from proctor.simulators.ports import Desk, Simulator, Tool, find_simulator, list_kinds
from proctor.simulators.rows import SandboxClosed, SandboxFull
from proctor.simulators.sandbox import Sandbox, answer_counted, is_open_path, join_state
from proctor.simulators.tools import describe_wrong_call, make_tool_request, write_tool_refusal, write_tool_result
from proctor.store.accounts.sandboxes import DatabaseStore, find_heads, find_open_of_run, list_open_of_run
from proctor.store.sql.pages import Row

ANSWER_S = 30.0
"""Seconds that a simulated system may compute for one request. The step count usually ends requests earlier."""
_TRIES = 20
_LOG = logging.getLogger("proctor.serve")
_MOST_CALLS_OUT = 20
"""External calls on behalf of one request."""


class _CallsOut(Exception):
    """Raised when a system must call an external service; the next request goes first."""

    def __init__(self, errand: Errand) -> None:
        super().__init__(errand.url)
        self.errand = errand


async def find_sandbox(hub: Hub, caller: Caller | None, id: str, system: str, path: str) -> Row:
    """Return a sandbox by its id. Raises `Refusal` without access, or if there is no such system."""
    head = await _find_head(hub, id)
    if head is None or not _is_open(head, system, path):
        head = _require_own(caller, head, id)
        if head["kind"] != system:
            raise not_found("system in this sandbox", system)
    return _require_active(hub, head)


async def find_whole_sandbox(hub: Hub, caller: Caller | None, id: str) -> Row:
    """Return a sandbox for a caller with full access. Raises `Refusal` as `find_sandbox`."""
    return _require_active(hub, _require_own(caller, await _find_head(hub, id), id))


async def _find_head(hub: Hub, id: str) -> Row | None:
    async with hub.database.reading() as connection:
        return (await find_heads(connection, [id])).get(id)


async def find_sandbox_of_run(hub: Hub, caller: Caller | None, run_id: str, system: str, path: str) -> Row:
    """Return the sandbox of a run's started task. Raises `Refusal`: 409 if no task is started."""
    async with hub.database.reading() as connection:
        head = await find_open_of_run(connection, run_id, system)
        others = [] if head is not None else await list_open_of_run(connection, run_id)
    # Access first, since the following messages name the systems of the run.
    if head is None or not _is_open(head, system, path):
        _require_run(caller, run_id)
    if head is None and system not in list_kinds():
        raise not_found(f"kind of system (there are {', '.join(list_kinds())})", system)
    if head is None and others:
        kinds = ", ".join(other["kind"] for other in others)
        raise Refusal("CONFLICT", f"the started task has no system {system!r}; its environment has {kinds}")
    if head is None or _is_over(hub, head):
        raise Refusal("CONFLICT", f"no started task of the run has a system {system!r}; start one first")
    return head


async def list_sandboxes_of_run(hub: Hub, caller: Caller | None, run_id: str) -> list[Row]:
    """Return all sandboxes of a run's started task. Raises `Refusal`: 409 if no task is started."""
    _require_run(caller, run_id)
    async with hub.database.reading() as connection:
        heads = await list_open_of_run(connection, run_id)
    open_heads = [head for head in heads if not _is_over(hub, head)]
    if not open_heads:
        raise Refusal("CONFLICT", "no started task of the run has systems; start one first")
    return open_heads


def _require_own(caller: Caller | None, head: Row | None, id: str) -> Row:
    if caller is None:
        raise _refuse_unauthenticated()
    if caller.kind not in ("organization", "sandbox"):
        raise Refusal("FORBIDDEN", "a sandbox requires its own token or an organization key")
    if head is None or caller.organization_id != head["organization_id"] or caller.sandbox_id not in (None, head["id"]):
        raise not_found("sandbox", id)
    return head


def _require_active(hub: Hub, head: Row) -> Row:
    if _is_over(hub, head):
        raise Refusal("CONFLICT", "the sandbox has been torn down")
    return head


def _require_run(caller: Caller | None, run_id: str) -> None:
    if caller is None:
        raise _refuse_unauthenticated()
    if caller.kind != "run":
        raise Refusal("FORBIDDEN", "the systems of a run require the token of the run")
    if caller.benchmark_run_id != run_id:
        raise not_found("benchmark run", run_id)


def _is_over(hub: Hub, head: Row) -> bool:
    return head["closed_at"] is not None or (head["expires_at"] is not None and head["expires_at"] <= hub.now())


def _is_open(head: Row, system: str, path: str) -> bool:
    return head["kind"] == system and is_open_path(find_simulator(system), path)


def owns_token(caller: Caller, head: Row) -> bool:
    """Return whether a token belongs to a sandbox, or to its run."""
    if caller.kind == "run":
        return caller.benchmark_run_id == head["benchmark_run_id"]
    return caller.kind == "sandbox" and caller.sandbox_id == head["id"]


def _refuse_unauthenticated() -> Refusal:
    return Refusal("UNAUTHORIZED", "the token of the sandbox or of the run is required: Authorization: Bearer ...")


async def answer_request(hub: Hub, head: Row, request: Request) -> Response:
    """Answer a request to a sandbox, and store it with its changes; further work of the system continues in the background."""
    response = await _answer(hub, head, request)
    if response.then:
        task = asyncio.create_task(_continue_work(hub, head, request, response.then), name="a simulated system continues")
        # asyncio only holds weak references to tasks.
        hub.sandbox_tasks.add(task)
        task.add_done_callback(hub.sandbox_tasks.discard)
    return response


async def _continue_work(hub: Hub, head: Row, request: Request, then: str) -> None:
    """Let a system continue its work until it is done or its sandbox is torn down."""
    while then:
        now = await _find_head(hub, head["id"])
        if now is None or _is_over(hub, now):
            return
        try:
            response = await _answer(hub, now, Request(method=GO_ON, path=then, base=request.base, token=request.token))
        except Refusal as refusal:
            _LOG.info("a simulated system stopped: %s", refusal)
            return
        then = response.then


async def stop_background_work(hub: Hub) -> None:
    """Cancel background work of simulated systems."""
    tasks = list(hub.sandbox_tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(hub: Hub, head: Row, request: Request) -> Response:
    for _ in range(_MOST_CALLS_OUT):
        try:
            store = open_store(hub, head["organization_id"])
            answer = functools.partial(_answer_in_thread, hub, head)
            sandbox = Sandbox(head["id"], _list_systems(head), store, make_surroundings(hub), answer=answer)
            async with hub.sandbox_turns.get(head["id"]):
                try:
                    await perform_due_steps(hub, store, head)
                    return await sandbox.handle(head["kind"], request, fetch=_interrupt)
                except SandboxClosed:
                    raise Refusal("CONFLICT", "the sandbox has been torn down") from None
                except SandboxFull as error:
                    raise Refusal("PAYLOAD_TOO_LARGE", f"{error} (--sandbox-rows, --sandbox-bytes)") from None
        except _CallsOut as call:
            fetched = await fetch_outside(call.errand, allowed=hub.settings.allowed_addresses)
        # Answered again from the start with all fetched responses: nothing of the interrupted attempt was stored.
        request = msgspec.structs.replace(request, fetched=(*request.fetched, fetched))
    raise Refusal("CONFLICT", f"one request needs more than {_MOST_CALLS_OUT} external calls")


async def _interrupt(errand: Errand) -> Fetched:
    raise _CallsOut(errand)


async def _answer_in_thread(hub: Hub, head: Row, simulator: Simulator, request: Request, desk: Desk) -> Response:
    """Run a simulator in a thread, a few at a time. Raises `CheckFault` if it takes too long."""
    place = hub.sandbox_places.acquire((head["organization_id"], head["id"]))
    began = 0.0
    try:
        await place.granted
        began = time.monotonic()
        return await run_within(lambda: answer_counted(simulator, request, desk), ANSWER_S)
    except CallTooLong:
        raise CheckFault("too_much_work", f"answering this request takes more than {ANSWER_S:g} s") from None
    finally:
        hub.sandbox_places.release(place, time.monotonic() - began if began else 0.0)


async def perform_due_steps(hub: Hub, store: DatabaseStore, head: Row) -> None:
    """Perform due scenario steps, each once across servers."""
    steps = cast("list[dict[str, Json]]", head["steps"] or [])
    done: int = head["steps_done"]
    for number in range(done, len(steps)):
        # Steps after the expiry of a sandbox never happen.
        if steps[number]["at"] > min(hub.now(), head["expires_at"] or hub.now()):
            return
        for _ in range(_TRIES):
            snapshot = await store.load(head["id"])
            step = steps[number]
            note, changes = await asyncio.to_thread(perform_step, hub, head["kind"], snapshot.rows, step["step"], step["given"])
            if await store.advance(head["id"], snapshot.revision, changes, note, step=number):
                break
            now = await _find_head(hub, head["id"])
            # The sandbox was changed concurrently. If this step was performed, it is done; else it is tried on the new state.
            if now is None or now["steps_done"] > number:
                break


def _list_systems(head: Row) -> tuple[System, ...]:
    return (System(name=head["kind"], kind=head["kind"]),)


class EndState(msgspec.Struct, frozen=True):
    """The state of sandboxes, and its revision."""

    state: State
    stamps: tuple[str, ...]
    unplayed: tuple[str, ...] = ()
    """Steps of the scenario that did not happen, with reasons."""


async def read_end_state(hub: Hub, heads: Sequence[Row]) -> EndState:
    """Return the combined state of sandboxes: data, requests, and changes since the start."""
    families: dict[str, Json] = {}
    requests: list[StateRequest] = []
    changes: list[StateChange] = []
    stamps: list[str] = []
    unplayed: list[str] = []
    for head in heads:
        store = open_store(hub, head["organization_id"])
        async with hub.sandbox_turns.get(head["id"]):
            full = ""
            if head["closed_at"] is None:
                # Steps that were due before this read.
                try:
                    await perform_due_steps(hub, store, head)
                except SandboxFull as error:
                    full = str(error)
            now = await _find_head(hub, head["id"])
            notes = await store.list_notes(head["id"]) if head["steps"] else ()
            if now is not None:
                stamps += make_stamps([now])
                failed = [note for note in notes if note.get("error")]
                unplayed += [f"the step {each['step']} of {now['kind']} could not be performed: {each['error']}" for each in failed]
                why = full or "its time had not come"
                waiting = cast("list[dict[str, Json]]", now["steps"] or [])[now["steps_done"] :]
                unplayed += [f"the step {each['step']} of {now['kind']} did not happen: {why}" for each in waiting]
            # The clock stops at the end of the sandbox.
            ends = [moment for moment in (head["closed_at"], head["expires_at"]) if moment is not None]
            around = msgspec.structs.replace(make_surroundings(hub), now=functools.partial(_find_end, hub, ends))
            state = await Sandbox(head["id"], _list_systems(head), store, around, read=asyncio.to_thread).read_state()
        requests += state.requests or ()
        changes += state.changes or ()
        join_state(families, msgspec.structs.replace(state, requests=None, changes=None, systems=None))
    families["requests"] = tuple(sorted(requests, key=lambda request: request.at or ""))
    families["changes"] = tuple(changes)
    families["systems"] = tuple(dict.fromkeys(head["kind"] for head in heads))
    return EndState(State(**families), tuple(stamps), tuple(unplayed))


def _find_end(hub: Hub, ends: Sequence[str]) -> str:
    return min([hub.now(), *ends])


def make_stamps(heads: Iterable[Row]) -> list[str]:
    """Return a text per sandbox that changes with every request."""
    return [f"{head['id']} {head['revision']} {head['events']}" for head in heads]


# --- the tools of simulated systems for models


class ReachableSandboxes(msgspec.Struct, frozen=True):
    """The sandboxes that a caller may use, with their address and the token of the caller."""

    heads: tuple[Row, ...]
    base: str
    token: str = ""
    """The token of the caller, which events must not show."""


def list_system_tools(reached: ReachableSandboxes) -> dict[str, tuple[Row, Tool]]:
    """Return the tools of all systems by name, each with its sandbox."""
    # Tool names start with their kind, and a run has one system of a kind.
    return {tool.name: (head, tool) for head in reached.heads for tool in find_simulator(head["kind"]).list_tools()}


async def call_system_tool(hub: Hub, reached: ReachableSandboxes, name: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Call a tool, and return an MCP result, with `isError` if rejected. Raises `SpecError` for an unknown tool."""
    tools = list_system_tools(reached)
    if name not in tools:
        raise SpecError(f"unknown tool {show(name, 100)}", field="name", nearest=nearest(name, tools))
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
