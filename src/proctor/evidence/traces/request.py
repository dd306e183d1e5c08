"""The requests to models, each once although several spans may record it.

A framework, the SDK below it and the HTTP client below that may each write a span for one request. Spans are the same request if one is
inside the other, if they have the id of the same response, if one records the start of a stream and the other its end, or if one without
content is within the time of one with content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.blocks import HOSTED
from proctor.evidence.shared.message import Message
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.step import Step
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.values.access import dict_or_empty
from proctor.model.evidence import ToolCall, Usage

MAX_PARALLEL = 32
"""How many calls of one tool, or requests, may run at once and still be recognised if two instrumentations record each of them."""


class Exchange:
    """One request to a model and its answer, recorded by one or more spans."""

    __slots__ = ("_questions", "calls", "inputs", "nested", "outputs", "step", "steps", "text")

    def __init__(self, step: Step) -> None:
        self._questions: list[str] | None = None if step.inputs else []
        self.steps = [step]
        self.step = step
        """The outermost span of it."""
        self.inputs = step.inputs
        """The messages that the model received, from the span with the most of them."""
        self.outputs = step.outputs
        self.calls = step.calls
        self.text = step.text
        self.nested = "tool" in step.above
        """Whether it happened inside a tool: another agent's conversation."""

    def add(self, steps: Iterable[Step]) -> None:
        """Add spans of the same request."""
        self._questions = None
        self.steps.extend(steps)
        self.inputs = max((step.inputs for step in self.steps if step.inputs is not None), key=_count_content, default=None)
        known = [step for step in self.steps if step.outputs is not None]
        if known:
            # Calls before text: a record without calls may have lost them, while recorded calls are real.
            best = next((step for step in known if step.calls), None) or next((step for step in known if step.text), known[0])
            self.outputs, self.calls, self.text = best.outputs, best.calls, best.text

    def list_questions(self) -> list[str]:
        """Return the texts of users in the messages that the model received, oldest first."""
        if self._questions is None:
            texts = [message.text for message in self.inputs or () if message.role == "user"]
            self._questions = [text for text in texts if text and text.strip()]
        return self._questions

    def hides_hosted_tools(self) -> bool:
        """Return whether the provider may have run hosted tools that no span of the request shows."""
        hiding = [step for step in self.steps if step.hides_hosted_tools()]
        return bool(hiding) and not any(step.is_whole for step in self.steps) and not all(map(self._shows_offers, hiding))

    def _shows_offers(self, step: Step) -> bool:
        """Return whether the span of a request, or the client's span below it, shows that only the application's tools were offered."""
        client = vocabulary.NAMES_SERVERS.get(step.span.scope)
        clients = [other.attributes for other in self.steps if client is not None and other.span.scope == client]
        if not clients or any("mcp" in str(attributes.get(vocabulary.BETA)) for attributes in clients):
            return False
        offered = map(dict_or_empty, step.list_offered_tools())
        return all(isinstance(tool.get("input_schema"), dict) or isinstance(tool.get("parameters"), dict) for tool in offered)

    def asks_application(self) -> bool:
        """Return whether the answer requests a tool that the application must run, so that it is not the last one."""
        if not self.calls:
            return False
        outputs = self.outputs or []
        # A text in a separate message after the calls was written after their results.
        last = max((place for place, message in enumerate(outputs) if message.text and message.text.strip()), default=0)
        # ADK records several requests in one span: the calls of the first ones are answered in its own input.
        answered = {result.id for message in self.inputs or () for result in message.results if result.id is not None}
        open_calls = [call for message in outputs[last:] for call in message.calls if not is_hosted_call(call) and call.id not in answered]
        return len(open_calls) > sum(len(message.results) for message in outputs)

    def knows_own_calls(self) -> bool:
        """Return whether the model's requests for the application's tools are known."""
        if any(step.unrecognised or step.loses_calls() for step in self.steps):
            return False
        # Recorded calls are known, unless their instrumentation loses some.
        if self.calls:
            return True
        if len(self.steps) == 1:
            return self.step.knows_calls()
        return not self.stopped_for_tools() and any(step.knows_calls() for step in self.steps)

    def has_several_records(self) -> bool:
        """Return whether several places may record the answer."""
        return len(self.steps) > 1 or self.step.shape.answers > 1 or bool(self.step.span.events)

    def list_records(self) -> list[list[Message]]:
        """Return the answer as recorded in places other than the one that is read."""
        found: list[list[Message]] = []
        for step in self.steps:
            if step.span.scope in vocabulary.UNRELIABLE:
                continue
            if step.shape.answers > 1 or step.span.events:
                found += step.list_answers()
            elif step.outputs is not None and len(self.steps) > 1:
                found.append(step.outputs)
        return [messages for messages in found if messages != self.outputs]

    def has_content(self) -> bool:
        """Return whether the request records more than the name of a model: some frameworks write a span for preparing a request."""
        return self.inputs is not None or self.outputs is not None or any(step.finish for step in self.steps)

    def stopped_for_tools(self) -> bool:
        """Return whether the finish reason is a request for tools."""
        return any(step.stopped_for_tools() for step in self.steps)

    def find_usage(self) -> Usage | None:
        """Return the tokens of the request once, from the span nearest to the provider."""
        return next((usage for step in reversed(self.steps) if (usage := step.find_usage()) is not None), None)

    def list_messages_of_turn(self) -> list[Message]:
        """Return the messages that the model received after the last text of a user."""
        inputs = self.inputs or []
        last = max((index for index, message in enumerate(inputs) if message.role == "user" and message.text), default=-1)
        return inputs[last + 1 :]


