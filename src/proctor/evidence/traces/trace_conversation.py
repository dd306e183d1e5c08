"""The conversation in a trace: the input, the answer and the turns.

Captured messages come first. The input and output of the outermost agent or chain are used if there are none, and to separate the text of
the user from the prompt that a framework made of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.join_calls import ObservedCall
from proctor.evidence.traces.model_span import find_duration_ms
from proctor.evidence.traces.nodes import build_node_output
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.traces.values import decode_output, find_forwarded_text
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.text import parse_json
from proctor.model.evidence import EvidenceTurn, Json, ToolCall
from proctor.model.show import show


def find_entries(tree: SpanTree) -> list[Span]:
    """Return the outermost spans with the agent's input or output, one for each time it was called."""
    found: list[Span] = []
    inside = tree.list_ids_below(tree.list_kind("tool"))
    covered: set[str] = set()
    # The input of an agent is nearest to the user's text; a workflow around agents comes next, mere steps last.
    groups = (("agent",), ("workflow",), ("chain", "task", "step", "unknown"))
    # First those with an input; if there are none, those with an output.
    for is_input in (True, False):
        for kinds in groups if tree.has_kind(("agent", "workflow", "chain", "task", "step", "unknown")) else ():
            for span in tree.list_kind(*kinds):
                if span.id in inside or span.id in covered:
                    continue
                if (tree.find_input_text(span) if is_input else tree.find_output_text(span)) is not None:
                    found.append(span)
                    # Only the outermost counts: it called what is below it.
                    covered |= tree.list_ids_below([span])
            if found:
                found.sort(key=lambda span: span.start_ns)
                return found
    return found


