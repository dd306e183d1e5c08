"""Style sheets, scripts and images: their names contain the hash of their content, so browsers cache them forever.

Files are read and compressed once.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from importlib.resources import files

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from proctor.report.document.html import read_template
from proctor.service.refusals import Refusal

_FOLDER = files("proctor.pages") / "static"
_COMBINED = {"pages.css": ("tokens.css", "family.css", "pages.css"), "compare.css": ("compared.css", "compare.css")}
"""Files with several parts; those of `_OF_REPORTS` are shared with the static reports."""
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
    return {name: _load_file(name) for name in sorted(file.name for file in _FOLDER.iterdir())}


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
    return "gzip" in headers.get("accept-encoding", "").lower()


def _load_file(name: str) -> StaticFile:
    parts = _COMBINED.get(name, (name,))
    body = "".join(read_template(part) if part in _OF_REPORTS else _FOLDER.joinpath(part).read_text("utf-8") for part in parts).encode()
    stem, _, kind = name.rpartition(".")
    digest = hashlib.sha256(body).hexdigest()[:12]
    # Without a time stamp, the same content gives the same bytes on every server.
    return StaticFile(f"/static/{stem}-{digest}.{kind}", _KINDS[kind], body, gzip.compress(body, 9, mtime=0))
