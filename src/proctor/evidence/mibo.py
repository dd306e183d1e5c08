"""Trace bodies of Mibo's earlier generations, `{"data": ...}`, and its canonical `{"spans": [...]}`; no tool listed means none called."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.otlp.spans import Span, read_span
from proctor.evidence.plain.record import CARRYING, NODE_CALLS, check_events, list_nested_calls, nest_calls_in_nodes, read_node
from proctor.evidence.platforms import flowise, n8n
from proctor.evidence.shared.call_identity import unite_calls
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.usage import HOLDERS, find_usage
from proctor.evidence.shared.workflow import find_answering_node, read_answer, sum_usage, with_parameters
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import check_markers, mark_removed
from proctor.evidence.unknowns.statuses import find_failure, read_status
from proctor.evidence.unknowns.unrecognised import FieldTable, check_object, list_calls, list_unrecognised, name_call, take_agreeing
from proctor.evidence.values.access import (
    dict_or_empty,
    is_misspelt,
    list_at,
    list_of,
    number_at,
    read_integer,
    read_object,
    split_words,
    text_or_none,
    wrong_kind_error,
)
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import HTTP_KEYS, as_text, find_text, parse_json
from proctor.model.account import CALL_PARTS, PARTS, Account, Part
from proctor.model.evidence import Evidence, Json, Node
from proctor.model.show import kind_of, shorten, show

_ENVELOPE: FieldTable = {
    **dict.fromkeys(("data", "spans", "status"), PARTS),
    **dict.fromkeys(("metadata", "externalMetadata", "platformId", "externalId", "case", "input", "context"), None),
}
_IDS = frozenset(("platformId", "externalId", "externalMetadata", "metadata"))
_OTHER_ENVELOPES = CARRYING | split_words("type event kind object role jsonrpc messages output result choices workflowId")
"""Keys of other documents that have `data`: events, messages, answers of providers."""
_NODE: FieldTable = {
    **dict.fromkeys(("output", "type"), ("nodes", "answer", "usage")),
    **dict.fromkeys(("status", "error", "parameters"), "nodes"),
    **dict.fromkeys(NODE_CALLS, "tool_calls"),
    "input": None,
}
_RESPONSE = frozenset((*HTTP_KEYS, *HOLDERS, *NODE_CALLS, "meta", "metadata"))
_UNREAD = split_words("tools_called resultData runData agentFlowExecutedData usedTools agentReasoning spans resourceSpans nodeName")
"""Fields of nodes and of platform documents, which are read only if the whole document is recognised."""
_WRAPPED = {"json", "pairedItem", "binary"}
_READER = "Mibo data body"


def sniff(document: Json) -> bool:
    """Return whether this is exactly a `data` or `spans` body."""
    return isinstance(document, dict) and _ENVELOPE.keys() >= document.keys() and may_be_body(document)


def has_ids(document: dict[str, Any]) -> bool:
    """Return whether a body is Mibo's by its fields, whatever its `data` is."""
    return not _IDS.isdisjoint(document)


def may_be_body(document: dict[str, Any]) -> bool:
    """Return whether this is a `data` or `spans` body, possibly with unrecognised fields."""
    if n8n.has_run_data(document) or not _OTHER_ENVELOPES.isdisjoint(document):
        return False
    if "spans" not in document:
        return isinstance(document.get("data"), dict)
    spans = document["spans"]
    return isinstance(spans, list) and all(isinstance(span, dict) and ("span_id" in span or "spanId" in span) for span in spans)


