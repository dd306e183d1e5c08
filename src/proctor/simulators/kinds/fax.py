"""A fax line: documents out and in, with their pages and their text.

    POST /faxes                send: `{"to_number", "patient_id", "document_type"}` with `text`, `document` (base64) or `content_reference`
    POST /faxes?to_number=...  send: the PDF or TIFF as the body, the rest in the query
    GET  /faxes                all faxes, filtered by `direction`, `patient_id` and `document_type`
    GET  /faxes/ID             one: status, pages and text
    GET  /faxes/ID/document    its document

A `content_reference` is the id of another fax, which is passed on, or a `data:` address. Text becomes a PDF. A scenario lets a fax arrive:
`fax_arrives: {from, text, document_type, patient_id}`, or with `document`. The state consists of all faxes, sent and received.

Documents are PDF or TIFF. The text layer of a PDF is read by `pypdf` in a separate process, an extra: `pip install 'proctor-evals[fax]'`.
Without it, and for a TIFF always, the text is empty, so that a claim about words does not hold. Problems are in `note`, never raised.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import struct
import subprocess
import sys

import msgspec

from proctor.codecs.http import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import FaxState, Json, State
from proctor.model.show import shorten, show
from proctor.simulators import exchange, pdf_process
from proctor.simulators.persona import is_address, read_number
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import read_items, read_members, read_word
from proctor.simulators.tools import make_tool

_CONFIG, _DOCUMENTS = "_config", "_documents"
_FAXES = "faxes"
_ARRIVING = ("from", "text", "document", "document_type", "patient_id")
_UNREAD = "unread"
"""The unreadable part of the text; claims that forbid words then do not pass (`checks/systems/entries.py`)."""
_DESCRIBED = ("patient_id", "document_type")
_NUMBER = "+15550200"
"""The agent's default number."""


