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

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from proctor.checks.registry import MISSING, Decide, Reads, check
from proctor.checks.run._condition_values import Found, Undecided, Values, compare_values, show_found
from proctor.checks.shared.answer import answer_json
from proctor.checks.shared.places import JsonDocument, find_keys, find_spans, iterate_whole_texts, open_answer
from proctor.expressions.condition import (
    Both,
    Compare,
    Condition,
    Each,
    Not,
    Path,
    Truth,
    Value,
    compile_condition,
    holds_call,
    list_values,
)
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import equal
from proctor.model.show import count_rest, describe_value, shorten
from proctor.model.verdict import TextRange, Verdict, failed, passed
from proctor.work import spend

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
        self.values = Values(evidence, text, lambda: _read_body(evidence))

    def decide(self, condition: Condition) -> Ruling:
        """Decide a condition, or a part of one."""
        spend(1)
        match condition:
            case Compare():
                return self.compare(condition)
            case Truth():
                return self.decide_truth(condition)
            case Both():
                deciding = condition.word == "or"
                rulings = _gather(map(self.decide, condition.parts), deciding)
                if isinstance(rulings, Ruling):
                    return rulings
                return _join_failures(rulings) if deciding else _HOLDS
            case Not():
                return self.decide_not(condition)
            case Each():
                return self._decide_each(condition)

    def compare(self, condition: Compare) -> Ruling:
        """Decide a comparison of two values."""
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

    def decide_truth(self, condition: Truth) -> Ruling:
        """Decide whether a value is true."""
        found = self.values.evaluate(condition.value)
        if isinstance(found, Undecided):
            return Ruling(None, found.reason, found.code, found.pointers)
        expected = f"expected {shorten(condition.source, 200)} to be"
        if not isinstance(found.value, bool):
            return Ruling(None, f"{expected} true or false, found {describe_value(found.value)}", "wrong_type", found.pointers)
        at = f" at {found.pointers[0]}" if found.pointers else ""
        return _HOLDS if found.value else Ruling(False, f"{expected} true, found false{at}", None, found.pointers)

    def decide_not(self, condition: Not) -> Ruling:
        """Decide the opposite of a condition."""
        inner = self.decide(condition.part)
        if inner.holds is None:
            return inner
        if inner.holds:
            return Ruling(False, f"expected {shorten(condition.source, 200)}, but {shorten(condition.part.source, 200)} is true")
        return _HOLDS

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


# Locates the characters of the comparisons that decided a condition

_MOST_MET = 200
"""The maximum number of comparisons recorded for one condition."""


class _DecidedComparison(msgspec.Struct, frozen=True):
    """A decided comparison: its sides, and whether it represents the whole condition."""

    operator: str
    sides: tuple[tuple[Value, Found], ...]
    agrees: bool


def locate_condition(condition: Condition, evidence: Evidence, text: str) -> Iterator[TextRange]:
    """Yield the characters that decided a condition; `text` is its source."""
    deciding = _RecordingDecider(evidence, text)
    ruling = deciding.decide(condition)
    if ruling.holds is None:
        return
    document = open_answer(evidence)
    if document is not None and document.text is None:
        document = None
    agreeing = [comparison for comparison in deciding.met if comparison.agrees == ruling.holds]
    for comparison in agreeing:
        yield from _locate_in_texts(comparison, document)
    if document is not None:
        sides = (side for comparison in agreeing for side in comparison.sides)
        pointers = [pointer for term, found in sides if _reads_body(term) for pointer in found.pointers]
        base = "$.body" if evidence.body is not None else document.pointer
        yield from document.locate(find_keys(document.value, base, pointers))


class _RecordingDecider(DecidingCondition):
    """Decides a condition as usual, and records its comparisons."""

    def __init__(self, evidence: Evidence, text: str) -> None:
        super().__init__(evidence, text)
        self.met: list[_DecidedComparison] = []
        self._negated = False

    def decide_not(self, condition: Not) -> Ruling:
        self._negated = not self._negated
        ruling = super().decide_not(condition)
        self._negated = not self._negated
        return ruling

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
        # Evaluated again, as a ruling does not keep its values: deciding should not pay for what only reports show.
        found = [(term, self.values.evaluate(term)) for term in terms]
        sides = tuple((term, place) for term, place in found if not isinstance(place, Undecided))
        self.met.append(_DecidedComparison(operator, sides, ruling.holds != self._negated))


def _reads_body(term: Value) -> bool:
    return isinstance(term, Path) and getattr(term.steps[0], "name", None) == "body"


def _locate_in_texts(met: _DecidedComparison, document: JsonDocument | None) -> Iterator[TextRange]:
    """Yield the characters of evidence texts that a comparison found."""
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
    if met.operator in ("==", "!=") and not equal(left.value, right.value):
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
    if isinstance(holder.value, (list, tuple)) and any(equal(wanted, each) for each in holder.value):
        # Gathered values have one pointer each, while a list of the evidence has one in total.
        whole = len(holder.pointers) == 1 and len(holder.value) != 1
        places = [f"{holder.pointers[0]}[{at}]" for at in range(len(holder.value))] if whole else holder.pointers
        for place, each in zip(places, holder.value, strict=False):
            if equal(wanted, each):
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


# Unknown parts are handled where a path is read: only the parts that decide the condition matter.
@check(
    "that",
    shorthand="expression",
    example='that: "tool_calls[*].arguments.amount < 100"',
    reads=Reads((), "exact"),
    product=True,
    locate=lambda spec, evidence: locate_condition(compile_condition(spec.expression), evidence, spec.expression),
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
