"""Stores runs as folders of plain files: `<home>/runs/<run id>/`.

    run.json        the header, written once
    cases.jsonl     the cases of a suite that has very many, a line each
    suite.yaml      the suite in native form, so that the run can be read again when the file it came from has changed
    results.jsonl   one entry per finished attempt, appended and forced to disk
    ended.json      how the run ended or was left; missing while it is running, or after a crash

One thread writes: entries that arrive while it waits for the disk are written together, so that durability costs one wait per batch instead
of one per entry. Entries are handed to it after the event loop has started all other ready tasks, since waking a thread can cost more than
its work. An incomplete last line, which only a crash leaves, is cut off when the run is opened again. A run that is being written is
locked; a second process gets an error.
"""

import asyncio
import contextlib
import errno
import os
import queue
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from proctor.errors import InputError, StoreError
from proctor.model.result import Ending
from proctor.model.run import EntryDigest, RunEntry, RunHeader
from proctor.model.show import show
from proctor.model.typed import make_json_decoder
from proctor.store.files.run_references import RunMatch, RunReferences, is_path
from proctor.store.sql.settle_futures import settle_waiters


def open_regular(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=open_regular)`. Raises `OSError` for links, FIFOs and devices, because the folder is untrusted."""
    file = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o644)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file. Raises `OSError`."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read()


T = TypeVar("T")


class _Code(msgspec.Struct, frozen=True):
    code: str | None = None


class EntryHead(msgspec.Struct, frozen=True):
    """The fields of an entry that identify its attempt."""

    case: str
    outcome: str
    attempt: int = 0
    code: str | None = None
    verdicts: tuple[_Code, ...] = ()


_HEAD = make_json_decoder(EntryHead)


def left_nothing(entry: RunEntry | EntryDigest | EntryHead) -> bool:
    """Return whether the agent could not be driven, so that every assertion has the outcome of the attempt; evidence may not be loaded."""
    return entry.outcome in ("error", "skip") and entry.code is not None and all(verdict.code == entry.code for verdict in entry.verdicts)


class EntryFile:
    """The file of results of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.fdopen(open_regular(str(path), os.O_RDONLY), "rb") if path.exists() else None
        except OSError as error:
            raise StoreError(f"{str(path)!r} cannot be read: {error.strerror}") from error
        # Several threads may read entries, and a file has one position.
        self._lock = threading.Lock()

    def iterate_heads(self) -> Iterator[tuple[int, EntryHead]]:
        """Yield the offset and the head of each entry, except an incomplete last line."""
        return _iterate_lines(self._path, _HEAD)

    def read(self, start: int) -> RunEntry:
        """Return the entry at an offset."""
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


try:
    import fcntl
except ImportError:  # not on Windows, where a second writer of a run is not detected
    fcntl = None

HEADER, SUITE, RESULTS, ENDED = "run.json", "suite.yaml", "results.jsonl", "ended.json"
CASES = "cases.jsonl"
"""The cases of a suite with too many for one text, one per line."""
_HEADER = make_json_decoder(RunHeader)
_ENTRY = make_json_decoder(RunEntry)
# macOS and Windows have only `fsync`, which writes more.
_FORCE_TO_DISK = getattr(os, "fdatasync", os.fsync)
_LOCK_TRIES = 5
"""Attempts to lock a file: a process that only tests the lock holds it for an instant."""
_Line = tuple[bytes, "asyncio.Future[None]"]


class RunFiles:
    """All runs of a workspace."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "runs"

    def create(self, header: RunHeader, suite_text: str = "", cases: Iterable[bytes] | None = None) -> "RunFolder":
        """Create a run, open for writing; `cases` are the lines of a suite whose cases have their own file."""
        folder = self.folder / header.run_id
        try:
            text = msgspec.json.format(msgspec.json.encode(header), indent=2) + b"\n"
        except UnicodeEncodeError as error:
            # A file name can contain any bytes; a header is JSON, in UTF-8.
            raise InputError(f"cannot keep a run: {show(error.object)} is no UTF-8 text; rename it") from None
        try:
            folder.mkdir(parents=True)
            _write_whole(folder / SUITE, suite_text.encode())
            if cases is not None:
                with (folder / CASES).open("wb") as file:
                    file.writelines(cases)
                    file.flush()
                    os.fsync(file.fileno())
            # The header last: a folder with a header is a run, so a crash before leaves no run without its suite.
            _write_whole(folder / HEADER, text)
            _sync_folder(self.folder)
        except FileExistsError:
            raise StoreError(f"there is a run {header.run_id!r} already") from None
        except OSError as error:
            raise StoreError(f"cannot keep a run in {str(self.folder)!r}: {error.strerror}") from error
        return RunFolder(folder, header, writing=True)

    def open(self, run: str, *, writing: bool = False, suite: str | None = None) -> "RunFolder":
        """Return the run of a reference (`run_references.py`); `suite` decides whose baseline."""
        folder = self.find(run, suite=suite).folder
        return RunFolder(folder, _read_header(folder, run), writing=writing)

    def find(self, run: str, *, suite: str | None = None) -> RunMatch:
        """Return the run of a reference, and why; raises `StoreError`."""
        if is_path(run) or (Path(run) / HEADER).is_file():
            return RunMatch(folder=Path(run))
        # A complete id needs no list of all runs, for which each is opened.
        if run not in ("", ".", "..") and (self.folder / run / HEADER).exists():
            return RunMatch(folder=self.folder / run)
        return self._references.find(run, suite=suite)

    def list_meant(self, run: str) -> list[str]:
        """Return the ids of all runs that match a reference, newest first. Raises `StoreError`."""
        return self._references.list_meant(run)

    @property
    def _references(self) -> RunReferences:
        return RunReferences(self.folder, self.list_ids, lambda folder: _read_header(folder, folder.name))

    def list_ids(self) -> list[str]:
        """Return the ids of all runs, newest first; ids begin with their time."""
        if not self.folder.is_dir():
            return []
        return sorted((entry.name for entry in self.folder.iterdir() if (entry / HEADER).exists()), reverse=True)


class RunFolder:
    """One run."""

    def __init__(self, folder: Path, header: RunHeader, *, writing: bool) -> None:
        self.folder = folder
        self.header = header
        """The settings with which the run was started."""
        self._writer = _Writer(folder) if writing else None

    async def append(self, entry: RunEntry) -> None:
        """Store one finished attempt durably."""
        assert self._writer is not None, "opened for reading"
        await self._writer.put_line(msgspec.json.encode(entry) + b"\n", asyncio.get_running_loop().create_future())

    def entries(self) -> Iterator[RunEntry]:
        """Yield all entries so far, in order, except an incomplete last line."""
        return (entry for _, entry in _iterate_lines(self.folder / RESULTS, _ENTRY))

    def open_entries(self) -> EntryFile:
        """Return all entries so far, for repeated reading one by one."""
        return EntryFile(self.folder / RESULTS)

    def suite_text(self) -> str:
        """Return the suite the run was started with, in native form."""
        try:
            return read_regular(self.folder / SUITE).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"the suite of run {self.header.run_id!r} cannot be read: {error}") from error

    def read_end(self) -> str | None:
        """Return how the run ended; None while it is running, or after a crash."""
        try:
            document = msgspec.json.decode(read_regular(self.folder / ENDED))
        # It is not synced to disk, so a crash may leave no file, or an invalid one.
        except (OSError, msgspec.MsgspecError):
            return None
        return str(document.get("ended")) if isinstance(document, dict) else None

    def find_ending(self) -> Ending:
        """Return how the run ended, according to its files: `running` while a process writes it, `not_ended` after a crash."""
        ended = self.read_end()
        for known in ("completed", "interrupted", "budget", "failed"):
            if ended == known:
                return known
        return "running" if _is_locked(self.folder / RESULTS) else "not_ended"

    def close(self, ended: str) -> None:
        """Store how the run ended; nothing more will be written."""
        if self._stop_writing():
            self._write_end(ended)

    def release(self, ended: str | None = None) -> None:
        """Stop writing a resumable run; `ended` is stored as the reason."""
        if self._stop_writing() and ended is not None:
            with contextlib.suppress(OSError):  # a full disk is often the cause; without a reason it looks like a crash
                self._write_end(ended)

    def _stop_writing(self) -> bool:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        return writer is not None

    def _write_end(self, ended: str) -> None:
        # A crash that loses this file leaves a resumable run with nothing left to do.
        _write_whole(self.folder / ENDED, msgspec.json.encode({"ended": ended}) + b"\n", durable=False)


def _iterate_lines(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[int, T]]:
    """Yield the offset and the content of each line, except an incomplete last one. A missing file has none. Raises `StoreError`."""
    try:
        file = os.fdopen(open_regular(str(path), os.O_RDONLY), "rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    with file:
        start = 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield start, decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise StoreError(f"{path}:{number}: a broken entry: {error}") from error
            start += len(line)


def _read_header(folder: Path, run: str) -> RunHeader:
    try:
        return _HEADER.decode(read_regular(folder / HEADER))
    except OSError as error:
        raise StoreError(f"run {run!r} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise StoreError(f"run {run!r} has a broken header: {error}") from error


class _Writer:
    """The thread that appends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        try:
            self._file = open_regular(str(self._path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
            _sync_folder(folder)
        except OSError as error:
            raise StoreError(f"cannot write {str(self._path)!r}: {error.strerror}") from error
        # The system releases the lock with the process, so a crash leaves no lock, unlike a lock file.
        if not _try_to_lock(self._file):
            os.close(self._file)
            raise StoreError(f"run {folder.name!r} is being written by another process")
        # Only with the lock: another process's run must not look as if it continued.
        (folder / ENDED).unlink(missing_ok=True)
        size = os.fstat(self._file).st_size
        at = size
        while at > 0:
            start = max(0, at - 65536)
            # From the end, in pieces: the file may be large, and the incomplete line is short.
            line_break = os.pread(self._file, at - start, start).rfind(b"\n")
            if line_break >= 0:
                at = start + line_break + 1
                break
            at = start
        if at != size:
            os.ftruncate(self._file, at)
        self._fault: StoreError | None = None
        self._gathered: list[_Line] = []
        self._waiting: queue.SimpleQueue[list[_Line] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_until_closed, name=f"results of {folder.name}", daemon=True)
        self._thread.start()

    def put_line(self, line: bytes, written: "asyncio.Future[None]") -> "asyncio.Future[None]":
        """Pass a line to the thread; `written` is done when it is on disk."""
        self._gathered.append((line, written))
        # After the loop has run all ready tasks: entries that finish in the same turn wake the thread once.
        if len(self._gathered) == 1:
            written.get_loop().call_soon(self._hand_over)
        return written

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._waiting.put(gathered)

    def close(self) -> None:
        self._hand_over()
        self._waiting.put(None)
        self._thread.join()
        os.close(self._file)

    def _write_until_closed(self) -> None:
        while True:
            batch = [self._waiting.get()]
            # All lines that arrived during the last sync go into one write and one sync.
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            entries = [entry for gathered in batch if gathered is not None for entry in gathered]
            if entries:
                fault = self._write_batch(b"".join(line for line, _ in entries))
                _wake_waiting([written for _, written in entries], fault)
            if None in batch:
                return

    def _write_batch(self, data: bytes) -> StoreError | None:
        if self._fault is not None:
            return self._fault
        old_size = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            # Enough for an appended file: it also writes the new length, but not the times.
            _FORCE_TO_DISK(self._file)
        except OSError as error:
            fault = StoreError(f"results cannot be stored in {str(self._path)!r}: {error.strerror}")
            try:
                # None of them was acknowledged, so all are removed: an incomplete line would corrupt the next one.
                os.ftruncate(self._file, old_size)
            except OSError:
                # An incomplete line may be left, and nothing may follow it.
                self._fault = fault
            return fault
        return None


def _wake_waiting(waiting: "list[asyncio.Future[None]]", fault: StoreError | None) -> None:
    """Wake all waiters of a batch, each loop once."""
    loops = {written.get_loop() for written in waiting}
    for loop in loops:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle_waiters, [written for written in waiting if written.get_loop() is loop], fault)


def _write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file atomically, so that it is never incomplete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(partial, path)


def _try_to_lock(file: int) -> bool:
    """Take the writer's lock; return False if another process has it."""
    if fcntl is None:
        return True
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.01)  # a process that only tests the lock holds it for an instant
        else:
            return True
    return False


def _is_locked(path: Path) -> bool:
    """Return whether some process is writing these results."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            if fcntl is None:
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _sync_folder(path: Path) -> None:
    """Sync the entries of a folder to disk."""
    if os.name == "nt":  # Windows opens no folders, and writes their entries by itself
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
