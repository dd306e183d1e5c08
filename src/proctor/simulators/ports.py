"""The interface of a kind of simulated system, and the objects passed to it."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json, State
from proctor.model.show import nearest, show
from proctor.simulators.exchange import Refused, Request, Response
from proctor.simulators.rows import Draft


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The clock and the id source of simulated systems."""

    now: Callable[[], str]
    """The time of day in UTC, as `2026-11-16T09:30:00.000Z`."""
    new_id: Callable[[], str]
    """Returns a unique name."""
    seconds: Callable[[], float]
    """A monotonic clock in seconds, for durations."""


def make_still_surroundings() -> Surroundings:
    """Return surroundings with a fixed time, to test whether a system can be created."""
    ids = iter(range(10**9))
    return Surroundings(now=lambda: "2000-01-01T00:00:00.000Z", new_id=lambda: f"id-{next(ids)}", seconds=lambda: 0.0)


class Desk(msgspec.Struct, frozen=True):
    """The rows and the surroundings of a system during one request."""

    rows: Draft
    around: Surroundings


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP tool of a system, which turns its arguments into a request."""

    name: str
    description: str
    schema: dict[str, Json]
    """The JSON Schema of the arguments."""
    make_request: Callable[[dict[str, Json]], Request]


class Simulator:
    """One kind of simulated system; it has no state itself."""

    kind: str
    """The name in suites."""
    summary: str
    """A one-sentence description."""
    steps: tuple[str, ...] = ()
    """The scenario steps that it supports."""
    open_paths: tuple[str, ...] = ()
    """Paths that need no token of the sandbox; a final `*` matches everything below."""
    config_names: tuple[str, ...] = ()
    """Members of a simulator's `config` that belong to the seed."""
    access: Mapping[str, str] = {}
    """What the credentials of a sandbox name, with the address, the token and members of the seed in braces."""
    access_defaults: Mapping[str, str] = {}
    """The members that a seed need not have."""
    endpoints: Mapping[str, str] = {}
    """Further endpoints of a run, by name, with their paths."""

    def seed(self, seed: Json, desk: Desk) -> None:
        """Store a suite's `seed` in the rows. Raises `SpecError` with the position."""
        raise NotImplementedError

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Perform one step of a scenario, before the agent starts. Raises `SpecError` for an invalid step."""

    def handle(self, request: Request, desk: Desk) -> Response:
        """Answer a request; its changes are stored with its event, or not at all."""
        try:
            return self.answer(request, desk)
        except Refused as refused:
            return refused.response

    def answer(self, request: Request, desk: Desk) -> Response:
        """Answer a request. Raises `Refused`."""
        raise NotImplementedError

    def read_state(self, desk: Desk) -> State:
        """Return the state of this system for the checks; changes made here are dropped."""
        raise NotImplementedError

    def list_tools(self) -> tuple[Tool, ...]:
        """Return its tools for a model."""
        return ()


@functools.cache
def list_kinds() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    package = importlib.import_module("proctor.simulators.kinds")
    return tuple(sorted(info.name for info in pkgutil.iter_modules(package.__path__)))


def find_simulator(kind: str) -> Simulator:
    """Return the simulator of a kind, named in any case. Raises `SpecError` with the nearest names for an unknown one."""
    known = list_kinds()
    if kind.lower() not in known:
        raise SpecError(
            f"unknown kind of system {show(kind)}; there are {', '.join(known)}", field="kind", nearest=nearest(kind.lower(), known)
        )
    return importlib.import_module(f"proctor.simulators.kinds.{kind.lower()}").SIMULATOR
