"""A trace of spans as evidence.

Model spans hold the conversation, tool spans the calls, agent spans what went in and came out; `span_calls` joins them. The input is the last
thing a user said before the first request, the answer what the model said last; where messages were not captured, what the outermost
agent or chain was given and gave. More than one thing said by users makes turns. Tokens are those of the requests, each once; an
agent's own total only where no request has any. HTTP status, duration and clock are the root's.

What is known: a trace knows its tool calls only if every request to a model does (its answer was captured and understood, or its reason
to stop excludes tools), or if the instrumentation that wrote its agent or model spans wrote tool spans too. Anything that was not
understood and could tell of a call is a doubt, and named.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.evidence import vocabulary as names
from proctor.evidence.account import Doubts
from proctor.evidence.conversation import Message
from proctor.evidence.shape import first_of, text_or_none
from proctor.evidence.span_calls import Exchange, Made, Ran, join_calls, same_tool
from proctor.evidence.span_nodes import nodes_of, workflow_answer
from proctor.evidence.span_step import could_tell_of_work, duration_ms, name_of_span
from proctor.evidence.span_tool import tool_call_of_span
from proctor.evidence.span_tree import SpanTree
from proctor.evidence.span_values import input_text, output_text, output_value
from proctor.evidence.spans import NOT_UNDERSTOOD, Span
from proctor.evidence.text import json_in
from proctor.evidence.times import iso_of_ns
from proctor.evidence.usage import add_usage, count_of
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage
from proctor.model.show import show

_TOOL = frozenset(("tool",))
_MODEL = frozenset(("model",))
_AROUND = ("agent", "workflow", "chain", "task", "step")
_RUN_KINDS = frozenset(("agent", "model", "tool", "workflow", "chain", "task"))


def evidence_of(spans: Sequence[Span], *, always_a_run: bool = False) -> Evidence:
    """One trace as one evidence; `always_a_run` where whoever sent it says that it is a run of an agent."""
    tree = SpanTree(spans)
    exchanges = _exchanges(tree)
    made = join_calls(exchanges, _ran(tree))
    doubts = Doubts()
    _doubt_what_is_strange(tree, exchanges, doubts)
    calls = _known_calls(tree, exchanges, made, doubts)
    nodes = nodes_of(tree, [(entry.holder, entry.call) for entry in made])
    talk = [exchange for exchange in exchanges if not exchange.nested]
    entries = _entries(tree)
    text, body = _answer(tree, talk, entries, doubts)
    if text is None and body is None:
        text, body = workflow_answer(tree, nodes)
    turns = _turns(tree, talk, exchanges, made, entries)
    root = tree.root
    return Evidence(
        case=next((span.case for span in spans if span.case is not None), None),
        input=turns[0].input if turns and turns[0].input else _input(talk, entries),
        text=text,
        body=body,
        tool_calls=calls,
        nodes=nodes,
        http_status=_http_status(tree),
        duration_ms=_duration(tree),
        usage=_usage(tree, exchanges),
        turns=turns,
        now=iso_of_ns(root.start_ns) if root is not None else None,
        error=(root.message or "the trace ended in an error") if root is not None and root.failed and text is None else None,
        model=_model(talk or exchanges, tree),
        no_run=None if always_a_run else _no_run(tree),
        account=doubts.account(reader_of(spans)),
        metadata=_metadata(root),
    )


def reader_of(spans: Sequence[Span]) -> str:
    """Return the words for who read a trace: OTLP, and the conventions found in it."""
    found = [convention.name for convention in names.CONVENTIONS if any(_speaks(span, convention) for span in spans)]
    particular = [name for name in found if name != "OpenTelemetry GenAI"] or found
    return f"otlp ({', '.join(particular)})" if particular else "otlp"


def _speaks(span: Span, convention: names.Convention) -> bool:
    if convention.scopes and span.scope and span.scope.startswith(convention.scopes) and convention.name != "OpenTelemetry GenAI":
        return True
    return any(key.startswith(convention.marks) for key in span.attributes)


# --- requests and calls ------------------------------------------------------------------------------------------------


def _exchanges(tree: SpanTree) -> list[Exchange]:
    """The requests to models, each once, in order of their start."""
    found: list[Exchange] = []
    of_span: dict[str, Exchange] = {}
    by_response: dict[str, Exchange] = {}
    for span in tree.of_kind("model"):
        step = tree.steps[span.id]
        outer = tree.nearest(span, _MODEL)
        response = text_or_none(first_of(span.attributes, *names.RESPONSE_ID))
        same = of_span.get(outer.id) if outer is not None else by_response.get(response or "")
        if same is None and found and _continues(found[-1], step.given, step.said):
            same = found[-1]
        if same is None:
            same = Exchange(step, nested=tree.nearest(span, _TOOL) is not None)
            found.append(same)
        else:
            same.steps.append(step)
        of_span[span.id] = same
        if response:
            by_response.setdefault(response, same)
    return found


def _continues(before: Exchange, given: list[Message] | None, said: list[Message] | None) -> bool:
    """Whether a span tells the end of a stream whose beginning another span has told: the same request, and only one has the answer."""
    return given is not None and before.given == given and (before.said is None) != (said is None)


def _ran(tree: SpanTree) -> list[Ran]:
    """The tools that ran, each once although several spans may tell of it."""
    found: dict[str, Ran] = {}
    same: dict[str, str] = {}
    for span in tree.of_kind("tool"):
        holder = tree.holder(span)
        call = tool_call_of_span(span, name_of_span(holder, tree.kind(holder)) if holder is not None else None)
        outer = tree.nearest(span, _TOOL)
        first = same.get(outer.id) if outer is not None else None
        between = tree.nearest(span, frozenset(("tool", "model", "agent")))
        if (
            first is not None
            and between is outer
            and (same_tool(found[first].call.name, call.name) or "mcp.method.name" in span.attributes)
        ):
            found[first] = msgspec.structs.replace(found[first], call=_same_call(found[first].call, call))
            same[span.id] = first
            continue
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


def _known_calls(tree: SpanTree, exchanges: Sequence[Exchange], made: Sequence[Made], doubts: Doubts) -> tuple[ToolCall, ...] | None:
    """The calls, with every doubt about them; nothing where none was seen and nobody knows whether there were any."""
    calls = tuple(entry.call for entry in made)
    why = _why_unknown(tree, exchanges, made)
    if why is not None:
        doubts.doubt("tool_calls", why)
    if "tool_calls" in doubts.unknown and not calls:
        return None
    bare = [entry.call.name for entry in made if entry.call.arguments is None]
    if bare:
        doubts.doubt(
            "tool_arguments", f"the trace does not carry the arguments of {len(bare)} of {len(made)} calls, such as {show(bare[0])}"
        )
    open_calls = [entry.call.name for entry in made if not entry.answered]
    if open_calls:
        doubts.doubt("tool_results", f"nothing in the trace tells what came of {len(open_calls)} calls, such as {show(open_calls[0])}")
    return calls


def _why_unknown(tree: SpanTree, exchanges: Sequence[Exchange], made: Sequence[Made]) -> str | None:
    """Why it is not known which tools were called; nothing where it is."""
    ran = tree.of_kind("tool")
    writers = {span.scope for span in tree.of_kind("model", "agent")}
    # An instrumentation that writes tool spans writes them for every tool; one that does not says nothing by their absence.
    covered = any(span.scope in writers for span in ran)
    blind = [exchange for exchange in exchanges if not exchange.knows_calls()]
    if blind and not covered:
        if any(exchange.says_tools() for exchange in blind) and not made:
            return "a model stopped to call tools, and the trace carries neither its answer nor spans of tools"
        return f"the answer of {len(blind)} of {len(exchanges)} requests to a model was not captured"
    if not exchanges and not covered:
        if tree.of_kind("agent", "workflow", "chain", "task") or ran:
            return "the trace has no spans of requests to a model, and no tool spans of the instrumentation that wrote its agent spans"
        if any(names.N8N_TYPE in span.attributes for span in tree.spans):
            return None
        return "nothing in the trace tells of tools"
    return None


def _doubt_what_is_strange(tree: SpanTree, exchanges: Sequence[Exchange], doubts: Doubts) -> None:
    for span in tree.spans:
        step = tree.steps[span.id]
        odd = span.attributes.get(NOT_UNDERSTOOD)
        if odd is not None:
            why = f"{show(odd)} of the span {show(span.name)} is not understood"
            for part in ("tool_calls", "tool_arguments", "tool_results", "answer", "usage", "nodes", "turns"):
                doubts.doubt(part, why)
        elif step.kind in (None, "unknown") and (key := could_tell_of_work(span)) is not None:
            told = f"the span {show(span.name)} is not understood: nothing says what {show(key)} means there"
            doubts.note(told)
            doubts.doubt("tool_calls", told)
    for exchange in exchanges:
        for step in exchange.steps:
            for strange in step.strange:
                why = f"{strange} in the span {show(step.span.name)} is not understood"
                for part in ("tool_calls", "tool_results", "answer", "turns"):
                    doubts.doubt(part, why)


# --- what was said -----------------------------------------------------------------------------------------------------


def _entries(tree: SpanTree) -> list[Span]:
    """The outermost spans that say what went into the agent and what it gave: one for each time it was called."""
    found: list[Span] = []
    inside = tree.below(span for span in tree.of_kind("tool"))
    covered: set[str] = set()
    for kinds in (("agent",), ("workflow",), ("chain", "task", "step", "unknown")):
        for span in tree.of_kind(*kinds):
            if span.id in inside or span.id in covered or (input_text(span) is None and output_text(span) is None):
                continue
            found.append(span)
            covered |= tree.below([span])
        if found:
            break
    found.sort(key=lambda span: span.start_ns)
    return found


def _input(talk: Sequence[Exchange], entries: Sequence[Span]) -> Json:
    outer = next((text for span in entries if (text := input_text(span)) is not None), None)
    asked = next((exchange.asked() for exchange in talk if exchange.asked()), None)
    if asked is None:
        return outer
    # A framework that wraps what was asked into a prompt of its own (CrewAI, DSPy) shows the bare question on the outside.
    return outer if outer is not None and outer != asked[-1] and outer in asked[-1] else asked[-1]


def _answer(tree: SpanTree, talk: Sequence[Exchange], entries: Sequence[Span], doubts: Doubts) -> tuple[str | None, Json]:
    inner = _last_said(talk)
    outer = next((text for span in reversed(entries) if (text := output_text(span)) is not None and text.strip()), None)
    text = inner
    if outer is not None and (inner is None or (outer != inner and outer in inner) or (talk and talk[-1].calls())):
        text = outer
    if text is None:
        root = tree.root
        text = output_text(root) if root is not None and tree.kind(root) not in ("tool", "mcp") else None
    if text is None:
        if talk and all(exchange.said is None for exchange in talk):
            doubts.doubt("answer", "no answer of a model was captured in the trace")
        return None, None
    structured = next((value for span in reversed(entries) if isinstance(value := output_value(span), dict)), None)
    return text, json_in(text) if json_in(text) is not None else structured if inner is None else None


def _last_said(talk: Sequence[Exchange]) -> str | None:
    for exchange in reversed(talk):
        if exchange.said is None:
            return None
        text = exchange.text()
        if text and text.strip():
            return text
    return None


def _turns(
    tree: SpanTree, talk: Sequence[Exchange], exchanges: Sequence[Exchange], made: Sequence[Made], entries: Sequence[Span]
) -> tuple[EvidenceTurn, ...] | None:
    """One turn for each thing a user said, where there is more than one."""
    groups = _groups_of_talk(talk)
    if len(groups) > 1 and not _is_template(groups, entries):
        numbers = {id(exchange): index for index, (_, group) in enumerate(groups) for exchange in group}
        owner = [numbers.get(id(exchange), -1) for exchange in exchanges]
        return tuple(
            EvidenceTurn(
                input=asked,
                text=_last_said(group),
                body=json_in(_last_said(group)),
                tool_calls=tuple(entry.call for entry in made if _turn_of(entry, owner) == index),
                usage=add_usage(exchange.usage(tree.usage) for exchange in group),
            )
            for index, (asked, group) in enumerate(groups)
        )
    if len(entries) > 1 and all(input_text(span) is not None for span in entries):
        return tuple(_entry_turn(tree, span, entries, made) for span in entries)
    return None


def _turn_of(entry: Made, owner: Sequence[int]) -> int:
    """The turn a call belongs to: that of the request that asked for it, or of the last before it that is part of the talk."""
    number = entry.exchange
    while number >= 0 and owner[number] < 0:
        number -= 1
    return owner[number] if number >= 0 else 0


def _groups_of_talk(talk: Sequence[Exchange]) -> list[tuple[str | None, list[Exchange]]]:
    groups: list[tuple[str | None, list[Exchange]]] = []
    before: list[str] = []
    for exchange in talk:
        asked = exchange.asked()
        if not groups or (asked and (asked[-1] != (before[-1] if before else None) or len(asked) > len(before))):
            groups.append((asked[-1] if asked else None, []))
        groups[-1][1].append(exchange)
        before = asked or before
    return groups


def _is_template(groups: Sequence[tuple[str | None, list[Exchange]]], entries: Sequence[Span]) -> bool:
    """Whether the users' messages are prompts a framework made: what went in on the outside stands inside several of them."""
    outer = next((text for span in entries if (text := input_text(span)) is not None), None)
    return outer is not None and sum(asked is not None and asked != outer and outer in asked for asked, _ in groups) > 1


