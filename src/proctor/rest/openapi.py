"""The OpenAPI document.

FastAPI knows the models. This module adds the error responses of each dialect and the security schemes. Invalid bodies are answered 400,
never FastAPI's 422.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response

from proctor.rest.errors import find_dialect
from proctor.rest.security import is_open, is_shared

_REASONS = {
    "400": "The request is invalid.",
    "401": "The key is missing, unknown, revoked or expired.",
    "403": "The key does not allow this.",
    "404": "Not found, or owned by another organization.",
    "408": "The body did not arrive in time.",
    "409": "The current state does not allow this.",
    "413": "The body is too large.",
    "415": "The content encoding is not supported.",
    "429": "Too many requests; `Retry-After` has the seconds to wait.",
    "500": "Internal error.",
    "503": "The database is unavailable or the service is overloaded; `Retry-After` has the seconds to wait.",
}
_WITHOUT_KEY = ("400", "403", "413", "415", "500", "503")
_BY_LINK = (*_WITHOUT_KEY, "404", "429")
_TEXTS = {"type": "array", "items": {"type": "string"}}
_PROBLEM = {
    "type": "object",
    "description": "A finding in a document.",
    "required": ["message"],
    "properties": {
        "message": {"type": "string"},
        "line": {"type": ["integer", "null"]},
        "column": {"type": ["integer", "null"]},
        "path": {"type": "string"},
        "code": {"type": ["string", "null"]},
        "level": {"type": "string"},
        "expected": {"type": ["string", "null"]},
        "nearest": _TEXTS,
        "hint": {"type": ["string", "null"]},
    },
}


def _describe_error(details: str | None = None, **more: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an error with a code, a message and details by field."""
    described = {"type": "object", "additionalProperties": _TEXTS} | ({} if details is None else {"description": details})
    properties = {"code": {"type": "string"}, "message": {"type": "string"}, "details": described, **more}
    error = {"type": "object", "required": ["code", "message", "details"], "properties": properties}
    return {"type": "object", "required": ["error"], "properties": {"error": error}}


_ERRORS: dict[str, dict[str, Any]] = {
    "ours": _describe_error(
        "What is wrong, by field.",
        hint={"type": "string", "description": "The next step."},
        problems={"type": "array", "items": {"$ref": "#/components/schemas/Problem"}},
    ),
    "verial": _describe_error(),
    "mibo": {
        "type": "object",
        "required": ["success", "error", "timestamp"],
        "properties": {
            "success": {"const": False},
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "details": {"type": "array", "items": {"type": "object"}},
                },
            },
            "timestamp": {"type": "string"},
        },
    },
    "otlp": {
        "type": "object",
        "description": "google.rpc.Status",
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
    },
}
_NAMES = {"ours": "Error", "verial": "VerificationError", "mibo": "TraceError", "otlp": "Status"}
_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "`proctor_org_...`, `vrl_slv_...`, `vrl_run_...`, `vrl_sbx_...` or `proctor_proj_...`",
    },
    "api_key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same keys in the header that Mibo's clients use.",
    },
}


def add_document_route(app: FastAPI) -> None:
    """Add `GET /openapi.json`: built once, in a thread since it takes a second, and needing no key."""
    app.openapi = lambda: make_document(app)
    document: list[bytes] = []
    making = asyncio.Lock()

    async def answer(_request: Request) -> Response:
        # Concurrent requests wait for the first one and do not build it again.
        async with making:
            if not document:
                document.append(await asyncio.to_thread(lambda: msgspec.json.encode(app.openapi())))
        return Response(document[0], media_type="application/json")

    app.add_route("/openapi.json", answer, include_in_schema=False)


def make_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of `app`, built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="proctor",
            version=app.version,
            description="Test AI agents: receive traces, store results, run suites, verify criteria.",
            routes=app.routes,
        )
        components: dict[str, Any] = document.setdefault("components", {})
        schemas: dict[str, Any] = components.setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schemas |= {_NAMES[dialect]: schema for dialect, schema in _ERRORS.items()} | {"Problem": _PROBLEM}
        components["securitySchemes"] = _SCHEMES
        document = _rename_schemas(document)
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _complete_operation(path, operation)
        app.openapi_schema = document
    return app.openapi_schema


def _rename_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with readable names: `ProjectPage` for `PageOf_Project_`, `RunsNewRun` for a name that two modules share."""
    names: dict[str, str] = {}
    for name in document["components"]["schemas"]:
        better = re.sub(r"^PageOf_(.+)_$", r"\1Page", name)
        if "__" in better:
            module, _, own = better.rpartition("__")
            better = "".join(word.capitalize() for word in module.rpartition("__")[2].split("_")) + own
        names[name] = better
    text = json.dumps(document)
    for name, better in names.items():
        # With the quotes: one name may be the beginning of another.
        text = text.replace(f'"#/components/schemas/{name}"', f'"#/components/schemas/{better}"')
    renamed: dict[str, Any] = json.loads(text)
    renamed["components"]["schemas"] = {names[name]: schema for name, schema in renamed["components"]["schemas"].items()}
    return renamed


def _complete_operation(path: str, operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation["responses"]
    declared_422 = responses.get("422", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if declared_422.get("$ref", "").endswith("/HTTPValidationError"):
        del responses["422"]
    dialect = find_dialect(path)
    answer = {"schema": {"$ref": f"#/components/schemas/{_NAMES[dialect]}"}}
    kinds = ("application/json", "application/x-protobuf") if dialect == "otlp" else ("application/json",)
    statuses = _WITHOUT_KEY if is_open(path) else _BY_LINK if is_shared(path) else tuple(_REASONS)
    for status in statuses:
        if status not in responses:
            responses[status] = {"description": _REASONS[status], "content": dict.fromkeys(kinds, answer)}
            if status in ("429", "503"):
                responses[status]["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds."}}
    if not is_open(path) and not is_shared(path):
        operation["security"] = [{"bearer": []}, {"api_key": []}]