def read(document: Json, *, declared: bool = False) -> list[Evidence]:
    """Return the body as evidence; `declared` bodies were sent as Mibo's."""
    body = read_object(document, "$")
    if "spans" in body:
        spans = [read_span(span, f"$.spans[{index}]") for index, span in enumerate(list_at(body["spans"], "$.spans"))]
        found = [_read_spans(body, spans)]
    else:
        found = _read_data(body, declared)
    metadata = dict_or_empty(body.get("metadata"))
    ids = {key: body[key] for key in ("platformId", "externalId", "externalMetadata") if body.get(key) is not None}
    status = read_integer(metadata.get("http_status"), "$.metadata.http_status")
    duration = number_at(metadata.get("duration_ms"), "$.metadata.duration_ms")
    reports = {key: body[key] for key in list_unrecognised(body, _ENVELOPE)}
    return [
        msgspec.structs.replace(
            evidence,
            case=text_or_none(body.get("case")),
            input=evidence.input if body.get("input") is None else body["input"],
            context=read_object(body["context"], "$.context") if body.get("context") is not None else None,
            http_status=evidence.http_status if status is None else status,
            duration_ms=evidence.duration_ms if duration is None else duration,
            error=evidence.error or find_failure({"http_status": status, "status": body.get("status"), **reports}),
            metadata={**evidence.metadata, **ids, **metadata},
        )
        for evidence in found
    ]


def _read_spans(body: dict[str, Any], spans: list[Span]) -> Evidence:
    unknowns = Unknowns()
    evidence = build_evidence(spans, canonical=True, unknowns=unknowns)
    calls = evidence.tool_calls or ()
    if body.get("data"):
        unknowns.mark_parts(PARTS, "$.data next to $.spans is not read")
    check_object(body, _ENVELOPE, "$", unknowns, listed={call.name for call in calls}, has_answer=evidence.text is not None)
    check_markers(body, list_unrecognised(body, _ENVELOPE), calls, "$", unknowns)
    return msgspec.structs.replace(evidence, account=unknowns.close_account("Mibo spans"))


def _read_data(body: dict[str, Any], declared: bool) -> list[Evidence]:
    data = decode_container(body.get("data"))
    if not isinstance(data, (dict, str)):
        raise wrong_kind_error("$.data", "an object", data)
    inner = dict_or_empty(data)
    unknowns = Unknowns()
    check_object(body, _ENVELOPE, "$", unknowns)
    check_markers(body, list_unrecognised(body, _ENVELOPE), None, "$", unknowns)
    # Documents of platforms first: their keys are unmistakable, while nearly any object could be a response with common keys.
    for platform, is_own in ((n8n, n8n.has_run_data), (flowise, flowise.sniff)):
        if is_own(inner):
            (evidence,) = platform.read(inner)
            account = evidence.account or Account("mibo")
            account = msgspec.structs.replace(account, ignored=(*account.ignored, *unknowns.ignored))
            return [msgspec.structs.replace(evidence, account=account)]
    listed, deeper, status, metadata = list_of(inner.get("nodes")), decode_container(inner.get("data")), inner.get("status"), {}
    if isinstance(body.get("status"), str) and _is_node_map(inner):
        nodes, status = _read_mapped_nodes(inner, "$.data", unknowns), body["status"]
    elif isinstance(status, str) and _is_node_map(deeper):
        check_object(inner, {"status": None, "data": PARTS, "metadata": None}, "$.data", unknowns)
        nodes, metadata = _read_mapped_nodes(deeper, "$.data.data", unknowns), dict_or_empty(inner.get("metadata"))
    elif listed and all(isinstance(node, dict) and "nodeName" in node for node in listed):
        nodes = _read_listed_nodes(inner, unknowns)
    else:
        # `{"status": "success", "data": ...}` may be of any service: Mibo's status is next to a map of nodes.
        is_own = declared or "status" not in body or has_ids(body) or _is_node_map(inner)
        return [_read_response(data, unknowns, is_own=is_own)]
    text, answer = read_answer(find_answering_node(nodes))
    mark_removed(text, "answer", "the answer", unknowns)
    return [
        Evidence(
            text=text,
            body=answer,
            tool_calls=list_nested_calls(nodes),
            nodes=nodes,
            usage=sum_usage(nodes),
            # `partial`: some nodes failed.
            error=f"status: {status}" if read_status(status) in ("failed", "running") and status != "partial" else None,
            account=unknowns.close_account(_READER),
            metadata=metadata,
        )
    ]