def _entry_turn(tree: SpanTree, span: Span, entries: Sequence[Span], made: Sequence[Made]) -> EvidenceTurn:
    later = [other.start_ns for other in entries if other.start_ns > span.start_ns]
    until = min(later) if later else None
    inside = tree.below([span]) | {span.id}
    mine = [
        entry.call
        for entry in made
        if (entry.holder in inside) or (span.start_ns <= entry.start_ns and (until is None or entry.start_ns < until))
    ]
    text = output_text(span)
    return EvidenceTurn(input=input_text(span), text=text, body=json_in(text), tool_calls=tuple(mine), duration_ms=duration_ms(span))


# --- measures and names ------------------------------------------------------------------------------------------------


def _usage(tree: SpanTree, exchanges: Sequence[Exchange]) -> Usage | None:
    found = add_usage(exchange.usage(tree.usage) for exchange in exchanges)
    if found is not None:
        return found
    # No request tells its tokens: the total that the outermost spans report.
    parts: list[Usage | None] = []
    waiting, seen = list(tree.roots or tree.spans[:1]), set[str]()
    while waiting:
        span = waiting.pop()
        if span.id in seen:
            continue
        seen.add(span.id)
        own = tree.usage(span)
        if own is not None:
            parts.append(own)
        else:
            waiting.extend(tree.children.get(span.id, ()))
    return add_usage(parts)


