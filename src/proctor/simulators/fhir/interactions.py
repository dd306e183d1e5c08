"""One resource of a FHIR server: read it, its versions and its history; create, update, patch and delete it, by id and by condition."""

from __future__ import annotations

from proctor.codecs.fhir_parameters import read_date
from proctor.codecs.http import decode_query, encode_query
from proctor.codecs.json_patch import apply_patch, merge_patch
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response, answer_json
from proctor.simulators.fhir.resources import (
    DELETED,
    FHIR_JSON,
    HISTORY,
    Resource,
    answer_resource,
    answer_write,
    check_id,
    check_resource,
    put_resource,
    read_body,
    refuse_fhir,
    remove_resource,
)
from proctor.simulators.fhir.searching import (
    MOST_PER_PAGE,
    OPTIONS,
    Pairs,
    find_matches,
    make_link,
    make_warning,
    read_number,
    read_options,
    shape_resource,
)
from proctor.simulators.ports import Desk
from proctor.simulators.rows import Draft
from proctor.work import spend

_JSON_PATCH, _MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"


def create(request: Request, resource_type: str, desk: Desk) -> Response:
    """Create a resource under a new id; with `If-None-Exist`, only if the condition has no match."""
    condition = request.headers.get("if-none-exist")
    if condition is not None:
        matches = find_matches(resource_type, decode_query(condition.partition("?")[2] or condition), desk.rows)
        _refuse_several(matches, condition)
        if matches:
            return answer_resource(200, matches[0])
    resource = check_resource(read_body(request), resource_type)
    return answer_write(request, 201, put_resource(resource, desk.around.new_id(), desk))


def update(request: Request, resource_type: str, key: str, desk: Desk) -> Response:
    """Replace a resource, or create one under this id."""
    check_id(key)
    resource = check_resource(read_body(request), resource_type)
    if resource.get("id") != key:
        raise refuse_fhir(400, "invariant", f"the id in the body ({show(resource.get('id'))}) is not that of the address ({key})")
    old: Json = desk.rows.get(resource_type, key)
    _refuse_taken(request, old, f"{resource_type}/{key}")
    _check_match(request, old, f"{resource_type}/{key}")
    return answer_write(request, 200 if old is not None else 201, put_resource(resource, key, desk))


def update_by_condition(request: Request, resource_type: str, pairs: Pairs, desk: Desk) -> Response:
    """Replace the only resource that matches a condition, or create one if none matches."""
    matches = find_matches(resource_type, pairs, desk.rows)
    _refuse_several(matches, request.target)
    resource = check_resource(read_body(request), resource_type)
    own_id = resource.get("id")
    if not matches:
        if own_id is not None and desk.rows.get(resource_type, check_id(own_id)) is not None:
            raise refuse_fhir(409, "conflict", f"{resource_type}/{own_id} is there, and the condition does not find it")
        return answer_write(request, 201, put_resource(resource, own_id or desk.around.new_id(), desk))
    key: str = matches[0]["id"]
    if own_id not in (None, key):
        raise refuse_fhir(400, "invariant", f"the id in the body ({show(own_id)}) is not that of the resource found ({key})")
    _refuse_taken(request, matches[0], f"{resource_type}/{key}")
    _check_match(request, matches[0], f"{resource_type}/{key}")
    return answer_write(request, 200, put_resource(resource, key, desk))


