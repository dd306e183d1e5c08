"""What every function of the service needs, in one value that is passed down: the database, the settings, a clock and ids."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from proctor.model.stamps import stamp_moment
from proctor.service.access.agent_cache import AgentCache
from proctor.service.access.key_cache import KeyCache
from proctor.service.access.secret_box import SecretBox
from proctor.service.counters import Counters
from proctor.service.decisions.pool import Decisions, ThreadDecisions
from proctor.service.fair_turns import FairTurns
from proctor.service.recent import RecentValues, Turns
from proctor.service.run_signals import RunSignals
from proctor.service.settings import ServiceSettings
from proctor.service.steady_clock import SteadyClock
from proctor.store.database import Database

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
