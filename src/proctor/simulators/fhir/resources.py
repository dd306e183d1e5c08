"""Validates and stores the resources of a FHIR R4 server, and writes responses, with an OperationOutcome for every refusal.

A resource is rejected if its type is unknown, its id malformed, a value inside is null or empty, a date invalid, or a reference not a text.
With `validate: true` in the seed of the server, elements, types, required elements and status codes are checked too. Elements and types
come from the definitions in `fhirpathpy` (the extra `health`); required elements and codes from the table here. Other cardinalities and
bindings, invariants and profiles are not checked.

The current version of a resource is a row in the collection of its type. Earlier versions are in `_history/TYPE` under `id/version`. For a
deleted resource, `_deleted/TYPE` stores the version number of the deletion, so that version numbers are never reused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, cast

import msgspec

from proctor.codecs.fhir_matching import RESOURCE_TYPES, iterate_values
from proctor.codecs.fhir_parameters import Parameter, Place, list_parameters, read_date
from proctor.errors import MissingExtra
from proctor.model.evidence import Json
from proctor.model.json_values import NotJson, is_number, read_json
from proctor.model.show import kind_of, nearest, show, suggest
from proctor.simulators.exchange import Refused, Request, Response, answer_json
from proctor.simulators.ports import Desk
from proctor.simulators.rows import Draft
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
            near = nearest(name, dict.fromkeys(each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == kind))
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


Resource = dict[str, Json]
HISTORY, DELETED, CONFIG = "_history", "_deleted", "_config"
_ID = re.compile(r"[A-Za-z0-9\-.]{1,64}")
_MOST_DEPTH = 100
"""Maximum nesting of elements."""


def check_type(resource_type: str) -> str:
    """Return the type. Raises `Refused` with 404 for one that does not exist in R4."""
    if resource_type not in RESOURCE_TYPES:
        suggestion = suggest(resource_type, RESOURCE_TYPES)
        raise refuse_fhir(404, "not-supported", f"{show(resource_type, 80)} is not a FHIR R4 resource type{suggestion}")
    return resource_type


def check_id(key: str) -> str:
    """Return the id. Raises `Refused` with 400 for one that FHIR does not allow."""
    if not _ID.fullmatch(key):
        raise refuse_fhir(400, "value", f"an id has up to 64 letters, digits, dashes and dots, found {show(key, 80)}")
    return key


def read_body(request: Request) -> Json:
    """Return the JSON of a request. Raises `Refused`: 415 for XML, 400 for invalid JSON."""
    if "xml" in request.headers.get("content-type", ""):
        raise refuse_fhir(415, "not-supported", "this server reads and writes JSON only")
    try:
        return read_json(request.body)
    except NotJson as error:
        raise refuse_fhir(400, "structure", f"the body is not JSON: {error}") from None


def check_resource(value: Json, resource_type: str) -> Resource:
    """Return a valid resource. Raises `Refused` with 400 or 422."""
    if not isinstance(value, dict):
        raise refuse_fhir(400, "structure", f"a resource is an object, found {kind_of(value)}")
    resource = cast(Resource, value)
    if resource.get("resourceType") != resource_type:
        raise refuse_fhir(
            400,
            "invariant",
            f"resourceType: expected {resource_type}, found {show(resource.get('resourceType'))}",
            expression="resourceType",
        )
    if not isinstance(resource.get("meta", {}), dict):
        raise refuse_fhir(422, "value", f"meta: expected an object, found {kind_of(resource['meta'])}", expression=f"{resource_type}.meta")
    if "id" in resource and not isinstance(resource["id"], str):
        raise refuse_fhir(400, "value", f"id: expected text, found {kind_of(resource['id'])}", expression=f"{resource_type}.id")
    for path, why in _iterate_faults(resource, resource_type):
        raise refuse_fhir(422, "value", f"{path}: {why}", expression=path)
    return resource


def _iterate_faults(resource: Resource, resource_type: str) -> Iterator[tuple[str, str]]:
    # The path is written only for a fault, because most resources are valid: here each name has that of its parent.
    waiting: list[tuple[Json, _Place, int]] = [(resource, (None, resource_type), 0)]
    while waiting:
        value, place, depth = waiting.pop()
        if depth > _MOST_DEPTH:
            yield _write_path(place)[:200], f"more than {_MOST_DEPTH} elements inside each other"
            return
        if isinstance(value, dict):
            if not value:
                yield _write_path(place), "an element has something in it"
            elif place[1].endswith("eference") and not isinstance(value.get("reference", ""), str):
                yield f"{_write_path(place)}.reference", f"expected text, found {kind_of(value['reference'])}"
            for name, member in cast(Resource, value).items():
                if isinstance(member, (dict, list)):
                    waiting.append((member, (place, name), depth + 1))
                elif member is None or member == "":
                    yield f"{_write_path(place)}.{name}", f"expected a value, found {'null' if member is None else 'empty text'}"
        elif isinstance(value, list):
            if not value:
                yield _write_path(place), "a list has something in it"
            # In a repeated primitive, null is a placeholder for an entry of the parallel list with an underscore.
            for index, item in enumerate(cast("list[Json]", value)):
                if isinstance(item, (dict, list)):
                    waiting.append((item, (place, f"[{index}]"), depth + 1))
                elif item == "":
                    yield f"{_write_path(place)}[{index}]", "expected a value, found empty text"
    yield from _iterate_wrong_dates(resource, resource_type)


_Place = tuple["_Place | None", str]
"""The place of the parent, and a name or an index in it."""


def _write_path(place: _Place) -> str:
    parts: list[str] = []
    at: _Place | None = place
    while at is not None:
        parts.append(at[1] if at[0] is None or at[1].startswith("[") else f".{at[1]}")
        at = at[0]
    return "".join(reversed(parts))


def _iterate_wrong_dates(resource: Resource, resource_type: str) -> Iterator[tuple[str, str]]:
    for parameter in _list_date_parameters(resource_type):
        for element in iterate_values(resource, parameter):
            if isinstance(element, str) and read_date(element) is None and not _is_free_text(element, resource, parameter):
                yield f"{resource_type}.{'.'.join(parameter.places[0].steps)}", f"not a FHIR date: {show(element)}"


def _is_free_text(element: str, resource: Resource, parameter: Parameter) -> bool:
    """Return whether a choice has a time as text (`occurrenceString: January 2012`), which R4 allows."""
    as_text = tuple(Place((*place.steps[:-1], f"{place.steps[-1]}String")) for place in parameter.places)
    return element in iterate_values(resource, Parameter(parameter.name, "string", as_text))


@functools.cache
def _list_date_parameters(resource_type: str) -> tuple[Parameter, ...]:
    return tuple(parameter for parameter in list_parameters(resource_type).values() if parameter.kind == "date")


def replace_references(value: Json, find: Callable[[str], str | None]) -> Json:
    """Return a value with the references inside replaced by what `find` returns for them, unless that is None."""
    if isinstance(value, list):
        return [replace_references(item, find) for item in cast("list[Json]", value)]
    if not isinstance(value, dict):
        return value
    replaced = {name: replace_references(member, find) for name, member in cast(Resource, value).items()}
    reference = replaced.get("reference")
    if isinstance(reference, str) and (target := find(reference)) is not None:
        replaced["reference"] = target
    return replaced


def find_version(resource: Resource) -> int:
    """Return the number of a resource's version."""
    return int(resource["meta"]["versionId"])


