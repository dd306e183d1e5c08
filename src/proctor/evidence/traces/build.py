"""Builds the evidence of a trace from its spans.

Model spans have the conversation, tool spans the calls, agent spans the input and the output. Tokens are those of the requests, each once;
an agent's own total only if no request has any. HTTP status, duration and clock come from the root.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from operator import attrgetter

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.usage import add_usage, read_count
from proctor.evidence.shared.workflow import find_answering_node, read_answer, with_parameters
from proctor.evidence.traces import unknown_parts, vocabulary
from proctor.evidence.traces.attribute_shapes import Shape, find_decoded, list_conventions
from proctor.evidence.traces.join_calls import ObservedCall
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.trace import Trace
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import is_redacted, mark_removed
from proctor.evidence.values.access import text_or_none, write_ns_as_iso
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json, Node, ToolCall, Usage
from proctor.model.show import show

_KIND_WORDS = {"model": "llm", "unknown": None}
_N8N = (vocabulary.N8N_TYPE, vocabulary.N8N_STATUS, vocabulary.N8N_PARAMETERS, vocabulary.N8N_OUTPUT, vocabulary.N8N_ITEMS)
_NOT_N8N = (None,) * len(_N8N)
_RUN_KINDS = frozenset(("agent", "model", "tool", "workflow", "chain", "task"))
_MAX_CACHED_SHAPES = 50
_get_shape, _get_scope, _get_case = attrgetter("shape"), attrgetter("scope"), attrgetter("case")


def build_evidence(
    spans: Sequence[Span], *, canonical: bool = False, parts: Collection[Part] | None = None, unknowns: Unknowns | None = None
) -> Evidence:
    """Return one trace as one evidence.

    `canonical`: spans in Mibo's format. By its contract they are a run of an agent, the root has the answer if it has one, and a tool that
    is not among them was not called. `parts` are the parts that are read (None: all): nodes are not built if they are not among them, and
    the account lists them as recorded. The other parts cost little, and the account needs them. `unknowns` receives what is marked.
    """
    trace = Trace(spans, canonical=canonical)
    tree, calls = trace.tree, trace.calls
    unknowns = Unknowns() if unknowns is None else unknowns
    unknown_parts.mark_unknown_parts(trace, unknowns)
    text, body = trace.find_answer(unknowns)
    if mark_removed(text, "answer", "the answer", unknowns) and is_redacted(text):
        text = body = None
    shapes = frozenset(map(_get_shape, tree.steps))
    is_n8n = bool([shape for shape in shapes if shape.names["n8n"]])
    skips_nodes = parts is not None and "nodes" not in parts and not is_n8n and "nodes" not in unknowns.unknown
    nodes = None if skips_nodes else _build_nodes(tree, calls)
    if text is None and body is None and nodes is not None and any(vocabulary.N8N_TYPE in step.attributes for step in tree.steps):
        text, body = read_answer(find_answering_node(nodes))
    turns = trace.find_turns()
    for turn in turns or ():
        mark_removed(turn.text, "answer", "the answer of a turn", unknowns)
    usage = _sum_usage(tree, trace.exchanges, unknowns)
    root, is_failed = (tree.root.span, tree.root.failed) if tree.root is not None else (None, False)
    named = (
        {"trace_id": root.trace_id or None, "service.name": root.resource.get("service.name"), "span": root.name or None} if root else {}
    )
    # The status of a model or tool span is that of the provider, not of the agent.
    statuses = [unknown_parts.find_http_status(root) for root in tree.roots if root.kind not in ("model", "tool")]
    # An agent that answered did finish: `mark_ends` marks the unknown parts. Mibo's tests may expect the failure of a request.
    error = (root.message or "the trace ended in an error") if text is None and root is not None and is_failed else None
    if canonical and error is None:
        failures = ((step.span.name, unknown_parts.explain_failure(trace, step)) for step in tree.roots)
        error = next((f"the span {show(name)} {why}" for name, why in failures if why is not None), None)
    timed = [one.span for one in tree.roots if one.find_duration_ms() is not None]
    describe = _recall_conventions if len(shapes) <= _MAX_CACHED_SHAPES else _describe_conventions
    account = unknowns.close_account("Mibo spans" if canonical else describe(shapes, frozenset(map(_get_scope, spans))))
    if skips_nodes and tree.kinds - {"tool"}:
        account = msgspec.structs.replace(account, unbuilt=("nodes",))
    evidence = Evidence(
        case=next(filter(None, map(_get_case, spans)), None),
        input=turns[0].input if turns and turns[0].input else trace.find_input(),
        text=text,
        body=body,
        tool_calls=None if "tool_calls" in unknowns.unknown and not calls else tuple([entry.call for entry in calls]),
        nodes=nodes,
        http_status=next((status for status in statuses if status is not None), None),
        # Several roots: their parent is missing, and they may have run in parallel, so their durations are not added up.
        duration_ms=(max(one.end_ns for one in timed) - min(one.start_ns for one in timed)) / 1e6 if timed else None,
        usage=usage,
        turns=turns,
        now=write_ns_as_iso(root.start_ns) if root is not None else None,
        error=error,
        model=next((step.model for exchange in reversed(trace.requests or trace.exchanges) for step in exchange.steps if step.model), None),
        no_run=None if canonical else _explain_no_run(tree, is_n8n),
        account=account,
        metadata={key: value for key, value in named.items() if value is not None},
    )
    # Parents and children refer to each other: unlinked, so that they are freed at once and not by the garbage collector.
    for step in tree.steps:
        step.children.clear()
    return evidence


def _describe_conventions(shapes: frozenset[Shape], scopes: frozenset[str]) -> str:
    keys = frozenset(key for shape in shapes for key in shape.keys)
    found = list_conventions(keys, scopes)
    specific = [name for name in found if name != "OpenTelemetry GenAI"] or found
    return f"otlp ({', '.join(specific)})" if specific else "otlp"


_recall_conventions = functools.lru_cache(maxsize=256)(_describe_conventions)


def _sum_usage(tree: SpanTree, exchanges: Sequence[Exchange], unknowns: Unknowns) -> Usage | None:
    usages = [usage for exchange in exchanges if (usage := exchange.find_usage()) is not None or exchange.has_content()]
    if not any(usages):
        # No request reports tokens: use the total of the outermost spans that do, which includes the spans inside.
        usages = []
        waiting = list(tree.roots)
        while waiting:
            step = waiting.pop()
            usage = step.find_usage()
            if usage is not None:
                usages.append(usage)
            else:
                waiting.extend(step.children)
    unknown_parts.mark_usage(usages, unknowns)
    usage = add_usage(usages)
    # With several models, the tokens cannot be attributed to one.
    models = {step.model: None for exchange in exchanges for step in exchange.steps if step.model} if usage is not None else ()
    return msgspec.structs.replace(usage, models=tuple(models)) if usage is not None and len(models) > 1 else usage


def _explain_no_run(tree: SpanTree, is_n8n: bool) -> str | None:
    if not tree.steps:
        return "only log records came for the trace, and none of its spans"
    if is_n8n or not _RUN_KINDS.isdisjoint(tree.kinds) or any(key.startswith("n8n.") for step in tree.steps for key in step.attributes):
        return None
    if "create_agent" in tree.kinds:
        return "the trace only records that an agent was created"
    if "mcp" in tree.kinds:
        return "the trace only records a connection to an MCP server in which no tool was called"
    if any(step.shape.work is not None for step in tree.steps):
        return None
    return "the trace has no span of an agent, a model or a tool"


def _build_nodes(tree: SpanTree, calls: Sequence[ObservedCall]) -> tuple[Node, ...]:
    by_holder: dict[Step | None, list[ToolCall]] = {}
    for entry in calls:
        by_holder.setdefault(entry.holder, []).append(entry.call)
    return with_parameters([_build_node(step, tuple(by_holder.get(step, ()))) for step in tree.steps if step.kind != "tool"])


def _build_node(step: Step, calls: tuple[ToolCall, ...]) -> Node:
    span, attributes = step.span, step.attributes
    node_type, status, parameters, output, items = map(attributes.get, _N8N) if step.names["n8n"] else _NOT_N8N
    output, items = decode_container(output), None if items is None else read_count(items)
    listed = len(output) if isinstance(output, list) else 1
    if output is None and attributes:
        output = step.build_output(step.text)
    given: Json = None
    if attributes or span.events:
        given = next((message.text for message in reversed(step.inputs or ()) if message.role == "user" and message.text), None)
        given = given or step.find_input_text() or find_decoded(attributes, step.names["input_value"])[0]
    return Node(
        name=step.node_name,
        type=text_or_none(node_type) or _KIND_WORDS.get(step.kind or "", step.kind),
        status=text_or_none(status) or ("error" if step.failed else "success"),
        input=given,
        output=output,
        parameters=decode_container(parameters),
        tool_calls=calls,
        duration_ms=step.find_duration_ms(),
        error=(span.message or "the step failed") if step.failed else None,
        items=listed if items is None else items,
        usage=step.find_usage(),
    )
