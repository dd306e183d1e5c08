"""The error page for every refusal."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from proctor.pages.forms import hides_value, is_form, parse_form
from proctor.pages.rendering import redirect, render_page
from proctor.pages.session_cookie import LOGIN_PATH, is_form_proof
from proctor.pages.words import quote_part
from proctor.service.refusals import Refusal

_LARGEST_BACK = 1_000_000
"""Bytes of a form that are returned to the user; escaping can make them five times as long."""

_KINDS = {
    "not_found": (
        "Page not found",
        "This page does not exist, was deleted, or your key cannot access it.",
        "Check the address. Deleted and expired objects are no longer in their list.",
    ),
    "forbidden": (
        "Access denied",
        "Your key does not allow this.",
        "Log in with another key: organization keys have full access, project keys can read their project.",
    ),
    "unauthorized": (
        "Log in first",
        "Your session has ended.",
        "Log in and try again.",
    ),
    "unavailable": (
        "Database unavailable",
        "The service cannot reach its database. Nothing was changed.",
        "Try again in a moment. If it persists, contact the administrator and quote the request id below.",
    ),
    "rate_limited": (
        "Too many requests",
        "This key or address exceeded its request limit per minute.",
        "Wait a minute and try again.",
    ),
    "conflict": (
        "Conflicting change",
        "The object was changed in the meantime. Nothing was saved.",
        "Reload the page and try again.",
    ),
    "bad_request": (
        "Bad request",
        "The address or the form contains an invalid value.",
        "Go back and try again.",
    ),
    "method_not_allowed": (
        "Method not allowed",
        "This address does not support this method.",
        "Open the page and use its button.",
    ),
    "internal_error": (
        "Internal error",
        "This is a fault of the service.",
        "Try again. If it persists, contact the administrator and quote the request id below.",
    ),
    "unknown": (
        "Request failed",
        "The service could not complete the request.",
        "Go back and try again.",
    ),
    "stale_form": (
        "Form of another session",
        "You logged in again after opening the form, or it was sent from another site. Nothing was saved.",
        "Check the input below and submit it again.",
    ),
}
"""Title, reason and advice by error code in lower case."""
_KINDS["validation_error"] = _KINDS["bad_request"]
_SILENT = frozenset(("seen", "do", "only", "previewed", "expected_version", "subject", "id", "claim", "what", "next"))
"""Hidden fields of forms: sent again, not shown."""


def make_error_page(scope: Scope, status: int, code: str, refusal: Refusal, headers: Mapping[str, str]) -> Response:
    """Return the error page; a read without a session redirects to the login page."""
    request = Request(scope)
    if status == 401 and request.method in ("GET", "HEAD") and request.url.path != LOGIN_PATH:
        return redirect(find_login_address(request))
    kind = code.lower() if code.lower() in _KINDS else "unknown"
    proofs = _read_refused_form(request).get("proof")
    if code == "FORBIDDEN" and proofs and not is_form_proof(scope, proofs[-1]):
        kind = "stale_form"
    title, reason, todo = _KINDS[kind]
    values = {
        "kind": kind,
        "title": title,
        "why": reason,
        "todo": todo,
        "code": code,
        "message": refusal.message,
        "hint": refusal.hint,
        "fields": refusal.fields,
    }
    values |= {"entered": find_entered(request), "send_to": find_request_address(request), "silent": _SILENT}
    may_be_temporary = kind in ("unavailable", "rate_limited", "conflict", "internal_error", "unauthorized")
    values |= {"is_read": may_be_temporary and request.method in ("GET", "HEAD"), "back": _find_way_back(request)}
    passed_on = {name: value for name, value in headers.items() if name.lower() != "www-authenticate"}
    return render_page(request, "error.html", values, status=status, headers=passed_on)


def find_entered(request: Request) -> list[tuple[str, str | None]]:
    """Return what was typed into the rejected form; None in place of keys and secrets."""
    fields = _read_refused_form(request)
    # A form without a proof came from another site and is not returned with one.
    if request.url.path in (LOGIN_PATH, "/ui/logout") or "proof" not in fields:
        return []
    # A form with only the proof is a button.
    typed = [(name, values) for name, values in fields.items() if name != "proof"]
    return [(name, None if hides_value(name) else value) for name, values in typed for value in values]


def _read_refused_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of the rejected form; empty if the body is not a form or too large."""
    body: bytes = request.scope.get("state", {}).get("body", b"")
    if request.method != "POST" or not is_form(request.headers) or len(body) > _LARGEST_BACK:
        return {}
    try:
        return parse_form(body)
    except ValueError:
        return {}


def _find_way_back(request: Request) -> str | None:
    """Return the page that the form was sent from."""
    try:
        came = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return None
    # The header may name any page; only our own are allowed.
    if came.netloc != request.url.netloc or not came.path.startswith("/ui/"):
        return None
    return came.path + (f"?{came.query}" if came.query else "")


def find_login_address(request: Request) -> str:
    """Return the login address with the page to continue to."""
    address = find_request_address(request)
    return LOGIN_PATH if address in ("/ui", "/ui/") else f"{LOGIN_PATH}?next={quote_part(address)}"


def find_request_address(request: Request) -> str:
    """Return the requested address undecoded: decoding could change the path."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return raw.decode("latin-1").partition("?")[0] + (f"?{request.url.query}" if request.url.query else "")
