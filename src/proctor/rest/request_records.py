"""The outermost layer: request ids, logs, metrics, security headers, and a response even for a bug."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.rest.errors import make_bug_response
from proctor.rest.metrics import Metrics

_LOG = logging.getLogger("proctor.serve")
_ID = re.compile(r"[\x21-\x7e]{1,255}")
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class RequestRecorder:
    """Records every request."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, and log its outcome."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent_id = Headers(scope=scope).get("x-request-id", "")
        # The id goes into the log and into a header: printable ASCII is safe in both.
        request_id = sent_id if _ID.fullmatch(sent_id) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.setdefault("x-request-id", request_id)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        started = time.perf_counter()
        self._metrics.in_flight += 1
        try:
            await self._app(scope, receive, watched)
        except Exception:
            _LOG.exception("a request failed", extra={"request_id": request_id, "route": find_route(scope)})
            if status:
                raise  # the response has started; the connection is cut
            await make_bug_response(scope, request_id)(scope, receive, watched)
        finally:
            self._metrics.in_flight -= 1
            self._record_request(scope, status, time.perf_counter() - started, request_id)

    def _record_request(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        # Clients may invent methods, and each would be a series in the metrics.
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = find_route(scope)
        self._metrics.count_request(method, route, status, seconds)
        if not _LOG.isEnabledFor(logging.INFO):
            return
        caller = scope["state"].get("caller")
        line: dict[str, object] = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "key_id": None if caller is None else caller.actor,
            "request_id": request_id,
        }
        _LOG.info("request", extra=line)


def find_route(scope: Scope) -> str:
    """Return the template of the matched route, or `(none)`."""
    route = scope.get("route")
    path = getattr(route, "path", None)
    if isinstance(path, str):
        return path
    return "/mcp" if scope["path"].startswith("/mcp") else "(none)"
