"""Trace bodies of Mibo's earlier generations, `{"data": ...}`, and its canonical `{"spans": [...]}`.

`data` is one of: a node map with a root `status` (also one level up, as the collector posts it), a node list
(`nodes[]` of `nodeName` and `items`), an n8n execution, a Flowise prediction, or any response with common keys (`text`, `tool_calls`,
`usage`), where each member with an `output` is a node. Tools are always observable here: none listed means none called. A response with
`tool_calls` or `tools_called` lists all its calls; its other members are the agent's answer.

The text of a response with common keys is looked up as in an HTTP response; where there are only nodes, and in maps and lists,
it is that of the answering node, whose output is the body. HTTP status and duration come from `metadata`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.otlp.spans import read_span
from proctor.evidence.plain.nodes import NODE_CALLS, check_node_status, nest_calls_in_nodes
from proctor.evidence.plain.record import CARRYING
from proctor.evidence.platforms import flowise, n8n
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.usage import HOLDERS, find_usage
from proctor.evidence.shared.workflow import find_answering_node, read_answer, sum_usage, with_parameters
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.conflicts import take_agreeing, unite_calls
from proctor.evidence.unknowns.endings import find_failure, read_status
from proctor.evidence.unknowns.markers import check_markers
from proctor.evidence.unknowns.unrecognised import check_object, list_unrecognised
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
from proctor.evidence.values.text import HTTP_KEYS, as_text, find_text, parse_json
from proctor.model.account import CALL_PARTS, PARTS, Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.show import kind_of, shorten, show

_Fields = dict[str, Part | tuple[Part, ...] | None]

_ENVELOPE: _Fields = {
    **dict.fromkeys(("data", "spans", "status"), PARTS),
    **dict.fromkeys(("metadata", "externalMetadata", "platformId", "externalId", "case", "input", "context"), None),
}
_OTHER_ENVELOPES = CARRYING | {
    "type",
    "event",
    "kind",
    "object",
    "role",
    "jsonrpc",
    "messages",
    "output",
    "result",
    "choices",
    "workflowId",
}
"""Keys of other documents that have `data`: events, messages, answers of providers."""
_NODES: tuple[Part, ...] = ("nodes", "answer", "usage")
_NODE: _Fields = {
    **dict.fromkeys(("output", "type"), _NODES),
    **dict.fromkeys(("status", "error", "parameters"), "nodes"),
    **dict.fromkeys(NODE_CALLS, "tool_calls"),
    "input": None,
}
_LISTED: _Fields = {"nodeName": PARTS, "items": PARTS}
_LIST: _Fields = {"nodes": PARTS, "input": PARTS, "status": None}
_CALLS = ("tool_calls", "tools_called", "toolCalls")
_RESPONSE: _Fields = {**dict.fromkeys((*HTTP_KEYS, *HOLDERS, "meta", "metadata"), None), **dict.fromkeys(_CALLS, "tool_calls")}
_PLATFORMS = frozenset(
    (
        *("resultData", "runData", "executionIndex", "agentFlowExecutedData", "usedTools", "agentReasoning"),
        *("spans", "resourceSpans", "nodeName"),
    )
)
"""Fields of documents of platforms; one that was not recognised may hold anything."""
_DEPTH = 3
"""Levels of a response in which nodes and documents of platforms are looked for."""
_READER = "Mibo data body"


def sniff(document: Json) -> bool:
    """Return whether this is a `data` or `spans` body and nothing else."""
    return isinstance(document, dict) and _ENVELOPE.keys() >= document.keys() and may_be_body(document)


def may_be_body(document: dict[str, Any]) -> bool:
    """Return whether this is a `data` or `spans` body, maybe with unrecognised fields."""
    if n8n.has_run_data(document) or not _OTHER_ENVELOPES.isdisjoint(document):
        return False
    if "spans" in document:
        return _are_spans(document["spans"])
    return isinstance(document.get("data"), dict)


def read(document: Json) -> list[Evidence]:
    """Return the body as evidence."""
    body = read_object(document, "$")
    found = _read_spans(body) if "spans" in body else _read_data(body)
    metadata = dict_or_empty(body.get("metadata"))
    ids = {key: body[key] for key in ("platformId", "externalId", "externalMetadata") if body.get(key) is not None}
    status = read_integer(metadata.get("http_status"), "$.metadata.http_status")
    duration = number_at(metadata.get("duration_ms"), "$.metadata.duration_ms")
    failure = find_failure({key: body[key] for key in list_unrecognised(body, _ENVELOPE)})
    if status is not None and status >= 400:
        failure = f"http_status: {status}"
    return [
        msgspec.structs.replace(
            evidence,
            case=text_or_none(body.get("case")),
            input=find_first({"own": body.get("input"), "read": evidence.input}, "own", "read"),
            context=read_object(body["context"], "$.context") if body.get("context") is not None else None,
            http_status=evidence.http_status if status is None else status,
            duration_ms=evidence.duration_ms if duration is None else duration,
            error=evidence.error or failure,
            metadata={**evidence.metadata, **ids, **metadata},
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
    check_object(body, _ENVELOPE, "$", unknowns)
    # Documents of platforms first: their keys are unmistakable, while nearly any object could be a response with common keys.
    if n8n.has_run_data(inner):
        return [_add_ignored(evidence, unknowns) for evidence in n8n.read(inner)]
    if flowise.sniff(inner):
        return [_add_ignored(evidence, unknowns) for evidence in flowise.read(inner)]
    if isinstance(body.get("status"), str) and _is_node_map(inner):
        return [_build_from_nodes(_read_mapped_nodes(inner, "$.data", unknowns), body["status"], unknowns)]
    deeper = decode_container(inner.get("data"))
    if isinstance(inner.get("status"), str) and _is_node_map(deeper):
        check_object(inner, {"status": None, "data": PARTS, "metadata": None}, "$.data", unknowns)
        nodes = _read_mapped_nodes(deeper, "$.data.data", unknowns)
        return [_build_from_nodes(nodes, inner["status"], unknowns, dict_or_empty(inner.get("metadata")))]
    if _is_node_list(inner.get("nodes")):
        return [_build_from_nodes(_read_listed_nodes(inner, unknowns), inner.get("status"), unknowns)]
    return [_read_response(data, unknowns)]


def _add_ignored(evidence: Evidence, unknowns: Unknowns) -> Evidence:
    account = evidence.account
    if account is None or not unknowns.ignored:
        return evidence
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, ignored=(*account.ignored, *unknowns.ignored)))


def _is_node(value: Json) -> bool:
    return isinstance(value, dict) and ("output" in value or "status" in value)


def _is_node_map(value: Json) -> bool:
    return isinstance(value, dict) and any(map(_is_node, value.values()))


def _is_node_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(node, dict) and "nodeName" in node for node in value)


def _build_from_nodes(nodes: tuple[Node, ...], status: Json, unknowns: Unknowns, metadata: dict[str, Any] | None = None) -> Evidence:
    text, body = read_answer(find_answering_node(nodes))
    return Evidence(
        text=text,
        body=body,
        tool_calls=list_nested_calls(nodes),
        nodes=nodes,
        usage=sum_usage(nodes),
        error=f"status: {status}" if read_status(status) == "failed" else None,
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
        if _is_node(node):
            nodes.append(_read_mapped_node(name, node, at, unknowns))
        elif _hides_node(node, _DEPTH):
            unknowns.mark_unrecognised(PARTS, f"{at} is no node: it has neither output nor status")
        else:
            unknowns.ignore(name)
    return with_parameters(nodes)


def _hides_node(value: Json, depth: int) -> bool:
    """Return whether a node is wrapped in a value, or has its output under a misspelt name."""
    value = decode_container(value)
    if isinstance(value, dict) and ("tools_called" in value or ("output" in value and len(_NODE.keys() & value.keys()) > 1)):
        return True
    if any(is_misspelt(key, ("output", "status", "tools_called")) for key in dict_or_empty(value)):
        return True
    inner = value.values() if isinstance(value, dict) else list_of(value)[:100]
    return depth > 0 and any(_hides_node(member, depth - 1) for member in inner if isinstance(member, (dict, list)))


def _read_mapped_node(name: str, node: dict[str, Any], path: str, unknowns: Unknowns) -> Node:
    output, error = node.get("output"), node.get("error")
    called = take_agreeing(node, NODE_CALLS, "tool_calls", path, unknowns)
    calls = read_calls(called, f"{path}.tools_called", unknowns) if isinstance(called, list) else ()
    if called is not None and not isinstance(called, list):
        unknowns.mark("tool_calls", f"{path}.tools_called: expected a list, found {kind_of(called)}")
    if node.get("type") is not None and not isinstance(node["type"], str):
        unknowns.mark_parts(PARTS, f"{path}.type: expected text, found {kind_of(node['type'])}")
    check_object(node, _NODE, path, unknowns, listed={call.name for call in calls})
    check_node_status(as_text(node.get("status")), path, unknowns)
    return Node(
        name=name,
        type=text_or_none(node.get("type")),
        status=text_or_none(node.get("status")) or ("error" if error else "success"),
        input=node.get("input"),
        output=output,
        parameters=node.get("parameters"),
        tool_calls=tuple(msgspec.structs.replace(call, node=name) for call in calls),
        error=error,
        items=len(output) if isinstance(output, list) else 1,
        usage=find_usage(output, unknowns),
    )


def _read_listed_nodes(data: dict[str, Any], unknowns: Unknowns) -> tuple[Node, ...]:
    check_object(data, _LIST, "$.data", unknowns)
    captured = dict_or_empty((list_of(data.get("input")) or [None])[0])
    check_object(captured, {"nodes": PARTS, "connections": None, "name": None}, "$.data.input[0]", unknowns)
    if data.get("input") and not (captured and isinstance(captured.get("nodes", []), list)):
        unknowns.mark_parts(PARTS, "the workflow in $.data.input cannot be read")
    defined = {text_or_none(node.get("name")): node for node in list_of(captured.get("nodes")) if isinstance(node, dict)}
    nodes: list[Node] = []
    for index, entry in enumerate(data["nodes"]):
        at, name = f"$.data.nodes[{index}]", as_text(entry["nodeName"]) or ""
        check_object(entry, _LISTED, at, unknowns)
        given = entry.get("items", [])
        if not isinstance(entry["nodeName"], str) or not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
            unknowns.mark_parts(PARTS, f"{at} cannot be read: expected a nodeName and a list of items")
        items = [_unwrap_item(item) for item in list_of(given)]
        definition = dict_or_empty(defined.get(name))
        node_type = text_or_none(definition.get("type"))
        if defined and node_type is None:
            unknowns.mark_parts(PARTS, f"the workflow has no type for {at}")
        n8n.check_steps(node_type, items, name, unknowns)
        output = items[0] if len(items) == 1 else (items or None)
        nodes.append(
            Node(
                name=name,
                type=node_type,
                output=output,
                parameters=definition.get("parameters"),
                tool_calls=tuple(n8n.read_step_calls(items, name, unknowns)),
                items=len(items),
                usage=find_usage(output, unknowns),
            )
        )
    return with_parameters(nodes)


def _unwrap_item(item: Json) -> Json:
    # n8n wraps an item in `json`; the collector's manual mode may or may not have unwrapped it.
    if isinstance(item, dict) and isinstance(item.get("json"), dict) and set(item) <= {"json", "pairedItem", "binary"}:
        return item["json"]
    return item


def _read_response(data: Json, unknowns: Unknowns) -> Evidence:
    document = dict_or_empty(data)
    members = {name: node for name, node in document.items() if isinstance(node, dict) and "output" in node}
    nodes = with_parameters([_read_mapped_node(name, node, f"$.data.{shorten(name, 60)}", unknowns) for name, node in members.items()])
    listed = take_agreeing(document, _CALLS, "tool_calls", "$.data", unknowns)
    if listed is not None and not isinstance(listed, list):
        unknowns.mark_parts(CALL_PARTS, f"$.data.tool_calls: expected a list, found {kind_of(listed)}")
    root = read_calls(listed, "$.data.tool_calls", unknowns) if isinstance(listed, list) else ()
    inside = list_nested_calls(nodes)
    calls = unite_calls(root, inside, ("$.data.tool_calls", "the nodes in $.data"), unknowns) if listed is not None else inside
    is_spoken = any(document.get(key) is not None for key in HTTP_KEYS)
    # A common key holds the answer; a map of nothing but nodes is answered by one of them.
    if nodes and not is_spoken:
        text, body = read_answer(find_answering_node(nodes))
    else:
        text, body = find_text(data), data if not isinstance(data, str) else parse_json(data)
    others = {key: value for key, value in document.items() if key not in members and key not in _RESPONSE}
    _check_response(others, calls, is_listed=listed is not None, is_spoken=is_spoken, unknowns=unknowns)
    return Evidence(
        text=text,
        body=body,
        tool_calls=calls,
        nodes=nest_calls_in_nodes(nodes, root),
        usage=find_usage(data, unknowns) or sum_usage(nodes),
        # What is next to the answer reports on the run; the agent's own document reports on an order.
        error=find_failure(others) if is_spoken else None,
        account=unknowns.close_account(_READER),
    )


def _check_response(others: dict[str, Any], calls: tuple[ToolCall, ...], *, is_listed: bool, is_spoken: bool, unknowns: Unknowns) -> None:
    """Apply the rules to the members of a response that are not read."""
    for key, value in others.items():
        if key in _PLATFORMS or (key == "nodes" and value) or _has_platform_field(value, _DEPTH):
            unknowns.mark_unrecognised(PARTS, f"{show(shorten(key, 60))} at $.data is part of a platform's document that cannot be read")
        elif _hides_node(value, _DEPTH):
            unknowns.mark_unrecognised(
                ("nodes",) if is_spoken else ("nodes", "answer"), f"{show(shorten(key, 60))} at $.data may be a node"
            )
    # An explicit list is complete, and the other members are the agent's answer.
    if not is_listed:
        check_object(others, {"tool_calls": "tool_calls"}, "$.data", unknowns, listed={call.name for call in calls}, has_answer=is_spoken)
    if is_spoken:
        check_markers(others, list_unrecognised(others, ()), calls, "$.data", unknowns)


def _has_platform_field(value: Json, depth: int) -> bool:
    value = decode_container(value)
    inner = value.values() if isinstance(value, dict) else list_of(value)[:100]
    if not _PLATFORMS.isdisjoint(dict_or_empty(value)):
        return True
    return depth > 0 and any(_has_platform_field(member, depth - 1) for member in inner if isinstance(member, (dict, list)))
