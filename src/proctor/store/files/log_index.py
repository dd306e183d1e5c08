"""An index of the attempts in the log of a run, so that a long log is read once, not for every page.

The index takes about forty bytes per line. New lines are read on the next request, so that a running run can be followed. A log that was
truncated, replaced or overwritten is read from its beginning. An unreadable line has a number, but is no attempt.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from proctor.errors import StoreError
from proctor.model.run import EntryDigest, RunEntry
from proctor.model.typed import make_json_decoder
from proctor.store.files.run_files import open_regular
from proctor.store.runs.entry_digests import LARGEST_DIGEST, decode_digest, shorten_entry

T = TypeVar("T")
_ENTRY = make_json_decoder(RunEntry)
_DIGEST = make_json_decoder(EntryDigest)
_BROKEN = 255
"""The outcome of a line that cannot be read."""
_EDGE = 256
"""Bytes before the end of the indexed part, which identify the file."""
_AT_ONCE = 1 << 20
"""Bytes of one read."""
_MOST_FACTS = 16
"""Maximum cached facts about one log."""
Stamp = tuple[int, int, int, int]
"""The identity, the length and the modification time of a file."""


class LogCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a log."""

    outcomes: dict[str, int]
    """The number of attempts by outcome."""
    different: int
    """The number of distinct attempts: a log may repeat one."""
    problem: str | None = None
    """The error of the first unreadable line."""


