"""The configuration a run was made with, written out in MCPLab's own words: no references, no library, nothing secret.

Rules are written back from the assertions they were read into, so the file reads as the same suite. `${NAME}` stays as it is; a secret
that was written into the file itself becomes `***`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from proctor.actions.mcplab.plan import Entry, Plan
from proctor.formats.mcplab.text import write_scenario
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.json_values import to_whole_numbers
from proctor.targets.mcp.settings import HIDDEN, strip_url

_SECRET_WORDS: Final = ("token", "key", "secret", "password", "passwd", "auth", "cookie", "credential")


def resolved_config(plan: Plan, attachments: Mapping[str, Iterable[Mapping[str, Json]]]) -> dict[str, Json]:
    """The configuration of a run; `attachments` holds what was read for each scenario."""
    config: dict[str, Json] = {"name": plan.suite.name}
    if plan.suite.description:
        config["description"] = plan.suite.description
    config["agents"] = [dict(agent) for agent in plan.agents()]
    known = {server["id"]: server for server in plan.suite.settings.get("servers") or ()}
    scenarios: dict[str, Json] = {}
    for row in plan.rows:
        if row.scenario not in scenarios:
            servers = [public_server(known[server]) for server in row.servers]
            scenarios[row.scenario] = write_scenario(row.case, servers, list(map(dict, attachments.get(row.scenario, ()))), row.scenario)
    config["scenarios"] = list(scenarios.values())
    config["run_defaults"] = {"selected_agents": [agent["id"] for agent in plan.agents()]}
    return config


def public_suite(suite: Suite) -> Suite:
    """The suite as it may be kept with a run: secrets that stand in its files are not copied. Itself, where there are none."""

    def shown(holder: dict[str, Json], key: str) -> dict[str, Json]:
        servers = [public_server(server) for server in holder.get(key) or ()]
        return holder if servers == (holder.get(key) or []) else {**holder, key: servers}

    def shown_all(settings: dict[str, Json]) -> dict[str, Json]:
        if "configs" not in settings:
            return shown(settings, "servers")
        configs = [{**each, "settings": shown(each["settings"], "servers")} for each in settings["configs"]]
        return settings if configs == settings["configs"] else {**settings, "configs": configs}

    settings = shown_all(suite.settings)
    cases = tuple(
        case if (kept := shown(case.settings, "mcp_servers")) is case.settings else msgspec.structs.replace(case, settings=kept)
        for case in suite.cases
    )
    if settings is suite.settings and all(new is old for new, old in zip(cases, suite.cases, strict=True)):
        return suite
    return msgspec.structs.replace(suite, settings=settings, cases=cases)


def hash_of(config: Json) -> str:
    """SHA-256 of the compact JSON with sorted keys."""
    return hashlib.sha256(msgspec.json.encode(to_whole_numbers(config), order="deterministic")).hexdigest()


def public_server(server: Entry) -> Entry:
    """A server without its secrets."""
    shown: Entry = {key: value for key, value in server.items() if key not in ("auth", "headers")}
    # A server that is started has none.
    if "url" in shown and shown["url"] != strip_url(shown["url"]):
        shown["url"] = strip_url(shown["url"])
    if server.get("headers"):
        shown["headers"] = {key: _public(value) if _is_secret(key) else value for key, value in server["headers"].items()}
    auth = server.get("auth")
    if auth is not None:
        shown["auth"] = _public_auth(auth)
    return shown


def _public_auth(auth: Entry) -> Entry:
    shown: Entry = {}
    for key, value in auth.items():
        if key in ("token", "value", "client_secret"):
            shown[key] = _public(value)
        elif key == "token_params":
            shown[key] = {name: _public(each) if _is_secret(name) else each for name, each in value.items()}
        elif key in ("token_url", "authorization_url"):
            shown[key] = strip_url(value)
        else:
            shown[key] = value
    return shown


def _public(value: Json) -> Json:
    reference = isinstance(value, str) and value.startswith("${") and value.endswith("}") and value[2:-1].isidentifier()
    return value if reference else HIDDEN


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)
