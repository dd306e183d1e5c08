"""Calls one model of a judge: cache first, then through the gate, with a timeout and retries where they help.

All of it happens below the tape: a recording has the reply of a request, cached or not, and a replay neither waits nor calls the model. A
request that would exceed the budget is not sent. A model that fails `MOST_FAULTS` times in a row or
refuses the key is not called for `PAUSE_S`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Literal, cast

import msgspec

from proctor.errors import TargetError
from proctor.judge.cached import FolderCache
from proctor.judge.request import without_ids
from proctor.judge.settings import JudgeSettings
from proctor.judge.votes import Prices, compute_cost
from proctor.llm.ports import ChatModel, ChatReply, ChatRequest, FaultCode, ModelFault
from proctor.model.cost import PriceList, price_usage

MAX_BACKOFF_S = 30.0


MAX_REPLY_BYTES = 8 * 1024 * 1024
"""The maximum size of a response in bytes; a longer one cannot be a judgement."""
MOST_FAULTS = 10
"""Consecutive transport faults after which a model counts as down; the number is higher if many requests fail in one burst."""
PAUSE_S = 60.0
"""Seconds before one request probes a model that is down."""
_TRANSPORT = ("transport", "timeout", "overloaded")

Rung = Literal["ids", "shape", "free"]
_RUNGS: tuple[Rung, ...] = ("ids", "shape", "free")
"""How strictly the reply format is enforced: the results and their number, their shape, or not at all."""
_TAKE_BOUNDS = ("openai", "openai_responses", "scripted")
"""The protocols whose schemas may limit the length of a list."""


class JudgeSpending(msgspec.Struct, kw_only=True):
    """What a judge has actually spent so far; cached and replayed replies are free."""

    calls: int = 0
    """Requests sent, including failed ones."""
    cached: int = 0
    """Replies from the cache."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """The cost for models with known prices."""
    prices: PriceList = PriceList()
    """The prices of the run, which override those in a model's settings."""
    explain_overspent: Callable[[], str | None] | None = None
    """Returns which cost limit of the run is reached, or None."""


class GatedModel:
    """A model that is called within the configured limits."""

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
        # A judgement takes a few hundred words; longer output is not read.
        if (limit_answers := getattr(model, "limit_answers", None)) is not None:
            limit_answers(MAX_REPLY_BYTES)
        self._faults = 0
        self._has_answered = False
        self._most_faults = max(MOST_FAULTS, 2 * settings.concurrency)
        self._down: ModelFault | None = None
        self._down_until = 0.0
        # The form this provider accepts; if that is unknown, its documented form.
        self._rung = 0 if settings.structured == "auto" and model.provider in _TAKE_BOUNDS else 1

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Call the model, with retries where they help. Raises `ModelFault`, and `TargetError` when the budget is spent."""
        if request.answer_schema is None:
            return await self._call_with_retries(request)
        for rung in _RUNGS[self._rung :]:
            try:
                schema = None if rung == "free" else without_ids(request.answer_schema) if rung == "shape" else request.answer_schema
                reply = await self._call_with_retries(msgspec.structs.replace(request, answer_schema=schema))
            except ModelFault as fault:
                # Providers report an unsupported schema in many ways; a request with a simpler schema shows whether that was the cause.
                is_other = fault.code != "bad_request" or self._settings.structured != "auto"
                if is_other or rung == "free" or self._down is not None:
                    raise
                continue
            # Remember what this model accepts, so that later requests are not refused first.
            self._rung = _RUNGS.index(rung)
            return reply
        raise AssertionError("the last rung returns or raises")

    def drop_schema(self) -> None:
        """Stop sending a schema: this model reorders the members of its reply, and keeps the requested order without a schema."""
        if self._settings.structured == "auto":
            self._rung = len(_RUNGS) - 1

    async def _call_with_retries(self, request: ChatRequest) -> ChatReply:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._call_once(request)
            except ModelFault as fault:
                pause = self._choose_pause_s(fault, tries)
                if pause is None:
                    if tries == 1:
                        raise
                    message, code = f"{fault.message} ({tries} tries)", cast(FaultCode, fault.code)
                    raise ModelFault(code, message, retry_after_s=fault.retry_after_s, status=fault.status) from None
            # The slot at the gate was released, so this pause delays no other request.
            await asyncio.sleep(pause)

    def _choose_pause_s(self, fault: ModelFault, tries: int) -> float | None:
        """Return how many seconds to wait before the next attempt, or None for no further attempt."""
        # Permanent faults (a wrong key, a rejected request) are not retried.
        if not fault.safe or tries > self._settings.retries or self._down is not None:
            return None
        if fault.retry_after_s is not None:
            # A pause longer than the request timeout is refused.
            return fault.retry_after_s if fault.retry_after_s <= self._settings.timeout_s else None
        backoff = min(MAX_BACKOFF_S, self._settings.backoff_s * 2 ** min(tries - 1, 20))
        # Jitter: requests that were refused together must not return together.
        return backoff * random.uniform(0.75, 1.0)

    async def _call_once(self, request: ChatRequest) -> ChatReply:
        settings, gate = self._settings, self._gate
        ticket = await gate.enter()
        try:
            # Checked after the gate: requests that waited while the budget was spent are not sent.
            if settings.max_calls is not None and self._spent.calls >= settings.max_calls:
                raise TargetError(f"the limit of {settings.max_calls} requests to the judge is reached", code="judge_budget")
            why = self._spent.explain_overspent() if self._spent.explain_overspent is not None else None
            if why is not None:
                raise TargetError(why, code="judge_budget")
            now = asyncio.get_running_loop().time()
            if self._down is not None and now < self._down_until:
                # No count, which would differ between requests: reports show equal faults once.
                why = "earlier requests failed" if self._faults >= self._most_faults else "an earlier request was refused"
                raise TargetError(f"not sent, because {why}: {self._down.message}", code=self._down.code)
            # One request probes a model that was down; those after it wait for its outcome.
            self._down_until = now + PAUSE_S
            # Counted before sending, so that concurrent requests cannot exceed the limit.
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
                # A longer pause is not passed to the gate: it would delay all requests, and this one is abandoned.
                gate.slow_down(ticket, pause if pause is not None and pause <= settings.timeout_s else None)
            self._note_fault(fault)
            raise
        finally:
            gate.leave()
        gate.note_success()
        self._faults, self._down, self._has_answered = 0, None, True
        usage = reply.usage
        if usage is not None:
            self._spent.input_tokens += usage.input_tokens or 0
            self._spent.output_tokens += usage.output_tokens or 0
            cost = price_usage(usage, self.name, self._spent.prices)
            self._spent.cost += (compute_cost(usage, self._prices) or 0.0) if isinstance(cost, str) else cost
        return reply

    def _note_fault(self, fault: ModelFault) -> None:
        """Count a fault, and mark the model as down if further calls would only cost time."""
        self._faults = self._faults + 1 if fault.code in _TRANSPORT or fault.status == 403 else 0
        # A firewall may refuse one request with 403; a model that has never answered refuses them all.
        # An exhausted quota (402, or 429 that is no rate limit) concerns every request too.
        is_spent = fault.code == "bad_request" and fault.status in (402, 429)
        is_refused = is_spent or fault.status in (401, 404) or (fault.status == 403 and not self._has_answered)
        if self._faults >= self._most_faults or is_refused:
            self._down, self._down_until = fault, asyncio.get_running_loop().time() + PAUSE_S


class RememberedModel:
    """The model for one request: returns the reply cached under `key`, or calls the model."""

    def __init__(
        self, model: GatedModel, cache: FolderCache | None, key: str, spent: JudgeSpending, under_way: dict[str, asyncio.Event]
    ) -> None:
        self.provider = model.provider
        self.name = model.name
        self.cached = False
        """Whether the reply came from the cache."""
        self.called = False
        """Whether the model was called; like `cached`, false if a tape answered."""
        self._model = model
        self._cache = cache
        self._key = key
        self._spent = spent
        self._under_way = under_way
        self._mine: asyncio.Event | None = None

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the cached reply, or call the model. Raises as the model does."""
        if self._cache is not None:
            # Equal requests are sent once: the second waits for the reply of the first. In a loop, because if nothing was stored, another
            # waiter may have sent the request again.
            while (earlier := self._under_way.get(self._key)) is not None:
                await earlier.wait()
            if (cached_reply := self._cache.get(self._key)) is not None:
                self.cached = True
                self._spent.cached += 1
                return cached_reply
            self._mine = self._under_way[self._key] = asyncio.Event()
        self.called = True
        return await self._model.complete(request)

    def finish(self) -> None:
        """Release the requests that waited for this one: it will store nothing more."""
        if self._mine is not None:
            # In `finish` and not when the reply arrives: only its reader knows whether it is worth storing.
            self._mine.set()
            self._under_way.pop(self._key, None)
            self._mine = None

    def remember_reply(self, reply: ChatReply) -> None:
        """Cache a reply that proved usable, if it is new."""
        if self._cache is not None and self.called:
            self._cache.put(self._key, reply)

    async def close(self) -> None:
        """Do nothing: the model serves other requests too."""


