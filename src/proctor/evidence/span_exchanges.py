"""Requests to models and runs of tools, each once although several spans may tell of it.

A framework, the SDK below it and the wire below that may each write a span for one request; an agent framework, an MCP client and an MCP
server for one call. Spans are the same request when one lies inside the other, when they carry the id of the same response, when one
sees a stream begin and the other sees it end, or when one without content lies in the time of one with content.
"""

from __future__ import annotations

from collections import deque

import msgspec

from proctor.evidence.conversation import Message
from proctor.evidence.span_calls import Exchange, Ran, plain_name
from proctor.evidence.span_kind import name_of_span
from proctor.evidence.span_step import response_id
from proctor.evidence.span_tool import tool_call_of_span
from proctor.evidence.span_tree import SpanTree
from proctor.evidence.spans import Span
from proctor.model.evidence import ToolCall

_TOOL = frozenset(("tool",))
_MODEL = frozenset(("model",))
_ACTORS = frozenset(("tool", "model", "agent"))
_MOST_AT_ONCE = 32
"""How many calls of one tool, or requests, may run at once and still be recognised where two instrumentations tell of each."""


def find_exchanges(tree: SpanTree) -> list[Exchange]:
    """The requests to models, each once, in order of their start."""
    found: list[Exchange] = []
    of_span: dict[str, Exchange] = {}
    by_response: dict[str, Exchange] = {}
    for span in tree.of_kind("model"):
        step = tree.steps[span.id]
        top = span
        while (outer := tree.nearest(top, _MODEL)) is not None and outer is not span:
            top = outer
        response = response_id(span)
        same = of_span.get(top.id) or by_response.get(response or "")
        if same is None and found and _continues(found[-1], step.given, step.said):
            same = found[-1]
        if same is None:
            same = Exchange(step, nested=tree.nearest(span, _TOOL) is not None)
            found.append(same)
        else:
            same.steps.append(step)
        of_span[top.id] = same
        if response:
            by_response.setdefault(response, same)
    return _without_echoes(found)


def _without_echoes(exchanges: list[Exchange]) -> list[Exchange]:
    """Join requests that one instrumentation tells with content and another, nearer to the wire, without."""
    telling: deque[Exchange] = deque(maxlen=_MOST_AT_ONCE)
    found: list[Exchange] = []
    for exchange in exchanges:
        silent = exchange.given is None and exchange.said is None
        around = next((other for other in reversed(telling) if _lies_in(exchange.span, other.span)), None) if silent else None
        if around is not None:
            around.steps.extend(exchange.steps)
            continue
        found.append(exchange)
        if not silent:
            telling.append(exchange)
    return found


def _overlap(one: Span, other: Span) -> bool:
    """Whether two instrumentations tell of one call: the spans are of different scopes, and one lies in the other's time."""
    return _lies_in(one, other) or _lies_in(other, one)


def _lies_in(inner: Span, outer: Span) -> bool:
    return inner.scope != outer.scope and 0 < outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


def _continues(before: Exchange, given: list[Message] | None, said: list[Message] | None) -> bool:
    """Whether a span tells the end of a stream whose beginning another span has told: the same request, and only one has the answer."""
    return given is not None and before.given == given and (before.said is None) != (said is None)


def find_tools(tree: SpanTree) -> list[Ran]:
    """The tools that ran, each once although several spans may tell of it."""
    found: dict[str, Ran] = {}
    same: dict[str, str] = {}
    by_name: dict[str, deque[str]] = {}
    for span in tree.of_kind("tool"):
        holder = tree.holder(span)
        call = tool_call_of_span(span, name_of_span(holder, tree.kind(holder)) if holder is not None else None)
        outer = tree.nearest(span, _TOOL)
        first = same.get(outer.id) if outer is not None else None
        between = tree.nearest(span, _ACTORS)
        if (
            first is not None
            and between is outer
            and (plain_name(found[first].call.name) == plain_name(call.name) or "mcp.method.name" in span.attributes)
        ):
            found[first] = msgspec.structs.replace(found[first], call=_same_call(found[first].call, call))
            same[span.id] = first
            continue
        twin = next((id for id in reversed(by_name.get(plain_name(call.name), ())) if _overlap(tree.steps[id].span, span)), None)
        if twin is not None:
            found[twin] = msgspec.structs.replace(found[twin], call=_same_call(found[twin].call, call))
            same[span.id] = twin
            continue
        by_name.setdefault(plain_name(call.name), deque(maxlen=_MOST_AT_ONCE)).append(span.id)
        found[span.id] = Ran(call, holder.id if holder is not None else None, span.start_ns)
        same[span.id] = span.id
    return list(found.values())


def _same_call(outer: ToolCall, inner: ToolCall) -> ToolCall:
    return msgspec.structs.replace(
        outer,
        arguments=outer.arguments if outer.arguments is not None else inner.arguments,
        result=outer.result if outer.result is not None else inner.result,
        error=outer.error if outer.failed() else inner.error,
        error_kind=outer.error_kind or inner.error_kind,
        server=outer.server or inner.server,
        id=outer.id or inner.id,
    )
