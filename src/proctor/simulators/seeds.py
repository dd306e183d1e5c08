"""Reads seeds, steps and types of simulated systems from a suite. Invalid values are a `SpecError` with their position.

Types are the names that Verial's clients use, such as `FHIR` and `Payer`; kinds are the files in `kinds/` (`fhir`, `portal`). A kind that
Verial lacks has its own name as its type. A type without a kind is accepted, but not simulated.

A kind gets `config.seed` of a simulator's `config`, and the members in its `config_names`. Other members are ignored, as in Verial.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from proctor.errors import SpecError
from proctor.expressions.text_form import NO_SCOPE
from proctor.matchers.compile import compile_expected, holds_matcher
from proctor.matchers.mismatch import find_difference
from proctor.model.case import LONGEST_S
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing, is_finite, is_number
from proctor.model.show import kind_of, nearest, show, suggest
from proctor.simulators.ports import find_simulator, list_kinds

_VERIAL = ("FHIR", "HL7", "X12", "Voice", "Fax", "Payer", "Files", "Message", "CDSHooks")
_OTHER_NAMES = {"Payer": "portal", "Message": "messages", "CDSHooks": "cds"}
"""Kinds whose name differs from their type."""


def _name_kind(type: str) -> str:
    return _OTHER_NAMES.get(type, type.lower())


TYPES = (*_VERIAL, *(kind.capitalize() for kind in list_kinds() if kind not in {_name_kind(type) for type in _VERIAL}))
"""All types in their canonical spelling; read in any case."""
ALIASES = {"Clearinghouse": "X12", "SFTP": "Files", "Portal": "Payer", "WebPortal": "Payer", "Messages": "Message", "CDS": "CDSHooks"}
LIVE_TYPES = tuple(type for type in TYPES if _name_kind(type) in list_kinds())
"""The types that are simulated."""


def find_kind(type: str) -> str | None:
    """Return the kind of a type; None if it is not simulated."""
    return _name_kind(type) if type in LIVE_TYPES else None


def read_kind(word: Json) -> str:
    """Return the kind for a type, an alias or a kind, in any case. Raises `SpecError` with the nearest names."""
    known = {name.lower(): find_kind(type) for type in TYPES for name in (type, *(a for a, meant in ALIASES.items() if meant == type))}
    known |= {kind: kind for kind in list_kinds()}
    if not isinstance(word, str) or word.lower() not in known:
        near = nearest(str(word).lower(), known)
        suggestion = f"; nearest: {', '.join(near)}" if near else f"; there are {', '.join(list_kinds())}"
        raise SpecError(f"unknown simulator {show(word, 60)}{suggestion}")
    kind = known[word.lower()]
    if kind is None:
        raise SpecError(f"simulators of type {show(word, 60)} are not supported; expected one of {', '.join(list_kinds())}")
    return kind


def find_config_seed(kind: str, config: Mapping[str, Json] | None) -> Json:
    """Return the seed in a simulator's config for a system of this kind, or None."""
    if not config:
        return None
    seed = config.get("seed")
    names = find_simulator(kind).config_names
    chosen = {name: value for name, value in config.items() if name in names}
    if not chosen:
        return seed
    if isinstance(seed, dict):
        return {**seed, **chosen}
    # With other settings the meaning of a bare list is unclear, and the kind rejects the key.
    return chosen if seed is None else {**chosen, "seed": seed}


def join_config(kind: str, config: Mapping[str, Json] | None, seeds: list[Json]) -> list[Json]:
    """Return the seeds of a system of this kind: its config first, merged with the first seed if the kind supports that.

    Members that both have are not merged, because one would replace the other and a part of the config would be lost.
    """
    if (first := find_config_seed(kind, config)) is None:
        return seeds
    are_objects = isinstance(first, dict) and seeds and isinstance(seeds[0], dict)
    if find_simulator(kind).config_names and are_objects and not first.keys() & seeds[0].keys():
        return [{**first, **cast("dict[str, Json]", seeds[0])}, *seeds[1:]]
    return [first, *seeds]


def describe_spec_error(error: SpecError) -> str:
    """Return the error in a seed or a step, with its position and the nearest valid names."""
    at = f"{error.field}: " if error.field else ""
    near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
    return f"{at}{error.message}{near}"


_ALIKE = 0.85
"""The similarity above which one name is a misspelling of another."""


class NotHeld(SpecError):
    """A step names an object that the system does not have, or does not have yet: that is only known when the system is seeded."""


def read_members(value: Json, known: Iterable[str], at: str = "", *, required: Iterable[str] = ()) -> dict[str, Json]:
    """Return an object that has only known members."""
    if not isinstance(value, dict):
        raise SpecError(f"expected an object, found {kind_of(value)}", field=at or None)
    members = cast("dict[str, Json]", value)
    names = tuple(known)
    for name in members:
        if name not in names:
            raise SpecError(
                f"unknown key {show(name)}; there are {', '.join(names)}", field=join_place(at, name), nearest=nearest(name, names)
            )
    for name in required:
        if name not in members:
            raise SpecError(f"{name} is missing", field=at or None)
    return members


