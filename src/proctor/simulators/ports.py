"""What a kind of simulated system is, and what it is handed while it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from proctor.model.evidence import Json, State
from proctor.simulators.exchange import Request, Response
from proctor.simulators.rows import Draft


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What simulated systems get from outside."""

    now: Callable[[], str]
    """The time of day in UTC, as `2026-11-16T09:30:00.000Z`."""
    new_id: Callable[[], str]
    """A name that nothing else has."""
    seconds: Callable[[], float]
    """Seconds from anywhere, for how long a request took."""


def make_still_surroundings() -> Surroundings:
    """Return surroundings in which no time passes, to try whether a system can be made."""
    ids = iter(range(10**9))
    return Surroundings(now=lambda: "2000-01-01T00:00:00.000Z", new_id=lambda: f"id-{next(ids)}", seconds=lambda: 0.0)


class Desk(msgspec.Struct, frozen=True):
    """What a system has at hand while it handles one request: its rows, and its surroundings."""

    rows: Draft
    around: Surroundings


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a model can do with a system: an MCP tool that makes a request of its arguments."""

    name: str
    description: str
    schema: dict[str, Json]
    """The JSON Schema of the arguments."""
    make_request: Callable[[dict[str, Json]], Request]


class Simulator(Protocol):
    """One kind of simulated system; it holds nothing itself."""

    kind: str
    """The word that suites write."""
    summary: str
    """What it simulates, in a sentence."""
    steps: tuple[str, ...]
    """The steps of a scenario that it performs."""
    open_paths: tuple[str, ...]
    """Paths that need no token of the sandbox; a final `*` matches everything below."""

    def seed(self, seed: Json, desk: Desk) -> None:
        """Put what a suite writes as `seed` into the rows. Raises `SpecError` that names the place."""
        ...

    def perform(self, step: str, given: Json, desk: Desk) -> None:
        """Perform one step of a scenario, before the agent begins. Raises `SpecError` for one that cannot be."""
        ...

    def handle(self, request: Request, desk: Desk) -> Response:
        """Answer a request; its changes are stored with its event, or not at all."""
        ...

    def read_state(self, desk: Desk) -> State:
        """Return the current state of this system as the checks read it; changes made here are dropped."""
        ...

    def list_tools(self) -> tuple[Tool, ...]:
        """Return what a model can do with it."""
        ...