class FaxSimulator(Simulator):
    """A fax line."""

    kind = "fax"
    summary = "A fax line: PDF and TIFF out and in, with pages and text layer."
    steps = ("fax_arrives",)
    config_names = ("number", "inbox")
    access = {"fax_url": "{url}/faxes", "fax_number": "{number}"}  # noqa: RUF012 - never changed
    access_defaults = {"number": _NUMBER}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `number`, the agent's own, and `inbox`: received faxes."""
        members = read_members(seed, self.config_names)
        if members.get("number") is not None:
            desk.rows.put(_CONFIG, "number", read_number(members["number"], "number", "fax", _NUMBER))
        for at, item in read_items(members.get("inbox"), "inbox"):
            self._arrive(item, at, desk)

    def perform(self, step: str, content: Json, desk: Desk) -> None:
        """Let a fax arrive."""
        self._arrive(content, "", desk)

    def _arrive(self, value: Json, at: str, desk: Desk) -> None:
        members = read_members(value, _ARRIVING, at)
        place = f"{at}." if at else ""
        try:
            data, known = _read_content(members, desk.rows)
        except exchange.Refused as refused:
            raise SpecError(exchange.refusal_message(refused), field=at or None) from None
        described = {name: read_word(members.get(name), f"{place}{name}", default="") for name in _DESCRIBED}
        sender = read_number(members.get("from"), f"{place}from", "fax", "+15550299")
        _keep(data, known, {"direction": "inbound", "to": _find_own(desk.rows), "from": sender, "status": "received", **described}, desk)

    def answer(self, request: exchange.Request, desk: Desk) -> exchange.Response:
        """Answer a request. Raises `Refused`."""
        parts = exchange.split_path(request)
        names = parts[1:] if parts[:1] == [_FAXES] else parts
        if len(names) > 2 or (len(names) == 2 and names[1] != "document"):
            raise exchange.refuse(404, "not_found", "faxes are at /faxes, /faxes/ID and /faxes/ID/document")
        exchange.require_method(request, "GET", "HEAD", *(() if names else ("POST",)))
        if names:
            if (row := desk.rows.get(_FAXES, names[0])) is None:
                raise exchange.refuse(404, "not_found", f"there is no fax {show(names[0])}")
            if len(names) == 1:
                return exchange.answer_json(200, row)
            data = base64.b64decode(desk.rows.get(_DOCUMENTS, names[0]))
            return exchange.Response(status=200, body=data, headers={"content-type": row["content_type"]})
        if request.method == "POST":
            if len(request.body) > 2 * MOST_BYTES:
                raise exchange.refuse(413, "too_large", f"a document has at most {MOST_BYTES} bytes")
            raw = read_document(request.body)
            members: dict[str, Json] = dict(request.query) if raw is not None else exchange.read_object(request)
            to = exchange.take_text(members, "to_number", default="") or exchange.take_text(members, "to", default="")
            if not is_address("sms", to):
                raise exchange.refuse(422, "wrong_value", f"to_number: expected a fax number, found {show(to)}")
            described = {name: exchange.take_text(members, name, default="") for name in _DESCRIBED}
            data, known = (request.body, raw) if raw is not None else _read_content(members, desk.rows)
            if len(data) > MOST_BYTES:
                raise exchange.refuse(413, "too_large", f"a document has at most {MOST_BYTES} bytes")
            row = _keep(
                data, known, {"direction": "outbound", "to": to, "from": _find_own(desk.rows), "status": "delivered", **described}, desk
            )
            return exchange.answer_json(201, row, headers={"location": f"{request.base}/faxes/{encode_percent(row['id'])}"})
        filters = [(name, value) for name, value in request.query if name in ("direction", *_DESCRIBED)]
        rows = [row for row in desk.rows.list(_FAXES).values() if all(row[name] == value for name, value in filters)]
        return exchange.answer_json(200, {_FAXES: rows, "total": len(rows)})

    def read_state(self, desk: Desk) -> State:
        """Return all faxes, sent and received, without the number of pages if it is unknown."""
        documents = [{name: value for name, value in row.items() if value is not None} for row in desk.rows.list(_FAXES).values()]
        return State(fax=FaxState(documents=tuple(documents)))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the fax line."""
        words: dict[str, Json] = {"type": "string"}
        reference: dict[str, Json] = {"type": "string", "description": "The id of a fax that is passed on."}
        fields: dict[str, Json] = {"to_number": words, "text": words, "content_reference": reference, **dict.fromkeys(_DESCRIBED, words)}
        direction: dict[str, Json] = {"enum": ["inbound", "outbound"]}
        return (
            make_tool("fax_send", "Send a fax: a text, or a fax that has arrived.", fields, ("to_number",), request="POST /faxes"),
            make_tool(
                "fax_list", "List faxes that were sent and received, with their text.", {"direction": direction}, request="GET /faxes"
            ),
        )


def _read_content(fields: dict[str, Json], rows: Draft) -> tuple[bytes, Document]:
    """Return the document of a fax, and its properties."""
    sources = [name for name in ("text", "document", "content_reference") if fields.get(name)]
    if len(sources) != 1:
        raise exchange.refuse(422, "wrong_value", "expected one of text, document and content_reference")
    source = sources[0]
    content = exchange.take_text(fields, source)
    if source == "text":
        if len(content) > MOST_TEXT:
            raise exchange.refuse(413, "too_large", f"a text has at most {MOST_TEXT} characters")
        return write_pdf(content), Document(kind=PDF, pages=count_sheets(content), text=content)
    if source == "content_reference" and not content.startswith("data:"):
        if (row := rows.get(_FAXES, content)) is None:
            raise exchange.refuse(
                422, "unknown_reference", f"content_reference: expected the id of a fax or a data: address, found {show(content)}"
            )
        note, unread = row.get("note", ""), row.get(_UNREAD, "")
        known = Document(kind=row["content_type"], pages=row["pages"], text=row["text"], note=note, unread=unread)
        return base64.b64decode(rows.get(_DOCUMENTS, content)), known
    try:
        data = base64.b64decode(content.partition("base64,")[2] if content.startswith("data:") else content, validate=True)
    except (binascii.Error, ValueError):
        raise exchange.refuse(422, "wrong_value", f"{source}: expected a document in base64") from None
    if (document := read_document(data)) is None:
        raise exchange.refuse(422, "wrong_document", f"{source}: expected a PDF or TIFF")
    return data, document


def _keep(data: bytes, known: Document, fields: dict[str, Json], desk: Desk) -> dict[str, Json]:
    key = f"fax_{desk.around.new_id()}"
    row: dict[str, Json] = {"id": key, **fields, "pages": known.pages, "text": known.text, "content_type": known.kind, "size": len(data)}
    row = {**row, **({"note": known.note} if known.note else {}), **({_UNREAD: known.unread} if known.unread else {})}
    row["at"] = desk.around.now()
    desk.rows.put(_FAXES, key, row)
    # The bytes are not part of the state: its claims concern pages and words.
    desk.rows.put(_DOCUMENTS, key, base64.b64encode(data).decode())
    return row


def _find_own(rows: Draft) -> str:
    return rows.get(_CONFIG, "number") or _NUMBER


SIMULATOR = FaxSimulator()


PDF, TIFF = "application/pdf", "image/tiff"
MOST_BYTES = 20_000_000
"""Bytes of one document."""
MOST_PAGES = 500
"""Maximum pages of one document to examine."""
MOST_TEXT = 500_000
"""Maximum characters of text per document."""
_PDF_S = 20.0
"""Seconds to wait for the process that reads a PDF; on a busy machine its start alone can take seconds."""
_LINES, _WIDTH = 54, 90
"""Lines of a written page, and characters of a line."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The known properties of a document."""

    kind: str
    pages: int | None = None
    """None if unknown."""
    text: str = ""
    note: str = ""
    """Why there is no text, or no number of pages."""
    unread: str = ""
    """Which part of its text could not be read, if any."""


