"""The reference page of the MCP server, from its tools."""

from __future__ import annotations

import json
from collections.abc import Iterator

from docs.reference_pages import NOTICE
from proctor.mcp_server.declared_tools import DECLARED
from proctor.mcp_server.nouns import NOUNS
from proctor.mcp_server.pages import TEMPLATES
from proctor.mcp_server.server import OF_THE_MACHINE, OF_THE_SERVICE, OURS, WRITE_SUITE, McpServer, all_tools
from proctor.mcp_server.tool import Action, Tool
from proctor.service.schemas import Schema

_KINDS = {"string": "text", "array": "list", "boolean": "true or false", "integer": "whole number"}


def mcp_page() -> str:
    """Every tool, with its actions and parameters; pages; prompts."""
    lines = [
        NOTICE,
        "",
        "# MCP",
        "",
        "The tools of `proctor mcp` (standard input and output) and of `/mcp` of `proctor serve` (streamable HTTP, POST only, the same",
        "keys as [REST](rest.md)). How to use them:",
        "[author criteria from a coding agent](../how-to/author-criteria-from-a-coding-agent.md).",
        "",
        f"Over stdio suites and evidence may be named by path ({_names(OF_THE_MACHINE)}), and runs are stored in the workspace as",
        f"`proctor run` keeps them. Over HTTP callers name no files; runs belong to a project of the service ({_names(OF_THE_SERVICE)}).",
        "",
        "Parameters and results are camelCase; snake_case is read too. What an author wrote (assertions, task items, data), evidence, and",
        "results of suites (`proctor.result/1`, see [results](results.md)) keep their own names. Lists are pages:",
        "`{data, _meta: {next, prev, limit}}`.",
        "",
        "A refused call is a result with `isError`:",
        "",
        "```json",
        '{"error": {"code": "VALIDATION_ERROR", "message": "...", "path": "assertion.assert", "nearest": ["fhir-resource-state"],',
        '           "details": {"assertion.assert": ["..."]}, "nextStep": "..."}}',
        "```",
        "",
        "`code` is one of those of REST. Also there where they are known: `problems` (findings in a suite, with line, column and path) and",
        "`retryAfterS`.",
        "",
        "## Authoring and verification",
        "",
        "They need an organization key. Tools are also found by their names in other generations (`criterionRuns`, `benchmark-runs`).",
    ]
    for tool in NOUNS:
        lines += _noun(tool)
    about = {"schedules": "`run` has the fields of `POST /api/runs`, in snake_case.", "proposals": "A project key may propose and read."}
    for tool in DECLARED:
        lines += ["", f"## {tool.name.capitalize()}", "", f"Only over HTTP. {about[tool.name]}", *_noun(tool)]
    lines += ["", "## Suites, runs and traces"]
    everywhere = {tool.name: tool for tool in OURS}
    for tool in all_tools(local=True):
        if tool.name in everywhere:
            lines += _verb(everywhere[tool.name])
    return "\n".join([*lines, *_rest()]) + "\n"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _noun(tool: Tool) -> Iterator[str]:
    yield from ("", f"### `{tool.name}`", "", tool.about, "", "| action | parameters | does |", "|---|---|---|")
    for name, action in tool.actions.items():
        yield f"| `{name}` | {_taken(action)} | {action.does} |"
    yield from _parameters(tool, [name for name in tool.properties if name not in ("limit", "cursor")])


def _verb(tool: Tool) -> Iterator[str]:
    assert tool.single is not None
    yield from ("", f"### `{tool.name}`", "", tool.about)
    yield from _parameters(tool, list(tool.single.allowed), tool.single.required)


def _taken(action: Action) -> str:
    return ", ".join(f"`{name}`" if name in action.required else f"`{name}`?" for name in action.allowed)


def _parameters(tool: Tool, names: list[str], required: tuple[str, ...] = ()) -> Iterator[str]:
    yield from ("", "| parameter | kind | meaning |", "|---|---|---|")
    for name in names:
        schema = tool.properties[name]
        mark = ", required" if name in required else ""
        about = str(schema["description"]).replace("|", "\\|")
        yield f"| `{name}` | {_kind(schema)}{mark} | {about} |"


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"] if word is not None)
    kinds: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds)


def _rest() -> Iterator[str]:
    yield from ("", "## Pages", "", "| address | what |", "|---|---|")
    yield "| `proctor://docs/{path}` | the pages of this documentation |"
    for page in TEMPLATES:
        yield f"| `{page.uri}` | {page.about} |"
    yield "| `proctor://schema/native.json` | the JSON Schema of the native format |"
    yield from ("", "## Prompts")
    yield from ("", f"### `{WRITE_SUITE['name']}`", "", WRITE_SUITE["description"], "", "| argument | meaning |", "|---|---|")
    for argument in WRITE_SUITE["arguments"]:
        yield f"| `{argument['name']}`{', required' if argument['required'] else ''} | {argument['description']} |"


def lists_text() -> str:
    """What a server on the caller's machine lists before its tools are loaded: a line for each entry."""
    lists: list[str] = []
    for method, result in McpServer(local=True).lists.items():
        ((name, entries),) = result.items()
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        lists.append(f'"{method}": {{"{name}": [\n{lines}\n]}}')
    return "{" + ",\n".join(lists) + "}\n"