def read_condition(value: Json, at: str) -> dict[str, Json]:
    """Return the required values: literals, matchers, or null for an absent or null value."""
    members = {} if value is None else read_members(value, value if isinstance(value, dict) else (), at)
    for name, value_wanted in members.items():
        if holds_matcher(value_wanted):
            compile_expected(value_wanted, field=join_place(at, name))
    return members


def holds_condition(condition: Mapping[str, Json], find: Callable[[str], Json | Missing]) -> bool:
    """Return whether every value that `find` returns for a name matches."""
    return all(_is_as_wanted(expected, find(name)) for name, expected in condition.items())


def _is_as_wanted(expected: Json, actual: Json | Missing) -> bool:
    if expected is None or actual is MISSING:
        return expected is None and actual in (None, MISSING)
    if holds_matcher(expected):
        return compile_expected(expected).find_mismatch(actual, NO_SCOPE, "$") is None
    return find_difference(expected, actual) is None


def refuse_slips(names_given: Iterable[str], known: Iterable[str], at: str) -> None:
    """Reject a name that is a misspelling of a known one, where other names are the author's own."""
    from difflib import SequenceMatcher  # costs a regex compile

    names = tuple(known)
    for name in names_given:
        for known_name in names if name not in names else ():
            # Swapped letters count as similar, too. `provider_name` and `provider_npi` are less similar, and are different fields.
            if sorted(name) == sorted(known_name) or SequenceMatcher(None, name[:200], known_name).ratio() >= _ALIKE:
                raise SpecError(f"unknown key {show(name)}; did you mean {known_name}?", field=join_place(at, name), nearest=(known_name,))


def read_items(value: Json, at: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the items of a list, each with its position; None is an empty list."""
    if value is None:
        return
    if not isinstance(value, list):
        raise SpecError(f"expected a list, found {kind_of(value)}", field=at or None)
    for index, item in enumerate(cast("list[Json]", value)):
        yield join_place(at, str(index)), item


def read_word(value: Json, at: str, *, default: str | None = None, among: Iterable[str] = ()) -> str:
    """Return text, or a number as text."""
    if value is None and default is not None:
        return default
    text = str(value) if is_number(value) else value
    if not isinstance(text, str) or (default is None and not text.strip()):
        raise SpecError(f"expected text, found {'nothing' if value is None else show(value)}", field=at)
    words = tuple(among)
    if words and text not in words:
        raise SpecError(f"expected one of {', '.join(words)}, found {show(text)}", field=at, nearest=nearest(text, words))
    return text


def read_flag(value: Json, at: str, *, default: bool = False) -> bool:
    """Return true or false."""
    if value is None:
        return default
    if not isinstance(value, bool):
        raise SpecError(f"expected true or false, found {show(value)}", field=at)
    return value


def refuse_doubles(names: Iterable[tuple[str, str]], what: str) -> None:
    """Reject a repeated name in one seed, given with its position: only one of the two would exist."""
    first_places: dict[str, str] = {}
    for at, name in names:
        if name in first_places:
            raise SpecError(f"{what} {show(name)} is there twice; the first one is {first_places[name]}", field=at)
        first_places[name] = at


def join_place(at: str, name: str) -> str:
    """Return the path of a member."""
    return f"{at}.{name}" if at else name


T = TypeVar("T")
Read = Callable[[Json, str], Any]
"""Reads a value of a suite at a place. Raises `SpecError`."""


class ReadBy(msgspec.Struct, frozen=True):
    """In `Annotated`: how a value is read where its type alone does not determine that."""

    read: Read


class NotRead:
    """In `Annotated`: a field that a suite cannot set."""


def read_as(kind: type[T], value: Json, at: str = "") -> T:
    """Return a value of a suite as a type: text, a flag, one of some words, a list, or a struct of these. Raises `SpecError`."""
    return _find_reader(kind)(value, at)


@functools.cache
def _find_reader(hint: Any) -> Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((each.read for each in arguments if isinstance(each, ReadBy)), None) or _find_reader(arguments[0])
    if origin in (Union, UnionType):
        (inner,) = (each for each in arguments if each is not NoneType)
        return _find_reader(inner)
    if origin is Literal:
        return functools.partial(read_word, among=arguments)
    if origin is tuple:
        read_item = _find_reader(arguments[0])
        return lambda value, at: tuple(read_item(item, place) for place, item in read_items(value, at))
    readers: dict[Any, Read] = {str: read_word, bool: read_flag}
    return readers.get(hint) or functools.partial(_read_struct, hint)


def _read_struct(kind: type[msgspec.Struct], value: Json, at: str) -> msgspec.Struct:
    fields = _list_fields(kind)
    members = read_members(value, fields, at, required=(name for name, (is_required, _) in fields.items() if is_required))
    found = {
        name: read(members[name], join_place(at, name))
        for name, (is_required, read) in fields.items()
        if is_required or members.get(name) is not None
    }
    try:
        return kind(**found)
    except SpecError as error:  # what `__post_init__` refuses
        raise error.move_to(join_place(at, error.field) if error.field else at or None) from None


@functools.cache
def _list_fields(kind: type[msgspec.Struct]) -> dict[str, tuple[bool, Read]]:
    """Return whether each field is required, and its reader."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: (field.required, _find_reader(hint) if field.required or hint is not str else functools.partial(read_word, default=""))
        for field in msgspec.structs.fields(kind)
        if NotRead not in get_args(hint := hints[field.name])
    }


