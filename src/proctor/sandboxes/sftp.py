"""A port on loopback that serves SFTP, for clients that support no other protocol: one sandbox's files, with its token as password.

Any user name is accepted. There is only SFTP: no shell, no commands, no keys, no forwarding. No request reaches the file system of this
machine: all are answered from the rows of the sandbox (`Drop`). The server has a thread with its own event loop, so that it also answers an
agent that blocks the event loop of the run.

Reading, writing, listing, removing and renaming a file is a request to the simulated system, and so an event of the sandbox. A file is read
completely when it is opened, and written completely when it is closed; in between it is in memory, within limits. A folder exists while it
has files. Folders that a client creates are remembered here and are not part of the state.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import hmac
import posixpath
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, TypeVar, cast
from weakref import WeakSet

import asyncssh
import msgspec
from asyncssh import SFTPAttrs, SFTPFailure, SFTPName, SFTPNoSuchFile, SFTPOpUnsupported, SFTPPermissionDenied
from asyncssh.constants import FILEXFER_TYPE_DIRECTORY, FILEXFER_TYPE_REGULAR

from proctor.codecs.http import encode_percent
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response
from proctor.simulators.kinds.files import MOST_BYTES

_LOGIN_S = 30.0
"""Maximum seconds to sign in."""
_CLOSING_S = 5.0
"""Maximum seconds for an aborted connection to close."""
_T = TypeVar("_T")


class SftpServer:
    """Serves a drop on a port. `close` ends all threads and sockets, and drops files that are still open."""

    def __init__(self, ask: Ask, look: Ask, token: str) -> None:
        self._drop = Drop(ask, look)
        self._token = token
        self._connections: WeakSet[asyncssh.SSHServerConnection] = WeakSet()
        self._stop = asyncio.Event()
        started: Future[tuple[asyncio.AbstractEventLoop, int]] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="proctor-sftp", daemon=True)
        self._thread.start()
        self._loop, self.port = started.result()

    def close(self) -> None:
        """Stop listening, and close open connections."""
        # First: asyncssh closes the open files of a lost connection, and an incomplete file must not be stored.
        self._drop.is_over = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def list_unfinished(self) -> list[str]:
        """Return the files that were still open for writing at the end."""
        return self._drop.list_unfinished()

    def _run(self, started: Future[tuple[asyncio.AbstractEventLoop, int]]) -> None:
        try:
            # One at a time, like all requests to a sandbox.
            with ThreadPoolExecutor(1, "proctor-sftp-work") as worker:
                asyncio.run(self._serve(started, worker))
        except BaseException as error:
            # The creator of the server waits for `started`, which has the error if no port was free.
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[tuple[asyncio.AbstractEventLoop, int]], worker: ThreadPoolExecutor) -> None:
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[_make_host_key()],
            server_factory=lambda: _Guard(self._token, self._connections),
            sftp_factory=lambda channel: _Session(channel, self._drop, worker),
            public_key_auth=False,
            host_based_auth=False,
            agent_forwarding=False,
            allow_pty=False,
            compression_algs=None,
            # None: the host name is not looked up.
            gss_host=None,
            login_timeout=_LOGIN_S,
        )
        started.set_result((asyncio.get_running_loop(), acceptor.get_port()))
        await self._stop.wait()
        acceptor.close()
        ending = list(self._connections)
        for connection in ending:
            connection.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                await asyncio.gather(*(one.wait_closed() for one in (acceptor, *ending)))


@functools.cache
def _make_host_key() -> asyncssh.SSHKey:
    """Return the host key of this process's servers; every run has a new one."""
    return asyncssh.generate_private_key("ssh-ed25519")


class _Guard(asyncssh.SSHServer):
    """Admits clients with the token."""

    def __init__(self, token: str, connections: WeakSet[asyncssh.SSHServerConnection]) -> None:
        self._token = token
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connections.add(conn)

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        # As bytes: `compare_digest` refuses text beyond ASCII, and a client may send any.
        return bool(self._token) and hmac.compare_digest(password.encode("utf-8", "replace"), self._token.encode())


