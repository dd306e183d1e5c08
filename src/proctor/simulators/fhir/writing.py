"""Writing to a FHIR server: create, update, patch and delete, by id and by condition."""

from __future__ import annotations

from proctor.codecs.json_patch import apply_patch, merge_patch
from proctor.codecs.query import decode_query
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response
from proctor.simulators.fhir.answer_options import Pairs
from proctor.simulators.fhir.outcomes import answer_resource, answer_write, refuse_fhir
from proctor.simulators.fhir.reading import names_version, read_resource
from proctor.simulators.fhir.resources import DELETED, Resource, check_id, check_resource, put_resource, read_body, remove_resource
from proctor.simulators.fhir.searching import find_matches
from proctor.simulators.ports import Desk

_JSON_PATCH, _MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"


def create(request: Request, resource_type: str, desk: Desk) -> Response:
    """Create a resource under an id of ours; with `If-None-Exist`, only where the condition finds none."""
    condition = request.headers.get("if-none-exist")
    if condition is not None:
        found = find_matches(resource_type, decode_query(condition.partition("?")[2] or condition), desk.rows)
        _refuse_several(found, condition)
        if found:
            return answer_resource(200, found[0])
    resource = check_resource(read_body(request), resource_type)
    return answer_write(request, 201, put_resource(resource, desk.around.new_id(), desk))


def update(request: Request, resource_type: str, key: str, desk: Desk) -> Response:
    """Replace a resource, or make one under this id."""
    check_id(key)
    resource = check_resource(read_body(request), resource_type)
    if resource.get("id") != key:
        raise refuse_fhir(400, "invariant", f"the id in the body ({show(resource.get('id'))}) is not that of the address ({key})")
    old: Json = desk.rows.get(resource_type, key)
    _refuse_taken(request, old, f"{resource_type}/{key}")
    _check_match(request, old, f"{resource_type}/{key}")
    return answer_write(request, 200 if old is not None else 201, put_resource(resource, key, desk))


def update_by_condition(request: Request, resource_type: str, pairs: Pairs, desk: Desk) -> Response:
    """Replace the one resource that a condition finds, or make one where it finds none."""
    found = find_matches(resource_type, pairs, desk.rows)
    _refuse_several(found, request.target)
    resource = check_resource(read_body(request), resource_type)
    given = resource.get("id")
    if not found:
        if given is not None and desk.rows.get(resource_type, check_id(given)) is not None:
            raise refuse_fhir(409, "conflict", f"{resource_type}/{given} is there, and the condition does not find it")
        return answer_write(request, 201, put_resource(resource, given or desk.around.new_id(), desk))
    key: str = found[0]["id"]
    if given not in (None, key):
        raise refuse_fhir(400, "invariant", f"the id in the body ({show(given)}) is not that of the resource found ({key})")
    _refuse_taken(request, found[0], f"{resource_type}/{key}")
    _check_match(request, found[0], f"{resource_type}/{key}")
    return answer_write(request, 200, put_resource(resource, key, desk))


def patch(request: Request, resource_type: str, key: str, desk: Desk) -> Response:
    """Change part of a resource, by a JSON Patch or a merge patch."""
    old = read_resource(resource_type, key, desk.rows)
    _check_match(request, old, f"{resource_type}/{key}")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in (_JSON_PATCH, _MERGE_PATCH, "application/json"):
        raise refuse_fhir(415, "not-supported", f"a patch is sent as {_JSON_PATCH} or {_MERGE_PATCH}, found {show(kind)}")
    given = read_body(request)
    # Some clients call either patch plain JSON: a list is one of operations, an object one to merge.
    is_merged = kind == _MERGE_PATCH or (kind != _JSON_PATCH and not isinstance(given, list))
    try:
        changed = merge_patch(old, given) if is_merged else apply_patch(old, given)
    except SpecError as error:
        raise refuse_fhir(422, "processing", f"operation {error.field}: {error.message}" if error.field else error.message) from None
    resource = check_resource(changed, resource_type)
    if resource.get("id") != key:
        raise refuse_fhir(422, "invariant", "a patch cannot change the id")
    return answer_write(request, 200, put_resource(resource, key, desk))


def delete(request: Request, resource_type: str, key: str, desk: Desk) -> Response:
    """Delete a resource; one that was deleted before stays so."""
    old: Json = desk.rows.get(resource_type, check_id(key))
    if old is None and desk.rows.get(f"{DELETED}/{resource_type}", key) is not None:
        return Response(status=204)
    old = read_resource(resource_type, key, desk.rows)
    _check_match(request, old, f"{resource_type}/{key}")
    remove_resource(old, desk)
    return Response(status=204)


def find_one(request: Request, resource_type: str, pairs: Pairs, desk: Desk) -> str | None:
    """Return the id of the one resource that the condition of a patch or deletion finds. Raises `Refused` with 412 for several."""
    found = find_matches(resource_type, pairs, desk.rows)
    _refuse_several(found, request.target)
    return found[0]["id"] if found else None


def _refuse_several(found: list[Resource], condition: str) -> None:
    if len(found) > 1:
        raise refuse_fhir(412, "multiple-matches", f"{len(found)} resources fit {show(condition, 200)}; a condition finds one at most")


def _refuse_taken(request: Request, old: Resource | None, name: str) -> None:
    """Refuse an update whose client means to make something new (`If-None-Match: *`), where it is there already."""
    wanted = request.headers.get("if-none-match")
    if wanted is not None and old is not None and names_version(wanted, old["meta"]["versionId"]):
        raise refuse_fhir(412, "conflict", f"{name} is there already, and If-None-Match is {show(wanted, 80)}")


def _check_match(request: Request, old: Resource | None, name: str) -> None:
    """Refuse a write whose client has seen another version (`If-Match`)."""
    wanted = request.headers.get("if-match")
    if wanted is None:
        return
    version = None if old is None else old["meta"]["versionId"]
    if version is None or not names_version(wanted, version):
        raise refuse_fhir(412, "conflict", f"{name} is version {version}, not {wanted}" if version else f"there is no {name}")
