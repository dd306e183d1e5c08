"""Records everything that crosses a wire in a file, exchange by exchange.

An exchange that was answered is in the file, and on the disk, before the answer is handed on. What cannot be written is a `StoreError`,
and the file ends with its last whole line. A scope that is recorded again replaces what the file had of it; other scopes stay. Only one
process at a time records into a file.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import msgspec

from proctor.cassettes.entries import Entry, Fault, Scope, encode_line, make_header_line, read_file, summarise, to_plain_json
from proctor.cassettes.ports import Kind
from proctor.cassettes.scrub import Scrubber
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.evidence import Json


class Recorder:
    """A cassette that is being recorded."""

    def __init__(self, path: Path, *, secrets: Iterable[str] = ()) -> None:
        # The file that a link leads to is locked and, when compacted, replaced; the link stays a link.
        self._path = Path(os.path.realpath(path))
        self._scrubber = Scrubber(secrets)
        self._file = _open_locked(self._path)
        self._views: dict[Scope, RecordingTape] = {}
        try:
            self._replaced = self._load_file()
        except BaseException:
            os.close(self._file)
            raise

    def scope(self, case: str, attempt: int = 0) -> RecordingTape:
        """Return the tape of one attempt, which replaces what the file holds of it. Raises `StoreError`."""
        scope = Scope(case, attempt)
        if scope in self._known:
            self._replaced = True
            # A line, and not a deletion: a recorder that dies leaves a file that reads right.
            self._write_document({"begin": msgspec.to_builtins(scope)})
        self._known.add(scope)
        view = RecordingTape(self, scope)
        self._views[scope] = view
        return view

    def close(self) -> None:
        """Remove replaced recordings from the file, and close it. Raises `StoreError` if the file on disk is another one."""
        if self._file < 0:
            return
        try:
            if self._replaced:
                self._compact_file()
        finally:
            os.close(self._file)
            # The system may give the number to another file, into which an answer that comes late must not be written.
            self._file = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # What went wrong first is the story; that the file cannot be put in order as well is not.
        with suppress(StoreError) if error is not None else nullcontext():
            self.close()

    def write_entry(self, view: RecordingTape, entry: Entry) -> None:
        """Write one exchange, unless its attempt was started again."""
        # An abandoned attempt may still get a response after its scope was started again; it must not mix with the new recording.
        if self._views.get(view.scope) is view and self._file >= 0:
            self._write_document(msgspec.to_builtins(entry))

    def scrub(self, value: Json) -> Json:
        """Return a value as it may be written."""
        return self._scrubber.scrub_value(to_plain_json(value))

    def scrub_text(self, text: str) -> str:
        """Return a message as it may be written."""
        return self._scrubber.scrub_text(text)

    def _load_file(self) -> bool:
        self._size = 0
        self._known: set[Scope] = set()
        if os.fstat(self._file).st_size == 0:
            self._append_line(make_header_line(datetime.now(UTC).isoformat(timespec="seconds")))
            return False
        contents = read_file(self._path)
        self._size = contents.size
        self._known = {line.entry.scope for line in contents.lines}
        # What is left of a line that was being written when the last recorder died.
        os.ftruncate(self._file, self._size)
        return contents.replaced

    def _write_document(self, document: Json) -> None:
        self._append_line(encode_line(document))

    def _append_line(self, line: bytes) -> None:
        try:
            rest = memoryview(line)
            # The system may take only a part of what it is given.
            while rest:
                rest = rest[os.write(self._file, rest) :]
            # Before the answer is handed on: what an agent has acted upon must be in the recording.
            os.fsync(self._file)
        except OSError as error:
            # An incomplete line in the middle would make the file unreadable; at the end it is ignored.
            with suppress(OSError):  # a device cannot be cut
                os.ftruncate(self._file, self._size)
            raise StoreError(f"the cassette {self._path} cannot be written: {error.strerror}") from error
        self._size += len(line)

    def _compact_file(self) -> None:
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            contents = read_file(self._path)
            # Written to a second file and renamed: a recorder that dies here leaves a complete file.
            with partial.open("wb") as file:
                file.write(contents.header)
                file.writelines(line.raw for line in contents.lines)
                file.flush()
                os.fsync(file.fileno())
            # The new file gets the permissions of the old one.
            os.chmod(partial, os.fstat(self._file).st_mode & 0o777)
            os.replace(partial, self._path)
        except OSError:
            # The file is right as it is, only longer than it need be: it is read by its `begin` lines, and compacted next time.
            partial.unlink(missing_ok=True)
        except InputError as error:
            raise StoreError(f"the cassette {self._path} was changed while it was recorded, and cannot be read any more: {error}") from None


class RecordingTape:
    """The tape of one attempt."""

    def __init__(self, recorder: Recorder, scope: Scope) -> None:
        self._recorder = recorder
        self._next = 0
        self.scope = scope

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Send the request, keep what came back or went wrong, and return it."""
        # Before sending: `send` may change the object.
        scrubbed = self._recorder.scrub(request)
        # Before it is sent: answers may come in another order, and a replay goes by the order of the requests.
        seq, self._next = self._next, self._next + 1
        try:
            response = await send()
        except Exception as error:
            # A cancelled exchange is not recorded (`CancelledError` is no `Exception`).
            fault = self._make_fault(error)
            self._recorder.write_entry(
                self, Entry(scope=self.scope, seq=seq, kind=kind, about=summarise(kind, scrubbed), request=scrubbed, fault=fault)
            )
            raise
        recorded = self._recorder.scrub(response)
        self._recorder.write_entry(
            self, Entry(scope=self.scope, seq=seq, kind=kind, about=summarise(kind, scrubbed), request=scrubbed, response=recorded)
        )
        # As it came: only the file has to do without secrets.
        return response

    def _make_fault(self, error: Exception) -> Fault:
        message = self._recorder.scrub_text(str(error))
        name = type(error).__name__
        if isinstance(error, TargetError):
            return Fault(type=name, message=message, code=error.code, safe=error.safe, retry_after_s=error.retry_after_s)
        return Fault(type=name, message=message)


def _open_locked(path: Path) -> int:
    """Open the file for this process alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # For appending: after a failed write is cut off, the next line starts at the new end.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            try:
                _lock_file(file, path)
                # While we waited for nothing, another recorder may have put a compacted file in place of the one we opened.
                if os.path.samestat(os.fstat(file), os.stat(path)):
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)
    except OSError as error:
        raise InputError(f"the cassette {path} cannot be opened for recording: {error.strerror}") from None


def _lock_file(file: int, path: Path) -> None:
    try:
        import fcntl  # not on Windows, where a second recorder is not detected
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"the cassette {path} is being recorded by another process") from None
    except OSError:
        return  # a file system that knows no locks
