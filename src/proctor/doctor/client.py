"""A strict client: it sends exactly what it is given, records every message, and repairs nothing.

The client of the `mcp` package is tolerant by design: it skips lines that are no messages, drops responses with unknown ids, and hides
the status of HTTP. Here all of that is evidence. The client declares no capabilities, so it answers a `ping` and refuses all else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from proctor import __version__
from proctor.doctor.model import HANDSHAKE, Message
from proctor.doctor.recording import Frame, Recording
from proctor.model.evidence import Json

CLIENT: Final = {"name": "proctor-doctor", "version": __version__}
META: Final = "io.modelcontextprotocol/"
MOST_PAGES: Final = 100
"""Pages of one list."""
MOST_ITEMS: Final = 20_000
"""Items of one list."""


TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension that carries tasks in the stateless era."""
_NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/cancel", "tasks/update"), "taskId"),
}
"""The parameter that the header `Mcp-Name` repeats."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to one request."""

    request: Frame | None = None
    response: Frame | None = None
    fields: Mapping[str, Any] = {}
    """The response message; empty if there is none."""
    problem: str = ""
    """Why there is no response."""
    status: int = 0
    """The status of HTTP; 0 over stdio."""
    headers: Mapping[str, str] = {}
    others: tuple[Frame, ...] = ()
    """Over HTTP: the other messages of the same stream."""
    body: bytes = b""
    """Over HTTP: the beginning of a body that is no message."""

    @property
    def result(self) -> Json:
        """The result; None for an error or no response."""
        return self.fields.get("result")

    @property
    def error(self) -> Mapping[str, Any] | None:
        """The error; None for a result or no response."""
        error = self.fields.get("error")
        return error if isinstance(error, dict) else {} if "error" in self.fields else None

    @property
    def code(self) -> Json:
        """The code of the error."""
        return None if self.error is None else self.error.get("code")

    @property
    def shown(self) -> Frame | None:
        """The frame to show as evidence: the response, else the first thing that came back."""
        return self.response or (self.others[0] if self.others else None)

    @property
    def is_error_result(self) -> bool:
        """Whether the tool reported a failure."""
        return isinstance(self.result, dict) and self.result.get("isError") is True

    def describe(self) -> str:
        """Return a short description of the reply."""
        if self.error is not None:
            return "an error without a code" if self.code is None else f"error {self.code}"
        if self.response is not None:
            return "a result with `isError`" if self.is_error_result else "a result"
        return self.problem or f"HTTP {self.status}"


