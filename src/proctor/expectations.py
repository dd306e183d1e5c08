"""Expectations for test code: one line per claim, chained, failing with expected, found and place.

    expect(evidence).called("search", q="shoes").not_called("pay").says("found 3")

Each method decides one of our checks on the evidence. It returns the expectations so that the next claim can follow, or
raises `ExpectationFailed`, an `AssertionError` whose message says what was expected, what happened, and where to look.
A claim that cannot be decided (nothing was recorded, a pattern ran out of time) fails as well. A claim that makes no sense
raises `SpecError`: that is a mistake in the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from proctor.checks.answer.json_field import JsonField
from proctor.checks.answer.json_path import JsonPath
from proctor.checks.answer.json_schema import JsonSchema
from proctor.checks.answer.text import ResponseContains, ResponseNotContains
from proctor.checks.answer.text_pattern import ResponseMatches
from proctor.checks.registry import Registry, default_registry
from proctor.checks.run.limits import HttpStatus, RespondedWithin, TokensWithin, TurnsWithin
from proctor.checks.tools.tool_calls import NoToolErrors, NoToolsCalled, ToolCallCount, ToolCalled, ToolNotCalled
from proctor.checks.tools.tool_order import AnyToolCalled, FirstTool, ToolsCalled, ToolsExactly, ToolsInOrder
from proctor.checks.vacuous import find_vacuous
from proctor.decide.broken_off import RUN_ERROR, is_broken
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.show import nearest, show
from proctor.model.typed import convert_to
from proctor.model.verdict import Verdict, errored

__tracebackhide__ = True
"""Tracebacks of pytest end in the test, not in this file."""


class ExpectationFailed(AssertionError):
    """An expectation that does not hold; `verdict` has the reason, details and pointers."""

    def __init__(self, claim: str, verdict: Verdict) -> None:
        self.claim = claim
        self.verdict = verdict
        lines = [f"expected: {claim}", f"   found: {verdict.reason}"]
        if verdict.code is not None:
            lines.append(f"    code: {verdict.code}")
        if verdict.pointers:
            lines.append(f"      at: {', '.join(verdict.pointers[:5])}")
        super().__init__("\n".join(lines))


def expect(evidence: Evidence | Mapping[str, Json], *, registry: Registry | None = None) -> Expectations:
    """Start a chain of expectations about evidence, or about a plain mapping that is read as evidence."""
    if isinstance(evidence, Evidence):
        return Expectations(evidence, registry)
    from proctor.evidence.reading import read_document  # knows every trace format; needed only for a bare mapping

    found = read_document(dict(evidence))
    if len(found) != 1:
        raise ValueError(f"expected one run of an agent, found {len(found)} in this document; read it and expect of each")
    return Expectations(found[0], registry)


class Expectations:
    """Claims about one piece of evidence."""

    def __init__(self, evidence: Evidence, registry: Registry | None = None) -> None:
        self.evidence = evidence
        self._registry = registry

    def called(self, tool: str, /, *, arguments: Mapping[str, Json] | None = None, **named: Json) -> Expectations:
        """Expect that some call of the tool has these arguments, others are free: `called("search", q="x")`. Values may be matchers."""
        wanted = _merge_arguments(arguments, named)
        return self._hold("tool_called", ToolCalled(name=tool, arguments=wanted), f"{show(tool)} called{_with(wanted)}")

    def called_with_exactly(self, tool: str, /, *, arguments: Mapping[str, Json] | None = None, **named: Json) -> Expectations:
        """Expect that some call of the tool has these arguments and no others."""
        wanted = _merge_arguments(arguments, named) or {}
        spec = ToolCalled(name=tool, arguments=wanted, match="exact")
        return self._hold("tool_called", spec, f"{show(tool)} called with exactly {show(wanted)}")

    def not_called(self, tool: str, /, *, arguments: Mapping[str, Json] | None = None, **named: Json) -> Expectations:
        """Expect no call of the tool, or none with these arguments."""
        wanted = _merge_arguments(arguments, named)
        return self._hold("tool_not_called", ToolNotCalled(name=tool, arguments=wanted), f"{show(tool)} not called{_with(wanted)}")

    def called_times(self, tool: str, count: int, /) -> Expectations:
        """Expect that the tool was called exactly so many times."""
        return self._hold("tool_call_count", ToolCallCount(name=tool, count=count), f"{show(tool)} called {count} times")

    def called_in_order(self, *tools: str) -> Expectations:
        """Expect that these tools were called in this order; other calls may lie between."""
        return self._hold("tools_in_order", ToolsInOrder(names=tools), f"tools in the order {' -> '.join(tools)}")

    def called_exactly(self, tools: Sequence[str], /) -> Expectations:
        """Expect that these tools were called in this order, and nothing else."""
        if isinstance(tools, str):
            raise TypeError("called_exactly: expected a list of names, found text")
        names = tuple(tools)
        return self._hold("tools_exactly", ToolsExactly(names=names), f"exactly the calls {show(list(names))}")

    def called_all(self, *tools: str) -> Expectations:
        """Expect that every one of these tools was called, in any order."""
        return self._hold("tools_called", ToolsCalled(names=tools), f"all of {show(list(tools))} called")

    def called_any(self, *tools: str) -> Expectations:
        """Expect that at least one of these tools was called."""
        return self._hold("any_tool_called", AnyToolCalled(names=tools), f"any of {show(list(tools))} called")

    def no_tools(self) -> Expectations:
        """Expect that no tool was called at all."""
        return self._hold("no_tools_called", NoToolsCalled(), "no tool called")

    def first_tool(self, tool: str, /) -> Expectations:
        """Expect that the first tool called was this one."""
        return self._hold("first_tool", FirstTool(name=tool), f"{show(tool)} called first")

    def no_tool_errors(self) -> Expectations:
        """Expect that no tool call ended in an error."""
        return self._hold("no_tool_errors", NoToolErrors(), "no tool call to fail")

    def says(self, text: str, /, *, ignore_case: bool = True) -> Expectations:
        """Expect that the answer contains a text."""
        return self._hold("response_contains", ResponseContains(text=text, ignore_case=ignore_case), f"an answer with {show(text)}")

    def does_not_say(self, text: str, /, *, ignore_case: bool = True) -> Expectations:
        """Expect that the answer does not contain a text."""
        spec = ResponseNotContains(text=text, ignore_case=ignore_case)
        return self._hold("response_not_contains", spec, f"an answer without {show(text)}")

    def matches(self, pattern: str, /, *, flags: str = "") -> Expectations:
        """Expect that the answer matches an ECMAScript regular expression, anywhere."""
        return self._hold("response_matches", ResponseMatches(pattern=pattern, flags=flags), f"an answer that matches /{pattern}/{flags}")

    def json(self, path: str, /, *, equals: Json | msgspec.UnsetType = msgspec.UNSET, exists: bool = True) -> Expectations:
        """Expect that the answer, read as JSON, has (or has not) a value at a JSONPath, optionally equal to a given one."""
        claim = f"{path} = {show(equals)}" if equals is not msgspec.UNSET else f"{path} to exist" if exists else f"{path} not to exist"
        return self._hold("json_path", JsonPath(path=path, equals=equals, exists=exists), claim)

    def field(self, field: str, value: Json, /) -> Expectations:
        """Expect that a field of the answer, by dot path, has this value; it may be a matcher."""
        return self._hold("json_field", JsonField(field=field, value=value), f"{field} = {show(value)}")

    def conforms_to(self, schema: Json, /, *, field: str | None = None) -> Expectations:
        """Expect that the answer, or one field of it, conforms to a JSON Schema."""
        what = field if field is not None else "the answer"
        return self._hold("json_schema", JsonSchema(schema=schema, field=field), f"{what} to conform to {show(schema)}")

    def status(self, status: int, /) -> Expectations:
        """Expect that the HTTP status is exactly this."""
        return self._hold("http_status", HttpStatus(status=status), f"HTTP status {status}")

    def within_ms(self, ms: float, /) -> Expectations:
        """Expect that the answer came within so many milliseconds."""
        return self._hold("responded_within", RespondedWithin(ms=ms), f"an answer within {ms:g} ms")

    def within_tokens(self, total: int | None = None, /, *, input: int | None = None, output: int | None = None) -> Expectations:
        """Expect that token usage stays within bounds."""
        given = {"total": total, "input": input, "output": output}
        bounds = ", ".join(f"{name} {bound}" for name, bound in given.items() if bound is not None)
        return self._hold("tokens_within", TokensWithin(total=total, input=input, output=output), f"tokens within {bounds}")

    def within_turns(self, turns: int, /) -> Expectations:
        """Expect that the conversation took at most so many turns."""
        return self._hold("turns_within", TurnsWithin(turns=turns), f"at most {turns} turns")

    def check(self, check: str, /, **spec: Json) -> Expectations:
        """Expect any check by name with the fields of its spec: `check("tool_called", name="search", at_least=2)`."""
        entry = (self._registry or default_registry()).get(check)
        known = tuple(field.name for field in msgspec.structs.fields(entry.spec))
        for name in spec:
            if name not in known:
                raise SpecError(f"{check} has no field {name!r}; it has {', '.join(known)}", field=name, nearest=nearest(name, known))
        try:
            read = convert_to(spec, entry.spec)
        except msgspec.ValidationError as error:
            raise SpecError(f"{check}: {error}") from error
        return self._hold(check, read, f"{check} {show(spec)}" if spec else check)

    def _hold(self, check: str, spec: msgspec.Struct, claim: str) -> Expectations:
        decide = (self._registry or default_registry()).prepare(check, spec)
        nothing = find_vacuous(check, spec)
        if nothing is not None:
            raise SpecError(nothing.why, field=nothing.field, hint=nothing.hint)
        try:
            verdict = decide(self.evidence)
        except CheckFault as fault:
            verdict = errored(fault.code, fault.message)
        # A run that broke off has not passed, whatever it did until then; only its status may be claimed.
        if verdict.passed and check != "http_status" and is_broken(self.evidence):
            verdict = errored(RUN_ERROR, f"the run ended in an error: {self.evidence.error}")
        if verdict.outcome != "pass":
            raise ExpectationFailed(claim, verdict)
        return self


def _merge_arguments(arguments: Mapping[str, Json] | None, named: dict[str, Json]) -> dict[str, Json] | None:
    if arguments is not None and named:
        raise TypeError("give arguments by keyword or as arguments={...}, not both")
    return dict(arguments) if arguments is not None else named or None


def _with(arguments: dict[str, Json] | None) -> str:
    return f" with {show(arguments)}" if arguments is not None else ""
