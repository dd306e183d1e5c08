"""The interfaces of the runner: an agent under test, a judge, a store for results, and a listener.

A target gets one case and returns evidence. It owns its connections between `open` and `close`; all its requests go through the tape of
the attempt.
"""

import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from proctor.cassettes.ports import LIVE, Tape
from proctor.decide.judging import Ask
from proctor.model.attempt import Attempt, Speaker
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import Opinion, Question
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a run."""

    kind: Literal["planned", "started", "finished", "retrying", "slowed", "stopping"]
    case: str = ""
    attempt: int = 0
    result: CaseResult | None = None
    message: str = ""
    total: int = 0
    """For `planned`: the number of attempts."""


Listener = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Do nothing with an event."""


TapeFor = Callable[[str, int], Tape]
"""Gives the tape of an attempt, by the id of its case and its number."""
SpeakerFor = Callable[[Case, Tape], Speaker]
"""Returns the simulated user of a case for one try; it calls its model over the tape."""


class Target(Protocol):
    """An agent that can be driven."""

    @property
    def name(self) -> str:
        """The name that reports show."""
        ...

    async def open(self) -> None:
        """Connect resources shared by all attempts. Raises `TargetError` with the reason."""
        ...

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the agent through all turns of the case and return the evidence.

        Raises `TargetError` where nothing could be observed; a failure of the agent that can be observed is evidence.
        """
        ...

    async def close(self) -> None:
        """Release all processes and sockets."""
        ...


class Decider(Protocol):
    """Decides cases outside the run's event loop, which suites and agents must not block."""

    async def decide_one(
        self, case: Case, evidence: Evidence, *, attempt: int = 0, clock: str | None = None, ask: Ask | None = None
    ) -> CaseResult:
        """Return the result of a case on evidence; with `ask`, including judged claims. An undecidable case is an `error`."""
        ...


class RunLog(Protocol):
    """Stores the attempts of one run."""

    async def append(self, entry: RunEntry) -> None:
        """Store one finished attempt durably. Raises `StoreError`."""
        ...


class Judge(Protocol):
    """Decides claims in plain language.

    A judge that cannot decide returns an opinion with the reason; it raises only if the run itself must end.
    """

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> Sequence[Opinion]:
        """Return one opinion per question, in order. `case` and `attempt` separate the cached answers of different attempts."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def use_live_tape(case_id: str, attempt: int) -> Tape:
    """Return the tape that records nothing: every request is really sent."""
    return LIVE


class RunPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The external interfaces of one run."""

    target: Target
    log: RunLog
    now: Callable[[], str]
    """The time of day, for stored results."""
    judge: Judge | None = None
    judge_cost: Callable[[], float] = lambda: 0.0
    """The cost of requests to the judge so far."""
    decides: Decider | None = None
    """None: cases are decided in the event loop of the run."""
    speaker_for: SpeakerFor | None = None
    """Provides simulated users; None: cases that need one are errors."""
    tape_for: TapeFor = use_live_tape
    listener: Listener = ignore_event
    clock: Callable[[], float] = time.monotonic
    """A monotonic clock in seconds, for measurements."""
