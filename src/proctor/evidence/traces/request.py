"""One request to a model and its answer, seen by one or more spans."""

from __future__ import annotations

from collections.abc import Callable

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.blocks import HOSTED
from proctor.evidence.shared.conversation import Message
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces import vocabulary_scopes as scopes
from proctor.evidence.traces.model_span import Step, find_last_spoken
from proctor.evidence.traces.offered_tools import has_schema, list_offered_tools
from proctor.model.evidence import ToolCall, Usage


class Exchange:
    """One request to a model and its answer, seen by one or more spans."""

    __slots__ = ("nested", "steps")

    def __init__(self, step: Step, *, nested: bool) -> None:
        self.steps = [step]
        self.nested = nested
        """Whether it happened inside a tool: another agent's talk."""

    @property
    def span(self) -> Span:
        """The outermost span of it."""
        return self.steps[0].span

    @property
    def given(self) -> list[Message] | None:
        """The messages the model was given, from the span that tells most of them."""
        if len(self.steps) == 1:
            return self.steps[0].given  # nearly always
        return max((step.given for step in self.steps if step.given is not None), key=_count_told, default=None)

    @property
    def said(self) -> list[Message] | None:
        """What the model answered, from the span that tells most."""
        if len(self.steps) == 1:
            return self.steps[0].said
        known = [step for step in self.steps if step.said is not None]
        # Calls before text: a telling without calls may have lost them, and one with calls has not invented them.
        best = next((step for step in known if step.calls), None) or next((step for step in known if step.join_text()), None)
        return (best or known[0]).said if known else None

    def list_calls(self) -> list[ToolCall]:
        """Return the calls the model asked for."""
        said = self.said
        return [call for message in said for call in message.calls] if said else []

    def join_text(self) -> str | None:
        """Return what the model said to the user."""
        return find_last_spoken(self.said or ())

    def list_questions(self) -> list[str]:
        """Return what users said in the messages the model was given, oldest first."""
        given = self.given
        if not given:
            return []
        return [message.text for message in given if message.role == "user" and message.text and message.text.strip()]

    def hides_hosted_tools(self) -> bool:
        """Return whether the provider may have run tools of its own of which no span of the request tells."""
        hiding = [step for step in self.steps if step.hides_hosted_tools()]
        return bool(hiding) and not any(step.is_whole for step in self.steps) and not all(self._shows_offers(step) for step in hiding)

    def _shows_offers(self, step: Step) -> bool:
        """Return whether the span of a request, or the client's span below it, shows that only the application's tools were offered."""
        client = scopes.TELLS_SERVERS.get(step.span.scope)
        beside = [other.span.attributes for other in self.steps if client is not None and other.span.scope == client]
        if not beside or any("mcp" in str(attributes.get(names.BETA)) for attributes in beside):
            return False
        return all(has_schema(tool) for tool in list_offered_tools(step.span))

    def explain_cut(self) -> str | None:
        """Explain why the answer is not whole, or return None if the model came to its end."""
        return next((why for step in self.steps if (why := step.explain_cut()) is not None), None)

    def breaks_off(self) -> bool:
        """Return whether the answer ended before the model had come to an end."""
        return any(step.breaks_off() for step in self.steps)

    def asks_application(self) -> bool:
        """Return whether the answer asks for a tool that the application must run, so that it is not the last word."""
        said = self.said or []
        # A text in a message of its own behind the calls was said when they had been answered.
        last = max((place for place, message in enumerate(said) if message.text and message.text.strip()), default=0)
        results = sum(len(message.results) for message in said)
        asked = [call for message in said[last:] for call in message.calls if call.server is None and f"{call.name}_call" not in HOSTED]
        return len(asked) > results

    def knows_own_calls(self) -> bool:
        """Return whether it is known which tools of the application the model asked for."""
        for step in self.steps:
            if step.strange or step.span.scope in scopes.DROPS_CALLS or step.loses_calls():
                return False
        # Calls that were recorded are known, unless their instrumentation is one that loses some.
        if self.list_calls():
            return True
        if any(step.says_tools() for step in self.steps):
            return False
        return any(step.knows_calls() for step in self.steps)

    def tells_anything(self) -> bool:
        """Return whether the request tells more than the name of a model: some frameworks write a span for preparing one."""
        for step in self.steps:  # noqa: SIM110 - a generator takes twice as long
            if step.given is not None or step.said is not None or step.finish:
                return True
        return False

    def says_tools(self) -> bool:
        """Return whether a reason to stop says that tools were called."""
        return any(step.says_tools() for step in self.steps)

    def find_usage(self, usage_of: Callable[[Span], Usage | None]) -> Usage | None:
        """Return the tokens of the request once, from the span nearest to the provider."""
        return next((found for step in reversed(self.steps) if (found := usage_of(step.span)) is not None), None)

    def list_remembered_calls(self) -> list[ToolCall]:
        """Return the calls that the request repeats from this turn, after the last words of a user."""
        return [call for message in self.list_messages_of_turn() for call in message.calls]

    def list_messages_of_turn(self) -> list[Message]:
        """Return the messages that the model was given, after the last thing a user said."""
        given = self.given or []
        last = max((index for index, message in enumerate(given) if message.role == "user" and message.text), default=-1)
        return given[last + 1 :]


def _count_told(messages: list[Message]) -> tuple[int, int]:
    """Return how much messages tell; a text that must not be recorded leaves an empty one."""
    return sum(bool(message.text or message.calls or message.results) for message in messages), len(messages)
