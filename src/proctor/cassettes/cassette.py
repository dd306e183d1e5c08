"""Opens a cassette, to record it or to play it.

with open_tape("booking.cassette.jsonl", "record", secrets=[key]) as cassette:
    tape = cassette.scope("refund-1", 0)
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Literal, overload

import msgspec

from proctor.cassettes.entries import Entry, Fault, Line, Scope, group_by_scope, make_lookup_key, read_file, summarise, to_plain_json
from proctor.cassettes.ports import Kind
from proctor.cassettes.recorder import Recorder
from proctor.cassettes.scrub import Scrubber
from proctor.errors import TargetError
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, Missing
from proctor.model.show import count_rest, show
from proctor.report.words.neutral import to_one_line

_MOST_LEAVES = 2000
"""Fields of a request that are compared to find the nearest recording."""
_MOST_CANDIDATES = 200
"""Recordings that are compared with a request that was not found."""
_WINDOW = 100
"""Characters shown around the first difference of two long texts."""
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
    # Another attempt of the case is the likeliest to be alike; a recording of any other case is still better than none.
    others = [line for line in lines if line.entry.scope.case == scope.case] or lines
    if not own:
        attempts = sorted({line.entry.scope.attempt for line in lines if line.entry.scope.case == scope.case})
        known = f"only attempts {', '.join(map(str, attempts))} were recorded" if attempts else "nothing was recorded"
        out.append(f"  {known} of this case")
    near = find_nearest_line(kind, request, own or others, used)
    if near is not None:
        out.extend(_describe_nearest(near, request, near.entry.scope != scope, near.number in used))
    out.append("  if the change is wanted, record it again with `--record`")
    return CassetteMiss("\n".join(out))


def find_nearest_line(kind: Kind, request: Json, lines: Iterable[Line], used: Container[int]) -> Line | None:
    """Return the recording most like a request: most fields in common, of equals one not played yet, then the first."""
    candidates = [line for line in lines if line.entry.kind == kind][:_MOST_CANDIDATES]
    wanted = _count_leaves(request)

    def rank(line: Line) -> tuple[float, bool, int]:
        there = _count_leaves(line.entry.request)
        return (2 * (wanted & there).total() / max(1, wanted.total() + there.total()), line.number not in used, -line.number)

    return max(candidates, key=rank, default=None)


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
            # Reversed, as the last one is taken first: so the first difference in reading order is found.
            waiting.extend((f"{path}.{key}", left.get(key, MISSING), right.get(key, MISSING)) for key in reversed(keys))
        elif isinstance(left, list) and isinstance(right, list):
            longest = max(len(left), len(right))
            pairs = [(f"{path}[{at}]", _get_item(left, at), _get_item(right, at)) for at in range(longest)]
            waiting.extend(reversed(pairs))
        elif left is MISSING or right is MISSING or isinstance(left, bool) != isinstance(right, bool) or left != right:
            # `True` equals 1 in Python and not in JSON, hence the comparison of `bool`.
            found = Difference(path, left, right)
            if _mask_marker(left) != _mask_marker(right):
                return found
            marked = marked or found
    return marked


def _mask_marker(value: Json | Missing) -> Json | Missing:
    return _mask_marker_in(value) if isinstance(value, str) else value


def _mask_marker_in(text: str) -> str:
    # Of the same length, so that a place in the masked text is the same place in the text that is shown.
    return _MARKER.sub(lambda marker: "x" * len(marker[0]), text)


def _describe_nearest(near: Line, request: Json, elsewhere: bool, played: bool) -> list[str]:
    entry = near.entry
    place = f"line {near.number}" + (f" ({entry.scope})" if elsewhere else "") + (", already played" if played else "")
    out = [f"  nearest: {place}" + (f": {entry.about}" if entry.about else "")]
    found = find_first_difference(entry.request, request)
    if found is None:
        reason = "the same request, recorded for another attempt" if elsewhere else "the same request, sent more often than it was recorded"
        return [*out, f"  {reason}"]
    left, right = _show_both(found.recorded, found.now)
    return [*out, f"  differs at {found.path}", f"    recorded {left}", f"    now      {right}"]


def _show_both(recorded: Json | Missing, now: Json | Missing) -> tuple[str, str]:
    if isinstance(recorded, str) and isinstance(now, str) and max(len(recorded), len(now)) > _WINDOW:
        # Where the texts differ in nothing but the marker, the marker is what has to be shown.
        sides = (recorded, now) if _mask_marker_in(recorded) == _mask_marker_in(now) else (_mask_marker_in(recorded), _mask_marker_in(now))
        same = next((at for at, (one, other) in enumerate(zip(*sides, strict=False)) if one != other), min(len(recorded), len(now)))
        return _show_around(recorded, same), _show_around(now, same)
    return _show_value(recorded), _show_value(now)


def _show_around(text: str, position: int) -> str:
    start = max(0, position - _WINDOW // 3)
    end = start + _WINDOW
    return f"{'…' if start else ''}{show(text[start:end])}{'…' if end < len(text) else ''}"


def _show_value(value: Json | Missing) -> str:
    return "nothing" if isinstance(value, Missing) else show(value)


def _get_item(items: list[Json], position: int) -> Json | Missing:
    return items[position] if position < len(items) else MISSING


def _count_leaves(value: Json) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    waiting: list[tuple[str, Json]] = [("$", value)]
    while waiting and len(found) < _MOST_LEAVES:
        path, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend((f"{path}.{key}", member) for key, member in item.items())
        elif isinstance(item, list):
            waiting.extend((f"{path}[{at}]", member) for at, member in enumerate(item))
        else:
            # A prompt may be very long; its beginning is enough to rank by.
            found[path, str(item)[:500]] += 1
    return found


_MOST_SHOWN = 3
"""How many unused recordings a message names; the rest are counted."""


class Player:
    """A cassette that is being played."""

    def __init__(self, path: Path, *, secrets: Iterable[str] = ()) -> None:
        self._path = path
        self._scrubber = Scrubber(secrets)
        self._lines = read_file(path).lines
        self._scopes = group_by_scope(self._lines)
        self._opened: set[Scope] = set()
        self._played: set[int] = set()
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
        return tuple(line.entry for line in self._lines if line.entry.scope in self._opened and line.number not in self._played)

    def describe_unused(self) -> str | None:
        """Return one line about `list_unused`, with the first few of them; None where everything was played."""
        left = self.list_unused()
        if not left:
            return None
        shown = [to_one_line(f"{entry.scope}: {entry.kind} {entry.about}".rstrip(), 100) for entry in left[:_MOST_SHOWN]]
        more = count_rest(len(left), _MOST_SHOWN)
        many = f"{len(left)} recorded exchange{'s were' if len(left) > 1 else ' was'} never requested"
        return f"{many}, the agent does less than when {self._path} was recorded: {'; '.join(shown)}{more}"

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def __enter__(self) -> Player:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def scrub_request(self, request: Json) -> Json:
        """Return a request as a recorder would have written it."""
        return self._scrubber.scrub_value(to_plain_json(request))

    def note_played(self, line: Line) -> None:
        """Remember that a recording was used."""
        self._played.add(line.number)

    def note_miss(self, scope: Scope, kind: Kind, request: Json) -> CassetteMiss:
        """Remember what was not found and return the error for it."""
        found = make_miss(str(self._path), scope, kind, request, self._lines, self._played)
        self._misses.append(found)
        return found


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
        """Return what was recorded for `request`; `send` is never called."""
        if self._miss is not None:
            # A new error: the first one may be under way elsewhere, and raising it again would add to its traceback.
            raise CassetteMiss(self._miss.message)
        # The file holds no secrets, so a request is looked up as it would have been written.
        scrubbed = self._player.scrub_request(request)
        waiting = self._waiting.get((kind, make_lookup_key(scrubbed)))
        if not waiting:
            self._miss = self._player.note_miss(self._scope, kind, scrubbed)
            raise self._miss
        line = waiting.pop()
        self._player.note_played(line)
        if line.entry.fault is not None:
            raise _make_exception(line.entry.fault)
        # A copy: what is handed out may be changed, and the scope may be played again.
        return copy.deepcopy(line.entry.response)


def _make_exception(fault: Fault) -> Exception:
    # Callers catch a timeout by its type, in a replay as in a live run.
    if fault.type == "TimeoutError":
        return TimeoutError(fault.message)
    if fault.code is not None:
        return TargetError(fault.message, code=fault.code, safe=fault.safe, retry_after_s=fault.retry_after_s)
    # No class is looked up by a name from a file: any other error becomes its text.
    return TargetError(f"{fault.type}: {fault.message}" if fault.message else fault.type)


Cassette = Recorder | Player
"""What `open_tape` opens: `scope(case, attempt)` gives the tape of one attempt, `close()` ends it."""


@overload
def open_tape(path: str | PathLike[str], mode: Literal["record"], *, secrets: Iterable[str] = ()) -> Recorder: ...
@overload
def open_tape(path: str | PathLike[str], mode: Literal["replay"], *, secrets: Iterable[str] = ()) -> Player: ...
def open_tape(path: str | PathLike[str], mode: Literal["record", "replay"], *, secrets: Iterable[str] = ()) -> Cassette:
    """Open a cassette. `secrets` are taken out of everything that is written or looked up. Raises `InputError`."""
    return Recorder(Path(path), secrets=secrets) if mode == "record" else Player(Path(path), secrets=secrets)
