"""Style sheets, scripts and images: their names contain the hash of their content, so browsers cache them forever.

Files are read and compressed once.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from pkgutil import get_data

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from proctor.report.document.html import read_template
from proctor.service.refusals import Refusal

_FILES: dict[str, tuple[str, ...]] = {
    "pages.css": ("tokens.css", "family.css", "pages.css"),
    "result.css": ("result.css",),
    "pages.js": ("pages.js",),
    "live.js": ("live.js",),
    "compare.css": ("compared.css", "compare.css"),
    "overview.css": ("overview.css",),
    "window.js": ("window.js",),
    "cases.css": ("cases.css",),
    "editor.js": ("editor.js",),
    "editing.js": ("editing.js",),
    "traces.css": ("traces.css",),
    "spans.js": ("spans.js",),
    "icon.svg": ("icon.svg",),
    "settings.css": ("settings.css",),
}
"""Each served file and its parts; those of `_OF_REPORTS` are shared with the static reports."""
_QUALITY = re.compile(r"q=[0-9]+(?:\.[0-9]*)?")
_OF_REPORTS = ("tokens.css", "family.css", "compared.css")
_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class StaticFile(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    address: str
    kind: str
    body: bytes
    compressed: bytes


@functools.cache
def load_static_files() -> dict[str, StaticFile]:
    """Return every file by its own name."""
    return {name: _load_file(name, parts) for name, parts in _FILES.items()}


def find_static_address(name: str) -> str:
    """Return the address of a file, for templates."""
    return load_static_files()[name].address


async def serve_static_file(request: Request) -> Response:
    """Serve a file. A name with another hash belongs to another version and is not found."""
    found = next((file for file in load_static_files().values() if file.address == request.url.path), None)
    if found is None:
        raise Refusal("NOT_FOUND", "no such file; the page may be from another version: reload it")
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if accepts_gzip(request.headers):
        return Response(found.compressed, media_type=found.kind, headers={**headers, "content-encoding": "gzip"})
    return Response(found.body, media_type=found.kind, headers=headers)


def accepts_gzip(headers: Headers) -> bool:
    """Return whether the client accepts gzip."""
    for part in headers.get("accept-encoding", "").lower().replace(" ", "").split(","):
        name, _, quality = part.partition(";")
        if name == "gzip":
            # Zero has many spellings (RFC 9110, 12.4.2); an unreadable weight counts as zero.
            return not quality or (_QUALITY.fullmatch(quality) is not None and float(quality.removeprefix("q=")) > 0)
    return False


def _load_file(name: str, parts: tuple[str, ...]) -> StaticFile:
    body = "".join(_read_part(part) for part in parts).encode()
    stem, _, kind = name.rpartition(".")
    digest = hashlib.sha256(body).hexdigest()[:12]
    # Without a time stamp, the same content gives the same bytes on every server.
    return StaticFile(f"/static/{stem}-{digest}.{kind}", _KINDS[kind], body, gzip.compress(body, 9, mtime=0))


def _read_part(name: str) -> str:
    if name in _OF_REPORTS:
        return read_template(name)
    content = get_data("proctor.pages", f"static/{name}")
    assert content is not None, name
    return content.decode().replace("\r\n", "\n")
