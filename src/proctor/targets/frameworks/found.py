"""The result of a framework reader: a document for the evidence readers, plus known facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from proctor.evidence.unknowns.endings import find_stop
from proctor.evidence.unknowns.markers import find_stop_marker
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.targets.answers.account import mark_unknown
from proctor.targets.frameworks.simplify import Budget

EVERYTHING: tuple[Part, ...] = (*CALL_PARTS, "answer")
LOOKS_WHOLE = "an answer that was cut at a limit of tokens, or by a filter, looks whole here"
"""Note for a framework that does not record why its model stopped."""
_LONGEST_STAND_IN = 400
"""Characters of a text that a framework writes in place of an answer; an answer that quotes one is longer."""
_STAND_INS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Sorry, need more steps to process this request\.$"), "the graph was stopped by its limit of steps (`recursion_limit`)"),
    (re.compile(r"Agent stopped due to .{1,40}$"), "the executor stopped the agent (`max_iterations`)"),
    (re.compile(r"Model call limits exceeded: (thread|run) limit \("), "the agent was stopped by its limit of model calls"),
    (re.compile(r".{1,80} call limit reached: (thread|run) limit exceeded \("), "the agent was stopped by its limit of tool calls"),
    (re.compile(r"Error in generating final LLM output: "), "the agent was stopped at `max_steps`, and its model gave no last answer"),
)


class Found(msgspec.Struct, kw_only=True):
    """What was found in a returned value."""

    document: Json
    """Read by `proctor.evidence.reading.read_document`."""
    format: str | None = "plain"
    body: Json = None
    """An answer in a given form."""
    usage: Usage | None = None
    calls: tuple[ToolCall, ...] | None = None
    """Calls that the document does not show; None: it shows all there are."""
    needs_message: bool = False
    """Whether it is a list of messages, which shows every call only from the input on."""
    unknowns: list[tuple[Part, str]] = []
    notes: list[str] = []
    failed: str | None = None
    """The error that ended the run, as recorded by the framework: an error message is not an answer."""
    is_over: bool = False
    """Whether the framework reports that the run ended, so that one that ends with a call was not cut off."""

    def mark(self, parts: Sequence[Part], why: str) -> None:
        """Note that these parts are unknown, or not wholly known."""
        self.unknowns = [*self.unknowns, *((part, why) for part in parts)]

    def mark_end(self, reason: object) -> None:
        """Note what the reason why the model stopped leaves open: an answer that was cut is not the whole of it."""
        word = getattr(reason, "value", reason)
        # Whether one that stopped to call tools called some is seen by its calls.
        sign = find_stop_marker(word) if isinstance(word, str) and find_stop(word) != "tools" else None
        if sign is not None:
            self.mark(sign.parts, sign.why)


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """How the values of one framework are recognised and read."""

    name: str
    """As its users write it."""
    page: str
    """The guide under `docs/how-to/frameworks/` that shows what to return."""
    packages: tuple[str, ...]
    """The packages that define its types."""
    read: Callable[[object, Budget], Found | None]
    """Reads one returned value; None where it is none of this framework's."""
    raised: tuple[str, ...] = ()
    """Prefixes of a result whose tool raised, if the framework records that only as text."""
    has_stop_reason: bool = True
    """Whether its values record why the model stopped; if not, a cut answer looks complete, and a note is added."""
    read_stream: Callable[[list[object], Budget], Found | None] | None = None
    """Reads what a stream, or a list, held; None where it is none of this framework's."""


def read_last(items: Sequence[object], read: Callable[[object, Budget], Found | None], budget: Budget) -> Found | None:
    """Read the last item of a stream or a list as the result; mark calls unknown if an earlier item is a result too."""
    found = read(items[-1], budget) if items else None
    if found is not None and any(type(item) is type(items[-1]) for item in items[:-1]):
        found.mark(CALL_PARTS, "several results were returned, and only the last of them is read")
    return found


def add_usage(parts: Sequence[tuple[Json, Json]]) -> Usage | None:
    """Return the sum of input and output tokens; None unless every part has both."""
    if not parts or any(type(number) is not int for part in parts for number in part):
        return None
    spent, written = sum(part[0] for part in parts), sum(part[1] for part in parts)
    return Usage(input_tokens=spent, output_tokens=written, total_tokens=spent + written)


def mark_stand_in(evidence: Evidence) -> Evidence:
    """Return evidence in which answer and calls are unknown if its text is one that a framework writes when it stops an agent.

    Tried with langchain 1.4, langgraph 1.2, smolagents 1.26: `tests/frameworks/returns.yaml`.
    """
    text = (evidence.text or "").strip() if len(evidence.text or "") <= _LONGEST_STAND_IN else ""
    why = next((why for words, why in _STAND_INS if words.match(text)), None)
    return evidence if why is None else mark_unknown(evidence, EVERYTHING, f"{why}: the text is not an answer", is_cause=True)
