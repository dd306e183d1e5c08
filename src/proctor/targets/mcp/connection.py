"""One MCP server, connected.

The `mcp` package requires that the task that enters a context also leaves it, so each connection has its own task: it connects, lists
the tools, signals that it is ready and waits for the signal to leave.

* One try is connecting and listing all pages of tools, within `timeout_s`. A try that failed is repeated after 250, 500 and 750 ms,
  unless repeating cannot help (no such command, not authorised) or the time was used up.
* For a server without streamable HTTP, only server-sent events are used, if the settings allow it.
* A tool call is never repeated: its effect is unknown. One that times out or fails on the wire is a failed call; if the server is gone, the
  error names that, and the next `get_listing` connects again.

HTTP answers of an MCP server and of its token endpoint are limited and completed, because the `mcp` package reads an answer of any size
into memory, and a compressed one may grow a million times. So:

* Compressed answers are neither requested nor unpacked.
* A body is counted while it is read and ends with an error above `MAX_ANSWER_BYTES`, whatever its content-length.
* An event stream has no limit in total; the package limits each event. An answer is a stream only if the package reads it as one.

A tool result without `content` has empty content, as in the TypeScript package that the original systems use; the Python package would
reject it.

Limits are hooks of the client. A wrapped transport would disable the client's proxies from the environment.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import Any, cast

import httpx2
from mcp import Client, ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, LOG_LEVEL_META_KEY, REQUEST_TIMEOUT, ElicitResult, Implementation, Request, Tool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from proctor import __version__
from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.network.addresses import AddressRefused
from proctor.processes.programs import finish_despite_cancel
from proctor.targets.mcp.auth import REQUEST_ID, FetchedToken, ServerAuth
from proctor.targets.mcp.results import CallResult, Listing, RemoteTool, bound_result, can_be_written, mend_texts, plain_result
from proctor.targets.mcp.settings import (
    ClientCredentials,
    ClientHooks,
    ServerFault,
    ServerSettings,
    hide_secrets,
    hide_secrets_in,
    strip_url,
)
from proctor.targets.mcp.stdio import MOST_LINE_BYTES, ChildServer
from proctor.targets.shared.masking import sort_secrets
from proctor.targets.shared.wire import MAX_ANSWER_BYTES, MakeTransport

OnProgress = Callable[[float, float | None, str | None], Any]
_ANY_RESULT: TypeAdapter[Any] = TypeAdapter(dict[str, Any])

# --- the transport to one MCP server: how a client connects, and explanations of failures

_QUIET_STREAM_S = 300.0
"""Seconds of silence after which an event stream counts as lost."""


class ServerWire:
    """One transport to a server, for one connection attempt."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        over_sse: bool,
        transport: MakeTransport | None,
        fetched: FetchedToken,
        hooks: ClientHooks,
    ) -> None:
        self.settings = settings
        self.over_sse = over_sse
        """Whether the server is used only by server-sent events."""
        self.session_id: str | None = None
        """The session that the server assigned, over streamable HTTP."""
        self._hooks = hooks
        self._handling: set[asyncio.Task[None]] = set()
        self._transport = transport
        self._fetched = fetched
        self.child: ChildServer | None = None
        self.auth: ServerAuth | None = None

    def list_secrets(self) -> tuple[str, ...]:
        """Return the values that must not be shown, including fetched tokens."""
        return sort_secrets((*self.settings.list_secrets(), *(self.auth.list_secrets() if self.auth is not None else ())))

    @asynccontextmanager
    async def open_client(self) -> AsyncGenerator[Client]:
        """Connect by the transport of the settings."""
        settings = self.settings
        common: dict[str, Any] = {
            "mode": "legacy" if settings.era == "handshake" else "auto",
            "client_info": Implementation.model_validate({"name": "proctor", "version": __version__, **self._hooks.client_info}),
            # By default the package may answer from a cache; `is_answering` must reach the server.
            "cache": None,
            "read_timeout_seconds": settings.timeout_s,
            "message_handler": self._pass_notification if self._hooks.on_notification is not None else None,
            "elicitation_callback": self._answer_elicitation if self._hooks.on_elicitation is not None else None,
        }
        if settings.transport == "in_process":
            async with Client(settings.server, **common) as client:
                yield client
        elif settings.transport == "stdio":
            self.child = ChildServer(settings.command, settings.args, env=settings.env, cwd=settings.cwd)
            async with Client(self._tap(self.child), **common) as client:
                yield client
        else:
            self.auth = ServerAuth(settings, fetched=self._fetched)
            # An event stream may be silent for long; each call has its own limit.
            timeout = httpx2.Timeout(settings.timeout_s, read=max(_QUIET_STREAM_S, settings.timeout_s))
            # Certificates are needed for the server, or for its token endpoint.
            token_url = settings.auth.token_url if isinstance(settings.auth, ClientCredentials) else ""
            needs_certificates = any(place.lower().startswith("https") for place in (settings.url, token_url))
            by = self._transport(needs_certificates) if self._transport is not None else None
            http = httpx2.AsyncClient(
                headers=settings.headers,
                auth=self.auth,
                timeout=timeout,
                transport=by,
                verify=_load_certificates(),
                event_hooks={**HOOKS, "response": [*HOOKS["response"], self._note_session]},
            )
            if self.over_sse:
                # Such servers are older than the protocol without a handshake. The package closes the given client.
                wire = sse_client(settings.url, httpx_client_factory=lambda headers=None, timeout=None, auth=None: http)
                common["mode"] = "legacy"
                async with Client(self._tap(wire), **common) as client:
                    yield client
                return
            async with http:
                wire = streamable_http_client(settings.url, http_client=http, max_sse_event_size=MOST_LINE_BYTES)
                async with Client(self._tap(wire), **common) as client:
                    yield client

    async def _note_session(self, response: httpx2.Response) -> None:
        self.session_id = response.headers.get("mcp-session-id") or self.session_id

    def _tap(self, wire: Any) -> Any:
        return _Tap(wire, self._on_message) if self._hooks.on_message is not None or self._hooks.on_notification is not None else wire

    def _on_message(self, direction: str, item: Any) -> None:
        """Pass on a message of the wire, and notifications that the package drops."""
        if not isinstance(item, SessionMessage):
            return
        message = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        if self._hooks.on_message is not None:
            self._hooks.on_message(direction, hide_secrets_in(message, self.list_secrets()))
        if direction == "receive" and message.get("method") == "notifications/tasks/status":
            self._notify("notifications/tasks/status", message.get("params") or {})

    async def _pass_notification(self, message: Any) -> None:
        if not isinstance(message, Exception):
            plain = message.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)
            self._notify(message.method, plain.get("params") or {})

    def _notify(self, method: str, params: dict[str, Json]) -> None:
        """Call the handler in its own task: a handler that makes a request must not block reading."""
        handler = self._hooks.on_notification
        if handler is None:
            return

        async def handle() -> None:
            try:
                answer = handler(method, params)
                if isawaitable(answer):
                    await answer
            except Exception:
                logging.getLogger(__name__).exception("the handler of %s failed", method)

        task = asyncio.create_task(handle())
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _answer_elicitation(self, context: Any, params: Any) -> ElicitResult:
        assert self._hooks.on_elicitation is not None
        answer = await self._hooks.on_elicitation(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        return ElicitResult.model_validate(answer)

    def make_fault(self, code: Any, message: str, *, permanent: bool = False) -> ServerFault:
        """Return a fault of this server with secrets removed from its message. A permanent one is not retried."""
        return ServerFault(code, self.settings.id, hide_secrets(message, self.list_secrets()), permanent=permanent)

    def explain_error(self, error: BaseException) -> ServerFault:
        """Explain why the server cannot be used; a permanent reason is not worth a retry."""
        leaf = error
        while isinstance(leaf, BaseExceptionGroup):
            # A task group cancels its other tasks when one fails: a cancellation is not the cause.
            inner = [cause for cause in leaf.exceptions if not isinstance(cause, asyncio.CancelledError)]
            leaf = inner[0] if inner else leaf.exceptions[0]
        server = self.settings.describe_place()
        if isinstance(leaf, ServerFault):
            return leaf
        if self.settings.transport == "stdio":
            if isinstance(leaf, OSError) and (self.child is None or self.child.exit_code is None):
                return self.make_fault("command_not_found", f"cannot be started: {server}: {leaf.strerror or leaf}", permanent=True)
            if isinstance(leaf, MCPError) and is_local_error(leaf, CONNECTION_CLOSED):
                return self.make_fault("server_exited", f"({server}) {self.describe_exit()}")
        if isinstance(leaf, AddressRefused):
            return self.make_fault("address_refused", f"({server}) may not be reached: {leaf}", permanent=True)
        if isinstance(leaf, httpx2.TransportError | httpx2.DecodingError):
            # httpx2 raises `RuntimeError` on `.request` of an error without one.
            target = self.settings.url
            with suppress(RuntimeError):
                target = str(leaf.request.url)
            target = strip_url(target)
            if isinstance(leaf, httpx2.DecodingError):
                return self.make_fault("protocol", f"gave an answer at {target} that is not read: {leaf}", permanent=True)
            return self.make_fault("unreachable", f"cannot be reached at {target}: {leaf or type(leaf).__name__}")
        if isinstance(leaf, httpx2.HTTPStatusError):
            status = leaf.response.status_code
            return self._refuse(status, f"it answered {status} {leaf.response.reason_phrase}".rstrip())
        if isinstance(leaf, MCPError):
            status = self.auth.refusal[0] if self.auth is not None and self.auth.refusal is not None else 0
            return self._refuse(status, shorten(self.describe_refusal(leaf), 500))
        return self.make_fault("protocol", f"({server}) answered nonsense: {type(leaf).__name__}: {shorten(str(leaf), 500)}")

    def _refuse(self, status: int, why: str) -> ServerFault:
        code = "unauthorized" if status in (401, 403) else "refused"
        # 408 and 429 are temporary; any other status below 500 would repeat.
        permanent = 300 <= status < 500 and status not in (408, 429)
        return self.make_fault(code, f"({self.settings.describe_place()}) refused to connect: {why}", permanent=permanent)

    def describe_refusal(self, error: MCPError) -> str:
        """Return why the server rejected the request; its status if the package hides it."""
        refusal = self.auth.refusal if self.auth is not None else None
        if refusal is None or error.message not in ("Server returned an error response", "Not Found"):
            return error.message
        return f"it answered {refusal[0]} {refusal[1]}".rstrip()

    def describe_exit(self) -> str:
        """Return how the child process ended."""
        child = self.child
        assert child is not None
        if child.fault is not None:
            return child.fault
        code = child.exit_code
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
        return f"ended{how} before it answered{self.quote_stderr()}"

    def quote_stderr(self) -> str:
        """Return the last lines of a child process, as the end of a sentence."""
        child = self.child
        if child is None:
            return ""
        tail = hide_secrets(child.stderr_tail(), self.list_secrets())
        if tail:
            return f"; its standard error ends with:\n{tail}"
        if child.noise is not None:
            return f"; it wrote on standard output something else than MCP messages: {child.noise}"
        return "; it wrote nothing on standard error"


def _make_progress(call: OnProgress | None) -> Any:
    if call is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        answer = call(progress, total, message)
        if isawaitable(answer):
            await answer

    return report


class _Tap:
    """A transport whose messages are shown to a listener on their way."""

    def __init__(self, inner: Any, on_message: Callable[[str, Any], None]) -> None:
        self._inner = inner
        self._on_message = on_message

    async def __aenter__(self) -> tuple[Any, Any]:
        return tuple(_TappedStream(stream, self._on_message) for stream in await self._inner.__aenter__())  # type: ignore[return-value]

    async def __aexit__(self, *reason: Any) -> None:
        await self._inner.__aexit__(*reason)


class _TappedStream:
    def __init__(self, inner: Any, on_message: Callable[[str, Any], None]) -> None:
        self._inner = inner
        self._on_message = on_message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> _TappedStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *reason: Any) -> None:
        await self._inner.__aexit__(*reason)

    def __aiter__(self) -> _TappedStream:
        return self

    async def __anext__(self) -> Any:
        item = await self._inner.__anext__()
        self._on_message("receive", item)
        return item

    async def send(self, item: Any) -> None:
        self._on_message("send", item)
        await self._inner.send(item)


