"""The runs that a claim about a node or a tool examines.

There are three levels: nodes, root tool calls, tool calls nested in nodes. A claim examines the first level that has its name, including a
skipped node. A root tool call that names a node belongs to that node; if the node itself was not recorded, the call shows that it ran. A
call listed both at the root and in its node is one call.

One satisfying run is enough for arguments, `strict`, position and the positive claims about nested tools, all in the same run.
Prohibitions apply to every run of the name: forbidden arguments, and tools that the node must not call. If no run satisfies the claim, the
reason describes the closest run field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, cast

import msgspec

from proctor.checks.shared.places import iterate_text_places, iterate_whole_texts
from proctor.expressions.text_form import Scope
from proctor.matchers.call_arguments import ArgumentRule, Difference
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.json_values import encode_any_json
from proctor.model.show import show
from proctor.model.verdict import TextRange
from proctor.work import spend

LEVELS = ("node", "tool call", "nested tool call")


class View(msgspec.Struct, frozen=True):
    """One object that `arguments` can be compared with, and its path."""

    value: Json
    path: str
    homes: dict[str, str] = {}
    """Keys merged from elsewhere in the evidence, with the path they came from."""


class Execution:
    """One run of a node, or one call of a tool."""

    __slots__ = ("calls", "path", "position", "source")

    def __init__(self, source: Node | ToolCall, path: str, calls: list[Execution] | None = None) -> None:
        self.source = source
        self.path = path
        """Its path in the evidence."""
        self.position = 0
        """The position among all runs of the level, from 0."""
        self.calls = calls
        """The tool calls inside a node; None for a tool call."""

    @property
    def name(self) -> str:
        """The name it was recorded under."""
        return self.source.name

    @property
    def items(self) -> int:
        """How many items it produced."""
        return self.source.items if isinstance(self.source, Node) else 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the evidence reader."""
        return self.source.notes if isinstance(self.source, Node) else ()

    def is_output_missing(self) -> bool:
        """Return whether this is a run of a node whose output was not recorded."""
        return isinstance(self.source, Node) and self.source.output is None

    def is_named(self, name: str) -> bool:
        """Return whether the run has this name."""
        return self.source.goes_by(name) if isinstance(self.source, ToolCall) else self.source.name == name

    def has_run(self) -> bool:
        """Return whether this is a node that was not skipped."""
        return isinstance(self.source, Node) and self.source.ran()

    def fits(self, rule: ArgumentRule, scope: Scope) -> bool:
        """Return whether its arguments satisfy a rule; one of several items is enough."""
        return any(rule.fits(view.value, scope) for view in self.list_views())

    def may_fit(self, rule: ArgumentRule, scope: Scope) -> bool:
        """Return whether its arguments could satisfy a rule if an unresolved expression in them had the right value."""
        return bool(self.notes) and any(_may_fit(rule, view, scope) for view in self.list_views())

    def list_views(self) -> tuple[View, ...]:
        """Return the objects that its `arguments` are compared with."""
        if isinstance(self.source, Node):
            return _build_node_views(self.source, self.path)
        return (View(self.source.arguments, f"{self.path}.arguments"),)


def _may_fit(rule: ArgumentRule, view: View, scope: Scope) -> bool:
    if not isinstance(view.value, dict):
        return False
    open_places = [join_path(view.path, key) for key in view.homes if _has_expression(view.value[key])]
    found = rule.list_differences(view.value, scope, view.path) if open_places else []
    return bool(found) and all(any(_is_below(entry.path, at) for at in open_places) for entry in found)


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))


def _has_expression(value: Json) -> bool:
    """Return whether a parameter contains an unresolved n8n expression."""
    return any(text.startswith("=") and "{{" in text for _, text in iterate_text_places(value, ""))


class Level(msgspec.Struct, frozen=True):
    """The level at which a name was found, and all its runs."""

    kind: str
    """One of `LEVELS`."""
    runs: list[Execution]
    skipped: bool = False
    """Whether the name belongs to a node that was recorded only as skipped."""


def find_level_kind(evidence: Evidence, name: str) -> str | None:
    """Return the level at which `name` ran if that is quickly known, else None."""
    for node in evidence.nodes or ():
        if node.name == name:
            # A skipped run does not affect a later run of the same node.
            return "node" if node.ran() else None
    for call in evidence.tool_calls or ():
        # It may name an unrecorded node, which takes precedence over a tool of that name.
        if call.node is not None:
            return None
        if call.name == name:
            return "tool call"
    return None


