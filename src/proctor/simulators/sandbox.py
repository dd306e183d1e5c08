"""The simulated systems of one attempt: provisioned from a dataset, used, and compared with their initial state.

Every request is handled on a draft of the rows. Draft and event are committed together; after a concurrent change, the request is
handled again on the newer rows. A request that a bug of ours breaks leaves an event with status 500 and no change.

Errors have the format that the system's clients expect.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from proctor.errors import CheckFault, SpecError, StoreError
from proctor.model.case import System
from proctor.model.evidence import Json, State, StateChange, StateRequest
from proctor.model.json_values import MISSING, decode_embedded
from proctor.model.show import exception_text, nearest, show
from proctor.simulators.exchange import Errand, Fetched, Request, Response, refuse
from proctor.simulators.fhir.resources import refuse_fhir
from proctor.simulators.ports import Desk, Simulator, Surroundings, Tool, find_simulator
from proctor.simulators.rows import NO_ROWS, Draft, Rows, SandboxStore, apply_changes, list_differences
from proctor.simulators.seeds import check_step
from proctor.simulators.tools import make_tool_request
from proctor.work import begin_counting, end_counting

Fetch = Callable[[Errand], Awaitable[Fetched]]
"""Makes outgoing requests, and reports the problem if one cannot be made."""
MOST_BODY = 10_000
"""Characters of a request or response body stored in an event."""
Answer = Callable[[Simulator, Request, Desk], Awaitable[Response]]
"""How a request is passed to a simulator: directly, or in a thread."""
Read = Callable[[Callable[[], Json]], Awaitable[Json]]
"""How the state is read, which is slow for many rows: directly, or in a thread."""
MOST_ERRANDS = 20
"""Maximum number of outgoing requests per request."""
_MOST_TRIES = 20
"""Maximum number of retries after concurrent changes."""


def provision_rows(systems: tuple[System, ...], around: Surroundings, *, with_late: bool = False) -> Rows:
    """Return the initial rows of these systems, which can be shared by any number of sandboxes.

    Steps that come later are no part of them; `with_late` they are performed, too, to try them. Raises `SpecError` for a seed or a step
    that cannot be used; its `field` begins with the name of the system.
    """
    rows: Rows = NO_ROWS
    for system in systems:
        simulator = find_simulator(system.kind)
        draft = Draft(rows, system.name)
        desk = Desk(draft, around)
        if system.seed is not None:
            _blame(f"{system.name}.seed", lambda: simulator.seed(system.seed, desk))  # noqa: B023 - called at once
        for index, seed in enumerate(system.datasets):
            _blame(f"{system.name}.datasets.{index}", lambda: simulator.seed(seed, desk))  # noqa: B023 - called at once
        for index, step in enumerate(system.scenario):
            at = f"{system.name}.scenario.{index}"
            check_step(system.kind, step.name, at)
            if step.after_s > 0 and not with_late:
                continue
            _blame(f"{at}.{step.name}", lambda: simulator.perform(step.name, step.given, desk))  # noqa: B023 - called at once
        rows = apply_changes(rows, draft.list_changes())
    return rows


def _blame(place: str, work: object) -> None:
    """Run some work; its `SpecError` gets a path that starts with the system."""
    assert callable(work)
    try:
        work()
    except SpecError as error:
        raise error.move_to(f"{place}.{error.field}" if error.field else place) from None


def answer_counted(simulator: Simulator, request: Request, desk: Desk) -> Response:
    """Answer a request with a simulator. Raises `CheckFault` if that takes too much work, or the answer is too large."""
    token = begin_counting("one request may not cause this much work or such a large answer: ask for less at once")
    try:
        return simulator.handle(request, desk)
    finally:
        end_counting(token)


async def answer_here(simulator: Simulator, request: Request, desk: Desk) -> Response:
    """Answer a request with a simulator directly."""
    return answer_counted(simulator, request, desk)


async def read_here(read: Callable[[], Json]) -> Json:
    """Return the result of a read function, called directly."""
    return read()


def is_open_path(simulator: Simulator, path: str) -> bool:
    """Return whether a simulator answers a path without the token of the sandbox."""
    return any(path.startswith(open_path[:-1]) if open_path.endswith("*") else path == open_path for open_path in simulator.open_paths)


class Sandbox:
    """The systems of one attempt."""

    def __init__(
        self,
        name: str,
        systems: tuple[System, ...],
        store: SandboxStore,
        around: Surroundings,
        *,
        answer: Answer = answer_here,
        read: Read = read_here,
    ) -> None:
        self.name = name
        self._simulators: Mapping[str, Simulator] = {system.name: find_simulator(system.kind) for system in systems}
        self._store = store
        self._around = around
        self._answer = answer
        self._read = read
        late = ((step.after_s, system.name, step) for system in systems for step in system.scenario if step.after_s > 0)
        # Only by time: sorting is stable, so steps of one time stay in their written order.
        self._late = sorted(late, key=lambda one: one[0])
        self._began = 0.0
        self._unfinished: list[str] = []
        self.failed_steps: list[str] = []
        """Due steps that could not be performed, and why."""

    async def provision(self, rows: Rows) -> None:
        """Start with these rows (`provision_rows`), the baseline. Raises `StoreError` if the sandbox already exists."""
        await self._store.create(self.name, rows)
        self._began = self._around.seconds()

    async def handle(self, system: str, request: Request, *, fetch: Fetch | None = None) -> Response:
        """Answer a request to one of the systems, and store its changes together with its event.

        `fetch` makes outgoing requests of the system; without it there are none.
        """
        simulator = self._simulators[system]
        await self._perform_due_steps()
        tries = 0
        while tries < _MOST_TRIES:
            tries += 1
            began = self._around.seconds()
            snapshot = await self._store.load(self.name)
            draft = Draft(snapshot.rows, system)
            changes = ()
            try:
                response = await self._answer(simulator, request, Desk(draft, self._around))
                changes = draft.list_changes()
            except Errand as errand:
                # The draft is dropped: the request is handled again with the result.
                request = msgspec.structs.replace(request, fetched=(*request.fetched, await _go(errand, request, fetch)))
                # An outgoing request is not a conflict; it has its own limit.
                tries -= 1
                continue
            except CheckFault as fault:
                response = refuse_for(simulator.kind, 400, TOO_COSTLY, fault.message)
            except Exception as error:  # a bug in a simulator is answered with 500, and its changes are dropped
                message = f"a bug in the simulated system: {type(error).__name__}: {exception_text(error)}"
                response = refuse_for(simulator.kind, 500, "internal_error", message)
            if await self._store.commit(self.name, snapshot.revision, changes, self._make_event(system, request, response, began)):
                return response
        raise StoreError(f"sandbox {self.name!r} changed {_MOST_TRIES} times while one request was handled")

    async def refuse_unread(self, system: str, request: Request, status: int, code: str, message: str) -> Response:
        """Reject a request with an incomplete body; it is still an event."""
        response = self.refuse(system, status, code, message)
        event = self._make_event(system, request, response, self._around.seconds())
        event = msgspec.structs.replace(event, cut=tuple(dict.fromkeys(("body", *event.cut))))
        # Without a change, any revision is valid.
        await self._store.commit(self.name, 0, (), event)
        return response

    def _make_event(self, system: str, request: Request, response: Response, began: float) -> StateRequest:
        # Events are stored and shown, and the token would give their readers access to the sandbox.
        body, response_body = (_read_body(_mask(each, request.token)) for each in (request.body, response.body))
        return StateRequest(
            system=system,
            method=request.method,
            path=request.target.replace(request.token, "(token)") if request.token else request.target,
            status=response.status,
            body=body.value,
            response=response_body.value,
            at=self._around.now(),
            duration_ms=round((self._around.seconds() - began) * 1000, 3),
            inside=response.inside,
            cut=(*(("body",) if body.is_cut else ()), *(("response",) if response_body.is_cut else ())),
        )

    async def _perform_due_steps(self) -> None:
        """Perform the due steps, as part of the baseline: they are not changes of the agent."""
        while self._late and self._around.seconds() - self._began >= self._late[0][0]:
            # Removed before it is tried: a failing step is reported once, and does not block later ones.
            _, system, step = self._late.pop(0)
            for _ in range(_MOST_TRIES):
                snapshot = await self._store.load(self.name)
                draft = Draft(snapshot.rows, system)
                try:
                    self._simulators[system].perform(step.name, step.given, Desk(draft, self._around))
                except SpecError as error:
                    self.failed_steps.append(f"{system}: {step.name}: {error.message}")
                    break
                except Exception as error:  # as for requests: a bug in a simulator is reported, and its changes are dropped
                    message = f"a bug in the simulated system: {type(error).__name__}: {exception_text(error)}"
                    self.failed_steps.append(f"{system}: {step.name}: {message}")
                    break
                if await self._store.advance(self.name, snapshot.revision, draft.list_changes(), {"system": system, "step": step.name}):
                    break
            else:
                self.failed_steps.append(f"{system}: {step.name}: the systems changed {_MOST_TRIES} times meanwhile")

    def list_unplayed(self) -> tuple[str, ...]:
        """Return the scenario steps that were not due yet, and the agent's unfinished work."""
        return (*(describe_unplayed(system, step.name, after_s) for after_s, system, step in self._late), *self._unfinished)

    def note_unfinished(self, system: str, files: list[str]) -> None:
        """Note files that were still being written at the end: their absence proves nothing."""
        self._unfinished += [f"the file {name!r} was still being written to {system} when the agent was done" for name in files]

    async def look(self, system: str, request: Request) -> Response:
        """Return a system's answer for its server, without an event; changes are dropped."""
        await self._perform_due_steps()
        rows = (await self._store.load(self.name)).rows
        return await self._answer(self._simulators[system], request, Desk(Draft(rows, system), self._around))

    async def reset(self) -> None:
        """Restore the initial state of every system; events stay."""
        await self._store.reset(self.name)

    async def find_differences(self) -> tuple[StateChange, ...]:
        """Return the rows added, changed and removed since the start."""
        snapshot = await self._store.load(self.name)
        baseline = await self._store.load_baseline(self.name)
        return await self._read(lambda: list_differences(baseline, snapshot.rows))

    async def read_state(self) -> State:
        """Return the state of all systems, the requests and the changes, as checks read them."""
        await self._perform_due_steps()
        rows = (await self._store.load(self.name)).rows
        families: dict[str, Json] = {}
        for name, simulator in self._simulators.items():
            desk = Desk(Draft(rows, name), self._around)
            join_state(families, await self._read(functools.partial(simulator.read_state, desk)))
        families["requests"] = await self._store.list_events(self.name)
        families["changes"] = await self.find_differences()
        families["systems"] = tuple(self._simulators)
        return State(**families)

    def is_open(self, system: str, path: str) -> bool:
        """Return whether a path is answered without the token."""
        return is_open_path(self._simulators[system], path)

    def refuse(self, system: str, status: int, code: str, message: str) -> Response:
        """Return a refusal by the server of a system, in the format of the system if there is one."""
        simulator = self._simulators.get(system)
        return refuse_for("" if simulator is None else simulator.kind, status, code, message)

    def list_tools(self) -> dict[str, tuple[Tool, ...]]:
        """Return the tools for a model, by system name."""
        return {name: simulator.list_tools() for name, simulator in self._simulators.items()}

    def make_request(self, system: str, tool: str, arguments: Mapping[str, Json]) -> Request:
        """Return the request for a tool call. Raises `SpecError` for an unknown tool or invalid arguments."""
        tools = {candidate.name: candidate for candidate in self._simulators[system].list_tools()}
        if tool not in tools:
            raise SpecError(f"unknown tool {show(tool)}", field="tool", nearest=nearest(tool, tools))
        return make_tool_request(tools[tool], arguments)

    async def call_tool(self, system: str, tool: str, arguments: Mapping[str, Json]) -> Response:
        """Send the request of a tool. Raises `SpecError` like `make_request`."""
        return await self.handle(system, self.make_request(system, tool, arguments))

    async def remove(self) -> None:
        """Remove the sandbox."""
        await self._store.remove(self.name)


def describe_unplayed(system: str, step: str, after_s: float) -> str:
    """Return the description of a scenario step that was not performed."""
    return f"the step {step} of {system}, due after {after_s:g} s, did not happen: the agent was done before"


def join_state(families: dict[str, Json], state: State) -> None:
    """Add the state of a system to that of others; families of several systems, such as records, are merged."""
    for name in state.__struct_fields__:
        value = getattr(state, name)
        if value is not None:
            families[name] = _join(families[name], value) if name in families else value


def _join(before: Json, more: Json) -> Json:
    if isinstance(before, dict):
        return {**before, **{name: _join(before[name], rows) if name in before else rows for name, rows in more.items()}}
    if isinstance(before, msgspec.Struct):
        return type(before)(**{name: _join(getattr(before, name), getattr(more, name)) for name in before.__struct_fields__})
    return before + more


async def _go(errand: Errand, request: Request, fetch: Fetch | None) -> Fetched:
    """Make an outgoing request for a request, up to the limit."""
    if fetch is None:
        return Fetched(url=errand.url, problem="this sandbox makes no outgoing requests")
    if len(request.fetched) >= MOST_ERRANDS:
        return Fetched(url=errand.url, problem=f"one request asks at most {MOST_ERRANDS} services outside")
    return await fetch(errand)