def make_version(resource: Resource, key: str, version: int, now: str) -> Resource:
    """Return the resource as stored: with its id, version and time."""
    meta = resource.get("meta")
    new_meta = {**(meta if isinstance(meta, dict) else {}), "versionId": str(version), "lastUpdated": now}
    elements = {name: value for name, value in resource.items() if name not in ("resourceType", "id", "meta")}
    return {"resourceType": resource["resourceType"], "id": key, "meta": new_meta, **elements}


def put_resource(resource: Resource, key: str, desk: Desk) -> Resource:
    """Store a resource as the newest version of its id, and return it.

    Raises `Refused` with 422 and one issue for each fault, where the server validates and the resource is not valid.
    """
    if desk.rows.get(CONFIG, "validate") and (issues := list_issues(resource)):
        entries = [{"severity": "error", "code": code, "diagnostics": f"{at}: {why}", "expression": [at]} for code, at, why in issues]
        raise Refused(answer_json(422, {"resourceType": "OperationOutcome", "issue": entries}, kind=FHIR_JSON))
    resource_type: str = resource["resourceType"]
    old: Json = desk.rows.get(resource_type, key)
    if old is not None:
        archive(old, desk.rows)
        version = find_version(old) + 1
    else:
        version = int((desk.rows.get(f"{DELETED}/{resource_type}", key) or {"version": 0})["version"]) + 1
        desk.rows.remove(f"{DELETED}/{resource_type}", key)
    stored = make_version(resource, key, version, desk.around.now())
    desk.rows.put(resource_type, key, stored)
    return stored


