"""The types of systems that Verial's clients use, and the kind of each.

Types are words such as `FHIR` and `Payer`; kinds are the files in `kinds/` (`fhir`, `portal`). A kind that Verial does not have is a type
of its own name. A type without a kind can be written, but nothing is simulated.

A kind gets `config.seed` of a simulator's `config`, and the members in its `config_names`. Other members are ignored, as at Verial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
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
    names: tuple[str, ...] = getattr(find_simulator(kind), "config_names", ())
    chosen = {name: value for name, value in config.items() if name in names}
    if not chosen:
        return seed
    if isinstance(seed, dict):
        return {**seed, **chosen}
    # With other settings the meaning of a bare list is unclear, and the kind rejects the key.
    return chosen if seed is None else {**chosen, "seed": seed}


def join_config(kind: str, config: Mapping[str, Json] | None, seeds: list[Json]) -> list[Json]:
    """Return the seeds of a system of this kind: its config first, merged with the first seed if the kind supports that.

    What both have is never put together: the one would take the place of the other, and nothing of the config may get lost.
    """
    first = find_config_seed(kind, config)
    if first is None:
        return seeds
    are_objects = isinstance(first, dict) and seeds and isinstance(seeds[0], dict)
    if getattr(find_simulator(kind), "config_names", ()) and are_objects and not first.keys() & seeds[0].keys():
        return [{**first, **cast("dict[str, Json]", seeds[0])}, *seeds[1:]]
    return [first, *seeds]


def describe_spec_error(error: SpecError) -> str:
    """Return the error in a seed or a step, with its position and the nearest valid names."""
    at = f"{error.field}: " if error.field else ""
    near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
    return f"{at}{error.message}{near}"