def find_agent_requests(tree: SpanTree, exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return the requests of the agent itself, without those inside a tool or of an agent inside another one."""
    outside = [exchange for exchange in exchanges if not exchange.nested]
    if len(tree.list_kind("agent")) < 2:
        return outside
    talking = {agent.id for exchange in outside if (agent := tree.find_nearest(exchange.span, _AGENT)) is not None}
    if len(talking) < 2:
        return outside
    # An agent that another agent runs answers that agent and not the user.
    inner = {id for id in talking if _has_above(tree, id, talking)}
    return [exchange for exchange in outside if (agent := tree.find_nearest(exchange.span, _AGENT)) is None or agent.id not in inner]


def _has_above(tree: SpanTree, id: str, talking: set[str]) -> bool:
    return any(above.id in talking for above in tree.iterate_above(tree.steps[id].span, _AGENT))


_AGENT = frozenset(("agent",))


def find_input(tree: SpanTree, talk: Sequence[Exchange], entries: Sequence[Span]) -> Json:
    """Return the input: the last text of a user before the first request."""
    outer = _find_outer_text(tree, entries) or next((text for span in entries if (text := _find_question(tree, span)) is not None), None)
    asked = next((exchange.list_questions() for exchange in talk if exchange.list_questions()), None)
    if asked is None or any(outer == text for exchange in talk for text in exchange.list_questions()[-1:]):
        return outer
    # A framework that wraps the question into a prompt of its own (CrewAI, DSPy) has the bare question on the outside.
    return outer if outer is not None and outer != asked[-1] and outer in asked[-1] else asked[-1]


def _find_question(tree: SpanTree, entry: Span) -> str | None:
    """Return the input of an agent, from its span or from the messages that its first steps pass on."""
    own = tree.find_input_text(entry)
    if own is not None:
        return own
    steps = (step for step in tree.children.get(entry.id, ()) if tree.find_kind(step) in _STEPS)
    return next((text for step in steps if (text := find_forwarded_text(step, tree.steps[step.id].shape, tree.hearings)) is not None), None)


_STEPS = ("task", "chain", "step")


def find_answer(
    tree: SpanTree, talk: Sequence[Exchange], entries: Sequence[Span], unknowns: Unknowns, *, root_first: bool
) -> tuple[str | None, Json]:
    """Return the text of the answer and its body: the last text of the model, else the output of the outermost span."""
    root = tree.root if tree.root is not None and tree.find_kind(tree.root) not in ("tool", "mcp") else None
    own = tree.find_output_text(root) if root is not None and vocabulary.N8N_TYPE not in root.attributes else None
    # By Mibo's contract the root has the answer.
    if root_first and root is not None and own is not None and own.strip():
        return own, _find_body(own, root, tree)
    # The model's own text first: an outer span may have a draft, a summary or a wrapping object. The outer output is better only if it is
    # part of the model's text, or if the last answer still calls a tool.
    inner = _find_last_text(talk)
    giving = next((span for span in reversed(entries) if (text := tree.find_output_text(span)) is not None and text.strip()), None)
    outer = tree.find_output_text(giving) if giving is not None else None
    if inner is not None and (outer is None or outer not in inner or outer == inner) and not (outer is not None and talk[-1].calls):
        if talk[-1].asks_application() and not root_first:
            unknowns.mark("answer", "the last answer of a model in the trace requests a tool, and no answer after it is recorded")
        return inner, _parse(inner, {"text": inner})
    if outer is not None and giving is not None:
        _mark_inner_answer(tree, giving, unknowns)
        return outer, _find_body(outer, giving, tree)
    if root is not None and own is not None and own.strip():
        return own, _find_body(own, root, tree)
    if talk and all(exchange.outputs is None for exchange in talk):
        unknowns.mark("answer", "no answer of a model was captured in the trace")
    return None, None


def _mark_inner_answer(tree: SpanTree, giving: Span, unknowns: Unknowns) -> None:
    """Mark the answer of a step unknown if a step around it returned something without a recognised answer."""
    # From the step with the answer outwards: any step around it may have replaced the answer.
    for above in tree.iterate_above(giving, _AROUND):
        if "answer" in unknowns.unknown:
            return
        if decode_output(above.attributes, tree.steps[above.id].shape)[0] is not None and tree.find_output_text(above) is None:
            unknowns.mark("answer", f"the output of the span {show(above.name)} is not recognised")


_AROUND = frozenset(("agent", "workflow"))


def _find_body(text: str, span: Span, tree: SpanTree) -> Json:
    return _parse(text, build_node_output(tree, span))


def _parse(text: str, otherwise: Json) -> Json:
    value = parse_json(text)
    return otherwise if value is None else value


def _find_last_text(talk: Sequence[Exchange]) -> str | None:
    for exchange in reversed(talk):
        if exchange.outputs is None:
            # A request whose answer was not captured is still the last one: an older answer must not replace it.
            if not exchange.has_content():
                continue
            return None
        text = exchange.text
        if text and text.strip():
            return text
    return None


def find_turns(
    tree: SpanTree, talk: Sequence[Exchange], exchanges: Sequence[Exchange], made: Sequence[ObservedCall], entries: Sequence[Span]
) -> tuple[EvidenceTurn, ...] | None:
    """Return one turn for each text of a user, if there is more than one."""
    if len(entries) < 2 and not any(exchange.list_questions() for exchange in talk):
        return None
    groups = _merge_side_requests(_group_talk(talk), tree, entries)
    outer = _find_outer_text(tree, entries)
    wrapped = len(entries) == 1 and tree.find_kind(entries[0]) == "agent" and _is_wrapped(groups, outer)
    if len(groups) > 1 and not wrapped and not _are_prompts([asked for asked, _ in groups], outer):
        numbers = {id(exchange): index for index, (_, group) in enumerate(groups) for exchange in group}
        owner = [numbers.get(id(exchange), -1) for exchange in exchanges]
        # If the agent was called once for each turn, the span of that call determines the turn of a tool.
        inside = _map_spans_to_entries(tree, entries) if len(entries) == len(groups) else {}
        said = [_find_last_text(group) for _, group in groups]
        calls: dict[int, list[ToolCall]] = {}
        for entry in made:
            calls.setdefault(_turn_of(entry, owner, inside), []).append(entry.call)
        if inside:
            # The agent's own input and output separate the texts of the user from the prompts and drafts of a framework.
            outer = [(tree.find_input_text(span), tree.find_output_text(span)) for span in entries]
            groups = [(_choose_inner_or_outer(asked, given), group) for (asked, group), (given, _) in zip(groups, outer, strict=True)]
            said = [_choose_inner_or_outer(text, given) for text, (_, given) in zip(said, outer, strict=True)]
        return tuple(
            EvidenceTurn(
                input=asked,
                text=said[index],
                body=parse_json(said[index]),
                tool_calls=tuple(calls.get(index, ())),
                usage=add_usage(exchange.find_usage(tree) for exchange in group),
            )
            for index, (asked, group) in enumerate(groups)
        )
    asked = [_find_question(tree, span) for span in entries]
    # Steps of one run pass the same question on to each other.
    if len(set(asked)) > 1 and None not in asked and not _are_prompts(asked, outer):
        return _build_entry_turns(tree, entries, made)
    return None


def _choose_inner_or_outer(inner: str | None, outer: str | None) -> str | None:
    """Return the text of the messages, unless the outer text is a part of it."""
    if inner is None or not inner.strip() or (outer is not None and outer.strip() and outer in inner):
        return outer if outer is not None else inner
    return inner


def _map_spans_to_entries(tree: SpanTree, entries: Sequence[Span]) -> dict[str | None, int]:
    """Return for each span the index of the agent call that it is part of."""
    found: dict[str | None, int] = {}
    for index, span in enumerate(entries):
        found.update(dict.fromkeys((span.id, *tree.list_ids_below([span])), index))
    return found


def _turn_of(entry: ObservedCall, owner: Sequence[int], inside: dict[str | None, int]) -> int:
    """Return the turn of a call: that of the request that asked for it, or of the last request before it."""
    if entry.holder in inside:
        return inside[entry.holder]
    number = entry.exchange
    # Requests inside tools belong to no turn; the last request outside determines it.
    while number >= 0 and owner[number] < 0:
        number -= 1
    return owner[number] if number >= 0 else 0


def _group_talk(talk: Sequence[Exchange]) -> list[tuple[str | None, list[Exchange]]]:
    groups: list[tuple[str | None, list[Exchange]]] = []
    before: list[str] = []
    for exchange in talk:
        asked = exchange.list_questions()
        # Every request repeats the conversation before it, so a new question is another last one or one more.
        new = asked and (asked[-1] != (before[-1] if before else None) or len(asked) > len(before))
        if new and groups and groups[-1][0] is not None and _is_waiting(groups[-1][1][-1], exchange):
            groups[-1][1].append(exchange)
            continue
        if groups and groups[-1][0] is None and new:
            groups[-1] = (asked[-1], groups[-1][1])  # Requests before the first question belong to it.
        elif not groups or new:
            groups.append((asked[-1] if asked else None, []))
        groups[-1][1].append(exchange)
        before = asked or before
    return groups


def _is_waiting(before: Exchange, exchange: Exchange) -> bool:
    """Return whether a user cannot have spoken before a request: a tool was called, and its result is still missing.

    A guardrail, or an agent that takes over, gets instructions from the framework that look like a user's text.
    """
    hosted = any(message.results for message in before.outputs or ()) or any(call.server for call in before.calls)
    if not before.calls or hosted or before.hides_hosted_tools():
        return False  # Hosted tools end with the answer.
    # A span may record several requests, and the results between them.
    answered = {result.id for message in before.inputs or () for result in message.results}
    if all(call.id in answered for call in before.calls):
        return False
    given = exchange.inputs or []
    return not any(message.results for message in given) or not (given[-1].role == "user" and given[-1].text)


def _merge_side_requests(
    groups: list[tuple[str | None, list[Exchange]]], tree: SpanTree, entries: Sequence[Span]
) -> list[tuple[str | None, list[Exchange]]]:
    """Move requests before the agent's own question into the turn of that question."""
    outer = _find_question(tree, entries[0]) if len(entries) == 1 else None
    first = next((index for index, (asked, _) in enumerate(groups) if asked == outer), 0) if outer is not None else 0
    if not first:
        return groups
    return [(groups[first][0], [exchange for _, group in groups[: first + 1] for exchange in group]), *groups[first + 1 :]]


def _are_prompts(texts: Sequence[str | None], outer: str | None) -> bool:
    """Return whether users' messages are prompts made by a framework: several of them contain the outer input."""
    return outer is not None and sum(text is not None and text != outer and outer in text for text in texts) > 1


def _is_wrapped(groups: Sequence[tuple[str | None, list[Exchange]]], outer: str | None) -> bool:
    """Return whether an agent that was called once wrapped its question in a prompt: its other user messages are the framework's."""
    first = groups[0][0] if groups else None
    return outer is not None and first is not None and outer != first and outer in first


def _find_outer_text(tree: SpanTree, entries: Sequence[Span]) -> str | None:
    """Return the input of the workflow around the agents if it has one, else of the first agent."""
    around = [tree.find_nearest(span, _WORKFLOW) for span in entries[:1]]
    return next((text for span in (*around, *entries) if span is not None and (text := tree.find_input_text(span)) is not None), None)


_WORKFLOW = frozenset(("workflow",))


def _build_entry_turns(tree: SpanTree, entries: Sequence[Span], made: Sequence[ObservedCall]) -> tuple[EvidenceTurn, ...]:
    """Return one turn for each time the agent was called, if the messages were not captured."""
    inside = _map_spans_to_entries(tree, entries)
    starts = [span.start_ns for span in entries]
    calls: dict[int, list[ToolCall]] = {}
    for entry in made:
        index = inside[entry.holder] if entry.holder in inside else max(0, bisect_right(starts, entry.start_ns) - 1)
        calls.setdefault(index, []).append(entry.call)
    return tuple(
        EvidenceTurn(
            input=_find_question(tree, span),
            text=(text := tree.find_output_text(span)),
            body=parse_json(text),
            tool_calls=tuple(calls.get(index, ())),
            duration_ms=find_duration_ms(span),
        )
        for index, span in enumerate(entries)
    )
