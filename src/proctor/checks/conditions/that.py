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

from collections.abc import Iterator
from itertools import islice

import msgspec

from proctor.checks.conditions._conditions import DecidingCondition, Ruling, decide_condition
from proctor.checks.conditions._values import Found, Undecided
from proctor.checks.registry import Decide, check
from proctor.checks.shared.json_places import JsonDocument, find_keys, open_answer
from proctor.checks.shared.missing_evidence import MISSING, Reads
from proctor.checks.shared.ranges import find_spans, iterate_whole_texts
from proctor.expressions.condition import Compare, Condition, Not, Path, Truth, Value, holds_call, list_values
from proctor.expressions.condition_parser import compile_condition
from proctor.matchers.equal import deep_equal
from proctor.model.evidence import Evidence, Json
from proctor.model.show import shorten
from proctor.model.verdict import TextRange, Verdict, failed, passed

# --- which characters a condition is about: those of the comparisons that decided it

_MOST_MET = 200
"""Comparisons that are remembered of one condition."""


class _Met(msgspec.Struct, frozen=True):
    """A comparison that was decided: its sides, and whether it speaks for the condition as a whole."""

    operator: str
    sides: tuple[tuple[Value, Found], ...]
    agrees: bool


def locate_condition(condition: Condition, evidence: Evidence, text: str) -> Iterator[TextRange]:
    """Yield the characters that decided a condition; `text` is how it is written."""
    deciding = _Remembering(evidence, text)
    ruling = deciding.decide(condition)
    if ruling.holds is None:
        return
    document = open_answer(evidence)
    if document is not None and document.text is None:
        document = None
    for met in deciding.met:
        if met.agrees == ruling.holds:
            yield from _locate_in_texts(met, document)
    if document is not None:
        pointers = [
            pointer
            for met in deciding.met
            if met.agrees == ruling.holds
            for term, found in met.sides
            if _reads_body(term)
            for pointer in found.pointers
        ]
        base = "$.body" if evidence.body is not None else document.pointer
        yield from document.locate(find_keys(document.value, base, pointers))


class _Remembering(DecidingCondition):
    """Decides a condition as it is always decided, and remembers what was compared."""

    def __init__(self, evidence: Evidence, text: str) -> None:
        super().__init__(evidence, text)
        self.met: list[_Met] = []
        self._negated = False

    def decide_not(self, condition: Not) -> Ruling:
        self._negated = not self._negated
        try:
            return super().decide_not(condition)
        finally:
            self._negated = not self._negated

    def compare(self, condition: Compare) -> Ruling:
        ruling = super().compare(condition)
        self._remember(condition.operator, (condition.left, condition.right), ruling)
        return ruling

    def decide_truth(self, condition: Truth) -> Ruling:
        ruling = super().decide_truth(condition)
        self._remember("", (condition.value,), ruling)
        return ruling

    def _remember(self, operator: str, terms: tuple[Value, ...], ruling: Ruling) -> None:
        if ruling.holds is None or len(self.met) >= _MOST_MET:
            return
        # Evaluated once more, as a ruling does not keep its values: deciding should not pay for what only reports show.
        found = [(term, self.values.evaluate(term)) for term in terms]
        sides = tuple((term, place) for term, place in found if not isinstance(place, Undecided))
        self.met.append(_Met(operator, sides, ruling.holds != self._negated))


def _reads_body(term: Value) -> bool:
    return isinstance(term, Path) and getattr(term.steps[0], "name", None) == "body"


def _locate_in_texts(met: _Met, document: JsonDocument | None) -> Iterator[TextRange]:
    """Yield the characters of texts of the evidence that a comparison found."""
    if len(met.sides) < 2:
        return
    (left_term, left), (right_term, right) = met.sides
    if document is not None:
        # A value inside a JSON text is located in that text.
        left = msgspec.structs.replace(left, pointers=()) if _reads_body(left_term) else left
        right = msgspec.structs.replace(right, pointers=()) if _reads_body(right_term) else right
    if met.operator in ("in", "not in"):
        yield from _locate_inside(left, right)
        return
    if met.operator in ("==", "!=") and not deep_equal(left.value, right.value):
        return
    for side in (left, right):
        if len(side.pointers) == 1:
            yield from iterate_whole_texts(side.value, side.pointers[0])


def _locate_inside(item: Found, holder: Found) -> Iterator[TextRange]:
    wanted: Json = item.value
    if isinstance(holder.value, str):
        if isinstance(wanted, str) and wanted and holder.pointers:
            for start, end in islice(find_spans(holder.value, wanted, ignore_case=False), _MOST_MET):
                yield TextRange(holder.pointers[0], start, end)
        return
    if isinstance(holder.value, (list, tuple)) and any(deep_equal(wanted, each) for each in holder.value):
        # Values that were gathered have a pointer each, a list of the evidence has one.
        whole = len(holder.pointers) == 1 and len(holder.value) != 1
        places = [f"{holder.pointers[0]}[{at}]" for at in range(len(holder.value))] if whole else holder.pointers
        for place, each in zip(places, holder.value, strict=False):
            if deep_equal(wanted, each):
                yield from iterate_whole_texts(each, place)
        if len(item.pointers) == 1:
            yield from iterate_whole_texts(wanted, item.pointers[0])


class That(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition on the evidence holds."""

    expression: str
    """The condition: paths into the evidence, comparisons, `and`, `or`, `not`, `in`, `len`, `exists`, `all`, `any`, and functions."""

    def needs_clock(self) -> bool:
        """Return whether a function of dates may ask for the time."""
        return any(holds_call(value) for value in list_values(compile_condition(self.expression)))


def _locate(spec: That, evidence: Evidence) -> Iterator[TextRange]:
    return locate_condition(compile_condition(spec.expression), evidence, spec.expression)


# What is unknown is looked after where a path is read: only the parts that decide the condition matter.
@check(
    "that",
    shorthand="expression",
    example='that: "tool_calls[*].arguments.amount < 100"',
    reads=Reads((), "exact"),
    product=True,
    locate=_locate,
)
def that(spec: That) -> Decide:
    """A condition on the evidence holds."""
    condition = compile_condition(spec.expression, field="expression")
    good = passed(f"{shorten(spec.expression, 200)}, as expected")

    def decide(evidence: Evidence) -> Verdict:
        ruling = decide_condition(condition, evidence, spec.expression)
        if ruling.holds:
            return good
        code = ruling.code
        pointers = ruling.pointers if code != MISSING else ()
        return failed(ruling.reason, code=code, pointers=tuple(dict.fromkeys(pointers))[:20])

    return decide
