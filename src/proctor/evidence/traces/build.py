"""A trace of spans as evidence.

Model spans hold the conversation, tool spans the calls, agent spans what went in and came out. `span_exchanges` finds the requests
and the tools that ran, `span_calls` joins them, `span_talk` reads what was said. Tokens are those of the requests, each once; an agent's
own total only where no request has any. HTTP status, duration and clock are the root's.

What is known, and what is not, is for `span_doubts` to say; `span_losses` finds what an exporter dropped or cut.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.usage import add_usage, read_count
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.exchanges import find_exchanges, find_tools
from proctor.evidence.traces.interruptions import mark_breaks
from proctor.evidence.traces.join_calls import Made, join_calls
from proctor.evidence.traces.kind import find_sign_of_work, name_of_span
from proctor.evidence.traces.missing_parents import mark_orphans
from proctor.evidence.traces.model_span import find_duration_ms
from proctor.evidence.traces.nodes import build_nodes, find_workflow_answer
from proctor.evidence.traces.output_tools import without_outputs
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.trace_conversation import find_answer, find_entries, find_input, find_talk, find_turns
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.traces.truncation import find_losses, without_broken
from proctor.evidence.traces.unknown_parts import (
    explain_unknown_calls,
    mark_endings,
    mark_hosted_calls,
    mark_lone_logs,
    mark_losses,
    mark_messages,
    mark_spans,
    mark_strays,
    mark_usage,
)
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import find_first, text_or_none
from proctor.evidence.values.times import write_ns_as_iso
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.show import show

_RUN_KINDS = frozenset(("agent", "model", "tool", "workflow", "chain", "task"))


def build_evidence(spans: Sequence[Span], *, canonical: bool = False) -> Evidence:
    """Return one trace as one evidence.

    `canonical`: spans that somebody wrote for Mibo. By its contract they are a run of an agent, the root has the answer where it has one,
    and a tool that is not among them was not called.
    """
    # Before anything is read: a value that was cut must not be taken for something that was said.
    losses = find_losses(spans)
    tree = SpanTree(without_broken(spans, losses))
    exchanges = find_exchanges(tree)
    joined = join_calls(exchanges, find_tools(tree))
    made = [_with_node(tree, entry, canonical) for entry in without_outputs(tree, joined.made)]
    unknowns = Unknowns()
    # The first doubt about a part is the one that is shown, so the causes come before what follows from them.
    mark_losses(tree, losses, unknowns)
    mark_strays(joined, unknowns)
    mark_spans(tree, unknowns, canonical=canonical)
    mark_messages(exchanges, unknowns)
    mark_lone_logs(spans, unknowns)
    talk = find_talk(tree, exchanges)
    entries = find_entries(tree)
    if not canonical:
        mark_breaks(tree, exchanges, talk, entries, made, unknowns)
        mark_orphans(tree, exchanges, unknowns)
    calls = _find_known_calls(tree, exchanges, made, unknowns, canonical)
    nodes = build_nodes(tree, [(entry.holder, entry.call) for entry in made])
    text, body = find_answer(tree, talk, entries, unknowns, root_first=canonical)
    if text is None and body is None:
        text, body = find_workflow_answer(tree, nodes)
    turns = find_turns(tree, talk, exchanges, made, entries)
    root = tree.root
    return Evidence(
        case=next((span.case for span in spans if span.case is not None), None),
        input=turns[0].input if turns and turns[0].input else find_input(tree, talk, entries),
        text=text,
        body=body,
        tool_calls=calls,
        nodes=nodes,
        http_status=_find_http_status(tree),
        duration_ms=_find_duration_ms(tree),
        usage=_with_models(_sum_usage(tree, exchanges, unknowns), exchanges),
        turns=turns,
        now=write_ns_as_iso(root.start_ns) if root is not None else None,
        # An agent that answered did not break off, whatever its root says; `mark_breaks` names what is doubtful then.
        error=(root.message or "the trace ended in an error") if root is not None and root.failed and text is None else None,
        model=_find_model(talk or exchanges, tree),
        no_run=None if canonical else _explain_no_run(tree),
        account=unknowns.close_account("Mibo spans" if canonical else describe_reader(spans)),
        metadata=_read_metadata(root),
    )


def _with_node(tree: SpanTree, entry: Made, canonical: bool) -> Made:
    """Name the step of a call if only the request for it was seen; canonical spans without arguments passed none."""
    call = entry.call
    if canonical and call.arguments is None:
        call = msgspec.structs.replace(call, arguments={})
    if call.node is None and entry.holder in tree.steps:
        span = tree.steps[entry.holder].span
        call = msgspec.structs.replace(call, node=name_of_span(span, tree.find_kind(span)))
    return entry if call is entry.call else msgspec.structs.replace(entry, call=call)


def describe_reader(spans: Sequence[Span]) -> str:
    """Return the name of the reader of a trace: OTLP and the conventions found in it."""
    keys = frozenset(key for span in spans for key in span.attributes)
    scopes = frozenset(span.scope for span in spans if span.scope)
    # The traces of one agent mostly have the same attributes. Somebody who makes up new ones all the time must not fill the memory.
    return _recall_conventions(keys, scopes) if len(keys) <= _MOST_KEYS else _describe_conventions(keys, scopes)


def _describe_conventions(keys: frozenset[str], scopes: frozenset[str]) -> str:
    found = [convention.name for convention in names.CONVENTIONS if _is_spoken(convention, keys, scopes)]
    particular = [name for name in found if name != "OpenTelemetry GenAI"] or found
    return f"otlp ({', '.join(particular)})" if particular else "otlp"


_MOST_KEYS = 200
"""Different attributes of a trace whose conventions are remembered."""
_recall_conventions = functools.lru_cache(maxsize=256)(_describe_conventions)


def is_written_in(span: Span, convention: names.Convention) -> bool:
    """Return whether a span is written in a convention."""
    return _is_spoken(convention, span.attributes, (span.scope,) if span.scope else ())


def _is_spoken(convention: names.Convention, keys: Iterable[str], scopes: Iterable[str]) -> bool:
    # The scopes of the GenAI convention begin as those of others do (Traceloop's
    # are `opentelemetry.instrumentation.*`, too), so only its attributes count.
    if convention.scopes and convention.name != "OpenTelemetry GenAI" and any(scope.startswith(convention.scopes) for scope in scopes):
        return True
    return any(key.startswith(convention.marks) for key in keys)


def _find_known_calls(
    tree: SpanTree, exchanges: Sequence[Exchange], made: Sequence[Made], unknowns: Unknowns, canonical: bool
) -> tuple[ToolCall, ...] | None:
    """Return the calls and add every doubt about them, or None if none was seen and nobody knows whether there were any."""
    calls = tuple(entry.call for entry in made)
    why = (
        None
        if canonical and (made or not any(exchange.says_tools() for exchange in exchanges))
        else explain_unknown_calls(tree, exchanges, made)
    )
    if why is not None:
        unknowns.mark("tool_calls", why)
    elif not canonical:
        mark_hosted_calls(exchanges, made, unknowns)
    if "tool_calls" in unknowns.unknown and not calls:
        return None
    bare = [entry.call.name for entry in made if entry.call.arguments is None]
    if bare:
        unknowns.mark(
            "tool_arguments", f"the trace does not carry the arguments of {len(bare)} of {len(made)} calls, such as {show(bare[0])}"
        )
    odd = [entry.call.name for entry in made if not entry.agrees or not isinstance(entry.call.arguments, (dict, type(None)))]
    if odd:
        unknowns.mark(
            "tool_arguments",
            f"it is not clear what was passed to {show(odd[0])}: what is told of it is no object, or told twice and differs",
        )
    open_calls = [entry.call.name for entry in made if not entry.answered]
    if open_calls:
        unknowns.mark("tool_results", f"nothing in the trace tells what came of {len(open_calls)} calls, such as {show(open_calls[0])}")
    mark_endings(tree, made, unknowns)
    return calls


def _sum_usage(tree: SpanTree, exchanges: Sequence[Exchange], unknowns: Unknowns) -> Usage | None:
    told = [exchange.find_usage(tree.find_usage) for exchange in exchanges]
    if any(told):
        mark_usage([usage for usage, exchange in zip(told, exchanges, strict=True) if usage or exchange.tells_anything()], unknowns)
        return add_usage(told)
    # No request tells its tokens: the total that the outermost spans report.
    parts: list[Usage | None] = []
    waiting, seen = list(tree.roots or tree.spans[:1]), set[str]()
    while waiting:
        span = waiting.pop()
        if span.id in seen:
            continue
        seen.add(span.id)
        # Not below a span that reports tokens: its own total includes those of the spans inside it.
        own = tree.find_usage(span)
        if own is not None:
            parts.append(own)
        else:
            waiting.extend(tree.children.get(span.id, ()))
    mark_usage(parts, unknowns)
    return add_usage(parts)


def _find_model(exchanges: Sequence[Exchange], tree: SpanTree) -> str | None:
    for exchange in reversed(exchanges):
        for step in exchange.steps:
            # MLflow writes every attribute as JSON, so a name may still have its quotes.
            name = text_or_none(find_first(step.span.attributes, *names.MODEL_NAME))
            if name:
                return name.strip('"')
    return None


def _with_models(usage: Usage | None, exchanges: Sequence[Exchange]) -> Usage | None:
    """Return the usage with the models whose tokens it sums, where they are several: nobody knows then what one of them used."""
    found = [find_first(step.span.attributes, *names.MODEL_NAME) for exchange in exchanges for step in exchange.steps]
    models = tuple(dict.fromkeys(name.strip('"') for name in found if isinstance(name, str) and name))
    return msgspec.structs.replace(usage, models=models) if usage is not None and len(models) > 1 else usage


def _explain_no_run(tree: SpanTree) -> str | None:
    """Explain why a trace is no run of an agent, or return None if it is one."""
    if not tree.spans:
        return "only log records came for the trace, and none of its spans"
    kinds = {tree.find_kind(span) for span in tree.spans}
    if not _RUN_KINDS.isdisjoint(kinds) or any(key.startswith("n8n.") for span in tree.spans for key in span.attributes):
        return None
    if "create_agent" in kinds:
        return "the trace only tells that an agent was made"
    if "mcp" in kinds:
        return "the trace only tells of a talk with an MCP server in which no tool was called"
    if any(find_sign_of_work(span) is not None for span in tree.spans):
        return None
    return "nothing in the trace tells of an agent, a model or a tool"


def _find_http_status(tree: SpanTree) -> int | None:
    for root in tree.roots:
        if tree.find_kind(root) in ("model", "tool"):
            continue  # The status of the provider, not of the agent.
        status = read_count(find_first(root.attributes, *names.HTTP_STATUS))
        if status is not None:
            return status
    return None


def _find_duration_ms(tree: SpanTree) -> float | None:
    if len(tree.roots) == 1:
        return find_duration_ms(tree.roots[0])
    # Several roots: their parent is missing, and they may have run side by side, so their durations are not added.
    timed = [root for root in tree.roots if root.start_ns and root.end_ns]
    return (max(root.end_ns for root in timed) - min(root.start_ns for root in timed)) / 1e6 if timed else None


def _read_metadata(root: Span | None) -> dict[str, Json]:
    if root is None:
        return {}
    known = {"trace_id": root.trace_id or None, "service.name": root.resource.get("service.name"), "span": root.name or None}
    return {key: value for key, value in known.items() if value is not None}
