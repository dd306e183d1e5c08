"""A claim about evidence in one line, in the language of conditions: `that: tool_calls[*].arguments.amount < 100`.

- A comparison on `[*]` must hold for every value that the path leads to, and there must be one: an empty selection is a `fail` with the
  code `no_match`. `all(...)` holds of none, `any(...)` does not.
- In `all(...)` and `any(...)` the paths are about the same item, so that `all(tool_calls[*].name != "refund" or
  tool_calls[*].arguments.amount < 100)` speaks of each call by itself.
- A path that leads nowhere decides nothing: `no_match`, a `fail`, negated or not. `exists(path)` asks whether it leads somewhere.
- Evidence that was not recorded, or that a reader does not wholly know, is `missing_evidence`, an `error`, unless another part of an
  `and` or `or` decides already.
- Numbers are ordered with numbers and texts with texts; dates of functions with ISO dates. Anything else has no order: `wrong_type`, a
  `fail`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

import msgspec

from proctor.checks.missing_evidence import MISSING
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import answer_json
from proctor.errors import CheckFault
from proctor.expressions.condition import (
    Both,
    Call,
    Compare,
    Condition,
    Each,
    Key,
    Listed,
    Measure,
    Not,
    Path,
    Step,
    Truth,
    Value,
    compile_condition,
    holds_call,
    list_values,
)
from proctor.expressions.expression import Evaluation, Literal
from proctor.expressions.functions import Unfit
from proctor.expressions.moments import Moment, find_zone, move_to_zone, order, read_moment
from proctor.expressions.text_form import Scope
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import equal, is_number
from proctor.model.recorded import Unrecorded, read_recorded
from proctor.model.show import count_rest, describe_value, kind_of, shorten, show
from proctor.model.verdict import Verdict, failed, passed
from proctor.work import spend

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Found(msgspec.Struct, frozen=True):
    """A value and its position in the evidence, if it has one."""

    value: Json
    pointers: tuple[str, ...] = ()


class Undecided(msgspec.Struct, frozen=True):
    """Why there is no value or no comparison."""

    reason: str
    code: str
    pointers: tuple[str, ...] = ()


Place = Found | Undecided


class Values:
    """The values of one evidence, as one condition reads them."""

    def __init__(self, evidence: Evidence, text: str) -> None:
        self._evidence = evidence
        self._text = text
        self._bound: tuple[tuple[Step, ...], Place] | None = None

    @functools.cached_property
    def scope(self) -> Scope:
        """The clock, zone and variables of the evidence."""
        return Scope.read_from(self._evidence)

    @contextmanager
    def bind(self, prefix: tuple[Step, ...], item: Place) -> Generator[None]:
        """Bind paths that begin with `prefix` to `item`."""
        previous, self._bound = self._bound, (prefix, item)
        try:
            yield
        finally:
            self._bound = previous

    def evaluate(self, value: Value) -> Place:
        """Return the value of a term, or why it has none."""
        match value:
            case Literal():
                return Found(value.value)
            case Path():
                return self._find_one(value)
            case Listed():
                return self._gather([self.evaluate(item) for item in value.items])
            case Measure():
                return self._measure(value)
            case Call():
                return self._call(value)

    def select(self, steps: tuple[Step, ...]) -> list[Place]:
        """Return every place that the steps lead to, without dead ends."""
        start, rest = self._find_start(steps)
        places = [start]
        for step in rest:
            # Unknown places stay in the list: otherwise a claim about every item would pass unseen.
            places = [each for place in places for each in ([place] if isinstance(place, Undecided) else self._take_step(place, step))]
            spend(len(places))
        return [place for place in places if not (isinstance(place, Undecided) and place.code == "no_match")]

    def _find_one(self, path: Path) -> Place:
        if path.selects and not self._is_bound(path.steps):
            # Only `in` accepts several values, as a list.
            return self._gather(self.select(path.steps))
        place, rest = self._find_start(path.steps)
        for step in rest:
            if isinstance(place, Undecided):
                return place
            place = self._take_step(place, step)[0]
        return place

    def _is_bound(self, steps: tuple[Step, ...]) -> bool:
        return self._bound is not None and steps[: len(self._bound[0])] == self._bound[0]

    def _find_start(self, steps: tuple[Step, ...]) -> tuple[Place, tuple[Step, ...]]:
        if self._bound is not None and self._is_bound(steps):
            return self._bound[1], steps[len(self._bound[0]) :]
        first = steps[0]
        assert isinstance(first, Key)
        if first.name == "body":
            return _read_body(self._evidence), steps[1:]
        return self._take_step(Found(self._evidence, ("$",)), first)[0], steps[1:]

    def _take_step(self, place: Found, step: Step) -> list[Place]:
        value, pointer = place.value, place.pointers[0]
        if isinstance(step, Key):
            return [self._take_member(value, step.name, pointer)]
        if not isinstance(value, (list, tuple)):
            return [_make_absent(f"{pointer} is {kind_of(value)}, not a list")] if step is not None else []
        places = place.pointers[1:] if len(place.pointers) > 1 else None
        if step is None:
            return [Found(item, (places[at] if places else f"{pointer}[{at}]",)) for at, item in enumerate(value)]
        at = step + len(value) if step < 0 else step
        if not 0 <= at < len(value):
            return [_make_absent(f"{pointer} has {len(value)} items, so there is no [{step}]")]
        return [Found(value[at], (places[at] if places else f"{pointer}[{at}]",))]

    def _take_member(self, value: Json, name: str, pointer: str) -> Place:
        if isinstance(value, msgspec.Struct):
            read = read_recorded(value, name, self._evidence.account)
            at = join_path(pointer, name)
            if isinstance(read, Unrecorded):
                return Undecided(read.why, "missing_evidence", (at,))
            if name == "tool_calls" and isinstance(value, Evidence) and value.tool_calls is None:
                # Calls recorded inside nodes keep their paths.
                nested = [f"$.nodes[{n}].tool_calls[{c}]" for n, node in enumerate(value.nodes or ()) for c in range(len(node.tool_calls))]
                return Found(read, (at, *nested))
            return Found(read, (at,))
        if isinstance(value, dict) and name in value:
            return Found(value[name], (join_path(pointer, name),))
        reason = "has no such member" if isinstance(value, dict) else f"is {kind_of(value)}, not an object"
        return _make_absent(f"no value at {join_path(pointer, name)}: {pointer} {reason}")

    def _gather(self, places: list[Place]) -> Place:
        undecided = next((place for place in places if isinstance(place, Undecided)), None)
        if undecided is not None:
            return undecided
        found = [place for place in places if isinstance(place, Found)]
        return Found([place.value for place in found], tuple(place.pointers[0] for place in found[:20] if place.pointers))

    def _measure(self, measure: Measure) -> Place:
        path = measure.path
        place = self._find_one(path)
        selects = path.selects and not self._is_bound(path.steps)
        pointers = place.pointers if selects else place.pointers[:1]
        if isinstance(place, Undecided):
            return Found(False) if measure.name == "exists" and place.code == "no_match" else place
        if measure.name == "exists":
            return Found(len(place.value) > 0 if selects else True, pointers)
        if not isinstance(place.value, (list, tuple, dict, str)):
            return Undecided(f"len({path.source}): {describe_value(place.value)} has no length", "wrong_type", pointers)
        return Found(len(place.value), pointers)

    def _call(self, call: Call) -> Place:
        values: list[Json] = []
        for index, argument in enumerate(call.arguments):
            place = self.evaluate(argument)
            if isinstance(place, Undecided):
                return place
            try:
                values.append(call.function.kind_at(index)(place.value))
            except Unfit as error:
                return Undecided(f"{call.function.name}, argument {index + 1}: {error.message}", "wrong_type", place.pointers[:1])
        return Found(Evaluation(self._text, self.scope).apply(call.function, values, call.offset))


def _make_absent(reason: str) -> Undecided:
    return Undecided(reason, "no_match")


def compare_values(word: str, left: Json, right: Json, scope: Scope) -> bool | Undecided:
    """Return whether two values satisfy a comparison, or why they cannot be compared."""
    if word in ("in", "not in", "==", "!="):
        holds = _is_in(left, right, scope) if word.endswith("in") else _is_equal(left, right, scope)
        return holds if isinstance(holds, Undecided) else holds == (word in ("in", "=="))
    if isinstance(left, date) or isinstance(right, date):
        sign = _order_moments(left, right, scope)
        return sign if isinstance(sign, Undecided) else _ORDERS[word](sign, 0)
    comparable = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    if not comparable:
        return Undecided(f"{_describe(left)} and {_describe(right)} have no order", "wrong_type")
    return _ORDERS[word](left, right)


def _is_equal(left: Json, right: Json, scope: Scope) -> bool | Undecided:
    """Return whether two values are equal; a date equals a text with the same moment, also inside a list."""
    if isinstance(left, date) or isinstance(right, date):
        sign = _order_moments(left, right, scope)
        return sign if isinstance(sign, Undecided) else sign == 0
    if not (_holds_dates(left) or _holds_dates(right)):
        return equal(left, right)
    if not isinstance(left, (list, tuple)) or not isinstance(right, (list, tuple)) or len(left) != len(right):
        return False
    spend(8 * len(left))
    verdicts = [_is_equal(one, other, scope) for one, other in zip(left, right, strict=True)]
    # One different pair decides, whatever the others are.
    if False in verdicts:
        return False
    return next((one for one in verdicts if isinstance(one, Undecided)), True)


def _holds_dates(value: Json) -> bool:
    # Only a list written in a condition contains dates: evidence has moments as text.
    return isinstance(value, (list, tuple)) and any(isinstance(one, date) for one in value)


def _is_in(item: Json, holder: Json, scope: Scope) -> bool | Undecided:
    if isinstance(holder, str):
        spend(len(holder) // 1000 + 1)
        if item == "":
            # Usually an empty table cell: a claim that passes for every answer tests none.
            return Undecided("there is nothing to look for: an empty text is in every text", "wrong_type")
        return item in holder if isinstance(item, str) else Undecided(f"{_describe(item)} cannot be in a text", "wrong_type")
    if isinstance(holder, dict):
        return item in holder if isinstance(item, str) else Undecided(f"{_describe(item)} cannot be a key of an object", "wrong_type")
    if not isinstance(holder, (list, tuple)):
        return Undecided(f"nothing can be in {_describe(holder)}", "wrong_type")
    if isinstance(item, str) and not _holds_dates(holder):
        spend(len(holder))
        return item in holder  # a text equals only a text
    spend(8 * len(holder))
    incomparable: Undecided | None = None
    for each in holder:
        equal = _is_equal(item, each, scope)
        if equal is True:
            return True
        incomparable = equal if isinstance(equal, Undecided) else incomparable
    return incomparable or False


def _order_moments(left: Json, right: Json, scope: Scope) -> int | Undecided:
    zone = find_zone(scope.zone)
    moments: list[Moment] = []
    for side in (left, right):
        moment = read_moment(side) if isinstance(side, str) else side
        if not isinstance(moment, date):
            return Undecided(f"{_describe(side)} is not a date or time", "wrong_type")
        try:
            moments.append(move_to_zone(moment, zone))
        except OverflowError:
            raise CheckFault("expression_error", "a date at the edge of the calendar cannot be compared") from None
    return order(moments[0], moments[1])


def _is_number(value: Json) -> bool:
    # NaN is neither less, equal nor greater, so a comparison with it would only seem decided.
    return is_number(value) and value == value


def _describe(value: Json) -> str:
    return describe_value(value, 80) if not isinstance(value, date) else f"the date {value.isoformat()}"


def show_found(term: Value, found: Found) -> str:
    """Return the value of a term and its position; empty for a literal."""
    if isinstance(term, Literal):
        return ""
    value = found.value.isoformat() if isinstance(found.value, date) else show(msgspec.to_builtins(found.value), 120)
    return f"{value} at {found.pointers[0]}" if found.pointers else value


_MOST_LISTED = 3
"""The maximum number of reasons listed for an `or`."""


class Ruling(msgspec.Struct, frozen=True):
    """The result of a condition: true, false, or why it is undecided."""

    holds: bool | None
    reason: str = ""
    code: str | None = None
    pointers: tuple[str, ...] = ()


_HOLDS = Ruling(True)


class DecidingCondition:
    """Decides the parts of a condition on one evidence."""

    def __init__(self, evidence: Evidence, text: str) -> None:
        self.values = Values(evidence, text)

    def decide(self, condition: Condition) -> Ruling:
        """Decide a condition, or a part of one."""
        spend(1)
        match condition:
            case Compare():
                return self._compare(condition)
            case Truth():
                return self._decide_truth(condition)
            case Both():
                deciding = condition.word == "or"
                rulings = _gather(map(self.decide, condition.parts), deciding)
                if isinstance(rulings, Ruling):
                    return rulings
                return _join_failures(rulings) if deciding else _HOLDS
            case Not():
                inner = self.decide(condition.part)
                if inner.holds is None:
                    return inner
                if inner.holds:
                    return Ruling(False, f"expected {shorten(condition.source, 200)}, but {shorten(condition.part.source, 200)} is true")
                return _HOLDS
            case Each():
                return self._decide_each(condition)

    def _compare(self, condition: Compare) -> Ruling:
        left, right = self.values.evaluate(condition.left), self.values.evaluate(condition.right)
        for side in (left, right):
            if isinstance(side, Undecided):
                return Ruling(None, side.reason, side.code, side.pointers)
        assert not isinstance(left, Undecided) and not isinstance(right, Undecided)
        holds = compare_values(condition.operator, left.value, right.value, self.values.scope)
        pointers = (*left.pointers, *right.pointers)
        if isinstance(holds, Undecided):
            return Ruling(None, f"{shorten(condition.source, 200)}: {holds.reason}", holds.code, pointers)
        if holds:
            return _HOLDS
        sides = filter(None, (show_found(condition.left, left), show_found(condition.right, right)))
        return Ruling(False, f"expected {shorten(condition.source, 200)}, found {' and '.join(sides)}", None, pointers)

    def _decide_truth(self, condition: Truth) -> Ruling:
        found = self.values.evaluate(condition.value)
        if isinstance(found, Undecided):
            return Ruling(None, found.reason, found.code, found.pointers)
        expected = f"expected {shorten(condition.source, 200)} to be"
        if not isinstance(found.value, bool):
            return Ruling(None, f"{expected} true or false, found {describe_value(found.value)}", "wrong_type", found.pointers)
        at = f" at {found.pointers[0]}" if found.pointers else ""
        return _HOLDS if found.value else Ruling(False, f"{expected} true, found false{at}", None, found.pointers)

    def _decide_each(self, condition: Each) -> Ruling:
        deciding = condition.kind == "any"
        rulings = _gather(self._decide_items(condition), deciding)
        if isinstance(rulings, Ruling):
            return rulings
        if condition.kind == "every" and not rulings:
            assert condition.subject is not None
            reason = f"expected {shorten(condition.source, 200)}, found no value at {shorten(condition.subject.source, 120)}"
            return Ruling(None, reason, "no_match")
        if not deciding:
            return _HOLDS
        what = f"true for none of {len(rulings)}" if rulings else "there is none"
        return Ruling(False, f"expected {shorten(condition.source, 200)}, {what}", None, tuple(p for r in rulings[:20] for p in r.pointers))

    def _decide_items(self, condition: Each) -> Iterator[Ruling]:
        for item in self.values.select(condition.prefix):
            with self.values.bind(condition.prefix, item):
                if condition.subject is not None and self._is_absent(condition.subject):
                    continue
                ruling = self.decide(condition.body)
            yield ruling

    def _is_absent(self, path: Path) -> bool:
        found = self.values.evaluate(path)
        return isinstance(found, Undecided) and found.code == "no_match"


def _read_body(evidence: Evidence) -> Found | Undecided:
    """Return the answer as JSON: the recorded body, or the text if it is JSON."""
    # The body is not read through `read_recorded`, so unknown parts are checked here.
    unknown = evidence.account.unknown.get("answer") if evidence.account is not None else None
    if unknown is not None:
        return Undecided(f"answer unknown: {unknown}", "missing_evidence")
    answer = answer_json(evidence)
    if isinstance(answer, tuple):
        return Found(answer.value, (answer.pointer,))
    return Undecided(answer.reason, answer.code or "not_json", answer.pointers)


def _gather(rulings: Iterable[Ruling], deciding: bool) -> Ruling | list[Ruling]:
    """Return the first ruling that decides alone, else an undecided one, else the joined rulings."""
    found: list[Ruling] = []
    for ruling in rulings:
        if ruling.holds is deciding:
            return ruling
        found.append(ruling)
    # Missing evidence before other reasons.
    unsure = sorted((ruling for ruling in found if ruling.holds is None), key=lambda ruling: ruling.code != "missing_evidence")
    return unsure[0] if unsure else found


def _join_failures(rulings: Sequence[Ruling]) -> Ruling:
    reason = "; ".join(ruling.reason for ruling in rulings[:_MOST_LISTED]) + count_rest(len(rulings), _MOST_LISTED, "; and")
    return Ruling(False, reason, None, tuple(pointer for ruling in rulings[:20] for pointer in ruling.pointers))


class That(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition on the evidence holds."""

    expression: str
    """The condition: paths into the evidence, comparisons, `and`, `or`, `not`, `in`, `len`, `exists`, `all`, `any`, and functions."""

    def needs_clock(self) -> bool:
        """Return whether a function of dates may ask for the time."""
        return any(holds_call(value) for value in list_values(compile_condition(self.expression)))


# Unknown parts are handled where a path is read: only the parts that decide the condition matter.
@check(
    "that",
    shorthand="expression",
    example='that: "tool_calls[*].arguments.amount < 100"',
    reads=Reads((), "exact"),
    product=True,
)
def that(spec: That) -> Decide:
    """A condition on the evidence holds."""
    condition = compile_condition(spec.expression, field="expression")
    good = passed(f"{shorten(spec.expression, 200)}, as expected")

    def decide(evidence: Evidence) -> Verdict:
        ruling = DecidingCondition(evidence, spec.expression).decide(condition)
        if ruling.holds:
            return good
        pointers = ruling.pointers if ruling.code != MISSING else ()
        return failed(ruling.reason, code=ruling.code, pointers=tuple(dict.fromkeys(pointers))[:20])

    return decide
