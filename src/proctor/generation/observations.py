"""Collects what the runs of a group have in common, run by run, in bounded memory.

A property is recorded with the first run and dropped with the first run that lacks it, so the runs themselves are not stored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from proctor.cassettes.redaction import names_a_secret, redact, redact_text
from proctor.checks.tools.data_flow import (
    find_leaves,
    is_in_text,
    list_leaves,
    list_sources,
    list_written,
    read_answer_text,
    read_input_text,
    read_result,
)
from proctor.generation.volatile import find_rule
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.json_values import is_number
from proctor.mutation.call_edits import list_calls, list_steps

MOST_VALUES = 6
"""Different values of an argument that are stored."""
_MOST_FLOWS = 40
_MOST_WORDS = 60
_MOST_TOOLS = 30
_MOST_MEMBERS = 20
_MOST_SAMPLES = 16
"""Runs of a group that are stored, on which its claims are decided."""
_MOST_SOURCES = 3
_WORD = re.compile(r"[^\W\d_]{5,}")
_ANY_WORD = re.compile(r"[^\W\d_]+")
NEGATION = r"\b(not|no|nothing|cannot|can't|couldn't|unable|failed|nicht|kein\w*)\b"
_NEGATES = re.compile(NEGATION, re.IGNORECASE)
_ENDS = re.compile(r"[.!?…)\]]\W*$")


class Flow(NamedTuple):
    """A source of an argument: the input, or a place in the result of a tool."""

    tool: str | None
    path: str = ""


class Repeated(NamedTuple):
    """A value that answers repeat: an argument, or a place in the result."""

    tool: str
    argument: str | None
    path: str | None


class ArgumentFacts(msgspec.Struct):
    """An argument of a tool over all calls."""

    calls: int = 0
    values: dict[bytes, Json] | None = {}
    """The different values by their JSON; None if there are too many."""
    kinds: set[str] = set()
    shape: str | None = None
    """A pattern that fits every value, if the values are short texts of one form."""
    secret: bool = False
    """Whether a value has a secret, by the rules for stored data; claims never repeat it."""
    rule: str | None = None
    """The rule of `volatile` by which every value changes from run to run."""
    flows: set[Flow] | None = None
    """The sources that had the value in every call so far; None before the first."""


class ToolFacts(msgspec.Struct):
    """A tool over all runs that called it."""

    runs: int = 0
    calls: int = 0
    least: int = 0
    most: int = 0
    failed: int = 0
    least_succeeded: int = 0
    most_succeeded: int = 0
    arguments: dict[str, ArgumentFacts] = {}
    only_objects: bool = True
    """Whether the arguments of every call were recorded as an object."""


class ChangeFacts(msgspec.Struct):
    """Changes of one kind at one place of a simulated system."""

    runs: int = 0
    most: int = 0
    least: int = 0
    fields: dict[str, Json] | None = None
    """The members that had the same value in every run with exactly one such change."""


class GroupFacts(msgspec.Struct):
    """Everything known about the runs of one group."""

    runs: int = 0
    inputs: set[int] = set()
    """Hashes of the different inputs, up to a few."""
    samples: list[Evidence] = []
    sources: list[str] = []
    tools: dict[str, ToolFacts] = {}
    order: set[tuple[str, str]] | None = None
    """Pairs of tools of which the first was always called before the second."""
    words: set[str] | None = None
    """Words that every answer has."""
    repeated: set[Repeated] | None = None
    answers: int = 0
    ends: bool = True
    """Whether every answer ends like a sentence."""
    negates: bool = True
    """Whether every answer has a word that negates."""
    slowest_ms: float | None = None
    most_tokens: int | None = None
    timed: int = 0
    counted: int = 0
    stated: int = 0
    """Runs with recorded changes of the end state."""
    nodes: dict[str, int] = {}
    """The steps of a workflow, and how many runs had them."""
    members: dict[str, ArgumentFacts] | None = {}
    """The members of answers that are a JSON object; None if there are too many."""
    objects: int = 0
    """Runs with such an answer."""
    changes: dict[tuple[str, str, str], ChangeFacts] = {}

    def add(self, evidence: Evidence, source: str) -> None:
        """Add a run."""
        self.runs += 1
        if len(self.samples) < _MOST_SAMPLES:
            self.samples.append(evidence)
        elif self.runs & (self.runs - 1) == 0:
            # Later runs replace some, so that the samples are not all from the beginning.
            self.samples[self.runs.bit_length() % _MOST_SAMPLES] = evidence
        if len(self.sources) < _MOST_SOURCES:
            self.sources.append(source)
        if len(self.inputs) < 100:
            self.inputs.add(hash(read_input_text(evidence)))
        calls = list_calls(evidence)
        self._add_tools(evidence, calls)
        self._add_order(calls)
        self._add_answer(evidence, calls)
        self._add_measures(evidence)
        self._add_changes(evidence)
        for name in dict.fromkeys(node.name for node in list_steps(evidence)):
            self.nodes[name] = self.nodes.get(name, 0) + 1

    def choose_example(self) -> tuple[Evidence, bool]:
        """Return the most typical stored run, preferably without a secret, and whether it has one.

        Its input has the most words that over half of the inputs share; of several, the shortest is chosen.
        """
        words = [set(_ANY_WORD.findall(read_input_text(each))) for each in self.samples]
        counts = Counter(word for each in words for word in each)
        common = {word for word, count in counts.items() if 2 * count > len(words)}

        def rank(at: int) -> tuple[bool, int, int, int]:
            evidence = self.samples[at]
            inputs: list[Json] = [evidence.input, *(turn.input for turn in evidence.turns or ())]
            return redact(inputs) != inputs, len(common - words[at]), len(str(evidence.input)), at

        best = min(rank(at) for at in range(len(self.samples)))
        return self.samples[best[-1]], best[0]

    def _add_tools(self, evidence: Evidence, calls: tuple[ToolCall, ...]) -> None:
        counts: Counter[str] = Counter(call.name for call in calls)
        succeeded: Counter[str] = Counter(call.name for call in calls if not call.failed())
        text = read_input_text(evidence) if calls else ""
        for at, call in enumerate(calls):
            if call.name not in self.tools and len(self.tools) >= _MOST_TOOLS:
                continue
            facts = self.tools.setdefault(call.name, ToolFacts())
            facts.calls += 1
            facts.failed += call.failed()
            if not isinstance(call.arguments, dict):
                facts.only_objects = False
                continue
            for name, value in call.arguments.items():
                argument = facts.arguments.setdefault(name, ArgumentFacts())
                argument.secret = argument.secret or is_secret(name, value)
                _add_argument(argument, value, calls[:at], text)
        for name, facts in self.tools.items():
            count, worked = counts[name], succeeded[name]
            facts.runs += count > 0
            facts.least = min(facts.least, count) if self.runs > 1 else count
            facts.most = max(facts.most, count)
            facts.least_succeeded = min(facts.least_succeeded, worked) if self.runs > 1 else worked
            facts.most_succeeded = max(facts.most_succeeded, worked)

    def _add_order(self, calls: tuple[ToolCall, ...]) -> None:
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for at, call in enumerate(calls):
            first.setdefault(call.name, at)
            last[call.name] = at
        pairs = {(one, other) for one in last for other in first if one != other and last[one] < first[other]}
        self.order = pairs if self.order is None else self.order & pairs

    def _add_answer(self, evidence: Evidence, calls: tuple[ToolCall, ...]) -> None:
        answer = read_answer_text(evidence)
        self.answers += bool(answer)
        document, members = _read_object(evidence), self.members
        self.objects += document is not None
        if document is not None and members is not None:
            for name, value in document.items():
                member = members.setdefault(name, ArgumentFacts())
                member.secret = member.secret or is_secret(name, value)
                _add_argument(member, value, calls, read_input_text(evidence))
            self.members = members if len(members) <= _MOST_MEMBERS else None
        self.ends = self.ends and bool(_ENDS.search(answer))
        self.negates = self.negates and bool(_NEGATES.search(answer))
        if self.words is None:
            self.words = set(list(dict.fromkeys(_WORD.findall(answer)))[:_MOST_WORDS])
        elif self.words:
            self.words = {word for word in self.words if word in answer}
        if self.repeated is None:
            candidates: dict[Repeated, None] = {}
            for call in calls:
                if isinstance(call.arguments, dict):
                    candidates.update(dict.fromkeys(Repeated(call.name, name, None) for name in call.arguments))
                candidates.update(dict.fromkeys(Repeated(call.name, None, path) for path, _ in list_leaves(read_result(call.result))))
            self.repeated = {each for each in list(candidates)[: _MOST_FLOWS * 2] if _is_repeated(each, calls, answer)}
        elif self.repeated:
            self.repeated = {each for each in self.repeated if _is_repeated(each, calls, answer)}

    def _add_measures(self, evidence: Evidence) -> None:
        durations = [evidence.duration_ms or 0, *(turn.duration_ms or 0 for turn in evidence.turns or ())]
        if max(durations):
            self.timed += 1
            self.slowest_ms = max(self.slowest_ms or 0, *durations)
        usage = evidence.usage.total() if evidence.usage is not None else None
        if usage:
            self.counted += 1
            self.most_tokens = max(self.most_tokens or 0, usage)

    def _add_changes(self, evidence: Evidence) -> None:
        if evidence.state is None or evidence.state.changes is None:
            return
        self.stated += 1
        found: dict[tuple[str, str, str], list[Json]] = {}
        for change in evidence.state.changes:
            found.setdefault((change.system, change.place.rpartition("/")[0], change.change), []).append(change.after)
        for key in found.keys() - self.changes.keys():
            self.changes[key] = ChangeFacts()
        for key, facts in self.changes.items():
            rows = found.get(key, [])
            facts.runs += bool(rows)
            facts.most = max(facts.most, len(rows))
            facts.least = min(facts.least, len(rows)) if self.stated > 1 else len(rows)
            if rows:
                row = rows[0] if len(rows) == 1 and isinstance(rows[0], dict) else {}
                plain = {name: value for name, value in row.items() if isinstance(value, (str, bool)) or is_number(value)}
                facts.fields = plain if facts.fields is None else {k: v for k, v in facts.fields.items() if plain.get(k) == v}


def _read_object(evidence: Evidence) -> dict[str, Json] | None:
    """Return an answer that is a JSON object; None for a text, which a body may have around it."""
    answer = evidence.body if evidence.text is None else read_result(evidence.text)
    return answer if isinstance(answer, dict) else None


def _add_argument(facts: ArgumentFacts, value: Json, earlier: tuple[ToolCall, ...], text: str) -> None:
    facts.calls += 1
    facts.kinds.add(name_kind(value))
    shape = find_shape(value)
    facts.shape = shape if facts.calls == 1 or facts.shape == shape else None
    rule = find_rule(value)
    facts.rule = rule if facts.calls == 1 or facts.rule == rule else None
    if facts.values is not None:
        facts.values[msgspec.json.encode(value, order="sorted")] = value
        if len(facts.values) > MOST_VALUES:
            facts.values = None
    written = list_written(value)
    if facts.flows is None:
        facts.flows = _find_flows(written, earlier, text)
    elif facts.flows:
        facts.flows = {flow for flow in facts.flows if _has_flow(flow, written, earlier, text)}


def _find_flows(written: list[str], earlier: tuple[ToolCall, ...], text: str) -> set[Flow]:
    """Return every source of a value; a single character occurs everywhere and proves nothing."""
    if not written or all(len(each) < 2 and not each.isdigit() for each in written):
        return set()
    flows = {Flow(None)} if all(is_in_text(each, text) for each in written) else set[Flow]()
    for call in earlier:
        leaves = list(list_leaves(read_result(call.result)))
        paths = {path for path, _ in leaves}
        for path in sorted(paths)[:_MOST_FLOWS]:
            values = {leaf for at, leaf in leaves if at == path}
            if path and all(each in values for each in written):
                flows.add(Flow(call.name, path))
        if _has_flow(Flow(call.name), written, earlier, text):
            flows.add(Flow(call.name))
    return set(sorted(flows, key=str)[:_MOST_FLOWS])


def _has_flow(flow: Flow, written: list[str], earlier: Iterable[ToolCall], text: str) -> bool:
    if flow.tool is None:
        return bool(written) and all(is_in_text(each, text) for each in written)
    values: set[str] = set()
    texts: list[str] = []
    for call in earlier:
        if call.name == flow.tool:
            leaves, found = list_sources(call, flow.path)
            values.update(leaves)
            texts += found
    return bool(written) and all(each in values or any(is_in_text(each, leaf) for leaf in texts) for each in written)


def _is_repeated(candidate: Repeated, calls: tuple[ToolCall, ...], answer: str) -> bool:
    matching = [call for call in calls if call.name == candidate.tool and not call.failed()]
    for call in matching:
        values = list_repeated_values(candidate, (call,))
        if not values or not all(is_in_text(each, answer) for each in values):
            return False
    return bool(matching)


def list_repeated_values(candidate: Repeated, calls: Iterable[ToolCall]) -> list[str]:
    """Return the values of a candidate in these calls."""
    values: list[str] = []
    for call in calls:
        if call.name == candidate.tool and not call.failed():
            if candidate.argument is None:
                values += find_leaves(read_result(call.result), candidate.path or "")
            elif isinstance(call.arguments, dict) and candidate.argument in call.arguments:
                values += list_written(call.arguments[candidate.argument])
    return values


def is_secret(name: str, value: Json) -> bool:
    """Return whether a member of this name has a secret, by the rules for stored data."""
    if isinstance(value, str):
        return redact_text(value) != value or bool(value and names_a_secret(name))
    return (isinstance(value, (dict, list)) or names_a_secret(name)) and redact({name: value}) != {name: value}


def name_kind(value: Json) -> str:
    """Return the kind of a value in the terms of the matcher `$type`."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    names = {str: "text", float: "number", list: "list", dict: "object", type(None): "null"}
    return names[type(value)]


def find_shape(value: Json) -> str | None:
    """Return a pattern for a short text with digits: digits are generalised, other characters stay."""
    if not isinstance(value, str) or not 3 <= len(value) <= 40 or " " in value or not any(map(str.isdigit, value)):
        return None
    if not value.isascii() or sum(map(str.isalpha, value)) > 12:
        return None
    return "".join(r"\d+" if part[0].isdigit() else re.escape(part) for part in re.findall(r"\d+|\D+", value))
