"""Claims about the resources in a FHIR store after the run.

The store is searched as a FHIR server would (`codecs/fhir.py`), and the fields are compared in the results that `match` picks:

- `first`: the first result; a second one is never looked at
- `any`: the result in which most fields hold, the earlier one of two
- `all`: every result; the score is the mean over them
- `exactly_one`: more or fewer than one result fails with score 0

`count` is one more field assertion. `fhirpath` without `expected` must give one boolean true; with it, the first value is
compared. A search that we do not implement is an `error` naming the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.fields import (
    LAST,
    Comparison,
    FieldResult,
    build_dotted_pointer,
    compare_count,
    decide_absence,
    decide_fields,
    declare_state_reads,
    describe_failures,
    describe_found,
    fail_no_match,
    find_scope,
    refuse_contradictions,
)
from proctor.checks.systems._fhirpath import FhirPath, compile_fhirpath
from proctor.codecs.fhir import PlacedResource, ServedResources, compile_search
from proctor.codecs.fhir_matching import RESOURCE_TYPES, iterate_values
from proctor.codecs.fhir_parameters import list_parameters
from proctor.errors import CheckFault, SpecError
from proctor.expressions.text_form import Scope
from proctor.model.evidence import Evidence, FhirState, Json
from proctor.model.json_values import MISSING, read_digits
from proctor.model.show import count_rest, show, suggest
from proctor.model.verdict import Verdict, failed, missing
from proctor.paths.dotted import find_dotted
from proctor.work import spend


class FhirField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value inside a resource. Exactly one of `path` and `fhirpath`."""

    path: str | None = None
    """A dot path; numbers index lists: `participant.0.actor.display`."""
    fhirpath: str | None = None
    """A FHIRPath expression; without `expected` it must give one boolean true."""
    expected: Json | msgspec.UnsetType = msgspec.UNSET
    """The value, or a matcher object; null: absent or null. Required with `path`."""


class FhirResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A FHIR resource found by search has the given values; the score is the share of fields that hold."""

    resource_type: str
    """The FHIR type: `Appointment`."""
    search: dict[str, str] = {}
    """FHIR search parameters."""
    fields: tuple[FhirField, ...] = ()
    """The values to compare."""
    match: Literal["first", "any", "all", "exactly_one"] = "first"
    """Which results of the search are looked at."""
    count: int | None = None
    """How many results there must be."""
    absent: bool = False
    """The claim is that the search finds nothing."""


_PER_LOOK = 20
"""The number of steps for comparing one field of one resource; FHIRPath counts its own steps."""


class _Field(msgspec.Struct, frozen=True):
    """One field assertion, prepared."""

    path: str
    """The path as written, for the record."""
    comparison: Comparison
    fhirpath: FhirPath | None
    must_be_true: bool

    def look(self, resource: dict[str, Json], scope: Scope) -> FieldResult:
        spend(_PER_LOOK)
        if self.fhirpath is None:
            return self.comparison.compare(self.path, find_dotted(resource, self.path), scope)
        values = self.fhirpath.evaluate(resource, scope.now)
        if not self.must_be_true:
            return self.comparison.compare(self.path, values[0] if values else MISSING, scope)
        holds = len(values) == 1 and values[0] is True
        found: Json = values[0] if len(values) == 1 else values or None
        return FieldResult(self.path, True, found, holds, "" if holds else f"{self.path}: expected one true, found {show(found)}")


@check(
    "fhir_resource",
    example="fhir_resource: {resource_type: Patient, search: {name: Smith}, fields: [{path: gender, expected: male}]}",
    reads=declare_state_reads,
    product=True,
)
def fhir_resource(spec: FhirResource) -> Decide:
    """A FHIR resource found by search has the given values; the score is the share of fields that hold."""
    if not spec.resource_type:
        raise SpecError("the resource type is empty", field="resource_type")
    refuse_contradictions(spec.absent, spec.fields, spec.count)
    fields = tuple(_prepare_field(field, f"fields.{index}") for index, field in enumerate(spec.fields))
    _reject_capped_counts(spec)
    find = _make_search(spec)
    # FHIRPath has its own clock functions (`today()`), so it needs the scope too.
    has_fhirpath = any(field.fhirpath for field in fields)
    query = "&".join(f"{name}={value}" for name, value in spec.search.items())
    what = f"{spec.resource_type}?{show(query)[1:-1]}" if query else spec.resource_type

    must_be_known = (spec.absent or spec.count == 0) and spec.resource_type not in RESOURCE_TYPES

    def decide(evidence: Evidence) -> Verdict:
        store = evidence.state.fhir if evidence.state is not None else None
        if store is None:
            return missing("FHIR state")
        # A search for an unknown type finds nothing, so a misspelt name would pass as an absence.
        if must_be_known:
            why = "is not a FHIR R4 resource type, so its absence proves nothing"
            suffix = suggest(spec.resource_type, RESOURCE_TYPES)
            raise CheckFault("unknown_resource_type", f"resource_type: {show(spec.resource_type, 80)} {why}{suffix}")
        found = find(store)
        if spec.absent:
            return decide_absence(_name_resource(found) if found else None, what, pointers=tuple(_point_at(entry) for entry in found[:10]))
        scope = Scope.read_from(evidence) if has_fhirpath else find_scope(evidence, (field.comparison for field in fields))
        verdict = _decide_verdict(spec, fields, found, scope, what)
        if verdict.code != "no_match":
            return verdict
        return msgspec.structs.replace(verdict, reason=verdict.reason + _describe_others(spec, store))

    return decide


def _describe_others(spec: FhirResource, store: FhirState) -> str:
    """Return the values that the newest resources of the type have for the search parameters."""
    known = list_parameters(spec.resource_type)
    parameters = [known[name] for name in (key.partition(":")[0] for key in spec.search) if name in known]
    candidates = [one for one in store.resources if one.get("resourceType") == spec.resource_type][-LAST:]
    spend(len(store.resources) + len(candidates) * _PER_LOOK * len(parameters))
    wanted = {key.partition(":")[0]: value for key, value in spec.search.items()}
    found = [
        [
            (one.name, shown)
            for one in parameters
            for value in islice(iterate_values(resource, one), 3)
            # A value that matches the search is not the reason why the resource was not found.
            if (shown := value.get("reference", value) if isinstance(value, dict) else value) != wanted[one.name]
        ]
        for resource in candidates
    ]
    return describe_found([each for each in found if each])


def _prepare_field(field: FhirField, at: str) -> _Field:
    if (field.path is None) == (field.fhirpath is None):
        raise SpecError("a field needs either path or fhirpath", field=at)
    written = field.path if field.path is not None else field.fhirpath or ""
    if not written:
        raise SpecError("the path is empty", field=f"{at}.path")
    if field.path is not None and field.expected is msgspec.UNSET:
        raise SpecError("a field with a path needs expected", field=at)
    expected = None if field.expected is msgspec.UNSET else field.expected
    return _Field(
        written,
        Comparison(expected, field=f"{at}.expected"),
        compile_fhirpath(written, field=f"{at}.fhirpath") if field.fhirpath is not None else None,
        field.fhirpath is not None and field.expected is msgspec.UNSET,
    )


def _reject_capped_counts(spec: FhirResource) -> None:
    """Reject a number of results that `_count` rules out: the search would never find one more."""
    text = spec.search.get("_count", "")
    if (most := read_digits(text, 9)) is None:
        return
    if most == 0:
        raise SpecError("_count: 0 looks at no result; leave it out", field="search._count")
    if (spec.count is not None and spec.count >= most) or (spec.match == "exactly_one" and most == 1):
        claim = "match: exactly_one" if spec.count is None else f"count: {spec.count}"
        raise SpecError(f"{claim} is unknown with _count: {most}, which hides further results; remove _count", field="search._count")


def _make_search(spec: FhirResource) -> Callable[[FhirState], list[PlacedResource]]:
    try:
        search = compile_search(spec.resource_type, spec.search)
    except CheckFault:
        # Not an error of the author but a limit of ours: an `error` of this claim only, for each evidence.
        return lambda store: compile_search(spec.resource_type, spec.search).find(store.resources)
    return lambda store: search.find(ServedResources(store.resources) if store.served else store.resources)


def _name_resource(found: Sequence[PlacedResource]) -> str:
    more = count_rest(len(found), 3)
    return ", ".join(entry.name for entry in found[:3]) + more


def _point_at(found: PlacedResource) -> str:
    return f"$.state.fhir.{found.place}"


def _decide_verdict(spec: FhirResource, fields: tuple[_Field, ...], found: list[PlacedResource], scope: Scope, what: str) -> Verdict:
    counted = () if spec.count is None else (compare_count(spec.count, len(found)),)
    if not found:
        if spec.count == 0:
            return decide_fields(f"no {what}", counted, matches=0)
        verdict = fail_no_match(f"no {what} in the FHIR store", [(field.path, _find_expected(field)) for field in fields], matches=0)
        verdict.details["field_results"].extend(result.to_record() for result in counted)
        verdict.details["total"] += len(counted)
        return verdict
    if spec.match == "exactly_one" and len(found) != 1:
        reason = f"expected exactly one {what}, found {len(found)}: {_name_resource(found)}"
        rows = [FieldResult(field.path, _find_expected(field), None, False).to_record() for field in fields]
        return failed(
            reason,
            code="several_matches",
            details={"field_results": rows, "matches": len(found)},
            pointers=tuple(map(_point_at, found[:10])),
        )
    if spec.match == "all":
        return _decide_over_all(fields, found, counted, scope)
    looked = [(entry, [field.look(entry.resource, scope) for field in fields]) for entry in (found if spec.match == "any" else found[:1])]
    # `max` returns the first of equals, as required: the earlier of two equally good results.
    entry, results = max(looked, key=lambda pair: sum(result.passed for result in pair[1]))
    return decide_fields(
        entry.name, (*results, *counted), pointers=_point_at_failures(entry, results), matches=len(found), resource=entry.name
    )


def _decide_over_all(fields: tuple[_Field, ...], found: list[PlacedResource], counted: tuple[FieldResult, ...], scope: Scope) -> Verdict:
    each = [(entry, [field.look(entry.resource, scope) for field in fields]) for entry in found]
    results = [result for _, looked in each for result in looked]
    wrong = next((pair for pair in each if not all(result.passed for result in pair[1])), None)
    pointers = _point_at_failures(*wrong) if wrong else tuple(map(_point_at, found[:10]))
    names = [entry.name for entry in found]
    verdict = decide_fields(f"all of {_name_resource(found)}", (*results, *counted), pointers=pointers, matches=len(found), resources=names)
    if verdict.passed:
        return verdict
    # The mean over resources, each with the count as one more field; computed so that equal shares give exact scores.
    shares = sum(result.passed for result in results) + sum(result.passed for result in counted) * len(found)
    held = f"{verdict.details['held']} of {verdict.details['total']} fields hold"
    reason = f"{wrong[0].name}: {describe_failures(wrong[1])}" if wrong else describe_failures(counted)
    return msgspec.structs.replace(
        verdict, reason=f"all of {_name_resource(found)}: {held}: {reason}", score=shares / (len(found) * (len(fields) + len(counted)))
    )


def _find_expected(field: _Field) -> Json:
    return True if field.must_be_true else field.comparison.expected


def _point_at_failures(found: PlacedResource, results: Sequence[FieldResult]) -> tuple[str, ...]:
    """Return the paths of the failing values, or of the resource if all hold or none has a plain path."""
    base = _point_at(found)
    wrong = tuple(
        build_dotted_pointer(base, result.path)
        for result in results
        if not result.passed and result.actual is not None and "(" not in result.path
    )
    return wrong or (base,)