class LogIndex:
    """The log of one run, as far as it was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._stamp: Stamp | None = None
        self._end, self._edge = 0, b""
        self._starts = array("Q")
        self._cases = array("q")
        """Hashes of the ids of the cases."""
        self._attempts = array("q")
        self._took_ms = array("d")
        """Duration of the agent; negative if unknown."""
        self._broken = array("Q")
        """Numbers of the unreadable lines; the lines between them are read together."""
        self._outcomes = bytearray()
        """For each line the index of its outcome in `_names`; appended last, so that a line counts only when it is complete."""
        self._names: list[str] = []
        self._problem: str | None = None
        self._facts: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of lines, including unreadable ones."""
        return len(self._outcomes)

    def read_on(self) -> bool:
        """Read the new lines; return False if the log was replaced. Raises `StoreError`."""
        with self._lock:
            try:
                stat = os.stat(self._path)
            except FileNotFoundError:
                # A missing log is empty; one that was read and is gone was replaced.
                return self._file is None
            except OSError as error:
                raise StoreError(f"{str(self._path)!r} cannot be read: {error.strerror}") from error
            stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if stamp == self._stamp:
                return True
            try:
                if self._file is None:
                    self._file = os.fdopen(open_regular(str(self._path), os.O_RDONLY), "rb", buffering=0)
                elif not self._has_only_grown(stamp):
                    return False
                # An interrupted read is not continued: half of a line may have been added.
                self._stamp = None
                self._read_lines(self._file)
            except OSError as error:
                raise StoreError(f"{str(self._path)!r} cannot be read: {error.strerror}") from error
            self._stamp = stamp
            return True

    def _has_only_grown(self, stamp: Stamp) -> bool:
        """Return whether the file is the one that was read, and has only grown."""
        if self._file is None or self._stamp is None:
            return False
        opened = os.fstat(self._file.fileno())
        # A log only grows: if it was written to and has the same length, it was overwritten.
        if (opened.st_dev, opened.st_ino) != stamp[:2] or stamp[2] < self._end or stamp[2] == self._stamp[2]:
            return False
        return os.pread(self._file.fileno(), len(self._edge), self._end - len(self._edge)) == self._edge

    def _read_lines(self, file: IO[bytes]) -> None:
        with open(file.fileno(), "rb", buffering=_AT_ONCE, closefd=False) as lines:
            lines.seek(self._end)
            line = b""
            for text in lines:
                # Still being written: it is read when it is complete.
                if not text.endswith(b"\n"):
                    break
                line = text
                self._add_line(line)
                self._end += len(line)
        if line:
            self._edge = line[-_EDGE:]

    def _add_line(self, line: bytes) -> None:
        try:
            digest = decode_digest(line)
            if digest.outcome not in self._names:
                # Each line has one byte for its outcome, and the highest value is reserved.
                if len(self._names) == _BROKEN:
                    raise StoreError(f"too many different outcomes, {digest.outcome[:40]!r} among them")
                self._names.append(digest.outcome)
            outcome, hashed, took = self._names.index(digest.outcome), hash(digest.case), digest.find_agent_ms()
            # Last: a number beyond 64 bits raises here, before any array has data of the line.
            self._attempts.append(digest.attempt)
        except (StoreError, OverflowError) as error:
            self._problem = self._problem or f"{self._path}:{len(self) + 1}: a broken entry: {error}"
            outcome, hashed, took = _BROKEN, 0, None
            self._attempts.append(0)
            self._broken.append(len(self))
        self._starts.append(self._end)
        self._cases.append(hashed)
        self._took_ms.append(-1.0 if took is None else took)
        self._outcomes.append(outcome)

    @property
    def stamp(self) -> Stamp | None:
        """The file that was read, as it was then; None if there is none."""
        return self._stamp

    def count(self) -> LogCounts:
        """Return the totals of the log."""
        counts = {name: self._outcomes.count(code) for code, name in enumerate(self._names)}
        # Not strict: a line may be added concurrently, and counts only when it has an outcome, which is appended last.
        pairs = zip(self._cases, self._attempts, self._outcomes, strict=False)
        different = len({(case, attempt) for case, attempt, outcome in pairs if outcome != _BROKEN})
        return LogCounts(outcomes={name: count for name, count in counts.items() if count}, different=different, problem=self._problem)

    def find_numbers(self, *, outcome: str | None = None, case: str | None = None) -> Sequence[int]:
        """Return the numbers of the attempts with an outcome and of a case, in the order in which they ended."""
        count = len(self)
        if outcome is not None and outcome not in self._names:
            return ()
        code = None if outcome is None else self._names.index(outcome)
        if case is not None:
            numbers = _find_all(self._cases, hash(case), count)
            return [number for number in numbers if self._outcomes[number] == code or (code is None and self._outcomes[number] != _BROKEN)]
        if code is not None:
            return _find_code(self._outcomes, code, count)
        if self._problem is None:
            return range(count)
        return [number for number in range(count) if self._outcomes[number] != _BROKEN]

    def has_attempt(self, number: int) -> bool:
        """Return whether there is an attempt with this number."""
        return 0 <= number < len(self) and self._outcomes[number] != _BROKEN

    def measure(self, number: int) -> int:
        """Return the bytes of a line."""
        return self._find_end(number) - self._starts[number]

    def list_durations(self) -> list[float | None]:
        """Return the duration of the agent in each attempt."""
        pairs = zip(self._took_ms, self._outcomes, strict=False)
        return [None if took < 0 else took for took, outcome in pairs if outcome != _BROKEN]

    def read(self, number: int) -> RunEntry:
        """Return an attempt with its evidence. Raises `StoreError`."""
        return self._decode(number, self._read_line(number))

    def read_digest(self, number: int) -> RunEntry:
        """Return the digest of an attempt for lists and comparisons. Raises `StoreError`."""
        line = self._read_line(number)
        if len(line) <= LARGEST_DIGEST:
            try:
                return _ENTRY.decode(line)
            except msgspec.MsgspecError:
                pass  # unreadable evidence is not shown in a list
        try:
            short = shorten_entry(line)
        except StoreError as error:
            raise StoreError(f"{self._path}:{number + 1}: a broken entry: {error}") from error
        return self._decode(number, short)

    def iterate_digests(self) -> Iterator[RunEntry | EntryDigest]:
        """Yield the digest of every attempt for comparisons, in the order in which they ended. Raises `StoreError`."""
        begin, count = 0, len(self)
        while begin < count:
            next_broken = bisect_left(self._broken, begin)
            end = min(count, self._broken[next_broken] if next_broken < len(self._broken) else count)
            if begin == end:
                begin += 1
                continue
            # All lines that begin within this many bytes, always including the first.
            end = min(end, bisect_right(self._starts, self._starts[begin] + _AT_ONCE, begin, end))
            lines = self._read_bytes(self._starts[begin], self._find_end(end - 1))
            try:
                digests = _DIGEST.decode_lines(lines)
            except (msgspec.MsgspecError, RecursionError):
                digests = []
            # The log has changed since it was indexed: reading line by line identifies the error.
            yield from (digests if len(digests) == end - begin else [self.read_digest(number) for number in range(begin, end)])
            begin = end

    def remember(self, key: Hashable, make: Callable[[], T], *, is_small: Callable[[T], bool] | None = None) -> T:
        """Return a value computed from the log, cached until something is added; values that are not small are not cached."""
        count = len(self)
        known = self._facts.get(key)
        if known is not None and known[0] == count:
            return cast(T, known[1])
        # Without the lock, because it may take long: two concurrent callers compute it twice, which is harmless.
        value = make()
        if is_small is not None and not is_small(value):
            return value
        with self._lock:
            self._facts[key] = (count, value)
            while len(self._facts) > _MOST_FACTS:
                self._facts.popitem(last=False)
        return value

    def _read_line(self, number: int) -> bytes:
        return self._read_bytes(self._starts[number], self._find_end(number))

    def _read_bytes(self, start: int, end: int) -> bytes:
        assert self._file is not None, "a log without lines has no numbers"
        try:
            return os.pread(self._file.fileno(), end - start, start)
        except OSError as error:
            raise StoreError(f"{str(self._path)!r} cannot be read: {error.strerror}") from error

    def _find_end(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else self._end

    def _decode(self, number: int, line: bytes) -> RunEntry:
        try:
            return _ENTRY.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise StoreError(f"{self._path}:{number + 1}: a broken entry: {error}") from error

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()


def _find_all(values: array[int], wanted: int, count: int) -> list[int]:
    numbers: list[int] = []
    at = -1
    while True:
        try:
            at = values.index(wanted, at + 1, count)
        except ValueError:
            return numbers
        numbers.append(at)


def _find_code(codes: bytearray, wanted: int, count: int) -> array[int]:
    positions = array("Q")
    at = codes.find(wanted, 0, count)
    while at >= 0:
        positions.append(at)
        at = codes.find(wanted, at + 1, count)
    return positions


class LogIndexes:
    """The most recently used logs, up to a number of attempts; for older ones only the counts."""

    def __init__(self, most: int = 1_000_000, most_counts: int = 5_000) -> None:
        self._most, self._most_counts = most, most_counts
        self._lock = threading.Lock()
        self._logs: OrderedDict[Path, LogIndex] = OrderedDict()
        self._counts: OrderedDict[Path, tuple[Stamp | None, LogCounts]] = OrderedDict()

    def open(self, path: Path) -> LogIndex:
        """Return a log in its current state. Raises `StoreError`."""
        with self._lock:
            log = self._logs.setdefault(path, LogIndex(path))
        # Without the lock of all logs: reading a long one must not block requests for another.
        if not log.read_on():
            log = LogIndex(path)
            log.read_on()
        with self._lock:
            self._logs[path] = log
            self._logs.move_to_end(path)
            # The requested one always stays.
            while len(self._logs) > 1 and (len(self._logs) > _MOST_OPEN or sum(map(len, self._logs.values())) > self._most):
                self._logs.popitem(last=False)
        return log

    def count(self, path: Path) -> LogCounts:
        """Return the totals of a log; an unchanged one is not read again. Raises `StoreError`."""
        known = self._counts.get(path)
        if known is not None and known[0] == _find_stamp(path):
            return known[1]
        log = self.open(path)
        # The stamp first: lines that are written during the read are counted, and read again.
        stamp, counts = log.stamp, log.count()
        with self._lock:
            self._counts[path] = (stamp, counts)
            while len(self._counts) > self._most_counts:
                self._counts.popitem(last=False)
        return counts


_MOST_OPEN = 64
"""Maximum open logs."""


def _find_stamp(path: Path) -> Stamp | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