def _is_node(value: Json) -> bool:
    return isinstance(value, dict) and ("output" in value or "status" in value)


def _is_node_map(value: Json) -> bool:
    return isinstance(value, dict) and any(map(_is_node, value.values()))


def _read_mapped_nodes(members: dict[str, Any], path: str, unknowns: Unknowns) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for name, node in members.items():
        at = f"{path}.{shorten(name, 60)}"
        if _is_node(node):
            nodes.append(_read_mapped_node(name, node, at, unknowns))
        elif _holds_node(node):
            unknowns.mark_unrecognised(PARTS, f"{at} is no node: it has neither output nor status")
        else:
            unknowns.ignore(name)
    return with_parameters(nodes)


def _holds_node(value: Json) -> bool:
    """Return whether a value is or contains a node (its output key may be misspelt), or is a platform's document."""
    value = decode_container(value)
    entries = [value, *(value.values() if isinstance(value, dict) else list_of(value)[:100])]
    return any(
        not _UNREAD.isdisjoint(entry)
        or ("output" in entry and len(_NODE.keys() & entry.keys()) > 1)
        or any(is_misspelt(key, ("output", "status", "tools_called")) for key in entry)
        for entry in entries
        if isinstance(entry, dict)
    )


def _read_mapped_node(name: str, node: dict[str, Any], path: str, unknowns: Unknowns) -> Node:
    output, status = node.get("output"), text_or_none(node.get("status")) or ("error" if node.get("error") else None)
    entry = {key: node[key] for key in _NODE.keys() & node.keys() if key not in NODE_CALLS or isinstance(node[key], list)}
    items = len(output) if isinstance(output, list) else 1
    entry |= {"name": name, "status": status, "type": text_or_none(node.get("type")), "items": items}
    if any(node.get(key) is not None and key not in entry for key in NODE_CALLS):
        unknowns.mark("tool_calls", f"{path}.tools_called: expected a list")
    if node.get("type") is not None and not isinstance(node["type"], str):
        unknowns.mark_parts(PARTS, f"{path}.type: expected text, found {kind_of(node['type'])}")
    read = read_node(entry, path, unknowns)
    check_object(node, _NODE, path, unknowns, listed={call.name for call in read.tool_calls})
    return read


def _read_listed_nodes(data: dict[str, Any], unknowns: Unknowns) -> tuple[Node, ...]:
    check_object(data, {"nodes": PARTS, "input": PARTS, "status": None}, "$.data", unknowns)
    captured = dict_or_empty((list_of(data.get("input")) or [None])[0])
    check_object(captured, {"nodes": PARTS, "connections": None, "name": None}, "$.data.input[0]", unknowns)
    if data.get("input") and not (captured and isinstance(captured.get("nodes", []), list)):
        unknowns.mark_parts(PARTS, "the workflow in $.data.input cannot be read")
    defined = {text_or_none(node.get("name")): node for node in list_of(captured.get("nodes")) if isinstance(node, dict)}
    nodes: list[Node] = []
    for index, entry in enumerate(data["nodes"]):
        at, name = f"$.data.nodes[{index}]", as_text(entry["nodeName"]) or ""
        check_object(entry, {"nodeName": PARTS, "items": PARTS}, at, unknowns)
        given = entry.get("items", [])
        if not isinstance(entry["nodeName"], str) or not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
            unknowns.mark_parts(PARTS, f"{at} cannot be read: expected a nodeName and a list of items")
        # n8n wraps an item in `json`; the collector's manual mode may or may not have unwrapped it.
        is_wrapped = [isinstance(dict_or_empty(item).get("json"), dict) and item.keys() <= _WRAPPED for item in list_of(given)]
        items = [item["json"] if wrapped else item for item, wrapped in zip(list_of(given), is_wrapped, strict=True)]
        definition = dict_or_empty(defined.get(name))
        node_type = text_or_none(definition.get("type"))
        if defined and node_type is None:
            unknowns.mark_parts(PARTS, f"the workflow has no type for {at}")
        output = items[0] if len(items) == 1 else (items or None)
        calls = tuple(n8n.read_steps(items, node_type, name, unknowns))
        parameters, usage = definition.get("parameters"), find_usage(output, unknowns)
        nodes.append(Node(name=name, type=node_type, output=output, parameters=parameters, tool_calls=calls, items=len(items), usage=usage))
    return with_parameters(nodes)


