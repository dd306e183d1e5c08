"""Decides which parts of a trace are unknown, and why.

calls       known if every request to a model has captured content, or a finish reason that excludes tools, or is repeated by the next
            request. Without requests: known if an agent span has tool spans below it, as people write by hand; otherwise unknown.
rule a, b   spans, events and attributes that are not recognised and may hold calls or the answer
rule c, d   dropped and truncated data, missing parents and spans, results without a call
rule e, f   a trace that ends before the agent finished; a failed root span
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, is_event_only
from proctor.evidence.shared.call_identity import can_be_one_tool
from proctor.evidence.shared.conversation import compare_choices
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.spoken_calls import call_in_words
from proctor.evidence.shared.usage import find_count, read_count
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.attribute_shapes import COUNTS, find_value, may_hold_content
from proctor.evidence.traces.kind import describe_kind
from proctor.evidence.traces.message_reader import join_last_text
from proctor.evidence.traces.request import Exchange, is_hosted_call
from proctor.evidence.traces.step import Step, list_calls
from proctor.evidence.traces.tool_span import has_damaged_arguments, is_named_tool
from proctor.evidence.traces.trace import Trace, differ
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import find_removed
from proctor.evidence.unknowns.statuses import find_failure
from proctor.evidence.unknowns.unrecognised import FieldTable, check_field, mark_kind, mark_near_miss
from proctor.evidence.values.access import is_misspelt
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json, ToolCall, Usage
from proctor.model.show import show

_ANSWER: tuple[Part, ...] = ("answer", "nodes", "turns")
_EVERYTHING: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage", "nodes", "turns")
_INSIDE = ("model", "tool")
_AROUND = ("agent", "workflow", "chain", "task")
_NOT_RUNS = ("model", "tool", "mcp")
_ENDS_LOOP = re.compile(r"\[\[ ## next_tool_name ## \]\]\s*finish\b")
"""DSPy's word for no further tool."""
_OF_CALLS = re.compile(r"tool|function|handoff|invo[ck]|\baction", re.IGNORECASE)
_TOOL_WORD = re.compile(r"(?:^|[^a-z])tools?(?:[^a-z]|$)|tool_?(?:call|use|run|invo)", re.IGNORECASE)
_EVENT_FIELDS: FieldTable = dict.fromkeys(
    (
        *(*vocabulary.EVENT_CONTENT, *vocabulary.NAMES["input_messages"], *vocabulary.NAMES["output_messages"]),
        *("role", "index", "finish_reason", "tool_calls", "id", "tool_call_id", "name", "tool.result", "gen_ai.message.index"),
        *("gen_ai.system", "gen_ai.provider.name", "event.name", NOT_UNDERSTOOD),
    ),
    (*CALL_PARTS, *_ANSWER),
)


def mark_unknown_parts(trace: Trace, unknowns: Unknowns) -> None:
    """Mark every unknown part of a trace except the answer and the tokens, which `Trace.find_answer` and `mark_usage` mark."""
    # The first reason for a part is shown, so causes come before consequences.
    _mark_losses(trace, unknowns)
    _mark_steps(trace, unknowns)
    if not trace.canonical:
        _mark_text_calls(trace, unknowns)
        _mark_differences(trace, unknowns)
    _mark_ends(trace, unknowns)
    if not trace.canonical:
        _mark_choices(trace.exchanges, unknowns)
    if trace.tree.orphans:
        _mark_orphans(trace, unknowns)
    if not trace.canonical or (not trace.calls and any(exchange.stopped_for_tools() for exchange in trace.exchanges)):
        _mark_calls(trace, unknowns)
    _mark_call_details(trace, unknowns)


# --- rules a and b: what is not recognised


def _mark_steps(trace: Trace, unknowns: Unknowns) -> None:
    """Mark parts that spans may contain in an unrecognised form."""
    listed = {entry.call.name for entry in trace.calls}
    for step in trace.tree.steps:
        shape, kind, name, events = step.shape, step.kind, step.span.name, step.span.events
        if events or not shape.is_clean:
            _mark_attributes(step, listed, unknowns)
        if shape.only_messages and kind != "model":
            _mark_step_messages(step, unknowns)
        if kind == "tool":
            if not is_named_tool(step):
                unknowns.mark("tool_calls", f"the span {show(name)} is a tool without a name")
            if "traceloop.entity.input" in step.attributes and has_damaged_arguments(step):
                unknowns.mark("tool_arguments", f"the arguments in the span {show(name)} cannot be read")
        elif kind is None or kind == "unknown" or kind == "step":
            if shape.work is not None and kind != "step":
                _mark_kind(step, unknowns)
            if (shape.callees or shape.kind_hints) and "tool" not in step.above:
                _mark_call_shape(step, listed, unknowns)
        if events:
            _mark_events(step, unknowns)
        for what in step.unrecognised:
            unknowns.mark_unrecognised(("tool_calls", "tool_results", *_ANSWER), f"{what} in the span {show(name)} is not recognised")


