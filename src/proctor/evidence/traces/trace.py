"""One trace: its spans as a tree, its requests to models, its calls, and the conversation in it (input, answer, turns).

Captured messages come first. The input and output of the outermost agent or chain are used if there are none, and to separate the text of
the user from the prompt that a framework made of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.join_calls import ObservedCall, join_calls
from proctor.evidence.traces.request import Exchange, find_exchanges
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.tool_span import find_output_tools, find_tool_name, find_tools
from proctor.evidence.traces.tree import read_tree
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.text import parse_json
from proctor.model.evidence import EvidenceTurn, Json, ToolCall
from proctor.model.show import show

_ENTRY_KINDS = (("agent",), ("workflow",), ("chain", "task", "step", "unknown"))
"""The input of an agent is nearest to the user's text; a workflow around agents comes next, mere steps last."""
_IS_OBJECT = re.compile(r"[\[{<]|\w+\(")
"""Prefixes of a text that is JSON or an object printed by Python."""
_Groups = list[tuple[str | None, list[Exchange]]]
"""The requests of each turn, with its question."""


class Trace:
    """One trace; `canonical` spans have Mibo's format."""

    def __init__(self, spans: Sequence[Span], *, canonical: bool) -> None:
        self.spans, self.canonical = spans, canonical
        self.tree, self.losses = read_tree(spans)
        self.exchanges = find_exchanges(self.tree)
        self.joined = join_calls(self.exchanges, find_tools(self.tree))
        self.calls = self._complete_calls() if self.joined.calls else []
        self.tool_errors = {step.span.message for step in self.tree.list_kind("tool") if step.failed and step.span.message}
        self.requests = self._find_agent_requests()
        """The requests of the agent itself, without those inside a tool or of an agent inside another one."""
        self.entries = self._find_entries()
        """The outermost spans with the agent's input or output, one for each time it was called."""

    def _complete_calls(self) -> list[ObservedCall]:
        """Return the calls with their nodes, except calls that only return the answer; a listed output tool that ran is a real call."""
        outputs, listed = find_output_tools(self.tree)
        hidden = {find_tool_name(step) for step in self.tree.steps if step.names["tool_arguments"]} if self.canonical else ()
        found: list[ObservedCall] = []
        for entry in self.joined.calls:
            call, holder = entry.call, entry.holder
            if call.name in outputs or (not entry.executed and call.name in listed):
                continue
            if self.canonical and call.arguments is None and call.name not in hidden:
                call = msgspec.structs.replace(call, arguments={})  # Canonical spans without arguments have empty arguments.
            if call.node is None and holder is not None:
                call = msgspec.structs.replace(call, node=holder.node_name)
            found.append(entry if call is entry.call else entry._replace(call=call))
        return found

    def _find_agent_requests(self) -> list[Exchange]:
        outside = [exchange for exchange in self.exchanges if not exchange.nested]
        if len(self.tree.list_kind("agent")) < 2:
            return outside
        talking = {exchange.step.above["agent"] for exchange in outside if "agent" in exchange.step.above}
        # An agent that another agent runs answers that agent and not the user.
        inner: set[Step | None] = set()
        for agent in talking if len(talking) > 1 else ():
            outer = agent.above.get("agent")
            while outer is not None and outer not in talking:
                outer = outer.above.get("agent")
            if outer is not None:
                inner.add(agent)
        return [exchange for exchange in outside if exchange.step.above.get("agent") not in inner] if inner else outside

    def _find_entries(self) -> list[Step]:
        groups = [[step for step in self.tree.steps if step.kind in kinds] for kinds in _ENTRY_KINDS if self.tree.has_kind(kinds)]
        # First those with an input; if there are none, those with an output.
        for is_input in (True, False):
            for group in groups:
                found: list[Step] = []
                covered: set[Step] = set()
                for step in group:
                    if "tool" in step.above or step in covered:
                        continue
                    if (step.find_input_text() if is_input else step.read_output()[0]) is not None:
                        found.append(step)
                        if len(group) > 1:
                            covered.update(step.list_below())  # Only the outermost counts: it called the ones below.
                if found:
                    return sorted(found, key=lambda step: step.span.start_ns)
        return []

    def find_input(self) -> Json:
        """Return the input: the last text of a user before the first request."""
        outer = self._find_outer_text()
        if outer is None:
            outer = next((text for step in self.entries if (text := _find_question(step)) is not None), None)
        questions = next((questions for exchange in self.requests if (questions := exchange.list_questions())), None)
        if questions is None or any(outer == text for exchange in self.requests for text in exchange.list_questions()[-1:]):
            return outer
        # If a framework wraps the question in its own prompt (CrewAI, DSPy), the outer span has the bare question.
        return outer if outer is not None and outer in questions[-1] else questions[-1]

    def _find_outer_text(self) -> str | None:
        """Return the input of the workflow around the agents, or else of the first agent."""
        workflows = [step.above["workflow"] for step in self.entries[:1] if "workflow" in step.above]
        return next((text for step in (*workflows, *self.entries) if (text := step.find_input_text()) is not None), None)

    # --- the answer

    def find_answer(self, unknowns: Unknowns) -> tuple[str | None, Json]:
        """Return the text of the answer and its body: the last text of the model, else the output of the outermost span."""
        # By Mibo's contract the root has the answer.
        if self.canonical and (answer := self._read_root_answer()) is not None:
            return answer
        # The model's own text first: an outer span may have a draft, a summary or a wrapping object. The outer output is used only if it
        # is part of the model's text, or if the last answer still calls a tool.
        inner = _find_last_text(self.requests)
        given = ((step, text) for step in reversed(self.entries) if (text := step.read_output()[0]) is not None and text.strip())
        giving, outer = next(given, (None, None))
        if inner is not None and (outer is None or (not self.requests[-1].calls and (outer not in inner or outer == inner))):
            if giving is not None and giving.read_output()[1] and differ(inner, outer):
                unknowns.mark("answer", f"the output of the span {show(giving.span.name)} and the last text of a model differ")
            return inner, _parse(inner, {"text": inner})
        if giving is not None and outer is not None:
            # Mark the answer of a step unknown if an enclosing step, which may have replaced it, returned a value without an answer.
            above = giving.find_above("agent", "workflow")
            while above is not None and "answer" not in unknowns.unknown:
                if above.read_output()[0] is None and above.decode_output()[0] is not None:
                    unknowns.mark("answer", f"the output of the span {show(above.span.name)} is not recognised")
                above = above.find_above("agent", "workflow")
            return outer, _parse(outer, giving.build_output())
        answer = self._read_root_answer()
        if answer is None and self.requests and all(exchange.outputs is None for exchange in self.requests):
            unknowns.mark("answer", "no answer of a model was captured in the trace")
        return answer or (None, None)

    def _read_root_answer(self) -> tuple[str, Json] | None:
        root = self.tree.root
        if root is None or root.kind in ("tool", "mcp") or vocabulary.N8N_TYPE in root.attributes:
            return None
        text, _ = root.read_output()
        return (text, _parse(text, root.build_output())) if text is not None and text.strip() else None

    # --- turns

    def find_turns(self) -> tuple[EvidenceTurn, ...] | None:
        """Return one turn for each text of a user, if there is more than one."""
        entries = self.entries
        if len(entries) < 2 and not any(exchange.list_questions() for exchange in self.requests):
            return None
        outer, groups = self._find_outer_text(), self._group_requests()
        # An agent that was called once and wrapped its question in a prompt: its other user messages are the framework's.
        first = groups[0][0] if groups and len(entries) == 1 and entries[0].kind == "agent" else None
        wrapped = outer is not None and first is not None and outer != first and outer in first
        if len(groups) > 1 and not wrapped and not _are_prompts([question for question, _ in groups], outer):
            return self._build_message_turns(groups)
        questions = [_find_question(step) for step in entries]
        # Steps of one run pass on the same question.
        if len(set(questions)) < 2 or None in questions or _are_prompts(questions, outer):
            return None
        # Return one turn for each time the agent was called, if the messages were not captured.
        entry_of_span = self._map_spans_to_entries()
        starts = [step.span.start_ns for step in entries]
        calls: dict[int, list[ToolCall]] = {}
        for entry in self.calls:
            calls.setdefault(entry_of_span.get(entry.holder, max(0, bisect_right(starts, entry.start_ns) - 1)), []).append(entry.call)
        turns: list[EvidenceTurn] = []
        for index, step in enumerate(entries):
            text, took_ms = step.read_output()[0], step.find_duration_ms()
            made = tuple(calls.get(index, ()))
            turns.append(EvidenceTurn(input=questions[index], text=text, body=parse_json(text), tool_calls=made, duration_ms=took_ms))
        return tuple(turns)

    def _group_requests(self) -> _Groups:
        groups: _Groups = []
        previous: list[str] = []
        for exchange in self.requests:
            questions = exchange.list_questions()
            # Every request repeats the earlier conversation, so a new question is a different last one or an additional one.
            is_new = bool(questions) and (questions[-1:] != previous[-1:] or len(questions) > len(previous))
            if is_new and groups and groups[-1][0] is not None and _is_waiting(groups[-1][1][-1], exchange):
                groups[-1][1].append(exchange)
                continue
            if is_new and groups and groups[-1][0] is None:
                groups[-1] = (questions[-1], groups[-1][1])  # Requests before the first question belong to it.
            elif is_new or not groups:
                groups.append((questions[-1] if questions else None, []))
            groups[-1][1].append(exchange)
            previous = questions or previous
        # Requests before the agent's own question belong to its turn.
        own = _find_question(self.entries[0]) if len(self.entries) == 1 and len(groups) > 1 else None
        place = next((place for place, (question, _) in enumerate(groups) if question == own), 0) if own is not None else 0
        return [(groups[place][0], [one for _, group in groups[: place + 1] for one in group]), *groups[place + 1 :]] if place else groups

    def _build_message_turns(self, groups: _Groups) -> tuple[EvidenceTurn, ...]:
        numbers = {id(exchange): index for index, (_, group) in enumerate(groups) for exchange in group}
        # Requests inside tools belong to no turn; the last request outside determines it.
        owner = [0]
        for exchange in self.exchanges:
            owner.append(numbers.get(id(exchange), owner[-1]))
        # If the agent was called once for each turn, the span of that call determines the turn of a tool.
        entry_of_span = self._map_spans_to_entries() if len(self.entries) == len(groups) else {}
        calls: dict[int, list[ToolCall]] = {}
        for entry in self.calls:
            calls.setdefault(entry_of_span.get(entry.holder, owner[entry.exchange + 1]), []).append(entry.call)
        turns: list[EvidenceTurn] = []
        for index, (question, group) in enumerate(groups):
            text = _find_last_text(group)
            if entry_of_span:
                # The agent's own input and output separate the texts of the user from the prompts and drafts of a framework.
                question = _choose_inner_or_outer(question, self.entries[index].find_input_text())
                text = _choose_inner_or_outer(text, self.entries[index].read_output()[0])
            usage = add_usage(exchange.find_usage() for exchange in group)
            turns.append(
                EvidenceTurn(input=question, text=text, body=parse_json(text), tool_calls=tuple(calls.get(index, ())), usage=usage)
            )
        return tuple(turns)

    def _map_spans_to_entries(self) -> dict[Step | None, int]:
        return {step: index for index, entry in enumerate(self.entries) for step in (entry, *entry.list_below())}


