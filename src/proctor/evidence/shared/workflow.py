"""What workflow platforms have in common: kinds of nodes, and which node gives the answer.

Language models, memories, tools and other parts of an AI node are sub-nodes: they never give the answer, and triggers do not either. The
answer is that of the last AI node that ran and has an output, else of the last other node that ran.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from proctor.evidence.shared.n8n_expressions import Resolved, has_expression, resolve_for_items
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.values.access import dict_or_empty
from proctor.evidence.values.text import NODE_KEYS, find_text
from proctor.model.evidence import Json, Node, Usage

# Mibo's list, and words as hand-written integrations spell them.
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
    """Return whether nodes of this type are parts of another node: models, memories, tools, parsers."""
    return _SUB_NODE.search(node_type or "") is not None


@lru_cache(maxsize=1024)
def is_trigger(node_type: str | None) -> bool:
    """Return whether nodes of this type start a workflow."""
    own = (node_type or "").rsplit(".", 1)[-1].lower()
    return own in ("webhook", "start") or "trigger" in own


@lru_cache(maxsize=1024)
def is_http_request(node_type: str | None) -> bool:
    """Return whether nodes of this type send an HTTP request whose parameters count as arguments."""
    return "httprequest" in (node_type or "").lower().replace("-", "").replace("_", "")


def find_answering_node(nodes: Sequence[Node], sub_nodes: frozenset[str] = frozenset()) -> Node | None:
    """Return the node that gives the answer; `sub_nodes` are names of nodes that are parts of others."""
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
    finished: list[Node] = []
    for index, node in enumerate(nodes):
        parameters, more, notes = None, (), node.notes
        if is_http_request(node.type):
            resolved = _resolve_around(nodes, index, dict_or_empty(node.parameters), outputs)
            parameters, more, notes = with_method(resolved.value), tuple(map(with_method, resolved.more)), resolved.notes
        finished.append(msgspec.structs.replace(node, parameters=parameters, more_parameters=more, notes=notes))
    return tuple(finished)


def with_method(parameters: Json) -> Json:
    """Return the parameters of an HTTP request with its method, as n8n leaves the default out."""
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
    # Nearest first, since no record names the node before; bounded, or each of n nodes would look through all n.
    around = [*reversed(nodes[max(0, index - _MAX_DISTANCE) : index]), *nodes[index + 1 : index + 1 + _MAX_DISTANCE]]
    current = [outputs[other.name] for other in around if other.name in outputs]
    return resolve_for_items(parameters, current, outputs, only_parts=only_parts)
