"""Validates R4 resources: their elements, types, required elements and status codes.

Elements and types come from the definitions in `fhirpathpy` (the extra `health`). Required elements and codes are those of the types in
the table here; other cardinalities, other bindings, invariants and profiles are not looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, cast

from proctor.codecs.fhir_parameters import read_date
from proctor.errors import MissingExtra
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import kind_of, nearest, show
from proctor.work import spend

_MOST_ISSUES = 20
_TABLE = """
Appointment status participant participant.status, AppointmentResponse appointment participantStatus, AllergyIntolerance patient,
CarePlan status intent subject, Claim status type use patient created provider priority insurance,
ClaimResponse status type use patient created insurer outcome, Communication status, CommunicationRequest status,
Composition status type date author title, Condition subject, Consent status scope category, Coverage status beneficiary payor,
CoverageEligibilityRequest status purpose patient created insurer, DiagnosticReport status code, DocumentReference status content,
Encounter status class, EpisodeOfCare status patient, Goal lifecycleStatus description subject,
Immunization status vaccineCode patient occurrence[x], MedicationAdministration status medication[x] subject effective[x],
MedicationDispense status medication[x], MedicationRequest status intent medication[x] subject,
MedicationStatement status medication[x] subject, Observation status code, Procedure status subject, QuestionnaireResponse status,
RelatedPerson patient, Schedule actor, ServiceRequest status intent subject, Slot schedule status start end, Task status intent
"""
"""Types with their required elements."""
_FINANCIAL = "active cancelled draft entered-in-error"
_CODES = {
    "Appointment.status": "proposed pending booked arrived fulfilled cancelled noshow entered-in-error checked-in waitlist",
    "Appointment.participant.status": "accepted declined tentative needs-action",
    "Claim.status": _FINANCIAL,
    "Claim.use": "claim preauthorization predetermination",
    "Coverage.status": _FINANCIAL,
    "Encounter.status": "planned arrived triaged in-progress onleave finished cancelled entered-in-error unknown",
    "MedicationRequest.status": "active on-hold cancelled completed entered-in-error stopped draft unknown",
    "Observation.status": "registered preliminary final amended corrected cancelled entered-in-error unknown",
    "Patient.gender": "male female other unknown",
    "ServiceRequest.status": "draft active on-hold revoked completed entered-in-error unknown",
    "ServiceRequest.intent": "proposal plan directive order original-order reflex-order filler-order instance-order option",
    "Slot.status": "busy free busy-unavailable busy-tentative entered-in-error",
    "Task.status": "draft requested received accepted rejected ready cancelled in-progress on-hold failed completed entered-in-error",
}
_REQUIRED = {row.split()[0]: tuple(row.split()[1:]) for row in _TABLE.split(",")}
_NUMBERS = ("decimal", "integer", "positiveInt", "unsignedInt")
_LEAST = {"positiveInt": 1, "unsignedInt": 0}
Issue = tuple[str, str, str]
"""A FHIR code, its position, and the error."""


@functools.cache
def load_definitions() -> dict[str, Any]:
    """Return the definitions of R4. Raises `MissingExtra` without the library."""
    try:
        from fhirpathpy.models import models  # slow to import, and optional
    except ImportError:
        raise MissingExtra("FHIR validation", "health") from None
    r4: dict[str, Any] = models["r4"]
    parents = {path.rpartition(".")[0] for path in r4["path2Type"]}
    return {**r4, "parents": parents}


def list_issues(resource: dict[str, Json]) -> list[Issue]:
    """Return the first errors in a resource."""
    kind = str(resource.get("resourceType"))
    lacking = (issue for name in _REQUIRED.get(kind, ()) for issue in _find_missing(resource, kind, name.split(".")))
    return list(islice(chain(lacking, _iterate_issues(resource, kind, kind)), _MOST_ISSUES))


def _find_missing(element: dict[str, Json], path: str, names: Sequence[str]) -> Iterator[Issue]:
    stem = names[0].removesuffix("[x]")
    present = [name for name in element if name.lstrip("_") == stem or (names[0] != stem and name.startswith(stem))]
    if not present and not names[1:]:
        yield "required", f"{path}.{names[0]}", "is required"
    inner = element.get(stem)
    for index, item in enumerate(cast("list[Json]", inner) if isinstance(inner, list) and names[1:] else ()):
        if isinstance(item, dict):
            yield from _find_missing(cast("dict[str, Json]", item), f"{path}.{stem}[{index}]", names[1:])


def _iterate_issues(element: dict[str, Json], kind: str, path: str) -> Iterator[Issue]:
    """Yield the errors inside an element; `kind` is its type, or the path of a type's inner element."""
    spend(1 + len(element))
    for name, value in element.items():
        if name == "resourceType":
            continue
        place = _find_definition(kind, name.removeprefix("_"))
        if place is None:
            known = (*load_definitions()["path2Type"], *load_definitions()["parents"])
            near = nearest(name, dict.fromkeys(one.rpartition(".")[2] for one in known if one.rpartition(".")[0] == kind))
            yield "structure", f"{path}.{name}", "is not an R4 element" + (f"; nearest: {', '.join(near)}" if near else "")
            continue
        for index, item in enumerate(cast("list[Json]", value) if isinstance(value, list) else [value]):
            at = f"{path}.{name}[{index}]" if isinstance(value, list) else f"{path}.{name}"
            if not name.startswith("_") and item is not None:
                yield from _iterate_value_issues(item, place, at)


def _find_definition(kind: str, name: str) -> str | None:
    """Return the path under which an element is defined: in the type itself, or in a base type."""
    r4 = load_definitions()
    while kind:
        path = r4["pathsDefinedElsewhere"].get(f"{kind}.{name}", f"{kind}.{name}")
        if path in r4["path2Type"] or path in r4["parents"]:
            return path
        kind = r4["type2Parent"].get(kind, "")
    return None


def _iterate_value_issues(value: Json, place: str, path: str) -> Iterator[Issue]:
    r4 = load_definitions()
    kind: str = place if place in r4["parents"] else r4["path2Type"][place]
    if kind[:1].isupper() and not kind.startswith("System."):
        if not isinstance(value, dict):
            yield "structure", path, f"expected an object, found {kind_of(value)}"
            return
        inner = cast("dict[str, Json]", value)
        yield from _iterate_issues(inner, str(inner.get("resourceType", kind)) if kind == "Resource" else kind, path)
    elif why := _find_wrong_value(value, kind, place):
        yield "value", path, why


def _find_wrong_value(value: Json, kind: str, place: str) -> str:
    if kind == "boolean":
        return "" if isinstance(value, bool) else f"expected true or false, found {kind_of(value)}"
    if kind in _NUMBERS:
        fits = is_number(value) and (kind == "decimal" or (isinstance(value, int) and value >= _LEAST.get(kind, value)))
        return "" if fits else f"expected a number ({kind}), found {show(value, 80)}"
    if not isinstance(value, str):
        return f"expected text, found {kind_of(value)}"
    if kind in ("date", "dateTime", "instant") and (read_date(value) is None or (kind == "instant" and "T" not in value)):
        return f"expected {'an' if kind == 'instant' else 'a'} {kind}, found {show(value, 80)}"
    codes = _CODES.get(place, "").split()
    return f"expected one of {', '.join(codes)}, found {show(value, 80)}" if codes and value not in codes else ""