def _mark_attributes(step: Step, listed: Collection[str], unknowns: Unknowns) -> None:
    shape, name, attributes = step.shape, show(step.span.name), step.attributes
    # A text or a count of another type than its name requires.
    wrong = (key for key in shape.suspects if key not in COUNTS or read_count(attributes[key]) is None)
    named = (
        holder[NOT_UNDERSTOOD] for holder in (attributes, *(event.attributes for event in step.span.events)) if NOT_UNDERSTOOD in holder
    )
    unreadable = attributes.get(NOT_UNDERSTOOD) or next(wrong, None) or next(named, None)
    if unreadable is not None:
        unknowns.mark_parts(_EVERYTHING, f"{show(str(unreadable))} of the span {name} cannot be read")
    for key, parts in shape.near_misses:
        unknowns.mark_unrecognised(parts, f"{show(key)} of the span {name} is not read; is it misspelt?")
    for key in shape.unrecognised:
        check_field(key, attributes[key], f"the span {name}", unknowns, listed=listed, has_answer=True)


def _mark_kind(step: Step, unknowns: Unknowns) -> None:
    name, shape = show(step.span.name), step.shape
    word = describe_kind(step.span)
    # A span without a kind inside a request to a model is not an action of the agent.
    if word is None and "model" in step.above:
        return
    reason = f"the span {name} has an unrecognised kind ({word})" if word else f"the span {name} has no kind"
    named = [str(step.attributes[key]) for key in shape.names["kind"]]
    # A span around steps of a known kind is no call.
    is_given = word is not None and step.find_above(*_INSIDE) is None and not any(child.kind for child in step.children)
    is_given = is_given and find_value(step.attributes, shape.names["input_value"]) is not None
    if is_given or shape.passes_arguments or any(is_misspelt(kind.lower(), vocabulary.KINDS) for kind in named):
        unknowns.mark_unrecognised(CALL_PARTS, f"{reason} and may be a tool call")
    for kind in named:
        mark_kind(None, kind, f"the span {name}", unknowns, speaks=None)
    if step.find_above(*_INSIDE) is None and step.read_output()[0] is not None:
        unknowns.mark_unrecognised(_ANSWER, f"{reason} and contains text")


def _mark_call_shape(step: Step, listed: Collection[str], unknowns: Unknowns) -> None:
    """Mark the calls unknown if a span names a tool with its arguments, or a kind of tools under a name of no convention."""
    shape, attributes = step.shape, step.attributes
    words = [word for key in shape.kind_hints if isinstance(word := attributes[key], str)]
    is_tool = any(vocabulary.KINDS.get(word.lower()) == "tool" or _TOOL_WORD.search(word) for word in words)
    # A span of the application around or next to the recorded call is no other call.
    if is_tool or (shape.callees and "model" not in step.above):
        if not {step.span.name, *(attributes[key] for key in shape.callees if isinstance(attributes[key], str))}.isdisjoint(listed):
            return
        unknowns.mark_unrecognised(CALL_PARTS, f"the span {show(step.span.name)} has no recognised kind and may be a tool call")


def _mark_step_messages(step: Step, unknowns: Unknowns) -> None:
    """Mark parts that unrecognised messages of an agent, or of an enclosing step, may contain."""
    for key in step.shape.only_messages:
        if step.attributes[key] is None:
            continue
        parsed = step.cache.read(step.attributes[key], "assistant" if "output" in key else "user")
        what = next(iter(parsed.list_unrecognised()), None)
        # A span without a kind may be a request to a model.
        is_request = not step.names["kind"]
        if what is None and is_request and any(message.calls for message in parsed.messages):
            what = "a call"
        if what is not None:
            why = f"{what} in the span {show(step.span.name)} is not recognised"
            # An agent's own messages repeat those of its requests; a step may be the only record of one.
            unknowns.mark_unrecognised(_ANSWER if step.kind == "agent" and not is_request else ("tool_calls", *_ANSWER), why)


