"""A port on loopback that takes SFTP, for clients that speak nothing else: the drop of files of one sandbox, with its token as password.

Any user name will do. There is nothing here but SFTP: no shell, no commands, no keys, no forwarding, and nothing of this machine's files,
since every request is answered from the rows of the sandbox (`sftp_drop.py`). The server works in a thread with an event loop of its own,
so that an agent which blocks the event loop of the run is answered all the same.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar, cast

import asyncssh
from asyncssh import SFTPAttrs, SFTPName, SFTPOpUnsupported, SFTPPermissionDenied
from asyncssh.constants import DISC_TOO_MANY_CONNECTIONS

from proctor.sandboxes.sftp_drop import Ask, Drop, OpenFile, resolve_path

MOST_SESSIONS = 16
"""Connections that are signed in at once."""
_MOST_CONNECTIONS = 4 * MOST_SESSIONS
"""Connections at once, also those that are not signed in yet."""
_LOGIN_S = 30.0
"""How long a client may take to sign in."""
_CLOSING_S = 5.0
"""How long a connection that is broken off may take to end."""
_T = TypeVar("_T")
_Connections = dict[asyncssh.SSHServerConnection, bool]
"""Every connection, oldest first, and whether it is signed in."""


class SftpServer:
    """Serves a drop on a port. `close` ends all threads and sockets, and drops files that are still open."""

    def __init__(self, ask: Ask, look: Ask, token: str) -> None:
        self._drop = Drop(ask, look)
        self._token = token
        self._connections: _Connections = {}
        self._stop = asyncio.Event()
        started: Future[tuple[asyncio.AbstractEventLoop, int]] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="proctor-sftp", daemon=True)
        self._thread.start()
        self._loop, self._port = started.result()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    def close(self) -> None:
        """Stop to listen, and end the connections that are open."""
        # First of all: asyncssh closes the open files of a lost connection, and half a file must not be stored.
        self._drop.is_over = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def list_unfinished(self) -> list[str]:
        """Return the files that were still being written when it was closed."""
        return self._drop.list_unfinished()

    def _run(self, started: Future[tuple[asyncio.AbstractEventLoop, int]]) -> None:
        try:
            # One at a time, as the requests to a sandbox are anyway.
            with ThreadPoolExecutor(1, "proctor-sftp-work") as worker:
                asyncio.run(self._serve(started, worker))
        except BaseException as error:
            # The creator of the server waits for `started`, which has the error if no port was free.
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[tuple[asyncio.AbstractEventLoop, int]], worker: ThreadPoolExecutor) -> None:
        def make_session(channel: Any) -> _Session:
            return _Session(channel, self._drop, worker)

        acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[_make_host_key()],
            server_factory=lambda: _Guard(self._token, self._connections),
            sftp_factory=make_session,
            public_key_auth=False,
            host_based_auth=False,
            agent_forwarding=False,
            allow_pty=False,
            compression_algs=None,
            # None: this machine's name is not looked up.
            gss_host=None,
            login_timeout=_LOGIN_S,
        )
        started.set_result((asyncio.get_running_loop(), acceptor.get_port()))
        await self._stop.wait()
        acceptor.close()
        ending = list(self._connections)
        for connection in ending:
            connection.abort()
        await asyncio.wait([asyncio.create_task(_wait_closed(one)) for one in (acceptor, *ending)], timeout=_CLOSING_S)


async def _wait_closed(thing: Any) -> None:
    await thing.wait_closed()


@functools.cache
def _make_host_key() -> asyncssh.SSHKey:
    """Return the host key of the servers of this process: a new one for every run."""
    return asyncssh.generate_private_key("ssh-ed25519")


class _Guard(asyncssh.SSHServer):
    """Lets in who has the token."""

    def __init__(self, token: str, connections: _Connections) -> None:
        self._token = token
        self._connections = connections
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections[conn] = False
        if len(self._connections) > _MOST_CONNECTIONS:
            # The oldest one: an idle connection must not block others.
            next(one for one, is_in in self._connections.items() if not is_in).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connections.pop(self._connection, None)

    def begin_auth(self, username: str) -> bool:
        self._require_capacity()
        return True

    def auth_completed(self) -> None:
        # Again: several may have begun at the same time.
        self._require_capacity()
        if self._connection in self._connections:
            self._connections[self._connection] = True

    def _require_capacity(self) -> None:
        if sum(self._connections.values()) >= MOST_SESSIONS and self._connection is not None:
            message = f"at most {MOST_SESSIONS} sessions at once: close some first"
            self._connection.disconnect(DISC_TOO_MANY_CONNECTIONS, message)

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        # As bytes: `compare_digest` refuses text beyond ASCII, and a client may send any.
        return bool(self._token) and hmac.compare_digest(password.encode("utf-8", "replace"), self._token.encode())


class _Session(asyncssh.SFTPServer):
    """One client's view of the drop. Every method that would touch this machine's files is another one here."""

    def __init__(self, channel: Any, drop: Drop, worker: ThreadPoolExecutor) -> None:
        super().__init__(channel)
        self._drop = drop
        self._worker = worker

    async def _do(self, work: Callable[..., _T], *given: Any, **named: Any) -> _T:
        """Do some work outside the event loop: it waits for the lock of the sandbox."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, functools.partial(work, *given, **named))

    def map_path(self, path: bytes) -> NoReturn:
        """Refuse: no path here is one of this machine."""
        raise SFTPPermissionDenied("there is no such file")

    reverse_map_path = map_path

    async def open(self, path: bytes, pflags: int, attrs: SFTPAttrs) -> object:
        return await self._do(self._drop.open, path, pflags)

    def open56(self, path: bytes, desired_access: int, flags: int, attrs: SFTPAttrs) -> NoReturn:
        raise SFTPOpUnsupported("version 3 of SFTP is spoken here")

    async def close(self, file_obj: object) -> None:
        await self._do(self._drop.close, file_obj)

    # What is open is held in memory, so that reading and writing wait for no turn of the sandbox.
    def read(self, file_obj: object, offset: int, size: int) -> bytes:
        return self._drop.read(cast("OpenFile", file_obj), offset, size)

    def write(self, file_obj: object, offset: int, data: bytes) -> int:
        return self._drop.write(cast("OpenFile", file_obj), offset, data)

    async def stat(self, path: bytes) -> SFTPAttrs:
        return await self._do(self._drop.describe, path)

    lstat = stat

    def fstat(self, file_obj: object) -> SFTPAttrs:
        return self._drop.describe_open(cast("OpenFile", file_obj))

    async def setstat(self, path: bytes, attrs: SFTPAttrs) -> None:
        await self._do(self._drop.change, path, attrs)

    lsetstat = setstat

    def fsetstat(self, file_obj: object, attrs: SFTPAttrs) -> None:
        if attrs.size is not None:
            self._drop.resize(cast("OpenFile", file_obj), attrs.size)

    async def scandir(self, path: bytes) -> AsyncIterator[SFTPName]:
        for name in await self._do(self._drop.list_folder, path):
            yield name

    async def remove(self, path: bytes) -> None:
        await self._do(self._drop.remove, path)

    async def mkdir(self, path: bytes, attrs: SFTPAttrs) -> None:
        await self._do(self._drop.make_folder, path)

    async def rmdir(self, path: bytes) -> None:
        await self._do(self._drop.remove_folder, path)

    def realpath(self, path: bytes) -> bytes:
        return b"/" + resolve_path(path.decode("utf-8", "replace")).encode()

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._do(self._drop.rename, oldpath, newpath, replaces=False)

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._do(self._drop.rename, oldpath, newpath, replaces=True)

    def readlink(self, path: bytes) -> NoReturn:
        raise SFTPOpUnsupported("the drop has no links")

    def symlink(self, oldpath: bytes, newpath: bytes) -> NoReturn:
        raise SFTPOpUnsupported("the drop has no links")

    link = symlink

    def statvfs(self, path: bytes) -> NoReturn:
        raise SFTPOpUnsupported("the size of the drop is unknown")

    def fstatvfs(self, file_obj: object) -> NoReturn:
        raise SFTPOpUnsupported("the size of the drop is unknown")

    def fsync(self, file_obj: object) -> None:
        """Do nothing: a file is stored when it is closed."""

    def format_user(self, uid: int | None) -> str:
        return "agent"

    def format_group(self, gid: int | None) -> str:
        return "agent"
