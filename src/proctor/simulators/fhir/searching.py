"""Search on a FHIR server, answered as a bundle in pages; and the options of clients for any answer.

    _format, Accept     only JSON is written: a client that does not accept JSON gets 406
    _elements           these members of each resource and its id
    _summary            `data` omits the text, `text` everything else, `count` the resources; `true` is not simulated
    _offset             the start of a page, used by our own `next` links

The search is that of `fhir_resource`. A parameter without a value is ignored, and so is an unknown one that begins with an underscore; the
answer lists ignored parameters, and `Prefer: handling=strict` rejects them. Any other unknown parameter is always rejected, since ignoring
it would find too much, and so are FHIR parameters that are not simulated (`_has`, `_filter` and others).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence

import msgspec

from proctor.codecs.fhir import Clue, IndexedStore, ResourceIndex, Search, compile_search
from proctor.codecs.fhir_matching import PlacedResource
from proctor.codecs.fhir_parameters import list_parameters
from proctor.codecs.http import encode_query
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import read_digits
from proctor.model.show import show, suggest
from proctor.simulators.exchange import Request, Response, answer_json
from proctor.simulators.fhir.resources import FHIR_JSON, Resource, refuse_fhir
from proctor.simulators.rows import HIDDEN, Draft
from proctor.work import spend

OPTIONS = ("_format", "_pretty", "_total", "_summary", "_elements", "_offset")
MOST_PER_PAGE = 1_000
_JSON = ("json", "application/json", "application/fhir+json", "text/json", "application/*", "text/*", "*/*")
_TOTALS = ("none", "estimate", "accurate")
_SUMMARIES = ("true", "text", "data", "count", "false")
_TEXT = ("text", "implicitRules", "language")
Pairs = Sequence[tuple[str, str]]


class AnswerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a client for an answer."""

    offset: int = 0
    summary: str = "false"
    elements: frozenset[str] = frozenset()
    passed_over: tuple[str, ...] = ()
    """Ignored options, as messages."""


def check_format(request: Request) -> None:
    """Reject a client that accepts no JSON with 406; `_format` wins over `Accept`."""
    stated = next((value for name, value in request.query if name == "_format" and value), None)
    formats = [stated] if stated is not None else request.headers.get("accept", "").split(",")
    # An unencoded plus is a space.
    words = [word.partition(";")[0].strip().lower().replace(" ", "+") for word in formats]
    if any(words) and not any(word in _JSON for word in words):
        raise refuse_fhir(
            406, "not-supported", f"this server writes JSON only (application/fhir+json), found {show(', '.join(words), 200)}"
        )


def read_options(request: Request, pairs: Pairs, passed_over: Sequence[str] = ()) -> AnswerOptions:
    """Return the options in the parameters. Raises `Refused` with 400 for an invalid value."""
    parameters = dict(pairs)
    notes = list(passed_over)
    summary = _choose("_summary", parameters.get("_summary", "false"), _SUMMARIES)
    _choose("_total", parameters.get("_total", "accurate"), _TOTALS)
    if summary == "true":
        notes.append("_summary=true: whole resources are answered; _elements chooses members")
    if notes and "handling=strict" in request.headers.get("prefer", "").lower().replace(" ", ""):
        raise refuse_fhir(400, "not-supported", "; ".join(notes))
    elements = frozenset(name.strip() for name in parameters.get("_elements", "").split(",") if name.strip())
    return AnswerOptions(
        offset=read_number("_offset", parameters.get("_offset", "0")), summary=summary, elements=elements, passed_over=tuple(notes)
    )


