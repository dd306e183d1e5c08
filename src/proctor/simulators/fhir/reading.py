"""Reading from a FHIR server: one resource, one version of it, and its history."""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response, answer_json
from proctor.simulators.fhir.outcomes import FHIR_JSON, answer_resource, refuse_fhir
from proctor.simulators.fhir.resources import DELETED, HISTORY, Resource, check_id
from proctor.simulators.rows import Draft


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
    if request.headers.get("if-none-match") == f'W/"{found["meta"]["versionId"]}"':
        return Response(status=304)
    return answer_resource(200, found)


def answer_version(resource_type: str, key: str, version: str, rows: Draft) -> Response:
    """Answer the read of one version."""
    current: Json = rows.get(resource_type, check_id(key))
    if current is not None and current["meta"]["versionId"] == version:
        return answer_resource(200, current)
    kept = rows.get(f"{HISTORY}/{resource_type}", f"{key}/{version}")
    if kept is None:
        raise refuse_fhir(404, "not-found", f"{resource_type}/{key} has no version {show(version, 80)}")
    if "deleted" in kept:
        raise refuse_fhir(410, "deleted", f"{resource_type}/{key} was deleted in version {version}")
    return answer_resource(200, kept["resource"])


def answer_history(request: Request, resource_type: str, key: str | None, rows: Draft) -> Response:
    """Answer the history of a resource, or of all of a type, the newest first."""
    kept: list[Json] = [row for row in rows.list(f"{HISTORY}/{resource_type}").values() if key in (None, row["id"])]
    current = [row for row in rows.list(resource_type).values() if key in (None, row["id"])]
    if key is not None and not kept and not current:
        raise refuse_fhir(404, "not-found", f"there is no {resource_type}/{key}")
    kept += [{"resource": row, "version": int(row["meta"]["versionId"]), "id": row["id"]} for row in current]
    kept.sort(key=lambda row: (_find_time(row), row["version"]), reverse=True)
    entries = [_make_entry(request, resource_type, row) for row in kept]
    return answer_json(
        200,
        {
            "resourceType": "Bundle",
            "type": "history",
            "total": len(entries),
            "link": [{"relation": "self", "url": f"{request.base}{request.target}"}],
            "entry": entries,
        },
        kind=FHIR_JSON,
    )


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