def _read_tool(tool: Tool) -> RemoteTool:
    document = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
    return RemoteTool(
        name=tool.name,
        title=tool.title or "",
        description=tool.description or "",
        schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=document.get("annotations", {}),
        icons=tuple(document.get("icons", ())),
        meta=document.get("_meta", {}),
    )


@functools.cache
def _load_certificates() -> ssl.SSLContext:
    """Return the trusted certificates for HTTPS, loaded once: it takes 80 ms, and every attempt has its own connections."""
    return httpx2.create_ssl_context()


_LOCAL_ERRORS = {CONNECTION_CLOSED: "Connection closed", REQUEST_TIMEOUT: "Request 'tools/call' timed out"}


def is_local_error(error: MCPError, code: int) -> bool:
    """Return whether an error comes from the package itself: servers use the same codes with their own messages."""
    return error.code == code and error.message == _LOCAL_ERRORS[code]


RETRY_WAITS_S = (0.25, 0.5, 0.75)
_MOST_PAGES = 1_000
"""Maximum number of pages of tools: a server's pages may never end."""
_CLOSE_S = 10.0
"""Seconds for a child process to end before its connection is cancelled."""
_CLOSE_HTTP_S = 3.0

# The package logs non-fatal errors; without a handler Python would print them on standard error.
for _name in ("mcp", "client", "httpx2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Connection:
    """One server between `open` and `close`."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        waits_s: Sequence[float] = RETRY_WAITS_S,
        transport: MakeTransport | None = None,
        fetched: FetchedToken | None = None,
        hooks: ClientHooks | None = None,
    ) -> None:
        self.settings = settings
        self.log_level: str | None = None
        """The level of log messages that requests of the stateless era ask for."""
        self._listener: asyncio.Task[None] | None = None
        self._waits_s = waits_s
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._client: Client | None = None
        self.listing: Listing | None = None
        """What the server offers, once it was connected."""
        self._lost: str | None = None
        self._make_wire = partial(
            ServerWire, settings, transport=transport, fetched=fetched or FetchedToken(), hooks=hooks or ClientHooks()
        )
        self._wire = self._make_wire(over_sse=settings.transport == "sse")

    def list_secrets(self) -> tuple[str, ...]:
        """Return the values that must not be shown, including fetched tokens."""
        return self._wire.list_secrets()

    async def get_listing(self) -> Listing:
        """Return the identity and the tools of the server, after connecting if needed."""
        # Several attempts may find the server gone at once: one of them reconnects for all.
        async with self._lock:
            if not self._is_alive() or self.listing is None:
                await self._end_owner()
                await self._connect()
            assert self.listing is not None
            return self.listing

    @property
    def client(self) -> Client | None:
        """The client of the `mcp` package, while it is connected."""
        return self._client if self._is_alive() else None

    @property
    def session_id(self) -> str | None:
        """The session that the server assigned, over streamable HTTP."""
        return self._wire.session_id

    @property
    def is_stateless(self) -> bool:
        """Whether the server speaks a revision without sessions."""
        return self._client is not None and self._client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def call(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        request_id: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> CallResult:
        """Call a tool, once."""
        # A lost server is not reconnected here: the session state of this attempt is lost.
        client = self._client
        if client is None or not self._is_alive():
            return CallResult(error=self._describe_loss(), gone=True)
        limit = timeout_s or self.settings.timeout_s
        if not can_be_written(arguments):
            return CallResult(error="the arguments contain a lone surrogate, which cannot be sent")
        mark = REQUEST_ID.set(request_id)
        try:
            # The package enforces the limit; ours is a fallback.
            async with asyncio.timeout(limit + 5):
                answer = await client.call_tool(tool, arguments, limit, _make_progress(on_progress), meta=cast(Any, self._make_meta()))
        except TimeoutError:
            return CallResult(error=f"timed out after {limit:g} s")
        except MCPError as error:
            if is_local_error(error, REQUEST_TIMEOUT):
                return CallResult(error=f"timed out after {limit:g} s")
            if is_local_error(error, CONNECTION_CLOSED) and await self._is_gone():
                return CallResult(error=self._describe_loss(), gone=True)
            return CallResult(error=hide_secrets(shorten(self._wire.describe_refusal(error), 2000), self.list_secrets()))
        except (RuntimeError, ValueError) as error:
            # The result does not match the schema that the tool declared, or is not a result at all.
            return CallResult(error=hide_secrets(shorten(str(error), 2000), self.list_secrets()))
        finally:
            REQUEST_ID.reset(mark)
        plain = mend_texts(plain_result(answer.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)))
        return CallResult(result=bound_result(hide_secrets_in(plain, self.list_secrets())))

    async def request(
        self, method: str, params: dict[str, Json], *, timeout_s: float | None = None, on_progress: OnProgress | None = None
    ) -> dict[str, Json]:
        """Send any other request and return its result. Raises `ServerFault`; `error_code` is the code of a refusal."""
        client, limit = self._client, timeout_s or self.settings.timeout_s
        if client is None or not self._is_alive():
            raise ServerFault("server_gone", self.settings.id, self._describe_loss())
        meta = self._make_meta()
        try:
            async with asyncio.timeout(limit):
                # These two may ask for input first, which the client of the package answers.
                if method == "resources/read":
                    found = await client.read_resource(params["uri"], meta=cast(Any, meta))
                elif method == "prompts/get":
                    found = await client.get_prompt(params["name"], params.get("arguments"), meta=cast(Any, meta))
                else:
                    parameters: dict[str, Any] = {**params, **({"_meta": meta} if meta else {})}
                    message = Request[dict[str, Any], str](method=method, params=parameters)
                    found = await client.session.send_request(message, _ANY_RESULT, limit, progress_callback=_make_progress(on_progress))
        except TimeoutError:
            raise self._wire.make_fault("timeout", f"did not answer `{method}` within {limit:g} s") from None
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise self._wire.make_fault("timeout", f"did not answer `{method}` within {limit:g} s") from None
            if is_local_error(error, CONNECTION_CLOSED) and await self._is_gone():
                raise ServerFault("server_gone", self.settings.id, self._describe_loss()) from None
            reason = hide_secrets(shorten(self._wire.describe_refusal(error), 2000), self.list_secrets())
            raise ServerFault("refused", self.settings.id, f"refused `{method}`: {reason} ({error.code})", error_code=error.code) from None
        except (RuntimeError, ValueError) as error:
            raise self._wire.make_fault("protocol", f"answered `{method}` with nonsense: {shorten(str(error), 2000)}") from None
        plain = found if isinstance(found, dict) else found.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_unset=True)
        return hide_secrets_in(mend_texts(plain_result(plain, content=False)), self.list_secrets())

    async def listen(self, uris: Iterable[str]) -> None:
        """With a stateless protocol, subscribe to notifications about changed lists and these resources."""
        client = self._client
        if client is None or not self.is_stateless:
            return
        await self._end_listener()
        declared, uris = client.server_capabilities, tuple(uris)
        lists = {
            f"{name}_list_changed": bool(getattr(getattr(declared, name), "list_changed", False))
            for name in ("tools", "prompts", "resources")
        }
        ready = asyncio.Event()

        async def drain_events() -> None:
            # The same events also arrive as notifications, so here they are only removed from the queue.
            with suppress(MCPError, RuntimeError, TimeoutError):
                async with client.listen(**lists, resource_subscriptions=uris) as events:
                    ready.set()
                    async for _ in events:
                        pass
            ready.set()

        if any(lists.values()) or uris:
            self._listener = asyncio.create_task(drain_events())
            await ready.wait()

    async def _end_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.wait({listener}, timeout=_CLOSE_HTTP_S)

    def _make_meta(self) -> dict[str, Json] | None:
        return {LOG_LEVEL_META_KEY: self.log_level} if self.log_level is not None and self.is_stateless else None

    async def is_answering(self) -> bool:
        """Return whether the server answers now. The newer protocol has no ping, so this lists its tools."""
        client = self._client
        if client is None or not self._is_alive():
            return False
        # It would reject the request; only the open connection is known.
        if client.server_capabilities.tools is None:
            return True
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await client.list_tools()
        except (TimeoutError, MCPError):
            return False
        return True

    async def close(self) -> None:
        """Close the connection; a child process has ended when this returns, even if the caller is cancelled."""
        await finish_despite_cancel(self._end_owner())

    def _is_alive(self) -> bool:
        return (
            self._client is not None
            and self._owner is not None
            and not self._owner.done()
            and (self._wire.child is None or not (self._wire.child.ended or self._wire.child.fault))
        )

    async def _is_gone(self) -> bool:
        """Return whether a closed connection means that the server ended, or (over HTTP) only that one exchange did."""
        if self._wire.child is not None:
            await self._wire.child.wait_for_last_words()
        elif self._owner is not None:
            await asyncio.wait({self._owner}, timeout=0.2)  # the reason may arrive in a moment
        return self.settings.transport != "http" or self._wire.over_sse or not self._is_alive()

    async def _connect(self) -> None:
        self.settings.check()
        # None is the last attempt, without a pause after it.
        for wait_s in (*self._waits_s, None):
            fault = await self._try_to_connect()
            if fault is None:
                return
            if self.settings.sse_fallback and self.settings.transport == "http" and fault.code in ("refused", "protocol"):
                self._wire.over_sse = True
                reached = await self._try_to_connect() is None
                self._wire.over_sse = reached
                if reached:
                    return  # if not, the error of streamable HTTP is reported
            # A missing command or a rejected key would fail again.
            if wait_s is None or fault.permanent:
                raise fault
            await asyncio.sleep(wait_s)

    async def _try_to_connect(self) -> ServerFault | None:
        # A new wire for each attempt: the child and the error of an old one belong to the failed attempt.
        self._wire = self._make_wire(over_sse=self._wire.over_sse)
        self._stop = asyncio.Event()
        ready: asyncio.Future[ServerFault | None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own_connection(ready), name=f"mcp server {self.settings.id}")
        try:
            # Shielded: a cancelled caller must not cancel the future that the owner still sets.
            return await asyncio.shield(ready)
        except BaseException:
            await self.close()
            raise

    async def _own_connection(self, ready: asyncio.Future[ServerFault | None]) -> None:
        fault: ServerFault | None = None
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.settings.timeout_s):
                    client = await stack.enter_async_context(self._wire.open_client())
                    add_missing_content(client.session)
                    self.listing = await self._list_tools(client)
                self._client = client
                ready.set_result(None)
                # The task that entered the contexts must leave them: it waits here for the signal.
                await self._stop.wait()
        except ServerFault as error:
            fault = error
        except TimeoutError:
            limit = f"did not answer within {self.settings.timeout_s:g} s{self._wire.quote_stderr()}"
            fault = self._wire.make_fault("timeout", f"({self.settings.describe_place()}) {limit}", permanent=True)
        except (Exception, BaseExceptionGroup) as error:
            fault = self._wire.explain_error(error)
        finally:
            self._client = None
            self._lost = str(fault) if fault is not None else None
            # Also if this task was cancelled: callers would wait for `ready` forever.
            if not ready.done():
                ready.set_result(fault or self._wire.make_fault("unreachable", "was left before it answered"))

    async def _list_tools(self, client: Client) -> Listing:
        if self.settings.era == "stateless" and client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            message = f"({self.settings.describe_place()}) speaks protocol {client.protocol_version}, not the requested stateless one"
            raise self._wire.make_fault("protocol", message, permanent=True)
        tools: list[RemoteTool] = []
        cursors: set[str] = set()
        cursor: str | None = None
        if client.server_capabilities.tools is not None:
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [_read_tool(tool) for tool in page.tools]
                cursor = page.next_cursor
                # A server that repeats a cursor would cause an endless loop.
                if cursor is None or cursor in cursors:
                    break
                cursors.add(cursor)
        info = client.server_info
        return Listing(
            server=self.settings.id,
            name=info.name if info is not None else None,
            version=info.version if info is not None else None,
            protocol=client.protocol_version,
            tools=tuple(tools),
        )

    async def _end_owner(self) -> None:
        await self._end_listener()
        owner, self._owner = self._owner, None
        if owner is None:
            return
        self._stop.set()
        if self._client is None:
            owner.cancel()  # still connecting: it does not check the signal
        await asyncio.wait({owner}, timeout=_CLOSE_HTTP_S if self.settings.is_remote else _CLOSE_S)
        if not owner.done():
            owner.cancel()
            await asyncio.wait({owner}, timeout=_CLOSE_S)
        self._client = None

    def _describe_loss(self) -> str:
        if self._wire.child is None:
            return self._lost or f"the connection to MCP server {self.settings.id!r} was lost"
        exit = self._wire.describe_exit().replace(" before it answered", "")
        return hide_secrets(f"MCP server {self.settings.id!r} {exit}", self.list_secrets())


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, response: httpx2.Response) -> None:
        self._inner = inner
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        length = 0
        pieces = self._inner.__aiter__()
        try:
            async for piece in pieces:
                _refuse_packed(self._response)
                length += len(piece)
                if length > MAX_ANSWER_BYTES:
                    why = f"it is larger than {MAX_ANSWER_BYTES / 2**20:g} MB"
                    raise httpx2.DecodingError(why, request=self._response.request)
                yield piece
        finally:
            # Otherwise an abandoned generator would be closed by the garbage collector at any time, and not by this task.
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _refuse_compression(request: httpx2.Request) -> None:
    request.headers["accept-encoding"] = "identity"


async def _bound_answer(response: httpx2.Response) -> None:
    request = response.request
    if (
        response.is_success
        and request.method in ("GET", "POST")
        and "text/event-stream" in request.headers.get("accept", "")
        and response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"
    ):
        _refuse_packed(response)  # at once: the package would treat an error during reading as the end of the stream
    else:
        response.stream = _BoundedBody(cast(httpx2.AsyncByteStream, response.stream), response)


def _refuse_packed(response: httpx2.Response) -> None:
    encodings = response.headers.get("content-encoding", "")
    if any(encoding.strip().lower() not in ("", "identity") for encoding in encodings.split(",")):
        why = f"it is compressed (content-encoding: {shorten(encodings, 100)}), which was not requested"
        raise httpx2.DecodingError(why, request=response.request)


def add_missing_content(session: ClientSession) -> None:
    """Give results of tools that lack `content` an empty one, before the package validates them."""
    dispatcher: Any = session._dispatcher  # pyright: ignore[reportPrivateUsage] - the package has no place of its own for this
    send = dispatcher.send_raw_request

    async def send_raw_request(method: str, params: Any, opts: Any = None, **more: Any) -> dict[str, Any]:
        raw = await send(method, params, opts, **more)
        if method == "tools/call" and "content" not in raw and raw.get("resultType", "complete") == "complete":
            return {**raw, "content": []}
        return raw

    dispatcher.send_raw_request = send_raw_request


HOOKS: dict[str, list[Any]] = {"request": [_refuse_compression], "response": [_bound_answer]}
"""For `event_hooks` of the client; token requests also use them."""