def read_document(data: bytes) -> Document | None:
    """Return the properties of a PDF or TIFF, or None for anything else."""
    if data[:1024].lstrip().startswith(b"%PDF-"):
        return _read_pdf(data)
    if data[:4] in (b"II*\x00", b"MM\x00*"):
        order = "<" if data[:2] == b"II" else ">"
        visited: set[int] = set()
        try:
            (place,) = struct.unpack_from(f"{order}I", data, 4)
            # A directory may name an earlier one as its next: a small file would be counted forever.
            while place and place not in visited and len(visited) < MOST_PAGES:
                (entries,) = struct.unpack_from(f"{order}H", data, place)
                visited.add(place)
                (place,) = struct.unpack_from(f"{order}I", data, place + 2 + 12 * entries)
        except struct.error:
            return Document(kind=TIFF, pages=len(visited) or None, note="the document is broken off")
        return Document(kind=TIFF, pages=len(visited), note="a picture has no text layer")
    return None


def _read_pdf(data: bytes) -> Document:
    if (spec := importlib.util.find_spec("pypdf")) is None:
        return Document(kind=PDF, note="the text layer is not read: pypdf is not installed (extra fax)")
    # The folder of the package `pypdf`: the process has no other import path.
    folder = (spec.submodule_search_locations or [""])[0].rstrip("/\\")[: -len("pypdf")]
    command = [sys.executable, "-I", pdf_process.__file__, folder, str(MOST_PAGES)]
    try:
        done = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, timeout=_PDF_S, check=True)
        answer = msgspec.json.decode(done.stdout)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        limits = f"{pdf_process.CPU_S} s or {pdf_process.MEMORY_BYTES // 1_000_000} MB"
        return Document(kind=PDF, note=f"the document cannot be read: that takes more than {limits}")
    if "error" in answer:
        return Document(kind=PDF, note=f"the document cannot be read: {shorten(answer['error'], 200)}")
    count, text = answer["pages"], answer["text"]
    if not text.strip():
        return Document(kind=PDF, pages=count, note="the document has no text layer")
    return Document(kind=PDF, pages=count, text=text[:MOST_TEXT], unread=_describe_unread(answer["pictures"], count, len(text)))


def _describe_unread(pictures: list[int], count: int, length: int) -> str:
    """Return which part of a document's text could not be read."""
    notes: list[str] = []
    if pictures:
        notes.append(f"page {pictures[0]} has no text layer" if len(pictures) == 1 else f"{len(pictures)} pages have no text layer")
    if count > MOST_PAGES:
        notes.append(f"only the first {MOST_PAGES} of {count} pages are read")
    if length > MOST_TEXT:
        notes.append(f"only the first {MOST_TEXT} of {length} characters are stored")
    return "; ".join(notes)


def write_pdf(text: str) -> bytes:
    """Return text as a PDF with a text layer, in pages; characters outside Western European become question marks."""
    lines = [line[at : at + _WIDTH] for line in text.expandtabs(4).splitlines() or [""] for at in range(0, max(1, len(line)), _WIDTH)]
    sheets = [lines[at : at + _LINES] for at in range(0, len(lines), _LINES)]
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(sheets)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(sheets)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>",
    ]
    for index, sheet in enumerate(sheets):
        shown = b"".join(b"(" + _escape(line) + b") Tj T*\n" for line in sheet)
        content = b"BT /F1 10 Tf 36 780 Td 14 TL\n" + shown + b"ET"
        box = "/MediaBox [0 0 612 842] /Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R {box} /Contents {5 + 2 * index} 0 R >>".encode())
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    places: list[int] = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)


def count_sheets(text: str) -> int:
    """Return the number of pages that `write_pdf` makes of a text."""
    lines = sum(max(1, -(-len(line) // _WIDTH)) for line in text.expandtabs(4).splitlines() or [""])
    return -(-lines // _LINES)


def _escape(line: str) -> bytes:
    printable = "".join(char if char.isprintable() else " " for char in line).encode("cp1252", "replace")
    return printable.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
