"""The session cookie, and the proof that a form was sent from our own page.

The cookie is `HttpOnly`, `SameSite=Lax`, and `Secure` over TLS. Every form carries a proof derived from the session, masked
differently in each response because responses are compressed and may echo the address (BREACH).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from proctor.service.access.callers import Caller

LOGIN_PATH = "/ui/login"
_COOKIE, _SECURE_COOKIE = "proctor_session", "__Host-proctor_session"
"""Browsers accept the second name only over TLS, from this host."""
_LOCAL_SECRET = secrets.token_bytes(16)
"""Used in place of a session for the local user; forms are valid until the process ends."""
_PROOF = 16
"""Bytes of a proof."""


def is_secure(scope: Scope) -> bool:
    """Return whether the browser uses TLS, here or at a proxy; a forged header only affects its sender."""
    # With several proxies, the first is the one next to the browser.
    first: bytes = dict(scope["headers"]).get(b"x-forwarded-proto", b"").partition(b",")[0]
    return scope.get("scheme") == "https" or first.strip().lower() == b"https"


def find_session_token(scope: Scope) -> str | None:
    """Return the token in the cookie of a request."""
    header = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    found = cookie_parser(header) if header else {}
    return found.get(_SECURE_COOKIE if is_secure(scope) else _COOKIE) or None


def strip_session_cookies(header: str) -> str:
    """Return the cookies of a request except our session cookies."""
    cookies = (part.strip() for part in header.split(";"))
    return "; ".join(cookie for cookie in cookies if cookie.partition("=")[0].strip() not in (_COOKIE, _SECURE_COOKIE))


def set_session_cookie(response: Response, scope: Scope, token: str, lasts_s: int) -> None:
    """Set the session cookie."""
    secure = is_secure(scope)
    name = _SECURE_COOKIE if secure else _COOKIE
    response.set_cookie(name, token, max_age=lasts_s, path="/", secure=secure, httponly=True, samesite="lax")


def drop_session_cookie(response: Response, scope: Scope) -> None:
    """Delete the session cookie."""
    secure = is_secure(scope)
    response.delete_cookie(_SECURE_COOKIE if secure else _COOKIE, path="/", secure=secure, httponly=True, samesite="lax")


def make_form_proof(scope: Scope) -> str:
    """Return a proof for a form of this session, different each time."""
    mask = secrets.token_bytes(_PROOF)
    masked = bytes(left ^ right for left, right in zip(mask, _derive_proof(scope), strict=True))
    return (mask + masked).hex()


def is_form_proof(scope: Scope, sent: str) -> bool:
    """Return whether a form has the proof of this session."""
    try:
        masked = bytes.fromhex(sent)
    except ValueError:
        return False
    if len(masked) != 2 * _PROOF:
        return False
    proof = bytes(left ^ right for left, right in zip(masked[:_PROOF], masked[_PROOF:], strict=True))
    # Compared in constant time.
    return hmac.compare_digest(proof, _derive_proof(scope))


def _derive_proof(scope: Scope) -> bytes:
    token = find_session_token(scope)
    caller: Caller | None = scope.get("state", {}).get("caller")
    # For the local user the cookie is ignored: another service on this machine may have set it.
    is_local = caller is not None and caller.key_id is None
    secret = _LOCAL_SECRET if token is None or is_local else token.encode()
    # BLAKE2b keys have at most 64 bytes.
    return hashlib.blake2b(b"form", key=secret[:64], digest_size=_PROOF).digest()
