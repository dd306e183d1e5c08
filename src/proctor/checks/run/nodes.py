"""Claims about the steps of a workflow and the tool calls nested in them.

The search order is: nodes, root tool calls, tool calls nested in nodes; it stops at the first level that has the name, and the verdict
names the level. For a node `arguments` are compared with its output (an HTTP request node: its output over its resolved parameters), for a
tool call with its input. A node recorded as skipped did not run; one that ended in an error did. If a node did not run, every nested claim
fails, even a negative one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from proctor.checks.missing_evidence import MISSING
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.node_runs import LEVELS, CallCondition, Claim, Level, find_level, find_level_kind, list_names
from proctor.errors import SpecError
from proctor.expressions.text_form import NO_SCOPE, Scope
from proctor.matchers.call_arguments import build_argument_rule
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.show import count_rest, nearest, shorten, show
from proctor.model.verdict import TextRange, Verdict, failed, missing, passed


class CallClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is claimed of a step of a workflow, or of a tool."""

    name: str
    """The name, verbatim: the display name of a node, or that of a tool."""
    condition: CallCondition = "called"
    """`called`, `not_called`, or `count` together with `count`."""
    arguments: dict[str, Json] = {}
    """What the input of the tool (a node: its output) must have, literals or matchers."""
    index: int | None = None
    """The position among all calls; negative counts from the end."""
    count: int | None = None
    """With condition `count`: the exact number of calls."""
    strict: bool = False
    """Nothing beyond the listed arguments may be there."""
    forbidden_arguments: tuple[str, ...] = ()
    """Names of arguments that no call may carry."""


class NestedCall(CallClaim, frozen=True, kw_only=True, omit_defaults=True):
    """A claim about the tool calls inside one node."""