class Link(Protocol):
    """One connection to a server."""

    recording: Recording
    answers: Mapping[str, Json]
    """Results for requests of the server, by method; others are refused."""

    @property
    def overflow(self) -> str:
        """Why the connection was given up: the server sent more than is recorded. Empty otherwise."""
        ...

    async def exchange(self, message: Mapping[str, Json] | bytes, *, timeout_s: float, headers: Mapping[str, str | None]) -> Reply:
        """Send a message and wait for its response; a notification has none. A header of None is not sent."""
        ...

    def is_open(self) -> bool:
        """Return whether messages can still be exchanged."""
        ...

    def explain_end(self) -> str:
        """Return why the connection ended."""
        ...

    async def wait(self, seconds: float) -> None:
        """Wait for messages that were not requested."""
        ...


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A list with all its pages."""

    items: tuple[Mapping[str, Any], ...] = ()
    pages: tuple[Reply, ...] = ()
    problem: str = ""
    """Why the list is not complete."""
    endless: str = ""
    """Why its pages do not end."""

    @property
    def first(self) -> Reply:
        """The first page."""
        return self.pages[0] if self.pages else Reply(problem="not requested")


class Session:
    """Requests in the form of one revision."""

    def __init__(self, link: Link, revision: str, *, timeout_s: float = 10.0, quiet_s: float = 0.3) -> None:
        self.link = link
        self.offered = revision
        self.revision = revision
        """The negotiated revision, after `initialize`."""
        self.timeout_s = timeout_s
        self.quiet_s = quiet_s
        """Seconds in which a message that must not come would arrive."""
        self.session_id: str | None = None
        self.capabilities: Mapping[str, Any] = {}
        self.declared: dict[str, Json] = {}
        """The capabilities of the client."""
        self._ids: Iterator[int] = itertools.count(1)

    @property
    def recording(self) -> Recording:
        """The messages of this session."""
        return self.link.recording

    def show(self, reply: Reply) -> tuple[Message | None, Message | None]:
        """Return request and response of an exchange as evidence."""
        return self.recording.show(reply.request), self.recording.show(reply.shown)

    @property
    def has_tasks(self) -> bool:
        """Whether the server declared tasks of tool calls, in the form of its era."""
        place, key = ("extensions", TASKS) if self.is_stateless else ("tasks", "requests")
        declared = self.capabilities.get(place)
        return isinstance(declared, dict) and key in declared

    def declare_tasks(self) -> dict[str, Json]:
        """Return the parameters by which a request of the stateless era declares tasks; nothing before it."""
        if not self.is_stateless:
            return {}
        return {"_meta": {f"{META}clientCapabilities": {**self.declared, "extensions": {TASKS: {}}}}}

    @property
    def is_stateless(self) -> bool:
        """Whether every request carries its version and capabilities."""
        return self.offered not in HANDSHAKE

    def make_request(self, method: str, params: Mapping[str, Json] | None = None, *, identity: Json = None) -> dict[str, Json]:
        """Return a request of this revision."""
        message: dict[str, Json] = {"jsonrpc": "2.0", "id": next(self._ids) if identity is None else identity, "method": method}
        if self.is_stateless:
            fields = dict(params or {})
            meta = {f"{META}protocolVersion": self.revision, f"{META}clientInfo": CLIENT, f"{META}clientCapabilities": self.declared}
            message["params"] = {**fields, "_meta": {**meta, **(fields.get("_meta") or {})}}
        elif params is not None:
            message["params"] = dict(params)
        return message

    def make_headers(self, message: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the headers that HTTP demands with a message."""
        headers: dict[str, str | None] = {}
        if self.is_stateless:
            headers["MCP-Protocol-Version"] = self.revision
            headers["Mcp-Method"] = str(message.get("method", ""))
            params = message.get("params") or {}
            name = params.get(_NAMED_BY.get(str(message.get("method")), ""))
            if isinstance(name, str):
                headers["Mcp-Name"] = name
        elif message.get("method") != "initialize" and self.revision >= "2025-06-18":
            headers["MCP-Protocol-Version"] = self.revision
        if self.session_id is not None:
            headers["Mcp-Session-Id"] = self.session_id
        return headers

    async def request(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        timeout_s: float | None = None,
        identity: Json = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Reply:
        """Send a request and return the reply; never raises, whatever the server does."""
        return await self.send(self.make_request(method, params, identity=identity), timeout_s=timeout_s, headers=headers)

    async def notify(self, method: str, params: Mapping[str, Json] | None = None) -> Reply:
        """Send a notification."""
        return await self.send({"jsonrpc": "2.0", "method": method, **({"params": dict(params)} if params is not None else {})})

    async def send(
        self, message: Mapping[str, Json] | bytes, *, timeout_s: float | None = None, headers: Mapping[str, str | None] | None = None
    ) -> Reply:
        """Send any message, correct or not, with the usual headers and the given ones."""
        usual = self.make_headers(message if isinstance(message, Mapping) else {})
        return await self.link.exchange(message, timeout_s=timeout_s or self.timeout_s, headers={**usual, **(headers or {})})

    async def list_all(self, method: str, key: str) -> Listed:
        """Return a list with all its pages."""
        items: list[Mapping[str, Any]] = []
        pages: list[Reply] = []
        cursors: set[str] = set()
        cursor: Json = None
        while True:
            reply = await self.request(method, {} if cursor is None else {"cursor": cursor})
            pages.append(reply)
            result = reply.result
            page_items = result.get(key) if isinstance(result, dict) else None
            if not isinstance(page_items, list) or not isinstance(result, dict):
                return Listed(items=tuple(items), pages=tuple(pages), problem=reply.describe())
            items += [item for item in page_items if isinstance(item, dict)]
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                return Listed(items=tuple(items), pages=tuple(pages))
            endless = ""
            if cursor in cursors:
                endless = f"the cursor {cursor[:40]!r} came twice"
            elif len(pages) >= MOST_PAGES or len(items) >= MOST_ITEMS:
                endless = f"no end after {len(pages)} pages with {len(items)} items"
            if endless:
                first = len(pages[0].result[key]) if isinstance(pages[0].result, dict) else 0
                return Listed(items=tuple(items[:first]), pages=tuple(pages), endless=endless)
            cursors.add(cursor)
