"""What workflow platforms have in common: kinds of nodes, and which node gives the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from proctor.evidence.shared.usage import add_usage
from proctor.evidence.values.access import dict_or_empty
from proctor.evidence.values.text import NODE_KEYS, as_text, find_text
from proctor.model.evidence import Json, Node, Usage
from proctor.model.json_values import MISSING, Missing

# --- n8n expressions in the parameters of a node, resolved by lookup alone

_DEPTH = 32

_QUOTED = r"""(?:"([^"\\]*)"|'([^'\\]*)')"""
_CURRENT = re.compile(r"\$json|\$input\s*\.\s*(?:item|first\(\))\s*\.\s*json")
_NEW_NAMED = r"\$\(\s*" + _QUOTED + r"\s*\)\s*\.\s*(?:item|first\(\))"
_OLD_NAMED = r"\$node\s*(?:\[\s*" + _QUOTED + r"\s*\]|\.\s*([A-Za-z_$][\w$]*))"
_NAMED = re.compile(rf"(?:{_NEW_NAMED}|{_OLD_NAMED})\s*\.\s*json")
_STEP = re.compile(r"\s*(?:\??\.\s*([A-Za-z_$][\w$]*)|(?:\?\.)?\[\s*(?:" + _QUOTED + r"|(\d{1,9}))\s*\])")
_MAX_ITEMS = 1000


class Outputs(msgspec.Struct, frozen=True):
    """The values that expressions may refer to: items for `$json`, nearest first, and the outputs of nodes by name."""

    current: Sequence[Json]
    named: Mapping[str, Json]
    first: Outputs | None = None
    """The same for the first item, if this is for another item: the value of `first()`."""


class Resolved(msgspec.Struct, frozen=True):
    """Parameters after resolution, and a note for each unresolved expression."""

    value: Json
    notes: tuple[str, ...] = ()
    more: tuple[Json, ...] = ()
    """The parameters of other items, if they differ."""


def resolve(parameters: Json, outputs: Outputs, *, only_parts: bool = False) -> Resolved:
    """Return parameters with their expressions resolved; with `only_parts`, only text with a `{{ }}` part is an expression."""
    notes: list[str] = []
    mark = "{{" if only_parts else "="

    def visit(value: Json, field: str, depth: int) -> Json:
        if isinstance(value, str) and value.startswith("=") and mark in value:
            found = _resolve_text(value[1:], outputs)
            if not isinstance(found, Missing):
                return found
            notes.append(f"parameter {field}: expression {value} was not resolved")
        elif isinstance(value, dict) and depth < _DEPTH:
            return {key: visit(member, f"{field}.{key}" if field else key, depth + 1) for key, member in value.items()}
        elif isinstance(value, list) and depth < _DEPTH:
            return [visit(member, f"{field}[{index}]", depth + 1) for index, member in enumerate(value)]
        return value

    return Resolved(visit(parameters, "", 0), tuple(notes))


def resolve_for_items(
    parameters: Json, current: Sequence[Sequence[Json]], named: Mapping[str, Sequence[Json]], *, only_parts: bool = False
) -> Resolved:
    """Return the parameters of the first item and the differences of other items; each source is given with all its items."""
    outputs = Outputs([items[0] for items in current], {name: items[0] for name, items in named.items()})
    first = resolve(parameters, outputs, only_parts=only_parts)
    # Without expressions every item has the same parameters.
    if not has_expression(parameters):
        return first
    most = max((len(items) for items in (*current, *named.values())), default=1)
    differing: dict[str, Json] = {}
    notes = dict.fromkeys(first.notes)
    for index in range(1, min(_MAX_ITEMS, most)):
        # A source with fewer items is assumed to be shared by all items, such as the trigger.
        of_item = {name: items[index if index < len(items) else 0] for name, items in named.items()}
        nearest = [items[index if index < len(items) else 0] for items in current]
        resolved = resolve(parameters, Outputs(nearest, of_item, outputs), only_parts=only_parts)
        notes.update(dict.fromkeys(resolved.notes))
        if resolved.value != first.value:
            # Distinct values only: a thousand items mostly share a few. `repr` distinguishes 1 from true, which compare as equal.
            differing[repr(resolved.value)] = resolved.value
    if most > _MAX_ITEMS:
        notes[f"the expressions in the parameters were resolved for {_MAX_ITEMS:,} of {most:,} items"] = None
        return Resolved(first.value, tuple(notes), (*differing.values(), parameters))
    return Resolved(first.value, tuple(notes), tuple(differing.values()))


def has_expression(parameters: Json, depth: int = 0) -> bool:
    """Return whether parameters contain an expression with a `{{ }}` part."""
    if isinstance(parameters, str):
        return parameters.startswith("=") and "{{" in parameters
    members = parameters.values() if isinstance(parameters, dict) else parameters if isinstance(parameters, list) else ()
    return depth < _DEPTH and any(has_expression(member, depth + 1) for member in members)


def _resolve_text(rest: str, outputs: Outputs) -> Json | Missing:
    parts: list[Json] = []
    while rest:
        prefix, opened, rest = rest.partition("{{")
        if prefix:
            parts.append(prefix)
        if opened:
            expression, closed, rest = rest.partition("}}")
            found = _look_up(expression.strip(), outputs) if closed else MISSING
            if isinstance(found, Missing):
                return MISSING
            parts.append(found)
    return parts[0] if len(parts) == 1 else "".join(as_text(part) or "" for part in parts)


