"""Reads the configuration of MCP servers that assistants and editors share.

Values that may be secrets (variables of a server, headers) are never copied: the settings name the variable, and whoever runs the suite
sets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.actions.start.files import read_json_of
from proctor.actions.start.found import FoundExport
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
