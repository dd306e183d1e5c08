"""Claims about which tools were called, how often, and with what.

Counting rules: every recorded call counts, even one that failed or had invalid arguments; names compare exactly and case-sensitively;
calls are in the order they were made, over all turns of a conversation. Evidence that did not record tools (`tool_calls` and `nodes` both
absent) is undecided: `missing_evidence`.

Claims about tool calls that failed.

A call failed when it carries an error: one the protocol raised (`protocol-error`) or one the tool reported in its result
(`content-error`). In plain evidence, the outcome of a call without result, error or success flag is unknown. Readers of other formats
list unknown outcomes in their account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.calls import (
    build_scope,
    call_path,
    call_paths,
    decide_in_words,
    describe_count,
    describe_tools,
    fail_calls,
    fail_never_called,
    fail_no_call_fits,
    find_indexes_of,
    list_names,
    list_recorded_calls,
    locate_arguments,
    locate_fitting,
    over_calls,
    require_name,
    resolve_name,
)
from proctor.errors import SpecError
from proctor.matchers.call_arguments import ArgumentRule, build_argument_rule
from proctor.matchers.mismatch import join_path
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.recorded import records_outcome
from proctor.model.show import count_rest, show
from proctor.model.verdict import TextRange, Verdict, defer_verdict, failed, missing, passed

ArgumentMatch = Literal["partial", "exact", "ignore"]
ArgumentValues = Literal["matchers", "placeholders", "literal"]


class ToolCalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool was called, optionally with given arguments, a number of times, or at a given position."""

    name: str
    """The tool's name."""
    arguments: dict[str, Json] | None = None
    """Arguments the call must have; left out: any arguments."""
    match: ArgumentMatch = "partial"
    """`partial`: the listed arguments must fit, others are free; `exact`: the whole argument object must be equal."""
    values: ArgumentValues = "matchers"
    """How expected values are read: `matchers` (matcher objects, `*`, lists in any order), `placeholders` (the words
    `any`, `string`, `number`, `boolean`, `object`, `array`, `null` stand for a type), `literal` (plain deep equality)."""
    strict: bool = False
    """No argument beyond the listed ones may be given."""
    forbidden_arguments: tuple[str, ...] = ()
    """Argument names that no call of this tool may carry."""
    index: int | None = None
    """The position among all calls, 0 is the first, negative counts from the end."""
    at_least: int = 1
    """How many such calls there must be."""
    at_most: int | None = None
    """How many such calls there may be."""
    every: bool = False
    """Every call of this tool must fit, not only some."""
    server_prefix: bool = False
    """`server:tool` means `tool` if no tool has the long name."""


class ToolNotCalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool was never called, or never with the given arguments."""

    name: str
    """The tool's name."""
    arguments: dict[str, Json] | None = None
    """Only calls with these arguments are forbidden."""
    match: ArgumentMatch = "partial"
    """As in `tool_called`."""
    values: ArgumentValues = "matchers"
    """As in `tool_called`."""
    server_prefix: bool = False
    """As in `tool_called`."""


class ToolCallCount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool was called exactly so many times."""

    name: str
    """The tool's name."""
    count: int
    """The exact number of calls."""
    succeeded: bool = False
    """Calls that failed do not count, such as one that was tried again."""


class NoToolsCalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No tool was called at all."""


def _declare_call_reads(spec: ToolCalled | ToolNotCalled) -> Reads:
    if isinstance(spec, ToolNotCalled):
        return Reads(("tool_calls", "tool_arguments") if spec.arguments is not None else ("tool_calls",), "absence", tools=(spec.name,))
    with_arguments = spec.arguments is not None or bool(spec.forbidden_arguments)
    # A further, unseen call could break any of these, so only a plain "was called" is safe on partial evidence.
    counted = spec.index is not None or spec.at_most is not None or bool(spec.forbidden_arguments) or spec.at_least == 0 or spec.every
    parts: tuple[Part, ...] = ("tool_calls", "tool_arguments") if with_arguments else ("tool_calls",)
    # A position counts all calls.
    return Reads(parts, "exact" if counted else "presence", tools=(spec.name,) if spec.index is None else ())


def _declare_count_reads(spec: ToolCallCount) -> Reads:
    parts: tuple[Part, ...] = ("tool_calls", "tool_results") if spec.succeeded else ("tool_calls",)
    return Reads(parts, "exact", tools=(spec.name,))


def has_structure(spec: ToolCalled | ToolNotCalled) -> bool:
    """Return whether comparing one call may be slow: with lists, objects and matchers, which are objects."""
    return any(isinstance(value, (dict, list)) for value in (spec.arguments or {}).values())


def _locate(spec: ToolCalled | ToolNotCalled, evidence: Evidence) -> Iterator[TextRange]:
    calls = list_recorded_calls(evidence) or ()
    name = resolve_name(spec.name, evidence, calls, server_prefix=spec.server_prefix)
    rule = build_argument_rule(spec.arguments, match=spec.match, values=spec.values, strict=getattr(spec, "strict", False))
    if isinstance(spec, ToolNotCalled):
        return locate_fitting(rule, evidence, name, every=True)
    if spec.forbidden_arguments and _find_forbidden(spec, name, evidence, calls, find_indexes_of(calls, name)) is not None:
        return locate_arguments(evidence, name, spec.forbidden_arguments)
    every = spec.at_most is not None or spec.at_least > 1 or spec.index is not None or spec.every
    found = locate_fitting(rule, evidence, name, every=every)
    if spec.index is None:
        return found
    place = call_path(evidence, spec.index if spec.index >= 0 else len(calls) + spec.index)
    return (one for one in found if one.path.startswith(f"{place}."))


@check(
    "tool_called",
    shorthand="name",
    example="tool_called: {name: search, arguments: {q: shoes}}",
    reads=_declare_call_reads,
    product=has_structure,
    locate=_locate,
)
def tool_called(spec: ToolCalled) -> Decide:
    """A tool was called, optionally with given arguments, a number of times, or at a given position."""
    require_name(spec.name)
    if spec.at_least < 0:
        raise SpecError(f"at_least cannot be negative, found {spec.at_least}", field="at_least")
    if spec.at_most is not None and spec.at_most < spec.at_least:
        raise SpecError(f"at_most {spec.at_most} is below at_least {spec.at_least}", field="at_most")
    if spec.index is not None and (spec.at_least != 1 or spec.at_most is not None):
        raise SpecError("index is about one call, at_least and at_most count calls: use one of them", field="index")
    if spec.every and spec.index is not None:
        raise SpecError("index is about one call, every is about all: use one of them", field="every")
    rule = build_argument_rule(spec.arguments, match=spec.match, values=spec.values, strict=spec.strict)
    ok = passed(f"{show(spec.name)} was called{_with_arguments(spec, rule)}")
    careful = _decide_carefully(spec, rule, ok)
    once = spec.index is None and spec.at_least == 1 and spec.at_most is None and not spec.forbidden_arguments and not spec.every
    wanted = {} if rule is None else rule.plain
    # The meaning of `server:tool` depends on the tools in this evidence.
    if not once or wanted is None or spec.server_prefix:
        return careful
    name = spec.name
    if not wanted:
        pick, values = (lambda arguments: None), None
    else:
        # One key gives its value, several give a tuple, in a single call to C code.
        pick, values = itemgetter(*wanted), tuple(wanted.values()) if len(wanted) > 1 else next(iter(wanted.values()))

    # The hot path: `==` compares the arguments. Aliases, and arguments that are not an object, take the slow path. The text of a failure is
    # built when it is read.
    def decide(evidence: Evidence) -> Verdict:
        calls = evidence.tool_calls
        if calls is None:
            return careful(evidence)
        for call in calls:
            if call.name == name:
                try:
                    if pick(call.arguments) == values:
                        return ok
                # A listed argument is missing: this call does not fit, but a later one may.
                except KeyError:
                    continue
                # Arguments that are not an object are compared on the slow path.
                except TypeError:
                    return careful(evidence)
        for call in calls:
            if call.aliases:
                return careful(evidence)
        # No lambda: a variable that it uses would be slower in the loops above.
        return defer_verdict(partial(decide_in_words, careful, evidence))

    return decide


def _decide_carefully(spec: ToolCalled, rule: ArgumentRule | None, ok: Verdict) -> Decide:
    wanted = _describe_wanted(spec, rule)

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        name = resolve_name(spec.name, evidence, calls, server_prefix=spec.server_prefix)
        named = find_indexes_of(calls, name)
        if spec.forbidden_arguments and (found := _find_forbidden(spec, name, evidence, calls, named)) is not None:
            return found
        if spec.index is not None:
            at = spec.index if spec.index >= 0 else len(calls) + spec.index
            if not 0 <= at < len(calls):
                return fail_calls(f"expected {wanted}; there is no position {spec.index},", evidence, calls)
            call = calls[at]
            if not call.goes_by(name):
                reason = f"expected {wanted}; {call_path(evidence, at)} is a call of {show(call.name)},"
                return fail_calls(reason, evidence, calls, (at,))
            if rule is None or rule.fits(call.arguments, build_scope(rule, evidence)):
                return ok
            return fail_no_call_fits(name, wanted, rule, evidence, calls, [at])
        scope = build_scope(rule, evidence)
        fitting = named if rule is None else [index for index in named if rule.fits(calls[index].arguments, scope)]
        if spec.every and rule is not None and len(fitting) < len(named):
            return fail_no_call_fits(name, wanted, rule, evidence, calls, sorted(set(named).difference(fitting)))
        if len(fitting) >= spec.at_least and (spec.at_most is None or len(fitting) <= spec.at_most):
            return ok

        def explain() -> Verdict:
            if not named and spec.at_least:
                return fail_never_called(name, wanted, calls)
            if rule is not None and not fitting and spec.at_least:
                return fail_no_call_fits(name, wanted, rule, evidence, calls, named)
            with_arguments = " with these arguments" if rule is not None else ""
            return failed(
                f"expected {wanted}; {show(name)} was called {describe_count(len(fitting))}{with_arguments}",
                details={"tool": name, "calls": len(named), "fitting": len(fitting)},
                pointers=call_paths(evidence, fitting),
            )

        return defer_verdict(explain)

    return over_calls(decide)


def _find_forbidden(spec: ToolCalled, name: str, evidence: Evidence, calls: Sequence[ToolCall], named: Sequence[int]) -> Verdict | None:
    forbidden = frozenset(spec.forbidden_arguments)
    for index in named:
        arguments = calls[index].arguments
        # Iterates over the arguments, because `&` may iterate over the forbidden names for every call.
        found = sorted(key for key in arguments if key in forbidden) if isinstance(arguments, dict) else ()
        if found:
            path = f"{call_path(evidence, index)}.arguments"
            return failed(
                f"{show(name)} must not be given {', '.join(show(key) for key in found)}; {call_path(evidence, index)} has "
                + ", ".join(f"{key} = {show(arguments[key])}" for key in found),
                details={"tool": name, "forbidden": found},
                pointers=tuple(join_path(path, key) for key in found),
            )
    return None


def _describe_wanted(spec: ToolCalled, rule: ArgumentRule | None) -> str:
    """Return the expectation, for use after the word `expected`."""
    called = f"{show(spec.name)}{_with_arguments(spec, rule)}"
    if spec.index is not None:
        return f"call {spec.index} to be {called}"
    if spec.every:
        return f"every call of {called}"
    if spec.at_most is not None:
        bounds = f"{spec.at_least}" if spec.at_least == spec.at_most else f"{spec.at_least} to {spec.at_most}"
        return f"{bounds} calls of {called}"
    return f"a call of {called}" if spec.at_least == 1 else f"at least {spec.at_least} calls of {called}"


def _with_arguments(spec: ToolCalled | ToolNotCalled, rule: ArgumentRule | None) -> str:
    if rule is None or not spec.arguments:
        return "" if rule is None else " with no arguments"
    exactly = "exactly " if spec.match == "exact" or getattr(spec, "strict", False) else ""
    return f" with {exactly}{show(spec.arguments)}"


@check(
    "tool_not_called",
    shorthand="name",
    example="tool_not_called: delete_account",
    reads=_declare_call_reads,
    product=has_structure,
    locate=_locate,
)
def tool_not_called(spec: ToolNotCalled) -> Decide:
    """A tool was never called, or never with the given arguments."""
    require_name(spec.name)
    rule = build_argument_rule(spec.arguments, match=spec.match, values=spec.values)
    shown = _with_arguments(spec, rule)
    ok = passed(f"{show(spec.name)} was not called{shown}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        name = resolve_name(spec.name, evidence, calls, server_prefix=spec.server_prefix)
        fitting = find_indexes_of(calls, name)
        if rule is not None and fitting:
            scope = build_scope(rule, evidence)
            fitting = [index for index in fitting if rule.fits(calls[index].arguments, scope)]
        if not fitting:
            return ok
        return failed(
            f"expected no call of {show(name)}{shown}; it was called {describe_count(len(fitting))}, {call_path(evidence, fitting[0])} "
            f"with {show(calls[fitting[0]].arguments)}",
            details={"tool": name, "calls": len(fitting)},
            pointers=call_paths(evidence, fitting),
        )

    return over_calls(decide)


@check("tool_call_count", example="tool_call_count: {name: search, count: 2}", reads=_declare_count_reads)
def tool_call_count(spec: ToolCallCount) -> Decide:
    """A tool was called exactly so many times."""
    require_name(spec.name)
    if spec.count < 0:
        raise SpecError(f"count cannot be negative, found {spec.count}", field="count")
    ok = passed(f"{show(spec.name)} was called {describe_count(spec.count)}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        named = find_indexes_of(calls, spec.name)
        if spec.succeeded:
            named = [at for at in named if not calls[at].failed()]
        if len(named) == spec.count:
            return ok
        return failed(
            f"expected {show(spec.name)} to be called {describe_count(spec.count)}; "
            f"it was called {describe_count(len(named))}, {describe_tools(calls)}",
            details={"tool": spec.name, "expected": spec.count, "calls": len(named)},
            pointers=call_paths(evidence, named),
        )

    return over_calls(decide)


@check("no_tools_called", example="no_tools_called: {}", reads=Reads(("tool_calls",), "absence"))
def no_tools_called(spec: NoToolsCalled) -> Decide:
    """No tool was called at all."""
    ok = passed("no tool was called")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        if not calls:
            return ok
        return failed(
            f"expected no tool call at all; {describe_tools(calls)}",
            details={"calls": len(calls), "tools_called": list_names(calls)},
            pointers=call_paths(evidence, range(len(calls))),
        )

    return over_calls(decide)


_OK = passed("no tool call ended in an error")


class NoToolErrors(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """No tool call ended in an error."""

    silent_calls: Literal["missing", "succeeded"] = "missing"
    """A call without result and error: `missing` evidence, or `succeeded` (as in MCPJam)."""


@check("no_tool_errors", example="no_tool_errors: {}", reads=Reads(("tool_calls", "tool_results"), "absence", own_tools=True))
def no_tool_errors(spec: NoToolErrors) -> Decide:
    """No call of a tool that the agent ran ended in an error; tools of a model's provider count where they were recorded."""

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        broken = [index for index, call in enumerate(calls) if call.failed()]
        if not broken:
            unknown = None if spec.silent_calls == "succeeded" else _fail_unknown_outcome(calls, evidence)
            return unknown or _OK
        kinds = {index: f"{kind}, " if (kind := calls[index].failure_kind()) else "" for index in broken[:3]}
        shown = (f"{calls[at].name} at {call_path(evidence, at)}: {kind}{show(calls[at].failure())}" for at, kind in kinds.items())
        more = count_rest(len(broken), 3, "; and")
        first = [calls[index] for index in broken[:100]]
        return failed(
            f"expected no tool call to fail; {len(broken)} of {len(calls)} failed: {'; '.join(shown)}{more}",
            details={"failed": [{"tool": call.name, "kind": call.failure_kind(), "error": call.failure()} for call in first]},
            pointers=tuple(f"{call_path(evidence, index)}.error" for index in broken[:100]),
        )

    return over_calls(decide)


def _fail_unknown_outcome(calls: Sequence[ToolCall], evidence: Evidence) -> Verdict | None:
    """Return the verdict for a call of plain evidence without an outcome, or None if each has one."""
    for index, call in enumerate(calls):
        if not records_outcome(call, evidence.account):
            return missing(f"how {show(call.name, 60)} at {call_path(evidence, index)} ended (neither result nor error)")
    return None
