"""The MCP server on standard input and output, without the library of the protocol, whose models take half a second to build.

A client begins with `initialize` or, since 2026-07-28, names its version in every request. What the server has is listed from a file; the
code of the tools is loaded with the first call.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from proctor.mcp_server import protocol
from proctor.mcp_server.protocol import ProtocolError
from proctor.model.evidence import Json
from proctor.model.typed import decode_json
from proctor.processes.threads import run_in_thread

if TYPE_CHECKING:
    from proctor.mcp_server.server import McpServer, OpenDesk

_LOG = logging.getLogger("proctor.mcp")
_META = "io.modelcontextprotocol/"
_VERSION, _CAPABILITIES = f"{_META}protocolVersion", f"{_META}clientCapabilities"
_LEAVING_S = 5.0


class _Message(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    method: str = ""
    params: dict[str, Json] = {}


class Connection:
    """Answers the messages of one client; `write` takes each answer."""

    def __init__(self, open_desk: OpenDesk, write: Callable[[bytes], None]) -> None:
        self._open_desk = open_desk
        self._write = write
        self._loading = asyncio.Lock()
        self._server: McpServer | None = None
        self.calls: dict[Json, asyncio.Task[None]] = {}
        """The calls that have not ended, by the id of their request."""

    def receive(self, line: bytes) -> None:
        """Answer a message, at once or when its call has ended."""
        try:
            message = decode_json(line, _Message)
        except msgspec.ValidationError as error:
            self._fail(None, ProtocolError(protocol.INVALID_REQUEST, f"this is no message: {error}"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._fail(None, ProtocolError(protocol.PARSE_ERROR, f"this is no JSON: {error}"))
        else:
            if message.id is not msgspec.UNSET and message.method:
                self._answer(message.id, message.method, message.params)
            elif message.method == "notifications/cancelled":
                called: Json = message.params.get("requestId")
                if isinstance(called, int | str) and called in self.calls:
                    self.calls[called].cancel()

    def _answer(self, id: int | str, method: str, params: dict[str, Json]) -> None:
        try:
            stateless = is_stateless(method, params)
            if method == "resources/read" and (page := protocol.find_doc(params)) is not None:
                self._succeed(id, method, page, stateless=stateless)
            elif method in protocol.CALLS:
                task = self.calls[id] = asyncio.get_running_loop().create_task(self._call(id, method, params, stateless=stateless))
                task.add_done_callback(lambda task: self.calls.get(id) is task and self.calls.pop(id))
            elif method in protocol.LISTS:
                self._succeed(id, method, protocol.read_list(protocol.load_lists(), method, params), stateless=stateless)
            else:
                self._succeed(id, method, begin(method, params, stateless=stateless), stateless=stateless)
        except ProtocolError as error:
            self._fail(id, error)

    async def _call(self, id: int | str, method: str, params: dict[str, Json], *, stateless: bool) -> None:
        try:
            server = await self._load()
            result = await server.answer(method, params, self._open_desk, stateless=stateless)
            self._succeed(id, method, result, stateless=stateless)
        except ProtocolError as error:
            self._fail(id, error)
        except Exception:
            _LOG.exception("a request failed: %s", method)
            self._fail(id, ProtocolError(protocol.INTERNAL_ERROR, "internal error; see the log of the server"))

    async def _load(self) -> McpServer:
        async with self._loading:
            if self._server is None:
                # In a daemon thread: other requests are answered meanwhile, and the process can end.
                self._server, error = await run_in_thread(_load_server, contextvars.copy_context(), "loading")
                if error is not None:
                    raise error
        assert self._server is not None
        return self._server

    async def close(self) -> None:
        """Cancel the calls that have not ended."""
        for task in (tasks := list(self.calls.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _succeed(self, id: int | str, method: str, result: dict[str, Json], *, stateless: bool) -> None:
        if stateless:
            result = {**protocol.complete_result(method, result), "_meta": {f"{_META}serverInfo": protocol.SERVER}}
        self._write(msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": result}))

    def _fail(self, id: int | str | None, error: ProtocolError) -> None:
        data = {} if error.data is None else {"data": error.data}
        self._write(msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": {"code": error.code, "message": error.message, **data}}))


def is_stateless(method: str, params: Mapping[str, Json]) -> bool:
    """Return whether a request names its version. Raises `ProtocolError` for an unknown version."""
    meta: Json = params.get("_meta")
    if method == "initialize" or not isinstance(meta, dict) or _VERSION not in meta:
        return False
    version: Json = meta[_VERSION]
    if not isinstance(version, str) or not isinstance(meta.get(_CAPABILITIES), dict):
        raise ProtocolError(protocol.INVALID_PARAMS, f"expected a text `{_VERSION}` and an object `{_CAPABILITIES}` in `_meta`")
    if version not in protocol.STATELESS_VERSIONS:
        supported = {"supported": list(protocol.STATELESS_VERSIONS), "requested": version}
        raise ProtocolError(protocol.UNSUPPORTED_VERSION, "unsupported protocol version", supported)
    return True


def begin(method: str, params: Mapping[str, Json], *, stateless: bool) -> dict[str, Json]:
    """Return the result of a request about the server itself. Raises `ProtocolError` for an unknown method."""
    match method, stateless:
        case "initialize", False:
            version: Json = params.get("protocolVersion")
            if not isinstance(version, str):
                raise ProtocolError(protocol.INVALID_PARAMS, "expected a text `protocolVersion`")
            chosen = version if version in protocol.HANDSHAKE_VERSIONS else protocol.HANDSHAKE_VERSIONS[-1]
            return {"protocolVersion": chosen, "serverInfo": protocol.SERVER, **protocol.OFFERED}
        case "ping", False:
            return {}
        case "server/discover", True:
            return protocol.DISCOVERED
        case _:
            raise ProtocolError(protocol.NOT_FOUND, "method not found", method)


def _load_server() -> McpServer:
    from proctor.mcp_server.server import McpServer

    return McpServer(local=True)


async def over_stdio(open_desk: OpenDesk) -> None:
    """Serve one client on standard input and output until it closes one of them."""
    # The protocol has the streams to itself: what a function or program under test prints goes to standard error, and it reads nothing.
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    connection = Connection(open_desk, answers.put)

    def read() -> None:
        try:
            for line in source:
                if line.strip():
                    loop.call_soon_threadsafe(connection.receive, line)
        finally:
            loop.call_soon_threadsafe(ended.set)

    def write() -> None:
        try:
            while (answer := answers.get()) is not None:
                sink.write(answer + b"\n")
                sink.flush()
        except OSError:
            # The client no longer reads.
            loop.call_soon_threadsafe(ended.set)

    # Daemon threads: a client that neither sends nor reads anything delays no signal.
    threading.Thread(target=read, daemon=True).start()
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    await ended.wait()
    await connection.close()
    answers.put(None)
    await asyncio.to_thread(writer.join, _LEAVING_S)