def _mark_events(step: Step, unknowns: Unknowns) -> None:
    name = show(step.span.name)
    for event in step.span.events:
        if step.kind != "tool" and is_unread_call(event.name, event.attributes):
            unknowns.mark_unrecognised(CALL_PARTS, f"the event {show(event.name)} of the span {name} may be a tool call")
        for key in event.attributes if event.name.startswith("gen_ai.") else ():
            at, value = f"an event of the span {name}", event.attributes[key]
            if key not in _EVENT_FIELDS and not mark_near_miss(key, value, _EVENT_FIELDS, at, unknowns):
                check_field(key, value, at, unknowns, has_answer=True)


def is_unread_call(name: str, attributes: dict[str, object]) -> bool:
    """Return whether an unread event may be a call."""
    return not name.startswith(vocabulary.READ_EVENTS) and any(_OF_CALLS.search(word) for word in (name, *attributes))


# --- rules c and d: lost data and contradictions


def _mark_losses(trace: Trace, unknowns: Unknowns) -> None:
    """Mark parts that dropped or truncated attributes, spans known only from log records, and unrecorded calls may have contained."""
    for loss in trace.losses:
        step = trace.tree.by_id.get(loss.span_id)
        if step is None or (loss.key is not None and not may_hold_content(loss.key)):
            continue
        parts: tuple[Part, ...] = ("input", *CALL_PARTS, *_ANSWER)
        if step.kind == "tool":
            # The name of the tool may be among the dropped attributes.
            parts = CALL_PARTS[1:] if loss.key is not None or is_named_tool(step) else CALL_PARTS
        elif loss.key is None:
            parts = ("input", *_EVERYTHING)
        # A truncated text, or a second record of messages that were read elsewhere, hides no call.
        elif loss.is_text or (step.inputs is not None and step.outputs is not None):
            parts = ("input", *CALL_PARTS[1:], *_ANSWER)
        unknowns.mark_parts(parts, loss.what)
    event_only_spans = [span for span in trace.spans if span.events and is_event_only(span)]
    if any(event.name.startswith("gen_ai.") for span in event_only_spans for event in span.events):
        why = "log records belong to a request to a model whose span is missing from the trace"
        unknowns.mark_parts(("tool_calls", "tool_results", "answer", "turns", "usage"), why)
    # A model received the result of a call that is not recorded.
    joined = trace.joined
    if joined.has_stray_error:
        unknowns.mark("tool_results", "a result that reports an error answers no call in the trace")
    if joined.strays:
        whose = joined.strays[0].id or joined.strays[0].name
        unknowns.mark_parts(CALL_PARTS, f"a tool result{f' ({whose})' if whose else ''} answers no call in the trace: a call is missing")


def _mark_differences(trace: Trace, unknowns: Unknowns) -> None:
    """Mark calls that only one of several places lists, and the last answer if two places have different texts of it."""
    for exchange in trace.exchanges:
        for messages in exchange.list_records() if exchange.has_several_records() else ():
            _mark_unlisted(messages, exchange.calls, exchange.step, unknowns)
            if exchange in trace.requests[-1:] and differ(join_last_text(messages), exchange.text):
                unknowns.mark_parts(_ANSWER, f"two places of the span {show(exchange.step.span.name)} record different answers")
    for agent in trace.tree.list_kind("agent"):
        for messages in agent.list_answers() if agent.shape.answers or agent.span.events else ():
            if list_calls(messages):
                last = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
                _mark_unlisted(messages[last + 1 :], [entry.call for entry in trace.joined.calls], agent, unknowns)


def _mark_unlisted(messages: Sequence[Message], calls: Sequence[ToolCall], step: Step, unknowns: Unknowns) -> None:
    names = [name for call in calls for name in (call.name, *call.aliases)]
    for call in list_calls(messages):
        if not any(can_be_one_tool(call.name, name) for name in names):
            unknowns.mark_parts(
                CALL_PARTS, f"a place of the span {show(step.span.name)} lists a call of {show(call.name)}, and another does not"
            )