def differ(one: str | None, other: str | None) -> bool:
    """Return whether two plain texts differ and neither contains the other, ignoring white space."""
    if one == other:
        return False
    first, second = "".join((one or "").split()), "".join((other or "").split())
    return first not in second and second not in first and not _IS_OBJECT.match(first) and not _IS_OBJECT.match(second)


def _parse(text: str, otherwise: Json) -> Json:
    value = parse_json(text)
    return otherwise if value is None else value


def _find_question(entry: Step) -> str | None:
    """Return the input of an agent, from its span or from the messages that its first steps pass on."""
    span_input = entry.find_input_text()
    if span_input is not None:
        return span_input
    steps = (step for step in entry.children if step.kind in ("task", "chain", "step"))
    return next((text for step in steps if (text := step.find_forwarded_text()) is not None), None)


def _find_last_text(requests: Sequence[Exchange]) -> str | None:
    for exchange in reversed(requests):
        # A request whose answer was not captured is still the last one: an older answer must not replace it.
        if exchange.outputs is None and exchange.has_content():
            return None
        if exchange.text and exchange.text.strip():
            return exchange.text
    return None


def _choose_inner_or_outer(inner: str | None, outer: str | None) -> str | None:
    """Return the text of the messages, unless the outer text is a part of it."""
    if inner is None or not inner.strip() or (outer is not None and outer.strip() and outer in inner):
        return outer if outer is not None else inner
    return inner


def _is_waiting(before: Exchange, exchange: Exchange) -> bool:
    """Return whether a user cannot have written before a request, because the result of a call is still missing.

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


def _are_prompts(texts: Sequence[str | None], outer: str | None) -> bool:
    """Return whether user messages are prompts made by a framework: several of them contain the outer input."""
    return outer is not None and sum(text is not None and text != outer and outer in text for text in texts) > 1
