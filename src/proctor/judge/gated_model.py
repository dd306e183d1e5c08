"""Reaches one model of a judge: remembered replies first, then through the gate, with a time limit, tried again where that helps.

All of it happens below the tape: a recording has the reply of a request, cached or not, and a replay neither waits nor calls the model.
A request that would go beyond the budget is not sent.
"""

from __future__ import annotations

import asyncio
import random
from typing import Literal, cast

import msgspec

from proctor.errors import TargetError
from proctor.judge.cached import ReplyCache
from proctor.judge.gate import RequestGate
from proctor.judge.request import without_ids
from proctor.judge.settings import JudgeSettings
from proctor.judge.votes import Prices, compute_cost
from proctor.llm.ports import ChatModel, ChatReply, ChatRequest, FaultCode, ModelFault

MAX_BACKOFF_S = 30.0
"""The longest pause between two tries, unless the provider requests a longer one."""


MAX_REPLY_BYTES = 8 * 1024 * 1024
"""Bytes of an answer that are read; a longer one is no judgement."""
MOST_FAULTS = 10
"""Faults of the transport in a row after which a model counts as down; more where many requests fail together in one burst."""
PAUSE_S = 60.0
"""Seconds before a model that is down is tried with one request again."""
_TRANSPORT = ("transport", "timeout", "overloaded")

Rung = Literal["ids", "shape", "free"]
_RUNGS: tuple[Rung, ...] = ("ids", "shape", "free")
"""How closely a model is held to its reply: to the results and their number, to their shape, to nothing."""
_TAKE_BOUNDS = ("openai", "openai_responses", "scripted")
"""The protocols whose schemas may say how long a list is."""


