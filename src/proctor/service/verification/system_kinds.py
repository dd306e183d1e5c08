"""Which kind of simulated system stands behind a type of the verification API, and how it is reached.

Types are the words of Verial's clients (`FHIR`, `Payer`); kinds are the files in `simulators/kinds/` (`fhir`, `portal`). A kind that Verial
does not have is a type of its own name. A type without a kind can be authored, and nothing runs behind it.

A simulator may say how its parts are called: `access` are the names in the credentials of a sandbox, with `{url}`, `{token}`, `{sandbox}`
and the names in `access_defaults` in what they stand for, which a config may say otherwise; `endpoints` are the names of its paths among
the endpoints of a run. `mcp_url` and `mcp` are where the systems are an MCP server. Of the `config` of its simulator it is given
`config.seed`, and beside it what `config_names` names. Whatever else a client writes there is kept and means nothing here, as at Verial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.simulators.registry import find_simulator, list_kinds

_VERIAL = ("FHIR", "HL7", "X12", "Voice", "Fax", "Payer", "Files", "Message", "CDSHooks")
_OTHER_NAMES = {"Payer": "portal", "Message": "messages", "CDSHooks": "cds"}
"""Kinds that are called otherwise than their type."""
_PATHS = {"clearinghouse": "x12", "faxes": "fax"}
"""Kinds that Verial's clients ask for under another name than ours."""
MCP = "mcp"
"""The part of an address below which all systems of a sandbox or a run are an MCP server; no kind is called so."""
_SECRETS = ("{token}", "{password}")
"""What is told once."""


def _name_kind(type: str) -> str:
    return _OTHER_NAMES.get(type, type.lower())


TYPES = (*_VERIAL, *(kind.capitalize() for kind in list_kinds() if kind not in {_name_kind(type) for type in _VERIAL}))
"""The types there are, as they are written back; read in any case."""
ALIASES = {"Clearinghouse": "X12", "SFTP": "Files", "Portal": "Payer", "WebPortal": "Payer", "Messages": "Message", "CDS": "CDSHooks"}
LIVE_TYPES = tuple(type for type in TYPES if _name_kind(type) in list_kinds())
"""The types behind which something runs."""


def find_kind(type: str) -> str | None:
    """Return the kind behind a type; None where nothing runs."""
    return _name_kind(type) if type in LIVE_TYPES else None


def find_kind_of_path(name: str) -> str:
    """Return the kind of system that a part of an address names."""
    return _PATHS.get(name, name)


def find_config_seed(kind: str, config: Mapping[str, Json] | None) -> Json:
    """Return what the config of a simulator puts into a system of this kind; None: nothing."""
    if not config:
        return None
    seed = config.get("seed")
    names: tuple[str, ...] = getattr(find_simulator(kind), "config_names", ())
    said = {name: value for name, value in config.items() if name in names}
    if not said:
        return seed
    if isinstance(seed, dict):
        return {**seed, **said}
    # Beside other settings nobody can say what a bare list means, and the kind refuses the key.
    return said if seed is None else {**said, "seed": seed}


def join_config(kind: str, config: Mapping[str, Json] | None, seeds: list[Json]) -> list[Json]:
    """Return what a system of this kind is filled with: its config first; as one with the first seed where the kind takes it so."""
    first = find_config_seed(kind, config)
    if first is None:
        return seeds
    if getattr(find_simulator(kind), "config_names", ()) and isinstance(first, dict) and seeds and isinstance(seeds[0], dict):
        return [{**first, **cast("dict[str, Json]", seeds[0])}, *seeds[1:]]
    return [first, *seeds]


def describe_access(
    kind: str, sandbox: str, token: str | None = None, *, url: str | None = None, config: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return the credentials of a sandbox; what needs its token only where that is shown."""
    simulator = find_simulator(kind)
    names: Mapping[str, str] = getattr(simulator, "access", {f"{kind}_url": "{url}"})
    values = {"url": url or f"/sandboxes/{sandbox}/{kind}", "sandbox": sandbox, "token": token or ""}
    defaults: Mapping[str, str] = getattr(simulator, "access_defaults", {})
    if defaults:
        said: Json = find_config_seed(kind, config) or {}
        values |= {name: str(said.get(name) or default.format_map(values)) for name, default in defaults.items()}
    found: dict[str, Json] = {
        name: template.format_map(values) for name, template in names.items() if token is not None or template not in _SECRETS
    }
    found["mcp_url"] = f"{values['url'].rpartition('/')[0]}/{MCP}"
    return found if token is None else {**found, "token": token}


def describe_endpoints(kinds: list[str], run_id: str) -> dict[str, Json]:
    """Return where a run reaches its systems, by name: relative addresses."""
    found: dict[str, Json] = {}
    for kind in dict.fromkeys(kinds):
        root = f"/v1/benchmark-runs/{run_id}/{kind}"
        found[kind] = root
        parts: Mapping[str, str] = getattr(find_simulator(kind), "endpoints", {})
        found.update({name: f"{root}{path}" for name, path in parts.items()})
    return {**found, MCP: f"/v1/benchmark-runs/{run_id}/{MCP}"} if found else {}


def describe_spec_error(error: SpecError) -> str:
    """Return what is wrong with a seed or a step, where, and the nearest right words."""
    at = f"{error.field}: " if error.field else ""
    near = f"; nearest: {', '.join(error.nearest)}" if error.nearest else ""
    return f"{at}{error.message}{near}"
