"""Shared by the checks about tools: find calls, name them and describe failures.

Calls are those of the run in the order they were made; if only the steps of a workflow were recorded, the calls nested in them. A call
matches by its name and by its aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from proctor.checks.registry import Decide
from proctor.errors import SpecError
from proctor.expressions.text_form import NO_SCOPE, Scope
from proctor.matchers.call_arguments import ArgumentRule, Difference
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import count_rest, shorten, show
from proctor.model.verdict import TextRange, Verdict, failed, missing

MISSING_CALLS = missing("tool calls")

_MOST_EXPLAINED = 100
"""The maximum number of calls compared to find the closest one, and of pointers in a verdict."""
_MOST_NAMES = 12
"""The maximum number of tool names in a sentence."""


def list_recorded_calls(evidence: Evidence) -> tuple[ToolCall, ...] | None:
    """Return the calls of the run, or None if tools were not recorded."""
    if evidence.tool_calls is not None:
        return evidence.tool_calls
    if evidence.nodes is None:
        return None
    return tuple(call for node in evidence.nodes for call in node.tool_calls)


def over_calls(decide: Callable[[Evidence, Sequence[ToolCall]], Verdict]) -> Decide:
    """Return a decision on the recorded calls; if tools were not recorded, the claim is undecided."""

    def decide_evidence(evidence: Evidence) -> Verdict:
        calls = list_recorded_calls(evidence)
        return MISSING_CALLS if calls is None else decide(evidence, calls)

    return decide_evidence


def decide_in_words(decide: Decide, evidence: Evidence) -> Verdict:
    """Return the verdict with its reason, for a decision that is deferred."""
    return decide(evidence).with_words()


def describe_call(call: ToolCall) -> dict[str, Json]:
    """Return a call as a judge sees it, with its error if it failed."""
    shown: dict[str, Json] = {"tool": call.name, "arguments": call.arguments, "result": call.result}
    return {**shown, "error": call.failure()} if call.failed() else shown


def call_path(evidence: Evidence, index: int) -> str:
    """Return the path of a call in the evidence."""
    if evidence.tool_calls is None:
        for number, node in enumerate(evidence.nodes or ()):
            if index < len(node.tool_calls):
                return f"$.nodes[{number}].tool_calls[{index}]"
            index -= len(node.tool_calls)
    return f"$.tool_calls[{index}]"


def call_paths(evidence: Evidence, indexes: Iterable[int]) -> tuple[str, ...]:
    """Return the paths of the first of these calls."""
    return tuple(call_path(evidence, index) for index, _ in zip(indexes, range(_MOST_EXPLAINED), strict=False))


def require_name(name: str, field: str = "name") -> None:
    """Reject a claim about a tool without a name: it could never fail."""
    if not name:
        raise SpecError("the name of a tool cannot be empty", field=field)


def require_names(names: Sequence[str], field: str = "names") -> None:
    """Reject a list with an empty name, as `require_name` does for one."""
    for index, name in enumerate(names):
        require_name(name, f"{field}.{index}")


Tools = tuple[frozenset[str], frozenset[str]]
"""The tools that were called, and those that exist."""


def find_existing_tools(evidence: Evidence, calls: Sequence[ToolCall]) -> Tools:
    """Return the tools that were called, and those that exist: the available tools in the evidence, else the called ones."""
    called = frozenset(known for call in calls for known in (call.name, *call.aliases))
    return called, called if evidence.available_tools is None else frozenset(evidence.available_tools)


def over_calls_of(name: str, wanted: str, decide: Callable[[Evidence, Sequence[ToolCall], list[int]], Verdict]) -> Decide:
    """Return a decision on the calls of one tool, given with their positions; without any the claim fails."""

    def decide_calls(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        named = find_indexes_of(calls, name)
        return decide(evidence, calls, named) if named else fail_never_called(name, wanted, calls)

    return over_calls(decide_calls)


def resolve_name(
    name: str, evidence: Evidence, calls: Sequence[ToolCall], known: Tools | None = None, *, server_prefix: bool = True
) -> str:
    """Return `tool` for `server:tool` if no tool has the long name and one has the short name, else the name itself.

    The tools that exist are those the evidence lists as available, else those that were called.
    """
    _, colon, short = name.rpartition(":")
    if not colon or not server_prefix:
        return name
    called, available = known or find_existing_tools(evidence, calls)
    # A call by the long name proves that the tool exists, even if the list of available tools omits it.
    return short if short in available and name not in available and name not in called else name


def build_scope(rule: ArgumentRule | None, evidence: Evidence) -> Scope:
    """Return the clock and the context, read only if the rule needs them."""
    return Scope.read_from(evidence) if rule is not None and rule.dynamic else NO_SCOPE


def locate_fitting(rule: ArgumentRule | None, evidence: Evidence, name: str, *, every: bool = False) -> Iterator[TextRange]:
    """Yield the characters of the arguments that made the first call of a tool fit, or every call."""
    calls = list_recorded_calls(evidence)
    if rule is None or calls is None:
        return
    scope = build_scope(rule, evidence)
    for index in find_indexes_of(calls, name):
        if rule.fits(calls[index].arguments, scope):
            yield from rule.iterate_ranges(calls[index].arguments, scope, f"{call_path(evidence, index)}.arguments")
            if not every:
                return


def locate_arguments(evidence: Evidence, name: str, arguments: Sequence[str]) -> Iterator[TextRange]:
    """Yield the texts of these arguments in the first call of a tool that has one of them."""
    from proctor.checks.shared.places import iterate_whole_texts  # only reports with highlights need it

    calls = list_recorded_calls(evidence) or ()
    wanted = frozenset(arguments)
    for index in find_indexes_of(calls, name):
        given: Json = calls[index].arguments
        found = sorted(key for key in given if key in wanted) if isinstance(given, dict) else []
        if found:
            for key in found:
                yield from iterate_whole_texts(given[key], join_path(f"{call_path(evidence, index)}.arguments", key))
            return


def fail_calls(reason: str, evidence: Evidence, calls: Sequence[ToolCall], at: Iterable[int] = (), **details: Json) -> Verdict:
    """Fail a claim about the calls as a whole, which the reason ends with; `at` are the positions of those to point at."""
    whole = f"{reason} {describe_tools(calls)}"
    return failed(whole, details={**details, "tools_called": list_names(calls)}, pointers=call_paths(evidence, at))


def describe_count(count: int) -> str:
    """Return a number of calls in words: `once`, `3 times`, `never`."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def describe_tools(calls: Sequence[ToolCall]) -> str:
    """Return the tools of a run in a sentence."""
    if not calls:
        return "no tool was called"
    return "tools called: " + ", ".join(shorten(call.name, 80) for call in calls[:_MOST_NAMES]) + count_rest(len(calls), _MOST_NAMES)