def _mark_orphans(trace: Trace, unknowns: Unknowns) -> None:
    """Mark parts that may be missing if the parent of a span is missing and the span does not cover the whole run.

    It shows the whole run if it is an agent with its input, a request or a message that another service sent, or a request to a model that
    repeats the conversation from a user's text on. Canonical spans show it if the only root has the answer.
    """
    tree, exchanges, canonical = trace.tree, trace.exchanges, trace.canonical
    of_step = {step: exchange for exchange in exchanges for step in exchange.steps}
    # Other roots do not cover it.
    local_roots = [root for root in tree.roots if not root.span.is_entry]
    is_apart = len({root.span.parent_id for root in local_roots}) > 1 and bool(exchanges)
    last = next((orphan for orphan in tree.orphans if orphan in local_roots), None) if is_apart else None
    if canonical and (len(tree.roots) > 1 or tree.roots[0].read_output()[0] is None):
        last = tree.orphans[-1]
    for orphan in () if is_apart or canonical else tree.orphans:
        loose = _list_loose_work(orphan)
        requests = [of_step[step] for step in loose if step in of_step]
        # Tool spans show which tools ran; only requests to a model show that no other tool did.
        if not all(exchange.list_questions() for exchange in requests) or (not exchanges and loose):
            last = orphan
            break
        # A loop does not end with a request for tools: their results went to a missing request.
        if any(exchange is exchanges[-1] and (exchange.calls or exchange.stopped_for_tools()) for exchange in requests):
            last = orphan
    if last is not None:
        why = f"the parent of the span {show(last.span.name)} is missing from the trace, so other spans may be missing, too"
        unknowns.mark_parts(("tool_calls", "usage", "nodes", "turns"), why)
    else:
        unknowns.note(f"the parent of the span {show(tree.orphans[0].span.name)} is missing from the trace")


def _list_loose_work(orphan: Step) -> list[Step]:
    """Return the outermost requests, tools and workflow steps at or below a span that do not belong to a complete run."""
    found: list[Step] = []
    waiting = [orphan]
    while waiting:
        step = waiting.pop()
        if step.span.is_entry or (step.kind == "agent" and step.find_input_text()):
            continue
        if step.kind in _INSIDE or vocabulary.N8N_TYPE in step.attributes:
            found.append(step)
        else:
            waiting.extend(step.children)
    return found


def _mark_text_calls(trace: Trace, unknowns: Unknowns) -> None:
    """Mark the calls unknown if a model wrote some as text, unless as many tools ran that no model requested."""
    # Inputs repeat outputs, often in another form; they count if an answer was not captured.
    silent = None in [exchange.outputs for exchange in trace.exchanges]
    texts = {
        message.text: exchange.step.span.name
        for exchange in trace.exchanges
        for side in ((exchange.inputs if silent else None), exchange.outputs)
        if side
        for message in side
        if message.role == "assistant" and message.text and not message.calls
    }
    written = [text for text in texts if call_in_words(text) is not None and not _ENDS_LOOP.search(text)]
    if len(written) > len(trace.joined.calls) - trace.joined.requested:
        unknowns.mark_parts(CALL_PARTS, f"a text in the span {show(texts[written[0]])} looks like a tool call, which is not read")


def _mark_choices(exchanges: Sequence[Exchange], unknowns: Unknowns) -> None:
    """Mark the used answer unknown if several were requested."""
    for exchange in exchanges:
        choices = exchange.step.choices if len(exchange.steps) == 1 else max([step.choices for step in exchange.steps])
        if choices < 2:
            continue
        at = f"the span {show(exchange.step.span.name)}"
        answers = [message for message in exchange.outputs or () if message.role == "assistant"]
        if len(answers) == choices:
            compare_choices(answers, at, unknowns)
        else:
            unknowns.mark_parts((*CALL_PARTS, "answer"), f"{at} requested {choices} answers and records {len(answers)} of them")


# --- rules e and f: early ends and failures


