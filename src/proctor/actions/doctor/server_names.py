"""Finds the MCP server that a user means.

"npx -y @modelcontextprotocol/server-everything"    a command; the rest of the text are its arguments
mcp-server-time                                     a program that is installed
https://shop.example/mcp                            an address
shop                                                a server of proctor.yaml: under `servers` of a target
.cursor/mcp.json  or  .cursor/mcp.json:shop         a server of an editor's file (`mcpServers`, `servers`)
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.actions.workspace.settings import workspace_file
from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section
from proctor.model.evidence import Json
from proctor.model.show import show, suggest
from proctor.targets.mcp.settings import Bearer, ServerSettings, guess_transport, read_servers

_FILE = re.compile(r"(?P<path>[^\s]+\.json)(?::(?P<name>[^\s:]+))?")
EDITOR_KEYS: Final = ("mcpServers", "servers", "context_servers")
_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")


def find_server(
    target: str, home: Path, *, headers: Mapping[str, str] | None = None, token: str | None = None, programs: bool = True
) -> ServerSettings:
    """Return the settings of a server; a single word may name an installed program if `programs`. Raises `InputError` with known names."""
    text = target.strip()
    if re.match(r"https?://", text):
        settings = ServerSettings(id="server", transport=guess_transport(text), url=text)
    elif (match := _FILE.fullmatch(text)) is not None and Path(match["path"]).is_file():
        settings = _read_editor_file(Path(match["path"]), match["name"])
    elif re.search(r"\s", text) or os.sep in text:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InputError(f"{show(text)} is no command: {error}") from None
        settings = ServerSettings(id="server", command=words[0], args=tuple(words[1:]))
    else:
        settings = _find_named(text, home, programs=programs)
    if headers:
        settings = msgspec.structs.replace(settings, headers={**settings.headers, **headers})
    return msgspec.structs.replace(settings, auth=Bearer(token=token)) if token else settings


def is_name(target: str) -> bool:
    """Return whether a text can only be the name of a server in `proctor.yaml`: no address, no command, no other file."""
    return re.search(r"[\s/:]", target.strip()) is None and os.sep not in target and not target.strip().endswith(".json")


def _find_named(name: str, home: Path, *, programs: bool) -> ServerSettings:
    workspace = workspace_file(home)
    servers: dict[str, Section] = {}
    for target in workspace.targets.values():
        servers |= dict.fromkeys(list_servers(target.node.plain()), target)
    if name not in servers:
        if programs and name and shutil.which(name):
            return ServerSettings(id="server", command=name)
        known = f"; known: {', '.join(sorted(servers))}" if servers else ""
        raise InputError(
            f"no MCP server {name!r} in proctor.yaml, and no such program{suggest(name, servers)}{known}\n"
            "  a server is also a URL, an mcp.json, or a command in quotes"
        )
    resolved: Any = servers[name].plain(References(os.environ))
    return next(each for each in read_servers(resolved["servers"]) if each.id == name)


def list_servers(target: Any) -> dict[str, dict[str, Json]]:
    """Return the settings of the servers of a target, by id."""
    servers = target.get("servers") if isinstance(target, dict) else None
    entries = servers.items() if isinstance(servers, dict) else [(each.get("id"), each) for each in servers or () if isinstance(each, dict)]
    return {str(name): {**settings, "id": str(name)} for name, settings in entries if isinstance(settings, dict)}


def _read_editor_file(path: Path, name: str | None) -> ServerSettings:
    """Return a server of an editor's file; the only one if no name is given."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    servers: Any = next((document[key] for key in EDITOR_KEYS if isinstance(document, dict) and isinstance(document.get(key), dict)), None)
    if not servers:
        raise InputError(f"{path} has no servers; expected an object under {' or '.join(EDITOR_KEYS)}")
    if name is None and len(servers) > 1:
        raise InputError(f"{path} has several servers; name one: {', '.join(f'{path}:{each}' for each in servers)}")
    chosen = name or next(iter(servers))
    if chosen not in servers:
        raise InputError(f"{path} has no server {chosen!r}" + suggest(chosen, servers))
    known = {
        key: value
        for key, value in _replace_variables(servers[chosen]).items()
        if key in ("command", "args", "env", "cwd", "url", "headers")
    }
    try:
        return read_servers({chosen: known})[0]
    except SpecError as error:
        raise InputError(f"{path}: {error.message}") from None


def _replace_variables(value: Any) -> Any:
    """Replace `${NAME}`, `${env:NAME}` and `${NAME:-default}` as editors do."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: os.environ.get(match["name"], match["default"] or ""), value)
    if isinstance(value, dict):
        return {key: _replace_variables(each) for key, each in value.items()}
    return [_replace_variables(each) for each in value] if isinstance(value, list) else value
