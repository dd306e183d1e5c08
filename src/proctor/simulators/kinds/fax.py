"""A fax line: documents out and in, with their pages and their text.

    POST /faxes                send: `{"to_number", "patient_id", "document_type"}` with `text`, `document` (base64) or `content_reference`
    POST /faxes?to_number=...  send: the PDF or TIFF as the body, the rest in the query
    GET  /faxes                all faxes; `direction`, `patient_id` and `document_type` choose
    GET  /faxes/ID             one: status, pages and text
    GET  /faxes/ID/document    its document

A `content_reference` is the id of another fax, which is passed on, or a `data:` address. Text becomes a PDF.
`simulators/fax/documents.py` reads documents. A scenario lets a fax arrive: `fax_arrives: {from, text, document_type,
patient_id}`, or with `document`. The state are all faxes, sent and received.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from proctor.codecs.query import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import FaxState, Json, State
from proctor.model.show import show
from proctor.simulators.bodies import read_object, refusal_message, require_method, split_path, take_text
from proctor.simulators.exchange import Refused, Request, Response, answer_json, refuse
from proctor.simulators.fax.documents import MOST_BYTES, MOST_TEXT, PDF, Document, count_sheets, read_document, write_pdf
from proctor.simulators.messages.people import is_address, read_number
from proctor.simulators.ports import Desk, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import read_items, read_members, read_word
from proctor.simulators.tools import make_query

_CONFIG, _DOCUMENTS = "_config", "_documents"
_FAXES = "faxes"
_ARRIVING = ("from", "text", "document", "document_type", "patient_id")
_UNREAD = "unread"
"""Which part of the text could not be read; claims that forbid words do not hold then (`checks/systems/_entries.py`)."""
_DESCRIBED = ("patient_id", "document_type")
_NUMBER = "+15550200"
"""The agent's own, where the seed names none."""


class FaxSimulator:
    """A fax line."""

    kind = "fax"
    summary = "A fax line: PDF and TIFF out and in, with pages and text layer."
    steps = ("fax_arrives",)
    open_paths = ()
    config_names = ("number", "inbox")
    access = {"fax_url": "{url}/faxes", "fax_number": "{number}"}  # noqa: RUF012 - never changed
    access_defaults = {"number": _NUMBER}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `number`, that of the agent, and `inbox`: faxes that have arrived."""
        given = read_members(seed, self.config_names)
        if given.get("number") is not None:
            desk.rows.put(_CONFIG, "number", read_number(given["number"], "number", "fax", _NUMBER))
        for at, item in read_items(given.get("inbox"), "inbox"):
            self._arrive(item, at, desk)

    def perform(self, step: str, given: Json, desk: Desk) -> None:
        """Let a fax arrive."""
        self._arrive(given, "", desk)

    def _arrive(self, value: Json, at: str, desk: Desk) -> None:
        given = read_members(value, _ARRIVING, at)
        place = f"{at}." if at else ""
        try:
            data, known = _read_content(given, desk.rows)
        except Refused as refused:
            raise SpecError(refusal_message(refused), field=at or None) from None
        described = {name: read_word(given.get(name), f"{place}{name}", default="") for name in _DESCRIBED}
        sender = read_number(given.get("from"), f"{place}from", "fax", "+15550299")
        _keep(data, known, {"direction": "inbound", "to": _find_own(desk.rows), "from": sender, "status": "received", **described}, desk)

    def handle(self, request: Request, desk: Desk) -> Response:
        """Answer a request."""
        try:
            parts = split_path(request)
            names = parts[1:] if parts[:1] == [_FAXES] else parts
            if len(names) > 2 or (len(names) == 2 and names[1] != "document"):
                raise refuse(404, "not_found", "faxes are at /faxes, /faxes/ID and /faxes/ID/document")
            require_method(request, "GET", "HEAD", *(() if names else ("POST",)))
            if names:
                return self._get(names, desk.rows)
            if request.method == "POST":
                return self._send(request, desk)
            filters = [(name, value) for name, value in request.query if name in ("direction", *_DESCRIBED)]
            rows = [row for row in desk.rows.list(_FAXES).values() if all(row[name] == value for name, value in filters)]
            return answer_json(200, {_FAXES: rows, "total": len(rows)})
        except Refused as refused:
            return refused.response

    def _get(self, names: list[str], rows: Draft) -> Response:
        row = rows.get(_FAXES, names[0])
        if row is None:
            raise refuse(404, "not_found", f"there is no fax {show(names[0])}")
        if len(names) == 1:
            return answer_json(200, row)
        data = base64.b64decode(rows.get(_DOCUMENTS, names[0]))
        return Response(status=200, body=data, headers={"content-type": row["content_type"]})

    def _send(self, request: Request, desk: Desk) -> Response:
        if len(request.body) > 2 * MOST_BYTES:
            raise refuse(413, "too_large", f"a document has at most {MOST_BYTES} bytes")
        raw = read_document(request.body)
        given: dict[str, Json] = dict(request.query) if raw is not None else read_object(request)
        to = take_text(given, "to_number", default="") or take_text(given, "to", default="")
        if not is_address("sms", to):
            raise refuse(422, "wrong_value", f"to_number: expected a fax number, found {show(to)}")
        described = {name: take_text(given, name, default="") for name in _DESCRIBED}
        data, known = (request.body, raw) if raw is not None else _read_content(given, desk.rows)
        if len(data) > MOST_BYTES:
            raise refuse(413, "too_large", f"a document has at most {MOST_BYTES} bytes")
        row = _keep(
            data, known, {"direction": "outbound", "to": to, "from": _find_own(desk.rows), "status": "delivered", **described}, desk
        )
        return answer_json(201, row, headers={"location": f"{request.base}/faxes/{encode_percent(row['id'])}"})

    def read_state(self, desk: Desk) -> State:
        """Return all faxes, sent and received, without the number of pages if it is unknown."""
        documents = [{name: value for name, value in row.items() if value is not None} for row in desk.rows.list(_FAXES).values()]
        return State(fax=FaxState(documents=tuple(documents)))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return what a model can do with the fax line."""
        words: dict[str, Json] = {"type": "string"}
        reference: dict[str, Json] = {"type": "string", "description": "The id of a fax that is passed on."}
        sent: dict[str, Json] = {"to_number": words, "text": words, "content_reference": reference, **dict.fromkeys(_DESCRIBED, words)}
        return (
            Tool(
                name="fax_send",
                description="Send a fax: a text, or a fax that has arrived.",
                schema={"type": "object", "properties": sent, "required": ["to_number"]},
                make_request=lambda given: Request(method="POST", path="/faxes", body=msgspec.json.encode(given)),
            ),
            Tool(
                name="fax_list",
                description="List faxes that were sent and received, with their text.",
                schema={"type": "object", "properties": {"direction": {"enum": ["inbound", "outbound"]}}},
                make_request=lambda given: Request(method="GET", path="/faxes", query=make_query(given)),
            ),
        )


