"""Login and logout: a key starts a session."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.forms import read_form
from proctor.pages.rendering import redirect, render_page
from proctor.pages.session_cookie import drop_session_cookie, find_session_token, set_session_cookie
from proctor.pages.visit import get_hub
from proctor.service.access.callers import Caller
from proctor.service.access.keys import SESSION_S, close_session, open_session
from proctor.service.refusals import Refusal


async def show_login(request: Request) -> Response:
    """Show the login form, or continue if there is a session."""
    if getattr(request.state, "caller", None) is not None:
        return redirect(_choose_next(request.query_params.get("next", "")))
    return _show_form(request, request.query_params.get("next", ""))


async def log_in(request: Request) -> Response:
    """Start a session for a key, replacing the old one, or show the error."""
    form = await read_form(request, proven=False)
    try:
        _, token = await open_session(get_hub(request), form.get("key", "").strip())
    except Refusal as refusal:
        if refusal.code not in ("UNAUTHORIZED", "FORBIDDEN"):
            raise
        return _show_form(request, form.get("next", ""), refusal)
    # Only now: a rejected key leaves the old session.
    await _end_session(request)
    answer = redirect(_choose_next(form.get("next", "")))
    set_session_cookie(answer, request.scope, token, SESSION_S)
    return answer


async def log_out(request: Request) -> Response:
    """End the session and delete its cookie."""
    await read_form(request)
    await _end_session(request)
    answer = redirect("/ui/login")
    drop_session_cookie(answer, request.scope)
    return answer


async def _end_session(request: Request) -> None:
    """End the session of a request."""
    token = find_session_token(request.scope)
    caller: Caller | None = getattr(request.state, "caller", None)
    if token is not None and caller is not None:
        await close_session(get_hub(request), caller, token)


def _show_form(request: Request, next: str, refusal: Refusal | None = None) -> Response:
    status = 200 if refusal is None else refusal.status
    # A token without a caller means that the session has ended.
    values = {"next": next, "refusal": refusal, "is_over": find_session_token(request.scope) is not None}
    return render_page(request, "login.html", values, status=status)


def _choose_next(wanted: str) -> str:
    """Return where to continue: only our own pages."""
    path = wanted.partition("#")[0].partition("?")[0]
    # Browsers resolve `%2e%2e` as `..`.
    climbs = any(unquote(part) in (".", "..") for part in path.split("/"))
    is_own_page = path.startswith("/ui/") and not any(character in wanted for character in "\\\r\n\t") and "//" not in path and not climbs
    return wanted if is_own_page else "/ui/"
