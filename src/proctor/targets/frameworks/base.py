"""Helpers that inspect framework objects without importing the framework, and `RunData`, the result of every framework reader.

An object is recognised by the names of its classes and their modules, so users' subclasses are recognised too. A missing member is None;
a member that raises on access makes the whole value unreadable (`callable.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, cast

import msgspec

from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.markers import find_stop_marker
from proctor.evidence.unknowns.statuses import find_stop
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.targets.answers.account import mark_unknown, trust_start
from proctor.targets.answers.plain_values import Unreadable, type_name
from proctor.targets.frameworks.simplify import Budget, simplify

_BUILT_IN = frozenset((dict, list, tuple, str, int, float, bool, type(None)))
MAX_ITEMS = 100_000


def is_instance_of(value: object, package: str, *names: str) -> bool:
    """Return whether the type of a value, or a class it inherits from, has one of these names and is defined in this package."""
    if type(value) in _BUILT_IN:  # the most common return types, checked first because every framework is tried in turn
        return False
    return any(kind.__name__ in names and f"{kind.__module__}.".startswith(f"{package}.") for kind in type(value).__mro__)


def find_package(value: object) -> str:
    """Return the full module that defines the type of a value: `google.adk.events.event`."""
    return type(value).__module__


def read_member(value: object, name: str) -> Any:
    """Return a member of an object, or None if it is missing."""
    return getattr(value, name, None)


def call_member(value: object, name: str, *arguments: object) -> Any:
    """Return the result of an object's method. Raises `Unreadable` if it is missing."""
    method = read_member(value, name)
    if not callable(method):
        raise Unreadable(f"{type_name(value)} has no method {name}")
    return method(*arguments)


def list_members(value: object, name: str) -> list[Any]:
    """Return a member that is a list or a tuple as a list; an empty list if it is None."""
    members = read_member(value, name)
    if members is None:
        return []
    if not isinstance(members, (list, tuple)):
        raise Unreadable(f"{type_name(value)}.{name} is of the type {type_name(members)}, expected a list")
    return take_items(cast("Iterable[object]", members))


def are_instances(items: Sequence[object], package: str, *names: str) -> bool:
    """Return whether there are items, and all of them have one of these types."""
    return bool(items) and all(is_instance_of(item, package, *names) for item in items)


def join_texts(objects: Iterable[object], name: str, budget: Budget) -> str:
    """Join the text of one member of these objects, which are the pieces of a stream."""
    pieces = [piece for value in objects if isinstance(piece := read_member(value, name), str)]
    for piece in pieces:
        budget.spend(len(piece))
    return "".join(pieces)


def take_items(items: Iterable[object]) -> list[Any]:
    """Return the items as a list. Raises `Unreadable` if there are too many."""
    listed = list(items)
    if len(listed) > MAX_ITEMS:
        raise Unreadable(f"it holds {len(listed)} items, more than {MAX_ITEMS}")
    return listed


def find_entry(value: object, key: str) -> Any:
    """Return an entry of a mapping, or None if it is missing or the value is not a mapping."""
    return cast("Mapping[object, object]", value).get(key) if isinstance(value, Mapping) else None


EVERYTHING: tuple[Part, ...] = (*CALL_PARTS, "answer")
LOOKS_WHOLE = "an answer that was cut at a limit of tokens, or by a filter, looks whole here"
"""Note for a framework that does not record why its model stopped."""
_LONGEST_STAND_IN = 400
"""Characters of a text that a framework writes instead of an answer; an answer that quotes one is longer."""
_STAND_INS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Sorry, need more steps to process this request\.$"), "the graph was stopped by its limit of steps (`recursion_limit`)"),
    (re.compile(r"Agent stopped due to .{1,40}$"), "the executor stopped the agent (`max_iterations`)"),
    (re.compile(r"Model call limits exceeded: (thread|run) limit \("), "the agent was stopped by its limit of model calls"),
    (re.compile(r".{1,80} call limit reached: (thread|run) limit exceeded \("), "the agent was stopped by its limit of tool calls"),
    (re.compile(r"Error in generating final LLM output: "), "the agent was stopped at `max_steps`, and its model gave no last answer"),
)


