"""The nodes of plain evidence, one for each run of a step with the calls made in it, and what was rendered."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.usage import find_usage, read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.conflicts import read_only_one
from proctor.evidence.unknowns.members import describe_unknown_member, holds_more, list_unknown_members, split_words
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
from proctor.model.evidence import Json, Node, Render, ToolCall, Usage
from proctor.model.show import show

_KNOWN = frozenset((*Node.__struct_fields__, "tools_called", "toolCalls", "durationMs"))
_RENDER_KEYS = frozenset(("tool", "toolName", "status", "elapsed_ms", "elapsedMs", "console_errors", "consoleErrors"))
NODE_STATUSES = split_words(
    "success succeeded ok completed complete done finished error errored failed failure skipped running waiting canceled cancelled"
)
"""The words for how a node ended; of these only `skipped` says that it did not run."""


def read_nodes(value: Json, path: str, unknowns: Unknowns) -> tuple[Node, ...]:
    """Read a list of nodes; what is not understood is noted in `unknowns`."""
    return tuple(_read_node(entry, f"{path}[{index}]", unknowns) for index, entry in enumerate(list_at(value, path)))


def mark_status(status: str | None, path: str, unknowns: Unknowns) -> None:
    """Doubt a status that does not say whether the node ran."""
    if status is not None and status.lower() not in NODE_STATUSES:
        unknowns.mark("nodes", f"the status {show(status, SHOWN)} at {path} is not understood; expected success, error or skipped")


def read_usage_at(value: Json, path: str, unknowns: Unknowns) -> Usage | None:
    """Read a usage object, or None if it is null."""
    return None if value is None else read_usage(read_object(value, path), unknowns)


def read_names(value: Json, path: str) -> tuple[str, ...] | None:
    """Read a list of texts, or None if it is null."""
    return None if value is None else list_texts(value, path)


def _read_node(value: Json, path: str, unknowns: Unknowns) -> Node:
    entry = read_object(value, path)
    name = read_text(entry.get("name"), f"{path}.name")
    if name is None:
        raise wrong_kind_error(f"{path}.name", "text", None)
    calls = read_only_one(entry, path, "tool_calls", "tools_called", "toolCalls")
    items = read_integer(entry.get("items"), f"{path}.items")
    status = read_text(entry.get("status"), f"{path}.status")
    mark_status(status, path, unknowns)
    _mark_strange(entry, calls is not None, path, unknowns)
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


def _mark_strange(entry: dict[str, Any], has_calls: bool, path: str, unknowns: Unknowns) -> None:
    for key in list_unknown_members(entry, _KNOWN):
        why = describe_unknown_member(path, key, _KNOWN)
        unknowns.mark("nodes", why)
        if holds_more(entry[key]):
            if not has_calls:
                unknowns.mark("tool_calls", why)
            if entry.get("usage") is None:
                unknowns.mark("usage", why)


def _give_to_node(call: ToolCall, node: str) -> ToolCall:
    return call if call.node is not None else msgspec.structs.replace(call, node=node)


def read_renders(value: Json, path: str) -> tuple[Render, ...] | None:
    """Read which tools were rendered, and how that went."""
    if value is None:
        return None
    renders: list[Render] = []
    for index, given in enumerate(list_at(value, path)):
        at = f"{path}[{index}]"
        entry = read_object(given, at)
        # Refused instead of doubted: renders have no part of their own in the account that could carry a doubt.
        for key in list_unknown_members(entry, _RENDER_KEYS):
            raise EvidenceError(describe_unknown_member(at, key, _RENDER_KEYS, advice=""))
        tool, status = read_text(find_first(entry, "tool", "toolName"), f"{at}.tool"), read_text(entry.get("status"), f"{at}.status")
        if tool is None or status is None:
            raise wrong_kind_error(f"{at}.{'tool' if tool is None else 'status'}", "text", None)
        elapsed = number_at(find_first(entry, "elapsed_ms", "elapsedMs"), f"{at}.elapsed_ms")
        errors = read_names(find_first(entry, "console_errors", "consoleErrors"), f"{at}.console_errors")
        renders.append(Render(tool=tool, status=status, elapsed_ms=elapsed, console_errors=errors or ()))
    return tuple(renders)
