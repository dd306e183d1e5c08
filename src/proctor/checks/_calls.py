"""What the checks about tools share: which calls there are, what they are called, and how a failure is told.

Calls are those of the run in the order they were made; where only the steps of a workflow were recorded, the calls nested
in them. A call goes by its name and by its aliases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proctor.errors import SpecError
from proctor.expressions.scope import NO_SCOPE, Scope
from proctor.matchers.call_arguments import ArgumentRule, Difference
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import shorten, show
from proctor.model.verdict import Verdict, failed, missing

MISSING_CALLS = missing("tool calls")

_MOST_EXPLAINED = 100
"""How many calls are compared to find the closest one, and how many pointers a verdict carries."""
_MOST_NAMES = 12


def recorded_calls(evidence: Evidence) -> tuple[ToolCall, ...] | None:
    """The calls of the run, or nothing where tools were not recorded."""
    if evidence.tool_calls is not None:
        return evidence.tool_calls
    if evidence.nodes is None:
        return None
    return tuple(call for node in evidence.nodes for call in node.tool_calls)


def call_path(evidence: Evidence, index: int) -> str:
    """Where a call stands in the evidence."""
    if evidence.tool_calls is None:
        for number, node in enumerate(evidence.nodes or ()):
            if index < len(node.tool_calls):
                return f"$.nodes[{number}].tool_calls[{index}]"
            index -= len(node.tool_calls)
    return f"$.tool_calls[{index}]"


def call_paths(evidence: Evidence, indexes: Iterable[int]) -> tuple[str, ...]:
    """Where calls stand in the evidence, the first of them."""
    return tuple(call_path(evidence, index) for index, _ in zip(indexes, range(_MOST_EXPLAINED), strict=False))


def require_name(name: str, field: str = "name") -> None:
    """A claim about a tool without a name could never be wrong; refuse it."""
    if not name:
        raise SpecError("the name of a tool cannot be empty", field=field)


def require_names(names: Sequence[str], field: str = "names") -> None:
    """As `require_name`, for each of a list."""
    for index, name in enumerate(names):
        require_name(name, f"{field}.{index}")


Tools = tuple[frozenset[str], frozenset[str]]
"""The tools that were called, and those that exist."""


def existing_tools(evidence: Evidence, calls: Sequence[ToolCall]) -> Tools:
    """The tools that were called, and those that exist: what the evidence lists as available, else those that were called."""
    called = frozenset(known for call in calls for known in (call.name, *call.aliases))
    return called, called if evidence.available_tools is None else frozenset(evidence.available_tools)


def existing_name(name: str, evidence: Evidence, calls: Sequence[ToolCall], known: Tools | None = None) -> str:
    """`server:tool` stands for `tool` when no tool has the long name and one has the short name.

    The tools that exist are those the evidence lists as available, else those that were called.
    """
    _, colon, short = name.rpartition(":")
    if not colon:
        return name
    called, available = known or existing_tools(evidence, calls)
    return short if short in available and name not in available and name not in called else name


def scope_for(rule: ArgumentRule | None, evidence: Evidence) -> Scope:
    """Clock and context, read only where the rule needs them."""
    return Scope.of(evidence) if rule is not None and rule.dynamic else NO_SCOPE


def times(count: int) -> str:
    """`once`, `3 times`, `never`."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def tools_sentence(calls: Sequence[ToolCall]) -> str:
    """The tools of a run in a sentence."""
    if not calls:
        return "no tool was called"
    names = ", ".join(shorten(call.name, 80) for call in calls[:_MOST_NAMES])
    more = f" and {len(calls) - _MOST_NAMES} more" if len(calls) > _MOST_NAMES else ""
    return f"tools called: {names}{more}"


def names_json(calls: Sequence[ToolCall]) -> list[str]:
    """The names of the calls for the details of a verdict, the first of them."""
    return [call.name for call in calls[:_MOST_EXPLAINED]]


def never_called(name: str, wanted: str, calls: Sequence[ToolCall]) -> Verdict:
    """The tool that was expected is not among the calls."""
    folded = name.casefold()
    hint = next((f"; {show(call.name)} differs only in upper and lower case" for call in calls if call.name.casefold() == folded), "")
    return failed(
        f"expected {wanted}; {show(name)} was never called, {tools_sentence(calls)}{hint}",
        details={"tool": name, "calls": 0, "tools_called": names_json(calls)},
    )


def no_call_fits(
    name: str, wanted: str, rule: ArgumentRule, evidence: Evidence, calls: Sequence[ToolCall], among: Sequence[int]
) -> Verdict:
    """The tool was called, but not like that: tell the closest call, field by field."""
    scope = scope_for(rule, evidence)
    best: tuple[int, list[Difference]] | None = None
    for index in among[:_MOST_EXPLAINED]:
        found = rule.differences(calls[index].arguments, scope, f"{call_path(evidence, index)}.arguments")
        if found and (best is None or len(found) < len(best[1])):
            best = (index, found)
    count = len(among)
    summary = f"expected {wanted}; {show(name)} was called {times(count)}"
    if best is None:
        return failed(summary, pointers=call_paths(evidence, among))
    index, differences = best
    told = "; ".join(entry.sentence for entry in differences[:8]) + (f"; and {len(differences) - 8} more" if len(differences) > 8 else "")
    which = ", closest" if count > 1 else ""
    return failed(
        f"{summary}{which}: {told}",
        details={"tool": name, "calls": count, "closest": index, "differences": difference_json(differences)},
        pointers=tuple(entry.path for entry in differences[:_MOST_EXPLAINED]),
    )


def difference_json(differences: Sequence[Difference]) -> list[Json]:
    """Differences for the details of a verdict, the first of them."""
    return [{"path": entry.path, "why": entry.sentence} for entry in differences[:_MOST_EXPLAINED]]


def indexes_named(calls: Sequence[ToolCall], name: str) -> list[int]:
    """The positions of the calls that go by this name."""
    return [index for index, call in enumerate(calls) if call.goes_by(name)]
