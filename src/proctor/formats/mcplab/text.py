"""Writes MCPLab configs, and converts their agents and servers to our own format.

An agent is a target of type `mcp_agent` with its own model; the servers of the scenarios are its servers.
"""

from __future__ import annotations

import re
from typing import Final, cast

import msgspec

from proctor.formats.mcplab.rules import CONTEXT_FLAGS, TEXT_CHECKS
from proctor.formats.mcplab.setup import PROVIDERS, Entry
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Json

_TEXT_RULES: Final = {check: kind for kind, (check, _, _) in TEXT_CHECKS.items()}
_OTHER_RULES: Final = ("tool_input_contains", "tool_input_matches", "tool_input_path", "response_matches", "json_path")
_CONTEXT: Final = {field: key for key, field in CONTEXT_FLAGS.items()}
_AGENT_KEYS: Final = ("system", "temperature", "max_tokens", "max_turns")
_LOOP: Final[Entry] = {"tool_errors": "json", "unknown_tools": "end"}
"""How the agent loop of MCPLab differs from ours."""
_WHOLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_OWN_SETTINGS: Final = ("agents", "servers", "run_defaults", "configs")


def describe_agents(suite: Suite, judge: Entry | None) -> tuple[Suite, list[str]]:
    """Return an MCPLab suite with its agents as targets and models, its judge as ours, and a list of omitted parts."""
    parts: list[Entry] = [each["settings"] for each in suite.settings["configs"]] if "configs" in suite.settings else [suite.settings]
    dropped: list[str] = []
    agents: dict[str, Entry] = {}
    for agent in (agent for part in parts for agent in part.get("agents") or ()):
        if agent["type"] == "browser":
            dropped.append(f"not written: the agent {agent['id']!r}, which drives a browser")
        elif agents.setdefault(agent["id"], agent) != agent:
            dropped.append(f"not written: a second agent with the id {agent['id']!r}")
    entries = (entry for case in suite.cases for entry in case.settings.get("mcp_servers") or ())
    known = {entry["id"]: entry for entry in entries} or {entry["id"]: entry for part in parts for entry in part.get("servers") or ()}
    servers = {name: _write_server(entry, dropped) for name, entry in known.items()}
    settings: Entry = {key: value for key, value in suite.settings.items() if key not in _OWN_SETTINGS}
    if agents:
        own = {name: {key: agent[key] for key in _AGENT_KEYS if agent.get(key) is not None} for name, agent in agents.items()}
        settings["targets"] = {name: {"type": "mcp_agent", "model": name, **own[name], **_LOOP, "servers": servers} for name in agents}
        selected = [name for part in parts for name in (part.get("run_defaults") or {}).get("selected_agents") or () if name in agents]
        settings["default_target"] = [*selected, *agents][0]
        if len(agents) > 1:
            dropped.append(f"a run drives one target, {settings['default_target']!r}; the others are driven with --target NAME")
    else:
        dropped.append("no target is written: the config has no agent that can be driven; describe one, or give --target")
    if judge is not None:
        agents.setdefault(judge["id"], judge)
        judge_settings = {key: judge[key] for key in ("temperature", "max_tokens") if judge.get(key) is not None}
        settings["judge"] = {"model": judge["id"], **judge_settings}
    elif any(assertion.check == "judged" for case in suite.cases for assertion in case.assertions):
        dropped.append("no judge is written: the workspace names none (`evaluation_judge_agent_name`)")
    if agents:
        providers = {name: agent["provider"].removesuffix("_openai") for name, agent in agents.items()}
        settings["models"] = {name: {"provider": providers[name], "model": agent["model"]} for name, agent in agents.items()}
    if "azure" in (model["provider"] for model in settings.get("models", {}).values()):
        dropped.append("AZURE_OPENAI_DEPLOYMENT is not read: write `deployment` where it is not the name of the model")
    cases = tuple(_refer_to_servers(case, dropped) for case in suite.cases)
    return msgspec.structs.replace(suite, settings=settings, cases=cases), dropped


def _refer_to_servers(case: Case, dropped: list[str]) -> Case:
    settings = dict(case.settings)
    if "mcp_servers" in settings:
        settings["mcp_servers"] = [entry["id"] for entry in settings["mcp_servers"]]
    files = settings.pop("attachments", [])
    loaded = [entry for entry in files if entry.get("data") or entry.get("url")]
    if loaded:
        settings["attachments"] = loaded
    if len(loaded) < len(files):
        dropped.append(f"the case {case.id!r}: not written: attachments that are files; only `data` and `url` are sent")
    return msgspec.structs.replace(case, settings=settings)


def _write_server(entry: Entry, dropped: list[str]) -> Entry:
    written: Entry = {"transport": "http", "url": _escape(entry["url"]), "era": "handshake"}
    if entry.get("headers"):
        written["headers"] = {key: _escape(value) for key, value in entry["headers"].items()}
    if entry.get("session"):
        written["session"] = entry["session"]
    auth: Entry = entry.get("auth") or {"type": None}
    match auth["type"]:
        case None:
            pass
        case "bearer":
            written["auth"] = {"type": "bearer", "token": _escape(auth["token"]) if auth.get("token") else f"${{{auth.get('env')}}}"}
        case "api_key":
            written["auth"] = {**auth, "value": _escape(auth["value"])}
        case "oauth_client_credentials":
            names = {key: f"${{{auth[f'{key}_env']}}}" for key in ("client_id", "client_secret")}
            written["auth"] = {key: value for key, value in auth.items() if not key.endswith("_env")} | names
        case _:
            dropped.append(f"not written: the login of the server {entry['id']!r} ({auth['type']}); write a bearer token")
    return written


