"""Requests to models and runs of tools, each once although several spans may tell of it.

A framework, the SDK below it and the wire below that may each write a span for one request; an agent framework, an MCP client and an MCP
server for one call. Spans are the same request when one lies inside the other, when they carry the id of the same response, when one
sees a stream begin and the other sees it end, or when one without content lies in the time of one with content.
"""

from __future__ import annotations

from collections import deque

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.call_identity import can_agree, can_be_one_tool, is_name_at_server, strip_framework_prefix
from proctor.evidence.shared.conversation import Message
from proctor.evidence.traces.join_calls import Ran
from proctor.evidence.traces.kind import name_of_span
from proctor.evidence.traces.model_span import Step, find_response_id
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.tool_span import read_tool_call
from proctor.evidence.traces.tree import SpanTree
from proctor.model.evidence import ToolCall

_TOOL = frozenset(("tool",))
_MODEL = frozenset(("model",))
_ACTORS = frozenset(("tool", "model", "agent"))
_MOST_AT_ONCE = 32
"""How many calls of one tool, or requests, may run at once and still be recognised where two instrumentations tell of each."""


def find_exchanges(tree: SpanTree) -> list[Exchange]:
    """Return the requests to models, each once, in order of their start."""
    found: list[Exchange] = []
    of_span: dict[str, Exchange] = {}
    by_response: dict[str, Exchange] = {}
    for span in tree.list_kind("model"):
        step = tree.steps[span.id]
        # Spans of one request nest: framework, SDK, wire. The outermost stands for all of them.
        *_, top = (span, *tree.iterate_above(span, _MODEL))
        response = find_response_id(span)
        same = of_span.get(top.id) or by_response.get(response or "")
        # That spans nest is proof enough; the id of an answer alone is held against times and contents.
        if same is not None and same is not of_span.get(top.id) and not _is_one_answer(same, step):
            same = None
        # Only the request right before: the two halves of a stream follow each other.
        if same is None and found and _continues(found[-1], step.given, step.said):
            same = found[-1]
        if same is None:
            same = Exchange(step, nested=tree.find_nearest(span, _TOOL) is not None)
            found.append(same)
        else:
            same.steps.append(step)
        of_span[top.id] = same
        if response:
            by_response[response] = same
    return _without_echoes(found)


def _is_one_answer(exchange: Exchange, step: Step) -> bool:
    """Return whether spans with the id of one answer tell of one request: some servers give all their answers the same id."""
    before, span = exchange.steps[-1], step.span
    if span.start_ns and before.span.end_ns and span.start_ns < before.span.end_ns:
        return True
    # One after the other: they can still be two tellings of one request, as long as they do not contradict each other.
    if (before.given is not None and step.given is not None and before.given != step.given) or (
        before.said is not None and step.said is not None and before.said != step.said
    ):
        return False
    # Without times nothing speaks against it. With times one of them must tell the answer: two that tell nothing may be two requests.
    return not (span.start_ns and before.span.end_ns) or (before.said is not None or step.said is not None)


def _without_echoes(exchanges: list[Exchange]) -> list[Exchange]:
    """Join requests that one instrumentation tells with content and another, nearer to the wire, tells without."""
    telling: deque[Exchange] = deque(maxlen=_MOST_AT_ONCE)
    found: list[Exchange] = []
    for exchange in exchanges:
        silent = exchange.given is None and exchange.said is None
        # Only the latest few are looked at: a request cannot lie inside one that ended long before, and traces can have thousands.
        around = next((other for other in reversed(telling) if _lies_in(exchange.span, other.span)), None) if silent else None
        if around is not None:
            around.steps.extend(exchange.steps)
            continue
        found.append(exchange)
        if not silent:
            telling.append(exchange)
    return found


def _overlap(one: Span, other: Span) -> bool:
    """Return whether two instrumentations tell of one call: spans of different scopes, one within the other's time."""
    return _lies_in(one, other) or _lies_in(other, one)


def _lies_in(inner: Span, outer: Span) -> bool:
    # Two spans of one instrumentation in the same time are two calls made at once.
    return inner.scope != outer.scope and 0 < outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


def _continues(before: Exchange, given: list[Message] | None, said: list[Message] | None) -> bool:
    """Return whether a span tells the end of a stream that another span began: the same request, and only one has the answer."""
    return given is not None and before.given == given and (before.said is None) != (said is None)


def find_tools(tree: SpanTree) -> list[Ran]:
    """Return the tools that ran, each once although several spans may tell of it."""
    found: dict[str, Ran] = {}
    same: dict[str, str] = {}
    by_name: dict[str, deque[str]] = {}
    for span in tree.list_kind("tool"):
        holder = tree.find_holder(span)
        call = read_tool_call(span, name_of_span(holder, tree.find_kind(holder)) if holder is not None else None)
        outer = tree.find_nearest(span, _TOOL)
        first = same.get(outer.id) if outer is not None else None
        # An agent between two tool spans means that the outer tool ran it, and the inner call is the inner agent's own.
        between = tree.find_nearest(span, _ACTORS)
        if first is None or between is not outer or not _is_seen_again(found[first].call, call, span, tree.steps[first].span):
            alike = by_name.get(strip_framework_prefix(call.name), ())
            first = next(
                (id for id in reversed(alike) if _overlap(tree.steps[id].span, span) and can_be_one_tool(found[id].call.name, call.name)),
                None,
            )
        if first is not None:
            found[first] = msgspec.structs.replace(found[first], call=_merge_call(found[first].call, call))
            same[span.id] = first
            continue
        # Only the latest few are kept: to look through all of them would cost the square of the calls of one tool.
        by_name.setdefault(strip_framework_prefix(call.name), deque(maxlen=_MOST_AT_ONCE)).append(span.id)
        found[span.id] = Ran(call, holder.id if holder is not None else None, span.start_ns)
        same[span.id] = span.id
    return list(found.values())


def _is_seen_again(outer: ToolCall, inner: ToolCall, span: Span, around: Span) -> bool:
    """Return whether a tool span inside another tells of the same call, seen again by MCP or another instrumentation."""
    if not can_agree(outer.arguments, inner.arguments) and not can_agree(inner.arguments, outer.arguments):
        return False
    if outer.name == inner.name:
        return True
    if "mcp.method.name" in span.attributes and is_name_at_server(outer.name, inner.name):
        return True
    return span.scope != around.scope and can_be_one_tool(outer.name, inner.name)


def _merge_call(outer: ToolCall, inner: ToolCall) -> ToolCall:
    # The outermost span tells best what the agent meant; those inside only fill in what it leaves out.
    return msgspec.structs.replace(
        outer,
        aliases=(*outer.aliases, inner.name) if inner.name != outer.name and inner.name not in outer.aliases else outer.aliases,
        arguments=outer.arguments if outer.arguments is not None else inner.arguments,
        result=outer.result if outer.result is not None else inner.result,
        error=outer.error if outer.failed() else inner.error,
        error_kind=outer.error_kind or inner.error_kind,
        server=outer.server or inner.server,
        id=outer.id or inner.id,
    )
