"""The hub: database, settings, clock, caches and ids, which are passed to every function of the service."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime

import msgspec

from proctor.model.stamps import stamp_moment
from proctor.service.access.secret_box import SecretBox
from proctor.service.caches import AgentCache, SizedLruCache, Turns
from proctor.service.decisions.pool import Decisions, ThreadDecisions
from proctor.service.fair_queue import FairQueue
from proctor.service.settings import ServiceSettings
from proctor.store.sql.database import Database
from proctor.store.sql.pages import Row

QUEUED = ""
"""The signal of newly queued runs."""


class RunSignals:
    """Wakes waiting tasks by run id."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def wake(self, run_id: str) -> None:
        """Wake every task that watches a run."""
        for event in self._waiting.get(run_id, ()):
            event.set()

    @contextlib.contextmanager
    def watch(self, run_id: str) -> Generator[Watch]:
        """Watch a run during a block. Entered before a database query, it misses nothing after the query."""
        event = asyncio.Event()
        events = self._waiting.setdefault(run_id, set())
        events.add(event)
        try:
            yield Watch(event)
        finally:
            events.discard(event)
            if not events:
                del self._waiting[run_id]


class Watch:
    """One watcher."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, timeout_s: float) -> None:
        """Wait until something has happened since the last wait, or for `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        # Before the caller's next query: events during the query set it again.
        self._event.clear()


COUNTED = {
    "traces_received": "Stored traces, including replaced ones.",
    "spans_received": "Spans received over OTLP.",
    "log_records_received": "Log records of spans received over OTLP.",
    "traces_evaluated": "Evaluated traces.",
    "evaluations": "Cases decided on a trace.",
    "runs_finished": "Runs that ended in this process.",
    "alerts_sent": "Alerts accepted by a webhook or a mail server.",
    "results_exported": "Results accepted by an OpenTelemetry receiver.",
    "results_not_exported": "Results rejected by the receiver, or not delivered in time.",
    "worker_failures": "Workers restarted after a failure.",
}
"""All counters and their descriptions."""


class Counters:
    """Counters by name; see `COUNTED`."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(COUNTED, 0)

    def add(self, name: str, count: int = 1) -> None:
        """Increase a counter."""
        self._counts[name] += count

    def read(self) -> dict[str, int]:
        """Return all counters by name."""
        return dict(self._counts)


_MOST_KEYS = 2_000


class KeyCache:
    """Rows of keys by their hash, for `ttl_s` seconds, so that a busy sender does not cost a query per request."""

    def __init__(self, ttl_s: float = 5.0) -> None:
        self._ttl_s = ttl_s
        self._rows = SizedLruCache(_MOST_KEYS)
        self._used = SizedLruCache(_MOST_KEYS)
        self.changes = 0
        """Number of invalidations: a row that was read before one is stale."""
        self.has_organization_key = False
        """Whether an organization key was ever created, which never changes back."""

    def get(self, hash: str, now: float) -> Row | None:
        """Return the row while it is fresh."""
        at, row = self._rows.get(hash) or (-math.inf, None)
        # Also if the clock has gone back.
        return row if 0 <= now - at < self._ttl_s else None

    def put(self, hash: str, row: Row, now: float, changes: int) -> None:
        """Cache a row that was read at `changes`, unless something was revoked during the read, so that it may be stale."""
        if changes == self.changes:
            self._rows.put(hash, (now, row), 1)

    def forget(self, hash: str) -> None:
        """Invalidate a changed key."""
        # Counted for all keys together: a needless query is cheaper than a count per key.
        self.changes += 1
        self._rows.pop(hash)

    def should_note_use(self, key_id: str, now: float, every_s: float) -> bool:
        """Return whether the use of a key should be recorded: at most once in `every_s`."""
        last: float | None = self._used.get(key_id)
        if last is not None and 0 <= now - last < every_s:
            return False
        self._used.put(key_id, now, 1)
        return True


# Crockford's base 32, as in ULIDs: no ambiguous letters, and text order is time order.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [one + other for one in _ALPHABET for other in _ALPHABET]


class Hub(msgspec.Struct, frozen=True, kw_only=True):
    """The shared state of a service."""

    database: Database
    settings: ServiceSettings
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    key_cache: KeyCache = msgspec.field(default_factory=KeyCache)
    agent_cache: AgentCache = msgspec.field(default_factory=AgentCache)
    secret_box: SecretBox | None = None
    """Encrypts secrets; None: with the key file in the workspace."""
    counters: Counters = msgspec.field(default_factory=Counters)
    run_signals: RunSignals = msgspec.field(default_factory=RunSignals)
    """Wakes tasks that wait for a run of this process."""
    due_signal: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when this process has stored due traces, to wake its evaluator; without it they are found a little later."""
    span_trees: SizedLruCache = msgspec.field(default_factory=lambda: SizedLruCache(300_000))
    """Trees of recently viewed traces, by number of spans."""
    mutations: SizedLruCache = msgspec.field(default_factory=lambda: SizedLruCache(300))
    """Faults that the suites of ended runs detect, by runs."""
    shown_results: SizedLruCache = msgspec.field(default_factory=lambda: SizedLruCache(32))
    """Page views of large attempts, by pages: at most some hundred kilobytes each."""
    comparisons: SizedLruCache = msgspec.field(default_factory=lambda: SizedLruCache(200_000))
    """Comparisons of ended runs, by cases."""
    sandbox_rows: SizedLruCache = msgspec.field(default_factory=lambda: SizedLruCache(500_000))
    """Data of active sandboxes, by rows."""
    sandbox_baselines: SizedLruCache = msgspec.field(default_factory=lambda: SizedLruCache(200_000))
    """Initial data of sandboxes with the same datasets, by rows."""
    sandbox_turns: Turns = msgspec.field(default_factory=Turns)
    sandbox_places: FairQueue = msgspec.field(default_factory=lambda: FairQueue(2))
    """Which organization's simulated systems may compute: in threads, which share one interpreter."""
    sandbox_tasks: set[asyncio.Task[None]] = msgspec.field(default_factory=set[asyncio.Task[None]])
    """Background work of simulated systems: phone calls with webhooks."""
    decisions: Decisions = msgspec.field(default_factory=ThreadDecisions)
    """Where cases are decided; a public service has processes."""

    def now(self) -> str:
        """Return the present time in the stored format."""
        return stamp(self.clock())


def stamp(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds."""
    return stamp_moment(datetime.fromtimestamp(seconds, UTC))


def new_id(prefix: str) -> str:
    """Return an unguessable id that sorts by time: `task_01J...`."""
    number = (int(time.time() * 1000) << 80) | int.from_bytes(os.urandom(10))
    # Two digits at a time, since an id is made for every trace and every result.
    digits = [_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)]
    return f"{prefix}_{''.join(digits)}"