def find_level(evidence: Evidence, name: str) -> Level | None:
    """Return the first level that has `name`, or None."""
    nodes, root = _arrange_runs(evidence)
    if any(node.name == name for node in nodes):
        ran = _number_runs(run for run in nodes if run.has_run())
        return Level("node", ran, not any(run.name == name for run in ran))
    if any(run.is_named(name) for run in root):
        return Level("tool call", root)
    # Positions inside one node do not apply to the level, so these runs are renumbered.
    nested = _number_runs(call for run in nodes for call in run.calls or ())
    return Level("nested tool call", nested) if any(run.is_named(name) for run in nested) else None


def list_names(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Return the names of the nodes that ran and of the tools called, each once, in order."""
    nodes, root = _arrange_runs(evidence)
    tools = [call.name for call in root] + [call.name for run in nodes for call in run.calls or ()]
    return list(dict.fromkeys(run.name for run in nodes if run.has_run())), list(dict.fromkeys(tools))


def _number_runs(runs: Iterable[Execution]) -> list[Execution]:
    numbered = list(runs)
    for position, run in enumerate(numbered):
        run.position = position
    return numbered


def _arrange_runs(evidence: Evidence) -> tuple[list[Execution], list[Execution]]:
    """Return the nodes with their calls, and the calls that belong to none."""
    nodes: list[Execution] = []
    for index, node in enumerate(evidence.nodes or ()):
        path = f"$.nodes[{index}]"
        calls = (Execution(call, f"{path}.tool_calls[{number}]") for number, call in enumerate(node.tool_calls))
        nodes.append(Execution(node, path, _number_runs(calls)))
    root: list[Execution] = []
    nested: list[Execution] = []
    for index, call in enumerate(evidence.tool_calls or ()):
        (root if call.node is None else nested).append(Execution(call, f"$.tool_calls[{index}]"))
    if nested:
        _adopt_calls(nodes, nested)
    return nodes, _number_runs(root)


def _adopt_calls(nodes: list[Execution], calls: Sequence[Execution]) -> None:
    """Give every root call that names a node to that node, unless the node already has it: readers list calls in both places."""
    # By content in a set: comparing each call with each other one would be quadratic.
    known = {_identify(run.name, call.source) for run in nodes for call in run.calls or ()}
    owners: dict[str, Execution] = {}
    for run in reversed(nodes):
        # Backwards, so that the first run of a node owns its calls; a skipped run owns them only if the node never ran.
        if run.has_run() or run.name not in owners:
            owners[run.name] = run
    for call in calls:
        node = cast(ToolCall, call.source).node or ""
        if _identify(node, call.source) in known:
            continue
        if node not in owners:
            owners[node] = Execution(Node(name=node), call.path, [])
            nodes.append(owners[node])
        siblings = owners[node].calls
        assert siblings is not None, "a node has a list of calls"
        call.position = len(siblings)
        siblings.append(call)


def _identify(node: str, call: Node | ToolCall) -> tuple[str, str, str | None, bytes]:
    assert isinstance(call, ToolCall)
    return (node, call.name, call.id, encode_any_json(call.arguments))


def _build_node_views(node: Node, path: str) -> tuple[View, ...]:
    """Return the objects for a node's `arguments`: its output; for an HTTP request its output over its parameters.

    An output of several items gives one view per item, and so do parameters that differ between items.
    """
    at = f"{path}.output"
    output, parameters = node.output, node.parameters
    items = [(item, f"{at}[{index}]") for index, item in enumerate(output)] if isinstance(output, list) and output else [(output, at)]
    if not isinstance(parameters, dict) or not _is_http_request(node, parameters):
        return tuple(View(item, place) for item, place in items)
    sent = [(parameters, f"{path}.parameters")]
    sent += [(other, f"{path}.more_parameters[{index}]") for index, other in enumerate(node.more_parameters) if isinstance(other, dict)]
    views: list[View] = []
    for configured, home in sent:
        for item, place in items:
            shown = item if isinstance(item, dict) else {}
            # n8n leaves the default method out of the recorded parameters.
            merged = {"method": "GET", **configured, **shown}
            views.append(View(merged, place, {key: home for key in merged if key not in shown}))
    return tuple(views)


def _is_http_request(node: Node, parameters: dict[str, Json]) -> bool:
    if node.type is None:
        return "url" in parameters
    return "httprequest" in "".join(char for char in node.type.lower() if char.isalnum())


CallCondition = Literal["called", "not_called", "count"]
_MOST_COMPARED = 100
"""The maximum number of runs examined to find the closest miss."""
_MOST_LISTED = 20_000
"""Stop collecting differences after this many; the closest of the runs seen so far is described."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim about the runs of `name`."""

    name: str
    condition: CallCondition
    rule: ArgumentRule | None
    index: int | None
    count: int | None
    count_items: bool = False
    forbidden_arguments: dict[str, int]
    """The forbidden names, each with its place in the list."""
    nested: tuple[Claim, ...] = ()
    dynamic: bool
    """Whether deciding needs variables, the clock or the zone."""
    prohibits: bool
    """Whether the claim has prohibitions."""

    def is_narrowed(self) -> bool:
        """Return whether only some runs of the name are meant."""
        return self.rule is not None or self.index is not None or bool(self.nested)

    def allows_absence(self) -> bool:
        """Return whether the claim passes if nothing of the name ran."""
        return self.condition == "not_called" or (self.condition == "count" and self.count == 0)

    def describe(self) -> str:
        """Return the claim in words that follow the name."""
        manner = self._describe_manner()
        if self.condition == "count":
            return f"called{manner} exactly {_describe_count(self.count or 0, self.count_items)}"
        return f"called{manner}" if self.condition == "called" else f"not called{manner}"

    def list_problems(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        """Return everything that contradicts the claim over all runs of a level; empty if the claim holds."""
        # Prohibitions first: a satisfying run does not outweigh another that does something forbidden.
        if self.prohibits and (found := self._list_violations(runs, scope)):
            return found
        return [] if self._has_satisfying_run(runs, scope) else self._describe_shortfall(runs, scope)

    def find_decisive_run(self, runs: Sequence[Execution], scope: Scope) -> Execution | None:
        """Return the run that could break the claim if an expression in its parameters had a certain value, or None."""
        if self.rule is None or self.condition == "called":
            return None
        named = (run for run in runs if run.is_named(self.name))
        return next((run for run in named if not run.fits(self.rule, scope) and run.may_fit(self.rule, scope)), None)

    def iterate_ranges(self, runs: Sequence[Execution], scope: Scope) -> Iterator[TextRange]:
        """Yield the ranges that made the claim hold, or those of a forbidden action."""
        if self.prohibits and self._list_violations(runs, scope):
            yield from self._iterate_forbidden(runs, scope)
        elif self.condition != "not_called" and self._has_satisfying_run(runs, scope):
            yield from self._iterate_satisfied(runs, scope, every=self.condition == "count")

    def _iterate_forbidden(self, runs: Sequence[Execution], scope: Scope) -> Iterator[TextRange]:
        for run in runs:
            if not run.is_named(self.name):
                continue
            for value, at in self._list_forbidden_arguments(run):
                yield from iterate_whole_texts(value, at)
            for claim in self.nested if self.condition != "not_called" else ():
                yield from claim._iterate_forbidden(run.calls or (), scope)
        if self.condition == "not_called":
            yield from self._iterate_satisfied(runs, scope, every=True)

    def _iterate_satisfied(self, runs: Sequence[Execution], scope: Scope, *, every: bool) -> Iterator[TextRange]:
        """Yield the ranges that made the first run fit, or every run, including the calls inside it."""
        for run in runs:
            spend(1)
            if not run.is_named(self.name) or not self._is_satisfied_by(run, len(runs), scope):
                continue
            if self.rule is not None:
                yield from _iterate_fitting_view(self.rule, run, scope)
            for claim in self.nested:
                yield from claim.iterate_ranges(run.calls or (), scope)
            if not every:
                return

    # Deciding is separate from explaining: most claims hold, and then no sentence is needed.

    def _has_satisfying_run(self, runs: Sequence[Execution], scope: Scope) -> bool:
        # Nested claims walk the calls of every run, so the cost is a product and is counted.
        spend(1 + len(runs))
        if self.condition == "called":
            return any(run.is_named(self.name) and self._is_satisfied_by(run, len(runs), scope) for run in runs)
        return self.condition == "not_called" or self._count_runs(runs, scope) == self.count

    def _count_runs(self, runs: Sequence[Execution], scope: Scope) -> int:
        good = (run for run in runs if run.is_named(self.name) and self._is_satisfied_by(run, len(runs), scope))
        return sum(run.items if self.count_items else 1 for run in good)

    def _is_satisfied_by(self, run: Execution, total: int, scope: Scope) -> bool:
        if self._is_elsewhere(run, total) or (self.rule is not None and not run.fits(self.rule, scope)):
            return False
        # Only nodes have nested calls: for a tool call no claim about nested calls holds, not even a negative one.
        return not self.nested or (run.calls is not None and all(claim._has_satisfying_run(run.calls, scope) for claim in self.nested))

    def _is_elsewhere(self, run: Execution, total: int) -> bool:
        return self.index is not None and run.position != (self.index if self.index >= 0 else total + self.index)

    def _list_violations(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        spend(1 + len(runs))
        named = [run for run in runs if run.is_named(self.name)]
        found = [
            Difference(at, f"{at} is a forbidden argument of {show(run.name)}")
            for run in named
            for _, at in self._list_forbidden_arguments(run)
        ]
        if self.condition == "not_called":
            verb = f"which must not be called{self._describe_manner()}"
            violating = (run for run in named if self._is_satisfied_by(run, len(runs), scope))
            return found + [Difference(run.path, f"{run.path} calls {show(run.name)}, {verb}") for run in violating]
        return found + [each for run in named for claim in self.nested for each in claim._list_violations(run.calls or (), scope)]

    def _describe_shortfall(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        named = [run for run in runs if run.is_named(self.name)]
        if self.condition == "count":
            at = named[0].path if named else ""
            count = _describe_count(self._count_runs(runs, scope), self.count_items)
            return [Difference(at, f"{show(self.name)} was called {count}{self._describe_manner()}")]
        if not named:
            called = ", ".join(dict.fromkeys(show(run.name, 80) for run in runs[:12])) or "none"
            return [Difference("", f"{show(self.name)} was never called; calls there: {called}")]
        return _find_shortest(self._list_problems_of(run, len(runs), scope) for run in named[:_MOST_COMPARED])

    def _describe_manner(self) -> str:
        return " in this way" if self.is_narrowed() else ""

    def _list_problems_of(self, run: Execution, total: int, scope: Scope) -> list[Difference]:
        found: list[Difference] = []
        if self._is_elsewhere(run, total):
            found.append(Difference(run.path, f"{run.path} is call {run.position} of {total}, expected position {self.index}"))
        if self.rule is not None:
            found.extend(_find_closest_view(self.rule, run.list_views(), scope))
        for claim in self.nested:
            if run.calls is None:
                found.append(Difference(run.path, f"{run.path} is a tool call, not a node: it has no tool calls of its own"))
                break
            if not claim._has_satisfying_run(run.calls, scope):
                found.extend(claim._describe_shortfall(run.calls, scope))
        return found

    def _list_forbidden_arguments(self, run: Execution) -> Iterator[tuple[Json, str]]:
        """Yield the forbidden arguments of a run in the order of the claim, each with its path."""
        for view in run.list_views() if self.forbidden_arguments else ():
            # Iterates over the arguments: a long list of forbidden names times many runs would cost their product.
            given = [name for name in view.value if name in self.forbidden_arguments] if isinstance(view.value, dict) else []
            for name in sorted(given, key=self.forbidden_arguments.__getitem__):
                yield view.value[name], join_path(view.homes.get(name, view.path), name)


def _iterate_fitting_view(rule: ArgumentRule, run: Execution, scope: Scope) -> Iterator[TextRange]:
    """Yield the ranges of the first view that fits; a merged key is located where it came from."""
    for view in run.list_views():
        if rule.fits(view.value, scope):
            for found in rule.iterate_ranges(view.value, scope, view.path):
                yield TextRange(_relocate(Difference(found.path, ""), view).path, found.start, found.end)
            return


def _find_closest_view(rule: ArgumentRule, views: Sequence[View], scope: Scope) -> list[Difference]:
    """Return the mismatches of the closest view; none if one fits."""
    if any(rule.fits(view.value, scope) for view in views):
        return []
    differences = (
        [_relocate(entry, view) for entry in rule.list_differences(view.value, scope, view.path)] for view in views[:_MOST_COMPARED]
    )
    return _find_shortest(differences)


def _find_shortest(lists: Iterable[list[Difference]]) -> list[Difference]:
    """Return the shortest list, the first of equal ones; lists after the first `_MOST_LISTED` differences are not examined."""
    examined: list[list[Difference]] = []
    # The lists are generated one by one, so the rest is not even built.
    for entries in lists:
        examined.append(entries)
        if sum(map(len, examined)) >= _MOST_LISTED:
            break
    return min(examined, key=len, default=[])


def _relocate(difference: Difference, view: View) -> Difference:
    """Return the difference with the path of the place from which a key was merged."""
    for key, home in view.homes.items():
        view_path, home_path = join_path(view.path, key), join_path(home, key)
        if _is_below(difference.path, view_path):
            return Difference(home_path + difference.path[len(view_path) :], difference.sentence.replace(view_path, home_path, 1))
    return difference


def _describe_count(count: int, items: bool) -> str:
    if items:
        return f"for {count} item{'' if count == 1 else 's'}"
    return f"{count} time{'' if count == 1 else 's'}"
