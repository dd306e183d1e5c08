"""`proctor view`: the pages over the runs of a folder, on loopback, without a login and without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request

from proctor.errors import ProctorError
from proctor.pages.folder_source import FolderSource
from proctor.pages.routes import make_router
from proctor.pages.words import quote_part
from proctor.rest import errors
from proctor.rest.metrics import Metrics
from proctor.rest.process import QuietServer, open_socket, stop_by_signals
from proctor.rest.request_records import RequestRecorder
from proctor.rest.security import HostCheck
from proctor.service.runs.run import LOCAL_PROJECT

HOST = "127.0.0.1"
_LOOK_AGAIN_S = 2.0
"""Seconds between checks for changed evidence."""


def make_view_app(home: Path, source: FolderSource | None = None) -> FastAPI:
    """Return the pages over the runs stored in a workspace."""
    source = source or FolderSource(home)

    def give_source(request: Request) -> FolderSource:
        return source

    app = FastAPI(title="proctor view", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.router.routes.extend(make_router(give_source, with_login=False).routes)
    errors.install_handlers(app)
    # Foreign host names are rejected: a web page must not read these runs through DNS rebinding.
    app.add_middleware(HostCheck, host=HOST)
    app.add_middleware(RequestRecorder, metrics=Metrics())
    return app


async def view(
    home: Path,
    run: str | None,
    port: int,
    say: Callable[[str], None],
    show: Callable[[str], None],
    *,
    shown: Path | None = None,
    refresh: Callable[[], bool] | None = None,
) -> None:
    """Serve until a signal arrives; `say` prints the address, `show` opens it. Raises `InputError` at startup.

    `shown` is the path the user gave, if it is not `home`; `refresh` updates the data periodically.
    """
    with open_socket(HOST, port) as sock:
        source = FolderSource(home)
        app = make_view_app(home, source)
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="off", ws="none")
        server = QuietServer(config)
        running = asyncio.create_task(server.serve(sockets=[sock]))
        with stop_by_signals(server, app):
            while not server.started and not running.done():
                await asyncio.sleep(0.01)
            address = f"http://{HOST}:{sock.getsockname()[1]}/ui/p/{LOCAL_PROJECT}" + (f"/runs/{quote_part(run)}" if run else "")
            say(f"proctor shows {shown or home} on {address}; Ctrl-C ends it")
            # The data of the first page is read while the browser starts.
            warming = asyncio.create_task(asyncio.to_thread(source.warm_up, run))
            show(address)
            looking = None if refresh is None else asyncio.create_task(_refresh_again(refresh, say))
            await running
            await warming
            if looking is not None:
                looking.cancel()


async def _refresh_again(refresh: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Refresh while the pages are served; an error is printed once, and the pages stay as they were."""
    printed = ""
    while True:
        await asyncio.sleep(_LOOK_AGAIN_S)
        try:
            await asyncio.to_thread(refresh)
            printed = ""
        except (ProctorError, OSError) as error:
            if str(error) != printed:
                printed = str(error)
                say(f"cannot read the evidence at the moment: {printed}")