def read_words(value: Json, at: str) -> tuple[str, ...]:
    """Return texts; a single one need not be a list."""
    return read_as(tuple[str, ...], [value] if isinstance(value, str) else value, at)


Words = Annotated[tuple[str, ...], ReadBy(read_words)]
Wanted = Annotated[dict[str, Json], ReadBy(read_condition)]
"""Required values: literals, matchers, or null for an absent or null value."""


# Scheduled events in the simulated systems of a task: a file arrives, a resource is added. At the start of the task, or later.
# {"drop_file_inbox": {"path": "referral.json", "content": "..."}} {"steps": [{"simulator": "files", "step": "drop_file_inbox", "given":
# {...}, "after_s": 30}]}
# The short form names steps that one kind of system alone performs. `simulator` is a type (`Files`) or a kind (`files`); left out, it is
# the one kind that has the step.

MOST_STEPS = 100
_KEYS = ("simulator", "step", "given", "after_s")


class ScenarioStep(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a scenario."""

    kind: str
    """The kind of the affected system."""
    step: str
    given: Json = None
    after_s: float = 0.0
    """Seconds after the start of the task."""


def read_scenario(value: Json) -> tuple[ScenarioStep, ...]:
    """Return the steps of a scenario. Raises `SpecError` with the field of an error."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise SpecError(f"a scenario is an object, found {kind_of(value)}")
    members = cast("dict[str, Json]", value)
    if "steps" not in members:
        return tuple(_read_step({"step": name, "given": content}, name) for name, content in members.items())
    steps = read_members(value, ("steps",))["steps"]
    if not isinstance(steps, list) or len(cast("list[Json]", steps)) > MOST_STEPS:
        raise SpecError(f"expected a list of at most {MOST_STEPS} steps", field="steps")
    return tuple(_read_step(step, f"steps.{index}") for index, step in enumerate(cast("list[Json]", steps)))


def _read_step(value: Json, place: str) -> ScenarioStep:
    members = read_members(value, _KEYS, place)
    step, simulator, after_s = members.get("step"), members.get("simulator"), members.get("after_s", 0)
    if not isinstance(step, str):
        raise SpecError("expected the name of a step", field=f"{place}.step")
    if not is_number(after_s) or not is_finite(after_s) or not 0 <= after_s <= LONGEST_S:
        raise SpecError(f"expected seconds from 0 to {LONGEST_S:g}, got {show(after_s, 40)}", field=f"{place}.after_s")
    kind = _find_kind_of_step(step, place) if simulator is None else _find_simulator(simulator, f"{place}.simulator")
    check_step(kind, step, f"{place}.step")
    return ScenarioStep(kind=kind, step=step, given=members.get("given"), after_s=float(after_s))


def _find_simulator(word: Json, place: str) -> str:
    try:
        return read_kind(word)
    except SpecError as error:
        raise error.move_to(place) from None


def _find_kind_of_step(step: str, place: str) -> str:
    steps: Mapping[str, list[str]] = _list_steps()
    if len(steps.get(step, ())) != 1:
        suggestion = suggest(step, steps)
        message = "several simulators have it: add `simulator`" if step in steps else f"no simulator has such a step{suggestion}"
        raise SpecError(f"{show(step, 60)}: {message}", field=place)
    return steps[step][0]


def _list_steps() -> dict[str, list[str]]:
    kinds_by_step: dict[str, list[str]] = {}
    for kind in list_kinds():
        for step in find_simulator(kind).steps:
            kinds_by_step.setdefault(step, []).append(kind)
    return kinds_by_step


def check_step(kind: str, step: str, at: str) -> None:
    """Raise `SpecError` for a step that a kind of system does not have."""
    steps = find_simulator(kind).steps
    if step not in steps:
        known = ", ".join(steps) or "none"
        message = f"a system of kind {kind} has no step {show(step, 60)}; there are: {known}"
        raise SpecError(message, field=at, nearest=nearest(step, steps))
