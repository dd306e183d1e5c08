"""Opens a cassette, to record all network traffic in a file, exchange by exchange, or to play it.

    with open_tape("booking.cassette.jsonl", "record", secrets=[key]) as cassette:
        tape = cassette.scope("refund-1", 0)

An answered exchange is on disk before the answer is returned. A write error is a `StoreError`, and the file ends with its last complete
line. A scope that is recorded again replaces its earlier recording; other scopes stay. Only one process at a time records into a file.
"""

from __future__ import annotations

import copy
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

import msgspec

from proctor.cassettes.entries import (
    Entry,
    Fault,
    Line,
    Scope,
    Scrubber,
    encode_line,
    group_by_scope,
    make_header_line,
    make_lookup_key,
    read_file,
    summarise,
    to_plain_json,
)
from proctor.cassettes.ports import Kind
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import count_rest, show
from proctor.report.words.neutral import to_one_line


class Recorder:
    """A cassette that is being recorded."""

    def __init__(self, path: Path, *, secrets: Iterable[str] = ()) -> None:
        # The target of a link is locked and, when compacted, replaced; the link stays a link.
        self._path = Path(os.path.realpath(path))
        self.scrubber = Scrubber(secrets)
        self._file = _open_locked(self._path)
        self._views: dict[Scope, RecordingTape] = {}
        try:
            self._replaced = False
            self._size = 0
            self._known: set[Scope] = set()
            if os.fstat(self._file).st_size == 0:
                self._append_line(make_header_line(datetime.now(UTC).isoformat(timespec="seconds")))
            else:
                contents = read_file(self._path)
                self._size, self._replaced = contents.size, contents.replaced
                self._known.update(line.entry.scope for line in contents.lines)
                # The incomplete line of a recorder that died while writing.
                os.ftruncate(self._file, self._size)
        except BaseException:
            os.close(self._file)
            raise

    def scope(self, case: str, attempt: int = 0) -> RecordingTape:
        """Return the tape of one attempt, which replaces its recording in the file. Raises `StoreError`."""
        scope = Scope(case, attempt)
        if scope in self._known:
            self._replaced = True
            # A line instead of a deletion: a recorder that dies leaves a valid file.
            self._append_line(encode_line({"begin": msgspec.to_builtins(scope)}))
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
            # The system may reuse the descriptor for another file, into which a late answer must not be written.
            self._file = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The first error is reported; a failure to compact the file as well is not.
        with suppress(StoreError) if error is not None else nullcontext():
            self.close()

    def write_entry(self, view: RecordingTape, entry: Entry) -> None:
        """Write one exchange, unless its attempt was restarted."""
        # An abandoned attempt may still get a response after its scope was restarted; it must not mix with the new recording.
        if self._views.get(view.scope) is view and self._file >= 0:
            self._append_line(encode_line(msgspec.to_builtins(entry)))

    def _append_line(self, line: bytes) -> None:
        try:
            rest = memoryview(line)
            # The system may write only a part of the data.
            while rest:
                rest = rest[os.write(self._file, rest) :]
            # Before the answer is returned: the recording must have everything that an agent has acted upon.
            os.fsync(self._file)
        except OSError as error:
            # An incomplete line in the middle would make the file unreadable; at the end it is ignored.
            with suppress(OSError):  # a device cannot be truncated
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
            # The file is valid, only longer than necessary: its `begin` lines are respected, and it is compacted next time.
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
        """Send the request, record the response or the error, and return it."""
        # Before sending: `send` may change the object.
        scrubbed = self._recorder.scrubber.scrub_value(to_plain_json(request))
        # Before sending: answers may come in another order, and a replay follows the order of the requests.
        seq, self._next = self._next, self._next + 1
        entry = Entry(scope=self.scope, seq=seq, kind=kind, about=summarise(kind, scrubbed), request=scrubbed)
        try:
            response = await send()
        except Exception as error:
            # A cancelled exchange is not recorded (`CancelledError` is no `Exception`).
            fault = Fault(type=type(error).__name__, message=self._recorder.scrubber.scrub_text(str(error)))
            if isinstance(error, TargetError):
                fault = msgspec.structs.replace(fault, code=error.code, safe=error.safe, retry_after_s=error.retry_after_s)
            self._recorder.write_entry(self, msgspec.structs.replace(entry, fault=fault))
            raise
        self._recorder.write_entry(
            self, msgspec.structs.replace(entry, response=self._recorder.scrubber.scrub_value(to_plain_json(response)))
        )
        # Unscrubbed: only the file must not contain secrets.
        return response


