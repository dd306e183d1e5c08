"""Spans that name a parent which is not in the trace: sampled away, lost, not sent yet, or in another service.

The span itself proves that there is more than the trace tells. It may still show the whole run: an agent with what it was asked, a web
request or a message of a queue that another service sent, a request to a model that repeats the talk from what a user said on. Of
anything else it may be one step of many, so which tools were called is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.account import Part
from proctor.model.show import show

_PARTS: tuple[Part, ...] = ("tool_calls", "usage", "nodes", "turns")
"""What the spans that are missing could have told."""


def mark_orphans(tree: SpanTree, exchanges: Sequence[Exchange], unknowns: Unknowns) -> None:
    """Doubt what else happened where a span's parent is not in the trace and the span does not show the whole run."""
    if not tree.orphans:
        return
    of_span = {step.span.id: exchange for exchange in exchanges for step in exchange.steps}
    loose: list[tuple[Span, Exchange]] = []
    for orphan in tree.orphans:
        below = _list_loose_work(tree, orphan)
        requests = [(orphan, of_span[span.id]) for span in below if span.id in of_span]
        loose += requests
        is_told = all(_begins_with_question(exchange) for _, exchange in requests)
        # Spans of tools show which tools ran; only requests to a model tell that no other did.
        if not is_told or (not exchanges and below):
            _mark(unknowns, orphan)
            return
    # A loop does not end with a request for tools: what came of them went to a request that is missing.
    unended = next((orphan for orphan, exchange in loose if exchange is exchanges[-1] and _asks_for_tools(exchange)), None)
    if unended is not None:
        _mark(unknowns, unended)
        return
    unknowns.note(f"the parent of the span {show(tree.orphans[0].name)} is not in the trace; what lies above it was not seen")


def _list_loose_work(tree: SpanTree, orphan: Span) -> list[Span]:
    """Return the outermost requests, tools and steps of a workflow at or below a span that nothing shows to be parts of a whole run."""
    found: list[Span] = []
    waiting = [orphan]
    # A circle of parents hangs below no root, so that each span is met once.
    while waiting:
        span = waiting.pop()
        kind = tree.find_kind(span)
        if span.is_entry or (kind == "agent" and tree.find_input_text(span)):
            continue
        if kind in ("model", "tool") or names.N8N_TYPE in span.attributes:
            found.append(span)
        else:
            waiting.extend(tree.children.get(span.id, ()))
    return found


def _begins_with_question(exchange: Exchange) -> bool:
    """Return whether a request repeats the talk from what a user said on, and so every call before it."""
    return bool(exchange.list_questions())


def _asks_for_tools(exchange: Exchange) -> bool:
    return bool(exchange.list_calls()) or exchange.says_tools()


def _mark(unknowns: Unknowns, orphan: Span) -> None:
    why = f"the parent of the span {show(orphan.name)} is not in the trace, so other spans of the run may be missing, too"
    unknowns.mark_parts(_PARTS, why)
