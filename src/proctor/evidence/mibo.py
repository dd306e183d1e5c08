"""Trace bodies of Mibo's earlier generations, `{"data": ...}`, and its canonical `{"spans": [...]}`.

`data` is one of: a node map with a root `status` (also one level up, as the collector posts it), a node list
(`nodes[]` of `nodeName` and `items`), an n8n execution, a Flowise prediction, or any response with common keys (`text`, `tool_calls`,
`usage`), where each member with an `output` is a node. Tools are always observable here: none listed means none called.

The text of a response with common keys is looked up as in an HTTP response; where there are only nodes, and in maps and lists,
it is that of the answering node, whose output is the body. HTTP status and duration come from `metadata`.

A member of a node that Mibo does not know could list its tools, and a member of a response could be a node or a list of calls under
another name: these are then unknown.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.otlp.spans import read_span
from proctor.evidence.plain.nodes import mark_status
from proctor.evidence.plain.record import nest_calls_in_nodes
from proctor.evidence.platforms import flowise, n8n
from proctor.evidence.platforms.n8n_account import mark_agent_output
from proctor.evidence.platforms.n8n_tools import read_step_call
from proctor.evidence.shared.calls import read_call, read_calls
from proctor.evidence.shared.usage import HOLDERS, find_usage, holds_counts
from proctor.evidence.shared.workflow import find_answering_node, read_answer, sum_usage, with_parameters
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.conflicts import read_only_one, unite_calls
from proctor.evidence.unknowns.members import (
    describe_unknown_member,
    has_object_with,
    holds_more,
    list_unknown_members,
    may_hold_call,
    split_words,
)
from proctor.evidence.values.access import (
    dict_or_empty,
    find_first,
    list_at,
    list_of,
    number_at,
    read_integer,
    read_object,
    text_or_none,
    wrong_kind_error,
)
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.near_miss import is_misspelt
from proctor.evidence.values.text import HTTP_KEYS, as_text, find_misspelt_answer, find_text, parse_json
from proctor.model.account import PARTS
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.show import kind_of, shorten, show

_ENVELOPE = frozenset(("data", "spans", "status", "metadata", "externalMetadata", "platformId", "externalId", "case", "input", "context"))
_NODE = split_words("name output type status error parameters input tools_called tool_calls items duration_ms executionTime usage")
_LIST = split_words("input nodes status")
_LISTED = split_words("nodeName items nodeType type")
_DEFINED = split_words("nodes connections name active settings staticData pinData")
_COMMON = frozenset((*HTTP_KEYS, *HOLDERS, "tool_calls", "status"))
_PLATFORMS = split_words("resultData runData executionIndex agentFlowExecutedData usedTools agentReasoning spans resourceSpans nodeName")
"""Members by which documents of platforms are known; one that was not recognised may hold anything."""
_READER = "Mibo data body"


def sniff(document: Json) -> bool:
    """Return whether this is a `data` or `spans` body, and nothing else stands beside it."""
    if not isinstance(document, dict) or not _ENVELOPE.issuperset(document) or n8n.has_run_data(document):
        return False
    if "spans" in document:
        return _are_spans(document["spans"])
    return isinstance(document.get("data"), dict)


def read(document: Json) -> list[Evidence]:
    """Return the body as evidence."""
    body = read_object(document, "$")
    found = _read_spans(body) if "spans" in body else _read_data(body)
    metadata = dict_or_empty(body.get("metadata"))
    kept = {key: body[key] for key in ("platformId", "externalId", "externalMetadata") if body.get(key) is not None}
    status = read_integer(metadata.get("http_status"), "$.metadata.http_status")
    duration = number_at(metadata.get("duration_ms"), "$.metadata.duration_ms")
    return [
        msgspec.structs.replace(
            evidence,
            case=text_or_none(body.get("case")),
            input=find_first({"own": body.get("input"), "read": evidence.input}, "own", "read"),
            context=read_object(body["context"], "$.context") if body.get("context") is not None else None,
            http_status=evidence.http_status if status is None else status,
            duration_ms=evidence.duration_ms if duration is None else duration,
            metadata={**evidence.metadata, **kept, **metadata},
        )
        for evidence in found
    ]


def _are_spans(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(span, dict) and ("span_id" in span or "spanId" in span) for span in value)


def _read_spans(body: dict[str, Any]) -> list[Evidence]:
    found = [read_span(span, f"$.spans[{index}]") for index, span in enumerate(list_at(body["spans"], "$.spans"))]
    return [build_evidence(found, canonical=True)]


def _read_data(body: dict[str, Any]) -> list[Evidence]:
    data = decode_container(body.get("data"))
    if not isinstance(data, (dict, str)):
        raise wrong_kind_error("$.data", "an object", data)
    inner = dict_or_empty(data)
    unknowns = Unknowns()
    # Documents of platforms first: their keys are unmistakable, while nearly any object could be a response with common keys.
    if n8n.has_run_data(inner):
        return n8n.read(inner)
    if flowise.sniff(inner):
        return flowise.read(inner)
    _mark_all(list_unknown_members(body, _ENVELOPE), body, _ENVELOPE, "$", unknowns)
    if isinstance(body.get("status"), str) and _is_node_map(inner):
        return [_build_from_nodes(_read_mapped_nodes(inner, "$.data", unknowns), unknowns)]
    deeper = decode_container(inner.get("data"))
    if isinstance(inner.get("status"), str) and _is_node_map(deeper):
        known = frozenset(("status", "data", "metadata"))
        _mark_all(list_unknown_members(inner, known), inner, known, "$.data", unknowns)
        return [_build_from_nodes(_read_mapped_nodes(deeper, "$.data.data", unknowns), unknowns, dict_or_empty(inner.get("metadata")))]
    if _is_node_list(inner.get("nodes")):
        return [_build_from_nodes(_read_listed_nodes(inner, unknowns), unknowns)]
    return [_read_common(data, unknowns)]


def _mark_all(keys: list[str], entry: dict[str, Any], known: frozenset[str], path: str, unknowns: Unknowns) -> None:
    """Note that everything may be in members that are not understood."""
    for key in keys:
        if holds_more(entry[key]) or isinstance(entry[key], str):
            unknowns.mark_parts(PARTS, describe_unknown_member(path, key, known, advice=""))


def _is_node_map(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and any(isinstance(node, dict) and ("output" in node or "status" in node) for node in value.values())
    )


def _is_node_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(node, dict) and "nodeName" in node for node in value)


def _build_from_nodes(nodes: tuple[Node, ...], unknowns: Unknowns, metadata: dict[str, Any] | None = None) -> Evidence:
    text, body = read_answer(find_answering_node(nodes))
    return Evidence(
        text=text,
        body=body,
        tool_calls=list_nested_calls(nodes),
        nodes=nodes,
        usage=sum_usage(nodes),
        account=unknowns.close_account(_READER),
        metadata=metadata or {},
    )


def list_nested_calls(nodes: tuple[Node, ...]) -> tuple[ToolCall, ...]:
    """Return all calls of all nodes, in order."""
    return tuple(call for node in nodes for call in node.tool_calls)


def _read_mapped_nodes(members: dict[str, Any], path: str, unknowns: Unknowns) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for name, node in members.items():
        at = f"{path}.{shorten(name, 60)}"
        if not isinstance(node, dict) or not ("output" in node or "status" in node):
            _say_unknown(f"{at} is no node: it has neither output nor status", unknowns)
        if isinstance(node, dict):
            nodes.append(_read_mapped_node(name, node, at, unknowns))
    return with_parameters(nodes)


def _read_mapped_node(name: str, node: dict[str, Any], path: str, unknowns: Unknowns) -> Node:
    output, error = node.get("output"), node.get("error")
    status = text_or_none(node.get("status"))
    called = read_only_one(node, path, "tools_called", "tool_calls")
    calls = read_calls(called, f"{path}.tools_called", unknowns) if isinstance(called, list) else ()
    _mark_node(node, called, path, unknowns)
    return Node(
        name=name,
        type=text_or_none(node.get("type")),
        status=status or ("error" if error else "success"),
        input=node.get("input"),
        output=output,
        parameters=node.get("parameters"),
        tool_calls=tuple(msgspec.structs.replace(call, node=name) for call in calls),
        error=error,
        items=len(output) if isinstance(output, list) else 1,
        usage=find_usage(output, unknowns),
    )


def _mark_node(node: dict[str, Any], called: Json, path: str, unknowns: Unknowns) -> None:
    mark_status(as_text(node.get("status")), path, unknowns)
    if called is not None and not isinstance(called, list):
        unknowns.mark("tool_calls", f"the tools called at {path} are {kind_of(called)} instead of a list")
    if node.get("type") is not None and not isinstance(node["type"], str):
        unknowns.mark_parts(PARTS, f"the type at {path} is {kind_of(node['type'])} instead of text")
    for key in list_unknown_members(node, _NODE):
        why = describe_unknown_member(path, key, _NODE, advice="")
        # Which node gives the answer hangs on types and outputs, and so do the tokens.
        unknowns.mark_parts(("nodes", "answer", "usage"), why)
        if holds_more(node[key]) and called is None:
            unknowns.mark("tool_calls", why)


def _read_listed_nodes(data: dict[str, Any], unknowns: Unknowns) -> tuple[Node, ...]:
    captured = dict_or_empty((list_of(data.get("input")) or [None])[0])
    defined = {text_or_none(node.get("name")): node for node in list_of(captured.get("nodes")) if isinstance(node, dict)}
    _mark_list(data, captured, defined, unknowns)
    nodes: list[Node] = []
    for entry in data["nodes"]:
        name = as_text(entry["nodeName"]) or ""
        items = [_unwrap_item(item) for item in list_of(entry.get("items"))]
        definition = dict_or_empty(defined.get(name))
        output = items[0] if len(items) == 1 else (items or None)
        node_type = text_or_none(definition.get("type"))
        mark_agent_output(node_type, items, name, unknowns)
        nodes.append(
            Node(
                name=name,
                type=node_type,
                output=output,
                parameters=definition.get("parameters"),
                tool_calls=tuple(call for item in items for call in _read_item_calls(item, name, unknowns)),
                items=len(items),
                usage=find_usage(output, unknowns),
            )
        )
    return with_parameters(nodes)


def _mark_list(data: dict[str, Any], captured: dict[str, Any], defined: dict[str | None, Any], unknowns: Unknowns) -> None:
    _mark_all(list_unknown_members(data, _LIST), data, _LIST, "$.data", unknowns)
    if not isinstance(captured.get("nodes"), list):
        _mark_all(list_unknown_members(captured, _DEFINED), captured, _DEFINED, "$.data.input[0]", unknowns)
    listed = captured.get("nodes")
    if (holds_more(data.get("input")) and not captured) or (listed is not None and not isinstance(listed, list)):
        _say_unknown("the workflow in $.data.input is not understood", unknowns)
    for index, entry in enumerate(data["nodes"]):
        path = f"$.data.nodes[{index}]"
        _mark_all(list_unknown_members(entry, _LISTED), entry, _LISTED, path, unknowns)
        if not isinstance(entry["nodeName"], str) or not isinstance(entry.get("items", []), list):
            _say_unknown(f"{path} is not understood", unknowns)
        elif any(not isinstance(item, dict) for item in entry.get("items", [])):
            _say_unknown(f"an item of {path} is not understood", unknowns)
        if defined and not isinstance(dict_or_empty(defined.get(as_text(entry["nodeName"]))).get("type"), str):
            _say_unknown(f"the workflow does not tell the type of {path}", unknowns)


def _say_unknown(why: str, unknowns: Unknowns) -> None:
    unknowns.mark_parts(PARTS, why)


def _unwrap_item(item: Json) -> Json:
    # n8n wraps an item in `json`; the collector's manual mode may or may not have unwrapped it.
    if isinstance(item, dict) and isinstance(item.get("json"), dict) and set(item) <= {"json", "pairedItem", "binary"}:
        return item["json"]
    return item


def _read_item_calls(item: Json, node: str, unknowns: Unknowns) -> list[ToolCall]:
    calls = [read_step_call(step, node, unknowns) for step in list_of(dict_or_empty(item).get("intermediateSteps"))]
    return [call for call in calls if call is not None]


def _read_common(data: Json, unknowns: Unknowns) -> Evidence:
    document = dict_or_empty(data)
    members = [(name, node) for name, node in document.items() if isinstance(node, dict) and "output" in node]
    nodes = with_parameters([_read_mapped_node(name, node, f"$.data.{shorten(name, 60)}", unknowns) for name, node in members])
    called = document.get("tool_calls")
    listed = called if isinstance(called, list) else ()
    root = tuple(read_call(call, f"$.data.tool_calls[{index}]", unknowns) for index, call in enumerate(listed))
    # Where a common key holds the answer it counts; a map of nothing but nodes is answered by one of them.
    if nodes and all(document.get(key) is None for key in HTTP_KEYS):
        text, body = read_answer(find_answering_node(nodes))
    else:
        text, body = find_text(data), data if not isinstance(data, str) else parse_json(data)
    usage = find_usage(data, unknowns)
    _mark_response(document, {name for name, _ in members}, usage is not None, unknowns)
    complete, _ = nest_calls_in_nodes(nodes, root)
    inside = list_nested_calls(nodes)
    return Evidence(
        text=text,
        body=body,
        tool_calls=unite_calls(root, inside, ("$.data.tool_calls", "the nodes in $.data"), unknowns) if root else inside,
        nodes=complete,
        usage=usage or sum_usage(nodes),
        account=unknowns.close_account(_READER),
    )


def _mark_response(document: dict[str, Any], nodes: set[str], usage_told: bool, unknowns: Unknowns) -> None:
    """Note the members of a response that may be nodes, calls, tokens or the answer under another name."""
    called = document.get("tool_calls")
    if called is not None and not isinstance(called, list):
        unknowns.mark("tool_calls", f"tool_calls is {kind_of(called)} instead of a list")
    misspelt = find_misspelt_answer(document)
    if misspelt is not None:
        unknowns.mark("answer", describe_unknown_member("$.data", misspelt, HTTP_KEYS, advice=""))
    speechless = all(document.get(key) is None for key in HTTP_KEYS)
    for key, value in document.items():
        if key in nodes or key in _COMMON:
            continue
        why = f"{show(shorten(key, 60))} at $.data is not understood"
        if (
            key in _PLATFORMS
            or (key == "nodes" and holds_more(value))
            or has_object_with(value, lambda entry: not _PLATFORMS.isdisjoint(entry))
        ):
            _say_unknown(why, unknowns)
        if may_hold_call(key, value) and (called is None or key not in ("meta", "metadata")):
            unknowns.mark("tool_calls", why)
        if has_object_with(value, _may_be_node):
            unknowns.mark("nodes", why)
            if speechless:
                unknowns.mark("answer", why)
        if speechless and nodes and isinstance(value, str) and is_misspelt(key, HTTP_KEYS):
            unknowns.mark("answer", why)
        if not usage_told and holds_counts(value):
            unknowns.mark("usage", why)


def _may_be_node(entry: dict[str, Any]) -> bool:
    told = ("output", "nodeName", "tools_called", "tool_calls")
    return (
        any(key in entry for key in told) or ("type" in entry and "status" in entry) or any(is_misspelt(key, ("output",)) for key in entry)
    )
