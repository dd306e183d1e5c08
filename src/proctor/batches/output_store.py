"""Stores the output of a batch in a local folder or an object store. A file under its final name is complete.

In a folder, a file is written under a hidden name, synced to disk and renamed. For an object store, it is written locally and uploaded: an
incomplete upload leaves nothing. The operating system locks a folder for the lifetime of a process. An object store has no locks: the owner
renews a small object, and others watch whether it changes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

from proctor.errors import InputError
from proctor.sources.datasets.files import import_arrow, open_store

RENEWED_S = 5.0
"""How often the lock of an object store is renewed."""
STALE_S = 20.0
"""How long it is watched: if it does not change in this time, its owner was killed."""
_LOCK = ".lock"
_BLOCK = 1 << 20


State = tuple[int, int]
"""The size of a file, and when it was changed, in nanoseconds."""


def open_output(place: str | Path) -> OutputStore:
    """Return the store of a path or an address. Raises `InputError`."""
    return RemoteStore(place) if isinstance(place, str) and "://" in place else LocalStore(Path(place))


def write_bytes(store: OutputStore, name: str, data: bytes) -> None:
    """Write a small file atomically."""
    part = store.begin(name)
    part.write_bytes(data)
    store.put(part, name)


class OutputStore:
    """Files of a folder by their names, in which `/` separates folders."""

    def __init__(self, place: str, files: Any, root: str) -> None:
        self.place = place
        self._files = files
        self._root = root

    def _find(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            with self.open(name) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, name: str) -> Any:
        """Open a file for reading at any place in it; raises `OSError`."""
        return self._files.open_input_file(self._find(name))

    def exists(self, name: str) -> bool:
        """Return whether a file is there."""
        return bool(self._files.get_file_info(self._find(name)).is_file)

    def list(self, folder: str = "") -> list[str]:
        """Return the names of files and folders in a folder, hidden ones too."""
        place = self._find(folder)
        # Google's store has no folders, only objects with prefixes.
        found = self._look_into(place, recursive=self._files.type_name == "gcs")
        return sorted({each.path[len(place) :].strip("/").partition("/")[0] for each in found})

    def list_states(self, folder: str) -> dict[str, State]:
        """Return the size of each file in a folder and when it was changed."""
        found = self._look_into(self._find(folder))
        return {each.base_name: (each.size, each.mtime_ns or 0) for each in found if each.is_file}

    def _look_into(self, place: str, *, recursive: bool = False) -> Any:
        return self._files.get_file_info(import_arrow("pyarrow.fs").FileSelector(place, allow_not_found=True, recursive=recursive))

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with everything in it, if it is there."""
        info = self._files.get_file_info(self._find(name))
        if info.is_file:
            self._files.delete_file(info.path)
        elif info.type == import_arrow("pyarrow.fs").FileType.Directory:
            self._files.delete_dir(info.path)

    def begin(self, name: str) -> Path:
        """Return where to write a file until it is finished."""
        raise NotImplementedError

    def put(self, part: Path, name: str) -> None:
        """Store a finished file under this name."""
        raise NotImplementedError

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Lock the folder. Raises `InputError` if another batch is running."""
        raise NotImplementedError


class LocalStore(OutputStore):
    """A local folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), import_arrow("pyarrow.fs").LocalFileSystem(), str(path))
        self.path = path

    def begin(self, name: str) -> Path:  # noqa: D102 - see the base class
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, since only a rename within one file system is atomic; with a token, since two workers may write one result.
        return file.with_name(f".{file.name}.{_make_token()}.tmp")

    def put(self, part: Path, name: str) -> None:  # noqa: D102 - see the base class
        # Before the rename: otherwise a power cut could leave an incomplete file under this name.
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(self.path / name)

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Create the folder if it is missing, and lock it. Raises `InputError` if another batch is running."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / _LOCK).open("a+")
        except OSError as error:
            raise InputError(f"cannot write to {self.place!r}: {error.strerror}") from error
        with file:
            try:
                _lock_file(file)
            except OSError:
                raise _make_busy_error(self.place) from None
            yield


class RemoteStore(OutputStore):
    """A folder of an object store."""

    def __init__(self, address: str) -> None:
        files, root = open_store(address)
        super().__init__(address, files, root.rstrip("/"))

    def begin(self, name: str) -> Path:  # noqa: D102 - see the base class
        handle, path = tempfile.mkstemp(prefix="proctor-part-")
        os.close(handle)
        return Path(path)

    def put(self, part: Path, name: str) -> None:  # noqa: D102 - see the base class
        with part.open("rb") as file, self._files.open_output_stream(self._find(name)) as stream:
            while block := file.read(_BLOCK):
                stream.write(block)
        part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Lock the folder. Raises `InputError` if another batch is running."""
        token = _make_token().encode()
        ended = threading.Event()
        try:
            before = self.read(_LOCK)
            # A live owner renews it; a killed one does not.
            if before is not None and (ended.wait(STALE_S) or self.read(_LOCK) not in (before, None)):
                raise _make_busy_error(self.place)
            self._renew_lock(token, 0)
        except OSError as error:
            raise InputError(f"cannot write to {self.place!r}: {error}") from error
        renewing = threading.Thread(target=self._keep_renewing, args=(token, ended), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            # Joined, because a running renewal would write the lock again after it was deleted.
            renewing.join()
            # If another process has taken over the lock, it is not ours to delete.
            if (self.read(_LOCK) or b"").startswith(token):
                self.delete(_LOCK)

    def _renew_lock(self, token: bytes, count: int) -> None:
        with self._files.open_output_stream(self._find(_LOCK)) as stream:
            # The count makes each renewal different: others watch for a change, so that no clocks are compared.
            stream.write(token + b" %d" % count)

    def _keep_renewing(self, token: bytes, ended: threading.Event) -> None:
        count = 1
        while not ended.wait(RENEWED_S):
            # A short outage of the store does not end the batch; a longer one fails the next commit.
            with contextlib.suppress(OSError):
                self._renew_lock(token, count)
            count += 1


def is_full(error: OSError) -> bool:
    """Return whether a write failed because the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def describe_full(place: str | Path, error: OSError) -> str:
    """Return the message for a full disk."""
    return f"cannot write to {str(place)!r}: {error.strerror or error}; committed results stay, and --resume goes on when there is space"


@contextlib.contextmanager
def explain_full_disk(place: str | Path) -> Generator[None]:
    """Raise `InputError` for a write that failed because the disk is full."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise InputError(describe_full(place, error)) from error
        raise


def _make_busy_error(place: str) -> InputError:
    return InputError(f"another batch is at work in {place!r}; wait for it, or name another folder with --output")


def _make_token() -> str:
    """Return a unique token: processes of two machines may have the same number."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def _lock_file(file: Any) -> None:
    """Lock a file until it is closed or the process ends. Raises `OSError` if another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue] - known there alone
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
