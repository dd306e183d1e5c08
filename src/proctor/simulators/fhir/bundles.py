"""Batches and transactions: many requests in one bundle.

The entries of a batch are handled one by one, each for itself. Those of a transaction are handled in FHIR's order (delete, create, update
and patch, read), all or nothing. Before that, references inside the bundle are resolved: an entry's `fullUrl` to the id it gets,
and a condition (`Patient?identifier=17`) to the one resource that fits.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import cast

import msgspec

from proctor.codecs.fhir_matching import RESOURCE_TYPES
from proctor.codecs.http import decode_query
from proctor.model.evidence import InnerRequest, Json
from proctor.model.show import kind_of, show
from proctor.simulators.exchange import Refused, Request, Response, answer_json
from proctor.simulators.fhir.resources import (
    FHIR_JSON,
    Resource,
    check_resource,
    check_type,
    describe_refusal,
    put_resource,
    read_body,
    refuse_fhir,
    replace_references,
)
from proctor.simulators.fhir.searching import find_matches
from proctor.simulators.ports import Desk
from proctor.simulators.rows import Draft

Handle = Callable[[Request, Desk], Response]
_ORDER = {"DELETE": 0, "POST": 1, "PUT": 2, "PATCH": 2, "GET": 3, "HEAD": 3}
MOST_ENTRIES, MOST_SEARCHES = 2_000, 200
"""Maximum entries of one bundle, and of entries that may read more than one resource."""


class _Entry(msgspec.Struct):
    """One entry of a bundle being processed."""

    place: str
    request: Request
    full_url: str | None
    resource: Json
    new_id: str | None = None
    """The id of a new resource, assigned early so that others can refer to it."""
    existing: Resource | None = None
    """The resource that a conditional create found: nothing is created then."""
    response: Response | None = None


def answer_bundle(request: Request, desk: Desk, handle: Handle) -> Response:
    """Handle the entries of a batch or a transaction with `handle`, and return a bundle of their responses, in order."""
    bundle = read_body(request)
    kind = bundle.get("type") if isinstance(bundle, dict) and bundle.get("resourceType") == "Bundle" else None
    if kind not in ("batch", "transaction"):
        raise refuse_fhir(400, "invariant", f"expected a Bundle of type batch or transaction, found {show(kind)}")
    listed = bundle.get("entry", [])
    if not isinstance(listed, list) or len(cast("list[Json]", listed)) > MOST_ENTRIES:
        raise refuse_fhir(400, "structure", f"entry: expected a list of at most {MOST_ENTRIES} entries")
    entries = [_read_entry(entry, f"Bundle.entry[{index}]", request) for index, entry in enumerate(cast("list[Json]", listed))]
    searches = sum(item.request.method in ("GET", "HEAD") and _is_search(item.request) for item in entries)
    if searches > MOST_SEARCHES:
        raise refuse_fhir(400, "too-costly", f"{searches} searches in one bundle; at most {MOST_SEARCHES} are allowed")
    if kind == "transaction":
        try:
            _run_transaction(entries, desk, handle)
        except Refused as refused:
            # It was requested, although none of it is stored.
            status = refused.response.status
            inside = tuple(InnerRequest(method=item.request.method, path=item.request.target, status=status) for item in entries)
            raise Refused(msgspec.structs.replace(refused.response, inside=inside)) from None
    else:
        for entry in entries:
            # A branch for each: an entry that is rejected halfway leaves no changes.
            branch = desk.rows.branch()
            entry.response = _handle_entry(entry, Desk(branch, desk.around), handle)
            if entry.response.status < 400:
                desk.rows.absorb(branch)
    answered = [_write_entry(entry) for entry in entries]
    response = answer_json(200, {"resourceType": "Bundle", "type": f"{kind}-response", "entry": answered}, kind=FHIR_JSON)
    return msgspec.structs.replace(response, inside=tuple(_describe_entry(entry) for entry in entries))


def _is_search(request: Request) -> bool:
    return len(request.path.strip("/").split("/")) == 1 or request.path.rstrip("/").endswith("_history")


def _read_entry(value: Json, place: str, outer: Request) -> _Entry:
    inner = value.get("request") if isinstance(value, dict) else None
    method = inner.get("method") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(method, str) or method not in _ORDER or not isinstance(inner.get("url"), str):
        message = f"{place}.request: expected method ({', '.join(_ORDER)}) and url, found {show(inner)}"
        raise refuse_fhir(400, "required", message, expression=f"{place}.request")
    address = inner["url"].removeprefix(outer.base).lstrip("/")
    path, _, query = address.partition("?")
    headers: dict[str, str] = {"prefer": "return=representation", "content-type": "application/fhir+json"}
    for name, header in (("ifMatch", "if-match"), ("ifNoneMatch", "if-none-match"), ("ifNoneExist", "if-none-exist")):
        if isinstance(inner.get(name), str):
            headers[header] = inner[name]
    resource = value.get("resource")
    if method == "PATCH" and isinstance(resource, dict) and resource.get("resourceType") == "Binary":
        headers["content-type"] = str(resource.get("contentType", ""))
    full_url = value.get("fullUrl")
    request = Request(method=method, path=f"/{path}", query=decode_query(query), headers=headers, base=outer.base)
    return _Entry(place, request, full_url if isinstance(full_url, str) else None, resource)


def _run_transaction(entries: list[_Entry], desk: Desk, handle: Handle) -> None:
    branch = desk.rows.branch()
    branch_desk = Desk(branch, desk.around)
    links: dict[str, str] = {}
    try:
        for entry in entries:
            # All ids before resolving references: an entry may refer to a later one.
            _assign_id(entry, branch_desk, links)
        for entry in entries:
            entry.resource = replace_references(entry.resource, _Links(links, _find_root(entry.full_url), entry.place, branch).find)
        _refuse_doubles(entries)
    except Refused as refused:
        raise refuse_fhir(refused.response.status, "processing", describe_refusal(refused)) from None
    for entry in sorted(entries, key=lambda entry: _ORDER[entry.request.method]):
        entry.response = _handle_entry(entry, branch_desk, handle)
        if entry.response.status >= 400:
            message = describe_refusal(Refused(entry.response))
            raise refuse_fhir(entry.response.status, "processing", f"{entry.place}: {message}; the transaction was rolled back")
    desk.rows.absorb(branch)


def _assign_id(entry: _Entry, desk: Desk, links: dict[str, str]) -> None:
    """Note the target of references to an entry."""
    resource_type = entry.request.path.strip("/").split("/")[0]
    if entry.request.method == "POST":
        check_type(resource_type)
        condition = entry.request.headers.get("if-none-exist")
        matches = find_matches(resource_type, decode_query(condition.partition("?")[2] or condition), desk.rows) if condition else []
        if len(matches) > 1:
            raise refuse_fhir(412, "multiple-matches", f"{entry.place}: {len(matches)} resources fit {show(condition, 200)}")
        entry.existing = matches[0] if matches else None
        entry.new_id = matches[0]["id"] if matches else desk.around.new_id()
        name = f"{resource_type}/{entry.new_id}"
    elif entry.request.method == "PUT" and entry.request.query:
        matches = find_matches(check_type(resource_type), entry.request.query, desk.rows)
        # Handling the update rejects it with 412, like any conditional update.
        if len(matches) > 1:
            return
        name = f"{resource_type}/{matches[0]['id'] if matches else _name_new(entry, desk)}"
    else:
        name = entry.request.path.strip("/")
    if entry.full_url is not None and entry.request.method not in ("GET", "HEAD"):
        if links.get(entry.full_url, name) != name:
            raise refuse_fhir(400, "invariant", f"{entry.place}.fullUrl: duplicate fullUrl {show(entry.full_url, 200)} in the transaction")
        links[entry.full_url] = name


def _name_new(entry: _Entry, desk: Desk) -> str:
    """Return the id of the resource that a conditional update creates without a match: its own, or a new one."""
    resource = entry.resource
    if not isinstance(resource, dict):
        return ""
    if not isinstance(resource.get("id"), str):
        entry.resource = {**resource, "id": desk.around.new_id()}
    return entry.resource["id"]


class _Links(msgspec.Struct, frozen=True):
    """The targets of references in an entry of a transaction."""

    names: dict[str, str]
    """The entries by their `fullUrl`."""
    root: str
    """The prefix of relative references of this entry."""
    place: str
    rows: Draft

    def find(self, reference: str) -> str | None:
        """Return the resource for a reference to an entry, or for a condition; None for any other reference."""
        if "?" in reference and "://" not in reference:
            resource_type, _, query = reference.partition("?")
            matches = find_matches(check_type(resource_type), decode_query(query), self.rows)
            if len(matches) != 1:
                raise refuse_fhir(412, "multiple-matches", f"{len(matches)} resources fit the reference {show(reference, 200)}")
            return f"{resource_type}/{matches[0]['id']}"
        target = self.names.get(reference) or (self.names.get(f"{self.root}{reference}") if self.root else None)
        if target is None and reference.startswith(("urn:uuid:", "urn:oid:")):
            message = f"{self.place}: the reference {show(reference, 200)} is the fullUrl of no entry that is written"
            raise refuse_fhir(400, "not-found", message)
        return target


def _find_root(full_url: str | None) -> str:
    """Return the part before `Patient/17` in the address of an entry."""
    parts = full_url.rsplit("/", 2) if full_url is not None and "://" in full_url else []
    return f"{parts[0]}/" if len(parts) == 3 and parts[1] in RESOURCE_TYPES else ""


def _refuse_doubles(entries: list[_Entry]) -> None:
    addresses: set[str] = set()
    for entry in entries:
        if entry.request.method in ("PUT", "PATCH", "DELETE"):
            if entry.request.target in addresses:
                raise refuse_fhir(400, "invariant", f"{entry.place}: a transaction writes {entry.request.target} twice")
            addresses.add(entry.request.target)


def _handle_entry(entry: _Entry, desk: Desk, handle: Handle) -> Response:
    request = entry.request
    try:
        if entry.existing is not None:
            return answer_json(200, entry.existing, headers={"etag": f'W/"{entry.existing["meta"]["versionId"]}"'}, kind=FHIR_JSON)
        if entry.new_id is not None:
            resource_type = request.path.strip("/")
            stored = put_resource(check_resource(entry.resource, check_type(resource_type)), entry.new_id, desk)
            version = stored["meta"]["versionId"]
            location = f"{request.base}/{resource_type}/{entry.new_id}/_history/{version}"
            return answer_json(201, stored, headers={"location": location, "etag": f'W/"{version}"'}, kind=FHIR_JSON)
        if request.method in ("PUT", "POST", "PATCH"):
            request = msgspec.structs.replace(request, body=_find_body(entry))
        return handle(request, desk)
    except Refused as refused:
        return refused.response


def _find_body(entry: _Entry) -> bytes:
    resource = entry.resource
    if resource is None:
        raise refuse_fhir(400, "required", f"{entry.place} needs a resource, found {kind_of(resource)}")
    if entry.request.method == "PATCH" and isinstance(resource, dict) and resource.get("resourceType") == "Binary":
        try:
            return base64.b64decode(str(resource.get("data", "")), validate=True)
        except ValueError:
            raise refuse_fhir(400, "value", f"{entry.place}: the data of the patch is not base64") from None
    return msgspec.json.encode(resource)


def _describe_entry(entry: _Entry) -> InnerRequest:
    """Return an entry as a request, so that it is counted like any other."""
    assert entry.response is not None, "every entry was handled"
    return InnerRequest(method=entry.request.method, path=entry.request.target, status=entry.response.status)


def _write_entry(entry: _Entry) -> dict[str, Json]:
    response = entry.response
    assert response is not None, "every entry was handled"
    result: dict[str, Json] = {"status": str(response.status)}
    for name in ("location", "etag"):
        if name in response.headers:
            result[name] = response.headers[name]
    written: dict[str, Json] = {"response": result}
    if response.body:
        # Unchanged: decoding and encoding a large answer would take many times its size.
        body = msgspec.Raw(response.body)
        if response.status >= 400:
            result["outcome"] = body
        else:
            written["resource"] = body
    return written
