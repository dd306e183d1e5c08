"""Proposes cases from a document: a list of tools, a workflow, an OpenAPI description; or from the tools of a running MCP server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from proctor.actions.doctor.server_names import EDITOR_KEYS, find_server
from proctor.errors import InputError
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Reading
from proctor.generation.schema_cases import make_openapi_cases, make_tool_cases
from proctor.generation.workflow_cases import make_workflow_cases, read_workflow
from proctor.model.evidence import Json
from proctor.sources.texts import read_suite_text
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ServerSettings

Documents = list[dict[str, Json]]


def read_document(path: Path) -> Json:
    """Return the data of a JSON or YAML file. Raises `InputError`."""
    text = read_suite_text(path)
    reading = Reading(file=str(path), text=text)
    located = read_text(text, file=str(path), reading=reading)
    reading.finish()
    if located is None:
        raise InputError(f"{str(path)!r} is empty")
    return located.plain()


def generate_from_tools(source: str, server: str | None, home: Path) -> Documents:
    """Return the cases of a tool list in a file, or of an MCP server, named as for the doctor; `server` is its id in the target."""
    path = Path(source)
    if path.suffix in (".json", ".yaml", ".yml"):
        if not path.is_file():
            raise InputError(f"no such file: {source!r}")
        document = read_document(path)
        inner = document.get("result", document) if isinstance(document, dict) else document
        tools = inner.get("tools") if isinstance(inner, dict) else inner
        if isinstance(tools, list) and all(isinstance(tool, dict) and isinstance(tool.get("name"), str) for tool in tools):
            return list(make_tool_cases(tools, server or "server"))
        if not isinstance(document, dict) or not document.keys() & set(EDITOR_KEYS):
            raise InputError(f"{source!r}: expected a list of tools, as tools/list answers it, or an editor's file of servers")
    settings = find_server(source, home)
    return list(make_tool_cases(asyncio.run(_list_tools(settings)), server or settings.id))


async def _list_tools(settings: ServerSettings) -> Documents:
    async with McpServers([settings]) as servers:
        listing = await servers.get_listing(settings.id)
    return [msgspec.to_builtins(tool) for tool in listing.tools]


def generate_from_workflow(path: Path) -> Documents:
    """Return the cases of a workflow of n8n or Flowise."""
    document = read_document(path)
    try:
        workflow = read_workflow(document)
    except InputError as error:
        raise InputError(f"{str(path)!r}: {error}") from error
    return list(make_workflow_cases(workflow))


def generate_from_openapi(path: Path) -> Documents:
    """Return the cases of the request bodies of an OpenAPI document."""
    document = read_document(path)
    if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
        raise InputError(f"{str(path)!r}: expected an OpenAPI document with paths")
    return list(make_openapi_cases(document))
