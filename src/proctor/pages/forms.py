"""Forms that pages send: small, read strictly, and only from our own pages."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from proctor.pages.session_cookie import is_form_proof
from proctor.service.refusals import Refusal

LARGEST_FORM = 200_000
"""Bytes, where a screen does not say otherwise, and of what is given back to somebody whose session has ended."""
_MOST_FIELDS = 100
FORM_KIND = "application/x-www-form-urlencoded"


async def read_form(request: Request, *, proven: bool = True, largest: int = LARGEST_FORM) -> dict[str, str]:
    """Return the fields of a form; `proven` asks for the proof that our own page sent it. Raises `Refusal`.

    `request.state.form_proven` says whether the proof is good; `request.state.form_lists` has every value of a field that came several
    times. What was sent comes back in the page that says what went wrong (`error_page.py`), so that nobody has to type it again.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_KIND:
        raise Refusal("UNSUPPORTED_MEDIA_TYPE", f"expected a form, as {FORM_KIND}")
    body = await request.body()
    if len(body) > largest:
        raise Refusal("PAYLOAD_TOO_LARGE", f"this form has at most {largest} bytes")
    try:
        found = parse_form(body)
    except ValueError:
        raise Refusal("BAD_REQUEST", "the form cannot be read") from None
    fields = {name: values[-1] for name, values in found.items()}
    request.state.form_proven = is_form_proof(request.scope, fields.get("proof", ""))
    request.state.form_lists = found
    if proven and not request.state.form_proven:
        raise Refusal(
            "FORBIDDEN",
            "the form was not sent from a page of this session, so nothing was done",
            hint="the session may have ended meanwhile: load the page again, and send it again",
        )
    return fields


def parse_form(body: bytes) -> dict[str, list[str]]:
    """Return every value of each field in the body of a form. Raises `ValueError`."""
    return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
