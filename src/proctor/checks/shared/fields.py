"""Field assertions, shared by the end-state families: a path, what is expected there, and the share that holds.

- A plain `expected` is compared for equality, lists in order; an object that is a matcher (`{"matcher": ...}`, `{"$gt": 5}`), or holds
  one, is matched. `null` holds when the value is absent or null.
- In text-only sources (HL7, X12) a number or boolean is compared with what the text reads as: `17`, `17.0` and `+17` read as 17;
  `true`, `false`, `Y` and `N` in any case read as booleans. The same applies to the matchers `gt`, `gte`, `lt` and `lte`.
- The score is the share of fields that hold, and the claim passes when all do; without fields it is enough that the record is
  there. Where nothing was found every field is reported with `actual: null`, score 0, code `no_match`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.checks.registry import Reads
from proctor.errors import SpecError
from proctor.expressions.text_form import NO_SCOPE, Scope
from proctor.matchers.compile import Expected, compile_expected, holds_matcher
from proctor.matchers.mismatch import Mismatch, absent_mismatch, find_difference, join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import count_rest, nearest, show
from proctor.model.verdict import Verdict, errored, failed, passed
from proctor.work import spend

# Limited, since parsing a number takes quadratic time, and Python rejects more than 4,300 digits.
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})")
_BY_SIZE = ("gt", "gte", "lt", "lte")
"""The matchers that compare with a number by size."""
_BOOLEANS = {"true": True, "y": True, "false": False, "n": False}
_SHOWN = 3
"""The maximum number of failures in the reason of a verdict; the details have all of them."""
LAST = 10
"""The maximum number of records examined to describe what was found instead."""
_LOOKED_AT = 100
"""The maximum number of rows examined for a misspelt member."""


class RowField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value at a dot path of a row or a JSON file."""

    path: str
    """A dot path; numbers index lists."""
    expected: Json
    """The value, or a matcher object; null: absent or null."""


class TextField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value at a path; a number or boolean is compared with what the text reads as."""

    path: str
    """`PID.5.1`, `PID.3[2].1`, `OBX[2].5`."""
    expected: Json
    """The value, or a matcher object; null: absent or empty."""


class FieldResult(msgspec.Struct, frozen=True):
    """The result of one field."""

    path: str
    expected: Json
    actual: Json
    passed: bool
    why: str = ""
    """A sentence for people; not part of the record."""

    def to_record(self) -> dict[str, Json]:
        """Return the four keys of Verial's evidence."""
        return {"path": self.path, "expected": self.expected, "actual": self.actual, "passed": self.passed}


class Comparison:
    """One expected value, prepared once."""

    def __init__(self, expected: Json, *, field: str, text_only: bool = False) -> None:
        self.expected = expected
        self._matcher: Expected | None = compile_expected(expected, field=field) if holds_matcher(expected) else None
        by_size = isinstance(expected, dict) and (expected.get("matcher") in _BY_SIZE or any(f"${word}" in expected for word in _BY_SIZE))
        self._reads_text = text_only and (by_size or isinstance(expected, (bool, int, float)))

    @property
    def dynamic(self) -> bool:
        """Whether the clock or variables of the evidence are needed."""
        return self._matcher is not None and self._matcher.dynamic

    def find_mismatch(self, actual: Json | Missing, scope: Scope, path: str) -> Mismatch | None:
        """Return the mismatch of a value, or None if it fits."""
        if self._reads_text and isinstance(actual, str):
            read = _read_scalar(actual)
            # If parsing does not help, keep the text as it is: a message should quote the source.
            if self._matcher is not None or find_difference(self.expected, read) is None:
                actual = read
        if self._matcher is not None:
            return self._matcher.find_mismatch(actual, scope, path)
        if self.expected is None and actual is MISSING:
            return None
        if actual is MISSING:
            return absent_mismatch(path, show(self.expected))
        return find_difference(self.expected, actual, path)

    def compare(self, path: str, actual: Json | Missing, scope: Scope) -> FieldResult:
        """Return the result of comparing a value found at `path`."""
        wrong = self.find_mismatch(actual, scope, path)
        return FieldResult(path, self.expected, None if actual is MISSING else actual, wrong is None, wrong.describe() if wrong else "")


def _read_scalar(text: str) -> Json:
    """Return the number or boolean a text reads as; else the text."""
    # Only spaces, with which X12 pads fields of fixed width.
    bare = text.strip(" ")
    if bare.lower() in _BOOLEANS:
        return _BOOLEANS[bare.lower()]
    if _NUMBER.fullmatch(bare):
        return float(bare) if "." in bare else int(bare)
    return text


PreparedRows = tuple[tuple[str, Comparison], ...]
"""Dot paths with their expected values."""


def prepare_rows(fields: tuple[RowField, ...]) -> PreparedRows:
    """Return the fields of a row or JSON file, each with its path."""
    for index, field in enumerate(fields):
        if not field.path:
            raise SpecError("the path is empty", field=f"fields.{index}.path")
    return tuple((field.path, Comparison(field.expected, field=f"fields.{index}.expected")) for index, field in enumerate(fields))


