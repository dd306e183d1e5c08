"""Search on a FHIR server: the very search that `fhir_resource` makes, answered as a bundle in pages.

Parameters about the answer (`_format`, `_elements`, `_summary`, `_total`) are read here; `_offset` is how our own `next` links go on. A
parameter that begins with an underscore and is not known is passed over, or refused where the client says `Prefer: handling=strict`; any
other unknown parameter is always refused, as it would find too much.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from proctor.codecs.fhir import Search, compile_search
from proctor.codecs.fhir_elements import Found
from proctor.codecs.fhir_parameters import list_parameters
from proctor.codecs.query import encode_query
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response, answer_json
from proctor.simulators.fhir.outcomes import FHIR_JSON, refuse_fhir
from proctor.simulators.fhir.resources import Resource
from proctor.simulators.fhir.shelves import Shelves
from proctor.simulators.rows import Draft

PAGE = 50
"""Matches on one page, where the client does not say how many."""
MOST_PER_PAGE = 1_000
_ANSWER = ("_format", "_pretty", "_total", "_summary", "_elements", "_offset")
_SEARCHED = ("_count", "_sort", "_include", "_revinclude")
Pairs = Sequence[tuple[str, str]]


def answer_search(request: Request, resource_type: str, pairs: Pairs, rows: Draft) -> Response:
    """Answer a search with a page of its matches and what they bring along."""
    strict = "handling=strict" in request.headers.get("prefer", "")
    used = [(name, value) for name, value in pairs if value and not _is_passed_over(name, resource_type, strict)]
    given = dict(used)
    search = compile_pairs(resource_type, [(name, value) for name, value in used if name not in _ANSWER])
    shelves = Shelves(rows)
    with _refuse_costly_search():
        matches = search.list_matches(shelves)
    counted = given.get("_summary") == "count"
    size = 0 if counted else min(PAGE if search.most is None else search.most, MOST_PER_PAGE)
    offset = _read_offset(given.get("_offset", "0"))
    page = matches[offset : offset + size]
    elements = [name for name in given.get("_elements", "").split(",") if name]
    entries = [_make_entry(request, found, "match", elements) for found in page]
    with _refuse_costly_search():
        entries += [_make_entry(request, found, "include", []) for found in search.find_included(page, shelves)]
    kept = [(name, value) for name, value in used if name != "_offset"]
    links = [{"relation": "self", "url": _make_link(request, resource_type, used)}]
    if size and offset + size < len(matches):
        links.append({"relation": "next", "url": _make_link(request, resource_type, [*kept, ("_offset", str(offset + size))])})
    if size and offset:
        links.append({"relation": "previous", "url": _make_link(request, resource_type, [*kept, ("_offset", str(max(0, offset - size)))])})
    bundle: dict[str, Json] = {"resourceType": "Bundle", "type": "searchset", "total": len(matches), "link": links}
    if entries:
        bundle["entry"] = entries
    return answer_json(200, bundle, kind=FHIR_JSON)


def compile_pairs(resource_type: str, pairs: Pairs) -> Search:
    """Compile a search. Raises `Refused` with 400 for what is not understood or not supported."""
    try:
        return compile_search(resource_type, pairs)
    except CheckFault as fault:
        raise refuse_fhir(400, "not-supported", fault.message) from None
    except SpecError as error:
        raise refuse_fhir(400, "value", error.message) from None


def find_matches(resource_type: str, pairs: Pairs, rows: Draft) -> list[Resource]:
    """Return what a condition (`If-None-Exist`, a conditional update) finds."""
    if not pairs:
        raise refuse_fhir(412, "required", "a condition needs at least one search parameter")
    search = compile_pairs(resource_type, pairs)
    with _refuse_costly_search():
        return [found.resource for found in search.list_matches(Shelves(rows))]


@contextlib.contextmanager
def _refuse_costly_search() -> Generator[None]:
    """Refuse with 400 what a search may not look through: one resource can hold more values than anybody meant."""
    try:
        yield
    except CheckFault as fault:
        raise refuse_fhir(400, "too-costly", fault.message) from None


def _is_passed_over(name: str, resource_type: str, strict: bool) -> bool:
    known = name in _ANSWER or name in _SEARCHED or name.partition(":")[0].partition(".")[0] in list_parameters(resource_type)
    if known or not name.startswith("_"):
        return False
    if strict:
        raise refuse_fhir(400, "not-supported", f"unknown search parameter {show(name, 80)}")
    return True


def _read_offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise refuse_fhir(400, "value", f"_offset: expected a whole number, found {show(text, 80)}")
    return int(text)


def _make_link(request: Request, resource_type: str, pairs: Pairs) -> str:
    query = encode_query(pairs)
    return f"{request.base}/{resource_type}?{query}" if query else f"{request.base}/{resource_type}"


def _make_entry(request: Request, found: Found, mode: str, elements: list[str]) -> dict[str, Json]:
    resource: Resource = found.resource
    if elements:
        kept = ("resourceType", "id", "meta", *elements)
        tag = {"system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue", "code": "SUBSETTED"}
        resource = {name: value for name, value in resource.items() if name in kept}
        resource["meta"] = {**resource.get("meta", {}), "tag": [*resource.get("meta", {}).get("tag", []), tag]}
    return {"fullUrl": f"{request.base}/{found.name}", "resource": resource, "search": {"mode": mode}}