def _model(exchanges: Sequence[Exchange], tree: SpanTree) -> str | None:
    for exchange in reversed(exchanges):
        for step in exchange.steps:
            name = text_or_none(first_of(step.span.attributes, *names.MODEL_NAME))
            if name:
                return name.strip('"')
    return None


def _no_run(tree: SpanTree) -> str | None:
    """Why a trace is no run of an agent; nothing where it is one."""
    kinds = {tree.kind(span) for span in tree.spans}
    if not _RUN_KINDS.isdisjoint(kinds) or any(key.startswith("n8n.") for span in tree.spans for key in span.attributes):
        return None
    if "create_agent" in kinds:
        return "the trace only tells that an agent was made"
    if "mcp" in kinds:
        return "the trace only tells of a talk with an MCP server in which no tool was called"
    if any(could_tell_of_work(span) is not None for span in tree.spans):
        return None
    return "nothing in the trace tells of an agent, a model or a tool"


def _http_status(tree: SpanTree) -> int | None:
    for root in tree.roots:
        if tree.kind(root) in ("model", "tool"):
            continue  # The status of the provider, not of the agent.
        status = count_of(first_of(root.attributes, *names.HTTP_STATUS))
        if status is not None:
            return status
    return None


def _duration(tree: SpanTree) -> float | None:
    if len(tree.roots) == 1:
        return duration_ms(tree.roots[0])
    timed = [root for root in tree.roots if root.start_ns and root.end_ns]
    return (max(root.end_ns for root in timed) - min(root.start_ns for root in timed)) / 1e6 if timed else None


def _metadata(root: Span | None) -> dict[str, Json]:
    if root is None:
        return {}
    known = {"trace_id": root.trace_id or None, "service.name": root.resource.get("service.name"), "span": root.name or None}
    return {key: value for key, value in known.items() if value is not None}
