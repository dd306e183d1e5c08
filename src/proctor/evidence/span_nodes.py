"""The steps of a trace as nodes: every span that is no tool is one, with the calls nested in it."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.evidence import vocabulary as names
from proctor.evidence.json_bytes import container_in
from proctor.evidence.shape import text_or_none
from proctor.evidence.span_kind import name_of_span
from proctor.evidence.span_step import duration_ms
from proctor.evidence.span_tree import SpanTree
from proctor.evidence.span_values import input_text, input_value, node_output
from proctor.evidence.spans import Span
from proctor.evidence.text import NODE_KEYS, text_in
from proctor.evidence.usage import count_of
from proctor.evidence.workflow import answer_of, answering_node, is_ai, is_sub_node, with_parameters
from proctor.model.evidence import Json, Node, ToolCall

_N8N = frozenset((names.N8N_NAME, names.N8N_TYPE, names.N8N_STATUS, names.N8N_PARAMETERS, names.N8N_OUTPUT, names.N8N_ITEMS))
_KIND_WORDS = {"model": "llm", "unknown": None}


def nodes_of(tree: SpanTree, calls: Sequence[tuple[str | None, ToolCall]]) -> tuple[Node, ...]:
    """Return the nodes of a trace; `calls` are its calls, each with the id of the span it is nested in."""
    by_span: dict[str | None, list[ToolCall]] = {}
    for span_id, call in calls:
        by_span.setdefault(span_id, []).append(call)
    return with_parameters([_node(tree, span, tuple(by_span.get(span.id, ()))) for span in tree.spans if tree.kind(span) != "tool"])


def _node(tree: SpanTree, span: Span, calls: tuple[ToolCall, ...]) -> Node:
    kind = tree.kind(span)
    own = not _N8N.isdisjoint(span.attributes)
    step = tree.steps[span.id]
    output = container_in(span.attributes.get(names.N8N_OUTPUT)) if names.N8N_OUTPUT in span.attributes else None
    if output is None and span.attributes:
        output = node_output(span, kind, step.text())
    status = text_or_none(span.attributes.get(names.N8N_STATUS)) if own else None
    return Node(
        name=name_of_span(span, kind),
        type=(text_or_none(span.attributes.get(names.N8N_TYPE)) if own else None) or _KIND_WORDS.get(kind or "", kind),
        status=status or ("error" if span.failed else "success"),
        input=_input(tree, span) if span.attributes or span.events else None,
        output=output,
        parameters=container_in(span.attributes.get(names.N8N_PARAMETERS)) if own else None,
        tool_calls=calls,
        duration_ms=duration_ms(span),
        error=(span.message or "the step failed") if span.failed else None,
        items=_items(span, output) if own else 1,
        usage=tree.usage(span),
    )


def _input(tree: SpanTree, span: Span) -> Json:
    given = tree.steps[span.id].given
    if given is not None:
        asked = [message.text for message in given if message.role == "user" and message.text]
        if asked:
            return asked[-1]
    return input_text(span) or input_value(span)


def _items(span: Span, output: Json) -> int:
    counted = count_of(span.attributes[names.N8N_ITEMS]) if names.N8N_ITEMS in span.attributes else None
    if counted is not None:
        return counted
    return len(output) if isinstance(output, list) and names.N8N_OUTPUT in span.attributes else 1


def workflow_answer(tree: SpanTree, nodes: tuple[Node, ...]) -> tuple[str | None, Json]:
    """Return the answer of an n8n workflow: that of its last AI node, else of its last node; nothing for other traces."""
    typed = [span for span in tree.spans if names.N8N_TYPE in span.attributes]
    if not typed:
        return None, None
    for span in reversed(typed):
        node_type = text_or_none(span.attributes.get(names.N8N_TYPE))
        if is_ai(node_type) and not is_sub_node(node_type) and span.attributes.get(names.N8N_OUTPUT) is not None:
            output = container_in(span.attributes[names.N8N_OUTPUT])
            text = text_in(output, NODE_KEYS)
            if text is not None and text.strip():
                return text, output
    return answer_of(answering_node(nodes))
