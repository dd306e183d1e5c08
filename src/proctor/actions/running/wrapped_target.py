"""A target that drives another one and adds something to what it does."""

from __future__ import annotations

from proctor.cassettes.ports import Tape
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence
from proctor.runner.ports import Target


class DrivenTarget:
    """Is in everything the target that it drives; those who derive from it change what they must."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @property
    def name(self) -> str:
        """The name of the target that is driven."""
        return self._target.name

    @property
    def driven(self) -> Target:
        """The target that is driven."""
        return self._target

    def __getattr__(self, name: str) -> object:
        # What targets offer beyond the protocol (`describe_risk`, `find_tools`) is that of the one that is driven.
        return getattr(self._target, name)

    async def open(self) -> None:
        """Connect the target."""
        await self._target.open()

    async def close(self) -> None:
        """Let the target go."""
        await self._target.close()

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target."""
        return await self._target.run(attempt, tape)
