"""The page that says what happened and what to do, for every refusal on the pages."""

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
"""Bytes of a form that are given back. Escaped they are up to five times as many, and drawing them keeps others waiting."""

_KINDS = {
    "not_found": (
        "There is nothing here",
        "What this address names does not exist, does not exist any more, or is not for your key.",
        "Check the address. If it worked before, it was deleted, or was older than the service keeps things: look in the list above it.",
    ),
    "forbidden": (
        "Not with this key",
        "Your key does not allow this.",
        "Log in with a key that does: organization keys may do everything in their organization, project keys read their project.",
    ),
    "unauthorized": (
        "Log in first",
        "Your session is over: its key was revoked or has expired, or you logged out in another window.",
        "Log in again, and repeat what you wanted to do.",
    ),
    "unavailable": (
        "The database is away",
        "The service is there, but cannot reach its database just now. Nothing was changed.",
        "Wait a moment and try again. If it stays so, tell whoever runs the service; the log has the request below.",
    ),
    "rate_limited": (
        "Too many requests",
        "More was asked with this key, or from this address, than the service answers in a minute.",
        "Wait a minute and try again.",
    ),
    "conflict": (
        "Somebody was faster",
        "What you wanted to change has changed meanwhile. Nothing was done.",
        "Load the page again and look.",
    ),
    "bad_request": (
        "This cannot be answered",
        "Something in the address or the form cannot be used.",
        "Go back and choose again.",
    ),
    "validation_error": (
        "This cannot be answered",
        "Something in the address or the form cannot be used.",
        "Go back and choose again.",
    ),
    "method_not_allowed": (
        "Not in this way",
        "This address is not asked in this way.",
        "Open the page it belongs to, and use its button.",
    ),
    "internal_error": (
        "The service failed",
        "This is a fault of the service, not yours.",
        "Try again. If it stays so, tell whoever runs the service; the log has more under the request below.",
    ),
    "unknown": (
        "This did not work",
        "The service did not do what was asked.",
        "Go back and try again.",
    ),
    "stale_form": (
        "This form is of another session",
        "You logged in again since the page with the form was opened, or it was sent from elsewhere. Nothing was done.",
        "Look at what stands below. If it is what you typed, send it again.",
    ),
}
"""For each code, in lower case: what happened, why, and what to do."""
_SILENT = frozenset(("seen", "do", "only", "previewed", "expected_version", "subject", "id", "claim", "what", "next"))
"""Fields that a form has for itself: sent again as they were, and nothing to read."""


def make_error_page(scope: Scope, status: int, code: str, refusal: Refusal, headers: Mapping[str, str]) -> Response:
    """Return the page for a refusal; who has no session (any more) and only wants to read is sent to the way in."""
    request = Request(scope)
    if status == 401 and request.method in ("GET", "HEAD") and request.url.path != LOGIN_PATH:
        return redirect(find_login_address(request))
    kind = code.lower() if code.lower() in _KINDS else "unknown"
    if code == "FORBIDDEN" and _is_of_another_session(request):
        kind = "stale_form"
    title, why, todo = _KINDS[kind]
    values = {
        "kind": kind,
        "title": title,
        "why": why,
        "todo": todo,
        "code": code,
        "message": refusal.message,
        "hint": refusal.hint,
        "fields": refusal.fields,
    }
    values |= {"entered": find_entered(request), "send_to": find_asked_address(request), "silent": _SILENT}
    values |= {"is_read": request.method in ("GET", "HEAD"), "back": _find_way_back(request)}
    kept = {name: value for name, value in headers.items() if name.lower() != "www-authenticate"}
    return render_page(request, "error.html", values, status=status, headers=kept)


def find_entered(request: Request) -> list[tuple[str, str | None]]:
    """Return what somebody typed into the form that was refused; None in place of keys and secrets, which are to be typed again."""
    fields = _read_refused_form(request)
    # It comes back with a proof, so what came without one does not: another page made it.
    if request.url.path in (LOGIN_PATH, "/ui/logout") or "proof" not in fields:
        return []
    # Without anything but the proof there was nothing to type: a button.
    typed = [(name, values) for name, values in fields.items() if name != "proof"]
    return [(name, None if hides_value(name) else value) for name, values in typed for value in values]


def _read_refused_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form that was refused; none of what is no form, or too large to be given back."""
    body: bytes = request.scope.get("state", {}).get("body", b"")
    if request.method != "POST" or not is_form(request.headers) or len(body) > _LARGEST_BACK:
        return {}
    try:
        return parse_form(body)
    except ValueError:
        return {}


def _is_of_another_session(request: Request) -> bool:
    """Return whether a form was refused for its proof, and not for what its sender may do."""
    fields = _read_refused_form(request)
    return "proof" in fields and not is_form_proof(request.scope, fields["proof"][-1])


def _find_way_back(request: Request) -> str | None:
    """Return the page from which a form was sent: the address that it was sent to cannot be opened."""
    try:
        came = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return None
    # The header may name any page: the way back leads to our own pages only.
    if came.netloc != request.url.netloc or not came.path.startswith("/ui/"):
        return None
    return came.path + (f"?{came.query}" if came.query else "")


def find_login_address(request: Request) -> str:
    """Return the way in, with where to go from there."""
    wanted = find_asked_address(request)
    return LOGIN_PATH if wanted in ("/ui", "/ui/") else f"{LOGIN_PATH}?next={quote_part(wanted)}"


def find_asked_address(request: Request) -> str:
    """Return the address as it was asked: decoded, a part of the path could be taken for something else."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return raw.decode("latin-1").partition("?")[0] + (f"?{request.url.query}" if request.url.query else "")