def _mark_ends(trace: Trace, unknowns: Unknowns) -> None:
    """Mark parts that may have followed a cut answer, a root span without an end, or a failed run."""
    own, calls = trace.requests, trace.calls
    answered = [exchange for exchange in own if exchange.outputs is not None]
    for exchange in trace.exchanges:
        why = next(filter(None, (step.explain_cut() for step in exchange.steps)), None) if exchange.outputs else None
        if why is None:
            continue
        why = f"the answer in the span {show(exchange.step.span.name)} {why}"
        if any(step.breaks_off() for step in exchange.steps):
            unknowns.mark_parts(CALL_PARTS, why)
        # Only the last answer is the run's; an earlier cut affects only its turn.
        if exchange in answered:
            unknowns.mark_parts(_ANSWER if exchange is answered[-1] else ("turns",), why)
    outer = dict.fromkeys((*trace.tree.roots, *trace.entries))
    if own:
        last = own[-1]
        why = None
        # OpenInference marks a request that follows a failed tool with the error of that tool.
        is_failed = last.step.failed and last.step.span.message not in trace.tool_errors
        if is_failed or (not last.outputs and any(step.failed for step in last.steps)):
            unknowns.mark_parts((*CALL_PARTS, *_ANSWER), f"the last request to a model, in the span {show(last.step.span.name)}, failed")
        call_names = {entry.call.name for entry in calls} if last.asks_application() else ()
        if call_names and any(call.name in call_names for call in last.calls):
            why = "asks for a tool, and nothing after it is recorded"
        elif last.outputs and not last.calls and calls and 0 < last.step.span.end_ns <= calls[-1].start_ns:
            why = "was followed by a tool, and nothing after it is recorded"
        texts = [step.read_output()[0] for step in outer] if why is not None else ()
        if why is not None and not any(text and text.strip() and (text != last.text or not last.calls) for text in texts):
            why = f"the last request to a model, in the span {show(last.step.span.name)}, {why}"
            unknowns.mark_parts(("tool_calls", *_ANSWER), why)
    # Canonical spans need no times, and a failure is the error of their run.
    for step in () if trace.canonical else outer:
        why = explain_failure(trace, step) or (None if step.kind in _NOT_RUNS or step.has_ended() else "has not ended")
        if why is not None:
            unknowns.mark_parts((*CALL_PARTS, "answer", "nodes"), f"the span {show(step.span.name)} {why}")


def explain_failure(trace: Trace, step: Step) -> str | None:
    """Explain how a span reports that the run failed, or return None."""
    if step.kind in _NOT_RUNS:
        return None
    message = step.span.message
    # OpenInference marks an agent with the error of a tool, also if the agent continued and answered.
    if step.failed and (message not in trace.tool_errors or not step.read_output()[0]):
        return f"ended in an error{f': {message}' if message else ''}"
    status = find_http_status(step)
    if status is not None and status >= 400:
        return f"reports HTTP status {status}"
    failure = find_failure({key: step.attributes[key] for key in step.shape.unrecognised}, own=True) if step.shape.unrecognised else None
    return f"reports {failure}" if failure is not None else None


def find_http_status(step: Step) -> int | None:
    """Return the HTTP status of a span."""
    return find_count(step.attributes, step.names["http_status"])


# --- calls and tokens


def _mark_calls(trace: Trace, unknowns: Unknowns) -> None:
    """Mark the calls unknown unless the spans show which tools were called."""
    tree, exchanges, calls = trace.tree, trace.exchanges, trace.calls
    # A request with unknown calls is acceptable only if the next one repeats its answer.
    requests_without_calls = [
        one
        for place, one in enumerate(exchanges, 1)
        if not one.knows_own_calls() and (place == len(exchanges) or not _is_repeated(one, exchanges[place]))
    ]
    if requests_without_calls:
        if not calls and any(exchange.stopped_for_tools() for exchange in requests_without_calls):
            unknowns.mark("tool_calls", "a model stopped to call tools, and neither its answer nor spans of tools are in the trace")
        how = "wholly captured" if any(exchange.calls for exchange in requests_without_calls) else "captured"
        why = f"the answer of {len(requests_without_calls)} of {len(exchanges)} requests to a model was not {how}"
        unknowns.mark_unrecognised(("tool_calls",), why)
        return
    if any(exchange.hides_hosted_tools() for exchange in exchanges):
        application_tools = {entry.call.name for entry in calls if not is_hosted_call(entry.call)}
        why = "a model may have used tools that its provider runs, whose calls were not recorded"
        unknowns.mark_other_tools(why, tuple(sorted(application_tools)))
    if exchanges:
        # An agent ran elsewhere, or left neither content nor spans of requests or tools, below it or outside of agents at its time.
        working = {step.above.get("agent") for kind in ("model", "tool", "agent") for step in tree.list_kind(kind)}
        idle = [step for step in tree.list_kind("agent") if step not in working]
        starts = sorted(one.step.span.start_ns for one in exchanges if "agent" not in one.step.above) if idle else []
        for step in idle:
            place = bisect_left(starts, step.span.start_ns)
            is_silent = not step.shape.has_texts and not (place < len(starts) and starts[place] < step.span.end_ns)
            if is_silent or step.span.is_remote or "tool" in step.above:
                unknowns.mark_unrecognised(("tool_calls",), f"no span records the work of the agent of the span {show(step.span.name)}")
        return
    has_outer_steps = tree.has_kind((*_AROUND, "tool"))
    # n8n writes a span for each node that ran, tools included.
    if not _covers_tools(tree) and (has_outer_steps or not any(vocabulary.N8N_TYPE in step.attributes for step in tree.steps)):
        why = "the trace has no spans of requests to a model" if has_outer_steps else "no span of the trace records tools"
        unknowns.mark_unrecognised(("tool_calls",), f"{why}; declare tool_calls complete if every tool call has a span")


