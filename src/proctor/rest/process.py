"""Runs the service as a process.

It listens before it announces its address. On a signal (SIGTERM, SIGINT, SIGHUP) it stops accepting, finishes open requests, stops its
workers and closes the database; a second signal ends it immediately. Without an organization key it only listens on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Generator
from typing import Any, TextIO

import uvicorn
from fastapi import FastAPI

from proctor.errors import InputError
from proctor.rest.app import make_app, open_hub
from proctor.rest.connections import make_protocol
from proctor.rest.security import is_loopback
from proctor.rest.settings import ServeSettings
from proctor.service.access.keys import find_local_caller
from proctor.service.decisions.pattern_process import used_for_patterns
from proctor.service.decisions.pool import DecisionPool
from proctor.service.hub import stamp

# --- logs: one JSON object per line, without request content

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonLineFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = type(error).__name__
            # The place and not the message: error messages quote request content.
            frames = traceback.extract_tb(error.__traceback__)[-8:]
            line["trace"] = [f"{frame.filename.rpartition('/src/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=True, default=str)


def log_to_stream(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send the logs of the service and of its server to a stream, standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLineFormatter())
    # All of our loggers: one without a handler would be printed with request content.
    for name in ("proctor", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level if name == "proctor" else logging.WARNING)
        logger.propagate = False


GRACE_S = 15
_BACKLOG = 1024
_OTHER_FILES = 256
# Windows has no SIGHUP.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


def _tune_interpreter() -> None:
    """Collect garbage less often: traces are many small objects without cycles, and loaded modules stay."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)
    # Traces are decided in another thread, and the event loop should get its turn quickly.
    sys.setswitchinterval(0.0002)


def _allow_files(connections: int) -> None:
    """Raise the limit of open files to the number of connections and some more."""
    try:
        import resource  # not on Windows, which has no such limit
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files if hard == resource.RLIM_INFINITY else min(files, hard), hard))


async def serve(settings: ServeSettings, say: Callable[[str], None]) -> None:
    """Serve until a signal arrives; `say` prints the address and notes for the user. Raises `InputError` and `StoreError` at startup."""
    with used_for_patterns():
        async with open_hub(settings, DecisionPool()) as hub:
            is_open = await find_local_caller(hub) is not None
            if is_open and not is_loopback(settings.host):
                raise InputError(
                    f"{settings.host} is reachable from other machines, and there is no organization key\n"
                    "  create one first: proctor keys create --kind organization --name NAME"
                )
            with open_socket(settings.host, settings.port) as sock:
                place = sock.getsockname()  # while it is open: a signal may close it as soon as it is served
                app = make_app(settings, hub=hub)
                server = QuietServer(make_server_config(app, settings))
                log_to_stream(sys.stderr)
                _tune_interpreter()
                _allow_files(settings.service.connections)
                running = asyncio.create_task(server.serve(sockets=[sock]))
                with stop_by_signals(server, app):
                    # uvicorn only has this flag; if it cannot start, its task ends without setting it.
                    while not server.started and not running.done():
                        await asyncio.sleep(0.01)
                    if server.started:
                        _announce(place, is_open, say)
                    await running
            if not server.started:
                raise InputError("the service could not start; see the log")


def _announce(place: tuple[Any, ...], is_open: bool, say: Callable[[str], None]) -> None:
    host, port = place[:2]
    say(f"proctor serves on http://{f'[{host}]' if ':' in host else host}:{port}")
    if is_open:
        say("no organization key exists: everyone on this machine has access; run `proctor keys create --kind organization` to change that")


@contextlib.contextmanager
def open_socket(host: str, port: int) -> Generator[socket.socket]:
    """Yield a listening socket. Raises `InputError` if that fails."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"cannot listen on {host!r}: {error.strerror or error}") from error
    with contextlib.closing(sock):
        try:
            # Otherwise recently closed connections block the port after a restart.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
        except OSError as error:
            raise InputError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        yield sock


class QuietServer(uvicorn.Server):
    """A server that leaves signals to `stop_by_signals`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone."""
        # uvicorn raises the signal again at the end, so that a clean exit would look like a kill.
        yield


@contextlib.contextmanager
def stop_by_signals(server: uvicorn.Server, app: FastAPI) -> Generator[None]:
    """Shut the server down on a signal; a second signal ends it immediately."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        stopping: asyncio.Event | None = getattr(app.state, "stopping", None)
        if stopping is not None:
            stopping.set()  # streams that would never end see this
        server.handle_exit(number, None)

    # The event loop on Windows has no signal handlers; Ctrl-C raises an exception there.
    with contextlib.suppress(NotImplementedError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def make_server_config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    """Return the configuration of the server, with limited connections and without uvicorn's logs."""
    return uvicorn.Config(
        app,
        http=make_protocol(settings.service),
        log_config=None,
        access_log=False,
        server_header=False,
        # uvicorn would replace the client address by a header's value; rate limits and the local user depend on the address.
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=65,
        lifespan="on",
        ws="none",
    )