def refuse_contradictions(absent: bool, fields: Sequence[object], count: int | None = None) -> None:
    """Reject values in an absence claim, which is about the whole record, and a number of records that contradicts the rest."""
    if count is not None and count < 0:
        raise SpecError(f"count: expected 0 or more, found {count}", field="count")
    if count == 0 and fields:
        raise SpecError("count: 0 takes no fields: there is nothing to look into", field="count")
    if absent and count is not None:
        raise SpecError("absent: true takes no count", field="absent")
    if absent and fields:
        hint = "narrow down which record is meant by the search or correlation instead"
        raise SpecError("absent: true takes no fields", field="absent", hint=hint)


def compare_count(expected: int, actual: int) -> FieldResult:
    """Return the result of counting records."""
    why = "" if expected == actual else f"count: expected {expected}, found {actual}"
    return FieldResult("count", expected, actual, expected == actual, why)


def find_scope(evidence: Evidence, comparisons: Iterable[Comparison]) -> Scope:
    """Return the scope for these comparisons; the clock is read only if one of them needs it."""
    return Scope.read_from(evidence) if any(comparison.dynamic for comparison in comparisons) else NO_SCOPE


def decide_fields(
    subject: str, results: Sequence[FieldResult], *, key: str = "field_results", pointers: tuple[str, ...] = (), **more: Json
) -> Verdict:
    """Return the verdict over the fields of one record; `more` is added to the details."""
    held = sum(result.passed for result in results)
    details: dict[str, Json] = {key: [result.to_record() for result in results], "held": held, "total": len(results), **more}
    if not results:
        return passed(f"{subject} found", details=details, pointers=pointers)
    reason = f"{subject}: {held} of {len(results)} {'field holds' if len(results) == 1 else 'fields hold'}"
    if held == len(results):
        return passed(reason, details=details, pointers=pointers)
    return failed(f"{reason}: {describe_failures(results)}", details=details, pointers=pointers, score=held / len(results))


def describe_failures(results: Sequence[FieldResult]) -> str:
    """Return the first failures in words."""
    wrong = [result.why for result in results if not result.passed]
    more = count_rest(len(wrong), _SHOWN, "; and")
    return "; ".join(wrong[:_SHOWN]) + more


def fail_no_match(reason: str, fields: Sequence[tuple[str, Json]], *, key: str = "field_results", **more: Json) -> Verdict:
    """Fail every field, because no record was found."""
    records: list[Json] = [FieldResult(path, expected, None, False).to_record() for path, expected in fields]
    return failed(reason, code="no_match", details={key: records, "held": 0, "total": len(records), **more})


def describe_found(records: Sequence[Sequence[tuple[str, Json]]]) -> str:
    """Return the values that the newest records have instead of the wanted one."""
    reason = dict.fromkeys(", ".join(f"{name} {show(value, 80)}" for name, value in one) for one in reversed(records))
    reason.pop("", None)
    return f"; found {'; '.join(list(reason)[:_SHOWN])}{count_rest(len(reason), _SHOWN)}" if reason else ""


def decide_absence(found: str | None, what: str, *, pointers: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict of an absence claim; `found` describes the unwanted records."""
    if found is None:
        return passed(f"there is no {what}")
    return failed(f"expected no {what}, found {found}", pointers=pointers)


def fail_unreadable(what: str, problems: Sequence[str]) -> Verdict:
    """Return the verdict of an absence claim that is undecided because something could not be read."""
    return errored("unreadable_evidence", f"the absence of {what} is unknown: {'; '.join(problems[:_SHOWN])}")


def find_misspelt(paths: Sequence[str], rows: Sequence[Mapping[str, Json]]) -> str | None:
    """Return a selecting member that no row has, if it is probably a misspelling of one they have."""
    for path in paths:
        first = path.partition(".")[0]
        if not any(first in row or path in row for row in rows):
            spend(sum(map(len, rows)))
            near = nearest(first, dict.fromkeys(name for row in rows[:_LOOKED_AT] for name in row))
            if near:
                return f"no row has {first!r}; nearest: {', '.join(near)}"
    return None


def build_dotted_pointer(base: str, path: str) -> str:
    """Return a pointer into the evidence for a dot path: `$.state.portal.rows[0]` and `a.0.b` give `$.state.portal.rows[0].a[0].b`."""
    for part in path.split("."):
        base = f"{base}[{part}]" if part.isascii() and part.isdigit() else join_path(base, part)
    return base


def declare_state_reads(spec: msgspec.Struct) -> Reads:
    """Declare what a claim about the end state reads: `absent: true` needs complete evidence.

    Counts and claims about all records are certain only if all of them were seen.
    """
    count: int | None = getattr(spec, "count", None)
    if getattr(spec, "absent", False) or count == 0:
        return Reads(("state",), "absence")
    if count is not None or getattr(spec, "match", None) in ("all", "exactly_one"):
        return Reads(("state",), "exact", "fail")
    return Reads(("state",), "presence")
