"""Decides a condition on evidence with three results: true, false or undecided.

Undecided never passes, not even negated: evidence that was not recorded (`missing_evidence`), a path without a match (`no_match`), values
that cannot be compared (`wrong_type`), an answer that is not JSON (`not_json`). `and` and `or` ignore an undecided part if another part
decides: a false part decides an `and`, a true one an `or`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proctor.checks.conditions._values import Found, Undecided, Values, compare_values, show_found
from proctor.checks.shared.answer import answer_json
from proctor.expressions.condition import Both, Compare, Condition, Each, Not, Path, Truth
from proctor.model.evidence import Evidence
from proctor.model.show import count_rest, describe_value, shorten
from proctor.work import spend

_MOST_LISTED = 3
"""Reasons of an `or` that are listed."""


class Ruling(msgspec.Struct, frozen=True):
    """The result of a condition: true, false, or why it is undecided."""

    holds: bool | None
    reason: str = ""
    code: str | None = None
    pointers: tuple[str, ...] = ()


_HOLDS = Ruling(True)


def decide_condition(condition: Condition, evidence: Evidence, text: str) -> Ruling:
    """Decide a condition on evidence; `text` is how the whole of it is written."""
    return DecidingCondition(evidence, text).decide(condition)


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
                return self._decide_both(condition)
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
        return _HOLDS if holds else Ruling(False, _explain(condition, left, right), None, pointers)

    def decide_truth(self, condition: Truth) -> Ruling:
        """Decide whether a value is true."""
        found = self.values.evaluate(condition.value)
        if isinstance(found, Undecided):
            return Ruling(None, found.reason, found.code, found.pointers)
        if not isinstance(found.value, bool):
            reason = f"expected {shorten(condition.source, 200)} to be true or false, found {describe_value(found.value)}"
            return Ruling(None, reason, "wrong_type", found.pointers)
        reason = f"expected {shorten(condition.source, 200)} to be true, found false" + (
            f" at {found.pointers[0]}" if found.pointers else ""
        )
        return _HOLDS if found.value else Ruling(False, reason, None, found.pointers)

    def decide_not(self, condition: Not) -> Ruling:
        """Decide the opposite of a condition."""
        inner = self.decide(condition.part)
        if inner.holds is None:
            return inner
        if inner.holds:
            return Ruling(False, f"expected {shorten(condition.source, 200)}, but {shorten(condition.part.source, 200)} is true")
        return _HOLDS

    def _decide_both(self, condition: Both) -> Ruling:
        deciding = condition.word == "or"
        rulings = _gather(map(self.decide, condition.parts), deciding)
        if isinstance(rulings, Ruling):
            return rulings
        return _join_failures(rulings) if deciding else _HOLDS

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
    """Return the answer as JSON: the recorded body, or the text where that is JSON."""
    # The body is not read through `read_recorded`, so unknown parts are checked here.
    unknown = evidence.account.unknown.get("answer") if evidence.account is not None else None
    if unknown is not None:
        return Undecided(f"answer unknown: {unknown}", "missing_evidence")
    answer = answer_json(evidence)
    if isinstance(answer, tuple):
        return Found(answer.value, (answer.pointer,))
    return Undecided(answer.reason, answer.code or "not_json", answer.pointers)


def _explain(condition: Compare, left: Found, right: Found) -> str:
    reason = show_found(condition.left, left)
    other = show_found(condition.right, right)
    return f"expected {shorten(condition.source, 200)}, found " + " and ".join(each for each in (reason, other) if each)


def _gather(rulings: Iterable[Ruling], deciding: bool) -> Ruling | list[Ruling]:
    """Return the first ruling that decides alone, else an undecided one, else all of them joined."""
    found: list[Ruling] = []
    for ruling in rulings:
        if ruling.holds is deciding:
            return ruling
        found.append(ruling)
    unsure = _choose_unsure(found)
    return found if unsure is None else unsure


def _choose_unsure(rulings: Sequence[Ruling]) -> Ruling | None:
    """Return the first undecided ruling, preferring missing evidence; None if all are decided."""
    unsure = [ruling for ruling in rulings if ruling.holds is None]
    return next((ruling for ruling in unsure if ruling.code == "missing_evidence"), unsure[0] if unsure else None)


def _join_failures(rulings: Sequence[Ruling]) -> Ruling:
    reason = "; ".join(ruling.reason for ruling in rulings[:_MOST_LISTED])
    more = count_rest(len(rulings), _MOST_LISTED, "; and")
    return Ruling(False, reason + more, None, tuple(pointer for ruling in rulings[:20] for pointer in ruling.pointers))
