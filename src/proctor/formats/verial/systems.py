"""Reads the simulated systems in a Verial document, so that a task can be run without a service.

    {"environment": {"name": "Clinic",
                     "simulators": [{"type": "FHIR"}, {"type": "Files", "config": {"seed": {...}}}],
                     "datasets": [{"name": "patients", "type": "FHIR", "data": {...}}]},
     "task": {"task_item": {"instruction": "..."}, "scenario": {"drop_file_inbox": {...}}},
     "criteria": [...]}

`simulators` and `datasets` have the format of the API. They may also appear without `environment`, and inside a task or a benchmark. A
system is named by its kind, as on the service: `fhir_url` and `fhir_token` give access to it, and `fhir/Appointment/*` is a place in it. A
document that only has the id of its environment has no systems: its criteria are decided on recorded states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from proctor.errors import SpecError
from proctor.formats.text.located import Located, Reading
from proctor.formats.verial.parts import list_stated, warn_unknown
from proctor.model.case import Step, System
from proctor.model.evidence import Json

if TYPE_CHECKING:
    from proctor.simulators.rows import Rows

PLACES = ("environment", "simulators", "datasets")
"""Keys that hold systems."""
_ROW = ("id", "organization_id", "created_at", "updated_at", "action", "name", "description")
_SIMULATOR = (*_ROW, "type", "config")
_DATASET = (*_ROW, "type", "format", "data", "config", "parent_id")
_ENVIRONMENT = (*_ROW, "simulators", "datasets")


class SystemsReader:
    """Reads the systems of one document; systems that tasks share are read once."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.around: Sequence[Located] = ()
        """The systems outside of tasks, for tasks without their own."""
        self._known: dict[int, tuple[System, ...]] = {}
        self._filled: dict[int, tuple[System, Rows]] = {}

    def read(self, task: Located) -> tuple[System, ...]:
        """Return the systems of a task, with its scenario; none if the document brings none."""
        holder = None
        for place in (task, *self.around):
            stated = list_stated(place)
            if any(name in stated and (name != "environment" or stated[name].is_object) for name in PLACES):
                holder = place
                break
        if holder is None:
            return ()
        # By identity: the document holds its nodes while it is read, and tasks that share an environment share the node.
        if id(holder) not in self._known:
            self._known[id(holder)] = self._read_holder(holder)
        systems = self._known[id(holder)]
        scenario = list_stated(task).get("scenario")
        return systems if scenario is None or not systems else self._add_scenario(systems, scenario)

    def find_named(self, task: Located) -> str | None:
        """Return the environment that a task or an enclosing object names only by its id."""
        for place in (task, *self.around):
            stated = list_stated(place)
            for node in (stated.get("environment_id"), stated.get("environment")):
                if node is not None and isinstance(node.value, str):
                    return node.value
        return None

    def _read_holder(self, holder: Located) -> tuple[System, ...]:
        stated = list_stated(holder)
        simulators, datasets = self._list_parts(stated, "simulators"), self._list_parts(stated, "datasets")
        environment = stated.get("environment")
        if environment is not None and environment.is_object:
            warn_unknown(self._reading, environment, _ENVIRONMENT, "an environment")
            members = list_stated(environment)
            simulators = [*self._list_parts(members, "simulators"), *simulators]
            datasets = [*self._list_parts(members, "datasets"), *datasets]
        by_kind: dict[str, Located] = {}
        for node in simulators:
            kind = self._read_kind(node, "a simulator", _SIMULATOR)
            if kind in by_kind:
                self._reading.error(node, f"two simulators are of kind {kind}; an environment has one of a kind", code="two_systems")
            elif kind is not None:
                by_kind[kind] = node
        filled: dict[str, list[Located]] = {kind: [] for kind in by_kind}
        for node in datasets:
            kind = self._read_kind(node, "a dataset", _DATASET)
            data = list_stated(node).get("data")
            if kind is not None and data is None:
                self._reading.warn(node, "the dataset has no data: it fills nothing", code="no_data")
            elif kind is not None and kind not in filled:
                self._reading.warn(node, f"the environment has no simulator of kind {kind}: the dataset fills nothing", code="no_data")
            elif kind is not None and data is not None:
                filled[kind].append(data)
        systems = (self._make_system(kind, node, filled[kind]) for kind, node in by_kind.items())
        return tuple(system for system in systems if system is not None)

    def _list_parts(self, stated: Mapping[str, Located], name: str) -> list[Located]:
        node = stated.get(name)
        if node is None or self._reading.require_list(node, name) is None:
            return []
        return [item for item in node.items() if self._reading.require_object(item, f"one of the {name}") is not None]

    def _read_kind(self, node: Located, what: str, known: tuple[str, ...]) -> str | None:
        # The simulators are loaded only for documents that use them.
        from proctor.simulators.seeds import read_kind

        warn_unknown(self._reading, node, known, what)
        stated = list_stated(node)
        type = stated.get("type", stated.get("format"))
        if type is None:
            self._reading.error(node, f"{what} needs 'type'", code="missing_key")
            return None
        try:
            return read_kind(type.plain())
        except SpecError as error:
            self._reading.error(type, error.message, code="unknown_system")
            return None

    def _make_system(self, kind: str, node: Located, data: list[Located]) -> System | None:
        from proctor.simulators.ports import make_still_surroundings
        from proctor.simulators.sandbox import provision_rows
        from proctor.simulators.seeds import join_config

        config = list_stated(node).get("config")
        if config is not None and self._reading.require_object(config, "config") is None:
            return None
        config_values = None if config is None else cast("dict[str, Json]", config.plain())
        first, *more = join_config(kind, config_values, [item.plain() for item in data]) or [None]
        system = System(name=kind, kind=kind, seed=first, datasets=tuple(more))
        try:
            provision_rows((system,), make_still_surroundings())
        except SpecError as error:
            place = (error.field or "").removeprefix(f"{kind}.")
            near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
            self._reading.error(node, f"a system of kind {kind} cannot be filled: {place}: {error.message}{near}", code="wrong_value")
            return None
        return system

    def _add_scenario(self, systems: tuple[System, ...], scenario: Located) -> tuple[System, ...]:
        from proctor.simulators.ports import Desk, find_simulator, make_still_surroundings
        from proctor.simulators.rows import Draft
        from proctor.simulators.seeds import read_scenario

        steps: dict[str, list[Step]] = {system.kind: [] for system in systems}
        # Tried on the seeded systems: a row needs its collection, a message a known sender.
        desks = {system.kind: Desk(Draft(self._fill(system), system.name), make_still_surroundings()) for system in systems}
        try:
            for index, step in enumerate(read_scenario(scenario.plain())):
                place = f"steps.{index}" if scenario.get("steps") is not None else step.step
                if step.kind not in steps:
                    raise SpecError(f"{step.step} is for a simulator of kind {step.kind}, and the environment has none", field=place)
                try:
                    find_simulator(step.kind).perform(step.step, step.given, desks[step.kind])
                except SpecError as error:
                    raise SpecError(f"{step.step}: {error.message}", field=place, nearest=error.nearest) from None
                steps[step.kind].append(Step(name=step.step, given=step.given, after_s=step.after_s))
        except SpecError as error:
            self._reading.report_spec_error(scenario, error)
            return systems
        return tuple(msgspec.structs.replace(system, scenario=tuple(steps[system.kind])) for system in systems)

    def _fill(self, system: System) -> Rows:
        """Return the initial content of a system, computed once for all tasks that share it."""
        from proctor.simulators.ports import make_still_surroundings
        from proctor.simulators.sandbox import provision_rows

        # The system is stored with its rows, so that its id is not reused.
        if id(system) not in self._filled:
            self._filled[id(system)] = (system, provision_rows((system,), make_still_surroundings()))
        return self._filled[id(system)][1]


def write_task_item(item: Located | None) -> str | None:
    """Return the input of a task without an instruction: the author's whole object as JSON."""
    return None if item is None or item.value is None else msgspec.json.encode(item.plain()).decode()