def patch(request: Request, resource_type: str, key: str, desk: Desk) -> Response:
    """Change part of a resource, by a JSON Patch or a merge patch."""
    old = read_resource(resource_type, key, desk.rows)
    _check_match(request, old, f"{resource_type}/{key}")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in (_JSON_PATCH, _MERGE_PATCH, "application/json"):
        raise refuse_fhir(415, "not-supported", f"a patch is sent as {_JSON_PATCH} or {_MERGE_PATCH}, found {show(kind)}")
    changes = read_body(request)
    # Some clients send either patch as plain JSON: a list is a JSON Patch, an object a merge patch.
    is_merged = kind == _MERGE_PATCH or (kind != _JSON_PATCH and not isinstance(changes, list))
    try:
        changed = merge_patch(old, changes) if is_merged else apply_patch(old, changes)
    except SpecError as error:
        raise refuse_fhir(422, "processing", f"operation {error.field}: {error.message}" if error.field else error.message) from None
    resource = check_resource(changed, resource_type)
    if resource.get("id") != key:
        raise refuse_fhir(422, "invariant", "a patch cannot change the id")
    return answer_write(request, 200, put_resource(resource, key, desk))


def delete(request: Request, resource_type: str, key: str, desk: Desk) -> Response:
    """Delete a resource; deleting it again has no effect."""
    old: Json = desk.rows.get(resource_type, check_id(key))
    if old is None and desk.rows.get(f"{DELETED}/{resource_type}", key) is not None:
        return Response(status=204)
    old = read_resource(resource_type, key, desk.rows)
    _check_match(request, old, f"{resource_type}/{key}")
    remove_resource(old, desk)
    return Response(status=204)


def find_one(request: Request, resource_type: str, pairs: Pairs, desk: Desk) -> str | None:
    """Return the id of the only match of a conditional patch or deletion. Raises `Refused` with 412 for several."""
    matches = find_matches(resource_type, pairs, desk.rows)
    _refuse_several(matches, request.target)
    return matches[0]["id"] if matches else None


def _refuse_several(matches: list[Resource], condition: str) -> None:
    if len(matches) > 1:
        raise refuse_fhir(412, "multiple-matches", f"{len(matches)} resources fit {show(condition, 200)}; a condition finds one at most")


def _refuse_taken(request: Request, old: Resource | None, name: str) -> None:
    """Reject an update that must create (`If-None-Match: *`) if the resource exists."""
    header = request.headers.get("if-none-match")
    if header is not None and old is not None and names_version(header, old["meta"]["versionId"]):
        raise refuse_fhir(412, "conflict", f"{name} is there already, and If-None-Match is {show(header, 80)}")


def _check_match(request: Request, old: Resource | None, name: str) -> None:
    """Reject a write based on another version (`If-Match`)."""
    if (header := request.headers.get("if-match")) is None:
        return
    version = None if old is None else old["meta"]["versionId"]
    if version is None or not names_version(header, version):
        raise refuse_fhir(412, "conflict", f"{name} is version {version}, not {header}" if version else f"there is no {name}")


_HISTORY = ("_count", "_since")


def read_resource(resource_type: str, key: str, rows: Draft) -> Resource:
    """Return the current version. Raises `Refused`: 404 if it never existed, 410 if it was deleted."""
    resource: Json = rows.get(resource_type, check_id(key))
    if resource is None:
        if rows.get(f"{DELETED}/{resource_type}", key) is not None:
            raise refuse_fhir(410, "deleted", f"{resource_type}/{key} was deleted")
        raise refuse_fhir(404, "not-found", f"there is no {resource_type}/{key}")
    return resource


def answer_read(request: Request, resource_type: str, key: str, rows: Draft) -> Response:
    """Answer a read; 304 if the client already has this version."""
    resource = read_resource(resource_type, key, rows)
    known = request.headers.get("if-none-match")
    if known is not None and names_version(known, resource["meta"]["versionId"]):
        return Response(status=304)
    ignored = [f"a read has no parameter {show(name, 80)}" for name, _ in request.query if name not in OPTIONS]
    return answer_resource(200, shape_resource(resource, read_options(request, request.query, ignored)))


def names_version(header: str, version: str) -> bool:
    """Return whether `If-Match` or `If-None-Match` matches a version: by its tag, in a list, or as `*`."""
    tags = [tag.strip() for tag in header.split(",")]
    return "*" in tags or version in (tag.removeprefix("W/").strip('"') for tag in tags)


