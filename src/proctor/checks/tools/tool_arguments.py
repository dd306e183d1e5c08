"""Claims about what was passed to a tool, whichever call it was.

A claim holds when **any** call of the tool satisfies it. `tool_input_*` look at the arguments as one compact JSON text,
the way JavaScript writes it; `tool_argument` looks at one top-level argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.calls import (
    build_scope,
    call_path,
    call_paths,
    describe_count,
    fail_never_called,
    fail_no_call_fits,
    find_indexes_of,
    list_recorded_calls,
    locate_arguments,
    locate_fitting,
    over_calls,
    over_calls_of,
    require_name,
    resolve_name,
)
from proctor.checks.shared.places import JsonDocument, Span, find_spans, locate_in_json, write_javascript_json
from proctor.errors import CheckFault, SpecError
from proctor.matchers.call_arguments import build_argument_rule
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.json_values import equal
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, failed, passed
from proctor.paths.json_path import compile_path, list_keys
from proctor.patterns.engine import compile_pattern


class ToolArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some call of the tool has this argument with this value."""

    tool: str
    """The tool's name."""
    argument: str
    """The argument's name, top level."""
    value: Json | msgspec.UnsetType = msgspec.UNSET
    """The value, or a matcher; left out: the argument only has to be there."""
    values: Literal["matchers", "literal"] = "matchers"
    """Whether matcher objects in `value` have their meaning."""


