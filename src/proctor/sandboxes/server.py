"""Serves sandboxes on loopback: `http://127.0.0.1:PORT/SANDBOX/SYSTEM/...`, with the sandbox's token as a bearer token
or as the password of Basic authentication.

One server serves all attempts of a run. It has its own threads, so that it also answers an agent that blocks the event loop of the run.
Requests to one sandbox are handled one after the other. A closed sandbox answers 404 and a wrong token 401, so that neither answer shows
whether the other part of the request was right.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hmac
import re
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import msgspec

from proctor.codecs.http import decode_query
from proctor.errors import MissingExtra, SpecError, StoreError
from proctor.model.evidence import Json
from proctor.sandboxes.mllp import MllpServer, OpenConnections
from proctor.sandboxes.outside import fetch_outside
from proctor.simulators.exchange import GO_ON, Errand, Fetched, Request, Response, refuse
from proctor.simulators.sandbox import Sandbox
from proctor.simulators.tools import describe_wrong_call, write_tool_refusal, write_tool_result

# --- runs the remaining work of a system after its answer: a phone call continues, webhook after webhook, in the background

RunStep = Callable[[str], Awaitable[str]]
"""Runs the step of a system with this path, and returns the path of the next one, or "" if there is none."""


class BackgroundWork:
    """A thread that continues a system until it is done. `close` ends it, also during an outgoing request."""

    def __init__(self, run_step: RunStep, first_path: str) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()
        self._thread = threading.Thread(target=self._run, args=(run_step, first_path, started), name="proctor-following", daemon=True)
        self._thread.start()
        # Waited for: `close` may be called at once, and needs both.
        self._loop, self._task = started.result()

    @property
    def is_working(self) -> bool:
        """Whether work is left."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Drop the remaining work."""
        # The loop may have ended already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self, run_step: RunStep, first_path: str, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]]) -> None:
        async def work() -> None:
            task = asyncio.current_task()
            assert task is not None
            started.set_result((asyncio.get_running_loop(), task))
            path = first_path
            while path:
                path = await run_step(path)

        # A removed sandbox also stops the work of its systems.
        with contextlib.suppress(asyncio.CancelledError, ConnectionAbortedError, StoreError):
            asyncio.run(work())