def _escape(value: str) -> str:
    """Return a text in which only a whole `${NAME}` is a reference, as in MCPLab."""
    return value if _WHOLE.fullmatch(value) else value.replace("${", "$${")


def build_mcplab(suite: Suite) -> tuple[Json, list[str]]:
    """Return the MCPLab config of a suite, and a list of omitted parts."""
    dropped: list[str] = []
    servers: dict[str, Entry] = {}
    agents: list[Entry] = []
    models: dict[str, Entry] = suite.settings.get("models") or {}
    for name, target in (suite.settings.get("targets") or {}).items():
        model = models.get(target.get("model", ""), {})
        provider = "azure_openai" if model.get("provider") == "azure" else model.get("provider")
        if target.get("type") != "mcp_agent" or provider not in PROVIDERS:
            dropped.append(f"not written: the target {name!r}; an agent of MCPLab is a model of {', '.join(PROVIDERS)} with MCP servers")
            continue
        own = {key: target[key] for key in _AGENT_KEYS if key in target}
        agents.append({"id": name, "provider": provider, "model": model.get("model", ""), **own})
        listed = target.get("servers") or {}
        for entry in [{"id": key, **each} for key, each in listed.items()] if isinstance(listed, dict) else listed:
            if entry.get("url"):
                written: Entry = {key: entry[key] for key in ("id", "url", "headers", "session") if key in entry} | {"transport": "http"}
                auth = dict(cast(Entry, entry.get("auth") or {}))
                if auth.get("type") == "oauth_client_credentials":
                    for key in ("client_id", "client_secret"):
                        match = _WHOLE.fullmatch(auth.pop(key, ""))
                        auth[f"{key}_env"] = match[1] if match else ""
                servers.setdefault(entry["id"], written | ({"auth": auth} if auth else {}))
            else:
                dropped.append(f"not written: the server {entry['id']!r}; MCPLab reaches servers over HTTP only")
    if suite.settings.get("judge"):
        dropped.append("not written: `judge`; MCPLab names its judge in .mcplab-app-settings.yaml (`evaluation_judge_agent_name`)")
    config: Entry = {
        "name": suite.name,
        **({"description": suite.description} if suite.description else {}),
        "agents": agents,
        "scenarios": [],
    }
    for case in suite.cases:
        server_ids = [each["id"] if isinstance(each, dict) else each for each in case.settings.get("mcp_servers") or servers]
        used = [servers[name] for name in server_ids if name in servers]
        config["scenarios"].append(write_scenario(case, used, case.settings.get("attachments") or []))
    if suite.settings.get("default_target") in [agent["id"] for agent in agents]:
        config["run_defaults"] = {"selected_agents": [suite.settings["default_target"]]}
    return config, dropped


def write_scenario(case: Case, servers: list[Entry], attachments: list[Entry], id: str | None = None) -> Entry:
    """Return a case as a scenario."""
    written: Entry = {
        "name": case.name,
        "description": case.description,
        "tags": case.tags.get("tags"),
        "prompt": case.input,
        "mcp_servers": servers,
        "attachments": attachments,
        "eval": rules_of(case),
        "extract": [{"name": each.name, "from": "final_text", "regex": each.pattern} for each in case.captures],
    }
    return {
        "id": id or case.id,
        **{key: value for key, value in written.items() if value or key == "mcp_servers" or (key == "prompt" and value == "")},
    }


def rules_of(case: Case) -> dict[str, Json]:
    """Return the `eval` block from which the assertions of a case were read."""
    constraints: dict[str, list[str]] = {}
    lists: dict[str, list[Json]] = {}
    out: dict[str, Json] = {}
    context: dict[str, Json] = {}
    for assertion in case.assertions:
        spec: Json = assertion.spec
        match assertion.check:
            case "tool_called":
                constraints.setdefault("required_tools", []).append(spec.name)
            case "tool_not_called":
                constraints.setdefault("forbidden_tools", []).append(spec.name)
            case "tools_in_order":
                out["tool_sequence"] = list(spec.names)
            case "tools_exactly":
                out["tool_sequence"] = {"allow": [list(names) for names in spec.any_of]}
            case "judged":
                lists.setdefault("agent_assertions", []).append({"label": assertion.label, "prompt": spec.criteria})
                context |= {word: True for field, word in _CONTEXT.items() if getattr(spec, field)}
            case check if check in _TEXT_RULES or check in _OTHER_RULES:
                key = "tool_input_assertions" if assertion.check.startswith("tool_input") else "response_assertions"
                lists.setdefault(key, []).append(_write_rule(assertion))
            case _:
                pass
    if constraints:
        out = {"tool_constraints": constraints, **out}
    return {**out, **lists, **({"agent_context": context} if context else {})}


def _write_rule(assertion: Assertion) -> dict[str, Json]:
    spec: Json = assertion.spec
    tool = {"tool": spec.tool} if assertion.check.startswith("tool_input") else {}
    match assertion.check:
        case "tool_input_contains":
            return {"type": "contains", **tool, "value": spec.text}
        case "tool_input_matches" | "response_matches":
            return {"type": "regex", **tool, "pattern": spec.pattern}
        case "tool_input_path":
            return {"type": "jsonpath", **tool, "path": spec.path, **_write_equals(spec)}
        case "json_path":
            kind = assertion.rule.get("type") or ("jsonpath" if spec.exists else "jsonpath_not_exists")
            return {"type": kind, "path": spec.path, **_write_equals(spec)}
        case check:
            return {"type": _TEXT_RULES[check], "value": spec.text}


def _write_equals(spec: Json) -> dict[str, Json]:
    return {} if spec.equals is msgspec.UNSET else {"equals": spec.equals}
