"""Renders templates: escaping, headers, compression.

Templates escape everything (`autoescape`); intended markup comes from macros, `pictures.py` or `draw`. The filter `shown` escapes
misleading characters.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from proctor import __version__
from proctor.errors import MissingExtra
from proctor.pages import drawing, pictures, words
from proctor.pages.session_cookie import find_session_token, is_secure, make_form_proof
from proctor.pages.static_files import accepts_gzip, find_static_address
from proctor.report.blocks import attempt, outcomes
from proctor.report.blocks.systems import draw_systems
from proctor.report.builders.comparison import describe_chance

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types proctor"
)
_SMALLEST_COMPRESSED = 1_000
"""Bytes; smaller bodies are not compressed."""


@functools.cache
def make_environment() -> Environment:
    """Return the template environment of this package."""
    try:
        from jinja2 import Environment, PackageLoader  # only for pages
    except ModuleNotFoundError:
        raise MissingExtra("The web interface", "serve") from None
    from proctor.pages.undefined import UnknownName  # only for pages

    environment = Environment(
        loader=PackageLoader("proctor.pages"), autoescape=True, undefined=UnknownName, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(words.FILTERS)
    known: dict[str, object] = environment.globals  # type: ignore[assignment]
    known |= {"static": find_static_address, "pictures": pictures, "draw": drawing, "version": __version__}
    known |= {"attempt_blocks": attempt, "outcome_blocks": outcomes, "draw_systems": draw_systems, "describe_chance": describe_chance}
    return environment


def render_page(
    request: Request, template: str, values: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Render a template as a response."""
    text = (
        make_environment()
        .get_template(template)
        .render(
            {
                "form_proof": functools.partial(make_form_proof, request.scope),
                "has_session": find_session_token(request.scope) is not None,
                "path": request.url.path,
                "origin": find_origin(request),
                "request_id": request.scope.get("state", {}).get("request_id", ""),
                "source": getattr(request.state, "source", None),
                "project": getattr(request.state, "project", None),
                "projects_to_choose": getattr(request.state, "projects_to_choose", ()),
                **values,
            }
        )
    )
    return _make_response(request, text, status, headers or {})


def find_origin(request: Request) -> str:
    """Return the address of the service as the browser sees it, for commands shown on pages."""
    return f"{'https' if is_secure(request.scope) else 'http'}://{request.url.netloc}"


def redirect(address: str) -> Response:
    """Return a redirect to one of our own pages."""
    return RedirectResponse(address, 303)


def _make_response(request: Request, text: str, status: int, headers: Mapping[str, str]) -> Response:
    # Answers of agents may contain lone surrogates.
    body = text.encode("utf-8", errors="replace")
    all_headers = {
        "content-security-policy": POLICY,
        # Without a referrer, browsers send our own forms with `Origin: null`, like a foreign page.
        "referrer-policy": "same-origin",
        "vary": "accept-encoding, cookie",
        **headers,
    }
    if len(body) >= _SMALLEST_COMPRESSED and accepts_gzip(request.headers):
        body = gzip.compress(body, 6, mtime=0)
        all_headers["content-encoding"] = "gzip"
    return Response(body, status, all_headers, media_type="text/html")
