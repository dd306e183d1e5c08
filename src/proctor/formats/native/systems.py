"""The `systems` of a case in our own format: the simulated systems that its agent works in.

    systems:
      clinic:
        kind: fhir                                # left out: the name is the kind
        seed: [{resourceType: Patient, id: ann}]  # what it holds in the beginning, as its kind has it
      drop:
        kind: files
        datasets: [{notes/a.txt: hello}]          # further seeds, each added to those before
        scenario:                                 # what happens before the agent begins, or later
          - drop_file_inbox: {path: referral.json, content: {patient: ann}}
          - {drop_file_inbox: {path: reminder.txt, content: call back}, after_s: 30}

The systems of a suite are those of each of its cases; a case may replace one of them. A case has one system of
a kind at most: the state that checks read has one place for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.errors import SpecError
from proctor.formats.text.located import Located, Reading
from proctor.model.case import LONGEST_S, Assertion, Step, System
from proctor.model.evidence import Json
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import nearest
from proctor.patterns.globs import strip_leading_marks

SYSTEM_KEYS = ("kind", "seed", "datasets", "scenario")
_LATE = "after_s"
_NAME = lazy_pattern(r"[A-Za-z][A-Za-z0-9_]{0,39}")


def read_systems(node: Located | None, reading: Reading) -> tuple[System, ...]:
    """Return the systems, with a problem for each invalid one."""
    if node is None or reading.require_object(node, "systems") is None:
        return ()
    systems = tuple(filter(None, (_read_system(name, member, node, reading) for name, member in node.members())))
    _refuse_doubles(systems, node, reading)
    return systems


def join_systems(shared: tuple[System, ...], node: Located | None, reading: Reading) -> tuple[System, ...]:
    """Return the systems of a case: those of its suite, and its own."""
    if node is None:
        return shared
    own = read_systems(node, reading)
    own_names = {system.name for system in own}
    joined = (*(system for system in shared if system.name not in own_names), *own)
    # The case's own systems were compared when they were read: only those of the suite can add a duplicate.
    if len(joined) != len(own):
        _refuse_doubles(joined, node, reading)
    return joined


def _read_system(name: str, node: Located, parent: Located, reading: Reading) -> System | None:
    # The simulators are loaded only for suites that use them.
    from proctor.simulators.ports import find_simulator, make_still_surroundings
    from proctor.simulators.sandbox import provision_rows

    if not _NAME.fullmatch(name):
        reading.error_at_key(
            parent, name, f"the name of a system is made of up to 40 letters, digits and underscores, found {name!r}", code="wrong_value"
        )
        return None
    if node.value is not None and reading.require_object(node, "a system") is None:
        return None
    reading.check_keys(node, SYSTEM_KEYS, "a system")
    kind_node = node.get("kind")
    kind = name if kind_node is None else reading.require_text(kind_node, "kind")
    if kind is None:
        return None
    try:
        simulator = find_simulator(kind)
    except SpecError as error:
        hint = None if kind_node is not None else "name the kind of the system: `kind: records`"
        reading.error(kind_node or node, error.message, nearest=error.nearest, hint=hint, code="unknown_system")
        return None
    seed = node.get("seed")
    datasets = tuple(item.plain() for item in reading.list_items(node.get("datasets"), "datasets"))
    scenario = _read_scenario(node.get("scenario"), reading)
    system = System(name=name, kind=simulator.kind, seed=None if seed is None else seed.plain(), datasets=datasets, scenario=scenario)
    try:
        # Late steps are tried as well, so that invalid ones are reported now instead of during a run.
        provision_rows((system,), make_still_surroundings(), with_late=True)
    except SpecError as error:
        field = (error.field or "").removeprefix(f"{name}.")
        reading.report_spec_error(node, SpecError(error.message, field=field, nearest=error.nearest, hint=error.hint))
        return None
    return system


def _read_scenario(node: Located | None, reading: Reading) -> tuple[Step, ...]:
    steps: list[Step] = []
    for item in reading.list_items(node, "scenario"):
        if reading.require_object(item, "a step") is None:
            continue
        members = [(name, value) for name, value in item.members() if name != _LATE]
        if len(members) != 1:
            reading.error(item, f"a step is an object with one name, found {len(members)}", hint="write - drop_file_inbox: {path: ...}")
            continue
        name, value = members[0]
        late = item.get(_LATE)
        seconds = reading.number(late, _LATE) or 0.0
        if late is not None and not 0 <= seconds <= LONGEST_S:
            reading.error(late, f"{_LATE}: expected seconds from 0 to {LONGEST_S:g}, found {seconds:g}", code="wrong_value")
        steps.append(Step(name=name, given=value.plain(), after_s=float(seconds)))
    return tuple(steps)


def _refuse_doubles(systems: tuple[System, ...], node: Located, reading: Reading) -> None:
    kinds: dict[str, str] = {}
    for system in systems:
        if system.kind in kinds:
            first = kinds[system.kind]
            message = f"{first!r} and {system.name!r} are both of kind {system.kind}; a case has one system of a kind"
            reading.error_at_key(node, system.name if node.get(system.name) is not None else first, message, code="two_systems")
        kinds.setdefault(system.kind, system.name)


def refuse_unknown_systems(entries: Sequence[tuple[Assertion, Located]], systems: tuple[System, ...], reading: Reading) -> None:
    """Report claims about systems that a case lacks: a claim that something did *not* happen there would always pass."""
    names = [system.name for system in systems]
    for assertion, node in entries if systems else ():
        for name in _list_system_names(assertion.spec):
            if name not in names:
                message = f"{assertion.check} is about a system {name!r}, and the case has none of that name; there are {', '.join(names)}"
                place = node.get(assertion.check) if node.is_object else None
                reading.error(place or node, message, nearest=nearest(name, names), code="unknown_system")


def _list_system_names(spec: object) -> list[str]:
    """Return the names of systems that a claim mentions literally."""
    # Only suites with systems need these checks.
    from proctor.checks.systems.effects import RequestMade, RequestNotMade, Unchanged

    if isinstance(spec, (RequestMade, RequestNotMade)):
        patterns = (spec, *(spec.then if isinstance(spec, RequestMade) else ()))
        return [pattern.system for pattern in patterns if pattern.system is not None]
    if isinstance(spec, Unchanged):
        places = (*spec.besides, *(entry.place for entry in spec.allowed))
        first_names = (strip_leading_marks(place).partition("/")[0] for place in places)
        # A pattern may match any system, so it names none that could be missing.
        return [first for first in first_names if not set("*?") & set(first)]
    return []


def write_systems(systems: tuple[System, ...]) -> dict[str, Json]:
    """Return systems in the form of a suite."""
    written: dict[str, Json] = {}
    for system in systems:
        steps = [{step.name: step.given, **({_LATE: step.after_s} if step.after_s else {})} for step in system.scenario]
        out = {"kind": system.kind, "seed": system.seed, "datasets": list(system.datasets) or None, "scenario": steps or None}
        written[system.name] = {key: value for key, value in out.items() if value is not None}
    return written


def build_systems_schema() -> dict[str, Json]:
    """Return the schema of `systems`."""
    from proctor.simulators.ports import list_kinds

    properties: dict[str, Json] = {
        "kind": {"enum": list(list_kinds()), "description": "What it simulates; left out: the name is the kind."},
        "seed": {"description": "What it holds in the beginning."},
        "datasets": {"type": "array", "description": "Further seeds, each added to those before."},
        "scenario": {"type": "array", "items": {"type": "object", "minProperties": 1, "maxProperties": 2}},
    }
    assert set(properties) == set(SYSTEM_KEYS)
    system_schema: dict[str, Json] = {"type": ["object", "null"], "additionalProperties": False, "properties": properties}
    return {"type": "object", "additionalProperties": system_schema}
