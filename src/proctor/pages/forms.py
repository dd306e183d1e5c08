"""Forms that pages send: small, read strictly, and only from our own pages.

What was typed may come back to whoever typed it, but never what is in a field for a key or a secret: which fields those are is decided
here alone (`hides_value`), by their name, for the forms themselves and for every page that gives a form back.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request

from proctor.pages.session_cookie import LOGIN_PATH, is_form_proof
from proctor.service.redaction import names_a_secret
from proctor.service.refusals import Refusal

LARGEST_FORM = 200_000
"""Bytes, where a screen does not say otherwise, and of what is given back to somebody whose session has ended."""
_MOST_FIELDS = 200
"""A run may be started with a hundred cases, each of which is a field, and more is typed beside them."""
_HIDDEN = frozenset(("proof", "value", "secret", "key"))
FORM_KIND = "application/x-www-form-urlencoded"


async def read_form(request: Request, *, proven: bool = True, largest: int = LARGEST_FORM) -> dict[str, str]:
    """Return the fields of a form; `proven` asks for the proof that our own page sent it. Raises `Refusal`.

    `request.state.form_proven` says whether the proof is good; `request.state.form_lists` has every value of a field that came several
    times. What was sent comes back in the page that says what went wrong (`error_page.py`), so that nobody has to type it again.
    """
    if not is_form(request.headers):
        raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"expected a form, as {FORM_KIND}")
    body = await _receive_body(request, largest)
    try:
        found = parse_form(body)
    except ValueError:
        raise Refusal("BAD_REQUEST", "the form cannot be read") from None
    fields = {name: values[-1] for name, values in found.items()}
    request.state.form_proven = is_form_proof(request.scope, fields.get("proof", ""))
    request.state.form_lists = found
    # A form without any proof is no page of ours that was open for too long: giving it back with a proof would make it one.
    if not request.state.form_proven and (proven or ("proof" not in fields and request.url.path != LOGIN_PATH)):
        raise Refusal(
            "FORBIDDEN",
            "the form was not sent from a page of this session, so nothing was done",
            hint="the session may have ended meanwhile: load the page again, and send it again",
        )
    return fields


async def _receive_body(request: Request, largest: int) -> bytes:
    """Return the body of a form, of which no more is held than a form may have. Raises `Refusal`."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise Refusal("PAYLOAD_TOO_LARGE", f"this form has at most {largest} bytes")
        parts.append(part)
    return b"".join(parts)


def is_form(headers: Headers) -> bool:
    """Return whether a request says that it brings a form as our pages send them."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == FORM_KIND


def hides_value(name: str) -> bool:
    """Return whether what is typed into a field of this name is never shown again: proofs, keys and secrets."""
    return name.strip().lower() in _HIDDEN or names_a_secret(name)


def parse_form(body: bytes) -> dict[str, list[str]]:
    """Return every value of each field in the body of a form. Raises `ValueError`."""
    return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
