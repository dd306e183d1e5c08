"""What the simulated systems read from requests: paths in parts, JSON objects, forms. What cannot be read is refused."""

from __future__ import annotations

from typing import cast

import msgspec

from proctor.codecs.query import decode_percent, decode_query
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import kind_of, show
from proctor.simulators.exchange import Refused, Request, refuse

FORM = "application/x-www-form-urlencoded"


def split_path(request: Request) -> list[str]:
    """Return the parts of the path, decoded; the root has none."""
    return [decode_percent(part) for part in request.path.split("/") if part]


def require_method(request: Request, *known: str) -> None:
    """Refuse a method that a path does not take."""
    if request.method not in known:
        raise refuse(405, "method_not_allowed", f"{request.path} takes {', '.join(known)}, not {request.method}")


def is_form(request: Request) -> bool:
    """Return whether the body is a form of names and values."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def read_text(request: Request) -> str:
    """Return the body as text: UTF-8, else Latin-1, which every body is."""
    try:
        return request.body.decode()
    except UnicodeDecodeError:
        return request.body.decode("latin-1")


def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of a name that comes twice the last one counts."""
    return dict(decode_query(request.body.decode("utf-8", "replace")))


def read_json(request: Request) -> Json:
    """Return the JSON value that is the body."""
    try:
        return msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise refuse(400, "bad_json", f"the body is not JSON: {error}") from None


def read_object(request: Request) -> dict[str, Json]:
    """Return the JSON object that is the body, or the fields of a form."""
    if is_form(request):
        return dict(read_form(request))
    value = read_json(request)
    if not isinstance(value, dict):
        raise refuse(422, "wrong_body", f"expected an object, found {kind_of(value)}")
    return cast("dict[str, Json]", value)


def read_payload(request: Request) -> tuple[str, bool]:
    """Return the message that a body is, or that its JSON has under `payload`; and whether it is JSON."""
    # A body that is not JSON is the message itself, whatever its content type: many clients send none.
    is_json = "json" in request.headers.get("content-type", "") or request.body.lstrip().startswith(b"{")
    return take_text(read_object(request), "payload", default="") if is_json else read_text(request), is_json


def take_text(given: dict[str, Json], name: str, *, default: str | None = None) -> str:
    """Return a member that is text, or a number as text; one that is not there is the default, or refused without one."""
    value = given.get(name)
    if value is None and default is not None:
        return default
    if is_number(value):
        return str(value)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise refuse(422, "wrong_value", f"{name}: expected text, found {'nothing' if value is None else show(value)}")
    return value


def refusal_message(refused: Refused) -> str:
    """Return the sentence of a refusal that was made by `refuse`."""
    return str(msgspec.json.decode(refused.response.body)["error"]["message"])


def is_code(refused: Refused, code: str) -> bool:
    """Return whether a refusal that was made by `refuse` has this code."""
    return msgspec.json.decode(refused.response.body)["error"]["code"] == code
