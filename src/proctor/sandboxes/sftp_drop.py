"""A drop of files as SFTP has it: paths from `/` on, folders, and files that are open.

What is read, written, listed, removed and renamed are requests to the system, so each is an event of the sandbox. A file is read whole when
it is opened and written whole when it is closed; until then it is held here, within limits. Folders come and go with their files; those
that a client makes are remembered here and are no part of the state. Nothing here knows a disk: a path is the name of a row, or refused.
"""

from __future__ import annotations

import datetime
import posixpath
from collections.abc import Callable
from typing import cast

import asyncssh
import msgspec
from asyncssh import SFTPAttrs, SFTPFailure, SFTPName, SFTPNoSuchFile, SFTPOpUnsupported, SFTPPermissionDenied
from asyncssh.constants import FILEXFER_TYPE_DIRECTORY, FILEXFER_TYPE_REGULAR

from proctor.codecs.query import encode_percent
from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.simulators.exchange import Request, Response
from proctor.simulators.kinds.files import MOST_BYTES

Ask = Callable[[Request], Response]
MOST_FILES = 64
"""Files that are open at once, over all sessions."""
MOST_HELD = 4 * MOST_BYTES
"""Bytes of files that are open, all together."""
MOST_FOLDERS = 1_000
"""Folders that clients make."""
# Flags of opening a file, as version 3 of the protocol numbers them.
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
        self.files = {str(one["path"]): one for one in listed}
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
    """The files of one sandbox. `ask` makes a request that is an event, `look` one that leaves no trace."""

    def __init__(self, ask: Ask, look: Ask) -> None:
        self._ask_system = ask
        self._look = look
        self._made: set[str] = set()
        self._open: list[OpenFile] = []
        self.is_over = False
        """Whether changes are dropped from now on."""
        self._lost: list[str] = []

    def open(self, path: bytes, flags: int) -> OpenFile:
        """Open a file; of one that is read, this is the request."""
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
            # The client does not read it: the content is needed to change a part of it, and that is no event.
            content = b"" if is_new else self._look(Request(method="GET", path=_encode(name))).body
        if flags & _WRITE and flags & _TRUNCATE:
            content = b""
        file = OpenFile(name, content, flags, is_changed=bool(flags & _WRITE and (is_new or flags & _TRUNCATE)))
        self._hold(len(content))
        self._open.append(file)
        return file

    def _require_capacity(self, name: str, tree: _Tree, flags: int) -> None:
        """Refuse to make a file where none can be."""
        if not flags & _CREATE:
            raise SFTPNoSuchFile(f"there is no file {show(name)}")
        folder = posixpath.dirname(name)
        while folder:
            if folder in tree.files:
                raise SFTPFailure(f"{show('/' + folder)} is a file, no folder")
            folder = posixpath.dirname(folder)

    def read(self, file: OpenFile, offset: int, size: int) -> bytes:
        """Return some of a file that is open."""
        if file.flags & _WRITE and not file.flags & _READ:
            raise SFTPPermissionDenied("the file was opened to write")
        return bytes(file.content[offset : offset + size])

    def write(self, file: OpenFile, offset: int, data: bytes) -> int:
        """Put some bytes into a file that is open."""
        if not file.flags & _WRITE:
            raise SFTPPermissionDenied("the file was opened to read")
        start = len(file.content) if file.flags & _APPEND else offset
        self.resize(file, max(len(file.content), start + len(data)))
        file.content[start : start + len(data)] = data
        return len(data)

    def resize(self, file: OpenFile, size: int) -> None:
        """Cut a file that is open, or fill it up with zeros."""
        # One byte over the limit is stored, so that the system rejects the file when it is closed, which is an event.
        bounded = min(size, MOST_BYTES + 1)
        self._hold(bounded - len(file.content))
        file.is_changed = True
        if bounded < len(file.content):
            del file.content[bounded:]
        else:
            file.content.extend(bytes(bounded - len(file.content)))
        if size > MOST_BYTES:
            raise SFTPFailure(f"a file has at most {MOST_BYTES} bytes")

    def _hold(self, more: int) -> None:
        if more > 0 and sum(len(file.content) for file in list(self._open)) + more > MOST_HELD:
            raise SFTPFailure(f"the files that are open have more than {MOST_HELD} bytes together: close some first")

    def close(self, file: OpenFile) -> None:
        """Close a file; of one that was written, this is the request."""
        # First: a file that the system rejects is closed all the same, and uses no more memory.
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
        """Return the files that were being written at the end; they were dropped."""
        return [*self._lost, *(file.name for file in self._open if file.is_changed)]

    def describe_open(self, file: OpenFile) -> SFTPAttrs:
        """Return the SFTP attributes of an open file."""
        return _describe(_FILE_MODE, len(file.content), 0)

    def describe(self, path: bytes) -> SFTPAttrs:
        """Return the SFTP attributes of a path."""
        return self._load().describe(self._read_path(path))

    def change(self, path: bytes, attrs: SFTPAttrs) -> None:
        """Change the size of a file; times and permissions, which a drop does not have, are passed over."""
        self.describe(path)
        if attrs.size is not None:
            file = self.open(path, _WRITE)
            try:
                self.resize(file, attrs.size)
            finally:
                self.close(file)

    def list_folder(self, path: bytes) -> list[SFTPName]:
        """Return what is in a folder."""
        name, tree = self._read_path(path), self._load()
        if name not in tree.folders:
            tree.describe(name)
            raise SFTPFailure(f"{show('/' + name)} is a file, no folder")
        prefix = f"{name}/" if name else ""
        # Folders are known here alone, so the answer is made of the tree; the request is made to be an event.
        self._ask("GET", "", query=(("prefix", prefix),) if prefix else ())
        inside = {one[len(prefix) :].partition("/")[0] for one in (*tree.files, *tree.folders) if one.startswith(prefix) and one != name}
        here = [SFTPName(dots, attrs=_describe(_FOLDER_MODE, 0, 0)) for dots in (b".", b"..")]
        return here + [SFTPName(child.encode(), attrs=tree.describe(prefix + child)) for child in sorted(inside - {""})]

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
        """Remember a folder that a client makes."""
        name = self._read_path(path)
        tree = self._load()
        if name in tree.folders or name in tree.files:
            raise SFTPFailure(f"there is {show('/' + name)} already")
        if len(self._made) >= MOST_FOLDERS:
            raise SFTPFailure(f"at most {MOST_FOLDERS} folders are made")
        self._require_capacity(name, tree, _CREATE)
        self._made.add(name)

    def remove_folder(self, path: bytes) -> None:
        """Forget a folder in which nothing is."""
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
        # Folders are made of the paths of files, and this one would go with its last file.
        folder = posixpath.dirname(name)
        if folder and len(self._made) < MOST_FOLDERS:
            self._made.add(folder)

    def _load(self) -> _Tree:
        listed = msgspec.json.decode(self._look(Request(method="GET")).body)["files"]
        return _Tree(cast("list[dict[str, Json]]", listed), self._made)

    def _read_path(self, path: bytes) -> str:
        """Return the path of a file in the drop. One that leaves it is an event, too, and refused."""
        try:
            text = path.decode()
        except UnicodeDecodeError:
            raise SFTPFailure("a path is written in UTF-8") from None
        # Before the path is resolved: `normpath` drops a `..` that leads above the root without a word.
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
    """Return a path from the root of the drop on; nothing is above it."""
    return posixpath.normpath("/" + text).lstrip("/")


def _encode(name: str) -> str:
    return "/" + encode_percent(name, "/")


def _describe(mode: int, size: int, at: int) -> SFTPAttrs:
    kind = FILEXFER_TYPE_DIRECTORY if mode == _FOLDER_MODE else FILEXFER_TYPE_REGULAR
    return SFTPAttrs(type=kind, size=size, permissions=mode, uid=0, gid=0, atime=at, mtime=at, nlink=1)
