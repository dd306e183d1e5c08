"""The entries of a run, read one by one, and single ones again by where they stand: the results of a large run are not held.

The file stays open as long as its entries are wanted: a run that is deleted meanwhile can still be shown.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.errors import StoreError
from proctor.model.run import EntryDigest, RunEntry
from proctor.model.typed import make_json_decoder

_ENTRY = make_json_decoder(RunEntry)


def open_regular(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=open_regular)`. Raises `OSError` for links, FIFOs and devices: who made the folder?"""
    file = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o644)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def read_regular(path: Path) -> bytes:
    """Return what a regular file holds. Raises `OSError`."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read()


class _Code(msgspec.Struct, frozen=True):
    code: str | None = None


class EntryHead(msgspec.Struct, frozen=True):
    """What has to be known of an entry to find its place among the others."""

    case: str
    outcome: str
    attempt: int = 0
    code: str | None = None
    verdicts: tuple[_Code, ...] = ()


_HEAD = make_json_decoder(EntryHead)


def left_nothing(entry: RunEntry | EntryDigest | EntryHead) -> bool:
    """Whether the agent could not be driven, so that every assertion ended as the attempt did; evidence may not have been loaded."""
    return entry.outcome in ("error", "skip") and entry.code is not None and all(told.code == entry.code for told in entry.verdicts)


class EntryFile:
    """The file of results of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.fdopen(open_regular(str(path), os.O_RDONLY), "rb") if path.exists() else None
        except OSError as error:
            raise StoreError(f"{str(path)!r} cannot be read: {error.strerror}") from error
        # Several threads may ask for entries, and a file has one position.
        self._lock = threading.Lock()

    def iterate_heads(self) -> Iterator[tuple[int, EntryHead]]:
        """Yield where each entry stands, and its head; a half-written last line is no entry."""
        if self._file is None:
            return
        with open(self._path, "rb", opener=open_regular) as file:
            start = 0
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield start, _HEAD.decode(line)
                except msgspec.MsgspecError as error:
                    raise StoreError(f"{self._path}:{number}: a broken entry: {error}") from error
                start += len(line)

    def read(self, start: int) -> RunEntry:
        """Return the entry that stands at a place."""
        assert self._file is not None, "a file without entries has no places"
        with self._lock:
            self._file.seek(start)
            line = self._file.readline()
        try:
            return _ENTRY.decode(line)
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self._path}: a broken entry at byte {start}: {error}") from error

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()
