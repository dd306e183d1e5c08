"""A model whose requests and replies go through a tape, so that they can be recorded and replayed.

What the tape sees is our own request and reply, not the provider's: a recording stays readable, and holds for any address. The
raw request and response of the provider are inside the reply. A fault of the model is part of the conversation, and replayed like it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, cast

import msgspec

from proctor.llm.ports import ChatModel, ChatReply, ChatRequest, FaultCode, ModelFault
from proctor.model.evidence import Json
from proctor.model.typed import convert_to


class Tape(Protocol):
    """Records every request and reply, or replays them; `proctor.cassettes.ports.Tape` fits."""

    async def exchange(self, kind: Literal["chat"], request: Json, send: Callable[[], Awaitable[Json]]) -> Json:
        """Return the response to `request`."""
        ...


class _Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: FaultCode
    message: str
    retry_after_s: float | None = None
    status: int | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    reply: ChatReply | None = None
    fault: _Fault | None = None


class TapedModel:
    """`model`, with its requests and replies on `tape`.

    One is made per attempt; the creator of the inner model closes it.
    """

    def __init__(self, model: ChatModel, tape: Tape) -> None:
        self.provider, self.name = model.provider, model.name
        self._model = model
        self._tape = tape

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Send one request, or replay the recorded reply. Raises `ModelFault`."""
        # Defaults are part of the request: another temperature is another request.
        fill_defaults: Callable[[ChatRequest], ChatRequest] | None = getattr(self._model, "fill_defaults", None)
        request = fill_defaults(request) if fill_defaults is not None else request
        described = {"provider": self.provider, "model": self.name, **msgspec.to_builtins(request)}

        async def send() -> Json:
            try:
                return msgspec.to_builtins(_Answer(reply=await self._model.complete(request)))
            except ModelFault as fault:
                recorded_fault = _Fault(
                    code=cast(FaultCode, fault.code), message=fault.message, retry_after_s=fault.retry_after_s, status=fault.status
                )
                return msgspec.to_builtins(_Answer(fault=recorded_fault))

        recorded = await self._tape.exchange("chat", described, send)
        try:
            answer = convert_to(recorded, _Answer)
        except msgspec.ValidationError as error:
            raise ModelFault("bad_answer", f"the recording is not an answer of a model: {error}") from None
        if answer.fault is not None:
            fault = answer.fault
            raise ModelFault(fault.code, fault.message, retry_after_s=fault.retry_after_s, status=fault.status)
        if answer.reply is None:
            raise ModelFault("bad_answer", "the recording holds neither a reply nor a fault")
        return answer.reply

    async def close(self) -> None:
        """Do nothing: the inner model serves other attempts too."""
