"""Several MCP servers by name, each connected and closed separately.

A server is a mapping (`command`, `args`, `env`, `cwd` is started; `url`, `headers`, `access_token` is reached over HTTP), settings of ours,
or a server object of the `mcp` package in this process. An address that ends in `/sse`, or `prefer_sse`, selects the older HTTP transport;
it is also tried if a server rejects the newer one, unless `disable_sse_fallback` is true.

Entering the manager connects all servers concurrently and names those that cannot be reached; with `lazy_connect` each is connected on
first use. A lost one is reconnected on its next use. Connections belong to the event loop they were made in.

The methods are those of MCPJam's SDK 1.14 under Python names; `manager.readResource` names `read_resource`. A request returns the result
as JSON, of one page for a list, and raises `TargetError` if the server refuses it (`error_code` is its JSON-RPC code). Every request takes
`timeout_ms` and `on_progress(progress, total, message)`; to cancel one, cancel its task. A server that may ask its user (elicitation)
needs a handler before it is connected: it learns then that the client can answer. In the stateless era (2026-07-28), a subscription or a
handler opens the stream that carries notices, and a log level goes with each request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from proctor.errors import InputError, SpecError, TargetError
from proctor.evals.agents.calling import run_blocking
from proctor.evals.agents.tools import AgentTool
from proctor.model.evidence import Json
from proctor.model.show import suggest_one
from proctor.targets.mcp.results import CallResult, Listing
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import Bearer, ClientHooks, ServerFault, ServerSettings, guess_transport, read_servers

if TYPE_CHECKING:
    from mcp import Client

    from proctor.targets.mcp.connection import Connection

Status = Literal["connected", "connecting", "disconnected"]
ServerLike = ServerSettings | Mapping[str, Json] | object
OnProgress = Callable[[float, float | None, str | None], Any]
NoticeHandler = Callable[[dict[str, Json]], Any]
"""Called with the parameters of a notification."""
Elicit = Callable[[dict[str, Json]], "dict[str, Json] | Awaitable[dict[str, Json]]"]
_TIMEOUT_S: Final = 60.0
_METHOD_NOT_FOUND: Final = -32601
_ALIASES: Final = {"accessToken": "access_token", "preferSSE": "prefer_sse", "disableSseFallback": "disable_sse_fallback"}


class MCPClientManager:
    """MCP servers by name; `async with`, or `with` in code that is not asynchronous."""

    def __init__(
        self,
        servers: Mapping[str, ServerLike] | None = None,
        *,
        default_timeout_ms: float = _TIMEOUT_S * 1000,
        lazy_connect: bool = False,
        retry_waits_s: Sequence[float] | None = None,
        read_retries: int = 0,
        client_info: Mapping[str, Json] | None = None,
        rpc_logger: Callable[[dict[str, Json]], None] | None = None,
        progress_handler: Callable[[dict[str, Json]], None] | None = None,
    ) -> None:
        """Prepare the servers.

        `read_retries` repeats requests that only read after a timeout or a lost connection. `client_info` overrides name and version of
        the client. `rpc_logger` gets `server`, `direction` and `message` of every message, `progress_handler` every progress.
        """
        self._timeout_s = default_timeout_ms / 1000
        self._lazy = lazy_connect
        self._waits_s = retry_waits_s
        self._read_retries = read_retries
        self._client_info = dict(client_info or {})
        self._rpc_logger = rpc_logger
        self._on_progress = progress_handler
        self._handlers: dict[str, dict[str, list[NoticeHandler]]] = {}
        self._subscribed: dict[str, set[str]] = {}
        self._elicit: dict[str, Elicit] = {}
        self._elicit_all: Elicit | None = None
        self._pending: dict[str, asyncio.Future[dict[str, Json]]] = {}
        self._settings: dict[str, ServerSettings] = {}
        self._connected: dict[str, Connection] = {}
        self._status: dict[str, Status] = {}
        for name, server in (servers or {}).items():
            self._settings[name] = self._read_settings(name, server)

    async def __aenter__(self) -> MCPClientManager:
        if not self._lazy:
            await self.connect_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.disconnect_all_servers()

    def __enter__(self) -> MCPClientManager:
        return run_blocking(self.__aenter__())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        run_blocking(self.disconnect_all_servers())

    def list_servers(self) -> list[str]:
        """Return the names of all servers, connected or not."""
        return list(self._settings)

    def has_server(self, server: str) -> bool:
        """Return whether a server has this name."""
        return server in self._settings

    def get_connection_status(self, server: str) -> Status:
        """Return `connected`, `connecting` or `disconnected`; an unknown server is disconnected."""
        return self._status.get(server, "disconnected")

    def get_server_config(self, server: str) -> ServerSettings | None:
        """Return the settings of a server; None for an unknown one."""
        return self._settings.get(server)

    def get_server_replay_configs(self) -> list[dict[str, Json]]:
        """Return the servers over HTTP as mappings with which they can be reached again; their tokens are part of them."""
        tools: list[dict[str, Json]] = []
        for name, settings in self._settings.items():
            if settings.is_remote:
                token = {"access_token": settings.auth.token} if isinstance(settings.auth, Bearer) else {}
                prefers = {"prefer_sse": True} if settings.transport == "sse" else {}
                tools.append({"server": name, "url": settings.url, "headers": dict(settings.headers), **token, **prefers})
        return tools

    def get_server_capabilities(self, server: str) -> dict[str, Json] | None:
        """Return what a connected server declared."""
        client = self.get_client(server)
        return None if client is None else client.server_capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)

    def get_initialization_info(self, server: str) -> dict[str, Json] | None:
        """Return version, identity, capabilities and instructions of a connected server."""
        client = self.get_client(server)
        if client is None:
            return None
        who = client.server_info
        return {
            "protocol": client.protocol_version,
            "transport": self._settings[server].transport,
            "server_capabilities": self.get_server_capabilities(server),
            "server_info": who.model_dump(by_alias=True, mode="json", exclude_none=True) if who is not None else None,
            "instructions": client.instructions,
            "client_capabilities": {"elicitation": {}} if self._answers(server) else {},
        }

    def get_client(self, server: str) -> Client | None:
        """Return the client of the `mcp` package, while the server is connected."""
        connection = self._find_connection(server)
        return connection.client if connection is not None else None

    get_managed_client = get_client

    def get_session_id_by_server(self, server: str) -> str | None:
        """Return the session id of a server over streamable HTTP; None if it has no sessions. Raises `TargetError` for others."""
        connection = self._find_connection(server)
        if connection is None or self._settings[server].transport != "http":
            raise TargetError(f"MCP server {server!r} must be connected over streamable HTTP to have a session id")
        return connection.session_id

    def get_server_summaries(self) -> list[dict[str, Json]]:
        """Return every server with its status, and the identity of connected ones."""
        listed: list[dict[str, Json]] = []
        for name in self._settings:
            known = self._find_listing(name)
            identity = {} if known is None else {"name": known.name, "version": known.version, "protocol": known.protocol}
            listed.append({"id": name, "status": self.get_connection_status(name), **identity})
        return listed

    async def connect_all(self) -> None:
        """Connect all servers concurrently. Raises `TargetError` that names each unreachable server; then none is connected."""
        # Wait for every server, so that the message names all unreachable ones and none is still connecting afterwards.
        outcomes = await asyncio.gather(*(self._connect(name) for name in self._settings), return_exceptions=True)
        faults = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if not faults:
            return
        await self.disconnect_all_servers()
        # An exception that is not an error of a server, such as a cancellation, is raised unchanged.
        if len(faults) == 1 or not all(isinstance(fault, TargetError) for fault in faults):
            raise faults[0]
        raise TargetError("\n".join(str(fault) for fault in faults))

    async def connect_to_server(self, server: str, config: ServerLike | None = None) -> None:
        """Connect one server, a new one if `config` is given. Raises `TargetError`, also if it is already connected."""
        if self.get_connection_status(server) != "disconnected":
            raise TargetError(f"MCP server {server!r} is {self.get_connection_status(server)} already")
        if config is not None:
            settings = self._read_settings(server, config)
            # The rest of a lost or failed connection would be reconnected with its old settings.
            if server in self._settings:
                await self.disconnect_server(server)
            self._settings[server] = settings
        await self._connect(server)

    async def disconnect_server(self, server: str) -> None:
        """Disconnect one server, if it is connected."""
        self._check_known(server)
        connection = self._connected.pop(server, None)
        self._status.pop(server, None)
        if connection is not None:
            await connection.close()

    async def remove_server(self, server: str) -> None:
        """Disconnect one server and forget it."""
        await self.disconnect_server(server)
        del self._settings[server]

    async def disconnect_all_servers(self) -> None:
        """Disconnect all servers concurrently."""
        # Wait for all: an error in one must not leave the others half closed.
        ends = await asyncio.gather(*(self.disconnect_server(name) for name in self._settings), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def ping_server(self, server: str) -> bool:
        """Return whether a server responds; connects it if needed."""
        answers = await (await self._connect(server)).is_answering()
        self._status[server] = "connected" if answers else "disconnected"
        return answers

    async def list_tools(self, server: str) -> list[AgentTool]:
        """Return the tools of one server."""
        listing = await (await self._connect(server)).get_listing()
        return [
            AgentTool(
                **msgspec.structs.asdict(tool),
                execute=partial(self._call, server, tool.name),
                server=server,
                server_name=listing.name,
                server_version=listing.version,
                protocol=listing.protocol,
            )
            for tool in listing.tools
        ]

    async def get_tools(self, servers: Iterable[str] | None = None) -> list[AgentTool]:
        """Return the tools of these servers, or of all, for `TestAgent(tools=...)`."""
        names = list(self._settings) if servers is None else [servers] if isinstance(servers, str) else list(servers)
        listings = await asyncio.gather(*(self.list_tools(name) for name in names))
        return [tool for tools in listings for tool in tools]

    async def get_tools_for_ai_sdk(self, servers: Iterable[str] | None = None, *, include_app_only: bool = False) -> dict[str, AgentTool]:
        """Return tools by name, without those that only an app may call (`_meta.ui.visibility`)."""
        tools = await self.get_tools(servers)
        return {tool.name: tool for tool in tools if include_app_only or (tool.meta.get("ui") or {}).get("visibility") != ["app"]}

    def get_all_tools_metadata(self, server: str) -> dict[str, dict[str, Json]]:
        """Return the `_meta` of every tool that has one, as it was last listed."""
        listing = self._find_listing(server)
        return {tool.name: tool.meta for tool in listing.tools if tool.meta} if listing is not None else {}

    def get_tool_metadata(self, server: str, tool: str) -> dict[str, Json] | None:
        """Return the `_meta` of one tool, as it was last listed."""
        return self.get_all_tools_metadata(server).get(tool)

    async def execute_tool(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        timeout_ms: float | None = None,
        on_progress: OnProgress | None = None,
        task: Mapping[str, Json] | None = None,
        retries: int = 0,
    ) -> dict[str, Json]:
        """Call a tool once and return its result (`content`, `structuredContent`, `isError`). Raises `TargetError` when the call fails.

        An unknown tool gives a result with `isError`, however the server reports it. With `task`, such as `{"ttl": 60000}` or `{}`, the
        server makes a task of the call, and the result has its `task`. `retries` repeats the call after a timeout or a lost connection.
        """
        listing = await (await self._connect(server)).get_listing()
        if task is not None:
            params: dict[str, Json] = {"name": tool, "arguments": dict(arguments or {}), "task": dict(task)}
            created = await self._request(server, "tools/call", params, timeout_ms, on_progress, retries=retries)
            if not isinstance(created.get("task"), dict):
                raise TargetError(f"MCP server {server!r} made no task of the call of {tool!r}")
            return {key: value for key, value in created.items() if key != "content"}
        answer = await self._call(server, tool, dict(arguments or {}), timeout_ms, on_progress)
        for _ in range(retries):
            if not answer.gone and not (answer.error or "").startswith("timed out"):
                break
            answer = await self._call(server, tool, dict(arguments or {}), timeout_ms, on_progress)
        if answer.error is None:
            return answer.result
        names = [each.name for each in listing.tools]
        if tool in names or answer.gone:
            raise TargetError(f"{tool} on MCP server {server!r}: {answer.error}")
        message = f"MCP server {server!r} has no tool {tool!r}" + suggest_one(tool, names)
        return {"content": [{"type": "text", "text": f"{message}: {answer.error}"}], "isError": True}

    async def list_resources(self, server: str, cursor: str | None = None, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Return a page of `resources`, with `nextCursor` if there are more; an empty one if the server has none."""
        return await self._list(server, "resources/list", "resources", cursor, timeout_ms)

    async def list_resource_templates(self, server: str, cursor: str | None = None, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Return a page of `resourceTemplates`."""
        return await self._list(server, "resources/templates/list", "resourceTemplates", cursor, timeout_ms)

    async def read_resource(self, server: str, uri: str, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Return the `contents` of a resource."""
        return await self._request(server, "resources/read", {"uri": uri}, timeout_ms, retries=self._read_retries)

    async def subscribe_resource(self, server: str, uri: str, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Subscribe to updates of a resource; see `on_resource_updated`."""
        return await self._subscribe(server, uri, True, timeout_ms)

    async def unsubscribe_resource(self, server: str, uri: str, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """End a subscription."""
        return await self._subscribe(server, uri, False, timeout_ms)

    async def list_prompts(self, server: str, cursor: str | None = None, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Return a page of `prompts`."""
        return await self._list(server, "prompts/list", "prompts", cursor, timeout_ms)

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, Json]:
        """Return the `messages` of a prompt."""
        params: dict[str, Json] = {"name": name, **({"arguments": dict(arguments)} if arguments is not None else {})}
        return await self._request(server, "prompts/get", params, timeout_ms, retries=self._read_retries)

    async def _list(self, server: str, method: str, key: str, cursor: str | None, timeout_ms: float | None) -> dict[str, Json]:
        try:
            return await self._request(server, method, {"cursor": cursor} if cursor else {}, timeout_ms, retries=self._read_retries)
        except ServerFault as fault:
            if fault.error_code != _METHOD_NOT_FOUND:
                raise
            return {key: []}

    async def _subscribe(self, server: str, uri: str, wanted: bool, timeout_ms: float | None) -> dict[str, Json]:
        connection = await self._connect(server)
        uris = self._subscribed.setdefault(server, set())
        result: dict[str, Json] = {}
        if not connection.is_stateless:
            method = "resources/subscribe" if wanted else "resources/unsubscribe"
            result = await self._request(server, method, {"uri": uri}, timeout_ms)
        (uris.add if wanted else uris.discard)(uri)
        await connection.listen(sorted(uris))
        return result

    async def set_logging_level(self, server: str, level: str = "debug") -> None:
        """Choose which log messages the server sends; they come as `notifications/message`."""
        connection = await self._connect(server)
        connection.log_level = level
        if not connection.is_stateless:
            await self._request(server, "logging/setLevel", {"level": level})

    def add_notification_handler(self, server: str, method: str, handler: NoticeHandler) -> None:
        """Call `handler` with the parameters of every notification of this method. In the stateless era, add it before connecting."""
        self._handlers.setdefault(server, {}).setdefault(method, []).append(handler)

    def on_resource_list_changed(self, server: str, handler: NoticeHandler) -> None:
        """Call `handler` when the list of resources changes."""
        self.add_notification_handler(server, "notifications/resources/list_changed", handler)

    def on_resource_updated(self, server: str, handler: NoticeHandler) -> None:
        """Call `handler` with the `uri` of a subscribed resource that changes."""
        self.add_notification_handler(server, "notifications/resources/updated", handler)

    def on_prompt_list_changed(self, server: str, handler: NoticeHandler) -> None:
        """Call `handler` when the list of prompts changes."""
        self.add_notification_handler(server, "notifications/prompts/list_changed", handler)

    def on_task_status_changed(self, server: str, handler: NoticeHandler) -> None:
        """Call `handler` with a task whose status changes."""
        self.add_notification_handler(server, "notifications/tasks/status", handler)

    def set_elicitation_handler(self, server: str, handler: Elicit) -> None:
        """Answer the requests of one server for input: a function of their parameters that returns `action` and `content`."""
        self._check_known(server)
        self._elicit[server] = handler

    def clear_elicitation_handler(self, server: str) -> None:
        """Remove the handler of one server."""
        self._elicit.pop(server, None)

    def set_elicitation_callback(self, callback: Elicit) -> None:
        """Answer the requests of every server without its own handler, by `request_id`, `message`, `schema`, `related_task_id`.

        A callback that answers later awaits its entry of `get_pending_elicitations`.
        """
        self._elicit_all = callback

    def clear_elicitation_callback(self) -> None:
        """Remove the callback."""
        self._elicit_all = None

    def get_pending_elicitations(self) -> dict[str, asyncio.Future[dict[str, Json]]]:
        """Return the requests for input that are not answered yet, by `request_id`."""
        return self._pending

    def respond_to_elicitation(self, request_id: str, response: dict[str, Json]) -> bool:
        """Answer a request for input, and return whether it was pending."""
        waiting = self._pending.pop(request_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(response)
        return True

    def _answers(self, server: str) -> bool:
        return server in self._elicit or self._elicit_all is not None

    async def _answer_elicitation(self, server: str, params: dict[str, Json]) -> dict[str, Json]:
        own, shared = self._elicit.get(server), self._elicit_all
        if own is not None:
            answer = own(params)
            return await answer if isawaitable(answer) else answer
        if shared is None:
            return {"action": "decline"}
        request_id = f"elicit_{secrets.token_hex(8)}"
        self._pending[request_id] = asyncio.get_running_loop().create_future()
        related = (params.get("_meta") or {}).get("io.modelcontextprotocol/related-task") or {}
        request: dict[str, Json] = {"request_id": request_id, "server": server, "message": params.get("message")}
        try:
            answer = shared({**request, "schema": params.get("requestedSchema"), "related_task_id": related.get("taskId")})
            return await answer if isawaitable(answer) else answer
        finally:
            self._pending.pop(request_id, None)

    async def list_tasks(self, server: str, cursor: str | None = None, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Return a page of `tasks`."""
        return await self._request(server, "tasks/list", {"cursor": cursor} if cursor else {}, timeout_ms, retries=self._read_retries)

    async def get_task(self, server: str, task_id: str, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Return a task with its `status`."""
        return await self._request(server, "tasks/get", {"taskId": task_id}, timeout_ms, retries=self._read_retries)

    async def get_task_result(self, server: str, task_id: str, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Return what the call would have returned, once the task has ended."""
        return await self._request(server, "tasks/result", {"taskId": task_id}, timeout_ms, retries=self._read_retries)

    async def cancel_task(self, server: str, task_id: str, *, timeout_ms: float | None = None) -> dict[str, Json]:
        """Cancel a task, and return it."""
        return await self._request(server, "tasks/cancel", {"taskId": task_id}, timeout_ms)

    def supports_tasks_for_tool_calls(self, server: str) -> bool:
        """Return whether a connected server makes tasks of calls."""
        return self._find_task_support(server, "requests", "tools", "call")

    def supports_tasks_list(self, server: str) -> bool:
        """Return whether a connected server lists its tasks."""
        return self._find_task_support(server, "list")

    def supports_tasks_cancel(self, server: str) -> bool:
        """Return whether a connected server cancels tasks."""
        return self._find_task_support(server, "cancel")

    def _find_task_support(self, server: str, *path: str) -> bool:
        declared = self.get_server_capabilities(server) or {}
        for value in (declared.get("tasks"), (declared.get("experimental") or {}).get("tasks")):
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            if value is not None:
                return True
        return False

    def get_tools_sync(self, servers: Iterable[str] | None = None) -> list[AgentTool]:
        """`get_tools` for code that is not asynchronous."""
        return run_blocking(self.get_tools(servers))

    def execute_tool_sync(self, server: str, tool: str, arguments: Mapping[str, Json] | None = None) -> dict[str, Json]:
        """`execute_tool` for code that is not asynchronous."""
        return run_blocking(self.execute_tool(server, tool, arguments))

    def ping_server_sync(self, server: str) -> bool:
        """`ping_server` for code that is not asynchronous."""
        return run_blocking(self.ping_server(server))

    async def _call(
        self,
        server: str,
        tool: str,
        arguments: dict[str, Json],
        timeout_ms: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> CallResult:
        connection = await self._connect(server)
        answer = await connection.call(
            tool, arguments, timeout_s=timeout_ms and timeout_ms / 1000, on_progress=self._combine_progress(server, on_progress)
        )
        if answer.gone:
            self._status[server] = "disconnected"
        return answer

    async def _request(
        self,
        server: str,
        method: str,
        params: dict[str, Json],
        timeout_ms: float | None = None,
        on_progress: OnProgress | None = None,
        *,
        retries: int = 0,
    ) -> dict[str, Json]:
        while True:
            connection = await self._connect(server)
            report = self._combine_progress(server, on_progress)
            try:
                return await connection.request(method, params, timeout_s=timeout_ms and timeout_ms / 1000, on_progress=report)
            except ServerFault as fault:
                if fault.code == "server_gone":
                    self._status[server] = "disconnected"
                retries -= 1
                if retries < 0 or fault.code not in ("timeout", "server_gone", "unreachable"):
                    raise

    def _combine_progress(self, server: str, own: OnProgress | None) -> OnProgress | None:
        shared = self._on_progress
        if shared is None:
            return own

        def report(progress: float, total: float | None, message: str | None) -> Any:
            shared({"server": server, "progress": progress, "total": total, "message": message})
            return own(progress, total, message) if own is not None else None

        return report

    def _find_connection(self, server: str) -> Connection | None:
        self._check_known(server)
        return self._connected.get(server)

    def _find_listing(self, server: str) -> Listing | None:
        connection = self._connected.get(server)
        return connection.listing if connection is not None else None

    def _make_hooks(self, server: str) -> ClientHooks:
        logger = self._rpc_logger

        def log(direction: str, message: dict[str, Json]) -> None:
            assert logger is not None
            logger({"server": server, "direction": direction, "message": message})

        async def notice(method: str, params: dict[str, Json]) -> None:
            for handler in self._handlers.get(server, {}).get(method, ()):
                answer = handler(params)
                if isawaitable(answer):
                    await answer

        return ClientHooks(
            client_info=self._client_info,
            on_notification=notice,
            on_elicitation=partial(self._answer_elicitation, server) if self._answers(server) else None,
            on_message=log if logger is not None else None,
        )

    if not TYPE_CHECKING:  # a type checker would accept every name

        def __getattr__(self, name: str) -> Any:
            ours = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
            hint = f"; the name here is {ours!r}" if ours != name and hasattr(type(self), ours) else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    async def _connect(self, server: str) -> Connection:
        """Return the connection to a server, after connecting if needed."""
        self._check_known(server)
        connection = self._connected.get(server)
        if connection is None:
            servers = McpServers([self._settings[server]], waits_s=self._waits_s, hooks=self._make_hooks(server))
            connection = self._connected[server] = servers.get_connection(server)
        is_new = self._status.get(server) != "connected"
        if is_new:
            self._status[server] = "connecting"
        try:
            await connection.get_listing()
        # Also if cancelled: `connect_to_server` rejects a server that is `connecting`, and this one would stay so.
        except BaseException:
            self._status[server] = "disconnected"
            raise
        self._status[server] = "connected"
        if is_new and self._handlers.get(server):
            await connection.listen(sorted(self._subscribed.get(server, ())))
        return connection

    def _check_known(self, server: str) -> None:
        if server not in self._settings:
            raise TargetError(f"unknown MCP server {server!r}" + suggest_one(server, self._settings))

    def _read_settings(self, name: str, server: ServerLike) -> ServerSettings:
        if isinstance(server, ServerSettings):
            return msgspec.structs.replace(server, id=name)
        if not isinstance(server, Mapping):
            return ServerSettings(id=name, transport="in_process", server=server, timeout_s=self._timeout_s)
        entry = {_ALIASES.get(key, key): value for key, value in cast("Mapping[str, Json]", server).items()}
        if "server" in entry:
            entry.setdefault("transport", "in_process")
        token = entry.pop("access_token", None)
        if token is not None:
            entry["auth"] = {"type": "bearer", "token": token}
        request = entry.pop("requestInit", None)
        if isinstance(request, Mapping):
            entry["headers"] = {**request.get("headers", {}), **entry.get("headers", {})}
        prefers_sse, no_fallback = entry.pop("prefer_sse", False) is True, entry.pop("disable_sse_fallback", False) is True
        if entry.get("url") and "transport" not in entry:
            entry["transport"] = "sse" if prefers_sse else guess_transport(entry["url"])
        if entry.get("transport") == "http":
            entry.setdefault("sse_fallback", not no_fallback)
        # MCPJam uses milliseconds, our own field seconds.
        timeout_ms = entry.pop("timeout", None)
        if timeout_ms is not None:
            entry["timeout_s"] = timeout_ms / 1000
        entry.setdefault("timeout_s", self._timeout_s)
        if entry.get("transport") == "in_process":
            try:
                settings = ServerSettings(id=name, **entry)
            except TypeError as error:
                raise SpecError(f"an MCP server: {error}", field=f"servers.{name}") from None
            try:
                settings.check()
            except TargetError as fault:
                raise InputError(fault.message) from None
            return settings
        return read_servers({name: entry})[0]
