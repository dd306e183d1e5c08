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
    """One thing that happened during a run."""

    kind: Literal["planned", "started", "finished", "retrying", "slowed", "stopping"]
    case: str = ""
    attempt: int = 0
    result: CaseResult | None = None
    message: str = ""
    total: int = 0
    """Of `planned`: how many attempts there will be."""


Listener = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Do nothing with an event."""


TapeFor = Callable[[str, int], Tape]
"""Gives the tape of an attempt, by the id of its case and its number."""
SpeakerFor = Callable[[Case, Tape], Speaker]
"""Gives the simulated user of a case for one try, who talks to its model over the tape."""


class Target(Protocol):
    """An agent that can be driven."""

    @property
    def name(self) -> str:
        """The name that reports show."""
        ...

    async def open(self) -> None:
        """Connect what is shared by all attempts. Raises `TargetError` with what is wrong."""
        ...

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the agent through the case (all its turns) and say what was observed.

        Raises `TargetError` where nothing could be observed; a failure of the agent that can be observed is evidence.
        """
        ...

    async def close(self) -> None:
        """Release all processes and sockets."""
        ...


class Decider(Protocol):
    """Decides cases outside the event loop of the run, which nothing in a suite or an agent may hold up."""

    async def decide_one(
        self, case: Case, evidence: Evidence, *, attempt: int = 0, clock: str | None = None, ask: Ask | None = None
    ) -> CaseResult:
        """Return the result of a case on evidence; with `ask`, judged claims too. What cannot be decided is an `error`."""
        ...


class RunLog(Protocol):
    """Keeps the attempts of one run."""

    async def append(self, entry: RunEntry) -> None:
        """Keep one finished attempt, so that it survives a crash once this returns. Raises `StoreError`."""
        ...


class Judge(Protocol):
    """Decides claims in plain language.

    A judge that cannot decide returns an opinion with the reason; it raises only if the run itself must end.
    """

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> Sequence[Opinion]:
        """Return one opinion per question, in order. `case` and `attempt` keep one attempt's remembered answers from serving another."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def use_live_tape(case_id: str, attempt: int) -> Tape:
    """Return the tape that records nothing: every attempt really happens."""
    return LIVE


class RunPorts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run talks to."""

    target: Target
    log: RunLog
    now: Callable[[], str]
    """The time of day, for stored results."""
    judge: Judge | None = None
    decides: Decider | None = None
    """None: cases are decided here, in the event loop of the run."""
    speaker_for: SpeakerFor | None = None
    """Who plays simulated users; None: the cases that have one are errors."""
    tape_for: TapeFor = use_live_tape
    listener: Listener = ignore_event
    clock: Callable[[], float] = time.monotonic
    """Seconds from anywhere, for what is measured."""
