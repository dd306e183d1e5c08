"""Requests and responses of simulated systems as plain values, independent of how they are served."""

from __future__ import annotations

from typing import cast

import msgspec

from proctor.codecs.query import encode_query
from proctor.model.evidence import InnerRequest, Json
from proctor.work import spend

_TYPE_JSON = "application/json"
_BYTES_PER_STEP = 16
"""Bytes of an answer that count as one step of work, so that one answer, of a batch also, has 24 MB at most."""
GO_ON = "WEBHOOK"
"""The method by which the server lets a system continue (`Response.then`); no client can send it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a simulated system."""

    method: str
    path: str = "/"
    """Below the root of the system, still percent-encoded, without the query."""
    query: tuple[tuple[str, str], ...] = ()
    """Decoded names and values in order."""
    headers: dict[str, str] = {}
    """By their names in lower case."""
    body: bytes = b""
    base: str = ""
    """The address of the system as the client wrote it, for links that must be absolute."""
    token: str = ""
    """The token of the sandbox, for a system that hands it out itself; never part of an event."""
    fetched: tuple[Fetched, ...] = ()
    """Results of outgoing requests for this request (`Errand`), in order."""

    @property
    def target(self) -> str:
        """Path and query, as an event keeps them."""
        return f"{self.path}?{encode_query(self.query)}" if self.query else self.path


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated system answers."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}
    then: str = ""
    """Work that is left: a path that the server requests with `GO_ON` after sending this response."""
    inside: tuple[InnerRequest, ...] = ()
    """The requests inside this one, if it had several; stored with its event."""


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
    """Return a response with a JSON body. Raises `CheckFault` where the answer is too large."""
    # Items of lists one by one: an answer that is too large is never in memory as a whole.
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
