"""The nodes of plain evidence, one for each run of a step with the calls made in it, and what was rendered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.usage import find_usage, read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.conflicts import take_agreeing
from proctor.evidence.unknowns.unrecognised import FieldTable, check_object, list_unrecognised, name_call
from proctor.evidence.values.access import (
    SHOWN,
    find_first,
    list_at,
    list_texts,
    number_at,
    read_integer,
    read_object,
    read_text,
    wrong_kind_error,
)
from proctor.evidence.values.near_miss import is_misspelt
from proctor.model.evidence import Json, Node, Render, ToolCall, Usage
from proctor.model.show import show

NODE_CALLS = ("tool_calls", "tools_called", "toolCalls")
_NODE: FieldTable = {
    **dict.fromkeys(NODE_CALLS, "tool_calls"),
    **dict.fromkeys(("output", "status", "parameters", "type", "items"), "nodes"),
    **dict.fromkeys(("name", "input", "more_parameters", "duration_ms", "durationMs", "error", "notes"), None),
    "usage": "usage",
}
_RENDER = frozenset(("tool", "toolName", "status", "elapsed_ms", "elapsedMs", "console_errors", "consoleErrors"))


def read_nodes(value: Json, path: str, unknowns: Unknowns) -> tuple[Node, ...]:
    """Read a list of nodes."""
    entries = ((read_object(entry, f"{path}[{index}]"), f"{path}[{index}]") for index, entry in enumerate(list_at(value, path)))
    return tuple(read_node(entry, at, unknowns) for entry, at in entries)


def read_usage_at(value: Json, path: str, unknowns: Unknowns) -> Usage | None:
    """Read a usage object, or None if it is null."""
    return None if value is None else read_usage(read_object(value, path), unknowns)


def read_names(value: Json, path: str) -> tuple[str, ...] | None:
    """Read a list of texts, or of tools with their names, or None if it is null."""
    if isinstance(value, list):
        value = [name_call(entry) or entry if isinstance(entry, dict) else entry for entry in value]
    return None if value is None else list_texts(value, path)


def read_node(entry: dict[str, Any], path: str, unknowns: Unknowns) -> Node:
    """Read one node."""
    name = _require_text(entry, path, "name")
    calls = take_agreeing(entry, NODE_CALLS, "tool_calls", path, unknowns)
    items = read_integer(entry.get("items"), f"{path}.items")
    status = read_text(entry.get("status"), f"{path}.status")
    # Every other status means that the node ran.
    if status is not None and is_misspelt(status.lower(), ("skipped",)):
        unknowns.mark("nodes", f"the status {show(status, SHOWN)} at {path} is unrecognised; expected success, error or skipped")
    check_object(entry, _NODE, path, unknowns)
    return Node(
        name=name,
        type=read_text(entry.get("type"), f"{path}.type"),
        status=status or "success",
        input=entry.get("input"),
        output=entry.get("output"),
        parameters=entry.get("parameters"),
        more_parameters=() if entry.get("more_parameters") is None else tuple(list_at(entry["more_parameters"], f"{path}.more_parameters")),
        tool_calls=() if calls is None else tuple(_give_to_node(call, name) for call in read_calls(calls, f"{path}.tool_calls", unknowns)),
        duration_ms=number_at(find_first(entry, "duration_ms", "durationMs"), f"{path}.duration_ms"),
        error=entry.get("error"),
        items=1 if items is None else items,
        usage=read_usage_at(entry.get("usage"), f"{path}.usage", unknowns) or find_usage(entry.get("output"), unknowns),
        notes=read_names(entry.get("notes"), f"{path}.notes") or (),
    )


def _require_text(entry: dict[str, Any], path: str, *keys: str) -> str:
    text = read_text(find_first(entry, *keys), f"{path}.{keys[0]}")
    if text is None:
        raise wrong_kind_error(f"{path}.{keys[0]}", "text", None)
    return text


def _give_to_node(call: ToolCall, node: str) -> ToolCall:
    return call if call.node is not None else msgspec.structs.replace(call, node=node)


def list_nested_calls(nodes: Iterable[Node]) -> tuple[ToolCall, ...]:
    """Return all calls of all nodes, in order."""
    return tuple(call for node in nodes for call in node.tool_calls)


def nest_calls_in_nodes(nodes: tuple[Node, ...] | None, calls: tuple[ToolCall, ...] | None) -> tuple[Node, ...] | None:
    """Return the nodes with the root calls that name them, except those that list calls; a node that is not listed is added."""
    by_node: dict[str, list[ToolCall]] = {}
    for call in calls or ():
        if call.node is not None:
            by_node.setdefault(call.node, []).append(call)
    if not by_node:
        return nodes
    complete: list[Node] = []
    for node in nodes or ():
        inner = by_node.pop(node.name, None)
        complete.append(node if inner is None or node.tool_calls else msgspec.structs.replace(node, tool_calls=tuple(inner)))
    complete.extend(Node(name=name, tool_calls=tuple(inner)) for name, inner in by_node.items())
    return tuple(complete)


def read_renders(value: Json, path: str) -> tuple[Render, ...] | None:
    """Read which tools were rendered, and how that went."""
    if value is None:
        return None
    renders: list[Render] = []
    for index, given in enumerate(list_at(value, path)):
        at = f"{path}[{index}]"
        entry = read_object(given, at)
        # Rejected, as renders are no part of the account that could be unknown.
        for key in list_unrecognised(entry, _RENDER):
            if is_misspelt(key, _RENDER):
                raise EvidenceError(f"{at}: unrecognised field {show(key, SHOWN)}; expected tool, status, elapsed_ms, console_errors")
        tool, status = _require_text(entry, at, "tool", "toolName"), _require_text(entry, at, "status")
        elapsed = number_at(find_first(entry, "elapsed_ms", "elapsedMs"), f"{at}.elapsed_ms")
        errors = read_names(find_first(entry, "console_errors", "consoleErrors"), f"{at}.console_errors")
        renders.append(Render(tool=tool, status=status, elapsed_ms=elapsed, console_errors=errors or ()))
    return tuple(renders)
