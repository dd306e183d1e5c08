"""A trace of spans as evidence.

Rules: spans count in order of their start, or as listed when any has no time. The root is the first span without a parent in the
trace. A tool span is a tool call of the nearest step above it; every other span is a node. A tool span directly inside another of
the same tool is the same call seen twice (client and server). Where a trace has no tool spans, the calls a model asked for are
the calls. The text is the root's, else that of the last AI span that has one, else that of the outermost workflow or chain: what a
retriever or another step gives is no answer. Tokens are the root's, else
those below it, an agent's own total standing for everything inside it. HTTP status, duration and clock are the root's. A root that
only marks the beginning is left out, and those below it are the roots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from proctor.evidence import otlp_names as names
from proctor.evidence.json_bytes import container_in
from proctor.evidence.shape import first_of, text_or_none
from proctor.evidence.span_values import (
    duration_ms,
    input_of_span,
    kind_of_span,
    name_of_span,
    only_begins,
    output_of_span,
    requested_calls,
    says_something,
    spoken_of_span,
    talks_to_model,
    text_of_span,
    tool_call_of_span,
    type_of_span,
    usage_of_span,
)
from proctor.evidence.spans import Span
from proctor.evidence.text import json_in
from proctor.evidence.times import iso_of_ns
from proctor.evidence.usage import add_usage, count_of
from proctor.evidence.workflow import answer_of, answering_node, with_parameters
from proctor.model.evidence import Evidence, Json, Node, ToolCall, Usage

_N8N = frozenset((names.N8N_NAME, names.N8N_TYPE, names.N8N_STATUS, names.N8N_PARAMETERS, names.N8N_OUTPUT, names.N8N_ITEMS))


class _Tree:
    """The spans of one trace in order, and who is below whom."""

    def __init__(self, spans: Sequence[Span]) -> None:
        spans = [span for span in spans if span.parent_id is not None or not only_begins(span)] or spans
        self.spans = sorted(spans, key=lambda span: span.start_ns) if all(span.start_ns for span in spans) else list(spans)
        self.by_id = {span.id: span for span in self.spans}
        self.kinds = {span.id: kind_of_span(span) for span in self.spans}
        self.tools = {id for id, kind in self.kinds.items() if kind == "tool"}
        self.children: dict[str, list[Span]] = {}
        self.roots: list[Span] = []
        for span in self.spans:
            if span.parent_id is None or span.parent_id not in self.by_id:
                self.roots.append(span)
            else:
                self.children.setdefault(span.parent_id, []).append(span)
        self._steps_above: dict[str, Span | None] = {}
        # What is asked for twice is read once.
        self._inputs: dict[str, Json] = {}
        self._outputs: dict[str, Json] = {}
        self._spoken: dict[str, str | None] = {}
        self._usages: dict[str, Usage | None] = {}
        # Parents in a circle leave no root; the first span then stands for it.
        self.root = self.roots[0] if self.roots else (self.spans[0] if self.spans else None)

    def talks(self, span: Span) -> bool:
        """Whether the answer of the run may stand in a span."""
        return talks_to_model(span, self.kinds[span.id])

    def input(self, span: Span) -> Json:
        """What was said to a span."""
        if span.id not in self._inputs:
            self._read(span)
        return self._inputs[span.id]

    def output(self, span: Span) -> Json:
        """What a span gave."""
        if span.id not in self._outputs:
            self._read(span)
        return self._outputs[span.id]

    def text(self, span: Span) -> str | None:
        """The answer a span carries."""
        if span.id not in self._spoken:
            self._read(span)
        return text_of_span(span, self._spoken[span.id])

    def _read(self, span: Span) -> None:
        id = span.id
        if not says_something(span):
            self._inputs[id] = self._outputs[id] = self._spoken[id] = None
            return
        self._inputs[id] = input_of_span(span)
        self._spoken[id] = spoken_of_span(span)
        self._outputs[id] = output_of_span(span, self.kinds[id], self._spoken[id])

    def own_usage(self, span: Span) -> Usage | None:
        """The tokens a span itself reports."""
        if span.id not in self._usages:
            self._usages[span.id] = usage_of_span(span)
        return self._usages[span.id]

    def step_above(self, span: Span) -> Span | None:
        """The nearest ancestor that is not a tool."""
        passed: dict[str, None] = {}
        known = self._steps_above
        found: Span | None = None
        at: Span | None = span
        while at is not None and at.id not in passed:
            if at.id in known:
                found = known[at.id]
                break
            passed[at.id] = None
            at = self.by_id.get(at.parent_id or "")
            if at is not None and at.id not in self.tools:
                found = at
                break
        # Remembered for all on the way: tools nested in tools would otherwise be climbed again and again.
        known.update(dict.fromkeys(passed, found))
        return found

    def below(self, spans: Sequence[Span]) -> set[str]:
        """The ids of all spans that have one of these above them."""
        found: set[str] = set()
        waiting = list(spans)
        while waiting:
            for child in self.children.get(waiting.pop().id, ()):
                if child.id not in found:
                    found.add(child.id)
                    waiting.append(child)
        return found

    def usage(self) -> Usage | None:
        """Tokens from the roots down; below a span that reports its own nothing is counted."""
        parts: list[Usage | None] = []
        waiting = list(self.roots or self.spans[:1])
        seen: set[str] = set()
        while waiting:
            span = waiting.pop()
            if span.id in seen:
                continue
            seen.add(span.id)
            own = self.own_usage(span)
            if own is not None:
                parts.append(own)
            else:
                waiting.extend(self.children.get(span.id, ()))
        return add_usage(parts)


def evidence_of(spans: Sequence[Span]) -> Evidence:
    """One trace as one evidence."""
    tree = _Tree(spans)
    calls = _tool_calls(tree)
    nodes = _nodes(tree, calls)
    text, body = _answer(tree, nodes)
    root = tree.root
    return Evidence(
        case=next((span.case for span in spans if span.case is not None), None),
        input=_input(tree),
        text=text,
        body=body,
        tool_calls=tuple(call for _, call in calls),
        nodes=nodes,
        http_status=_http_status(tree),
        duration_ms=_duration(tree),
        usage=tree.usage(),
        now=iso_of_ns(root.start_ns) if root is not None else None,
        error=(root.message or "the trace ended in an error") if root is not None and root.failed and text is None else None,
        metadata=_metadata(root),
    )


def _tool_calls(tree: _Tree) -> list[tuple[str | None, ToolCall]]:
    """Calls in order, each with the id of the span it is nested in."""
    made: dict[str, tuple[str | None, ToolCall]] = {}
    for span in tree.spans:
        if span.id not in tree.tools:
            continue
        above = tree.step_above(span)
        call = tool_call_of_span(span, name_of_span(above) if above is not None else None)
        outer = made.get(span.parent_id or "")
        if outer is not None and outer[1].name == call.name:
            made[span.parent_id or ""] = (outer[0], _same_call(outer[1], call))
            continue
        made[span.id] = (above.id if above is not None else None, call)
    if tree.tools:
        return list(made.values())
    return _requested(tree)


def _same_call(outer: ToolCall, inner: ToolCall) -> ToolCall:
    return msgspec.structs.replace(
        outer,
        arguments=outer.arguments or inner.arguments,
        result=outer.result if outer.result is not None else inner.result,
        error=outer.error if outer.failed() else inner.error,
        error_kind=outer.error_kind or inner.error_kind,
        server=outer.server or inner.server,
    )


def _requested(tree: _Tree) -> list[tuple[str | None, ToolCall]]:
    models = [span for span in tree.spans if tree.kinds[span.id] == "llm"]
    # An agent span repeats what its model spans say.
    asked = [span for span in models if requested_calls(span)] or [span for span in tree.spans if tree.talks(span)]
    found: list[tuple[str | None, ToolCall]] = []
    inner = tree.below(asked)
    for span in asked:
        if span.id in inner:
            continue  # Two instrumentations that see the same request.
        holder = tree.by_id.get(span.parent_id or "") or span
        found.extend((holder.id, msgspec.structs.replace(call, node=name_of_span(holder))) for call in requested_calls(span))
    return found


def _nodes(tree: _Tree, calls: list[tuple[str | None, ToolCall]]) -> tuple[Node, ...]:
    by_span: dict[str | None, list[ToolCall]] = {}
    for span_id, call in calls:
        by_span.setdefault(span_id, []).append(call)
    return with_parameters([_node(tree, span, tuple(by_span.get(span.id, ()))) for span in tree.spans if span.id not in tree.tools])


def _node(tree: _Tree, span: Span, calls: tuple[ToolCall, ...]) -> Node:
    output = tree.output(span)
    if _N8N.isdisjoint(span.attributes):
        return Node(
            name=span.name,
            type=tree.kinds[span.id],
            status="error" if span.failed else "success",
            input=tree.input(span),
            output=output,
            tool_calls=calls,
            duration_ms=duration_ms(span),
            error=(span.message or "the step failed") if span.failed else None,
            usage=tree.own_usage(span),
        )
    status = text_or_none(span.attributes.get(names.N8N_STATUS)) or ("error" if span.failed else "success")
    return Node(
        name=name_of_span(span),
        type=type_of_span(span, tree.kinds[span.id]),
        status=status,
        input=tree.input(span),
        output=output,
        parameters=container_in(span.attributes.get(names.N8N_PARAMETERS)),
        tool_calls=calls,
        duration_ms=duration_ms(span),
        error=(span.message or "the step failed") if span.failed else None,
        items=_items(span, output),
        usage=tree.own_usage(span),
    )


def _items(span: Span, output: Json) -> int:
    counted = count_of(span.attributes[names.N8N_ITEMS]) if names.N8N_ITEMS in span.attributes else None
    if counted is not None:
        return counted
    return len(output) if isinstance(output, list) and names.N8N_OUTPUT in span.attributes else 1


def _answer(tree: _Tree, nodes: tuple[Node, ...]) -> tuple[str | None, Json]:
    steps = [span for span in tree.spans if span.id not in tree.tools]
    for span in _answering(tree, steps):
        text = tree.text(span)
        if text is not None and text.strip():
            spoken = json_in(text)
            return text, tree.output(span) if names.N8N_OUTPUT in span.attributes or spoken is None else spoken
    return answer_of(answering_node(nodes)) if any(names.N8N_TYPE in span.attributes for span in steps) else (None, None)


def _answering(tree: _Tree, steps: Sequence[Span]) -> Iterator[Span]:
    """The spans in which the answer may stand, the likeliest first."""
    if tree.root is not None and tree.root.id not in tree.tools:
        yield from _unless_n8n([tree.root])
    for span in reversed(steps):
        if tree.talks(span):
            yield span
    for span in steps:
        if tree.kinds[span.id] in ("workflow", "chain"):
            yield span


def _unless_n8n(spans: Sequence[Span]) -> list[Span]:
    # An n8n node's output is not an answer by itself: a webhook at the root carries the request.
    return [
        span
        for span in spans
        if names.N8N_TYPE not in span.attributes or first_of(span.attributes, *names.OUTPUT_MESSAGES, *names.OUTPUT_TEXT)
    ]


def _input(tree: _Tree) -> Json:
    value = tree.input(tree.root) if tree.root is not None else None
    if value is not None:
        return value
    for span in tree.spans:
        if tree.talks(span) and (value := tree.input(span)) is not None:
            return value
    return None


def _http_status(tree: _Tree) -> int | None:
    for root in tree.roots:
        status = count_of(first_of(root.attributes, *names.HTTP_STATUS))
        if status is not None:
            return status
    return None


def _duration(tree: _Tree) -> float | None:
    if len(tree.roots) == 1:
        return duration_ms(tree.roots[0])
    timed = [root for root in tree.roots if root.start_ns and root.end_ns]
    return (max(root.end_ns for root in timed) - min(root.start_ns for root in timed)) / 1e6 if timed else None


def _metadata(root: Span | None) -> dict[str, Json]:
    if root is None:
        return {}
    known = {"trace_id": root.trace_id or None, "service.name": root.resource.get("service.name"), "span": root.name or None}
    return {key: value for key, value in known.items() if value is not None}
