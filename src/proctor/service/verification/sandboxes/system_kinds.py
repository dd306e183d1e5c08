"""How the simulated systems of the verification API are reached: the names of their credentials and of the endpoints of a run.

A simulator may say how its parts are called: `access` are the names in the credentials of a sandbox, with `{url}`, `{token}`, `{sandbox}`
and the names in `access_defaults` in what they stand for, which a config may say otherwise; `endpoints` are the names of its paths among
the endpoints of a run. `mcp_url` and `mcp` are where the systems are an MCP server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from proctor.model.evidence import Json
from proctor.simulators.registry import find_simulator
from proctor.simulators.type_names import find_config_seed

_PATHS = {"clearinghouse": "x12", "faxes": "fax"}
"""Kinds that Verial's clients ask for under another name than ours."""
MCP = "mcp"
"""The part of an address below which all systems of a sandbox or a run are an MCP server; no kind is called so."""
_SECRETS = ("{token}", "{password}")
"""What is told once."""


def find_kind_of_path(name: str) -> str:
    """Return the kind of system that a part of an address names."""
    return _PATHS.get(name, name)


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


def complete_addresses(found: Json, root: str) -> Json:
    """Return an answer with absolute addresses in the credentials of sandboxes; `root` is the service as the client wrote it."""
    if isinstance(found, list):
        return [complete_addresses(item, root) for item in cast("list[Json]", found)]
    if not isinstance(found, dict):
        return found
    record = cast("dict[str, Json]", found)
    if isinstance(access := record.get("credentials"), dict):
        whole = {name: f"{root}{one}" if name.endswith("_url") and str(one).startswith("/") else one for name, one in access.items()}
        return {**record, "credentials": whole}
    # Sandboxes are on pages of a list, and inside of playgrounds and runs.
    return {name: complete_addresses(one, root) if name in ("data", "sandboxes") else one for name, one in record.items()}


def describe_endpoints(kinds: list[str], run_id: str) -> dict[str, Json]:
    """Return where a run reaches its systems, by name: relative addresses."""
    found: dict[str, Json] = {}
    for kind in dict.fromkeys(kinds):
        root = f"/v1/benchmark-runs/{run_id}/{kind}"
        found[kind] = root
        parts: Mapping[str, str] = getattr(find_simulator(kind), "endpoints", {})
        found.update({name: f"{root}{path}" for name, path in parts.items()})
    return {**found, MCP: f"/v1/benchmark-runs/{run_id}/{MCP}"} if found else {}