class JudgeSpending(msgspec.Struct, kw_only=True):
    """What a judge has really spent so far; remembered and replayed replies are free."""

    calls: int = 0
    """Requests sent, those that failed included."""
    cached: int = 0
    """Replies that were remembered."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """Of the models whose prices are known."""


class GatedModel:
    """A model that is called within the limits of the settings."""

    def __init__(
        self, model: ChatModel, settings: JudgeSettings, *, gate: RequestGate, spent: JudgeSpending, prices: Prices | None = None
    ) -> None:
        self.inner = model
        self.provider = model.provider
        self.name = model.name
        self._settings = settings
        self._gate = gate
        self._spent = spent
        self._prices = prices
        # A judgement takes a few hundred words; what a model writes beyond that is not read.
        if (limit_answers := getattr(model, "limit_answers", None)) is not None:
            limit_answers(MAX_REPLY_BYTES)
        self._faults = 0
        self._has_answered = False
        self._most_faults = max(MOST_FAULTS, 2 * settings.concurrency)
        self._down: ModelFault | None = None
        self._down_until = 0.0
        # What this provider takes; where that is unknown, what it is documented to take.
        self._rung = 0 if settings.structured == "auto" and model.provider in _TAKE_BOUNDS else 1

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Ask, and ask again where that may help. Raises `ModelFault`, and `TargetError` when the budget is spent."""
        if request.answer_schema is None:
            return await self._ask_with_retries(request)
        for rung in _RUNGS[self._rung :]:
            try:
                reply = await self._ask_with_retries(_apply_rung(request, rung))
            except ModelFault as fault:
                # Providers report an unsupported schema in many ways; a request with a simpler one shows whether that was the cause.
                if fault.code != "bad_request" or self._settings.structured != "auto" or rung == "free":
                    raise
                continue
            # What this model takes is remembered, so that later requests need not be refused first.
            self._rung = _RUNGS.index(rung)
            return reply
        raise AssertionError("the last rung returns or raises")

    async def _ask_with_retries(self, request: ChatRequest) -> ChatReply:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._ask_once(request)
            except ModelFault as fault:
                pause = self._choose_pause_s(fault, tries)
                if pause is None:
                    raise _add_tries(fault, tries) from None
            # The place at the gate was given back, so this pause delays no other request.
            await asyncio.sleep(pause)

    def _choose_pause_s(self, fault: ModelFault, tries: int) -> float | None:
        """Return how many seconds to wait before the next try; None where there is to be none."""
        # A fault that would come again (a wrong key, a refused request) is not tried again.
        if not fault.safe or tries > self._settings.retries or self._down is not None:
            return None
        if fault.retry_after_s is not None:
            # A pause longer than the timeout of a whole request is not granted.
            return fault.retry_after_s if fault.retry_after_s <= self._settings.timeout_s else None
        backoff = min(MAX_BACKOFF_S, self._settings.backoff_s * 2 ** min(tries - 1, 20))
        # Requests that were refused together must not come back together.
        return backoff * random.uniform(0.75, 1.0)

    async def _ask_once(self, request: ChatRequest) -> ChatReply:
        settings, gate = self._settings, self._gate
        ticket = await gate.enter()
        try:
            # Counted after the gate: requests that waited while the budget was spent are not sent.
            if settings.max_calls is not None and self._spent.calls >= settings.max_calls:
                raise TargetError(f"the limit of {settings.max_calls} requests to the judge is reached", code="judge_budget")
            self._refuse_while_down()
            # Before it is sent: of many that are under way at once, none may slip past the limit.
            self._spent.calls += 1
            async with asyncio.timeout(settings.timeout_s):
                reply = await self.inner.complete(request)
        except TimeoutError:
            fault = ModelFault("timeout", f"no answer within {settings.timeout_s:g} s")
            self._note_fault(fault)
            raise fault from None
        except ModelFault as fault:
            if fault.code in ("rate_limited", "overloaded"):
                pause = fault.retry_after_s
                # A longer pause is not taken over by the gate: it would hold up all requests, and this one is given up for it.
                gate.slow_down(ticket, pause if pause is not None and pause <= settings.timeout_s else None)
            self._note_fault(fault)
            raise
        finally:
            gate.leave()
        gate.note_success()
        self._faults, self._down, self._has_answered = 0, None, True
        self._count_spending(reply)
        return reply

    def _note_fault(self, fault: ModelFault) -> None:
        """Count a fault, and take the model for down where asking again would only cost time."""
        self._faults = self._faults + 1 if fault.code in _TRANSPORT or fault.status == 403 else 0
        # A firewall may refuse one request with 403; a model that never answered refuses all of them.
        is_refused = fault.status in (401, 404) or (fault.status == 403 and not self._has_answered)
        if self._faults >= self._most_faults or is_refused:
            self._down, self._down_until = fault, asyncio.get_running_loop().time() + PAUSE_S

    def _refuse_while_down(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._down is None or now >= self._down_until:
            # One request goes through and finds out; those after it wait for what it finds.
            self._down_until = now + PAUSE_S
            return
        why = f"{self._faults} requests in a row failed" if self._faults >= self._most_faults else "an earlier request was refused"
        raise TargetError(f"not sent, because {why}: {self._down.message}", code=self._down.code)

    def _count_spending(self, reply: ChatReply) -> None:
        usage = reply.usage
        if usage is not None:
            self._spent.input_tokens += usage.input_tokens or 0
            self._spent.output_tokens += usage.output_tokens or 0
            self._spent.cost += compute_cost(usage, self._prices) or 0.0


class RememberedModel:
    """The model for one request: the reply cached under `key`, else the model's."""

    def __init__(
        self, model: GatedModel, cache: ReplyCache | None, key: str, spent: JudgeSpending, under_way: dict[str, asyncio.Event]
    ) -> None:
        self.provider = model.provider
        self.name = model.name
        self.cached = False
        """Whether the reply was remembered."""
        self.called = False
        """Whether the model was called; like `cached`, false if a tape answered."""
        self._model = model
        self._cache = cache
        self._key = key
        self._spent = spent
        self._under_way = under_way
        self._mine: asyncio.Event | None = None

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the remembered reply, else ask the model. Raises as the model does."""
        if self._cache is not None:
            # Equal requests are sent once: the second waits for the reply that the first will store.
            # In a loop: if nothing was stored, the first waiter to wake may have sent the request again.
            while (first := self._under_way.get(self._key)) is not None:
                await first.wait()
            if (known := self._cache.get(self._key)) is not None:
                self.cached = True
                self._spent.cached += 1
                return known
            self._mine = self._under_way[self._key] = asyncio.Event()
        self.called = True
        return await self._model.complete(request)

    def finish(self) -> None:
        """Let those who waited for this request go on: nothing more will be remembered of it."""
        if self._mine is not None:
            # In `finish` and not when the reply arrives: only its reader knows whether it is worth storing.
            self._mine.set()
            self._under_way.pop(self._key, None)
            self._mine = None

    def remember_reply(self, reply: ChatReply) -> None:
        """Keep a reply that proved to be of use, if it is new."""
        if self._cache is not None and self.called:
            self._cache.put(self._key, reply)

    async def close(self) -> None:
        """Do nothing: the model serves other requests too."""


def _apply_rung(request: ChatRequest, rung: Rung) -> ChatRequest:
    schema = request.answer_schema
    if schema is None or rung == "ids":
        return request
    return msgspec.structs.replace(request, answer_schema=without_ids(schema) if rung == "shape" else None)


def _add_tries(fault: ModelFault, tries: int) -> ModelFault:
    if tries == 1:
        return fault
    message = f"{fault.message} ({tries} tries)"
    return ModelFault(cast(FaultCode, fault.code), message, retry_after_s=fault.retry_after_s, status=fault.status)
