"""The nodes of a trace: every span that is not a tool, with the calls nested in it."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.usage import read_count
from proctor.evidence.shared.workflow import find_answering_node, is_ai, is_sub_node, read_answer, with_parameters
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.kind import name_of_span
from proctor.evidence.traces.model_span import find_duration_ms
from proctor.evidence.traces.shape import find_decoded
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.traces.values import decode_output
from proctor.evidence.values.access import text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import NODE_KEYS, find_text
from proctor.model.evidence import Json, Node, ToolCall

_KIND_WORDS = {"model": "llm", "unknown": None}


def build_nodes(tree: SpanTree, calls: Sequence[tuple[str | None, ToolCall]]) -> tuple[Node, ...]:
    """Return the nodes of a trace; each of `calls` comes with the id of the span it is nested in."""
    by_span: dict[str | None, list[ToolCall]] = {}
    for span_id, call in calls:
        by_span.setdefault(span_id, []).append(call)
    return with_parameters(
        [_build_node(tree, span, tuple(by_span.get(span.id, ()))) for span in tree.spans if tree.find_kind(span) != "tool"]
    )


def _build_node(tree: SpanTree, span: Span, calls: tuple[ToolCall, ...]) -> Node:
    kind = tree.find_kind(span)
    step = tree.steps[span.id]
    own = bool(step.shape.names["n8n"])
    output = decode_container(span.attributes.get(vocabulary.N8N_OUTPUT)) if vocabulary.N8N_OUTPUT in span.attributes else None
    if output is None and span.attributes:
        output = build_node_output(tree, span, step.text)
    status = text_or_none(span.attributes.get(vocabulary.N8N_STATUS)) if own else None
    return Node(
        name=name_of_span(span, kind),
        type=(text_or_none(span.attributes.get(vocabulary.N8N_TYPE)) if own else None) or _KIND_WORDS.get(kind or "", kind),
        status=status or ("error" if span.failed else "success"),
        input=_find_input(tree, span) if span.attributes or span.events else None,
        output=output,
        parameters=decode_container(span.attributes.get(vocabulary.N8N_PARAMETERS)) if own else None,
        tool_calls=calls,
        duration_ms=find_duration_ms(span),
        error=(span.message or "the step failed") if span.failed else None,
        items=_count_items(span, output) if own else 1,
        usage=tree.find_usage(span),
    )


def _find_input(tree: SpanTree, span: Span) -> Json:
    given = tree.steps[span.id].inputs
    if given:
        asked = [message.text for message in given if message.role == "user" and message.text]
        if asked:
            return asked[-1]
    return tree.find_input_text(span) or find_decoded(span.attributes, tree.steps[span.id].shape.names["input_value"])[0]


def build_node_output(tree: SpanTree, span: Span, text: str | None = None) -> Json:
    """Return the output of a node. A bare text becomes `{"text": ...}`, so that checks can select it by name."""
    if text is None and tree.find_kind(span) in ("model", "agent") and tree.has_text(span):
        text = tree.find_output_text(span)
    return {"text": text} if text is not None else decode_output(span.attributes, tree.steps[span.id].shape)[0]


def _count_items(span: Span, output: Json) -> int:
    counted = read_count(span.attributes[vocabulary.N8N_ITEMS]) if vocabulary.N8N_ITEMS in span.attributes else None
    if counted is not None:
        return counted
    return len(output) if isinstance(output, list) and vocabulary.N8N_OUTPUT in span.attributes else 1


def find_workflow_answer(tree: SpanTree, nodes: tuple[Node, ...]) -> tuple[str | None, Json]:
    """Return the text and body of the answer of an n8n workflow: its last AI node's, else its last node's."""
    typed = [span for span in tree.spans if vocabulary.N8N_TYPE in span.attributes]
    if not typed:
        return None, None
    for span in reversed(typed):
        node_type = text_or_none(span.attributes.get(vocabulary.N8N_TYPE))
        if is_ai(node_type) and not is_sub_node(node_type) and span.attributes.get(vocabulary.N8N_OUTPUT) is not None:
            output = decode_container(span.attributes[vocabulary.N8N_OUTPUT])
            text = find_text(output, NODE_KEYS)
            if text is not None and text.strip():
                return text, output
    return read_answer(find_answering_node(nodes))
