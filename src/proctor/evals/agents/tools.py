"""The tools an agent under eval may use.

Tools of several servers are one set with the interface of servers, so that the agent loop is the one of `mcp_agent` targets. A tool at
which the caller wants to stop is not executed: the model gets a stub result.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from proctor.errors import ProctorError
from proctor.evals.agents.messages import ToolSpan
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import exception_text
from proctor.targets.mcp.results import CallResult, Listing, RemoteTool
from proctor.targets.mcp.servers import McpServers, ReachedServers, name_tools

Execute = Callable[[dict[str, Json]], Awaitable[CallResult]]
STUB = "This tool was not executed: the conversation ends with its call."


class AgentTool(RemoteTool, frozen=True, kw_only=True):
    """One tool, and how to call it."""

    execute: Execute
    server: str = "tools"
    server_name: str | None = None
    server_version: str | None = None
    protocol: str = ""


ToolsLike = Iterable[AgentTool] | Mapping[str, AgentTool]


def list_tools_of(tools: ToolsLike) -> tuple[AgentTool, ...]:
    """Return the tools given as a list or by name. Raises `TypeError` for anything else."""
    listed = tuple(tools.values() if isinstance(tools, Mapping) else tools)
    for tool in listed:
        # Callers may pass other types.
        if not isinstance(tool, AgentTool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"tools: expected what a client manager's get_tools() gives, found {type(tool).__name__}")
    return listed


class ToolSet(McpServers):
    """Tools with the interface of their servers, and their durations."""

    def __init__(self, tools: Iterable[AgentTool], *, stop_after: Iterable[str] = (), now: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(())
        self._tools: dict[str, dict[str, AgentTool]] = {}
        for tool in tools:
            self._tools.setdefault(tool.server, {})[tool.name] = tool
        self._stop_after = self._find_stop_tools(frozenset(stop_after))
        self._now = now
        self.stopped = False
        """Whether a tool to stop at was called."""
        self.spans: list[ToolSpan] = []
        """How long every call took."""
        self.made: list[ToolCall] = []
        """Every started call, finished or not."""

    def _find_stop_tools(self, wanted: frozenset[str]) -> frozenset[tuple[str, str]]:
        """Return the tools to stop at, by their own name or by the name offered to the model."""
        tools = name_tools(self._make_listing(server) for server in self._tools)
        return frozenset((tool.server, tool.tool) for tool in tools if tool.tool in wanted or tool.name in wanted)

    @property
    def ids(self) -> tuple[str, ...]:
        """The servers that have tools here."""
        return tuple(self._tools)

    async def open(self) -> None:
        """Do nothing: the caller owns the servers."""

    async def close(self) -> None:
        """Do nothing: the caller owns the servers."""

    @asynccontextmanager
    async def open_session(self) -> AsyncGenerator[ReachedServers]:
        """Yield these tools: the caller owns their sessions."""
        yield self

    async def get_listing(self, server: str) -> Listing:
        """Return the tools of one server."""
        return self._make_listing(server)

    def _make_listing(self, server: str) -> Listing:
        tools = self._tools[server]
        first = next(iter(tools.values()))
        return Listing(
            server=server,
            name=first.server_name,
            version=first.server_version,
            protocol=first.protocol,
            tools=tuple(RemoteTool(name=tool.name, description=tool.description, schema=tool.schema) for tool in tools.values()),
        )

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        """Call a tool, or answer with the stub; a failure is part of the result."""
        started = self._now()
        # Recorded first, for a call that is cancelled while it runs, which no `except` below handles.
        answer = CallResult(error="not finished")
        try:
            if (server, tool) in self._stop_after:
                self.stopped = True
                answer = CallResult(result={"content": [{"type": "text", "text": STUB}]})
            else:
                answer = await self._tools[server][tool].execute(arguments)
        except ProctorError as error:
            answer = CallResult(error=str(error))
        except Exception as error:
            # A tool is user code: its exceptions are failed calls, and do not end the run.
            answer = CallResult(error=f"{type(error).__name__}: {exception_text(error)}")
        finally:
            ended = self._now()
            self.spans.append(ToolSpan(tool=tool, server=server, started=started, ended=ended, ok=answer.error is None))
            self.made.append(
                ToolCall(
                    name=tool,
                    arguments=arguments,
                    result=answer.result,
                    error=answer.error,
                    error_kind=None if answer.error is None else "protocol-error",
                    server=server,
                    aliases=(f"{server}:{tool}",),
                    duration_ms=round((ended - started) * 1000, 3),
                )
            )
        return answer
