"""The scenario of a task on the service: one that names what is not there is refused when it is written."""

from __future__ import annotations

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.service.hub import Hub
from proctor.service.verification.fields import invalid
from proctor.service.verification.seeding import make_surroundings
from proctor.simulators import scenarios
from proctor.simulators.ports import Desk
from proctor.simulators.registry import find_simulator
from proctor.simulators.rows import NO_ROWS, Draft
from proctor.simulators.scenarios import ScenarioStep
from proctor.simulators.type_names import describe_spec_error


def read_scenario(value: Json) -> tuple[ScenarioStep, ...]:
    """Return the steps of a scenario. Raises `Refusal` that names the place of what is wrong."""
    try:
        return scenarios.read_scenario(value)
    except SpecError as error:
        place = f"scenario.{error.field}" if error.field else "scenario"
        raise invalid("task", {place: [error.message]}) from None


def check_scenario(hub: Hub, value: Json) -> None:
    """Refuse a scenario with a step that cannot be performed."""
    for index, one in enumerate(read_scenario(value)):
        try:
            find_simulator(one.kind).perform(one.step, one.given, Desk(Draft(NO_ROWS, one.kind), make_surroundings(hub)))
        except SpecError as error:
            raise invalid("task", {f"scenario.steps.{index}": [f"{one.step}: {describe_spec_error(error)}"]}) from None
