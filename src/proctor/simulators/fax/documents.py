"""Documents of faxes: PDF and TIFF, their pages and their text layer, and text that becomes a PDF.

The text layer of a PDF is read by `pypdf`, an extra: `pip install 'proctor-evals[fax]'`, in a process of its own.
Without it, and for a TIFF always, the text is empty, so that a claim about words does not hold. Problems are in `note`, never raised.
"""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys

import msgspec

from proctor.model.show import shorten
from proctor.simulators.fax import pdf_process

PDF, TIFF = "application/pdf", "image/tiff"
MOST_BYTES = 20_000_000
"""Bytes of one document."""
MOST_PAGES = 500
"""Pages of one document that are looked at."""
MOST_TEXT = 500_000
"""Maximum characters of text per document."""
_PDF_S = 20.0
"""How long a process that reads a PDF is waited for; on a busy machine its start alone can take seconds."""
_LINES, _WIDTH = 54, 90
"""Lines of a page that is written, and characters of a line."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a document."""

    kind: str
    pages: int | None = None
    """None if unknown."""
    text: str = ""
    note: str = ""
    """Why there is no text, or no number of pages."""
    unread: str = ""
    """Which part of its text could not be read, if any."""


def read_document(data: bytes) -> Document | None:
    """Return what is known of a PDF or TIFF, or None for anything else."""
    if data[:1024].lstrip().startswith(b"%PDF-"):
        return _read_pdf(data)
    if data[:4] in (b"II*\x00", b"MM\x00*"):
        return _read_tiff(data)
    return None


def _read_pdf(data: bytes) -> Document:
    spec = importlib.util.find_spec("pypdf")
    if spec is None:
        return Document(kind=PDF, note="the text layer is not read: pypdf is not installed (extra fax)")
    # The folder that has the package `pypdf`: the process knows no other path.
    folder = (spec.submodule_search_locations or [""])[0].rstrip("/\\")[: -len("pypdf")]
    command = [sys.executable, "-I", pdf_process.__file__, folder, str(MOST_PAGES)]
    try:
        done = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, timeout=_PDF_S, check=True)
        found = msgspec.json.decode(done.stdout)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        limits = f"{pdf_process.CPU_S} s or {pdf_process.MEMORY_BYTES // 1_000_000} MB"
        return Document(kind=PDF, note=f"the document cannot be read: that takes more than {limits}")
    if "error" in found:
        return Document(kind=PDF, note=f"the document cannot be read: {shorten(found['error'], 200)}")
    count, text = found["pages"], found["text"]
    if not text.strip():
        return Document(kind=PDF, pages=count, note="the document has no text layer")
    return Document(kind=PDF, pages=count, text=text[:MOST_TEXT], unread=_describe_unread(found["pictures"], count, len(text)))


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


def _read_tiff(data: bytes) -> Document:
    """Count the directories of a TIFF: each is a page."""
    order = "<" if data[:2] == b"II" else ">"
    seen: set[int] = set()
    try:
        (place,) = struct.unpack_from(f"{order}I", data, 4)
        # A directory may name an earlier one as its next: a small file would be counted for ever.
        while place and place not in seen and len(seen) < MOST_PAGES:
            (entries,) = struct.unpack_from(f"{order}H", data, place)
            seen.add(place)
            (place,) = struct.unpack_from(f"{order}I", data, place + 2 + 12 * entries)
    except struct.error:
        return Document(kind=TIFF, pages=len(seen) or None, note="the document is broken off")
    return Document(kind=TIFF, pages=len(seen), note="a picture has no text layer")


def write_pdf(text: str) -> bytes:
    """Return text as a PDF with a text layer, in pages; characters beyond those of Western Europe become question marks."""
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
    return _join_objects(objects)


def count_sheets(text: str) -> int:
    """Return how many pages `write_pdf` makes of a text."""
    lines = sum(max(1, -(-len(line) // _WIDTH)) for line in text.expandtabs(4).splitlines() or [""])
    return -(-lines // _LINES)


def _escape(line: str) -> bytes:
    printable = "".join(char if char.isprintable() else " " for char in line).encode("cp1252", "replace")
    return printable.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _join_objects(objects: list[bytes]) -> bytes:
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
