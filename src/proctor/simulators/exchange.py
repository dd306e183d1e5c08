"""Requests and responses of simulated systems as plain values, independent of how they are served."""

from __future__ import annotations

from typing import cast

import msgspec

from proctor.codecs.http import decode_percent, decode_query, encode_query
from proctor.model.evidence import InnerRequest, Json
from proctor.model.json_values import NotJson, is_number
from proctor.model.json_values import read_json as read_json_text
from proctor.model.show import kind_of, show
from proctor.work import spend

_TYPE_JSON = "application/json"
_BYTES_PER_STEP = 16
"""Bytes of an answer that count as one step of work, which limits an answer, including a batch, to 24 MB."""
GO_ON = "WEBHOOK"
"""The method by which the server lets a system continue (`Response.then`); no client can send it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a simulated system."""

    method: str
    path: str = "/"
    """Relative to the root of the system, percent-encoded, without the query."""
    query: tuple[tuple[str, str], ...] = ()
    """Decoded names and values in order."""
    headers: dict[str, str] = {}
    """By their names in lower case."""
    body: bytes = b""
    base: str = ""
    """The address of the system as the client wrote it, for links that must be absolute."""
    token: str = ""
    """The token of the sandbox, for a system that issues it; never part of an event."""
    fetched: tuple[Fetched, ...] = ()
    """Results of outgoing requests for this request (`Errand`), in order."""

    @property
    def target(self) -> str:
        """Path and query, as stored in an event."""
        return f"{self.path}?{encode_query(self.query)}" if self.query else self.path


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a simulated system."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}
    then: str = ""
    """Remaining work: a path that the server requests with `GO_ON` after sending this response."""
    inside: tuple[InnerRequest, ...] = ()
    """The nested requests of a batch; stored with its event."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an outgoing request."""

    url: str
    status: int = 0
    body: bytes = b""
    problem: str = ""
    """Why there is no answer."""


class Errand(Exception):
    """Raised when a system must make an outgoing request before it can answer.

    Systems have no network access: the server makes the request, and repeats the original one with the result.
    """

    def __init__(self, method: str, url: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        super().__init__(url)
        self.method = method
        self.url = url
        self.body = body
        self.headers = headers if headers is not None else {"content-type": _TYPE_JSON} if body else {}


class Refused(Exception):
    """A rejected request; `response` has the reason. Raised inside a system only: its simulator returns the response."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def answer_json(status: int, value: Json, *, headers: dict[str, str] | None = None, kind: str = _TYPE_JSON) -> Response:
    """Return a response with a JSON body. Raises `CheckFault` if it is too large."""
    # List items one by one: an answer that is too large is never completely in memory.
    if isinstance(value, dict):
        value = {name: _encode_items(member) for name, member in cast("dict[str, Json]", value).items()}
    return Response(status=status, body=msgspec.json.encode(_encode_items(value)), headers={"content-type": kind, **(headers or {})})


def _encode_items(value: Json) -> Json:
    return [_encode_item(item) for item in cast("list[Json]", value)] if isinstance(value, list) else value


def _encode_item(item: Json) -> msgspec.Raw:
    encoded = msgspec.json.encode(item)
    spend(1 + len(encoded) // _BYTES_PER_STEP)
    return msgspec.Raw(encoded)


def refuse(status: int, code: str, message: str, **more: Json) -> Refused:
    """Return the refusal of a request as JSON with a code and a message."""
    return Refused(answer_json(status, {"error": {"code": code, "message": message, **more}}))


FORM = "application/x-www-form-urlencoded"


def split_path(request: Request) -> list[str]:
    """Return the decoded segments of the path; the root has none."""
    return [decode_percent(part) for part in request.path.split("/") if part]


def require_method(request: Request, *known: str) -> None:
    """Reject a method that a path does not support."""
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
    """Return the fields of a form; if a name is repeated, the last value counts."""
    return dict(decode_query(request.body.decode("utf-8", "replace")))


def read_json(request: Request) -> Json:
    """Return the JSON value of the body."""
    try:
        return read_json_text(request.body)
    except NotJson as error:
        raise refuse(400, "bad_json", f"the body is not JSON: {error}") from None


def read_object(request: Request) -> dict[str, Json]:
    """Return the JSON object of the body, or the fields of a form."""
    if is_form(request):
        return dict(read_form(request))
    value = read_json(request)
    if not isinstance(value, dict):
        raise refuse(422, "wrong_body", f"expected an object, found {kind_of(value)}")
    return cast("dict[str, Json]", value)


def read_payload(request: Request) -> tuple[str, bool]:
    """Return the message in a body, directly or under `payload` in its JSON, and whether the body is JSON."""
    # A body that is not JSON is the message itself, whatever its content type: many clients send none.
    is_json = "json" in request.headers.get("content-type", "") or request.body.lstrip().startswith(b"{")
    return take_text(read_object(request), "payload", default="") if is_json else read_text(request), is_json


def take_text(members: dict[str, Json], name: str, *, default: str | None = None) -> str:
    """Return a member as text; a missing one is the default, or rejected without one."""
    value = members.get(name)
    if value is None and default is not None:
        return default
    if is_number(value):
        return str(value)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise refuse(422, "wrong_value", f"{name}: expected text, found {'nothing' if value is None else show(value)}")
    return value


def refusal_message(refused: Refused) -> str:
    """Return the message of a refusal made by `refuse`."""
    return str(msgspec.json.decode(refused.response.body)["error"]["message"])


def is_code(refused: Refused, code: str) -> bool:
    """Return whether a refusal made by `refuse` has this code."""
    return msgspec.json.decode(refused.response.body)["error"]["code"] == code
