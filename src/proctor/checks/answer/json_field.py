"""Claims about one field of a JSON answer, by dot path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.fields import build_dotted_pointer
from proctor.checks.shared.places import open_answer
from proctor.errors import SpecError
from proctor.expressions.text_form import NO_SCOPE, Scope
from proctor.matchers.compile import compile_expected
from proctor.matchers.expected import Expected
from proctor.matchers.mismatch import show_value
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING
from proctor.model.show import show
from proctor.model.verdict import TextRange, Verdict, failed, missing, passed
from proctor.paths.dotted import find_dotted, trace_dotted


class JsonField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A field of the answer has (or has not) a value; the value may be a matcher."""

    field: str
    """A dot path into the answer; numbers index lists: `items.0.sku`."""
    value: Json = None
    """The expected value, or a matcher object."""
    equals: Json | msgspec.UnsetType = msgspec.UNSET
    """Another name of `value`, as in `json_path`."""
    condition: Literal["equals", "not_equals", "exists", "not_exists"] = "equals"
    """`not_equals` also passes when the field is missing; with `exists` null exists."""


_NO_BODY = missing("response body")


def _locate(spec: JsonField, evidence: Evidence) -> Iterator[TextRange]:
    """Find the characters that a matcher found, else the value in an answer that is JSON text."""
    found: tuple[TextRange, ...] = ()
    if not spec.condition.endswith("exists"):
        expected, pointer = _compile_value(spec), build_dotted_pointer("$.body", spec.field)
        actual = find_dotted(evidence.body, spec.field)
        scope = Scope.read_from(evidence) if expected.dynamic else NO_SCOPE
        if actual is not MISSING and expected.find_mismatch(actual, scope, pointer) is None:
            found = tuple(expected.iterate_ranges(actual, scope, pointer))
    document = None if found else open_answer(evidence)
    keys = trace_dotted(document.value, spec.field) if document is not None and document.text is not None else None
    return iter(found) if document is None or keys is None else document.locate([keys])


@check(
    "json_field",
    example="json_field: {field: items.0.price, value: {$gt: 0}}",
    reads=lambda spec: Reads(("answer",), "exact", "error" if spec.condition.startswith("not_") else "fail"),
    product=lambda spec: isinstance(spec.value, (dict, list)) or isinstance(spec.equals, (dict, list)),
    locate=_locate,
)
def json_field(spec: JsonField) -> Decide:
    """A field of the answer has (or has not) a value; the value may be a matcher."""
    if not spec.field:
        raise SpecError("the path of a field cannot be empty", field="field")
    decide = _decide_presence(spec) if spec.condition.endswith("exists") else _decide_value(spec)
    return lambda evidence: _NO_BODY if evidence.body is None else decide(evidence)


def _decide_value(spec: JsonField) -> Decide:
    expected = _compile_value(spec)
    pointer = (build_dotted_pointer("$.body", spec.field),)
    wanted = spec.condition == "equals"
    good = passed(f"{spec.field} is {'' if wanted else 'not '}{expected.describe()}", pointers=pointer)
    without = passed(f"{spec.field} is missing, so it is not {expected.describe()}", pointers=pointer)
    dynamic = expected.dynamic

    def decide(evidence: Evidence) -> Verdict:
        actual = find_dotted(evidence.body, spec.field)
        if actual is MISSING and not wanted:
            return without
        found = expected.find_mismatch(actual, Scope.read_from(evidence) if dynamic else NO_SCOPE, pointer[0])
        if (found is None) == wanted:
            return good
        if found is not None:
            return failed(found.describe(), details=found.to_record(), pointers=(found.path,))
        return failed(f"{pointer[0]}: expected anything but {expected.describe()}, found {show_value(actual)}", pointers=pointer)

    return decide


def _compile_value(spec: JsonField) -> Expected:
    if spec.equals is msgspec.UNSET:
        return compile_expected(spec.value, field="value")
    if spec.value is not None:
        raise SpecError("`value` and `equals` are the same; write one of them", field="equals")
    return compile_expected(spec.equals, field="equals")


def _decide_presence(spec: JsonField) -> Decide:
    wanted = spec.condition == "exists"
    pointer = (build_dotted_pointer("$.body", spec.field),)
    good = passed(f"{spec.field} {'exists' if wanted else 'does not exist'}", pointers=pointer)

    def decide(evidence: Evidence) -> Verdict:
        actual = find_dotted(evidence.body, spec.field)
        if (actual is not MISSING) == wanted:
            return good
        expectation = "a value, found nothing" if wanted else f"nothing, found {show(actual)}"
        return failed(f"{pointer[0]}: expected {expectation}", pointers=pointer if actual is not MISSING else ())

    return decide
