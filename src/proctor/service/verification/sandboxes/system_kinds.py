"""Addresses of simulated systems: the credentials of a sandbox and the endpoints of a run.

A simulator may declare `access`: names in the credentials with templates of `{url}`, `{token}`, `{sandbox}` and the names in
`access_defaults`, which a config may override; and `endpoints`: names of its paths among the endpoints of a run. `mcp_url` and `mcp` are
the address of the MCP server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from proctor.model.evidence import Json
from proctor.simulators.ports import find_simulator
from proctor.simulators.seeds import find_config_seed

_PATHS = {"clearinghouse": "x12", "faxes": "fax"}
"""Kinds that have another name in Verial's addresses."""
MCP = "mcp"
"""The path of the MCP server of a sandbox or a run; no kind has this name."""
_SECRETS = ("{token}", "{password}")
"""Templates that are shown only once."""


def find_kind_of_path(name: str) -> str:
    """Return the kind of system of a path segment."""
    return _PATHS.get(name, name)


def describe_access(
    kind: str, sandbox: str, token: str | None = None, *, url: str | None = None, config: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return the credentials of a sandbox; those with its token only if it is given."""
    simulator = find_simulator(kind)
    names = simulator.access or {f"{kind}_url": "{url}"}
    values = {"url": url or f"/sandboxes/{sandbox}/{kind}", "sandbox": sandbox, "token": token or ""}
    defaults = simulator.access_defaults
    if defaults:
        seed: Json = find_config_seed(kind, config) or {}
        values |= {name: str(seed.get(name) or default.format_map(values)) for name, default in defaults.items()}
    access: dict[str, Json] = {
        name: template.format_map(values) for name, template in names.items() if token is not None or template not in _SECRETS
    }
    access["mcp_url"] = f"{values['url'].rpartition('/')[0]}/{MCP}"
    return access if token is None else {**access, "token": token}


def complete_addresses(response: Json, root: str) -> Json:
    """Return a response with absolute addresses in the credentials of sandboxes; `root` is the address of the service."""
    if isinstance(response, list):
        return [complete_addresses(item, root) for item in cast("list[Json]", response)]
    if not isinstance(response, dict):
        return response
    record = cast("dict[str, Json]", response)
    if isinstance(access := record.get("credentials"), dict):
        absolute = {name: f"{root}{one}" if name.endswith("_url") and str(one).startswith("/") else one for name, one in access.items()}
        return {**record, "credentials": absolute}
    # Sandboxes are on list pages, and inside playgrounds and runs.
    return {name: complete_addresses(one, root) if name in ("data", "sandboxes") else one for name, one in record.items()}


def describe_endpoints(kinds: list[str], run_id: str) -> dict[str, Json]:
    """Return the relative addresses of a run's systems by name."""
    endpoints: dict[str, Json] = {}
    for kind in dict.fromkeys(kinds):
        root = f"/v1/benchmark-runs/{run_id}/{kind}"
        endpoints[kind] = root
        parts = find_simulator(kind).endpoints
        endpoints.update({name: f"{root}{path}" for name, path in parts.items()})
    return {**endpoints, MCP: f"/v1/benchmark-runs/{run_id}/{MCP}"} if endpoints else {}