def _mask(body: bytes, token: str) -> bytes:
    return body.replace(token.encode(), b"(token)") if token else body


class _Body(msgspec.Struct, frozen=True):
    value: Json = None
    is_cut: bool = False


def _read_body(body: bytes) -> _Body:
    """Return a body for an event: short JSON unchanged, else truncated text."""
    if not body:
        return _Body()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _Body(f"({len(body)} bytes that are not text)", is_cut=True)
    if len(text) > MOST_BODY:
        return _Body(f"{text[:MOST_BODY]}… ({len(text)} characters)", is_cut=True)
    value = decode_embedded(body)
    return _Body(text if value is MISSING else value)


TOO_COSTLY = "too_costly"
# FHIR's issue types (https://hl7.org/fhir/R4/valueset-issue-type.html) by status.
_ISSUES = {
    400: "structure",
    401: "login",
    403: "forbidden",
    404: "not-found",
    409: "conflict",
    413: "too-long",
    429: "throttled",
    503: "transient",
}


def refuse_for(kind: str, status: int, code: str, message: str) -> Response:
    """Return an error response for a kind of system: an OperationOutcome for FHIR, else a code and a message."""
    if kind == "fhir":
        issue = "too-costly" if code == TOO_COSTLY else _ISSUES.get(status, "exception" if status >= 500 else "processing")
        return refuse_fhir(status, issue, message).response
    return refuse(status, code, message).response