def list_names(calls: Sequence[ToolCall]) -> list[str]:
    """Return the names of the calls for the details of a verdict, the first of them."""
    return [call.name for call in calls[:_MOST_EXPLAINED]]


def fail_never_called(name: str, wanted: str, calls: Sequence[ToolCall]) -> Verdict:
    """Fail a claim because the expected tool is not among the calls."""
    folded = name.casefold()
    hint = next((f"; {show(call.name)} differs only in upper and lower case" for call in calls if call.name.casefold() == folded), "")
    return failed(
        f"expected {wanted}; {show(name)} was never called, {describe_tools(calls)}{hint}",
        details={"tool": name, "calls": 0, "tools_called": list_names(calls)},
    )


def fail_no_call_fits(
    name: str, wanted: str, rule: ArgumentRule, evidence: Evidence, calls: Sequence[ToolCall], among: Sequence[int]
) -> Verdict:
    """Fail a claim because the tool was called, but with other arguments; describe the closest call field by field."""
    scope = build_scope(rule, evidence)
    # Only a few are compared for the explanation; it is already decided that none of them fits.
    compared = (
        (index, rule.list_differences(calls[index].arguments, scope, f"{call_path(evidence, index)}.arguments"))
        for index in among[:_MOST_EXPLAINED]
    )
    best = min((each for each in compared if each[1]), key=lambda each: len(each[1]), default=None)
    count = len(among)
    summary = f"expected {wanted}; {show(name)} was called {describe_count(count)}"
    if best is None:
        return failed(summary, pointers=call_paths(evidence, among))
    index, differences = best
    reason = "; ".join(entry.sentence for entry in differences[:8]) + count_rest(len(differences), 8, "; and")
    which = ", closest" if count > 1 else ""
    return failed(
        f"{summary}{which}: {reason}",
        details={"tool": name, "calls": count, "closest": index, "differences": record_differences(differences)},
        pointers=tuple(entry.path for entry in differences[:_MOST_EXPLAINED]),
    )


def record_differences(differences: Sequence[Difference]) -> list[Json]:
    """Return the first differences for the details of a verdict."""
    return [{"path": entry.path, "why": entry.sentence} for entry in differences[:_MOST_EXPLAINED]]


def find_indexes_of(calls: Sequence[ToolCall], name: str) -> list[int]:
    """Return the positions of the calls with this name or alias."""
    return [index for index, call in enumerate(calls) if call.goes_by(name)]
