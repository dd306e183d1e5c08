"""Shared by the tests of MCP targets: an event loop that checks for leaks, a scripted model, the shop over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from proctor.llm.ports import ChatReply, ChatRequest, ModelCall, ModelFault
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.processes.guard import GUARD
from proctor.targets.mcp.settings import ServerSettings
from tests.targets.shop_server import shop

T = TypeVar("T")
ROOT = str(Path(__file__).parent.parent.parent)


def children() -> set[int]:
    """The living child processes of this one."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            listed = path.read_text()
        except OSError:  # the thread has ended since it was listed
            continue
        for pid in listed.split():
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and int(pid) != GUARD.pid:
                found.add(int(pid))
    return found


def run(work: Awaitable[T]) -> T:
    """Run to the end; no child process and no task may be left."""

    async def main() -> T:
        before = children()
        async with asyncio.timeout(30):
            result = await work
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        assert not children() - before
        return result

    return asyncio.run(main())


def stdio_shop(id: str = "shop", **more: Any) -> ServerSettings:
    return ServerSettings(id=id, command=sys.executable, args=("-m", "tests.targets.shop_server"), cwd=ROOT, **more)


def bare_shop(id: str = "shop", **more: Any) -> ServerSettings:
    """Starts at once; handshake era only."""
    return ServerSettings(id=id, command=sys.executable, args=("-S", "-m", "tests.targets.bare_server"), cwd=ROOT, **more)


def local_shop(id: str = "shop", *, name: str = "shop", **more: Any) -> ServerSettings:
    return ServerSettings(id=id, transport="in_process", server=shop(name), **more)


class ScriptedModel:
    """Replies with its lines in order and records the requests."""

    provider = "scripted"
    name = "script"

    def __init__(self, *replies: ChatReply | ModelFault | Callable[[ChatRequest], ChatReply]) -> None:
        self._replies = list(replies)
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, ModelFault):
            raise reply
        return reply if isinstance(reply, ChatReply) else reply(request)

    async def close(self) -> None:
        pass


def calls(*wanted: tuple[str, Any], text: str = "", **more: Any) -> ChatReply:
    made = tuple(ModelCall(id=f"call_{number}", name=name, arguments=arguments) for number, (name, arguments) in enumerate(wanted))
    return ChatReply(text=text, tool_calls=made, finish="tool_calls", **more)


def attempt(case: Case | None = None, **more: Any) -> Attempt:
    case = case or Case(id="refund", input="Where is order 17?")
    return Attempt(case=case, request_id="req-1", session_id="ses-1", **{"timeout_s": 20.0, **more})


class Gate:
    """An ASGI application in front of the shop: records headers, can refuse or redirect, and issues tokens."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.seen: list[dict[str, str]] = []
        self.forms: list[str] = []
        self.accepted: set[str] | None = None
        self.tokens: list[dict[str, Any]] = []
        self.answer: tuple[int, dict[str, str]] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["path"] == "/token":
            self.forms.append((await receive())["body"].decode())
            token = self.tokens.pop(0)
            await self._respond(send, token.pop("status", 200), json.dumps(token).encode(), {"content-type": "application/json"})
            return
        self.seen.append(headers)
        if self.answer is not None:
            status, more = self.answer
            await self._respond(send, status, b"", more)
        elif self.accepted is not None and headers.get("authorization") not in self.accepted:
            await self._respond(send, 401, b"", {})
        else:
            await self.app(scope, receive, send)

    @staticmethod
    async def _respond(send: Any, status: int, body: bytes, headers: dict[str, str]) -> None:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def http_shop(server: Any = None, *, over_sse: bool = False) -> Iterator[tuple[str, Gate]]:
    """The shop, or another server, on a free loopback port in its own thread; with `over_sse` like old servers, at `/sse`."""
    served = server or shop()
    gate = Gate(served.sse_app() if over_sse else served.streamable_http_app())
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(gate, log_level="critical", lifespan="on", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        deadline = time.monotonic() + 10
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", gate
        finally:
            server.should_exit = True
            thread.join(10)