def remove_resource(old: Resource, desk: Desk) -> None:
    """Delete a resource; its versions stay."""
    resource_type, key, version = old["resourceType"], old["id"], find_version(old) + 1
    archive(old, desk.rows)
    now = desk.around.now()
    desk.rows.put(f"{HISTORY}/{resource_type}", f"{key}/{version}", {"deleted": now, "version": version, "id": key})
    desk.rows.put(f"{DELETED}/{resource_type}", key, {"version": version})
    desk.rows.remove(resource_type, key)


def archive(old: Resource, rows: Draft) -> None:
    """Archive a version before it is replaced."""
    version = find_version(old)
    rows.put(f"{HISTORY}/{old['resourceType']}", f"{old['id']}/{version}", {"resource": old, "version": version, "id": old["id"]})


def list_resources(rows: Draft) -> list[Resource]:
    """Return all current resources, type by type."""
    return [resource for name in rows.list_collections() for resource in rows.list(name).values()]


FHIR_JSON = "application/fhir+json; charset=utf-8"


def refuse_fhir(status: int, code: str, message: str, *, expression: str | None = None) -> Refused:
    """Return a refusal with an OperationOutcome; `code` is one of FHIR's issue types."""
    issue: dict[str, Json] = {"severity": "error", "code": code, "diagnostics": message}
    if expression is not None:
        issue["expression"] = [expression]
    return Refused(answer_json(status, {"resourceType": "OperationOutcome", "issue": [issue]}, kind=FHIR_JSON))


def describe_refusal(refused: Refused) -> str:
    """Return the message of a refusal."""
    return msgspec.json.decode(refused.response.body)["issue"][0]["diagnostics"]


def answer_resource(status: int, resource: dict[str, Json], *, headers: dict[str, str] | None = None) -> Response:
    """Return a resource, with its version and its time in the headers."""
    meta = resource.get("meta")
    all_headers = dict(headers or {})
    if isinstance(meta, dict) and isinstance(meta.get("versionId"), str):
        all_headers["etag"] = f'W/"{meta["versionId"]}"'
    return answer_json(status, resource, headers=all_headers, kind=FHIR_JSON)


def answer_write(request: Request, status: int, resource: dict[str, Json]) -> Response:
    """Return the response to a write: the resource, or the minimum that the client prefers."""
    name, version = f"{resource['resourceType']}/{resource['id']}", resource["meta"]["versionId"]
    headers = {"location": f"{request.base}/{name}/_history/{version}", "etag": f'W/"{version}"'}
    preferred = request.headers.get("prefer", "")
    if "return=minimal" in preferred:
        return Response(status=status, headers=headers)
    if "return=operationoutcome" in preferred.lower():
        issue = {"severity": "information", "code": "informational", "diagnostics": f"{name} is version {version} now"}
        return answer_json(status, {"resourceType": "OperationOutcome", "issue": [issue]}, headers=headers, kind=FHIR_JSON)
    return answer_resource(status, resource, headers=headers)
