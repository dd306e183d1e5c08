"""A user played by a chat model, who is asked anew before each message and told the whole conversation.

A reply that cannot be read is asked for once more, then it is the `bad_user_reply` of the case. A model that cannot be reached is tried
again, as asking it has no effect on the agent; then it is `user_unavailable`. A conversation never ends because its user fell silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from proctor.errors import TargetError
from proctor.evidence.shared.usage import add_usage
from proctor.llm.ports import ChatModel, ChatReply, ChatRequest, ModelFault
from proctor.model.case import SimulatedUser
from proctor.model.evidence import Usage
from proctor.model.show import show
from proctor.users.player import Exchange, Move
from proctor.users.prompt import build_request
from proctor.users.reply import BrokenReply, read_reply

UNAVAILABLE: Final = "user_unavailable"
BAD_REPLY: Final = "bad_user_reply"
_TRIES: Final = 3
"""How often a model is asked that cannot be reached."""
_LONGEST_PAUSE_S: Final = 30.0


class ModelPlayer:
    """Plays one user by asking a model."""

    def __init__(
        self,
        user: SimulatedUser,
        model: ChatModel,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`pause` waits before a model that could not be reached is asked again; a replay has nothing to wait for."""
        self._user = user
        self._model = model
        self._pause = pause
        self._spent: list[Usage | None] = []
        self.model_calls = 0

    @property
    def name(self) -> str:
        """The provider and name of the model."""
        return f"{self._model.provider}/{self._model.name}"

    @property
    def usage(self) -> Usage | None:
        """What the model took so far, as far as it told."""
        return add_usage(self._spent)

    async def choose(self, exchanges: Sequence[Exchange]) -> Move:
        """Ask for the next move. Raises `TargetError` where there is none."""
        wrong = ""
        for again in (False, True):
            reply = await self._ask(build_request(self._user, exchanges, again=again))
            try:
                if reply.finish != "stop":
                    raise BrokenReply(f"it ended with {reply.finish!r}, not by itself")
                move = read_reply(reply.text)
                if not exchanges and move.ends is not None:
                    raise BrokenReply("it ends a conversation that has not begun")
                return move
            except BrokenReply as broken:
                wrong = f"{broken}; it replied {show(reply.text, 200)}"
        raise TargetError(f"the simulated user ({self.name}) gave no reply that can be used: {wrong}", code=BAD_REPLY)

    async def _ask(self, request: ChatRequest) -> ChatReply:
        for tried in range(_TRIES):
            self.model_calls += 1
            try:
                reply = await self._model.complete(request)
            except ModelFault as fault:
                wait = max(fault.retry_after_s or 0.0, 0.5 * 2**tried)
                if not fault.safe or tried == _TRIES - 1 or wait > _LONGEST_PAUSE_S:
                    # It was tried here: made again as a whole, the attempt would only multiply that.
                    told = f"the simulated user ({self.name}) cannot be asked: {fault.message} [{fault.code}]"
                    raise TargetError(told, code=UNAVAILABLE) from None
                await self._pause(wait)
                continue
            self._spent.append(reply.usage)
            return reply
        raise AssertionError("every way through the loop returns or raises")
