"""Answers from a recording: exactly, offline, and for free.

An exchange is found by its attempt (case and number), its kind and its request. The same request asked several times gets its
recordings in the order in which they were made; different requests may come in any order, as they do when tools run side by side. Each
`scope` starts from the beginning. What was not recorded is a `CassetteMiss`, and nothing is ever sent. After a miss every further
exchange of that attempt is the same miss: an agent that carries on after it must not look as if it had succeeded.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType

from proctor.cassettes.entries import Entry, Fault, Line, Scope, group_by_scope, make_lookup_key, read_file, to_plain_json
from proctor.cassettes.misses import CassetteMiss, make_miss
from proctor.cassettes.ports import Kind
from proctor.cassettes.scrub import Scrubber
from proctor.errors import TargetError
from proctor.model.evidence import Json
from proctor.model.show import tell_more
from proctor.report.words.neutral import to_one_line

_MOST_TOLD = 3
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
        """What was asked and not found, the first of each attempt."""
        return tuple(self._misses)

    def list_unused(self) -> tuple[Entry, ...]:
        """Return what was recorded for the played attempts and never asked for; attempts that were not played do not count."""
        return tuple(line.entry for line in self._lines if line.entry.scope in self._opened and line.number not in self._played)

    def describe_unused(self) -> str | None:
        """Return one line about `list_unused`, with the first few of them; None where everything was played."""
        left = self.list_unused()
        if not left:
            return None
        shown = [to_one_line(f"{entry.scope}: {entry.kind} {entry.about}".rstrip(), 100) for entry in left[:_MOST_TOLD]]
        more = tell_more(len(left), _MOST_TOLD)
        many = f"{len(left)} recorded exchange{'s were' if len(left) > 1 else ' was'} never asked for"
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
        # The next one of each request stands last.
        self._waiting: dict[tuple[Kind, str], list[Line]] = {}
        for line in reversed(lines):
            self._waiting.setdefault((line.entry.kind, make_lookup_key(line.entry.request)), []).append(line)

    async def exchange(self, kind: Kind, request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Return what was recorded for `request`; `send` is never called."""
        if self._miss is not None:
            # A new error: the first one may be under way elsewhere, and raising it again would add to its traceback.
            raise CassetteMiss(self._miss.message)
        # The file holds no secrets, so a request is looked up as it would have been written.
        asked = self._player.scrub_request(request)
        waiting = self._waiting.get((kind, make_lookup_key(asked)))
        if not waiting:
            self._miss = self._player.note_miss(self._scope, kind, asked)
            raise self._miss
        line = waiting.pop()
        self._player.note_played(line)
        if line.entry.fault is not None:
            raise _make_exception(line.entry.fault)
        # A copy: what is handed out may be changed, and the scope may be played again.
        return copy.deepcopy(line.entry.response)


def _make_exception(fault: Fault) -> Exception:
    # Whoever waits for an answer catches this one by its type, in a replay as when it was recorded.
    if fault.type == "TimeoutError":
        return TimeoutError(fault.message)
    if fault.code is not None:
        return TargetError(fault.message, code=fault.code, safe=fault.safe, retry_after_s=fault.retry_after_s)
    # No class is looked up by a name out of a file: any other error is told in words.
    return TargetError(f"{fault.type}: {fault.message}" if fault.message else fault.type)