def _covers_tools(tree: SpanTree) -> bool:
    """Return whether the tool spans of a trace without model spans are below an agent, or below a step of the same instrumentation."""
    for step in tree.list_kind("tool"):
        above = step.find_above(*_AROUND)
        if above is None or ("agent" not in step.above and (above.span.scope != step.span.scope or not step.span.scope)):
            return False
    return tree.has_kind(("tool",))


def _is_repeated(exchange: Exchange, after: Exchange) -> bool:
    """Return whether the next request repeats the uncaptured answer as an additional assistant message."""
    # A request inside a tool belongs to another conversation than one outside of it.
    if after.inputs is None or exchange.inputs is None or exchange.nested != after.nested:
        return False
    if any(step.unrecognised for step in (*exchange.steps, *after.steps)):
        return False
    earlier_answers = sum(message.role == "assistant" for message in exchange.inputs)
    repeated = [message for message in after.inputs if message.role == "assistant"][earlier_answers:]
    # Every call has a result, so the results in the next request cover all calls.
    if sum(len(message.results) for message in after.inputs) > sum(len(message.results) for message in exchange.inputs):
        return True
    if exchange.stopped_for_tools():
        return any(message.calls for message in repeated)
    return any(message.calls or (message.text and message.text.strip()) for message in repeated)


def _mark_call_details(trace: Trace, unknowns: Unknowns) -> None:
    """Mark arguments and results that the trace does not have."""
    calls = trace.calls
    bare = [entry.call.name for entry in calls if entry.call.arguments is None]
    if bare:
        unknowns.mark("tool_arguments", f"{len(bare)} of {len(calls)} calls have no recorded arguments, for example {show(bare[0])}")
    odd = [entry.call.name for entry in calls if not entry.agrees or _is_odd(entry.call.arguments)]
    if odd:
        unknowns.mark("tool_arguments", f"arguments of {show(odd[0])} are unknown: not an object, redacted, or two records disagree")
    unanswered = [entry.call.name for entry in calls if not entry.answered]
    if unanswered:
        unknowns.mark("tool_results", f"{len(unanswered)} calls have no recorded result, for example {show(unanswered[0])}")
    # A trace of only requests never shows a tool running; only one with enclosing spans does.
    refused = [entry.call.name for entry in calls if not entry.ended]
    if refused and trace.tree.has_kind((*_AROUND, "tool")):
        unknowns.mark("tool_results", f"no span shows that {show(refused[0])} ran, and its result in the next request may be a refusal")


def _is_odd(arguments: Json) -> bool:
    return find_removed(arguments) is not None if isinstance(arguments, dict) else arguments is not None


def mark_usage(usages: Sequence[Usage | None], unknowns: Unknowns) -> None:
    """Mark a sum of tokens unknown if a part is missing: it is only a lower bound. If no tokens are recorded, nothing is marked."""
    missing = usages.count(None)
    if 0 < missing < len(usages):
        unknowns.mark("usage", f"{missing} of {len(usages)} requests to a model do not report their tokens")
    for usage in usages:
        if usage is not None and (usage.input_tokens is None) != (usage.output_tokens is None) and usage.total_tokens is None:
            unknowns.mark("usage", f"a span reports no {'input' if usage.input_tokens is None else 'output'} tokens and no total")
