"""Claims that a JSON answer is nearly a document.

A leaf is a text, a number, a boolean, null, or an empty list or object; it has a path of keys and positions. The similarity is the number
of leaves that are equal and have the same path in both documents, divided by the number of paths at which either has a leaf. Equal
documents have 1, documents that share nothing 0. Numbers, booleans and text never equal one another; `1` equals `1.0`. `measure: structure`
treats leaves of the same kind as equal, whatever their values. `ignore_extra` leaves out paths that only the answer has.

Lists are compared by position: an element inserted at the front moves all others, and they then differ. Texts are compared for equality
only. Matchers are not supported: every expected value is a literal.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.checks.answer.similar_to import require_share
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import answer_json
from proctor.checks.shared.places import Keys, write_pointer
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING, is_same_scalar
from proctor.model.show import kind_of, show
from proctor.model.verdict import Verdict, failed, passed
from proctor.work import spend

_MOST_LISTED = 20
"""The maximum number of differences in a verdict."""


class JsonSimilar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is a JSON document nearly equal to another, by the share of equal leaves."""

    value: Json
    """The document to compare with."""
    at_least: float
    """The least share of equal leaves that passes, above 0 and up to 1."""
    measure: Literal["leaves", "structure"] = "leaves"
    """`leaves`: equal values at equal paths; `structure`: values of the same kind at equal paths."""
    ignore_extra: bool = False
    """Whether what only the answer has is left out of the count."""


class _Comparison:
    """Counts leaves while two documents are walked side by side."""

    def __init__(self, *, structure: bool, ignore_extra: bool) -> None:
        self._structure = structure
        self._ignore_extra = ignore_extra
        self.equal = self.total = 0
        self.different: list[str] = []

    def compare(self, expected: Json, actual: Json) -> float:
        """Return the share of equal leaves, without recursion: an answer may be deeply nested."""
        waiting: list[tuple[Json, Json, Keys]] = [(expected, actual, ())]
        while waiting:
            spend(1)
            left, right, place = waiting.pop()
            if not (_is_branch(left) or _is_branch(right)):
                self._count_leaf(left, right, place)
                continue
            # A leaf never has the path of a branch, so leaves on one side only count as different.
            for value, sides in ((left, (left, MISSING)), (right, (MISSING, right))):
                if not _is_branch(value) and value is not MISSING:
                    self._count_leaf(*sides, place)
            # A list and an object never have a path in common: a position is not a key.
            ours, theirs = _list_members(left), _list_members(right)
            spend(len(ours) + len(theirs))
            keys = dict.fromkeys((*ours, *theirs))
            waiting.extend((ours.get(key, MISSING), theirs.get(key, MISSING), (*place, key)) for key in reversed(keys))
        # There is nothing to compare only if extra leaves are ignored and nothing was expected, which is rejected earlier.
        return self.equal / self.total if self.total else 0.0

    def _count_leaf(self, left: Json, right: Json, place: Keys) -> None:
        if left is MISSING and self._ignore_extra:
            return
        self.total += 1
        if left is not MISSING and right is not MISSING and self._is_equal(left, right):
            self.equal += 1
        elif len(self.different) < _MOST_LISTED:
            wanted, found = ("nothing" if value is MISSING else show(value, 60) for value in (left, right))
            self.different.append(f"{write_pointer('$', place)}: expected {wanted}, found {found}")

    def _is_equal(self, left: Json, right: Json) -> bool:
        if isinstance(left, (dict, list)) or isinstance(right, (dict, list)):
            return type(left) is type(right)
        return kind_of(left) == kind_of(right) if self._structure else is_same_scalar(left, right)


@check(
    "json_similar",
    example="json_similar: {value: {status: shipped, items: [{sku: A1, count: 2}]}, at_least: 0.9}",
    reads=Reads(("answer",), "exact", "fail"),
)
def json_similar(spec: JsonSimilar) -> Decide:
    """The answer is a JSON document nearly equal to another, by the share of equal leaves."""
    require_share(spec.at_least)

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(answer := answer_json(evidence), Verdict):
            return answer
        comparison = _Comparison(structure=spec.measure == "structure", ignore_extra=spec.ignore_extra)
        share = comparison.compare(spec.value, answer.value)
        counted = f"{comparison.equal} of {comparison.total} leaves {'of the same kind' if spec.measure == 'structure' else 'equal'}"
        details: dict[str, Json] = {"similarity": share, "equal": comparison.equal, "leaves": comparison.total}
        pointers = (answer.pointer,)
        # Tolerates a share that falls short by the last bit of a float.
        if share >= spec.at_least - 1e-12:
            return passed(f"{counted}, at least {spec.at_least:g} expected", score=share, details=details, pointers=pointers)
        first = f"; {comparison.different[0]}" if comparison.different else ""
        return failed(
            f"expected a share of at least {spec.at_least:g}, found {share:.4f}: {counted}{first}",
            score=share,
            details={**details, "different": list(comparison.different)},
            pointers=pointers,
        )

    return decide


def _is_branch(value: Json) -> bool:
    return isinstance(value, (dict, list)) and bool(value)


def _list_members(value: Json) -> dict[str | int, Json]:
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, list) else {}