class ToolInputContains(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some call's arguments, written as compact JSON, contain this text."""

    tool: str
    """The tool's name."""
    text: str
    """The text to find."""
    ignore_case: bool = True
    """Whether upper and lower case are the same."""
    server_prefix: bool = False
    """As in `tool_called`."""


class ToolInputMatches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some call's arguments, written as compact JSON, match this regular expression."""

    tool: str
    """The tool's name."""
    pattern: str
    """An ECMAScript pattern, searched anywhere."""
    flags: str = ""
    """ECMAScript flags: any of `i`, `m`, `s`, `u`."""
    on_invalid: Literal["error", "fail"] = "error"
    """Whether a pattern that cannot be read is an error of the suite or a failed check."""
    server_prefix: bool = False
    """As in `tool_called`."""


class ToolInputPath(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some call's arguments have a value at this JSONPath, optionally equal to a given one."""

    tool: str
    """The tool's name."""
    path: str
    """A JSONPath."""
    equals: Json | msgspec.UnsetType = msgspec.UNSET
    """The value to find; left out: the path only has to exist."""
    syntax: Literal["rfc9535", "mcplab"] = "rfc9535"
    """`mcplab` also takes the forms its users write: no leading `$`, `[(@.length-1)]`, `.length`."""
    on_invalid: Literal["error", "fail"] = "error"
    """Whether a path that cannot be read is an error of the suite or a failed check."""
    server_prefix: bool = False
    """As in `tool_called`."""


def _locate_argument(spec: ToolArgument, evidence: Evidence) -> Iterator[TextRange]:
    if spec.value is msgspec.UNSET:
        return locate_arguments(evidence, spec.tool, (spec.argument,))
    rule = build_argument_rule({spec.argument: spec.value}, values=spec.values)
    return locate_fitting(rule, evidence, spec.tool)


def _locate_path(spec: ToolInputPath, evidence: Evidence) -> Iterator[TextRange]:
    calls = list_recorded_calls(evidence) or ()
    tool = resolve_name(spec.tool, evidence, calls, server_prefix=spec.server_prefix)
    path = compile_path(spec.path, spec.syntax)
    for index in find_indexes_of(calls, tool):
        arguments = calls[index].arguments
        nodes = [node for node in path.find_nodes(arguments) if _is_wanted(spec, node[0])] if _has_values(spec, arguments) else []
        if nodes:
            places = (list_keys(node, arguments) for node in nodes)
            return JsonDocument(arguments, f"{call_path(evidence, index)}.arguments").locate(keys for keys in places if keys is not None)
    return iter(())


def _locate_input(spec: ToolInputContains | ToolInputMatches, evidence: Evidence) -> Iterator[TextRange]:
    calls = list_recorded_calls(evidence) or ()
    tool = resolve_name(spec.tool, evidence, calls, server_prefix=spec.server_prefix)
    for index in find_indexes_of(calls, tool):
        found = tuple(locate_in_json(calls[index].arguments, f"{call_path(evidence, index)}.arguments", _make_finder(spec)))
        if found:
            # One call that fits decides.
            return iter(found)
    return iter(())


def _make_finder(spec: ToolInputContains | ToolInputMatches) -> Callable[[str], Iterator[Span]]:
    if isinstance(spec, ToolInputContains):
        return lambda written: find_spans(written, spec.text, ignore_case=spec.ignore_case)
    pattern = compile_pattern(spec.pattern, spec.flags)

    def find(written: str) -> Iterator[Span]:
        found = pattern.search(written)
        return iter(() if found is None else ((found.start, found.end),))

    return find


@check(
    "tool_argument",
    example="tool_argument: {tool: search, argument: limit, value: {$lte: 10}}",
    reads=Reads(("tool_calls", "tool_arguments"), "presence"),
    product=lambda spec: isinstance(spec.value, (dict, list)),
    locate=_locate_argument,
)
def tool_argument(spec: ToolArgument) -> Decide:
    """Some call of the tool has this argument with this value."""
    require_name(spec.tool, "tool")
    if spec.value is msgspec.UNSET:
        return _decide_presence(spec)
    try:
        rule = build_argument_rule({spec.argument: spec.value}, values=spec.values)
    except SpecError as error:
        # The rule reports `arguments.<name>...`, but the author wrote `value`.
        inner = (error.field or "").removeprefix(f"arguments.{spec.argument}")
        raise error.move_to(f"value{inner}") from error
    assert rule is not None  # one argument is listed
    wanted = f"a call of {show(spec.tool)} with {spec.argument} = {show(spec.value)}"
    ok = passed(f"{show(spec.tool)} was called with {spec.argument} = {show(spec.value)}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall], named: list[int]) -> Verdict:
        scope = build_scope(rule, evidence)
        if any(rule.fits(calls[index].arguments, scope) for index in named):
            return ok
        return fail_no_call_fits(spec.tool, wanted, rule, evidence, calls, named)

    return over_calls_of(spec.tool, wanted, decide)


def _decide_presence(spec: ToolArgument) -> Decide:
    wanted = f"a call of {show(spec.tool)} with the argument {show(spec.argument)}"
    ok = passed(f"{show(spec.tool)} was called with the argument {show(spec.argument)}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall], named: list[int]) -> Verdict:
        given = [calls[index].arguments for index in named]
        if any(isinstance(arguments, dict) and spec.argument in arguments for arguments in given):
            return ok
        return failed(
            f"expected {wanted}; it was called {describe_count(len(named))}, {call_path(evidence, named[0])} with {show(given[0])}",
            details={"tool": spec.tool, "calls": len(named)},
            pointers=call_paths(evidence, named),
        )

    return over_calls_of(spec.tool, wanted, decide)


@check(
    "tool_input_contains",
    example="tool_input_contains: {tool: search, text: shoes}",
    reads=Reads(("tool_calls", "tool_arguments"), "presence"),
    locate=_locate_input,
)
def tool_input_contains(spec: ToolInputContains) -> Decide:
    """Some call's arguments, written as compact JSON, contain this text."""
    require_name(spec.tool, "tool")
    text = spec.text.lower() if spec.ignore_case else spec.text

    def holds(arguments: Json) -> bool:
        written = write_javascript_json(arguments)
        return text in (written.lower() if spec.ignore_case else written)

    return _decide_any_input(spec, holds, f"contain {show(spec.text)}")


@check(
    "tool_input_matches",
    example='tool_input_matches: {tool: search, pattern: \'"q":"[a-z ]+"\'}',
    reads=Reads(("tool_calls", "tool_arguments"), "presence"),
    product=True,
    locate=_locate_input,
)
def tool_input_matches(spec: ToolInputMatches) -> Decide:
    """Some call's arguments, written as compact JSON, match this regular expression."""
    require_name(spec.tool, "tool")
    try:
        pattern = compile_pattern(spec.pattern, spec.flags)
    except SpecError as error:
        return _decide_invalid(spec, error, f"match {show(spec.pattern)}; invalid regex", "invalid_pattern")

    def holds(arguments: Json) -> bool:
        return pattern.search(write_javascript_json(arguments)) is not None

    return _decide_any_input(spec, holds, f"match /{spec.pattern}/{spec.flags}")


@check(
    "tool_input_path",
    example="tool_input_path: {tool: search, path: '$.filters[0].name', equals: size}",
    reads=Reads(("tool_calls", "tool_arguments"), "presence"),
    product=True,
    locate=_locate_path,
)
def tool_input_path(spec: ToolInputPath) -> Decide:
    """Some call's arguments have a value at this JSONPath, optionally equal to a given one."""
    require_name(spec.tool, "tool")
    try:
        path = compile_path(spec.path, spec.syntax)
    except SpecError as error:
        return _decide_invalid(spec, error, f"have {spec.path}; invalid JSONPath", "invalid_path")

    def holds(arguments: Json) -> bool:
        return _has_values(spec, arguments) and any(_is_wanted(spec, value) for value in path.find(arguments))

    has = f"have {spec.path}" + ("" if spec.equals is msgspec.UNSET else f" = {show(spec.equals)}")
    return _decide_any_input(spec, holds, has)


# jsonpath-plus finds nothing in a falsy document, and compares with `===`, so lists and objects equal nothing. MCPLab uses jsonpath-plus,
# and its suites must give the same results here.


def _has_values(spec: ToolInputPath, arguments: Json) -> bool:
    return spec.syntax != "mcplab" or isinstance(arguments, (dict, list)) or bool(arguments)


def _is_wanted(spec: ToolInputPath, value: Json) -> bool:
    if spec.equals is msgspec.UNSET:
        return True
    return not (spec.syntax == "mcplab" and isinstance(value, (dict, list))) and equal(spec.equals, value)


def _decide_invalid(spec: ToolInputMatches | ToolInputPath, error: SpecError, claim: str, code: str) -> Decide:
    """Fail on every evidence, as MCPLab does for a pattern or path it cannot read; in our own suites it is an error."""
    if spec.on_invalid == "error":
        raise error
    verdict = failed(f"expected the input of {show(spec.tool)} to {claim}: {error.message}", code=code)
    return lambda evidence: verdict


def _decide_any_input(spec: ToolInputContains | ToolInputMatches | ToolInputPath, holds: Callable[[Json], bool], claim: str) -> Decide:
    """Return a decision whether any call of the tool satisfies the claim; an error in one call matters only if no other satisfies it."""
    ok = passed(f"an input of {show(spec.tool)} does {claim}")

    def decide(evidence: Evidence, calls: Sequence[ToolCall]) -> Verdict:
        tool = resolve_name(spec.tool, evidence, calls, server_prefix=spec.server_prefix)
        named = find_indexes_of(calls, tool)
        wanted = f"an input of {show(tool)} to {claim}"
        if not named:
            return fail_never_called(tool, wanted, calls)
        fault: CheckFault | None = None
        for index in named:
            try:
                if holds(calls[index].arguments):
                    return ok
            except CheckFault as error:
                # The budget is for the whole assertion, and it is already spent.
                if error.code == "too_much_work":
                    raise
                fault = fault or error
        if fault is not None:
            raise fault
        shown = ", ".join(f"{call_path(evidence, index)} has {show(calls[index].arguments)}" for index in named[:3])
        return failed(
            f"expected {wanted}; it was called {describe_count(len(named))}: {shown}",
            details={"tool": tool, "calls": len(named)},
            pointers=tuple(f"{pointer}.arguments" for pointer in call_paths(evidence, named)),
        )

    return over_calls(decide)