def answer_version(resource_type: str, key: str, version: str, rows: Draft) -> Response:
    """Answer the read of one version."""
    current: Json = rows.get(resource_type, check_id(key))
    if current is not None and current["meta"]["versionId"] == version:
        return answer_resource(200, current)
    if (earlier := rows.get(f"{HISTORY}/{resource_type}", f"{key}/{version}")) is None:
        raise refuse_fhir(404, "not-found", f"{resource_type}/{key} has no version {show(version, 80)}")
    if "deleted" in earlier:
        raise refuse_fhir(410, "deleted", f"{resource_type}/{key} was deleted in version {version}")
    return answer_resource(200, earlier["resource"])


def answer_history(request: Request, resource_type: str, key: str | None, rows: Draft) -> Response:
    """Answer the history of a resource, or of a whole type, newest first."""
    versions: list[Json] = [row for row in rows.list(f"{HISTORY}/{resource_type}").values() if key in (None, row["id"])]
    current = [row for row in rows.list(resource_type).values() if key in (None, row["id"])]
    spend(len(rows.list(f"{HISTORY}/{resource_type}")) + len(rows.list(resource_type)))
    if key is not None and not versions and not current:
        raise refuse_fhir(404, "not-found", f"there is no {resource_type}/{key}")
    versions += [{"resource": row, "version": int(row["meta"]["versionId"]), "id": row["id"]} for row in current]
    used = [pair for pair in request.query if pair[1] and (pair[0] in OPTIONS or pair[0] in _HISTORY)]
    ignored = [f"history has no parameter {show(pair[0], 80)}" for pair in request.query if pair not in used]
    options = read_options(request, used, ignored)
    parameters = dict(used)
    if "_since" in parameters:
        since = _read_since(parameters["_since"])
        versions = [row for row in versions if _is_since(row, since)]
    versions.sort(key=lambda row: (_find_time(row), row["version"]), reverse=True)
    size = min(read_number("_count", parameters.get("_count", str(MOST_PER_PAGE))), MOST_PER_PAGE)
    page = versions[options.offset : options.offset + size]
    links = [make_link(request, request.path, "self", encode_query(used))]
    if size and options.offset + size < len(versions):
        following = [*(pair for pair in used if pair[0] != "_offset"), ("_offset", str(options.offset + size))]
        links.append(make_link(request, request.path, "next", encode_query(following)))
    entries = [*(_make_entry(request, resource_type, row) for row in page), *make_warning(options)]
    bundle: dict[str, Json] = {"resourceType": "Bundle", "type": "history", "total": len(versions), "link": links}
    if entries:
        bundle["entry"] = entries
    return answer_json(200, bundle, kind=FHIR_JSON)


def _read_since(text: str) -> float:
    if (moment := read_date(text)) is None:
        raise refuse_fhir(400, "value", f"_since: expected an instant such as 2026-11-16T09:30:00Z, found {show(text, 80)}")
    return moment.start


def _is_since(row: Json, since: float) -> bool:
    moment = read_date(_find_time(row))
    return moment is not None and moment.start >= since


def _find_time(row: Json) -> str:
    return row["deleted"] if "deleted" in row else row["resource"]["meta"]["lastUpdated"]


def _make_entry(request: Request, resource_type: str, row: Json) -> dict[str, Json]:
    name = f"{resource_type}/{row['id']}"
    entry: dict[str, Json] = {"fullUrl": f"{request.base}/{name}"}
    if "deleted" in row:
        method, status = "DELETE", "204"
    else:
        entry["resource"] = row["resource"]
        method, status = ("POST", "201") if row["version"] == 1 else ("PUT", "200")
    entry["request"] = {"method": method, "url": resource_type if method == "POST" else name}
    entry["response"] = {"status": status, "etag": f'W/"{row["version"]}"', "lastModified": _find_time(row)}
    return entry