MOST_BYTES = 64_000_000
"""Maximum bytes of a request body: more than a system's largest file, so that the system itself can reject it."""
_IDLE_S = 30.0
"""Seconds that an idle connection stays open."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_PATH = re.compile(r"/([A-Za-z0-9_-]+)/([A-Za-z0-9_-]+)((?:/.*)?)")


class SandboxAddress(msgspec.Struct, frozen=True):
    """The address of a sandbox."""

    url: str
    token: str
    ports: tuple[tuple[str, int], ...] = ()
    """Ports of systems with another protocol than HTTP, by environment variable."""

    def find_variables(self, systems: tuple[str, ...]) -> dict[str, str]:
        """Return the environment variables through which an agent finds the systems."""
        variables: dict[str, str] = {}
        for name in systems:
            variables[f"{name}_url"] = f"{self.url}/{name}"
            variables[f"{name}_token"] = self.token
        variables.update({variable: f"127.0.0.1:{port}" for variable, port in self.ports})
        return variables


class _Port(Protocol):
    """A port for another protocol than HTTP."""

    @property
    def port(self) -> int: ...

    def close(self) -> None: ...

    def list_unfinished(self) -> list[str]: ...


class _Served:
    def __init__(self, sandbox: Sandbox, systems: tuple[str, ...], token: str) -> None:
        self.sandbox = sandbox
        self.systems = systems
        self.token = token
        self.lock = threading.Lock()
        self.ports: dict[_Port, str] = {}
        self._background: list[BackgroundWork] = []

    def open_mllp(self, system: str) -> int:
        """Open an MLLP port for a system, and return the port."""
        server = MllpServer(functools.partial(self.take_message, system))
        self.ports[server] = system
        return server.port

    def open_sftp(self, system: str) -> int:
        """Open an SFTP port for a system, and return the port. Raises `MissingExtra` if SFTP is not installed."""
        try:
            from proctor.sandboxes.sftp import SftpServer
        except ImportError:
            raise MissingExtra("SFTP", "sftp") from None
        server = SftpServer(
            functools.partial(self._ask, self.sandbox.handle, system), functools.partial(self._ask, self.sandbox.look, system), self.token
        )
        self.ports[server] = system
        return server.port

    def close_ports(self) -> None:
        """Close the MLLP and SFTP ports, and drop the remaining work of systems."""
        for port in (*self.ports, *self._background):
            port.close()
        for port, system in self.ports.items():
            self.sandbox.note_unfinished(system, port.list_unfinished())
        self.ports.clear()
        self._background.clear()

    def follow(self, system: str, base: str, first_path: str) -> None:
        """Run the remaining work of a system in a separate thread."""

        async def run_step(path: str) -> str:
            with self.lock:
                self._require_open()
                request = Request(method=GO_ON, path=path, base=base, token=self.token)
                return (await self.sandbox.handle(system, request, fetch=self.fetch)).then

        # Otherwise ended threads would accumulate until the sandbox is closed, and a long attempt may have many.
        self._background = [work for work in self._background if work.is_working]
        self._background.append(BackgroundWork(run_step, first_path))

    async def fetch(self, errand: Errand) -> Fetched:
        """Make an outgoing request for a system; its receiver may use this sandbox in the meantime."""
        # The receiver may use this sandbox before it answers: holding the lock would be a deadlock.
        self.lock.release()
        try:
            return await fetch_outside(errand)
        finally:
            self.lock.acquire()
            # The sandbox may have been removed by now; then nothing is written.
            self._require_open()

    def _require_open(self) -> None:
        if not self.token:
            raise ConnectionAbortedError("the sandbox is served no longer")

    def take_message(self, system: str, message: bytes) -> bytes:
        """Pass an MLLP message to its system, and return the acknowledgement."""
        request = Request(method="POST", path="/outbound", headers={"content-type": "application/hl7-v2"}, body=message)
        return self._ask(self.sandbox.handle, system, request).body

    def _ask(self, answer: Callable[[str, Request], Coroutine[Any, Any, Response]], system: str, request: Request) -> Response:
        with self.lock:
            self._require_open()
            return asyncio.run(answer(system, request))


class LoopbackServer:
    """A server for the sandboxes of a run. `close` ends all threads and sockets."""

    def __init__(self) -> None:
        self._served: dict[str, _Served] = {}
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start listening on a free port. Raises `OSError` if there is none."""
        # One class per server: the standard library creates the handlers, and passes none of our arguments.
        handler = type("Handler", (_Handler,), {"answer": staticmethod(self._answer)})
        self._http = _Http(("127.0.0.1", 0), handler)
        # `shutdown` waits for the next poll: by default that is half a second at the end of every run.
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="proctor-sandboxes", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        for served in self._served.values():
            served.close_ports()
        if self._http is not None:
            self._http.shutdown()
            self._http.close_connections()
            self._http.server_close()
            self._http = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def add(self, sandbox: Sandbox, systems: tuple[str, ...], *, mllp: tuple[str, ...] = (), sftp: tuple[str, ...] = ()) -> SandboxAddress:
        """Serve a sandbox, and return its address; `mllp` and `sftp` are the systems that get such a port.

        Raises `OSError` where none can be had, and `MissingExtra` where SFTP is not installed.
        """
        token = secrets.token_urlsafe(24)
        served = _Served(sandbox, systems, token)
        try:
            ports = (
                *((f"{name}_mllp", served.open_mllp(name)) for name in mllp),
                *((f"{name}_sftp", served.open_sftp(name)) for name in sftp),
            )
        except (OSError, MissingExtra):
            served.close_ports()
            raise
        self._served[sandbox.name] = served
        return SandboxAddress(f"{self._find_root()}/{sandbox.name}", token, ports)

    def remove(self, sandbox: Sandbox) -> None:
        """Stop serving a sandbox; running requests finish before this returns."""
        served = self._served.pop(sandbox.name, None)
        if served is not None:
            with served.lock:
                served.token = ""
            # Without the lock: this waits for threads that may need it.
            served.close_ports()

    def call_tool(self, sandbox: Sandbox, system: str, tool: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Call a tool of a system as a client would, and return an MCP result; waits for the lock, so call it from a thread."""
        served = self._served.get(sandbox.name)
        try:
            request = sandbox.make_request(system, tool, arguments)
        except SpecError as error:
            return write_tool_refusal(describe_wrong_call(error))
        if served is None:
            return write_tool_refusal("the systems of this attempt are served no longer")
        with served.lock:
            if not served.token:
                return write_tool_refusal("the systems of this attempt are served no longer")
            request = msgspec.structs.replace(request, base=f"{self._find_root()}/{sandbox.name}/{system}", token=served.token)
            response = asyncio.run(sandbox.handle(system, request, fetch=served.fetch))
            if response.then:
                served.follow(system, request.base, response.then)
            return write_tool_result(response)

    def _find_root(self) -> str:
        assert self._http is not None, "the server is open"
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def _answer(self, method: str, target: str, headers: dict[str, str], body: bytes | _Unread, base: str) -> Response:
        path, _, query = target.partition("?")
        match = _PATH.fullmatch(path)
        served = self._served.get(match[1]) if match is not None else None
        if match is None or served is None:
            return refuse(404, "not_found", "there is no such sandbox").response
        with served.lock:
            # Removed while this waited: public endpoints need no token, and nothing may follow the end state.
            if not served.token:
                return refuse(404, "not_found", "there is no such sandbox").response
            name, rest = match[2], match[3] or "/"
            known = name in served.systems
            # Before the system is looked up: systems are not revealed without a token.
            if not (known and served.sandbox.is_open(name, rest)) and not _has_token(headers, served.token):
                response = served.sandbox.refuse(
                    name, 401, "unauthorized", "send the token of the sandbox as `Authorization: Bearer TOKEN`"
                )
                return msgspec.structs.replace(response, headers={**response.headers, "www-authenticate": "Bearer"})
            if not known:
                return refuse(404, "not_found", f"there is no system {name!r} in this sandbox").response
            request = Request(
                method=method,
                path=rest,
                query=decode_query(query),
                headers=headers,
                body=b"" if isinstance(body, _Unread) else body,
                base=f"{base}/{match[1]}/{name}",
                token=served.token,
            )
            if isinstance(body, _Unread):
                return asyncio.run(served.sandbox.refuse_unread(name, request, body.status, body.code, str(body)))
            response = asyncio.run(served.sandbox.handle(name, request, fetch=served.fetch))
            if response.then:
                served.follow(name, request.base, response.then)
            return response


def _has_token(headers: dict[str, str], token: str) -> bool:
    """Return whether a request has the token: as a bearer token, or as the password of Basic, which many SDKs send."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    sent = credentials.strip().encode()
    if scheme.lower() == "basic":
        try:
            sent = base64.b64decode(sent, validate=True).partition(b":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    # A sandbox that was removed has an empty token, which an empty password would equal.
    return bool(token) and hmac.compare_digest(sent, token.encode())


class _Http(OpenConnections, ThreadingHTTPServer):
    # Twenty attempts may connect at once.
    request_queue_size = 128


class _Unread(Exception):
    """An incompletely read body, and why."""

    def __init__(self, message: str, status: int = 400, code: str = "bad_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server_version = "proctor"
    sys_version = ""
    # A response is written in two pieces; without this, every second one would wait for the client's acknowledgement.
    disable_nagle_algorithm = True
    answer: Any

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body: bytes | _Unread
        try:
            body = self._read_body(headers)
        except _Unread as error:
            # The unread rest of the body would be taken for the next request.
            self.close_connection = True
            body = error
        self._answer(headers, body)

    def _answer(self, headers: dict[str, str], body: bytes | _Unread) -> None:
        base = f"http://{headers.get('host') or '127.0.0.1'}"
        response = self.answer(self.command, self.path, headers, body, base)
        self.send_response(response.status)
        for name, value in response.headers.items():
            # An id chosen by an author may be in a header, and must not end it early.
            self.send_header(name, re.sub(r"[\r\n]", " ", value).encode("latin-1", "replace").decode("latin-1"))
        # In HTTP neither has a body, and a 204 must not have a length either.
        if response.status not in (204, 304):
            self.send_header("content-length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD" and response.status not in (204, 304):
            self.wfile.write(response.body)

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._read_chunks()
        length = headers.get("content-length", "0")
        # Stricter than `int`, which also accepts signs, underscores and digits of other scripts.
        if not (length.isascii() and length.isdigit()) or len(length) > 15:
            raise _Unread(f"content-length: expected a whole number, found {length[:40]!r}")
        return self._read_exactly(int(length))

    def _read_exactly(self, length: int, before: int = 0) -> bytes:
        """Return this many further bytes of a body; fewer would be an incomplete request that looks complete."""
        if before + length > MOST_BYTES:
            raise _Unread(f"a request has at most {MOST_BYTES} bytes", 413, "too_large")
        try:
            data = self.rfile.read(length)
        except (TimeoutError, ConnectionError):
            data = b""
        if len(data) < length:
            raise _Unread("the body broke off before its end")
        return data

    def _read_chunks(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            head = self.rfile.readline(100)
            line = head.partition(b";")[0].strip()
            # The rest of a longer line would be read as the content of the chunk.
            if not head.endswith(b"\n") or not line or len(line) > 15 or any(byte not in b"0123456789abcdefABCDEF" for byte in line):
                raise _Unread("a chunk of the body has no length")
            length = int(line, 16)
            if length == 0:
                while self.rfile.readline(1_000).strip():
                    pass
                return b"".join(parts)
            parts.append(self._read_exactly(length, size))
            size += length
            if self.rfile.readline(10).strip():
                raise _Unread("a chunk of the body is longer than its declared size")

    def __getattr__(self, name: str) -> Any:
        # Looked up by method name; unsupported methods are rejected like other requests, and are not a server error.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        self.close_connection = True
        message = f"there are {', '.join(_METHODS)}, not {self.command[:40]}"
        self._answer({name.lower(): value for name, value in self.headers.items()}, _Unread(message, 405, "method_not_allowed"))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: every request is an event of its sandbox."""


def make_moment() -> str:
    """Return the time of day in UTC, to the millisecond."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
