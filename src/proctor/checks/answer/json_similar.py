"""Claims that a JSON answer is nearly a document.

A leaf is a text, a number, a boolean, null, or an empty list or object; it has a path of keys and positions. The similarity is the number
of leaves that are equal and have the same path in both documents, divided by the number of paths at which either has a leaf. Equal
documents have 1, documents that share nothing 0. Numbers, booleans and text never equal one another; `1` equals `1.0`.

Lists are compared by position: an element inserted at the front moves all others, and they then differ. Texts are compared for equality
only. Matchers are not supported: every expected value is a literal.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proctor.checks.answer.similar_to import require_share
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import answer_json
from proctor.checks.shared.places import Keys, write_pointer
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING, Missing, is_same_scalar
from proctor.model.show import show
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
        equal, total = 0, 0
        different: list[str] = []
        for expected, actual, place in _pair_leaves(spec.value, answer.value):
            total += 1
            if _is_equal(expected, actual):
                equal += 1
            elif len(different) < _MOST_LISTED:
                wanted, found = ("nothing" if value is MISSING else show(value, 60) for value in (expected, actual))
                different.append(f"{write_pointer('$', place)}: expected {wanted}, found {found}")
        share = equal / total
        counted = f"{equal} of {total} leaves equal"
        details: dict[str, Json] = {"similarity": share, "equal": equal, "leaves": total}
        pointers = (answer.pointer,)
        # Tolerates a share that falls short by the last bit of a float.
        if share >= spec.at_least - 1e-12:
            return passed(f"{counted}, at least {spec.at_least:g} expected", score=share, details=details, pointers=pointers)
        return failed(
            f"expected a share of at least {spec.at_least:g}, found {share:.4f}: {counted}; {different[0]}",
            score=share,
            details={**details, "different": different},
            pointers=pointers,
        )

    return decide


def _pair_leaves(expected: Json, actual: Json) -> Iterator[tuple[Json | Missing, Json | Missing, Keys]]:
    """Yield the leaves at each path, of which either may be missing, without recursion: an answer may be deeply nested."""
    waiting: list[tuple[Json | Missing, Json | Missing, Keys]] = [(expected, actual, ())]
    while waiting:
        spend(1)
        left, right, place = waiting.pop()
        if not (_is_branch(left) or _is_branch(right)):
            yield left, right, place
            continue
        # A leaf never has the path of a branch, so a leaf on one side only counts as different.
        if not _is_branch(left) and left is not MISSING:
            yield left, MISSING, place
        if not _is_branch(right) and right is not MISSING:
            yield MISSING, right, place
        # A list and an object never have a path in common: a position is not a key.
        ours, theirs = _list_members(left), _list_members(right)
        spend(len(ours) + len(theirs))
        keys = dict.fromkeys((*ours, *theirs))
        waiting.extend((ours.get(key, MISSING), theirs.get(key, MISSING), (*place, key)) for key in reversed(keys))


def _is_equal(left: Json | Missing, right: Json | Missing) -> bool:
    if isinstance(left, (dict, list)) or isinstance(right, (dict, list)):
        return type(left) is type(right)
    return left is not MISSING and right is not MISSING and is_same_scalar(left, right)


def _is_branch(value: Json | Missing) -> bool:
    return isinstance(value, (dict, list)) and bool(value)


def _list_members(value: Json | Missing) -> dict[str | int, Json]:
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, list) else {}
