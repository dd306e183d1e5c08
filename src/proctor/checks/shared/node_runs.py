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
from typing import Literal

import msgspec

from proctor.checks.shared.ranges import iterate_whole_texts
from proctor.expressions.text_form import Scope
from proctor.matchers.call_arguments import ArgumentRule, Difference
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json, Node, ToolCall
from proctor.model.json_values import equal
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
    """One run of a node, or one call of a tool. Paths and views are computed on demand: most runs are never explained."""

    __slots__ = ("_at", "_index", "calls", "position", "source")

    def __init__(self, source: Node | ToolCall, at: str, index: int, position: int, calls: tuple[Execution, ...] | None = None) -> None:
        self.source = source
        self._at = at
        self._index = index
        self.position = position
        """The position among all runs of the level, from 0."""
        self.calls = calls
        """The tool calls inside a node; None for a tool call."""

    @property
    def name(self) -> str:
        """The name it was recorded under."""
        return self.source.name

    @property
    def path(self) -> str:
        """Its path in the evidence."""
        return f"{self._at}[{self._index}]"

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
        source = self.source
        return source.name == name or (isinstance(source, ToolCall) and name in source.aliases)

    def fits(self, rule: ArgumentRule, scope: Scope) -> bool:
        """Return whether its arguments satisfy a rule; one of several items is enough."""
        if isinstance(self.source, ToolCall):
            return rule.fits(self.source.arguments, scope)
        return any(rule.fits(view.value, scope) for view in self.list_views())

    def may_fit(self, rule: ArgumentRule, scope: Scope) -> bool:
        """Return whether its arguments could satisfy a rule if an unresolved expression in them had the right value."""
        if not self.notes:
            return False
        return any(_may_fit(rule, view, scope) for view in self.list_views())

    def list_views(self) -> tuple[View, ...]:
        """Return the objects that its `arguments` are compared with."""
        if isinstance(self.source, Node):
            return _build_node_views(self.source, self.path)
        return (View(self.source.arguments, f"{self.path}.arguments"),)


def _may_fit(rule: ArgumentRule, view: View, scope: Scope) -> bool:
    if not isinstance(view.value, dict):
        return False
    open_ones = {join_path(view.path, key) for key in view.homes if _has_expression(view.value[key])}
    found = rule.list_differences(view.value, scope, view.path) if open_ones else []
    return bool(found) and all(any(_is_at(entry.path, at) for at in open_ones) for entry in found)


def _is_at(path: str, home: str) -> bool:
    return path == home or path.startswith((f"{home}.", f"{home}["))


def _has_expression(value: Json) -> bool:
    """Return whether a parameter contains an unresolved n8n expression."""
    waiting: list[Json] = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str) and current.startswith("=") and "{{" in current:
            return True
        if isinstance(current, (dict, list)):
            waiting.extend(current.values() if isinstance(current, dict) else current)
    return False


class Level(msgspec.Struct, frozen=True):
    """The level at which a name was found, and all its runs."""

    kind: str
    """One of `LEVELS`."""
    runs: tuple[Execution, ...]
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
        ran = tuple(run for run in nodes if _has_run(run))
        return Level("node", _number_runs(ran), not any(run.name == name for run in ran))
    if any(run.is_named(name) for run in root):
        return Level("tool call", _number_runs(root))
    nested = [call for run in nodes for call in run.calls or ()]
    # Positions inside one node do not apply to the level, so these runs are renumbered.
    return Level("nested tool call", _number_runs(_copy_runs(nested))) if any(run.is_named(name) for run in nested) else None


