"""What every function of the service needs, in one value that is passed down: the database, the settings, a clock and ids."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from proctor.model.stamps import stamp_moment
from proctor.service.access.agent_cache import AgentCache
from proctor.service.access.secret_box import SecretBox
from proctor.service.decisions.pool import Decisions, ThreadDecisions
from proctor.service.fair_turns import FairTurns
from proctor.service.recent import RecentValues, Turns
from proctor.service.settings import ServiceSettings
from proctor.store.sql.database import Database
from proctor.store.sql.pages import Row

QUEUED = ""
"""What is waited for by those who look for any run to drive."""


class RunSignals:
    """Wakes by run id."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def wake(self, run_id: str) -> None:
        """Wake those who watch a run."""
        for event in self._waiting.get(run_id, ()):
            event.set()

    def watch(self, run_id: str) -> Watch:
        """Watch a run, from now to the end of the block."""
        return Watch(self._waiting, run_id)


class Watch:
    """One who waits. Entered before looking at the database, nothing that happens after the look is missed."""

    def __init__(self, waiting: dict[str, set[asyncio.Event]], run_id: str) -> None:
        self._waiting = waiting
        self._run_id = run_id
        self._event = asyncio.Event()

    def __enter__(self) -> Watch:
        self._waiting.setdefault(self._run_id, set()).add(self._event)
        return self

    def __exit__(self, *error: object) -> None:
        others = self._waiting[self._run_id]
        others.discard(self._event)
        if not others:
            del self._waiting[self._run_id]

    async def wait(self, timeout_s: float) -> None:
        """Wait until something has happened since the last wait, or the time is up."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        # After the wait and before the caller looks: what happens during its look sets the event again.
        self._event.clear()


COUNTED = {
    "traces_received": "Traces that were kept, replaced ones included.",
    "spans_received": "Spans that came in over OTLP.",
    "log_records_received": "Log records about spans that came in over OTLP.",
    "traces_evaluated": "Traces that were evaluated.",
    "evaluations": "Cases that were decided on a trace.",
    "runs_finished": "Runs that came to their end here.",
    "alerts_sent": "Alerts that a webhook took.",
    "results_exported": "Results that an OpenTelemetry receiver took.",
    "results_not_exported": "Results that it refused, or did not take in time.",
    "worker_failures": "Workers that failed and were started again.",
}
"""Every counter there is, and what it counts."""


class Counters:
    """Counters by name; see `COUNTED`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count something that happened."""
        if name not in COUNTED:
            raise KeyError(name)
        self._counts[name] += count

    def read(self) -> dict[str, int]:
        """Return all counters by name."""
        return {name: self._counts[name] for name in COUNTED}


# --- A clock for waits and leases that are kept in a database: it shows the time of day and never goes back


class SteadyClock:
    """Unix seconds that never go back; called like `time.time`."""

    def __init__(self, wall: Callable[[], float] = time.time, passing: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._passing = passing
        self._ahead = wall() - passing()
        """What is to be added to the time that has passed."""

    def __call__(self) -> float:
        """Return the time now."""
        passed = self._passing()
        # Both a forward step and the drift of the two clocks are taken from the wall; a step back is not.
        self._ahead = max(self._ahead, self._wall() - passed)
        return passed + self._ahead


# ---


# --- remembers keys that were just looked up, so that a busy sender does not cost a query per request

_LARGEST = 2_000


class KeyCache:
    """Rows of keys by their hash, for `ttl_s` seconds."""

    def __init__(self, ttl_s: float = 5.0) -> None:
        self._ttl_s = ttl_s
        self._rows: dict[str, tuple[float, Row]] = {}
        self._used: dict[str, float] = {}
        self.changes = 0
        """Counts what was forgotten: a row that was read before belongs to the past."""
        self.closed = False
        """That an organization key was created is known and does not change any more."""

    def get(self, hash: str, now: float) -> Row | None:
        """Return the row while it is fresh."""
        found = self._rows.get(hash)
        # Bounded on both sides: a row from a time that is still to come would be believed until then, whoever revokes the key elsewhere.
        if found is None or not 0 <= now - found[0] < self._ttl_s:
            return None
        return found[1]

    def put(self, hash: str, row: Row, now: float, changes: int) -> None:
        """Keep a row that was read when `changes` was the count; the oldest row gives way."""
        # Something was revoked while this row was being read: the row may be from before, and would be believed for seconds.
        if changes != self.changes:
            return
        self._rows.pop(hash, None)
        while len(self._rows) >= _LARGEST:
            self._rows.pop(next(iter(self._rows)))
        self._rows[hash] = (now, row)

    def forget(self, hash: str) -> None:
        """Forget a key that was changed, so that it is looked up again."""
        # Counted for all keys together: a needless look into the database is cheaper than remembering every key that was forgotten.
        self.changes += 1
        self._rows.pop(hash, None)

    def should_note_use(self, key_id: str, now: float, every_s: float) -> bool:
        """Return whether the use of a key should be noted: at most once in `every_s`."""
        last = self._used.get(key_id)
        if last is not None and 0 <= now - last < every_s:
            return False
        self._used.pop(key_id, None)
        while len(self._used) >= _LARGEST:
            self._used.pop(next(iter(self._used)))
        self._used[key_id] = now
        return True


# Crockford's base 32, as ULIDs have it: no letter that is taken for a digit, and the order of texts is the order of time.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [one + other for one in _ALPHABET for other in _ALPHABET]


class Hub(msgspec.Struct, frozen=True, kw_only=True):
    """The service, seen from its verbs."""

    database: Database
    settings: ServiceSettings
    clock: Callable[[], float] = msgspec.field(default_factory=SteadyClock)
    """Unix seconds; a clock that is put back stalls nothing."""
    key_cache: KeyCache = msgspec.field(default_factory=KeyCache)
    """Keys that were just looked up."""
    agent_cache: AgentCache = msgspec.field(default_factory=AgentCache)
    """Agents that traces were just routed to."""
    secret_box: SecretBox | None = None
    """What secrets at rest are locked in; none: under the key file in the workspace. The door makes it, since the key is its to read."""
    counters: Counters = msgspec.field(default_factory=Counters)
    """What this process has done."""
    run_signals: RunSignals = msgspec.field(default_factory=RunSignals)
    """Wakes whoever waits for a run of this process."""
    span_trees: RecentValues = msgspec.field(default_factory=lambda: RecentValues(300_000))
    """Trees of the traces that somebody has just looked at, by spans."""
    run_facts: RecentValues = msgspec.field(default_factory=lambda: RecentValues(300))
    """What went wrong in runs that have ended, and how long they took, by runs."""
    shown_results: RecentValues = msgspec.field(default_factory=lambda: RecentValues(32))
    """What pages show of large attempts, by pages: some hundred kilobytes at most, made of megabytes."""
    comparisons: RecentValues = msgspec.field(default_factory=lambda: RecentValues(200_000))
    """Comparisons of runs that have ended, by cases."""
    sandbox_rows: RecentValues = msgspec.field(default_factory=lambda: RecentValues(500_000))
    """What the sandboxes hold that somebody works in just now, by rows."""
    sandbox_baselines: RecentValues = msgspec.field(default_factory=lambda: RecentValues(200_000))
    """What sandboxes of the same datasets begin with, by rows."""
    sandbox_turns: Turns = msgspec.field(default_factory=Turns)
    """Whose turn it is in each sandbox, by its id."""
    sandbox_places: FairTurns = msgspec.field(default_factory=lambda: FairTurns(2))
    """Which organization's simulated systems may compute: in threads, which share one interpreter with everything else."""
    sandbox_tasks: set[asyncio.Task[None]] = msgspec.field(default_factory=set[asyncio.Task[None]])
    """What simulated systems do by themselves just now: phone calls that webhooks lead."""
    decisions: Decisions = msgspec.field(default_factory=ThreadDecisions)
    """Where cases are decided. A service that answers others has processes for that."""

    def now(self) -> str:
        """Return the time now, as it is stored."""
        return stamp(self.clock())


def stamp(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds."""
    return stamp_moment(datetime.fromtimestamp(seconds, UTC))


def new_id(prefix: str) -> str:
    """Return an id that sorts by time and cannot be guessed: `task_01J...`."""
    number = (int(time.time() * 1000) << 80) | int.from_bytes(os.urandom(10))
    # Two digits at a time: an id is made for every trace and every result.
    digits = [_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)]
    return f"{prefix}_{''.join(digits)}"
