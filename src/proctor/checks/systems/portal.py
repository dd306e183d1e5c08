"""Claims about the rows of a web portal after the run.

The row is the one whose `key` has the `value`; without a value it is the only row of the collection. Several rows that correlate are
an `error` (`several_matches`). An absence claim needs no row to correlate; if the collection is missing and another one has a similar
name, the absence is unknown.
"""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import (
    LAST,
    Comparison,
    RowField,
    build_dotted_pointer,
    decide_absence,
    decide_fields,
    declare_state_reads,
    describe_found,
    fail_no_match,
    fail_unreadable,
    find_misspelt,
    find_scope,
    prepare_rows,
    refuse_contradictions,
)
from proctor.errors import SpecError
from proctor.expressions.text_form import Scope
from proctor.matchers.mismatch import equal_after_conversion, join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import nearest, show
from proctor.model.verdict import Verdict, errored, missing
from proctor.paths.dotted import find_dotted


class PortalRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A portal row has the given values; the score is the share of fields that hold."""

    resource: str
    """The collection: `prior_auth_requests`."""
    key: str | None = None
    """The identifying column: `request_id`."""
    value: Json | msgspec.UnsetType = msgspec.UNSET
    """The value of that column; left out: the only row."""
    fields: tuple[RowField, ...] = ()
    """The values to compare."""
    absent: bool = False
    """The claim is that no row correlates."""


_RESULTS = "assertion_results"
_CONVERTED = "one is equal after conversion, but text never equals a number"


@check(
    "portal_record",
    example="portal_record: {resource: requests, key: id, value: R-1, fields: [{path: status, expected: submitted}]}",
    reads=declare_state_reads,
    product=True,
)
def portal_record(spec: PortalRecord) -> Decide:
    """A portal row has the given values; the score is the share of fields that hold."""
    if not spec.resource:
        raise SpecError("the resource is empty", field="resource")
    if spec.key is None and spec.value is not msgspec.UNSET:
        raise SpecError("value needs key: which column has that value", field="value")
    refuse_contradictions(spec.absent, spec.fields)
    base = join_path("$.state.portal", spec.resource)
    fields, key = prepare_rows(spec.fields), spec.key or ""
    wanted = Comparison(spec.value, field="value") if spec.value is not msgspec.UNSET else None
    what = f"row of {spec.resource} with {spec.key} {show(spec.value)}" if wanted else f"row of {spec.resource}"

    def find_value(row: dict[str, Json]) -> Json | Missing:
        return row[key] if key in row else find_dotted(row, key)

    def correlates(row: dict[str, Json], scope: Scope) -> bool:
        # An absent column is not null: a row without the key does not correlate.
        return wanted is None or ((actual := find_value(row)) is not MISSING and wanted.find_mismatch(actual, scope, key) is None)

    def decide(evidence: Evidence) -> Verdict:
        portal = evidence.state.portal if evidence.state is not None else None
        if portal is None:
            return missing("portal state")
        scope = find_scope(evidence, (*(comparison for _, comparison in fields), *([wanted] if wanted else ())))
        rows = portal.get(spec.resource, [])
        found = [index for index, row in enumerate(rows) if correlates(row, scope)]
        pointers = tuple(f"{base}[{index}]" for index in found[:10])
        if spec.absent:
            # A portal creates a collection with its first row, so a missing one has no rows, unless its name is misspelt.
            if spec.resource not in portal and nearest(spec.resource, portal):
                others = _describe_others(spec, portal).removeprefix("; ")
                return missing(f"the collection {show(spec.resource)} ({others})")
            if not found and wanted and (misspelt := find_misspelt([key], rows)):
                return fail_unreadable(what, [misspelt])
            if not found and _is_converted(spec, rows):
                return fail_unreadable(what, [_CONVERTED])
            return decide_absence(f"{len(found)}" if found else None, what, pointers=pointers)
        if not found:
            if spec.resource not in portal:
                reason = f"no {what}: the portal has no {show(spec.resource)}{_describe_others(spec, portal)}"
            else:
                instead = [[(key, value)] for row in rows[-LAST:] if (value := find_value(row)) is not MISSING]
                more = f"; {_CONVERTED}" if _is_converted(spec, rows) else describe_found(instead)
                reason = f"no {what} ({len(rows)} rows){more}"
            return fail_no_match(reason, [(path, comparison.expected) for path, comparison in fields], key=_RESULTS)
        if len(found) > 1:
            hint = "" if wanted else "; name the row by key and value"
            return errored("several_matches", f"expected one {what}, found {len(found)}{hint}")
        results = [comparison.compare(path, find_dotted(rows[found[0]], path), scope) for path, comparison in fields]
        wrong = tuple(
            build_dotted_pointer(pointers[0], result.path) for result in results if not result.passed and result.actual is not None
        )
        return decide_fields(what, results, key=_RESULTS, pointers=wrong or pointers)

    return decide


def _is_converted(spec: PortalRecord, rows: list[dict[str, Json]]) -> bool:
    return any(equal_after_conversion(spec.value, row.get(spec.key or "")) for row in rows)


def _describe_others(spec: PortalRecord, portal: dict[str, list[dict[str, Json]]]) -> str:
    near = nearest(spec.resource, portal) or tuple(portal)[:5]
    return f"; there are {', '.join(map(show, near))}" if near else ""