def list_names(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Return the names of the nodes that ran and of the tools called, each once, in order."""
    nodes, root = _arrange_runs(evidence)
    tools = [call.name for call in root] + [call.name for run in nodes for call in run.calls or ()]
    return list(dict.fromkeys(run.name for run in nodes if _has_run(run))), list(dict.fromkeys(tools))


def _has_run(run: Execution) -> bool:
    return isinstance(run.source, Node) and run.source.ran()


def _number_runs(runs: Iterable[Execution]) -> tuple[Execution, ...]:
    numbered = tuple(runs)
    for position, run in enumerate(numbered):
        run.position = position
    return numbered


def _copy_runs(runs: Sequence[Execution]) -> list[Execution]:
    return [Execution(run.source, run._at, run._index, 0) for run in runs]  # pyright: ignore[reportPrivateUsage] - a copy of its own kind


def _arrange_runs(evidence: Evidence) -> tuple[list[Execution], list[Execution]]:
    """Return the nodes with their calls, and the calls that belong to none."""
    nodes = [_build_node_run(node, index) for index, node in enumerate(evidence.nodes or ())]
    calls = evidence.tool_calls or ()
    root = [Execution(call, "$.tool_calls", index, index) for index, call in enumerate(calls) if call.node is None]
    # Readers also list the calls of nodes at the root. If they do so in order, which is usual, there is nothing to adopt.
    if len(root) < len(calls) and not _repeats_nodes(nodes, calls):
        _adopt_calls(nodes, calls)
    return nodes, root


def _repeats_nodes(nodes: Sequence[Execution], calls: Sequence[ToolCall]) -> bool:
    """Return whether the root calls repeat those of the nodes in the same order; readers list them in both places."""
    inner: dict[str, list[ToolCall]] = {}
    for run in nodes:
        if isinstance(run.source, Node) and run.source.tool_calls:
            inner.setdefault(run.name, []).extend(run.source.tool_calls)
    rest = {name: iter(listed) for name, listed in inner.items()}
    for call in calls:
        if call.node is not None:
            known = next(rest[call.node], None) if call.node in rest else None
            # Identity first: if a reader put one object in both places, no arguments need comparing.
            if known is not call and (
                known is None or not (known.name == call.name and known.id == call.id and equal(known.arguments, call.arguments))
            ):
                return False
    return True


def _build_node_run(node: Node, index: int) -> Execution:
    if not node.tool_calls:
        return Execution(node, "$.nodes", index, index, ())
    at = f"$.nodes[{index}].tool_calls"
    return Execution(
        node, "$.nodes", index, index, tuple(Execution(call, at, number, number) for number, call in enumerate(node.tool_calls))
    )


def _adopt_calls(nodes: list[Execution], calls: Sequence[ToolCall]) -> None:
    """Give every root call that names a node to that node, unless the node already has it."""
    # By content in a set: comparing each call with each other one would be quadratic.
    known = {_make_identity(run.name, call.source) for run in nodes for call in run.calls or ()}
    owners: dict[str, Execution] = {}
    for run in reversed(nodes):
        # Backwards, so that the first run of a node owns its calls; a skipped run owns them only if the node never ran.
        if _has_run(run) or run.name not in owners:
            owners[run.name] = run
    inner: dict[str, list[Execution]] = {}
    for index, call in enumerate(calls):
        if call.node is None or _make_identity(call.node, call) in known:
            continue
        if call.node not in owners:
            owners[call.node] = Execution(Node(name=call.node), "$.tool_calls", index, 0, ())
            nodes.append(owners[call.node])
        inner.setdefault(call.node, []).append(Execution(call, "$.tool_calls", index, index))
    for name, adopted in inner.items():
        owners[name].calls = _number_runs((*(owners[name].calls or ()), *adopted))


def _make_identity(node: str, call: Node | ToolCall) -> tuple[str, str, str | None, bytes]:
    if not isinstance(call, ToolCall):
        return (node, call.name, None, b"")
    try:
        arguments = msgspec.json.encode(call.arguments)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        arguments = b"?"  # JSON cannot represent the arguments: name and id must do.
    return (node, call.name, call.id, arguments)


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
    # n8n leaves the default method out of the recorded parameters.
    views = [(item, place, {"method": "GET", **configured}, home) for configured, home in sent for item, place in items]
    return tuple(_build_request_view(item, place, configured, home) for item, place, configured, home in views)


def _build_request_view(output: Json, at: str, parameters: dict[str, Json], home: str) -> View:
    shown = output if isinstance(output, dict) else {}
    return View({**parameters, **shown}, at, {key: home for key in parameters if key not in shown})


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
            for view in run.list_views():
                for name in self._find_forbidden_in(view.value):
                    yield from iterate_whole_texts(view.value[name], join_path(view.homes.get(name, view.path), name))
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
        """Return whether a run satisfies the claim, or the right number of runs does."""
        # Nested claims walk the calls of every run, so the cost is a product and is counted.
        spend(1 + len(runs))
        if self.condition == "called":
            return any(run.is_named(self.name) and self._is_satisfied_by(run, len(runs), scope) for run in runs)
        return self.condition == "not_called" or self._count_runs(runs, scope) == self.count

    def _count_runs(self, runs: Sequence[Execution], scope: Scope) -> int:
        good = (run for run in runs if run.is_named(self.name) and self._is_satisfied_by(run, len(runs), scope))
        return sum(run.items if self.count_items else 1 for run in good)

    def _is_satisfied_by(self, run: Execution, total: int, scope: Scope) -> bool:
        if self.index is not None and run.position != (self.index if self.index >= 0 else total + self.index):
            return False
        if self.rule is not None and not run.fits(self.rule, scope):
            return False
        # Only nodes have nested calls: for a tool call no claim about nested calls holds, not even a negative one.
        return not self.nested or (run.calls is not None and all(claim._has_satisfying_run(run.calls, scope) for claim in self.nested))

    def _list_violations(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        """Return the forbidden actions of all runs of the name."""
        spend(1 + len(runs))
        named = [run for run in runs if run.is_named(self.name)]
        found = [problem for run in named for problem in self._list_forbidden_arguments(run)]
        if self.condition == "not_called":
            for run in named:
                if self._is_satisfied_by(run, len(runs), scope):
                    found.append(
                        Difference(run.path, f"{run.path} calls {show(run.name)}, which must not be called{self._describe_manner()}")
                    )
            return found
        for run in named:
            for claim in self.nested:
                found.extend(claim._list_violations(run.calls or (), scope))
        return found

    def _describe_shortfall(self, runs: Sequence[Execution], scope: Scope) -> list[Difference]:
        """Return what the closest run lacks."""
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
        """Return the problems of this one run."""
        found: list[Difference] = []
        if self.index is not None and run.position != (self.index if self.index >= 0 else total + self.index):
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

    def _find_forbidden_in(self, value: Json) -> list[str]:
        """Return the forbidden names that an object has, in the order of the claim."""
        if not isinstance(value, dict):
            return []
        # Iterates over the shorter of the two: a long list of names times many runs would cost their product.
        if len(self.forbidden_arguments) <= len(value):
            return [name for name in self.forbidden_arguments if name in value]
        return sorted((name for name in value if name in self.forbidden_arguments), key=self.forbidden_arguments.__getitem__)

    def _list_forbidden_arguments(self, run: Execution) -> list[Difference]:
        found: list[Difference] = []
        if not self.forbidden_arguments:
            return found
        for view in run.list_views():
            for name in self._find_forbidden_in(view.value):
                at = join_path(view.homes.get(name, view.path), name)
                found.append(Difference(at, f"{at} is a forbidden argument of {show(run.name)}"))
        return found


def _iterate_fitting_view(rule: ArgumentRule, run: Execution, scope: Scope) -> Iterator[TextRange]:
    """Yield the ranges of the first view that fits; a merged key is located where it came from."""
    for view in run.list_views():
        if rule.fits(view.value, scope):
            for found in rule.iterate_ranges(view.value, scope, view.path):
                yield TextRange(_relocate(Difference(found.path, ""), view).path, found.start, found.end)
            return


def _find_closest_view(rule: ArgumentRule, views: Sequence[View], scope: Scope) -> list[Difference]:
    """Return None if a view fits, else the mismatches of the closest one."""
    if any(rule.fits(view.value, scope) for view in views):
        return []
    differences = (
        [_relocate(entry, view) for entry in rule.list_differences(view.value, scope, view.path)] for view in views[:_MOST_COMPARED]
    )
    return _find_shortest(differences)


def _find_shortest(lists: Iterable[list[Difference]]) -> list[Difference]:
    """Return the shortest list, the first of equal ones; lists after the first `_MOST_LISTED` differences are not examined."""
    best: list[Difference] | None = None
    entry_count = 0
    for entries in lists:
        best = entries if best is None or len(entries) < len(best) else best
        entry_count += len(entries)
        # The lists are generated one by one, so the rest is not even built.
        if entry_count >= _MOST_LISTED:
            break
    return best or []


def _relocate(difference: Difference, view: View) -> Difference:
    """Return the difference with the path of the place from which a key was merged."""
    for key, home in view.homes.items():
        view_path, home_path = join_path(view.path, key), join_path(home, key)
        if difference.path == view_path or difference.path.startswith((f"{view_path}.", f"{view_path}[")):
            return Difference(home_path + difference.path[len(view_path) :], difference.sentence.replace(view_path, home_path, 1))
    return difference


def _describe_count(count: int, items: bool) -> str:
    if items:
        return f"for {count} item{'' if count == 1 else 's'}"
    return f"{count} time{'' if count == 1 else 's'}"