def _choose(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise refuse_fhir(400, "value", f"{name}: expected one of {', '.join(known)}, found {show(value, 80)}")
    return value


def read_number(name: str, text: str) -> int:
    """Return the integer of a parameter. Raises `Refused` with 400 for anything else."""
    if (number := read_digits(text, 9)) is None:
        raise refuse_fhir(400, "value", f"{name}: expected a whole number, found {show(text, 80)}")
    return number


def shape_resource(resource: Resource, options: AnswerOptions) -> Resource:
    """Return the requested part of a resource, marked as incomplete if it is."""
    if options.elements:
        members = {name: value for name, value in resource.items() if name in options.elements}
    elif options.summary == "text":
        members = {name: value for name, value in resource.items() if name in _TEXT}
    elif options.summary == "data":
        members = {name: value for name, value in resource.items() if name != "text"}
    else:
        return resource
    tag = {"system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue", "code": "SUBSETTED"}
    meta: dict[str, Json] = resource.get("meta", {})
    shaped = {"resourceType": resource["resourceType"], "id": resource.get("id"), **members}
    return {**shaped, "meta": {**meta, "tag": [*meta.get("tag", []), tag]}}


def make_warning(options: AnswerOptions) -> list[Resource]:
    """Return the bundle entry that lists ignored options; none if there are none."""
    if not options.passed_over:
        return []
    issues = [{"severity": "warning", "code": "not-supported", "diagnostics": notes} for notes in options.passed_over]
    return [{"resource": {"resourceType": "OperationOutcome", "issue": issues}, "search": {"mode": "outcome"}}]


def make_link(request: Request, path: str, relation: str, query: str) -> dict[str, str]:
    """Return a link of a bundle, absolute."""
    return {"relation": relation, "url": f"{request.base}{path}?{query}" if query else f"{request.base}{path}"}


# --- the resources of a FHIR server for a search: by type, and in a large type only the candidates

_FEW = 32
"""Resources of a type up to which a full scan is as fast as an index."""


class Shelves(IndexedStore):
    """The current resources of a server."""

    def __init__(self, rows: Draft, steps: int = 1) -> None:
        self._rows = rows
        self._steps = steps
        """Steps of work per examined resource."""

    def pick(self, resource_type: str, clues: Sequence[Clue]) -> Iterator[PlacedResource]:
        """Yield all candidates among the resources of a type, in stored order."""
        resources = self._rows.list(resource_type)
        if clues and len(resources) > _FEW:
            index = self._rows.find_index(resource_type, ResourceIndex)
            if isinstance(index, ResourceIndex):
                keys = index.list_keys(clues)
                spend(self._steps * len(keys))
                return (PlacedResource("", resources[key]) for key in keys)
        spend(self._steps * len(resources))
        return (PlacedResource("", resource) for resource in resources.values())

    def get(self, resource_type: str, key: str) -> PlacedResource | None:
        """Return the resource with this id."""
        # A leading underscore marks internal collections, even if a reference uses it as a type.
        resource = None if resource_type.startswith(HIDDEN) else self._rows.get(resource_type, key)
        return None if resource is None else PlacedResource("", resource)


PAGE = 50
"""Default number of matches per page."""
MOST_PAIRS, MOST_VALUES, MOST_SORT_KEYS = 100, 1_000, 20
"""Maximum parts of one search; values are those between commas, over all parameters."""
_STEPS = 4
"""Steps of work per parameter and resource."""
_NOT_SIMULATED = ("_has", "_filter", "_text", "_content", "_list", "_query", "_type", "_contained", "_containedType")
_SEARCHED = ("_count", "_sort", "_include", "_revinclude")


def answer_search(request: Request, resource_type: str, pairs: Pairs, rows: Draft) -> Response:
    """Answer a search with a page of matches and their included resources."""
    _check_size(pairs)
    notes = {pair: _find_passed_over(pair, resource_type) for pair in pairs}
    used = [pair for pair in pairs if notes[pair] is None]
    options = read_options(request, used, [words for words in notes.values() if words is not None])
    search = compile_pairs(resource_type, [(name, value) for name, value in used if name not in OPTIONS])
    shelves = Shelves(rows, _STEPS * (1 + len(pairs)))
    with _refuse_costly_search():
        matches = search.list_matches(shelves)
    size = 0 if options.summary == "count" else min(PAGE if search.most is None else search.most, MOST_PER_PAGE)
    page = matches[options.offset : options.offset + size]
    entries = [_make_entry(request, match, "match", options) for match in page]
    with _refuse_costly_search():
        entries += [_make_entry(request, match, "include", AnswerOptions()) for match in search.find_included(page, shelves)]
    links = _make_links(request, resource_type, used, (options.offset, size, len(matches)))
    bundle: dict[str, Json] = {"resourceType": "Bundle", "type": "searchset", "total": len(matches), "link": links}
    entries += make_warning(options)
    if entries:
        bundle["entry"] = entries
    return answer_json(200, bundle, kind=FHIR_JSON)


def _make_links(request: Request, resource_type: str, used: Pairs, place: tuple[int, int, int]) -> list[dict[str, str]]:
    """Return the links of a page: to itself, and to the previous and next page."""
    offset, size, total = place
    repeated = [(name, value) for name, value in used if name != "_offset"]
    starts = {"next": offset + size if offset + size < total else None, "previous": max(0, offset - size) if offset else None}
    links = [make_link(request, f"/{resource_type}", "self", encode_query(used))]
    for relation, start in starts.items() if size else ():
        if start is not None:
            links.append(make_link(request, f"/{resource_type}", relation, encode_query([*repeated, ("_offset", str(start))])))
    return links


def compile_pairs(resource_type: str, pairs: Pairs) -> Search:
    """Compile a search. Raises `Refused` with 400 for an invalid or unsupported one."""
    _check_size(pairs)
    try:
        return compile_search(resource_type, pairs)
    except CheckFault as fault:
        raise refuse_fhir(400, "not-supported", fault.message) from None
    except SpecError as error:
        name = (error.field or "").removeprefix("search.")
        notes = error.message if not name or error.message.startswith(name) else f"{name}: {error.message}"
        raise refuse_fhir(400, "value", f"{notes}; {error.hint}" if error.hint else notes) from None


def find_matches(resource_type: str, pairs: Pairs, rows: Draft) -> list[Resource]:
    """Return the matches of a condition (`If-None-Exist`, a conditional update)."""
    if not pairs:
        raise refuse_fhir(412, "required", "a condition needs at least one search parameter")
    search = compile_pairs(resource_type, pairs)
    with _refuse_costly_search():
        return [match.resource for match in search.list_matches(Shelves(rows, _STEPS * (1 + len(pairs))))]


def _check_size(pairs: Pairs) -> None:
    """Reject with 400 a search with too many parts."""
    values = sum(value.count(",") + 1 for _, value in pairs)
    keys = sum(value.count(",") + 1 for name, value in pairs if name == "_sort")
    for what, count, most in (("parameters", len(pairs), MOST_PAIRS), ("values", values, MOST_VALUES), ("sort keys", keys, MOST_SORT_KEYS)):
        if count > most:
            raise refuse_fhir(400, "too-costly", f"{count} {what} in one search; at most {most} are allowed")
    # Parsing a search costs more than examining a resource, and a transaction may contain thousands of them.
    spend(20 * (1 + values))


@contextlib.contextmanager
def _refuse_costly_search() -> Generator[None]:
    """Reject with 400 a search that examines too much: one resource can have a huge number of values."""
    try:
        yield
    except CheckFault as fault:
        raise refuse_fhir(400, "too-costly", fault.message) from None


def _find_passed_over(pair: tuple[str, str], resource_type: str) -> str | None:
    """Return why a parameter is ignored, or None. Raises `Refused` for an unknown one."""
    name, value = pair
    known = list_parameters(resource_type)
    head = name.partition(":")[0].partition(".")[0]
    if name in OPTIONS or name in _SEARCHED or head in known:
        return None if value else f"{show(name, 80)} has no value and is ignored"
    if name.startswith("_") and head not in _NOT_SIMULATED:
        return f"unknown search parameter {show(name, 80)} is ignored"
    suggestion = suggest(head, known)
    raise refuse_fhir(400, "not-supported", f"search parameter {show(name, 80)} of {resource_type} is not supported{suggestion}")


def _make_entry(request: Request, match: PlacedResource, mode: str, options: AnswerOptions) -> dict[str, Json]:
    return {"fullUrl": f"{request.base}/{match.name}", "resource": shape_resource(match.resource, options), "search": {"mode": mode}}