class NodeCalled(CallClaim, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a workflow (or a tool, where no step has the name) ran, did not run, or ran so many times."""

    count_items: bool = False
    """Count items produced instead of runs."""
    tool_calls: tuple[NestedCall, ...] = ()
    """Claims about the tools this node called."""


def _declare_reads(spec: NodeCalled) -> Reads:
    claims = (spec, *spec.tool_calls)
    with_arguments = any(claim.arguments or claim.forbidden_arguments for claim in claims)
    parts: tuple[Part, ...] = ("nodes", "tool_calls", *(("tool_arguments",) if with_arguments else ()))
    # A position is one among all calls.
    tools = tuple(claim.name for claim in claims) if all(claim.index is None for claim in claims) else ()
    if spec.condition == "not_called":
        return Reads(parts, "absence" if spec.index is None and not spec.tool_calls else "exact", tools=tools)
    open_ended = all(
        claim.condition == "called" and claim.count is None and claim.index is None and not claim.forbidden_arguments for claim in claims
    )
    return Reads(parts, "presence") if open_ended else Reads(parts, "exact", tools=tools)


def _locate(spec: NodeCalled, evidence: Evidence) -> Iterator[TextRange]:
    level = find_level(evidence, spec.name)
    if level is None or level.skipped:
        return iter(())
    claim = _prepare(spec)
    return claim.iterate_ranges(level.runs, Scope.read_from(evidence) if claim.dynamic else NO_SCOPE)


@check(
    "node_called",
    shorthand="name",
    example="node_called: {name: AI Agent, tool_calls: [{name: Calculator, index: 0}]}",
    reads=_declare_reads,
    product=lambda spec: bool(spec.tool_calls or spec.arguments),
    locate=_locate,
)
def node_called(spec: NodeCalled) -> Decide:
    """A step of a workflow (or a tool, where no step has the name) ran, did not run, or ran so many times."""
    claim = _prepare(spec)
    dynamic = claim.dynamic
    simple = claim.condition == "called" and not claim.is_narrowed() and not claim.forbidden_arguments
    name = show(spec.name)
    holds = {kind: passed(f"{name} was {claim.describe()} (found as {kind})") for kind in LEVELS}
    never = passed(f"{name} was not called")
    # It is unknown what an unrecorded output lacks.
    by_arguments = bool(claim.forbidden_arguments) or (claim.condition == "not_called" and claim.rule is not None)
    no_output = missing(f"the output of {name}")

    def decide(evidence: Evidence) -> Verdict:
        if evidence.nodes is None and evidence.tool_calls is None:
            return _NOT_RECORDED
        # Fast path for the commonest claim; only the slow path reports notes.
        if simple and (kind := find_level_kind(evidence, spec.name)) is not None and not any(node.notes for node in evidence.nodes or ()):
            return holds[kind]
        level = find_level(evidence, spec.name)
        if level is None or level.skipped:
            return never if claim.allows_absence() else _fail_not_run(claim, level, evidence)
        scope = Scope.read_from(evidence) if dynamic else NO_SCOPE
        problems = claim.list_problems(level.runs, scope)
        notes = [note for run in level.runs if run.name == spec.name for note in run.notes]
        if problems:
            reason = "; ".join(problem.sentence for problem in problems[:_MOST_LISTED])
            more = count_rest(len(problems), _MOST_LISTED, "; and")
            remarks = "".join(f"; {note}" for note in notes[:_MOST_LISTED])
            runs = sum(run.is_named(claim.name) for run in level.runs)
            which = f"the closest of {runs} {level.kind}s" if runs > 1 and claim.condition == "called" else f"as {level.kind}"
            return failed(
                f"expected {show(claim.name)} to be {claim.describe()}; found {which}: {reason}{more}{remarks}",
                details={
                    "name": claim.name,
                    "level": level.kind,
                    "runs": runs,
                    "differences": [{"path": problem.path, "why": problem.sentence} for problem in problems[:100]],
                },
                pointers=tuple(dict.fromkeys(problem.path for problem in problems[:100] if problem.path)),
            )
        if by_arguments and any(run.is_named(spec.name) and run.is_output_missing() for run in level.runs):
            return no_output
        # A parameter with an unresolved n8n expression may have had the deciding value.
        doubtful = claim.find_decisive_run(level.runs, scope) if notes else None
        if doubtful is not None:
            reason = "; ".join(doubtful.notes[:_MOST_LISTED])
            return Verdict("error", 0.0, f"whether {name} was {claim.describe()} is unknown: {reason}", MISSING)
        good = holds[level.kind]
        return passed(f"{good.reason}; {'; '.join(notes[:_MOST_LISTED])}") if notes else good

    return decide


def _prepare(spec: NodeCalled) -> Claim:
    nested = tuple(_claim(call, f"tool_calls.{index}.", ()) for index, call in enumerate(spec.tool_calls))
    return _claim(spec, "", nested)


_NOT_RECORDED = missing("tool calls")
_MOST_LISTED = 8
"""The maximum number of reader notes in the reason of a verdict."""


def _claim(spec: CallClaim, prefix: str, nested: tuple[Claim, ...]) -> Claim:
    if not spec.name:
        raise SpecError("the name of a node or tool cannot be empty", field=f"{prefix}name")
    condition = spec.condition
    if condition == "called" and spec.count is not None:
        condition = "count"  # `count: 3` implies the condition.
    if condition == "count" and spec.count is None:
        raise SpecError("condition 'count' needs 'count'", field=f"{prefix}condition")
    if condition == "not_called" and spec.count is not None:
        raise SpecError("'count' has no meaning for what must not be called", field=f"{prefix}count")
    if spec.count is not None and spec.count < 0:
        raise SpecError(f"'count' must be at least 0, found {spec.count}", field=f"{prefix}count")
    rule = build_argument_rule(spec.arguments, values="matchers", strict=spec.strict, field=f"{prefix}arguments")
    return Claim(
        name=spec.name,
        condition=condition,
        rule=rule,
        index=spec.index,
        count=spec.count,
        count_items=isinstance(spec, NodeCalled) and spec.count_items,
        forbidden_arguments={name: place for place, name in enumerate(spec.forbidden_arguments)},
        nested=nested,
        dynamic=(rule is not None and rule.dynamic) or any(claim.dynamic for claim in nested),
        prohibits=condition == "not_called" or bool(spec.forbidden_arguments) or any(claim.prohibits for claim in nested),
    )


def _fail_not_run(claim: Claim, level: Level | None, evidence: Evidence) -> Verdict:
    nodes, tools = list_names(evidence)
    name = show(claim.name)
    if level is not None:
        found = f"node {name} was recorded as skipped, so it did not run"
    else:
        close = nearest(claim.name, (*nodes, *tools))
        found = f"no node or tool call of that name; nodes: {_list_names(nodes)}; tools: {_list_names(tools)}"
        found += f"; nearest: {_list_names(list(close))}" if close else ""
    also = f"; its {len(claim.nested)} tool claim{'s' if len(claim.nested) > 1 else ''} fail with it" if claim.nested else ""
    return failed(
        f"expected {name} to be {claim.describe()}, found {found}{also}",
        details={"name": claim.name, "level": None if level is None else level.kind, "nodes": nodes[:100], "tools": tools[:100]},
    )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(shorten(show(name), 80) for name in names[:12]) + count_rest(len(names), 12) or "none"
