"""Finds what is no Python code: exports of n8n and Flowise, configurations of MCP servers, OpenAPI files, lists of dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.actions.start.files import list_files, read_json_of, read_text_of
from proctor.actions.start.found import FoundExport
from proctor.actions.start.frameworks import FRAMEWORKS
from proctor.actions.start.openapi_files import read_openapi, read_openapi_text
from proctor.model.evidence import Json

MCP_FILES = (".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", "claude_desktop_config.json")
_NAME = re.compile(r"[^A-Za-z0-9_]+")
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")


def find_mcp_configs(folder: Path) -> list[FoundExport]:
    """Return the configurations in a folder, each as an agent that is given the tools of its servers."""
    return [export for path in _list_mcp_files(folder) if (export := _read_mcp(path, folder)) is not None]


def _list_mcp_files(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in MCP_FILES if (folder / name).is_file())


def _read_mcp(path: Path, folder: Path) -> FoundExport | None:
    document = read_json_of(path)
    servers = document.get("mcpServers") or document.get("servers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        return None
    entries = {_NAME.sub("_", name): _read_server(entry) for name, entry in servers.items() if isinstance(entry, dict)}
    usable: dict[str, Json] = {name: entry for name, entry in entries.items() if entry is not None}
    if not usable:
        return None
    settings: dict[str, Json] = {"type": "mcp_agent", "model": "main", "servers": usable}
    needed = sorted({name for text in _list_texts(usable) for name in _REFERENCE.findall(text)})
    remarks = (f"the servers need the variables {', '.join(needed)}",) if needed else ()
    return FoundExport(kind="mcp", file=path.relative_to(folder).as_posix(), settings=settings, remarks=remarks)


def _read_server(entry: Mapping[str, Any]) -> dict[str, Json] | None:
    """Return one server as we describe it; its variables by their names alone."""
    env = {name: f"${{{name}}}" for name in entry.get("env") or {} if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)}
    if isinstance(entry.get("command"), str):
        args = [_translate(arg) for arg in entry.get("args") or () if isinstance(arg, str)]
        return {"command": _translate(entry["command"]), **({"args": args} if args else {}), **({"env": env} if env else {})}
    address = entry.get("url") or entry.get("serverUrl")
    if not isinstance(address, str):
        return None
    headers = {name: f"${{{_NAME.sub('_', name).upper()}}}" for name in entry.get("headers") or {}}
    return {"url": _translate(address), **({"headers": headers} if headers else {})}


def _translate(text: str) -> str:
    """Return a text with the references of editors (`${env:NAME}`, `${NAME:-default}`) spelt as ours; `${input:...}` becomes a variable."""
    text = re.sub(r"\$\{input:([^}]*)\}", lambda found: f"${{{_NAME.sub('_', found[1]).upper()}}}", text)
    text = text.replace("${workspaceFolder}", ".")
    return _REFERENCE.sub(lambda found: f"${{{found[1]}}}", text)


def _list_texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _list_texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)


def read_n8n(document: dict[str, Any], name: str) -> FoundExport | None:
    """Return how a workflow is started, by its webhook or its chat; None for what is no export of n8n."""
    nodes = document.get("nodes")
    if not isinstance(nodes, list) or not isinstance(document.get("connections"), dict):
        return None
    typed = [node for node in nodes if isinstance(node, dict) and isinstance(node.get("type"), str)]
    if not any("n8n-nodes" in node["type"] for node in typed):
        return None
    address: str | None = None
    template: Json = None
    for node in typed:
        given = node.get("parameters")
        parameters: dict[str, Any] = given if isinstance(given, dict) else {}
        if node["type"].endswith(".webhook") and isinstance(parameters.get("path"), str):
            address = f"http://127.0.0.1:5678/webhook/{parameters['path']}"
        elif node["type"].endswith(".chatTrigger") and isinstance(node.get("webhookId"), str):
            address = f"http://127.0.0.1:5678/webhook/{node['webhookId']}/chat"
            template = {"action": "sendMessage", "chatInput": "{user_message}", "sessionId": "{session_id}", "requestId": "{request_id}"}
        if address is not None:
            break
    remarks = ["activate the workflow, and see that the address is that of your n8n"]
    if address is None:
        address = "http://127.0.0.1:5678/webhook/agent"
        remarks.insert(0, "the workflow has no Webhook or Chat Trigger node to start it by: add one, and write its address")
    settings: dict[str, Json] = {"type": "n8n", "webhook": address}
    if template is not None:
        settings["template"] = template
    return FoundExport(kind="n8n", file=name, settings=settings, remarks=tuple(remarks))


def read_flowise(document: dict[str, Any], name: str) -> FoundExport | None:
    """Return how a flow is asked; None for what is no export of Flowise."""
    nodes, edges = document.get("nodes"), document.get("edges")
    if not isinstance(nodes, list) or not isinstance(edges, list):
        return None
    inner = [node["data"] for node in nodes if isinstance(node, dict) and isinstance(node.get("data"), dict)]
    if not any("category" in data or "inputParams" in data or "inputAnchors" in data for data in inner):
        return None
    settings: dict[str, Json] = {"type": "flowise", "url": "http://127.0.0.1:3000", "flow": "${FLOWISE_FLOW}"}
    told = "set FLOWISE_FLOW to the id of the flow: it stands in the address of its page, and not in an export"
    return FoundExport(kind="flowise", file=name, settings=settings, remarks=(told,))


_REQUIREMENTS = ("pyproject.toml", "requirements.txt", "requirements.in", "requirements-dev.txt", "uv.lock", "Pipfile", "setup.cfg")


def find_exports(folder: Path) -> list[FoundExport]:
    """Return what is found, in the order in which it is likely to be meant."""
    found = find_mcp_configs(folder)
    for path in list_files(folder, (".json", ".yaml", ".yml")):
        name = path.relative_to(folder).as_posix()
        document = read_json_of(path) if path.suffix == ".json" else read_openapi_text(path)
        if isinstance(document, dict):
            found += [export for read in (read_n8n, read_flowise, read_openapi) if (export := read(document, name)) is not None]
    return found


def list_required(folder: Path) -> list[str]:
    """Return the frameworks that a list of requirements names."""
    text = "\n".join(read_text_of(folder / name) for name in _REQUIREMENTS).lower().replace("_", "-")
    return [
        framework.name
        for framework in FRAMEWORKS.values()
        if any(re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", text) for package in framework.packages)
    ]


def read_package(folder: Path) -> dict[str, Any] | None:
    """Return what `package.json` says, where there is one."""
    document = read_json_of(folder / "package.json")
    return document if isinstance(document, dict) else None