def _read_response(data: Json, unknowns: Unknowns, *, is_own: bool) -> Evidence:
    document = dict_or_empty(data)
    members = {name: node for name, node in document.items() if isinstance(node, dict) and "output" in node}
    nodes = with_parameters([_read_mapped_node(name, node, f"$.data.{shorten(name, 60)}", unknowns) for name, node in members.items()])
    listed = take_agreeing(document, NODE_CALLS, "tool_calls", "$.data", unknowns)
    if listed is not None and not isinstance(listed, list):
        unknowns.mark_parts(CALL_PARTS, f"$.data.tool_calls: expected a list, found {kind_of(listed)}")
    if listed is None and any(key in document for key in NODE_CALLS):
        unknowns.mark("tool_calls", "$.data.tool_calls is null, which is not recorded")
    elif listed is None and not members and not is_own:
        unknowns.mark_unrecognised(CALL_PARTS, "$.data has no list of calls")
    root = read_calls(listed, "$.data.tool_calls", unknowns) if isinstance(listed, list) else ()
    inside = list_nested_calls(nodes)
    calls = unite_calls(root, inside, ("$.data.tool_calls", "the nodes in $.data"), unknowns) if listed is not None else inside
    is_spoken = any(document.get(key) is not None for key in HTTP_KEYS)
    # The answer is under a common key; if the map contains only nodes, one of them has the answer.
    if nodes and not is_spoken:
        text, body = read_answer(find_answering_node(nodes))
    else:
        text, body = find_text(data), data if not isinstance(data, str) else parse_json(data)
        mark_removed(text, "answer", "the answer", unknowns)
    other_members = {key: value for key, value in document.items() if key not in members and key not in _RESPONSE}
    # Next to an explicit list the other members are the agent's answer, unless they are named after calls.
    names = {call.name for call in calls} if listed is not None else None
    check_object(other_members, {"tool_calls": "tool_calls"}, "$.data", unknowns, listed=names, has_answer=is_spoken)
    answer = [document[key] for key in HTTP_KEYS if listed is None and isinstance(document.get(key), (dict, list))]
    if any(name_call(call) not in {one.name for one in calls} for call in list_calls(answer, suggested=False)):
        unknowns.mark_unrecognised(CALL_PARTS, "the answer in $.data has what looks like tool calls; map them")
    for key, value in other_members.items():
        is_platform = key in _UNREAD or (key == "nodes" and value)
        if is_platform or _holds_node(value):
            parts: tuple[Part, ...] = PARTS if is_platform else ("nodes",) if is_spoken else ("nodes", "answer")
            unknowns.mark_unrecognised(parts, f"{show(shorten(key, 60))} at $.data may hold nodes that are not read")
    others = list_unrecognised(other_members, ())
    if is_spoken:
        check_markers(other_members, others, calls, "$.data", unknowns)
    check_events(other_members, others, calls, "$.data", unknowns)
    return Evidence(
        text=text,
        body=body,
        tool_calls=calls,
        nodes=nest_calls_in_nodes(nodes, root),
        usage=find_usage(data, unknowns) or sum_usage(nodes),
        # Fields next to the answer describe the run; fields of the agent's own document describe its subject, such as an order.
        error=find_failure(other_members) if is_spoken else None,
        account=unknowns.close_account(_READER),
    )
