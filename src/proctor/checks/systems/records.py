"""Claims about the rows of a records system after the run: of any collection, chosen by their members.

`where` chooses rows by dot paths; `match` is how many of them must satisfy the fields: `any` (one is enough), `first`,
`all`, or `exactly_one`, which fails where there are more or fewer. `count` is one more claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import (
    Comparison,
    RowField,
    compare_count,
    decide_fields,
    declare_state_reads,
    fail_unreadable,
    find_misspelt,
)
from proctor.checks.systems.entries import EntryClaim, describe_choice, prepare_claimed
from proctor.errors import SpecError
from proctor.expressions.text_form import NO_SCOPE
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Evidence, Json
from proctor.model.show import nearest, show
from proctor.model.verdict import Verdict, failed, missing

_POINTED = 10
"""The maximum number of rows that a verdict points to."""


class RecordsMatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a collection have the given values; the score is the share of claims that hold."""

    collection: str
    """The collection: `orders`."""
    where: dict[str, Json] = {}
    """Which rows: dot path to value or matcher; left out: every row."""
    fields: tuple[RowField, ...] = ()
    """The values to compare."""
    match: Literal["any", "first", "all", "exactly_one"] = "any"
    """Which of the rows are looked at."""
    count: int | None = None
    """How many rows there must be."""
    absent: bool = False
    """The claim is that there is no such row."""


@check(
    "records_match",
    example="records_match: {collection: orders, where: {id: O-17}, fields: [{path: status, expected: shipped}]}",
    reads=declare_state_reads,
    product=True,
)
def records_match(spec: RecordsMatch) -> Decide:
    """Rows of a collection have the given values; the score is the share of claims that hold."""
    if not spec.collection:
        raise SpecError("the collection is empty", field="collection")
    if "" in spec.where:
        raise SpecError("the path is empty", field="where")
    chosen_by = tuple((path, Comparison(value, field=f"where.{path}")) for path, value in spec.where.items())
    claim = EntryClaim(
        what=describe_choice(f"row of {spec.collection}", chosen_by),
        base=join_path("$.state.records", spec.collection),
        chosen_by=chosen_by,
        fields=prepare_claimed(spec.fields, (), spec.absent, spec.count),
        is_absent=spec.absent,
    )

    def decide(evidence: Evidence) -> Verdict:
        records = evidence.state.records if evidence.state is not None else None
        if records is None:
            return missing("records")
        if spec.collection not in records:
            near = nearest(spec.collection, records) or tuple(records)[:5]
            hint = f"; there are {', '.join(map(show, near))}" if near else ""
            if spec.absent or spec.count == 0:
                # A system lists its collections, even empty ones, so the content of an unlisted one is unknown.
                return missing(f"the collection {show(spec.collection)}")
            reason = f"no {claim.what}: there is no collection {show(spec.collection)}{hint}"
            return msgspec.structs.replace(claim.fail_without_entry((), NO_SCOPE), reason=reason)
        rows, scope = records[spec.collection], claim.find_scope(evidence)
        found = claim.choose(rows, scope)
        if not found and (spec.absent or spec.count == 0) and (misspelt := find_misspelt([path for path, _ in claim.chosen_by], rows)):
            return fail_unreadable(claim.what, [misspelt])
        if not found and spec.count == 0 and (unclear := claim.find_unclear(rows, scope)):
            return fail_unreadable(claim.what, [unclear])
        if spec.absent:
            return claim.decide(rows, scope)
        if not found and spec.count != 0:
            return claim.fail_without_entry(rows, scope)
        if spec.match == "exactly_one" and len(found) > 1:
            reason = f"expected exactly one {claim.what}, found {len(found)}"
            details: dict[str, Json] = {"field_results": [], "matches": len(found)}
            return failed(reason, code="several_matches", details=details, pointers=_point_at(claim, found))
        if spec.match == "any" and spec.count is None:
            return claim.report(claim.find_best(rows, found, scope))
        looked = [claim.find_best(rows, found, scope)] if spec.match == "any" and found else []
        if spec.match != "any":
            looked = [claim.look(rows[index], index, scope) for index in (found if spec.match == "all" else found[:1])]
        results = [result for one in looked for result in one.fields]
        if spec.count is not None:
            results.append(compare_count(spec.count, len(found)))
        return decide_fields(claim.what, results, pointers=_point_at(claim, [one.index for one in looked] or found), matches=len(found))

    return decide


def _point_at(claim: EntryClaim, found: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{claim.base}[{index}]" for index in found[:_POINTED])
