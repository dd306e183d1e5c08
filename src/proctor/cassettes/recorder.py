"""Keeps everything that crosses a wire in a file, exchange by exchange.

An exchange that was answered is in the file, and on the disk, before the answer is handed on. What cannot be written is a `StoreError`,
and the file ends with its last whole line. A scope that is recorded again replaces what the file had of it; other scopes stay. Only one
process at a time records into a file.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import msgspec

from proctor.cassettes.entries import Entry, Fault, Scope, header_line, line_of, plain, read, summary
from proctor.cassettes.ports import Kind
from proctor.cassettes.scrub import Scrubber
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.evidence import Json


class Recorder:
    """A cassette that is being recorded."""

    def __init__(self, path: Path, *, secrets: Iterable[str] = ()) -> None:
        self._path = Path(os.path.realpath(path))
        self._scrubber = Scrubber(secrets)
        self._file = _opened(self._path)
        self._views: dict[Scope, RecordingTape] = {}
        try:
            self._replaced = self._begin()
        except BaseException:
            os.close(self._file)
            raise

    def scope(self, case: str, attempt: int = 0) -> RecordingTape:
        """The tape of one attempt. What the file holds of that attempt is replaced. Raises `StoreError`."""
        scope = Scope(case, attempt)
        if scope in self._known:
            self._replaced = True
            self._write({"begin": msgspec.to_builtins(scope)})
        self._known.add(scope)
        view = RecordingTape(self, scope)
        self._views[scope] = view
        return view

    def close(self) -> None:
        """Nothing more is to come: drop from the file what was recorded anew."""
        if self._file < 0:
            return
        try:
            if self._replaced:
                self._compact()
        finally:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def keep(self, view: RecordingTape, entry: Entry) -> None:
        """Write one exchange, unless its attempt has been started anew meanwhile."""
        if self._views.get(view.scope) is view and self._file >= 0:
            self._write(msgspec.to_builtins(entry))

    def scrubbed(self, value: Json) -> Json:
        """A value as it may be written."""
        return self._scrubber.value(plain(value))

    def scrubbed_text(self, text: str) -> str:
        """A message as it may be written."""
        return self._scrubber.text(text)

    def _begin(self) -> bool:
        self._size = 0
        self._known: set[Scope] = set()
        if os.fstat(self._file).st_size == 0:
            self._append(header_line(datetime.now(UTC).isoformat(timespec="seconds")))
            return False
        contents = read(self._path)
        self._size = contents.size
        self._known = {line.entry.scope for line in contents.lines}
        os.ftruncate(self._file, self._size)
        return contents.replaced

    def _write(self, document: Json) -> None:
        self._append(line_of(document))

    def _append(self, line: bytes) -> None:
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):  # a device cannot be cut
                os.ftruncate(self._file, self._size)
            raise StoreError(f"the cassette {self._path} cannot be written: {error.strerror}") from error
        self._size += len(line)

    def _compact(self) -> None:
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            contents = read(self._path)
            with partial.open("wb") as file:
                file.write(contents.header)
                file.writelines(line.raw for line in contents.lines)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(partial, os.fstat(self._file).st_mode & 0o777)
            os.replace(partial, self._path)
        except OSError:
            # The file is right as it is, only longer than it need be: it is read by its `begin` lines, and compacted next time.
            partial.unlink(missing_ok=True)


class RecordingTape:
    """The tape of one attempt."""

    def __init__(self, recorder: Recorder, scope: Scope) -> None:
        self._recorder = recorder
        self._next = 0
        self.scope = scope

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Send, keep what came back or what went wrong, hand it on."""
        asked = self._recorder.scrubbed(request)
        seq, self._next = self._next, self._next + 1
        try:
            response = await send()
        except Exception as error:
            fault = self._fault(error)
            self._recorder.keep(self, Entry(scope=self.scope, seq=seq, kind=kind, about=summary(kind, asked), request=asked, fault=fault))
            raise
        kept = self._recorder.scrubbed(response)
        self._recorder.keep(self, Entry(scope=self.scope, seq=seq, kind=kind, about=summary(kind, asked), request=asked, response=kept))
        return response

    def _fault(self, error: Exception) -> Fault:
        message = self._recorder.scrubbed_text(str(error))
        name = type(error).__name__
        if isinstance(error, TargetError):
            return Fault(type=name, message=message, code=error.code, safe=error.safe, retry_after_s=error.retry_after_s)
        return Fault(type=name, message=message)


def _opened(path: Path) -> int:
    """The file, ours alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            try:
                _locked(file, path)
                # While we waited for nothing, another recorder may have put a compacted file in place of the one we opened.
                if os.path.samestat(os.fstat(file), os.stat(path)):
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)
    except OSError as error:
        raise InputError(f"the cassette {path} cannot be opened for recording: {error.strerror}") from None


def _locked(file: int, path: Path) -> None:
    try:
        import fcntl  # not on Windows; there two recorders are not told apart
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"the cassette {path} is being recorded by another process") from None
    except OSError:
        return  # a file system that knows no locks
