"""Trace bodies of Mibo's earlier generations, `{"data": ...}`, and its canonical `{"spans": [...]}`.

`data` is one of: a node map with a root `status` (also one level up, as the collector posts it), a node list
(`nodes[]` of `nodeName` and `items`), an n8n execution, a Flowise prediction, or any response with common keys (`text`, `tool_calls`,
`usage`), where each member with an `output` is a node. Tools are always observable here: none listed means none called.

The text of a response with common keys is looked up as in an HTTP response; where there are only nodes, and in maps and lists,
it is that of the answering node, whose output is the body. HTTP status and duration come from `metadata`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence import flowise, n8n
from proctor.evidence.calls import read_call, read_calls
from proctor.evidence.n8n_tools import call_of_step
from proctor.evidence.plain import nested_in_nodes
from proctor.evidence.shape import dict_of, first_of, integer_at, list_of, number_at, object_at, text_or_none
from proctor.evidence.span_evidence import evidence_of
from proctor.evidence.spans import read_span
from proctor.evidence.text import HTTP_KEYS, as_text, json_in, text_in
from proctor.evidence.usage import usage_in
from proctor.evidence.workflow import answer_of, answering_node, usage_of, with_parameters
from proctor.model.evidence import Evidence, Json, Node, ToolCall

_ENVELOPE = frozenset(("data", "spans", "status", "metadata", "externalMetadata", "platformId", "externalId", "case", "input", "context"))


def sniff(document: Json) -> bool:
    """Whether this is a `data` or `spans` body, and nothing else stands beside it."""
    if not isinstance(document, dict) or not _ENVELOPE.issuperset(document) or n8n.has_run_data(document):
        return False
    if "spans" in document:
        return _are_spans(document["spans"])
    return isinstance(document.get("data"), dict)


def read(document: Json) -> list[Evidence]:
    """The body as evidence."""
    body = object_at(document, "$")
    found = _read_spans(body) if "spans" in body else _read_data(body)
    metadata = dict_of(body.get("metadata"))
    kept = {key: body[key] for key in ("platformId", "externalId", "externalMetadata") if body.get(key) is not None}
    status = integer_at(metadata.get("http_status"), "$.metadata.http_status")
    duration = number_at(metadata.get("duration_ms"), "$.metadata.duration_ms")
    return [
        msgspec.structs.replace(
            evidence,
            case=text_or_none(body.get("case")),
            input=first_of({"own": body.get("input"), "read": evidence.input}, "own", "read"),
            context=object_at(body["context"], "$.context") if body.get("context") is not None else None,
            http_status=evidence.http_status if status is None else status,
            duration_ms=evidence.duration_ms if duration is None else duration,
            metadata={**evidence.metadata, **kept, **metadata},
        )
        for evidence in found
    ]


def _are_spans(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(span, dict) and ("span_id" in span or "spanId" in span) for span in value)


def _read_spans(body: dict[str, Any]) -> list[Evidence]:
    found = [read_span(span, f"$.spans[{index}]") for index, span in enumerate(list_of(body["spans"]))]
    return [evidence_of(found, canonical=True)]


def _read_data(body: dict[str, Any]) -> list[Evidence]:
    data = body.get("data")
    inner = dict_of(data)
    if n8n.has_run_data(inner):
        return n8n.read(inner)
    if flowise.sniff(inner):
        return flowise.read(inner)
    if isinstance(body.get("status"), str) and _is_node_map(inner):
        return [_of_nodes(_mapped_nodes(inner, "$.data"))]
    if isinstance(inner.get("status"), str) and _is_node_map(inner.get("data")):
        return [_of_nodes(_mapped_nodes(inner["data"], "$.data.data"), dict_of(inner.get("metadata")))]
    if _is_node_list(inner.get("nodes")):
        return [_of_nodes(_listed_nodes(inner))]
    return [_common(data)]


def _is_node_map(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(node, dict) and ("output" in node or "status" in node) for node in value.values())
    )


def _is_node_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(node, dict) and "nodeName" in node for node in value)


def _of_nodes(nodes: tuple[Node, ...], metadata: dict[str, Any] | None = None) -> Evidence:
    text, body = answer_of(answering_node(nodes))
    return Evidence(text=text, body=body, tool_calls=nested_calls(nodes), nodes=nodes, usage=usage_of(nodes), metadata=metadata or {})


def nested_calls(nodes: tuple[Node, ...]) -> tuple[ToolCall, ...]:
    """All calls of all nodes, in order."""
    return tuple(call for node in nodes for call in node.tool_calls)


def _mapped_nodes(members: dict[str, Any], path: str) -> tuple[Node, ...]:
    nodes = [_mapped_node(name, node, f"{path}.{name}") for name, node in members.items()]
    return with_parameters(nodes)


def _mapped_node(name: str, node: dict[str, Any], path: str) -> Node:
    output, error = node.get("output"), node.get("error")
    status = text_or_none(node.get("status"))
    called = first_of(node, "tools_called", "tool_calls")
    calls = read_calls(called, f"{path}.tools_called") if isinstance(called, list) else ()
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
        usage=usage_in(output),
    )


def _listed_nodes(data: dict[str, Any]) -> tuple[Node, ...]:
    captured = dict_of((list_of(data.get("input")) or [None])[0])
    defined = {text_or_none(node.get("name")): node for node in list_of(captured.get("nodes")) if isinstance(node, dict)}
    nodes: list[Node] = []
    for entry in data["nodes"]:
        name = as_text(entry["nodeName"]) or ""
        items = [_item(item) for item in list_of(entry.get("items"))]
        definition = dict_of(defined.get(name))
        output = items[0] if len(items) == 1 else (items or None)
        nodes.append(
            Node(
                name=name,
                type=text_or_none(definition.get("type")),
                output=output,
                parameters=definition.get("parameters"),
                tool_calls=tuple(call for item in items for call in _item_calls(item, name)),
                items=len(items),
                usage=usage_in(output),
            )
        )
    return with_parameters(nodes)


def _item(item: Json) -> Json:
    # n8n wraps an item in `json`; the collector's manual mode may or may not have unwrapped it.
    if isinstance(item, dict) and isinstance(item.get("json"), dict) and set(item) <= {"json", "pairedItem", "binary"}:
        return item["json"]
    return item


def _item_calls(item: Json, node: str) -> list[ToolCall]:
    calls = [call_of_step(step, node) for step in list_of(dict_of(item).get("intermediateSteps"))]
    return [call for call in calls if call is not None]


def _common(data: Json) -> Evidence:
    document = dict_of(data)
    nodes = with_parameters(
        [_mapped_node(name, node, f"$.data.{name}") for name, node in document.items() if isinstance(node, dict) and "output" in node]
    )
    called = document.get("tool_calls")
    root = tuple(read_call(call, f"$.data.tool_calls[{index}]") for index, call in enumerate(called)) if isinstance(called, list) else ()
    if nodes and all(document.get(key) is None for key in HTTP_KEYS):
        text, body = answer_of(answering_node(nodes))
    else:
        text, body = text_in(data), data if not isinstance(data, str) else json_in(data)
    complete, _ = nested_in_nodes(nodes, root)
    return Evidence(text=text, body=body, tool_calls=root or nested_calls(nodes), nodes=complete, usage=usage_in(data) or usage_of(nodes))