class RunData(msgspec.Struct, kw_only=True):
    """What a framework reader extracts from one returned value or stream."""

    document: Json
    """Read by `proctor.evidence.reading.read_document`."""
    format: str | None = "plain"
    body: Json = None
    """A structured answer."""
    usage: Usage | None = None
    calls: tuple[ToolCall, ...] | None = None
    """Calls that the document does not show; None: the document is complete."""
    needs_message: bool = False
    """Whether it is a list of messages, which shows every call only if it starts with the input."""
    unknowns: list[tuple[Part, str]] = []
    notes: list[str] = []
    failed: str | None = None
    """The error that ended the run, as recorded by the framework: an error message is not an answer."""
    is_over: bool = False
    """Whether the framework reports that the run ended, so a call at the end does not mean that the recording was cut."""

    def mark(self, parts: Sequence[Part], why: str) -> Self:
        """Mark these parts as unknown, or not completely known."""
        self.unknowns = [*self.unknowns, *((part, why) for part in parts)]
        return self

    def mark_calls(self, why: str) -> Self:
        """Mark the calls as unknown, or not completely known."""
        return self.mark(CALL_PARTS, why)

    def mark_all(self, why: str) -> Self:
        """Mark the calls and the answer as unknown."""
        return self.mark(EVERYTHING, why)

    def add_body(self, value: object, budget: Budget, path: str) -> None:
        """Store a structured answer; a string is already the text answer."""
        if value is not None and not isinstance(value, str):
            self.body = simplify(value, budget, path)

    def add_run(self, run: RunData, label: str) -> Evidence:
        """Add the calls and the unknown parts of a nested run, and return its evidence; `label` names the nested run in messages."""
        evidence = trust_start(read_document(run.document, format=run.format)[0])
        for part, why in (*(evidence.account.unknown.items() if evidence.account is not None else ()), *run.unknowns):
            if part in CALL_PARTS:
                self.mark((part,), f"{label}: {why}")
        self.calls = (*(self.calls or ()), *(evidence.tool_calls or ()), *(run.calls or ()))
        return evidence

    def mark_end(self, reason: object) -> None:
        """Mark the parts that a stop reason leaves unknown, such as the answer if it was cut off."""
        word = getattr(reason, "value", reason)
        # The calls themselves show whether a model that stopped for tools called any.
        marker = find_stop_marker(word) if isinstance(word, str) and find_stop(word) != "tools" else None
        if marker is not None:
            self.mark(marker.parts, marker.why)


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """How the values of one framework are recognised and read."""

    name: str
    """As users spell it."""
    page: str
    """The guide under `docs/how-to/frameworks/` that explains the return value."""
    packages: tuple[str, ...]
    """The packages that define its types."""
    read: Callable[[object, Budget], RunData | None]
    """Reads one returned value; returns None if it does not belong to this framework."""
    raised: tuple[str, ...] = ()
    """Prefixes of a result whose tool raised, if the framework records that only as text."""
    has_stop_reason: bool = True
    """Whether its values record why the model stopped; if not, a cut answer looks complete, and a note is added."""
    read_stream: Callable[[list[object], Budget], RunData | None] | None = None
    """Reads the items of a stream or a list; returns None if they do not belong to this framework."""


def read_last(items: Sequence[object], read: Callable[[object, Budget], RunData | None], budget: Budget) -> RunData | None:
    """Read the last item of a stream or a list as the result; mark calls unknown if an earlier item is a result too."""
    run = read(items[-1], budget) if items else None
    if run is not None and any(type(item) is type(items[-1]) for item in items[:-1]):
        run.mark_calls("several results were returned, and only the last of them is read")
    return run


def add_usage(usages: Iterable[object], input_name: str, output_name: str) -> Usage | None:
    """Return the summed tokens of objects or mappings with these two members; None if one of them lacks a member."""
    inputs: list[Any] = []
    outputs: list[Any] = []
    for usage in usages:
        find = find_entry if isinstance(usage, Mapping) else read_member
        inputs.append(find(usage, input_name))
        outputs.append(find(usage, output_name))
    if not inputs or any(type(number) is not int for number in (*inputs, *outputs)):
        return None
    return Usage(input_tokens=sum(inputs), output_tokens=sum(outputs), total_tokens=sum(inputs) + sum(outputs))


def mark_stand_in(evidence: Evidence) -> Evidence:
    """Return evidence with unknown answer and calls if its text is one that a framework writes when it stops an agent.

    Tried with langchain 1.4, langgraph 1.2, smolagents 1.26: `tests/frameworks/returns.yaml`.
    """
    text = (evidence.text or "").strip() if len(evidence.text or "") <= _LONGEST_STAND_IN else ""
    why = next((why for words, why in _STAND_INS if words.match(text)), None)
    return evidence if why is None else mark_unknown(evidence, EVERYTHING, f"{why}: the text is not an answer", is_cause=True)