def is_hosted_call(call: ToolCall) -> bool:
    """Return whether the provider runs a tool itself."""
    return call.server is not None or f"{call.name}_call" in HOSTED


def _count_content(messages: list[Message]) -> tuple[int, int]:
    """Return the number of messages with content; a text that may not be recorded leaves an empty one."""
    return sum(bool(message.text or message.calls or message.results) for message in messages), len(messages)


def find_exchanges(tree: SpanTree) -> list[Exchange]:
    """Return the requests to models, each once, in order of their start."""
    found: list[Exchange] = []
    of_step: dict[Step, Exchange] = {}
    by_response: dict[str, Exchange] = {}
    for step in tree.list_kind("model"):
        # Spans of one request nest: framework, SDK, HTTP client. The outermost represents all of them.
        top = step
        while "model" in top.above:
            top = top.above["model"]
        response = step.find_response_id() if step.shape.has_response_id else None
        # Nesting is sufficient; an equal answer id must also be consistent in time and content.
        exchange = of_step.get(top)
        if exchange is None and response and response in by_response and _is_one_answer(by_response[response].steps[-1], step):
            exchange = by_response[response]
        # Only the request right before: the two halves of a stream follow each other, and only one of them has the answer.
        before = found[-1] if exchange is None and step.inputs is not None and found and not step.failed else None
        if before is not None and before.inputs == step.inputs and (before.outputs is None) != (step.outputs is None):
            exchange = before
        if exchange is None:
            exchange = Exchange(step)
            found.append(exchange)
        else:
            exchange.add([step])
        of_step[top] = exchange
        if response:
            by_response[response] = exchange
    return _merge_echoes(found)


def _is_one_answer(before: Step, step: Step) -> bool:
    """Return whether spans with the id of one answer record one request: some servers give all their answers the same id."""
    start, end = step.span.start_ns, before.span.end_ns
    if start and end and start < end:
        return True
    # Sequential spans can still be two records of one request if they do not contradict each other.
    for one, other in ((before.inputs, step.inputs), (before.outputs, step.outputs)):
        if one is not None and other is not None and one != other:
            return False
    # With times, one of them must have the answer: two spans without content may be two requests.
    return not (start and end) or before.outputs is not None or step.outputs is not None


def _merge_echoes(exchanges: list[Exchange]) -> list[Exchange]:
    """Merge requests that one instrumentation records with content and another, nearer to the provider, without."""
    # Only the latest few: a request cannot be inside one that ended long before, and traces can have thousands.
    recent: deque[Exchange] = deque(maxlen=MAX_PARALLEL)
    found: list[Exchange] = []
    for exchange in exchanges:
        if exchange.inputs is None and exchange.outputs is None:
            outer = next((other for other in reversed(recent) if is_within(exchange.step.span, other.step.span)), None) if recent else None
            if outer is not None:
                outer.add(exchange.steps)
                continue
        else:
            recent.append(exchange)
        found.append(exchange)
    return found


def is_within(inner: Span, outer: Span) -> bool:
    """Return whether a span is within the time of one of another instrumentation; two of the same one are two calls made at once."""
    return inner.scope != outer.scope and 0 < outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns
