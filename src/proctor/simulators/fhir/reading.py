"""Reading from a FHIR server: one resource, one version of it, and its history."""

from __future__ import annotations

from proctor.codecs.fhir_dates import read_date
from proctor.codecs.query import encode_query
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response, answer_json
from proctor.simulators.fhir.answer_options import (
    MOST_PER_PAGE,
    OPTIONS,
    make_link,
    make_warning,
    read_number,
    read_options,
    shape_resource,
)
from proctor.simulators.fhir.outcomes import FHIR_JSON, answer_resource, refuse_fhir
from proctor.simulators.fhir.resources import DELETED, HISTORY, Resource, check_id
from proctor.simulators.rows import Draft
from proctor.work import spend

_HISTORY = ("_count", "_since")


def read_resource(resource_type: str, key: str, rows: Draft) -> Resource:
    """Return the current version. Raises `Refused`: 404 where there never was one, 410 where it was deleted."""
    found: Json = rows.get(resource_type, check_id(key))
    if found is None:
        if rows.get(f"{DELETED}/{resource_type}", key) is not None:
            raise refuse_fhir(410, "deleted", f"{resource_type}/{key} was deleted")
        raise refuse_fhir(404, "not-found", f"there is no {resource_type}/{key}")
    return found


def answer_read(request: Request, resource_type: str, key: str, rows: Draft) -> Response:
    """Answer a read; 304 where the client has this version already."""
    found = read_resource(resource_type, key, rows)
    known = request.headers.get("if-none-match")
    if known is not None and names_version(known, found["meta"]["versionId"]):
        return Response(status=304)
    ignored = [f"a read has no parameter {show(name, 80)}" for name, _ in request.query if name not in OPTIONS]
    return answer_resource(200, shape_resource(found, read_options(request, request.query, ignored)))


def names_version(header: str, version: str) -> bool:
    """Return whether `If-Match` or `If-None-Match` names a version: by its tag, as one of several, or as any."""
    tags = [tag.strip() for tag in header.split(",")]
    return "*" in tags or version in (tag.removeprefix("W/").strip('"') for tag in tags)


def answer_version(resource_type: str, key: str, version: str, rows: Draft) -> Response:
    """Answer the read of one version."""
    current: Json = rows.get(resource_type, check_id(key))
    if current is not None and current["meta"]["versionId"] == version:
        return answer_resource(200, current)
    versions = rows.get(f"{HISTORY}/{resource_type}", f"{key}/{version}")
    if versions is None:
        raise refuse_fhir(404, "not-found", f"{resource_type}/{key} has no version {show(version, 80)}")
    if "deleted" in versions:
        raise refuse_fhir(410, "deleted", f"{resource_type}/{key} was deleted in version {version}")
    return answer_resource(200, versions["resource"])


def answer_history(request: Request, resource_type: str, key: str | None, rows: Draft) -> Response:
    """Answer the history of a resource, or of all of a type, the newest first."""
    versions: list[Json] = [row for row in rows.list(f"{HISTORY}/{resource_type}").values() if key in (None, row["id"])]
    current = [row for row in rows.list(resource_type).values() if key in (None, row["id"])]
    spend(len(rows.list(f"{HISTORY}/{resource_type}")) + len(rows.list(resource_type)))
    if key is not None and not versions and not current:
        raise refuse_fhir(404, "not-found", f"there is no {resource_type}/{key}")
    versions += [{"resource": row, "version": int(row["meta"]["versionId"]), "id": row["id"]} for row in current]
    used = [pair for pair in request.query if pair[1] and (pair[0] in OPTIONS or pair[0] in _HISTORY)]
    options = read_options(request, used, [f"history has no parameter {show(pair[0], 80)}" for pair in request.query if pair not in used])
    given = dict(used)
    since = _read_since(given["_since"]) if "_since" in given else None
    versions = [row for row in versions if since is None or _is_since(row, since)]
    versions.sort(key=lambda row: (_find_time(row), row["version"]), reverse=True)
    size = min(read_number("_count", given["_count"]) if "_count" in given else MOST_PER_PAGE, MOST_PER_PAGE)
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
    found = read_date(text)
    if found is None:
        raise refuse_fhir(400, "value", f"_since: expected an instant such as 2026-11-16T09:30:00Z, found {show(text, 80)}")
    return found.start


def _is_since(row: Json, since: float) -> bool:
    found = read_date(_find_time(row))
    return found is not None and found.start >= since


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
