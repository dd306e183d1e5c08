"""What is unknown of a trace, and why: whatever was not understood and could tell of an agent's work is a doubt, and named.

A trace knows its tool calls only if every request to a model does: its answer was captured and understood, or the next
request repeats it or brings the results of its calls. Spans of tools show which tools ran and never that no other did:
what a provider or a client runs has none, and neither has a handoff. Only a framework
that runs every tool itself, and writes a span of each, is believed where there are no requests (`RUNS_ALL_TOOLS`).
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, Span, is_event_only
from proctor.evidence.shared.conversation import Role
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces import vocabulary_scopes as scopes
from proctor.evidence.traces.attributes import could_be_said, find_misread_attribute, find_strange_attribute, is_strange
from proctor.evidence.traces.events import list_strange_events
from proctor.evidence.traces.join_calls import Joined, Made
from proctor.evidence.traces.kind import find_sign_of_work
from proctor.evidence.traces.message_reader import MessageCache
from proctor.evidence.traces.request import HOSTED, Exchange
from proctor.evidence.traces.tool_span import has_torn_arguments, is_named_tool
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.traces.truncation import Loss
from proctor.evidence.traces.values import decode_output
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Usage
from proctor.model.show import show

_EVERYTHING: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage", "nodes", "turns")
_SAID: tuple[Part, ...] = ("answer", "nodes", "turns")
_INSIDE = frozenset(("model", "tool"))
_MODEL = frozenset(("model",))


def mark_spans(tree: SpanTree, unknowns: Unknowns, *, canonical: bool) -> None:
    """Doubt what spans could hide: spans that nobody understands, and attributes of the wrong kind."""
    for span in tree.spans:
        kind = tree.find_kind(span)
        odd = span.attributes.get(NOT_UNDERSTOOD) or find_misread_attribute(span)
        for event in span.events:
            odd = odd or event.attributes.get(NOT_UNDERSTOOD)
        if odd is not None:
            unknowns.mark_parts(_EVERYTHING, f"{show(odd)} of the span {show(span.name)} is not understood")
        elif kind in (None, "unknown") and (key := find_sign_of_work(span)) is not None and tree.find_nearest(span, _MODEL) is None:
            # What happens inside a request to a model is no act of the agent.
            told = f"the span {show(span.name)} is not understood: nothing says what {show(key)} means there"
            unknowns.note(told)
            is_answer = tree.find_nearest(span, _INSIDE) is None and decode_output(span) is not None
            unknowns.mark_parts(("tool_calls", *_SAID) if is_answer else ("tool_calls",), told)
        strange = _find_strange_message(span, tree.hearings) if kind != "model" else None
        if strange is not None:
            # A span that does not say what it is could be a request to a model.
            parts = ("tool_calls", *_SAID) if names.KIND_NAMES.isdisjoint(span.attributes) else _SAID
            unknowns.mark_parts(parts, f"{strange} in the span {show(span.name)} is not understood")
        if kind == "tool":
            _mark_tool(span, unknowns)
        elif span.events:
            for name in list_strange_events(span)[:1]:
                told = f"the event {show(name)} of the span {show(span.name)} is not understood"
                unknowns.note(told)
                unknowns.mark("tool_calls", told)
        if span.events and (key := _find_strange_event(span)) is not None:
            why = f"{show(key)} of an event of the span {show(span.name)} is not understood"
            unknowns.mark_parts((*CALL_PARTS, *_SAID), why)
        if canonical and (key := find_strange_attribute(span)) is not None:
            # Somebody wrote these spans by hand, and what is not in them did not happen: a misspelt attribute could be what is missing.
            told = kind if kind == "tool" or not names.KIND_NAMES.isdisjoint(span.attributes) else None
            unknowns.mark_parts(_list_parts(told), f"{show(key)} of the span {show(span.name)} is not understood")


def _find_strange_message(span: Span, hearings: MessageCache) -> str | None:
    """Return the first thing not understood in the messages that an agent or a step around it received and returned."""
    for key, role in _MESSAGES.items():
        value = span.attributes.get(key)
        if value is not None:
            heard = hearings.read_messages(value, role)
            if heard.unrecognised:
                return heard.unrecognised[0]
            if names.KIND_NAMES.isdisjoint(span.attributes) and any(message.calls for message in heard.messages):
                return "a call"
    return None


_MESSAGES: dict[str, Role] = {"gen_ai.input.messages": "user", "gen_ai.output.messages": "assistant"}


def _mark_tool(span: Span, unknowns: Unknowns) -> None:
    if not is_named_tool(span):
        unknowns.mark("tool_calls", f"the span {show(span.name)} is a tool and does not tell which")
    if "traceloop.entity.input" in span.attributes and has_torn_arguments(span):
        unknowns.mark("tool_arguments", f"what was passed in the span {show(span.name)} is not understood")


def _list_parts(kind: str | None) -> tuple[Part, ...]:
    """Return the parts of the evidence that a span of this kind tells."""
    if kind == "tool":
        return ("tool_arguments", "tool_results")
    return _EVERYTHING if kind in (None, "unknown", "model") else ("usage", *_SAID)


def _find_strange_event(span: Span) -> str | None:
    """Return the first attribute of an event with messages that could be a misspelt one."""
    for event in span.events:
        if event.name.startswith("gen_ai.") and not _EVENT_KEYS.issuperset(event.attributes):
            odd = next((key for key in event.attributes if key not in _EVENT_KEYS and is_strange(key)), None)
            if odd is not None:
                return odd
    return None


_EVENT_KEYS = frozenset(
    (
        *(*names.EVENT_CONTENT, *names.GIVEN, *names.SAID, "role", "index", "finish_reason", "tool_calls", "id", "tool_call_id", "name"),
        *("tool.result", "gen_ai.message.index", "CHAT_MESSAGE_INDEX"),
    )
)
"""Attributes of events with messages that are understood."""


def mark_messages(exchanges: Sequence[Exchange], unknowns: Unknowns) -> None:
    """Doubt what messages could hide that were not wholly understood."""
    for exchange in exchanges:
        for step in exchange.steps:
            for strange in step.strange:
                why = f"{strange} in the span {show(step.span.name)} is not understood"
                unknowns.mark_parts(("tool_calls", "tool_results", *_SAID), why)


def mark_lone_logs(spans: Sequence[Span], unknowns: Unknowns) -> None:
    """Doubt the calls and the answer if log records tell of a request whose span is missing: it may have asked for tools."""
    if any(span.events and is_event_only(span) and any(event.name.startswith("gen_ai.") for event in span.events) for span in spans):
        why = "log records tell of a request to a model whose span is not in the trace"
        unknowns.mark_parts(("tool_calls", "tool_results", "answer", "turns", "usage"), why)


def mark_losses(tree: SpanTree, losses: Sequence[Loss], unknowns: Unknowns) -> None:
    """Doubt what a span lost because it was left out or cut."""
    for loss in losses:
        step = tree.steps.get(loss.span_id)
        if step is None or (loss.key is not None and not could_be_said(loss.key)):
            continue
        if step.kind == "tool":
            parts: tuple[Part, ...] = ("tool_arguments", "tool_results")
            # Where attributes were dropped, the name of the tool may be among them.
            parts = parts if loss.key is not None or is_named_tool(step.span) else ("tool_calls", *parts)
        elif loss.key is None:
            parts = ("input", *_EVERYTHING)
        # What was cut is a text, or a second telling of messages that were read elsewhere: neither hides a call.
        elif loss.is_text or (step.given is not None and step.said is not None):
            parts = ("tool_arguments", "tool_results", "input", *_SAID)
        else:
            parts = ("input", *(part for part in _EVERYTHING if part != "usage"))
        unknowns.mark_parts(parts, loss.what)


def mark_strays(joined: Joined, unknowns: Unknowns) -> None:
    """Doubt the calls if a model received the result of a call that nothing else tells."""
    if joined.has_stray_error:
        unknowns.mark("tool_results", "a result that tells an error answers no call in the trace")
    strays = joined.strays
    if strays:
        whose = strays[0].id or strays[0].name
        why = f"a tool result{f' ({whose})' if whose else ''} answers no call in the trace, so a call is missing"
        unknowns.mark_parts(CALL_PARTS, why)


def mark_endings(tree: SpanTree, made: Sequence[Made], unknowns: Unknowns) -> None:
    """Doubt how a call ended that a model asked for and no span shows to have run: it may have been refused."""
    # Asked only where somebody writes spans of the work around the model: a trace of bare requests never shows a tool running.
    refused = [entry.call.name for entry in made if not entry.ended]
    if refused and tree.list_kind("agent", "workflow", "task", "chain", "tool"):
        why = f"no span shows that {show(refused[0])} ran, and the result that the model was given does not say whether it failed"
        unknowns.mark("tool_results", why)


def mark_usage(told: Sequence[Usage | None], unknowns: Unknowns) -> None:
    """Doubt a sum of tokens with a missing part: it is only a lower bound."""
    # None at all is no doubt: the part is then simply not recorded.
    silent = sum(usage is None for usage in told)
    if 0 < silent < len(told):
        unknowns.mark("usage", f"{silent} of {len(told)} requests to a model do not tell their tokens")
    for usage in told:
        if usage is not None and usage.total_tokens is None and (usage.input_tokens is None) != (usage.output_tokens is None):
            missing = "input" if usage.input_tokens is None else "output"
            unknowns.mark("usage", f"a span tells no {missing} tokens and no total")


def _is_repeated(exchange: Exchange, after: Exchange | None) -> bool:
    """Return whether the next request repeats the answer that was not captured here, as one more message of the assistant."""
    if after is None or after.given is None or exchange.given is None or any(step.strange for step in (*exchange.steps, *after.steps)):
        return False
    # A request inside a tool is not repeated by one outside of it; they belong to different conversations.
    if exchange.nested != after.nested:
        return False
    # The next request repeats the whole talk; what it has beyond the messages given here is the answer that was not captured.
    before = sum(message.role == "assistant" for message in exchange.given)
    repeated = [message for message in after.given if message.role == "assistant"][before:]
    # Every call is answered, and a result of no call is a doubt of its own: the results that the next was given are those of all calls.
    if _count_results(after) > _count_results(exchange):
        return True
    if exchange.says_tools():
        return any(message.calls for message in repeated)
    return any(message.calls or (message.text and message.text.strip()) for message in repeated)


def _count_results(exchange: Exchange) -> int:
    return sum(len(message.results) for message in exchange.given or ())


def mark_hosted_calls(exchanges: Sequence[Exchange], made: Sequence[Made], unknowns: Unknowns) -> None:
    """Doubt which tools were called if the provider may have run some itself.

    A tool that was only offered is not among them: a provider may run one of the same name, from a server that the model was given.
    """
    if any(exchange.hides_hosted_tools() for exchange in exchanges):
        own = {entry.call.name for entry in made if entry.call.server is None and f"{entry.call.name}_call" not in HOSTED}
        why = "a model may have used tools that its provider runs, and their calls were not recorded"
        unknowns.mark_other_tools(why, tuple(sorted(own)))


def explain_unknown_calls(tree: SpanTree, exchanges: Sequence[Exchange], made: Sequence[Made]) -> str | None:
    """Explain why it is unknown which tools were called, or return None if it is known."""
    ran = tree.list_kind("tool")
    writers = {span.scope for span in tree.list_kind("agent", "workflow", "task", "chain")} & scopes.RUNS_ALL_TOOLS
    # A few instrumentations write a span for every tool that runs; where they wrote at all, a tool without one did not run.
    covered = any(span.scope in writers for span in ran)
    later: list[Exchange | None] = [*exchanges[1:], *([None] if exchanges else [])]
    # A request whose calls are unknown is forgiven only if the next one repeats its answer; the last has nobody to repeat it.
    blind = [
        exchange
        for exchange, after in zip(exchanges, later, strict=True)
        if not exchange.knows_own_calls() and not _is_repeated(exchange, after)
    ]
    if blind:
        if any(exchange.says_tools() for exchange in blind) and not made:
            return "a model stopped to call tools, and the trace carries neither its answer nor spans of tools"
        how = "wholly captured" if any(exchange.list_calls() for exchange in blind) else "captured"
        return f"the answer of {len(blind)} of {len(exchanges)} requests to a model was not {how}"
    if not exchanges and not covered:
        if tree.list_kind("agent", "workflow", "chain", "task") or ran:
            return "the trace has no spans of requests to a model: spans of tools show which tools ran, and not that no other did"
        # n8n writes a span for each node that ran, tools included.
        if any(names.N8N_TYPE in span.attributes for span in tree.spans):
            return None
        return "nothing in the trace tells of tools"
    return None
