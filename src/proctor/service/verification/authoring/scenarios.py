"""Checks scenarios of tasks when they are written.

Steps that depend on data of the systems are checked when the task starts. The systems themselves are checked when a scenario is written, if
its environment has some, and when the benchmark is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.environments import list_simulators_of
from proctor.service.verification.authoring.seeding import make_surroundings
from proctor.service.verification.shared.fields import invalid
from proctor.simulators import scenarios
from proctor.simulators.ports import Desk
from proctor.simulators.registry import find_simulator
from proctor.simulators.rows import NO_ROWS, Draft
from proctor.simulators.scenarios import ScenarioStep
from proctor.simulators.seeds import NotHeld
from proctor.simulators.type_names import describe_spec_error, find_kind


def read_scenario(value: Json) -> tuple[ScenarioStep, ...]:
    """Return the steps of a scenario. Raises `Refusal` with the place of a problem."""
    try:
        return scenarios.read_scenario(value)
    except SpecError as error:
        place = f"scenario.{error.field}" if error.field else "scenario"
        raise invalid("task", {place: [error.message]}) from None


async def check_scenario(hub: Hub, value: Json) -> None:
    """Reject a scenario with an invalid step."""
    for place, one in _list_places(value):
        try:
            desk = Desk(Draft(NO_ROWS, one.kind), make_surroundings(hub))
            await asyncio.to_thread(find_simulator(one.kind).perform, one.step, one.given, desk)
        except NotHeld:
            continue
        except SpecError as error:
            raise invalid("task", {place: [f"{one.step}: {describe_spec_error(error)}"]}) from None


async def check_systems(connection: AsyncConnection, caller: Caller, environment_id: str | None, scenario: Json) -> None:
    """Reject a step for a system that the environment lacks; an environment without systems may still get it."""
    kinds = await _list_kinds(connection, caller, environment_id)
    for place, one in _list_places(scenario):
        if kinds and one.kind not in kinds:
            raise invalid("task", {place: [f"{one.step}: {_describe_lack(one.kind, kinds)}"]})


async def check_systems_of_tasks(connection: AsyncConnection, caller: Caller, benchmark: Mapping[str, Json]) -> None:
    """Reject a benchmark with a task whose environment lacks a system of its scenario."""
    if benchmark["environment_id"] is None:
        return
    kinds = await _list_kinds(connection, caller, benchmark["environment_id"])
    for task in benchmark["tasks"]:
        for place, one in _list_places(task.get("scenario")):
            if one.kind not in kinds:
                add = f"POST /environments/{benchmark['environment_id']}/simulators/SIMULATOR_ID"
                raise Refusal("CONFLICT", f"the task {task['id']!r}: {place}: {one.step}: {_describe_lack(one.kind, kinds)}; add it: {add}")


def _describe_lack(kind: str, kinds: list[str]) -> str:
    return f"the environment has no simulator of kind {kind}; it has {', '.join(kinds) or 'none'}"


def _list_places(value: Json) -> Iterator[tuple[str, ScenarioStep]]:
    """Yield the steps of a scenario, each with its place."""
    for index, one in enumerate(read_scenario(value)):
        yield f"scenario.steps.{index}" if "steps" in value else f"scenario.{one.step}", one


async def _list_kinds(connection: AsyncConnection, caller: Caller, environment_id: str | None) -> list[str]:
    """Return the kinds of systems that an environment has."""
    if environment_id is None:
        return []
    rows = (await list_simulators_of(connection, caller, [environment_id]))[environment_id]
    return [kind for row in rows if (kind := find_kind(row["body"]["type"])) is not None]