class _Session(asyncssh.SFTPServer):
    """One client's view of the drop. Every method that would access this machine's files is overridden."""

    def __init__(self, channel: Any, drop: Drop, worker: ThreadPoolExecutor) -> None:
        super().__init__(channel)
        self._drop = drop
        self._worker = worker

    async def _do(self, work: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
        """Run work outside the event loop, because it waits for the sandbox's lock."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, functools.partial(work, *arguments, **named))

    def map_path(self, path: bytes) -> NoReturn:
        """Reject: no path here is a local path."""
        raise SFTPPermissionDenied("there is no such file")

    reverse_map_path = map_path

    async def open(self, path: bytes, pflags: int, attrs: SFTPAttrs) -> object:
        return await self._do(self._drop.open, path, pflags)

    def open56(self, path: bytes, desired_access: int, flags: int, attrs: SFTPAttrs) -> NoReturn:
        raise SFTPOpUnsupported("version 3 of SFTP is spoken here")

    async def close(self, file_obj: object) -> None:
        await self._do(self._drop.close, file_obj)

    # Open files are in memory, so reading and writing need no lock of the sandbox.
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

    def _refuse(self, *_given: object) -> NoReturn:
        raise SFTPOpUnsupported("the drop has no links, and its size is unknown")

    readlink = symlink = link = statvfs = fstatvfs = _refuse  # pyright: ignore[reportAssignmentType]

    def fsync(self, file_obj: object) -> None:
        """Do nothing: a file is stored when it is closed."""

    def format_user(self, uid: int | None) -> str:
        return "agent"

    def format_group(self, gid: int | None) -> str:
        return "agent"


Ask = Callable[[Request], Response]
MOST_FILES = 64
"""Maximum open files, over all sessions."""
MOST_BUFFERED = 4 * MOST_BYTES
"""Maximum bytes of all open files."""
MOST_FOLDERS = 1_000
"""Maximum folders made by clients."""
# Flags for opening a file, as numbered in version 3 of the protocol.
_READ, _WRITE, _APPEND, _CREATE, _TRUNCATE, _EXCLUSIVE = 1, 2, 4, 8, 16, 32
_FOLDER_MODE, _FILE_MODE = 0o040755, 0o100644


class OpenFile:
    """A file that a client has open."""

    def __init__(self, name: str, content: bytes, flags: int, *, is_changed: bool) -> None:
        self.name = name
        self.content = bytearray(content)
        self.flags = flags
        self.is_changed = is_changed


class _Tree:
    """The files and folders at one moment."""

    def __init__(self, listed: list[dict[str, Json]], made: set[str]) -> None:
        self.files = {str(row["path"]): row for row in listed}
        self.folders = {"", "inbox"}
        for name in (*map(posixpath.dirname, self.files), *made):
            while name and name not in self.folders:
                self.folders.add(name)
                name = posixpath.dirname(name)

    def refuse_folder(self, name: str) -> None:
        """Raise `SFTPFailure` for a path that is a folder."""
        if name in self.folders and name not in self.files:
            raise SFTPFailure(f"{show('/' + name)} is a folder")

    def describe(self, name: str) -> SFTPAttrs:
        """Return the SFTP attributes of a path."""
        if name in self.files:
            row = self.files[name]
            return _describe(_FILE_MODE, row["size"], int(datetime.datetime.fromisoformat(row["modified"]).timestamp()))
        if name in self.folders:
            return _describe(_FOLDER_MODE, 0, 0)
        raise SFTPNoSuchFile(f"there is no file {show(name)}")


class Drop:
    """The files of one sandbox. `ask` makes a request that is an event, `look` makes one that leaves no event."""

    def __init__(self, ask: Ask, look: Ask) -> None:
        self._ask_system = ask
        self._look = look
        self._made: set[str] = set()
        self._open: list[OpenFile] = []
        self.is_over = False
        """Whether changes are dropped from now on."""
        self._lost: list[str] = []

    def open(self, path: bytes, flags: int) -> OpenFile:
        """Open a file. Opening for reading makes the GET request to the system."""
        name = self._read_path(path)
        if len(self._open) >= MOST_FILES:
            raise SFTPFailure(f"at most {MOST_FILES} files are open at once: close some first")
        tree = self._load()
        tree.refuse_folder(name)
        is_new = name not in tree.files
        if flags & _WRITE and is_new:
            self._require_capacity(name, tree, flags)
        elif not is_new and flags & _CREATE and flags & _EXCLUSIVE:
            raise SFTPFailure(f"there is a file {show(name)} already")
        if flags & _READ or not flags & _WRITE:
            content = b"" if is_new and flags & _WRITE else self._ask("GET", name).body
        else:
            # Needed here to change a part of the content. The client does not read it, so it must not be an event.
            content = b"" if is_new else self._look(Request(method="GET", path=_encode(name))).body
        if flags & _WRITE and flags & _TRUNCATE:
            content = b""
        file = OpenFile(name, content, flags, is_changed=bool(flags & _WRITE and (is_new or flags & _TRUNCATE)))
        self._require_memory(len(content))
        self._open.append(file)
        return file

    def _require_capacity(self, name: str, tree: _Tree, flags: int) -> None:
        """Reject a new file that cannot be created."""
        if not flags & _CREATE:
            raise SFTPNoSuchFile(f"there is no file {show(name)}")
        folder = posixpath.dirname(name)
        while folder:
            if folder in tree.files:
                raise SFTPFailure(f"{show('/' + folder)} is a file, no folder")
            folder = posixpath.dirname(folder)

    def read(self, file: OpenFile, offset: int, size: int) -> bytes:
        """Return bytes of an open file."""
        if file.flags & _WRITE and not file.flags & _READ:
            raise SFTPPermissionDenied("the file was opened to write")
        return bytes(file.content[offset : offset + size])

    def write(self, file: OpenFile, offset: int, data: bytes) -> int:
        """Write bytes into an open file."""
        if not file.flags & _WRITE:
            raise SFTPPermissionDenied("the file was opened to read")
        start = len(file.content) if file.flags & _APPEND else offset
        self.resize(file, max(len(file.content), start + len(data)))
        file.content[start : start + len(data)] = data
        return len(data)

    def resize(self, file: OpenFile, size: int) -> None:
        """Truncate an open file, or extend it with zeros."""
        # One byte over the limit is stored, so that the system rejects the file on closing, which is an event.
        bounded = min(size, MOST_BYTES + 1)
        self._require_memory(bounded - len(file.content))
        file.is_changed = True
        if bounded < len(file.content):
            del file.content[bounded:]
        else:
            file.content.extend(bytes(bounded - len(file.content)))
        if size > MOST_BYTES:
            raise SFTPFailure(f"a file has at most {MOST_BYTES} bytes")

    def _require_memory(self, more: int) -> None:
        if more > 0 and sum(len(file.content) for file in list(self._open)) + more > MOST_BUFFERED:
            raise SFTPFailure(f"the files that are open have more than {MOST_BUFFERED} bytes together: close some first")

    def close(self, file: OpenFile) -> None:
        """Close a file. Closing a changed file makes the PUT request to the system."""
        # Removed first: also a file that the system rejects is then closed, and its memory is free.
        self._open.remove(file)
        if not file.is_changed:
            return
        try:
            if not self.is_over:
                self._ask("PUT", file.name, bytes(file.content))
        except ConnectionAbortedError:
            self._lost.append(file.name)
            raise
        if self.is_over:
            self._lost.append(file.name)

    def list_unfinished(self) -> list[str]:
        """Return the files that were open for writing at the end; they were dropped."""
        return [*self._lost, *(file.name for file in self._open if file.is_changed)]

    def describe_open(self, file: OpenFile) -> SFTPAttrs:
        """Return the SFTP attributes of an open file."""
        return _describe(_FILE_MODE, len(file.content), 0)

    def describe(self, path: bytes) -> SFTPAttrs:
        """Return the SFTP attributes of a path."""
        return self._load().describe(self._read_path(path))

    def change(self, path: bytes, attrs: SFTPAttrs) -> None:
        """Change the size of a file; times and permissions, which a drop does not have, are ignored."""
        self.describe(path)
        if attrs.size is not None:
            file = self.open(path, _WRITE)
            try:
                self.resize(file, attrs.size)
            finally:
                self.close(file)

    def list_folder(self, path: bytes) -> list[SFTPName]:
        """Return the entries of a folder."""
        name, tree = self._read_path(path), self._load()
        if name not in tree.folders:
            tree.describe(name)
            raise SFTPFailure(f"{show('/' + name)} is a file, no folder")
        prefix = f"{name}/" if name else ""
        # Only this module knows folders, so the answer comes from the tree; the request is made for its event.
        self._ask("GET", "", query=(("prefix", prefix),) if prefix else ())
        names = {one[len(prefix) :].partition("/")[0] for one in (*tree.files, *tree.folders) if one.startswith(prefix) and one != name}
        entries = [SFTPName(dots, attrs=_describe(_FOLDER_MODE, 0, 0)) for dots in (b".", b"..")]
        return entries + [SFTPName(child.encode(), attrs=tree.describe(prefix + child)) for child in sorted(names - {""})]

    def remove(self, path: bytes) -> None:
        """Remove a file; its folder stays."""
        name = self._read_path(path)
        tree = self._load()
        tree.refuse_folder(name)
        self._ask("DELETE", name)
        self._keep_folder(name)

    def rename(self, path: bytes, to: bytes, *, replaces: bool) -> None:
        """Give a file another path."""
        name, target = self._read_path(path), self._read_path(to)
        tree = self._load()
        if name in tree.folders and name not in tree.files:
            raise SFTPOpUnsupported("a folder is not renamed: rename its files")
        if target in tree.folders or (target in tree.files and not replaces):
            raise SFTPFailure(f"there is {show('/' + target)} already")
        self._require_capacity(target, tree, _CREATE)
        self._ask("MOVE", name, query=(("to", target),))
        self._keep_folder(name)

    def make_folder(self, path: bytes) -> None:
        """Store a folder that a client makes."""
        name = self._read_path(path)
        tree = self._load()
        if name in tree.folders or name in tree.files:
            raise SFTPFailure(f"there is {show('/' + name)} already")
        if len(self._made) >= MOST_FOLDERS:
            raise SFTPFailure(f"at most {MOST_FOLDERS} folders are made")
        self._require_capacity(name, tree, _CREATE)
        self._made.add(name)

    def remove_folder(self, path: bytes) -> None:
        """Remove an empty folder."""
        name = self._read_path(path)
        tree = self._load()
        if name not in tree.folders:
            raise SFTPNoSuchFile(f"there is no folder {show(name)}")
        if name in ("", "inbox"):
            raise SFTPPermissionDenied(f"{show('/' + name)} belongs to the drop")
        if any(one.startswith(f"{name}/") for one in (*tree.files, *tree.folders)):
            raise SFTPFailure(f"{show('/' + name)} is not empty")
        self._made.discard(name)

    def _keep_folder(self, name: str) -> None:
        # Folders are derived from file paths, and this one would disappear with its last file.
        folder = posixpath.dirname(name)
        if folder and len(self._made) < MOST_FOLDERS:
            self._made.add(folder)

    def _load(self) -> _Tree:
        listed = msgspec.json.decode(self._look(Request(method="GET")).body)["files"]
        return _Tree(cast("list[dict[str, Json]]", listed), self._made)

    def _read_path(self, path: bytes) -> str:
        """Return the path of a file in the drop. A path that leaves it is rejected, which is also an event."""
        try:
            text = path.decode()
        except UnicodeDecodeError:
            raise SFTPFailure("a path is written in UTF-8") from None
        # Before the path is resolved: `normpath` silently drops a `..` above the root.
        depth = 0
        for part in text.split("/"):
            depth += -1 if part == ".." else part not in ("", ".")
            if depth < 0:
                self._ask("GET", text.strip("/"))
                raise SFTPPermissionDenied(f"not a path inside the drop: {show(text, 200)}")
        return resolve_path(text)

    def _ask(self, method: str, name: str, body: bytes = b"", *, query: tuple[tuple[str, str], ...] = ()) -> Response:
        response = self._ask_system(Request(method=method, path=_encode(name), query=query, body=body))
        if response.status < 400:
            return response
        message = str(msgspec.json.decode(response.body)["error"]["message"])
        kinds: dict[int, Callable[[str], asyncssh.SFTPError]] = {400: SFTPPermissionDenied, 404: SFTPNoSuchFile}
        raise kinds.get(response.status, SFTPFailure)(message)


def resolve_path(text: str) -> str:
    """Return a path from the root of the drop; nothing is above it."""
    return posixpath.normpath("/" + text).lstrip("/")


def _encode(name: str) -> str:
    return "/" + encode_percent(name, "/")


def _describe(mode: int, size: int, at: int) -> SFTPAttrs:
    kind = FILEXFER_TYPE_DIRECTORY if mode == _FOLDER_MODE else FILEXFER_TYPE_REGULAR
    return SFTPAttrs(type=kind, size=size, permissions=mode, uid=0, gid=0, atime=at, mtime=at, nlink=1)
