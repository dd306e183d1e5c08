"""The runs that a claim about a node or a tool looks at.

There are three levels: nodes, root tool calls, tool calls nested in nodes. A claim looks at the first level that has its name at
all, a skipped node included. A root tool call that names a node belongs to that node; where the node itself was not recorded, the
call shows that it ran. A call listed both at the root and in its node is one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proctor.expressions.scope import Scope
from proctor.matchers.call_arguments import ArgumentRule
from proctor.matchers.equal import deep_equal, join_path
from proctor.model.evidence import Evidence, Json, Node, ToolCall

LEVELS = ("node", "tool call", "nested tool call")


class View(msgspec.Struct, frozen=True):
    """One object that `arguments` can be compared with, and its path."""

    value: Json
    path: str
    homes: dict[str, str] = {}
    """Keys that stand elsewhere in the evidence, with the path of their home."""


class Execution:
    """One run of a node, or one call of a tool. Paths and views are computed on demand: most runs are never explained."""

    __slots__ = ("_at", "_index", "calls", "position", "source")

    def __init__(self, source: Node | ToolCall, at: str, index: int, position: int, calls: tuple[Execution, ...] | None = None) -> None:
        self.source = source
        self._at = at
        self._index = index
        self.position = position
        """Among all runs of the level, from 0."""
        self.calls = calls
        """The tool calls inside a node; nothing for a tool call."""

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
        """Return whether the run goes by this name."""
        source = self.source
        return source.name == name or (isinstance(source, ToolCall) and name in source.aliases)

    def fits(self, rule: ArgumentRule, scope: Scope) -> bool:
        """Return whether its arguments satisfy a rule; of several items one is enough."""
        if isinstance(self.source, ToolCall):
            return rule.fits(self.source.arguments, scope)
        return any(rule.fits(view.value, scope) for view in self.list_views())

    def may_fit(self, rule: ArgumentRule, scope: Scope) -> bool:
        """Return whether its arguments could satisfy a rule, if an expression in them that was not resolved gave the right value."""
        if not self.notes:
            return False
        return any(_may_fit(rule, view, scope) for view in self.list_views())

    def list_views(self) -> tuple[View, ...]:
        """Return what its `arguments` are."""
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
    """The level at which a name was found, and everything that ran there."""

    kind: str
    """One of `LEVELS`."""
    runs: tuple[Execution, ...]
    skipped: bool = False
    """The name belongs to a node that was recorded, but only as skipped."""


def find_level_kind(evidence: Evidence, name: str) -> str | None:
    """Return the level at which `name` ran if that is known without a closer look, else None."""
    for node in evidence.nodes or ():
        if node.name == name:
            # A skipped run does not affect a later run of the same node.
            return "node" if node.ran() else None
    for call in evidence.tool_calls or ():
        # The node it names may be one that was not recorded, which then goes before a tool of that name.
        if call.node is not None:
            return None
        if call.name == name:
            return "tool call"
    return None


def find_level(evidence: Evidence, name: str) -> Level | None:
    """Return the first level that has `name`, or None when none has."""
    nodes, root = _arrange_runs(evidence)
    if any(node.name == name for node in nodes):
        ran = tuple(run for run in nodes if _has_run(run))
        return Level("node", _number_runs(ran), not any(run.name == name for run in ran))
    if any(run.is_named(name) for run in root):
        return Level("tool call", _number_runs(root))
    nested = [call for run in nodes for call in run.calls or ()]
    # Positions inside one node say nothing about the level as a whole, so these runs are numbered afresh.
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
    # Readers list the calls of nodes at the root as well. Where they do so in order, which is the rule, there is nothing to adopt.
    if len(root) < len(calls) and not _repeats_nodes(nodes, calls):
        _adopt_calls(nodes, calls)
    return nodes, root


def _repeats_nodes(nodes: Sequence[Execution], calls: Sequence[ToolCall]) -> bool:
    """Return whether the root calls are those of the nodes, node by node in the same order; readers list them at both places."""
    inner: dict[str, list[ToolCall]] = {}
    for run in nodes:
        if isinstance(run.source, Node) and run.source.tool_calls:
            inner.setdefault(run.name, []).extend(run.source.tool_calls)
    rest = {name: iter(listed) for name, listed in inner.items()}
    for call in calls:
        if call.node is not None:
            known = next(rest[call.node], None) if call.node in rest else None
            # Identity first: where a reader put one object at both places, no arguments have to be compared.
            if known is not call and (known is None or not _is_same_call(known, call)):
                return False
    return True


def _build_node_run(node: Node, index: int) -> Execution:
    if not node.tool_calls:
        return Execution(node, "$.nodes", index, index, ())
    at = f"$.nodes[{index}].tool_calls"
    return Execution(
        node, "$.nodes", index, index, tuple(Execution(call, at, number, number) for number, call in enumerate(node.tool_calls))
    )


def _is_same_call(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and one.id == other.id and deep_equal(one.arguments, other.arguments)


def _adopt_calls(nodes: list[Execution], calls: Sequence[ToolCall]) -> None:
    """Give every root call that names a node to that node, unless the node has it already."""
    # By content in a set: comparing each call with each other one would be quadratic.
    known = {_make_identity(run.name, call.source) for run in nodes for call in run.calls or ()}
    owners: dict[str, Execution] = {}
    for run in reversed(nodes):
        # Backwards, so that the first run of a node owns its calls; a skipped one only where the node never ran.
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
        arguments = b"?"  # Nothing JSON could carry: name and id must do.
    return (node, call.name, call.id, arguments)


def _build_node_views(node: Node, path: str) -> tuple[View, ...]:
    """Return what a node's `arguments` are: its output; for an HTTP request its output over its parameters.

    An output of several items gives one view per item, and so do parameters that differ from item to item.
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
    return tuple(_request_view(item, place, configured, home) for item, place, configured, home in views)


def _request_view(output: Json, at: str, parameters: dict[str, Json], home: str) -> View:
    shown = output if isinstance(output, dict) else {}
    return View({**parameters, **shown}, at, {key: home for key in parameters if key not in shown})


def _is_http_request(node: Node, parameters: dict[str, Json]) -> bool:
    if node.type is None:
        return "url" in parameters
    return "httprequest" in "".join(char for char in node.type.lower() if char.isalnum())