def _open_locked(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # For appending: after a failed write is truncated, the next line starts at the new end.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            try:
                _lock_file(file, path)
                # Meanwhile another recorder may have replaced the file we opened by a compacted one.
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
        return  # a file system without locks


_MOST_LEAVES = 2000
"""The maximum number of request fields compared to find the nearest recording."""
_MOST_CANDIDATES = 200
"""The maximum number of recordings compared with a request that was not found."""
_WINDOW = 100
_MARKER = re.compile(r"(?<=DATA )[0-9a-f]{32}(?=>>>)|(?<=The marker of this request is )[0-9a-f]{32}")


class CassetteMiss(TargetError):
    """A cassette has no recording of a request. Nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="cassette_miss")


class Difference(msgspec.Struct, frozen=True):
    """The first field in which two values differ."""

    path: str
    recorded: Json | Missing
    now: Json | Missing


def make_miss(path: str, scope: Scope, kind: Kind, request: Json, lines: Sequence[Line], used: Container[int]) -> CassetteMiss:
    """Return the error for a request without a recording; `lines` are all recordings, `used` the numbers of those already played."""
    about = summarise(kind, request)
    out = [f"no recording of this {kind} exchange of {scope} in {path}" + (f": {about}" if about else "")]
    own = [line for line in lines if line.entry.scope == scope]
    # Another attempt at the case is the most similar one; a recording of any other case is still better than none.
    others = [line for line in lines if line.entry.scope.case == scope.case] or lines
    if not own:
        attempts = sorted({line.entry.scope.attempt for line in lines if line.entry.scope.case == scope.case})
        known = f"only attempts {', '.join(map(str, attempts))} were recorded" if attempts else "nothing was recorded"
        out.append(f"  {known} of this case")
    candidates = [line for line in own or others if line.entry.kind == kind][:_MOST_CANDIDATES]
    wanted = _count_leaves(request)

    def rank(line: Line) -> tuple[float, bool, int]:
        """Rank recordings: most fields in common, then not played yet, then the first."""
        leaves = _count_leaves(line.entry.request)
        return (2 * (wanted & leaves).total() / max(1, wanted.total() + leaves.total()), line.number not in used, -line.number)

    near = max(candidates, key=rank, default=None)
    if near is not None:
        out.extend(_describe_nearest(near, request, near.entry.scope != scope, near.number in used))
    out.append("  if the change is wanted, record it again with `--record`")
    return CassetteMiss("\n".join(out))


def find_first_difference(recorded: Json, now: Json) -> Difference | None:
    """Return the first difference in reading order, or None if the values are equal; extra elements of a list come last.

    The marker in a judge's prompt depends on the whole request, so it always differs; it is reported only if nothing else does.
    """
    marked: Difference | None = None
    waiting: list[tuple[str, Json | Missing, Json | Missing]] = [("$", recorded, now)]
    while waiting:
        path, left, right = waiting.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            keys = [*left, *(key for key in right if key not in left)]
            # Reversed, as the last one is taken first, so that the first difference in reading order is found.
            waiting.extend((f"{path}.{key}", left.get(key, MISSING), right.get(key, MISSING)) for key in reversed(keys))
        elif isinstance(left, list) and isinstance(right, list):
            pairs = enumerate(zip_longest(left, right, fillvalue=MISSING))
            waiting.extend(reversed([(f"{path}[{at}]", one, other) for at, (one, other) in pairs]))
        elif left is MISSING or right is MISSING or isinstance(left, bool) != isinstance(right, bool) or left != right:
            # `True` equals 1 in Python but not in JSON, hence the comparison of `bool`.
            difference = Difference(path, left, right)
            if _mask_marker(left) != _mask_marker(right):
                return difference
            marked = marked or difference
    return marked


def _mask_marker(value: Json | Missing) -> Json | Missing:
    # Of the same length, so that positions in the masked text are valid in the shown text.
    return _MARKER.sub(lambda marker: "x" * len(marker[0]), value) if isinstance(value, str) else value


def _describe_nearest(near: Line, request: Json, elsewhere: bool, played: bool) -> list[str]:
    entry = near.entry
    place = f"line {near.number}" + (f" ({entry.scope})" if elsewhere else "") + (", already played" if played else "")
    out = [f"  nearest: {place}" + (f": {entry.about}" if entry.about else "")]
    difference = find_first_difference(entry.request, request)
    if difference is None:
        reason = "the same request, recorded for another attempt" if elsewhere else "the same request, sent more often than it was recorded"
        return [*out, f"  {reason}"]
    sides: list[Any] = [difference.recorded, difference.now]
    shown = ["nothing" if isinstance(side, Missing) else show(side) for side in sides]
    if all(isinstance(side, str) for side in sides) and max(map(len, sides)) > _WINDOW:
        masked = [_mask_marker(side) for side in sides]
        # If the texts differ only in the marker, the marker is shown.
        compared = enumerate(zip(*(sides if masked[0] == masked[1] else masked), strict=False))
        first_difference = next((at for at, (recorded, now) in compared if recorded != now), min(map(len, sides)))
        start = max(0, first_difference - _WINDOW // 3)
        end = start + _WINDOW
        shown = [f"{'…' if start else ''}{show(side[start:end])}{'…' if end < len(side) else ''}" for side in sides]
    return [*out, f"  differs at {difference.path}", f"    recorded {shown[0]}", f"    now      {shown[1]}"]


def _count_leaves(value: Json) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    waiting: list[tuple[str, Json]] = [("$", value)]
    while waiting and len(counts) < _MOST_LEAVES:
        path, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend((f"{path}.{key}", member) for key, member in item.items())
        elif isinstance(item, list):
            waiting.extend((f"{path}[{at}]", member) for at, member in enumerate(item))
        else:
            # A prompt may be very long; its beginning is enough for ranking.
            counts[path, str(item)[:500]] += 1
    return counts


_MOST_SHOWN = 3
"""The maximum number of unused recordings in a message; the rest are counted."""


class Player:
    """A cassette that is being played."""

    def __init__(self, path: Path, *, secrets: Iterable[str] = ()) -> None:
        self._path = path
        self.scrubber = Scrubber(secrets)
        self._lines = read_file(path).lines
        self._scopes = group_by_scope(self._lines)
        self._opened: set[Scope] = set()
        self.played: set[int] = set()
        """The numbers of the recordings that were used."""
        self._misses: list[CassetteMiss] = []

    def scope(self, case: str, attempt: int = 0) -> PlayingTape:
        """Return the tape of one attempt, from its beginning."""
        scope = Scope(case, attempt)
        self._opened.add(scope)
        return PlayingTape(self, scope, self._scopes.get(scope, []))

    @property
    def misses(self) -> tuple[CassetteMiss, ...]:
        """Requests that were not found, the first of each attempt."""
        return tuple(self._misses)

    def list_unused(self) -> tuple[Entry, ...]:
        """Return the recordings of the played attempts that were never requested."""
        return tuple(line.entry for line in self._lines if line.entry.scope in self._opened and line.number not in self.played)

    def describe_unused(self) -> str | None:
        """Return one line about `list_unused`, with the first few; None if everything was played."""
        left = self.list_unused()
        if not left:
            return None
        shown = [to_one_line(f"{entry.scope}: {entry.kind} {entry.about}".rstrip(), 100) for entry in left[:_MOST_SHOWN]]
        more = count_rest(len(left), _MOST_SHOWN)
        many = f"{len(left)} recorded exchange{'s were' if len(left) > 1 else ' was'} never requested"
        return f"{many}, the agent does less than when {self._path} was recorded: {'; '.join(shown)}{more}"

    def close(self) -> None:
        """Do nothing: no file is open."""

    def __enter__(self) -> Player:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def note_miss(self, scope: Scope, kind: Kind, request: Json) -> CassetteMiss:
        """Store a missing request and return the error for it."""
        miss = make_miss(str(self._path), scope, kind, request, self._lines, self.played)
        self._misses.append(miss)
        return miss


class PlayingTape:
    """The tape of one attempt."""

    def __init__(self, player: Player, scope: Scope, lines: list[Line]) -> None:
        self._player = player
        self._scope = scope
        self._miss: CassetteMiss | None = None
        # The next recording of each request is the last element.
        self._waiting: dict[tuple[Kind, str], list[Line]] = {}
        for line in reversed(lines):
            self._waiting.setdefault((line.entry.kind, make_lookup_key(line.entry.request)), []).append(line)

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Return the recorded response to `request`; `send` is never called."""
        if self._miss is not None:
            # A new error: the first one may be in use elsewhere, and raising it again would extend its traceback.
            raise CassetteMiss(self._miss.message)
        # The file contains no secrets, so a request is looked up in its scrubbed form.
        scrubbed = self._player.scrubber.scrub_value(to_plain_json(request))
        waiting = self._waiting.get((kind, make_lookup_key(scrubbed)))
        if not waiting:
            self._miss = self._player.note_miss(self._scope, kind, scrubbed)
            raise self._miss
        line = waiting.pop()
        self._player.played.add(line.number)
        fault = line.entry.fault
        if fault is None:
            # A copy: the caller may change it, and the scope may be played again.
            return copy.deepcopy(line.entry.response)
        # Callers catch a timeout by its type, in a replay as in a live run.
        if fault.type == "TimeoutError":
            raise TimeoutError(fault.message)
        if fault.code is not None:
            raise TargetError(fault.message, code=fault.code, safe=fault.safe, retry_after_s=fault.retry_after_s)
        # No class is looked up by a name from a file: any other error becomes its text.
        raise TargetError(f"{fault.type}: {fault.message}" if fault.message else fault.type)


Cassette = Recorder | Player
"""The result of `open_tape`: `scope(case, attempt)` returns the tape of one attempt, `close()` ends it."""


@overload
def open_tape(path: str | PathLike[str], mode: Literal["record"], *, secrets: Iterable[str] = ()) -> Recorder: ...
@overload
def open_tape(path: str | PathLike[str], mode: Literal["replay"], *, secrets: Iterable[str] = ()) -> Player: ...
def open_tape(path: str | PathLike[str], mode: Literal["record", "replay"], *, secrets: Iterable[str] = ()) -> Cassette:
    """Open a cassette. `secrets` are removed from everything that is written or looked up. Raises `InputError`."""
    return Recorder(Path(path), secrets=secrets) if mode == "record" else Player(Path(path), secrets=secrets)
