"""The cookie that carries a session, and the proof that a form was sent from our own page.

The cookie is out of reach for scripts (`HttpOnly`), is not sent along when a foreign page submits a form (`SameSite=Lax`), and is `Secure`
behind TLS. Besides, every form carries a proof made from the session, which only our own page knows. It is masked anew in each answer,
since answers are compressed and may repeat what somebody put into the address.
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
"""A browser takes the second name only over TLS, from this host alone."""
_LOCAL_SECRET = secrets.token_bytes(16)
"""In place of a session for the local user, who has none; forms are good until the process ends."""
_PROOF = 16
"""Bytes of a proof."""


def is_secure(scope: Scope) -> bool:
    """Return whether the browser speaks TLS, here or to a proxy in front. A lie about it only harms who tells it."""
    # Of several proxies the first one speaks to the browser.
    first: bytes = dict(scope["headers"]).get(b"x-forwarded-proto", b"").partition(b",")[0]
    return scope.get("scheme") == "https" or first.strip().lower() == b"https"


def find_session_token(scope: Scope) -> str | None:
    """Return the token in the cookie of a request."""
    header = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    found = cookie_parser(header) if header else {}
    return found.get(_SECURE_COOKIE if is_secure(scope) else _COOKIE) or None


def strip_session_cookies(header: str) -> str:
    """Return the cookies of a request without those that are a session of ours."""
    cookies = (part.strip() for part in header.split(";"))
    return "; ".join(cookie for cookie in cookies if cookie.partition("=")[0].strip() not in (_COOKIE, _SECURE_COOKIE))


def set_session_cookie(response: Response, scope: Scope, token: str, lasts_s: int) -> None:
    """Give the browser its session."""
    secure = is_secure(scope)
    name = _SECURE_COOKIE if secure else _COOKIE
    response.set_cookie(name, token, max_age=lasts_s, path="/", secure=secure, httponly=True, samesite="lax")


def drop_session_cookie(response: Response, scope: Scope) -> None:
    """Take the session away from the browser."""
    secure = is_secure(scope)
    response.delete_cookie(_SECURE_COOKIE if secure else _COOKIE, path="/", secure=secure, httponly=True, samesite="lax")


def make_form_proof(scope: Scope) -> str:
    """Return the proof for a form of this session, different each time it is written."""
    mask = secrets.token_bytes(_PROOF)
    masked = bytes(one ^ other for one, other in zip(mask, _derive_proof(scope), strict=True))
    return (mask + masked).hex()


def is_form_proof(scope: Scope, given: str) -> bool:
    """Return whether a form carries the proof of this session."""
    try:
        both = bytes.fromhex(given)
    except ValueError:
        return False
    if len(both) != 2 * _PROOF:
        return False
    proof = bytes(one ^ other for one, other in zip(both[:_PROOF], both[_PROOF:], strict=True))
    # In constant time: how long it takes must not tell how much of a guess is right.
    return hmac.compare_digest(proof, _derive_proof(scope))


def _derive_proof(scope: Scope) -> bytes:
    token = find_session_token(scope)
    caller: Caller | None = scope.get("state", {}).get("caller")
    # The local user is let in whatever the cookie says; what another service of this machine has put there must not make a proof.
    is_local = caller is not None and caller.key_id is None
    secret = _LOCAL_SECRET if token is None or is_local else token.encode()
    # BLAKE2b takes keys of at most 64 bytes.
    return hashlib.blake2b(b"form", key=secret[:64], digest_size=_PROOF).digest()