# Limits the number of concurrent requests of a judge, over all cases.
# The limit adapts to the provider: it is halved when the provider reports overload, raised by one after every round of successes, and
# never exceeds the configured number. Requests of one round that are refused together halve it once. Requests enter in the order of
# arrival.


class RequestGate:
    """Admits a limited, adaptive number of requests."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        self.inside = 0
        self._round = 0
        self._successes = 0
        self._closed_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None

    async def enter(self) -> int:
        """Wait for a slot and for the end of any pause the provider requested; return the round, for `slow_down`."""
        loop = asyncio.get_running_loop()
        # Only if the queue is empty, to preserve the order of arrival.
        if not self._waiting and self.inside < self.limit and loop.time() >= self._closed_until:
            self.inside += 1
            return self._round
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.append(place)
        self._admit_waiting()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                # The slot was granted during the cancellation, so it is released here.
                self.leave()
            raise
        # The round of its admission, not of its arrival: a refusal concerns the requests sent with it.
        return self._round

    def leave(self) -> None:
        """Release the slot."""
        self.inside -= 1
        self._admit_waiting()

    def note_success(self) -> None:
        """Count a successful request: after a full round of them the limit may rise."""
        if self.limit >= self.most:
            return
        # A round is as many successes as concurrent requests: the limit rises by one per round and halves at once.
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1
            self._admit_waiting()

    def slow_down(self, round_: int, pause_s: float | None = None) -> None:
        """Halve the number of concurrent requests, and admit none until the pause requested by the provider is over."""
        # Requests of one round ran together, so their refusals halve the limit only once.
        if round_ == self._round:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._round += 1
        if pause_s is not None:
            # The longest requested pause wins; a later, shorter one does not open the gate early.
            self._closed_until = max(self._closed_until, asyncio.get_running_loop().time() + pause_s)

    def _admit_waiting(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._closed_until:
            self._alarm = loop.call_at(self._closed_until, self._admit_waiting)
            return
        while self._waiting and self.inside < self.limit:
            place = self._waiting.popleft()
            # A request that was cancelled while waiting takes no slot.
            if not place.done():
                self.inside += 1
                place.set_result(None)
