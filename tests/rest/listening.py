"""The application on a real socket of this machine, in a thread: for clients that want one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import uvicorn

from proctor.rest.app import make_app
from proctor.rest.process import make_server_config, open_socket
from proctor.rest.settings import ServeSettings
from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings

T = TypeVar("T")


class Listening:
    """`url` answers while the block lasts; `run` does something with the hub in the service's own event loop."""

    def __init__(self, database: str, home: Path, *, with_workers: bool = False, **settings: Any) -> None:
        self.settings = ServeSettings(service=ServiceSettings(home=home, **settings), database=database)
        self.app = make_app(self.settings, with_workers=with_workers)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="listening")

    def __enter__(self) -> Listening:
        self._thread.start()
        assert self._ready.wait(30) and self._server.started
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def run(self, use: Callable[[Hub], Awaitable[T]]) -> T:
        async def with_hub() -> T:
            return await use(self.app.state.hub)

        return asyncio.run_coroutine_threadsafe(with_hub(), self._loop).result(30)

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        with open_socket("127.0.0.1", 0) as sock:
            self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            config = make_server_config(self.app, self.settings)
            self.connections = config.http.open_connections  # type: ignore[union-attr]  # the protocol is our own
            self._server = uvicorn.Server(config)
            serving = asyncio.create_task(self._server.serve(sockets=[sock]))
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            self._ready.set()
            await serving
