"""Stops a simulated conversation in its middle when the run has spent what it may.

A conversation may be long, and its user is a model too, so waiting for its end could cost a multiple of the bound. What it took so far
counts while it is under way. Its next message is not sent to the agent any more; one that was over anyhow is a result like any other.
"""

from __future__ import annotations

from proctor.decide.cost import find_agent_cost, find_user_cost
from proctor.errors import TargetError
from proctor.model.attempt import Speaker
from proctor.model.cost import PriceList
from proctor.model.evidence import Evidence, UserEnding
from proctor.runner.limits import BudgetMeter, Spending

BUDGET = "budget"


class BudgetedSpeaker:
    """Speaks for the user of one attempt while the budget of the run lasts; fits `proctor.model.attempt.Speaker`."""

    def __init__(self, inner: Speaker, meter: BudgetMeter, prices: PriceList | None, attempt: tuple[str, int]) -> None:
        self._inner = inner
        self._meter = meter
        self._prices = prices
        self._attempt = attempt
        self._agent = Spending()
        self.stopped: str | None = None
        """Which bound ended the conversation, in words."""

    async def say_next(self, answer: Evidence | None) -> str | None:
        """Return what the user says next. Raises `TargetError` where the run may spend no more."""
        if answer is not None:
            self._agent = self._agent.add(measure_answer(answer, self._prices))
        text = await self._inner.say_next(answer)
        # After the user has spoken: its model spends tokens on that message, too.
        self._meter.hold(self._attempt, self._agent.add(self._measure_user()))
        why = self._meter.explain_overspent() if text is not None else None
        if why is not None:
            # Kept here as well: targets raise an error of their own in place of this one.
            self.stopped = why
            raise TargetError(f"the conversation was left in its middle: {why}", code=BUDGET)
        return text

    def describe_ending(self) -> UserEnding | None:
        """Return who spoke and why it ended."""
        return self._inner.describe_ending()

    def _measure_user(self) -> Spending:
        ending = self._inner.describe_ending()
        usage = ending.usage if ending is not None else None
        cost = find_user_cost(ending, self._prices)[0] if self._prices is not None else None
        return Spending(user_tokens=(usage.total() if usage is not None else None) or 0, cost=cost or 0.0)


def measure_answer(answer: Evidence, prices: PriceList | None) -> Spending:
    """Return what an answer of the agent took; a cost that is unknown is told when the attempt is over."""
    tokens = answer.usage.total() if answer.usage is not None else None
    cost = find_agent_cost(answer, prices).agent if prices is not None else None
    return Spending(tokens=tokens or 0, cost=cost or 0.0)


class AttemptStopped(Exception):
    """A limit of the run ended an attempt before its end: it is no result, and a resumed run drives it again."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