def _look_up(expression: str, outputs: Outputs) -> Json | Missing:
    found = _CURRENT.match(expression) or _NAMED.match(expression)
    if found is None:
        return MISSING
    if outputs.first is not None and "first()" in found.group():
        outputs = outputs.first
    name = next((group for group in found.groups() if group is not None), None)
    # `$json` has no name.
    items = outputs.current if name is None else [outputs.named[name]] if name in outputs.named else []
    values = (_walk(item, expression, found.end()) for item in items)
    return next((value for value in values if value is not MISSING), MISSING)


def _walk(value: Json, expression: str, at: int) -> Json | Missing:
    while at < len(expression):
        step = _STEP.match(expression, at)
        if step is None:
            return MISSING
        name, double, single, index = step.groups()
        key = next((group for group in (name, double, single) if group is not None), None)
        if index is not None and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif key is not None and isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return MISSING
        at = step.end()
    return value


# Mibo's list, and spellings of hand-written integrations.
_AI = re.compile(r"langchain|openai|anthropic|azure|gemini|ollama|(?<![a-z])(?:ai|agent|llm)(?![a-z])", re.IGNORECASE)
_MAX_DISTANCE = 200
"""Nodes between an expression without a name and the output that it refers to."""
# n8n names its sub-nodes by what they are: lmChatOpenAi, memoryBufferWindow, toolCalculator, outputParserStructured.
_SUB_NODE = re.compile(
    r"\.(?:lm|memory|tool|embeddings|outputParser|textSplitter|document|retriever|reranker|mcpClientTool|modelSelector)(?![a-z])"
)


@lru_cache(maxsize=1024)
def is_ai(node_type: str | None) -> bool:
    """Return whether nodes of this type call a model."""
    return _AI.search(node_type or "") is not None


@lru_cache(maxsize=1024)
def is_sub_node(node_type: str | None) -> bool:
    """Return whether nodes of this type belong to another node: models, memories, tools, parsers."""
    return _SUB_NODE.search(node_type or "") is not None


@lru_cache(maxsize=1024)
def is_trigger(node_type: str | None) -> bool:
    """Return whether nodes of this type start a workflow."""
    short_type = (node_type or "").rsplit(".", 1)[-1].lower()
    return short_type in ("webhook", "start") or "trigger" in short_type


@lru_cache(maxsize=1024)
def is_http_request(node_type: str | None) -> bool:
    """Return whether nodes of this type send an HTTP request whose parameters count as arguments."""
    return "httprequest" in (node_type or "").lower().replace("-", "").replace("_", "")


def find_answering_node(nodes: Sequence[Node], sub_nodes: frozenset[str] = frozenset()) -> Node | None:
    """Return the node with the answer; `sub_nodes` are names of nodes that belong to others."""
    own = [node for node in reversed(nodes) if node.ran() and node.name not in sub_nodes and not is_sub_node(node.type)]
    candidates = [node for node in own if not is_trigger(node.type)]
    return next((node for node in candidates if is_ai(node.type) and node.output is not None), candidates[0] if candidates else None)


def read_answer(node: Node | None) -> tuple[str | None, Json]:
    """Return the text and the body of a node's answer."""
    return (None, None) if node is None else (find_text(node.output, NODE_KEYS), node.output)


def sum_usage(nodes: Sequence[Node]) -> Usage | None:
    """Sum the tokens over all AI nodes, or over all nodes if none has a type."""
    untyped = all(node.type is None for node in nodes)
    return add_usage(node.usage for node in nodes if untyped or is_ai(node.type))


def with_parameters(nodes: list[Node]) -> tuple[Node, ...]:
    """Resolve the parameters of HTTP Request nodes against the other nodes; other nodes lose theirs."""
    outputs = _list_outputs(nodes) if any(is_http_request(node.type) for node in nodes) else {}
    finished = list(nodes)
    for index, node in enumerate(nodes):
        if is_http_request(node.type):
            resolved = _resolve_around(nodes, index, dict_or_empty(node.parameters), outputs)
            parameters, more = with_method(resolved.value), tuple(map(with_method, resolved.more))
            finished[index] = msgspec.structs.replace(node, parameters=parameters, more_parameters=more, notes=resolved.notes)
        elif node.parameters is not None or node.more_parameters:
            finished[index] = msgspec.structs.replace(node, parameters=None, more_parameters=())
    return tuple(finished)


def with_method(parameters: Json) -> Json:
    """Return the parameters of an HTTP request with its method, because n8n omits the default."""
    return {"method": "GET", **dict_or_empty(parameters)}


def with_resolved_parameters(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Resolve the expressions in the parameters of nodes in our own format, and change nothing else."""
    finished, outputs = list(nodes), _list_outputs(nodes)
    for index, node in enumerate(nodes):
        if has_expression(node.parameters):
            resolved = _resolve_around(nodes, index, node.parameters, outputs, only_parts=True)
            more, notes = (*node.more_parameters, *resolved.more), (*node.notes, *resolved.notes)
            finished[index] = msgspec.structs.replace(node, parameters=resolved.value, more_parameters=more, notes=notes)
    return tuple(finished)


def _list_outputs(nodes: Sequence[Node]) -> dict[str, list[Json]]:
    outputs = {node.name: node.output for node in nodes if node.output is not None}
    return {name: output if isinstance(output, list) and output else [output] for name, output in outputs.items()}


def _resolve_around(
    nodes: Sequence[Node], index: int, parameters: Json, outputs: Mapping[str, list[Json]], *, only_parts: bool = False
) -> Resolved:
    # Nearest first, because no record names the previous node; bounded, because otherwise n nodes would take n squared steps.
    neighbours = [*reversed(nodes[max(0, index - _MAX_DISTANCE) : index]), *nodes[index + 1 : index + 1 + _MAX_DISTANCE]]
    current = [outputs[other.name] for other in neighbours if other.name in outputs]
    return resolve_for_items(parameters, current, outputs, only_parts=only_parts)