def _read_content(given: dict[str, Json], rows: Draft) -> tuple[bytes, Document]:
    """Return the document of a fax, and what is known of it."""
    named = [name for name in ("text", "document", "content_reference") if given.get(name)]
    if len(named) != 1:
        raise refuse(422, "wrong_value", "expected one of text, document and content_reference")
    content = take_text(given, named[0])
    if named[0] == "text":
        if len(content) > MOST_TEXT:
            raise refuse(413, "too_large", f"a text has at most {MOST_TEXT} characters")
        return write_pdf(content), Document(kind=PDF, pages=count_sheets(content), text=content)
    if named[0] == "content_reference" and not content.startswith("data:"):
        row = rows.get(_FAXES, content)
        if row is None:
            raise refuse(422, "unknown_reference", f"content_reference: expected the id of a fax or a data: address, found {show(content)}")
        known = Document(
            kind=row["content_type"], pages=row["pages"], text=row["text"], note=row.get("note", ""), unread=row.get(_UNREAD, "")
        )
        return base64.b64decode(rows.get(_DOCUMENTS, content)), known
    try:
        data = base64.b64decode(content.partition("base64,")[2] if content.startswith("data:") else content, validate=True)
    except (binascii.Error, ValueError):
        raise refuse(422, "wrong_value", f"{named[0]}: expected a document in base64") from None
    found = read_document(data)
    if found is None:
        raise refuse(422, "wrong_document", f"{named[0]}: expected a PDF or TIFF")
    return data, found


def _keep(data: bytes, known: Document, fields: dict[str, Json], desk: Desk) -> dict[str, Json]:
    key = f"fax_{desk.around.new_id()}"
    row: dict[str, Json] = {"id": key, **fields, "pages": known.pages, "text": known.text, "content_type": known.kind, "size": len(data)}
    row = {**row, **({"note": known.note} if known.note else {}), **({_UNREAD: known.unread} if known.unread else {})}
    row["at"] = desk.around.now()
    desk.rows.put(_FAXES, key, row)
    # The bytes are no part of the state: its claims are about pages and words.
    desk.rows.put(_DOCUMENTS, key, base64.b64encode(data).decode())
    return row


def _find_own(rows: Draft) -> str:
    return rows.get(_CONFIG, "number") or _NUMBER


SIMULATOR = FaxSimulator()
