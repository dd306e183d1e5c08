"""Claims about the shape of a JSON answer, by JSON Schema.

Draft 2020-12 unless `$schema` names another one. A remote reference is refused when the suite is read: nothing is ever fetched; only the
published meta-schemas are at hand. `format` is an annotation, as the drafts have it.

`pattern` runs on an engine that takes linear time and has no look-around and no back references; a schema that uses them is
refused. How much work a schema may cause is bounded by `_schema_limits`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proctor.checks.answer._schema_limits import compute_limits
from proctor.checks.registry import Decide, check
from proctor.checks.shared.answer import answer_json
from proctor.checks.shared.json_places import open_answer
from proctor.checks.shared.missing_evidence import Reads
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING
from proctor.model.show import count_rest, describe_value, shorten, show
from proctor.model.verdict import TextRange, Verdict, failed, passed
from proctor.paths.dotted import find_dotted, trace_dotted

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError


class JsonSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, or one field of it, conforms to a JSON Schema."""

    schema: Json
    """The schema: an object, or true or false."""
    field: str | None = None
    """A dot path of the value to validate; left out: the whole answer."""


_MOST_ERRORS: Final = 5
"""Violations in the reason of a verdict."""
_MOST_WORK_TO_EXPLAIN: Final = 50_000
"""Applications of schemas up to which all violations are looked for; beyond, only whether there is one."""
# The library names the address inside its sentence and nowhere else.
_NOT_HERE: Final = "is not present in a registry"
_UNKNOWN_META: Final = "Unknown meta-schema"


def _locate(spec: JsonSchema, evidence: Evidence) -> Iterator[TextRange]:
    """Find the values that do not conform; where the field itself is lacking, there is none."""
    document = open_answer(evidence)
    keys = () if document is None or spec.field is None else trace_dotted(document.value, spec.field)
    if document is None or keys is None:
        return iter(())
    value = document.value if spec.field is None else find_dotted(document.value, spec.field)
    limits = compute_limits(spec.schema)
    limits.check_work(value)
    if limits.count_work(value, _MOST_WORK_TO_EXPLAIN) > _MOST_WORK_TO_EXPLAIN:
        return iter(())
    try:
        errors: list[ValidationError] = list(_build_validator(spec.schema).iter_errors(value))
    except ValueError:
        # As in deciding: text that is no Unicode, or nesting beyond what the library takes.
        return iter(())
    return document.locate((*keys, *error.instance_path) for error in errors)


@check(
    "json_schema",
    shorthand="schema",
    example="json_schema: {schema: {type: object, required: [status]}}",
    reads=Reads(("answer",), "exact", "fail"),
    locate=_locate,
)
def json_schema(spec: JsonSchema) -> Decide:
    """The answer, or one field of it, conforms to a JSON Schema."""
    limits = compute_limits(spec.schema)
    validator = _build_validator(spec.schema)
    what = spec.field or "the answer"
    good = passed(f"{what} conforms to the schema")

    def decide(evidence: Evidence) -> Verdict:
        answer = answer_json(evidence)
        if isinstance(answer, Verdict):
            return answer
        value, pointer = answer
        if spec.field is not None:
            value = find_dotted(value, spec.field)
            if value is MISSING:
                return failed(
                    f"expected a value at {spec.field}, found nothing in {show(answer.value)}",
                    details={"field": spec.field},
                    pointers=(pointer,),
                )
            pointer = f"{pointer}.{spec.field}"
        # Before the validator sees it: the library is compiled code and cannot be stopped.
        limits.check_work(value)
        try:
            # The plain answer first, which stops at the first violation; all of them are looked for only where that is cheap.
            if validator.is_valid(value):
                return good
            explained = limits.count_work(value, _MOST_WORK_TO_EXPLAIN) <= _MOST_WORK_TO_EXPLAIN
            errors: list[ValidationError] = list(validator.iter_errors(value)) if explained else []
        except ValueError as error:
            # Text that is no Unicode, or nesting beyond what the library takes.
            raise CheckFault("schema_limit", f"{what} cannot be checked by the schema: {shorten(str(error))}") from None
        return _fail_nonconforming(what, errors, value, pointer)

    return decide


def _build_validator(schema: Json) -> Any:
    # A quarter of the start-up time of a small run, so only suites with a schema pay for it.
    import jsonschema_rs

    if not isinstance(schema, (dict, bool)):
        raise SpecError(f"expected a schema (an object, true or false), found {describe_value(schema)}", field="schema")
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False)
    except jsonschema_rs.ValidationError as error:
        raise _unusable_schema_error(error.message, [str(part) for part in error.instance_path]) from None
    except ValueError as error:
        raise _unusable_schema_error(str(error), []) from None


def _unusable_schema_error(message: str, path: list[str]) -> SpecError:
    first = message.split("\n", 1)[0]
    place = ".".join(["schema", *path])
    address = first.split("'")[1] if first.count("'") >= 2 else first
    if first.startswith(_UNKNOWN_META):
        return SpecError(
            f"`$schema` {show(address)} is not a published draft; remote references are never fetched",
            field="schema.$schema",
        )
    if _NOT_HERE in first:
        return SpecError(
            f"the schema refers to {show(address)}, which is not part of it; remote references are never fetched",
            field="schema",
            hint="copy the referenced schema into `$defs` and refer to it as `#/$defs/name`",
        )
    if first.endswith('is not a "regex"'):
        return SpecError(
            f"invalid schema: {shorten(first)}", field=place, hint="patterns in schemas have no look-around and no back references"
        )
    return SpecError(f"invalid schema: {shorten(first)}", field=place)


def _fail_nonconforming(what: str, errors: list[ValidationError], value: Json, pointer: str) -> Verdict:
    found = [(_place(pointer, error.instance_path), shorten(error.message)) for error in errors[:_MOST_ERRORS]]
    if not found:
        return failed(f"{what} does not conform to the schema; too large to locate the error: {show(value)}", pointers=(pointer,))
    more = count_rest(len(errors), _MOST_ERRORS, ", and")
    return failed(
        f"{what} does not conform to the schema: " + "; ".join(f"{place}: {message}" for place, message in found) + more,
        details={"errors": [{"path": place, "message": message} for place, message in found], "count": len(errors)},
        pointers=tuple(dict.fromkeys(place for place, _ in found)),
    )


def _place(pointer: str, path: list[str | int]) -> str:
    return pointer + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
