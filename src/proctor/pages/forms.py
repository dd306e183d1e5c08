"""Reading of forms: size-limited, and only from our own pages.

Values of fields for keys and secrets are never shown again; `hides_value` decides by the field name.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request

from proctor.cassettes.redaction import names_a_secret
from proctor.pages.session_cookie import is_form_proof
from proctor.service.refusals import Refusal

LARGEST_FORM = 200_000
"""Default limit in bytes."""
_MOST_FIELDS = 200
"""A run form has up to a hundred cases, one field each, and a few others."""
_HIDDEN = frozenset(("proof", "value", "secret", "key"))
FORM_KIND = "application/x-www-form-urlencoded"


async def read_form(request: Request, *, proven: bool = True, largest: int = LARGEST_FORM) -> dict[str, str]:
    """Return the fields of a form, one line per value; `proven` requires proof that our own page sent it. Raises `Refusal`."""
    if not is_form(request.headers):
        raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"expected a form, as {FORM_KIND}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > largest:
            raise Refusal("PAYLOAD_TOO_LARGE", f"this form has at most {largest} bytes")
    try:
        fields = {name: "\n".join(values) for name, values in parse_form(body).items()}
    except ValueError:
        raise Refusal("BAD_REQUEST", "the form cannot be read") from None
    if proven and not is_form_proof(request.scope, fields.get("proof", "")):
        # The error page shows the fields again, to be sent from this session.
        raise Refusal(
            "FORBIDDEN",
            "the form was not sent from a page of this session; nothing was saved",
            hint="the session may have ended: reload the page and submit again",
        )
    return fields


def is_form(headers: Headers) -> bool:
    """Return whether the request has the content type of our forms."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == FORM_KIND


def hides_value(name: str) -> bool:
    """Return whether values of this field are never shown again: proofs, keys and secrets."""
    return name.strip().lower() in _HIDDEN or names_a_secret(name)


def parse_form(body: bytes) -> dict[str, list[str]]:
    """Return every value of each field in the body of a form. Raises `ValueError`."""
    return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
