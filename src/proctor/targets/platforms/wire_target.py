"""What all targets over HTTP share: one wire, opened once, and a conversation per attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from proctor.cassettes.ports import Tape
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.problem import Problem
from proctor.targets.shared.conversation import Message, converse, ids_of
from proctor.targets.shared.masking import Ids
from proctor.targets.shared.templates import unknown_placeholders
from proctor.targets.shared.wire import Wire


class WireTarget(ABC):
    """A target that sends every message of a case over one wire."""

    takes_speakers = True

    def __init__(self, name: str, wire: Wire, *, placeholders: frozenset[str] = frozenset()) -> None:
        """`placeholders` are the names that a case must have a value for."""
        self._name = name
        self._wire = wire
        self._placeholders = placeholders

    @property
    def name(self) -> str:
        """The name that reports show."""
        return self._name

    def problems_with(self, cases: Iterable[Case]) -> list[Problem]:
        """Return the cases that cannot be sent, known before anything is."""
        return unknown_placeholders(self._placeholders, cases, self._name)

    def uses_variable(self, name: str) -> bool:
        """Return whether a variable of the case is sent."""
        return name in self._placeholders

    async def open(self) -> None:
        """Make ready to connect."""
        await self._wire.open()

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Say every message of the case and return what was seen."""
        ids = Ids(*ids_of(attempt))

        async def say(message: Message) -> Evidence:
            return await self.say(message, tape, ids)

        return await converse(attempt, say, target=self._name)

    @abstractmethod
    async def say(self, message: Message, tape: Tape, ids: Ids) -> Evidence:
        """Send one message and read what comes back; `ids` are those of the attempt, to be masked on the tape."""

    async def close(self) -> None:
        """Close every connection."""
        await self._wire.close()
