"""Client options for the answer: its format, its page, and how much of each resource.

    _format, Accept     JSON is written, and nothing else: who takes no JSON is refused with 406
    _elements           these members of each resource and its id
    _summary            `data` leaves out the text, `text` all but it, `count` the resources; `true` is not simulated
    _offset             where a page begins: how our own `next` links go on

Ignored options are listed in the answer, and refused with `Prefer: handling=strict`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import read_digits
from proctor.model.show import show
from proctor.simulators.exchange import Request
from proctor.simulators.fhir.resources import Resource, refuse_fhir

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
    given = dict(pairs)
    notes = list(passed_over)
    summary = _choose("_summary", given.get("_summary", "false"), _SUMMARIES)
    _choose("_total", given.get("_total", "accurate"), _TOTALS)
    if summary == "true":
        notes.append("_summary=true: whole resources are answered; _elements chooses members")
    if notes and "handling=strict" in request.headers.get("prefer", "").lower().replace(" ", ""):
        raise refuse_fhir(400, "not-supported", "; ".join(notes))
    elements = frozenset(name.strip() for name in given.get("_elements", "").split(",") if name.strip())
    return AnswerOptions(
        offset=read_number("_offset", given.get("_offset", "0")), summary=summary, elements=elements, passed_over=tuple(notes)
    )


def _choose(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise refuse_fhir(400, "value", f"{name}: expected one of {', '.join(known)}, found {show(value, 80)}")
    return value


def read_number(name: str, text: str) -> int:
    """Return the integer of a parameter. Raises `Refused` with 400 for anything else."""
    number = read_digits(text, 9)
    if number is None:
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
