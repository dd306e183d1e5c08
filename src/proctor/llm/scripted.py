"""A model that answers from a script: for tests, examples and runs without a network.

A script is a list of replies, given one after the other, or a function of the request. `by_turn` chooses by the conversation
instead: the first reply answers a request without any assistant message, the second one with one, and so on, so that many cases
can share one script at the same time. A script that is too short is a fault, never an empty answer. A script for a judge names the
checks of a request `agent-check-1`, `agent-check-2` and so on, in their order: their real ids differ from request to request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import cast, get_args

import msgspec

from proctor.errors import SpecError
from proctor.llm.ports import ChatReply, ChatRequest, FaultCode, ModelCall, ModelFault
from proctor.model.evidence import Json, Usage
from proctor.model.show import kind_of, nearest, show
from proctor.model.typed import convert_to

Line = ChatReply | ModelFault | str
Script = Sequence[Line] | Callable[[ChatRequest], Line | Awaitable[Line]]


class ScriptedModel:
    """Answers from a script, and records its requests in `requests`."""

    def __init__(self, script: Script, *, name: str = "scripted", by_turn: bool = False) -> None:
        self.provider = "scripted"
        self.name = name
        self._script = script
        self._by_turn = by_turn
        self.requests: list[ChatRequest] = []
        self.closed = False

    @property
    def remaining(self) -> int:
        """The number of unused lines of a list; 0 for a function."""
        return 0 if callable(self._script) else max(0, len(self._script) - len(self.requests))

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the next line. Raises `ModelFault` if the line is a fault, or if no line is left."""
        position = len(self.requests)
        self.requests.append(request)
        if callable(self._script):
            reply = self._script(request)
            line: Line = await reply if isawaitable(reply) else reply
        else:
            if self._by_turn:
                position = sum(message.role == "assistant" for message in request.messages)
            if position >= len(self._script):
                raise ModelFault("bad_answer", f"the script of {self.name} has only {len(self._script)} replies")
            line = self._script[position]
        if isinstance(line, ModelFault):
            # A new one each time: a raised exception accumulates tracebacks.
            raise ModelFault(cast(FaultCode, line.code), line.message, retry_after_s=line.retry_after_s, status=line.status)
        reply = ChatReply(text=line) if isinstance(line, str) else line
        if "agent-check-" in reply.text:
            reply = msgspec.structs.replace(reply, text=_fill_ids(reply.text, request))
        if reply.tool_calls and reply.finish == "stop":
            reply = msgspec.structs.replace(reply, finish="tool_calls")
        return reply if reply.model else msgspec.structs.replace(reply, model=self.name)

    async def close(self) -> None:
        """Record in `closed` that the model was closed."""
        self.closed = True


def _fill_ids(text: str, request: ChatRequest) -> str:
    """Return a reply to a judge's request with the ids of its checks, which its schema lists."""
    value: Json = request.answer_schema
    for key in ("properties", "results", "items", "properties", "id", "enum"):
        value = value.get(key) if isinstance(value, dict) else None
    for number, identifier in reversed(list(enumerate(cast("list[str]", value or []), 1))):
        text = text.replace(f"agent-check-{number}", identifier)
    return text


def read_script(lines: Sequence[Json]) -> tuple[Line, ...]:
    """Read a script in the form of settings: texts, `{text, tool_calls, usage}`, or `{fault, message}`."""
    return tuple(_read_line(line, f"replies[{position}]") for position, line in enumerate(lines))


def _read_line(line: Json, field: str) -> Line:
    if isinstance(line, str):
        return line
    if not isinstance(line, dict):
        raise SpecError(f"expected text or an object, found {kind_of(line)}", field=field)
    allowed = ("fault", "message", "retry_after_s", "status") if "fault" in line else ("text", "tool_calls", "usage", "finish")
    for key in line:
        if key not in allowed:
            raise SpecError(
                f"unknown key {show(key)}; known here: {', '.join(allowed)}", field=f"{field}.{key}", nearest=nearest(str(key), allowed)
            )
    if "fault" in line:
        codes: tuple[str, ...] = get_args(FaultCode)
        if line["fault"] not in codes:
            raise SpecError(f"unknown fault {show(line['fault'])}", field=f"{field}.fault", nearest=nearest(str(line["fault"]), codes))
        message = line.get("message", "fault from the script")
        return ModelFault(line["fault"], str(message), retry_after_s=line.get("retry_after_s"), status=line.get("status"))
    try:
        numbered = [
            {"id": f"call_{position}", **call} if isinstance(call, dict) else call
            for position, call in enumerate(line.get("tool_calls") or [])
        ]
        reply = convert_to({**line, "tool_calls": []}, ChatReply)
        calls = convert_to(numbered, tuple[ModelCall, ...])
        usage = reply.usage or Usage(input_tokens=0, output_tokens=0, total_tokens=0)
        return msgspec.structs.replace(reply, tool_calls=calls, usage=usage)
    except msgspec.ValidationError as error:
        raise SpecError(f"not a reply: {error}", field=field) from None
