"""Answers rejected requests in the format of the dialect that the path belongs to.

    /public/...     Mibo: {success: false, error: {code, message, details: [{location, path, msg, type}]}, timestamp}
    /v1/...         OpenTelemetry: a google.rpc.Status, in the encoding of the request
    /api/...        ours: {error: {code, message, details: {field: [text]}, hint?, problems?}}
    /ui/...         an error page
    .../{id}/fhir/  below a sandbox or a run: a FHIR OperationOutcome
    the rest        Verial: the same without `hint`

Bugs are answered with the request id and nothing else.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import iter_route_contexts
from sqlalchemy.exc import IntegrityError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import compile_path
from starlette.types import Scope

from proctor.errors import InputError, StoreError
from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.pages.error_page import make_error_page
from proctor.service.hub import stamp
from proctor.service.refusals import Place, Refusal
from proctor.simulators.sandbox import refuse_for

PROTOBUF = "application/x-protobuf"
_OTLP = ("/v1/traces", "/v1/logs")
_FHIR = re.compile(r"/(?:sandboxes|v1/benchmark-runs)/[^/]+/fhir(?:/|$)")
RETRY_UNAVAILABLE_S = 2.0
_MIBO_CODES = {
    "BAD_REQUEST": "VALIDATION_ERROR",
    "FORBIDDEN": "AUTH_ERROR",
    "NOT_FOUND": "PLATFORM_NOT_FOUND",
    "REQUEST_TIMEOUT": "VALIDATION_ERROR",
    "CONFLICT": "VALIDATION_ERROR",
    "UNSUPPORTED_MEDIA_TYPE": "VALIDATION_ERROR",
    "UNAVAILABLE": "INTERNAL_SERVER_ERROR",
    "INTERNAL_ERROR": "INTERNAL_SERVER_ERROR",
}
# https://grpc.io/docs/guides/status-codes/
_RPC_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 409: 10, 413: 8, 415: 3, 429: 8, 500: 13, 503: 14}
_HTTP_CODES = {400: "BAD_REQUEST", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_MOST_FIELDS = 50
_PLACES: dict[str, Place] = {"header": "headers", "query": "query", "path": "params"}


def find_dialect(path: str) -> str:
    """Return the dialect of a path: `mibo`, `otlp`, `ours`, `pages`, `fhir` or `verial`."""
    if path.startswith("/public/"):
        return "mibo"
    if path in _OTLP:
        return "otlp"
    if path == "/ui" or path.startswith("/ui/"):
        return "pages"
    if _FHIR.match(path):
        return "fhir"
    return "ours" if path.startswith("/api/") else "verial"


def make_refusal_response(scope: Scope, refusal: Refusal) -> Response:
    """Return the response to a rejected request."""
    headers: dict[str, str] = {}
    if refusal.retry_after_s is not None:
        # The header has whole seconds, and 0 would mean immediately.
        headers["retry-after"] = str(max(1, math.ceil(refusal.retry_after_s)))
    if refusal.status == 401:
        headers["www-authenticate"] = 'Bearer realm="proctor"'
    return _make_response(scope, refusal.status, refusal.code, refusal, headers)


def make_error_response(scope: Scope, error: Exception) -> Response | None:
    """Return the response to an error that the caller can fix or retry; None for a bug."""
    match error:
        case Refusal():
            return make_refusal_response(scope, error)
        case StoreError():
            return make_refusal_response(scope, Refusal("UNAVAILABLE", str(error), retry_after_s=RETRY_UNAVAILABLE_S))
        case InputError():
            return make_refusal_response(scope, Refusal("VALIDATION_ERROR", str(error)))
        # Two requests created the same row at the same time, and the database accepted one.
        case IntegrityError():
            return make_refusal_response(scope, Refusal("CONFLICT", "another request created the same object; reload and try again"))
        case RequestValidationError():
            body = getattr(scope.get("route"), "body_field", None)
            model = getattr(getattr(body, "field_info", None), "annotation", None)
            fields: dict[str, Any] = getattr(model, "model_fields", {})
            return make_refusal_response(scope, _make_refusal(error.errors(), [field.alias or name for name, field in fields.items()]))
        case HTTPException():
            return _answer_http_error(scope, error)
        case _:
            return None


def make_bug_response(scope: Scope, request_id: str) -> Response:
    """Return the response to a bug, without anything useful to an attacker."""
    return make_refusal_response(scope, Refusal("INTERNAL_ERROR", f"internal error; the log has details under request id {request_id}"))


def install_handlers(app: FastAPI) -> None:
    """Make `app` answer every error in the right dialect. Bugs are left to `RequestRecorder`, which logs them."""

    def answer(request: Request, error: Exception) -> Response:
        response = make_error_response(request.scope, error)
        if response is None:
            raise error
        return response

    for kind in (Refusal, StoreError, InputError, IntegrityError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)


def _answer_http_error(scope: Scope, error: HTTPException) -> Response:
    code = _HTTP_CODES.get(error.status_code, "BAD_REQUEST" if error.status_code < 500 else "INTERNAL_ERROR")
    messages = {404: "there is nothing at this address", 405: "this address does not support this method"}
    message = messages.get(error.status_code) or str(error.detail)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        methods: set[str] = set()
        for context in iter_route_contexts(scope["app"].routes):
            if context.path is not None and compile_path(context.path)[0].match(scope["path"]):
                methods |= set(context.methods or ())
        headers["Allow"] = ", ".join(sorted(methods))
    return _make_response(scope, error.status_code, code, Refusal("BAD_REQUEST", message), headers)


def _describe_error(error: Any, path: Sequence[str], known: Sequence[str]) -> str:
    """Return what is wrong with a field, and for an unknown field the nearest known names."""
    if error["type"] != "extra_forbidden":
        return error["msg"]
    close = nearest(path[0], known) if len(path) == 1 else ()
    hint = f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}" if len(path) == 1 and known else ""
    return f"unknown field; {hint}" if hint else "unknown field"


def _make_refusal(errors: Sequence[Any], known: Sequence[str]) -> Refusal:
    fields: dict[str, list[str]] = {}
    places: dict[str, Place] = {}
    # A hostile body has an error in every value, and each would be listed.
    for error in errors[:_MOST_FIELDS]:
        where = [str(part) for part in error["loc"]]
        place, path = (where[0], where[1:]) if where else ("body", [])
        if error["type"] == "json_invalid":
            return Refusal("BAD_REQUEST", f"the body is not JSON: {error.get('ctx', {}).get('error', 'it cannot be read')}")
        name = ".".join(path) or place
        fields.setdefault(name, []).append(_describe_error(error, path, known))
        places[name] = _PLACES.get(place, "body")
    return Refusal("VALIDATION_ERROR", "the request has invalid fields", fields=fields, places=places)


def _make_response(scope: Scope, status: int, code: str, refusal: Refusal, headers: dict[str, str]) -> Response:
    match find_dialect(scope["path"]):
        case "mibo":
            return JSONResponse(_write_mibo(scope, code, refusal), status, headers)
        case "otlp":
            return _write_otlp(scope, status, refusal, headers)
        case "ours":
            return JSONResponse(_write_verial(code, refusal, ours=True), status, headers)
        case "fhir":
            answer = refuse_for("fhir", status, code, _join_message(refusal))
            return Response(answer.body, status, {**answer.headers, **headers})
        case "pages":
            return make_error_page(scope, status, code, refusal, headers)
        case _:
            return JSONResponse(_write_verial(code, refusal, ours=False), status, headers)


def _join_message(refusal: Refusal) -> str:
    return refusal.message if refusal.hint is None else f"{refusal.message}; {refusal.hint}"


def _write_verial(code: str, refusal: Refusal, *, ours: bool) -> Json:
    error: dict[str, Json] = {"code": code, "message": refusal.message, "details": refusal.fields}
    if ours and refusal.hint is not None:
        error["hint"] = refusal.hint
    if ours and refusal.problems:
        error["problems"] = list(refusal.problems)
    return {"error": error}


def _write_mibo(scope: Scope, code: str, refusal: Refusal) -> Json:
    if code == "UNAUTHORIZED":
        code = "INVALID_API_KEY" if find_presented_key(scope) else "MISSING_API_KEY"
    details = [
        {"location": refusal.places.get(name, "body"), "path": name, "msg": text, "type": "field"}
        for name, texts in refusal.fields.items()
        for text in texts
    ]
    message = _join_message(refusal)
    error = {"code": _MIBO_CODES.get(code, code), "message": message, "details": details}
    return {"success": False, "error": error, "timestamp": stamp(time.time())}


def _write_otlp(scope: Scope, status: int, refusal: Refusal, headers: dict[str, str]) -> Response:
    number = _RPC_CODES.get(status, 2)
    message = _join_message(refusal)
    if Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower() != PROTOBUF:
        return JSONResponse({"code": number, "message": message}, status, headers)
    text = message.encode("utf-8", errors="replace")[:10_000]
    # google.rpc.Status: field 1 is the code, field 2 the message.
    body = bytes([0x08, number, 0x12]) + encode_varint(len(text)) + text
    return Response(body, status, headers, media_type=PROTOBUF)


def encode_varint(number: int) -> bytes:
    """Return a whole number as a protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def find_presented_key(scope: Scope) -> str | None:
    """Return the key of a request: `Authorization: Bearer ...` or `x-api-key`."""
    headers = Headers(scope=scope)
    scheme, _, word = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and word.strip():
        return word.strip()
    return headers.get("x-api-key", "").strip() or None
