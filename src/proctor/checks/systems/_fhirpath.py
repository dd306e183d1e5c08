"""FHIRPath on one resource, by `fhirpathpy` (the extra `health`), sandboxed.

The library is a plain interpreter without limits, so every function and operator goes through a guard here: it counts work, limits lists,
texts and numbers, and replaces functions that reach outside. `matches()` uses our pattern engine, `trace()` prints nothing, `now()`,
`today()` and `timeOfDay()` read the clock of the evidence. `replaceMatches()` is rejected. The library's own parser skips input it does
not understand; here the whole text must be an expression, and every function must exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

from proctor.errors import CheckFault, MissingExtra, SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import exceeds_depth
from proctor.model.show import nearest, show
from proctor.patterns.engine import compile_pattern
from proctor.work import spend

_LONGEST = 1_000
"""The maximum length of an expression in characters."""
_MOST_NESTED = 50
"""The maximum nesting of brackets; the library parses them recursively."""
_MOST_WORK = 300_000
"""The maximum number of steps of one evaluation: the library has no limit of its own."""
_MOST_ITEMS = 20_000
"""The maximum number of values that one function may return; each later step walks them all."""
_MOST_TEXT = 1_000_000
"""The maximum length in characters of a text that an expression may build."""
_MOST_BITS = 4_096
"""The maximum size in bits of an integer that an expression may build: powers grow without limit."""
_DEEPEST = 100
"""The maximum depth of a resource; the library walks it recursively."""
_ADDRESS = re.compile(r"<[A-Za-z_.]{1,100} object at 0x[0-9a-f]{1,16}>")
# Functions that compare every item with every other one.
_QUADRATIC = ("distinct", "isDistinct", "union", "|", "intersect", "exclude", "subsetOf", "supersetOf", "repeat", "=", "!=", "~", "!~")

Function = Callable[..., Any]


class FhirPath:
    """A parsed expression; `evaluate` returns its values on a resource."""

    def __init__(self, text: str, tree: dict[str, Any], model: dict[str, Any], library: dict[str, dict[str, Any]]) -> None:
        self.text = text
        self._tree = tree
        self._model = model
        self._functions = _guard_library(library)

    def evaluate(self, resource: dict[str, Json], now: datetime | None) -> list[Json]:
        """Return the values as JSON. Raises `CheckFault` if the expression has none on this resource, or takes too long."""
        from fhirpathpy.engine import do_eval  # the optional library is installed, or the expression could not have been compiled

        if exceeds_depth(resource, _DEEPEST):
            raise CheckFault("fhirpath_limit", f"FHIRPath {show(self.text)}: the resource is nested deeper than {_DEEPEST} levels")
        context: dict[str, Any] = {
            "dataRoot": [resource],
            "vars": {"context": resource, "resource": resource, "ucum": "http://unitsofmeasure.org"},
            "model": self._model,
            # The library overlays its own table with this one, which has all of its functions, so none runs unguarded.
            "userInvocationTable": self._functions,
            "proctor_work": [0],
            "proctor_now": now,
        }
        try:
            return [_to_plain_json(value) for value in do_eval(context, [resource], self._tree)]
        except CheckFault as fault:
            raise CheckFault(fault.code, f"FHIRPath {show(self.text)}: {fault.message}") from None
        except RecursionError:
            raise CheckFault("fhirpath_limit", f"FHIRPath {show(self.text)}: nested too deeply") from None
        except Exception as error:
            # The library raises bare `Exception` for a wrong type or number of values, besides Python's own exceptions. Without memory
            # addresses, so that a verdict reads the same every time.
            message = show(_ADDRESS.sub("a value", str(error)) or type(error).__name__)
            raise CheckFault("fhirpath_error", f"FHIRPath {show(self.text)}: {message}") from None


def compile_fhirpath(text: str, *, field: str) -> FhirPath:
    """Compile an expression. Raises `SpecError` with the offset of an error, `MissingExtra` without the library."""
    if len(text) > _LONGEST:
        raise SpecError(f"FHIRPath of {len(text)} characters; the longest allowed is {_LONGEST}", field=field)
    deepest = depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if deepest > _MOST_NESTED:
        raise SpecError(f"FHIRPath: brackets nested more than {_MOST_NESTED} deep", field=field)
    try:
        # Slow to import, and optional.
        from fhirpathpy.engine.invocations import invocation_registry
        from fhirpathpy.models import models
    except ImportError:
        raise MissingExtra("FHIRPath", "health") from None
    try:
        tree = _parse(text, field)
    except RecursionError:
        raise SpecError("FHIRPath: nested too deeply", field=field) from None
    # The library stores operators in the same table under names such as `inOp`, which no expression can call.
    known = [
        name for name in invocation_registry if name.isalpha() and name not in ("replaceMatches", "containsOp", "inOp", "isOp", "asOp")
    ]
    for name in _find_functions(tree):
        if name not in known:
            raise SpecError(
                f"FHIRPath: unknown function {name}()", field=field, offset=max(0, text.find(name)), nearest=nearest(name, known)
            )
    return FhirPath(text, tree, dict(models["r4"]), invocation_registry)


def _parse(text: str, field: str) -> dict[str, Any]:
    from antlr4 import CommonTokenStream, InputStream  # part of the optional library
    from antlr4.error.ErrorListener import ErrorListener
    from antlr4.tree.Tree import ParseTreeWalker
    from fhirpathpy.parser.ASTPathListener import ASTPathListener
    from fhirpathpy.parser.generated.FHIRPathLexer import FHIRPathLexer
    from fhirpathpy.parser.generated.FHIRPathParser import FHIRPathParser

    class Refuse(ErrorListener):
        def syntaxError(self, recognizer: Any, offendingSymbol: Any, line: int, column: int, msg: str, e: Any) -> NoReturn:
            offset = sum(len(part) for part in text.splitlines(keepends=True)[: line - 1]) + column
            raise SpecError(f"FHIRPath: {_shorten_message(msg)} at character {offset + 1}", field=field, offset=offset)

    lexer = FHIRPathLexer(InputStream(text))
    parser = FHIRPathParser(CommonTokenStream(lexer))
    for part in (lexer, parser):
        # The listeners of ANTLR print to the terminal and let the parser continue.
        part.removeErrorListeners()
        part.addErrorListener(Refuse())
    whole: Any = parser.entireExpression()
    builder = ASTPathListener()
    ParseTreeWalker().walk(builder, whole.expression())
    return builder.parentStack[0]["children"][0]


def _shorten_message(message: str) -> str:
    """Return a message of the parser without its list of all possible tokens."""
    return (
        message.partition(" expecting {")[0]
        .replace("<EOF>", "end")
        .replace("mismatched input", "unexpected")
        .replace("extraneous input", "unexpected")
    )


def _find_functions(tree: dict[str, Any]) -> Iterator[str]:
    # Functions are looked up when the expression is read: the library would only notice at evaluation.
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        children = node.get("children", ())
        if node.get("type") == "Functn":
            yield children[0]["text"].strip("`")
        waiting.extend(children)


def _guard_library(library: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    own: dict[str, Function] = {
        "trace": lambda context, values, *_: values,
        "matches": _matches,
        "now": lambda context, *_: _read_clock(context).isoformat(timespec="milliseconds"),
        "today": lambda context, *_: _read_clock(context).date().isoformat(),
        "timeOfDay": lambda context, *_: _read_clock(context).time().isoformat(timespec="milliseconds"),
        "repeat": _repeat_within_bounds,
    }
    return {name: {**entry, "fn": _guard_function(name, own[name] if name in own else entry["fn"])} for name, entry in library.items()}


def _guard_function(name: str, function: Function) -> Function:
    square = name in _QUADRATIC

    def guarded(context: dict[str, Any], *arguments: Any) -> Any:
        size = 1 + sum(len(argument) for argument in arguments if isinstance(argument, list))
        # Before the call: the library cannot be stopped once it has begun.
        _spend_work(context, size * size if square else size)
        if name in ("join", "replace"):
            _bound_growth(arguments)
        result = function(context, *arguments)
        values = result if isinstance(result, list) else (result,)
        _spend_work(context, len(values))
        if len(values) > _MOST_ITEMS:
            raise CheckFault("fhirpath_limit", f"more than {_MOST_ITEMS} values")
        for value in values:
            if isinstance(value, str) and len(value) > _MOST_TEXT:
                raise CheckFault("fhirpath_limit", f"a text of more than {_MOST_TEXT} characters")
            if isinstance(value, int) and value.bit_length() > _MOST_BITS:
                raise CheckFault("fhirpath_limit", "a number too large")
        return result

    return guarded


def _spend_work(context: dict[str, Any], amount: int) -> None:
    context["proctor_work"][0] += amount
    # These steps are slow and repeat for every resource.
    spend(4 * amount)
    if context["proctor_work"][0] > _MOST_WORK:
        raise CheckFault("fhirpath_limit", "took too many steps")


def _bound_growth(arguments: tuple[Any, ...]) -> None:
    """Reject joining the pieces of a text if the result is too long; two functions do that."""
    values = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
    pieces = sum(len(text) + 1 for value in values if isinstance(text := getattr(value, "data", value), str))
    if any(isinstance(text, str) and pieces * len(text) > 10 * _MOST_TEXT for text in arguments[1:]):
        raise CheckFault("fhirpath_limit", f"a text of more than {_MOST_TEXT} characters")


def _repeat_within_bounds(context: dict[str, Any], data: Any, expression: Function) -> list[Any]:
    """Apply `repeat()` within limits; the library's own function may never end, as it stops only at values seen before."""
    found: list[Any] = []
    waiting = list(data) if isinstance(data, list) else []
    while waiting:
        for value in expression(waiting.pop(0)):
            # `in` below walks all values found so far.
            _spend_work(context, 1 + len(found))
            if value not in found:
                found.append(value)
                waiting.append(value)
    return found


def _matches(context: dict[str, Any], values: Any, pattern: Any) -> Any:
    if not isinstance(pattern, str) or not values:
        return []
    text = getattr(values[0], "data", values[0])
    if len(values) != 1 or not isinstance(text, str):
        raise CheckFault("fhirpath_error", "matches() needs a single text")
    # In FHIRPath the dot matches line ends, and the pattern may match anywhere.
    return compile_pattern(pattern, "s").search(text) is not None


def _read_clock(context: dict[str, Any]) -> datetime:
    now = context["proctor_now"]
    if now is None:
        raise CheckFault("no_clock", "the evidence carries no clock")
    return now


def _to_plain_json(value: Any) -> Json:
    """Return a value of the library as JSON: nodes unwrapped, decimals as numbers, dates and quantities as text."""
    value = getattr(value, "data", value)
    if isinstance(value, Decimal):
        # A decimal such as 1E+1000000 is an integer as well, and `int` would write out all of its digits.
        return int(value) if value == value.to_integral_value() and value.adjusted() < 400 else float(value)
    if value is None or isinstance(value, (bool, int, float, str, dict, list)):
        return value
    return str(value)
