"""The nodes of a trace: every span that is not a tool, with the calls nested in it."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.evidence.shared.usage import read_count
from proctor.evidence.shared.workflow import find_answering_node, is_ai, is_sub_node, read_answer, with_parameters
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.join_calls import ObservedCall
from proctor.evidence.traces.kind import name_of_span
from proctor.evidence.traces.shape import find_decoded
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.traces.values import decode_output
from proctor.evidence.values.access import text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import NODE_KEYS, find_text
from proctor.model.evidence import Json, Node, ToolCall

_KIND_WORDS = {"model": "llm", "unknown": None}


def build_nodes(tree: SpanTree, calls: Sequence[ObservedCall]) -> tuple[Node, ...]:
    """Return the nodes of a trace."""
    by_holder: dict[Step | None, list[ToolCall]] = {}
    for entry in calls:
        by_holder.setdefault(entry.holder, []).append(entry.call)
    return with_parameters([_build_node(step, tuple(by_holder.get(step, ()))) for step in tree.steps if step.kind != "tool"])


def _build_node(step: Step, calls: tuple[ToolCall, ...]) -> Node:
    span, attributes = step.span, step.attributes
    output = decode_container(attributes.get(vocabulary.N8N_OUTPUT))
    if output is None and attributes:
        output = build_node_output(step, step.text)
    return Node(
        name=name_of_span(span, step.kind),
        type=text_or_none(attributes.get(vocabulary.N8N_TYPE)) or _KIND_WORDS.get(step.kind or "", step.kind),
        status=text_or_none(attributes.get(vocabulary.N8N_STATUS)) or ("error" if span.failed else "success"),
        input=_find_input(step) if attributes or span.events else None,
        output=output,
        parameters=decode_container(attributes.get(vocabulary.N8N_PARAMETERS)),
        tool_calls=calls,
        duration_ms=step.find_duration_ms(),
        error=(span.message or "the step failed") if span.failed else None,
        items=_count_items(attributes, output),
        usage=step.find_usage(),
    )


def _find_input(step: Step) -> Json:
    asked = next((message.text for message in reversed(step.inputs or ()) if message.role == "user" and message.text), None)
    return asked or step.find_input_text() or find_decoded(step.attributes, step.names["input_value"])[0]


def build_node_output(step: Step, text: str | None = None) -> Json:
    """Return the output of a node. A bare text becomes `{"text": ...}`, so that checks can select it by name."""
    if text is None and step.kind in ("model", "agent") and step.read_output()[1]:
        text = step.read_output()[0]
    return {"text": text} if text is not None else decode_output(step.attributes, step.names)[0]


def _count_items(attributes: dict[str, Json], output: Json) -> int:
    counted = read_count(attributes.get(vocabulary.N8N_ITEMS))
    if counted is not None:
        return counted
    return len(output) if isinstance(output, list) and vocabulary.N8N_OUTPUT in attributes else 1


def find_workflow_answer(tree: SpanTree, nodes: tuple[Node, ...]) -> tuple[str | None, Json]:
    """Return the text and body of the answer of an n8n workflow: its last AI node's, else its last node's."""
    typed = [step.attributes for step in tree.steps if vocabulary.N8N_TYPE in step.attributes]
    for attributes in reversed(typed):
        node_type = text_or_none(attributes.get(vocabulary.N8N_TYPE))
        if is_ai(node_type) and not is_sub_node(node_type):
            output = decode_container(attributes.get(vocabulary.N8N_OUTPUT))
            text = find_text(output, NODE_KEYS)
            if text is not None and text.strip():
                return text, output
    return read_answer(find_answering_node(nodes)) if typed else (None, None)
