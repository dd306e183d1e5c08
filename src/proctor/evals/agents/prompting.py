"""Works on one prompt, from the question to its result.

The agent loop is the one of `mcp_agent` targets. Around it are the set of tools and a wrapper of the model, which puts the context
before the question, measures time and ends the loop when the caller wants. The result always has everything that was observed.

Reaching `max_steps` or a stop condition is not an error here, since the caller set it: see `get_stop_reason`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

import msgspec

from proctor.cassettes.ports import LIVE
from proctor.evals.agents.messages import Message, ModelSpan, read_sdk_messages, write_sdk_messages, write_spans
from proctor.evals.agents.prompt_result import LatencyBreakdown, PromptResult
from proctor.evals.agents.tools import AgentTool, ToolSet
from proctor.evidence.shared.usage import add_usage
from proctor.llm.ports import ChatMessage, ChatModel, ChatReply, ChatRequest, ModelFault
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.model.typed import convert_to
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.agent_conversation import AgentSettings


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model and the calls it requested."""

    text: str
    tool_names: tuple[str, ...]


StopCondition = Callable[[Sequence[Step]], bool]
"""Called after every step with all steps so far; true ends the prompt."""


def has_tool_call(name: str) -> StopCondition:
    """Return a condition that stops after the step that called this tool."""
    return lambda steps: name in steps[-1].tool_names


def step_count_is(count: int) -> StopCondition:
    """Return a condition that stops after this many steps."""
    return lambda steps: len(steps) >= count


class PromptOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one prompt."""

    context: tuple[PromptResult, ...] = ()
    timeout_ms: float | None = None
    """For the whole prompt."""
    step_ms: float | None = None
    """For one answer of the model."""
    stop_after_tool_call: tuple[str, ...] = ()
    stop_when: tuple[StopCondition, ...] = ()


Timeout = float | Mapping[str, float]
"""Milliseconds for the whole prompt, or `{total_ms, step_ms}`, also as the original spells them."""
_TIMEOUT_KEYS: Final = {"totalMs": "total_ms", "stepMs": "step_ms", "chunkMs": "chunk_ms"}


def _read_milliseconds(value: object, field: str) -> float | None:
    if value is None:
        return None
    if not is_number(value) or not 0 < value < float("inf"):
        raise ValueError(f"{field}: expected milliseconds above 0, found {show(value)}")
    return float(value)


def read_options(
    context: PromptResult | Iterable[PromptResult] | None,
    timeout: Timeout | None,
    timeout_ms: float | None,
    stop_after_tool_call: str | Iterable[str],
    stop_when: StopCondition | Iterable[StopCondition],
) -> PromptOptions:
    """Return the options, each given as a single value or as several; `timeout_ms` counts only without `timeout`. Raises `ValueError`."""
    if context is None:
        context = ()
    step_ms = None
    if isinstance(timeout, Mapping):
        options = {_TIMEOUT_KEYS.get(key, key): value for key, value in timeout.items()}
        unknown = [key for key in options if key not in _TIMEOUT_KEYS.values()]
        if unknown:
            raise ValueError(f"timeout: expected total_ms and step_ms, found {unknown[0]!r}")
        # Answers are not streamed here, so there is no timeout for chunks.
        limits = {key: _read_milliseconds(value, f"timeout.{key}") for key, value in options.items()}
        timeout_ms, step_ms = limits.get("total_ms"), limits.get("step_ms")
    elif timeout is not None:
        timeout_ms = _read_milliseconds(timeout, "timeout")
    return PromptOptions(
        context=(context,) if isinstance(context, PromptResult) else tuple(context),
        timeout_ms=timeout_ms,
        step_ms=step_ms,
        stop_after_tool_call=(stop_after_tool_call,) if isinstance(stop_after_tool_call, str) else tuple(stop_after_tool_call),
        stop_when=(stop_when,) if callable(stop_when) else tuple(stop_when),
    )


class WatchedModel:
    """A model that adds the context before each question, measures time, and can end the loop."""

    def __init__(
        self,
        model: ChatModel,
        context: tuple[ChatMessage, ...],
        ended: Callable[[Sequence[Step]], str | None],
        step_ms: float | None = None,
    ) -> None:
        self.provider, self.name = model.provider, model.name
        self._model = model
        self._step_ms = step_ms
        self._context = context
        self._ended = ended
        self._steps: list[Step] = []
        self.replies: list[ChatReply] = []
        self.messages: tuple[ChatMessage, ...] = ()
        """The conversation without the context, as last sent to the model."""
        self.spans: list[ModelSpan] = []
        self.stopped: str | None = None

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the model, unless the caller wants no more steps."""
        self.stopped = self._ended(self._steps) if self._steps else None
        if self.stopped is not None:
            # An error is the only way for a model to end the loop; it is never shown.
            raise ModelFault("bad_answer", "stopped as requested")
        self.messages = request.messages
        first = next((index for index, message in enumerate(request.messages) if message.role != "system"), 0)
        messages = (*request.messages[:first], *self._context, *request.messages[first:])
        started, reply = time.perf_counter(), None
        bound = asyncio.timeout(None if self._step_ms is None else self._step_ms / 1000)
        try:
            async with bound:
                reply = await self._model.complete(msgspec.structs.replace(request, messages=messages))
                self.replies.append(reply)
                self._steps.append(Step(text=reply.text, tool_names=tuple(call.name for call in reply.tool_calls)))
                return reply
        except TimeoutError:
            # A model may raise `TimeoutError` for other reasons; only this limit gets this message.
            if not bound.expired():
                raise
            raise ModelFault("timeout", f"Operation timed out after {self._step_ms:g}ms") from None
        finally:
            # Also if the prompt is cancelled: the time waited for the model is part of the result.
            self.spans.append(ModelSpan(started=started, ended=time.perf_counter(), reply=reply))

    async def close(self) -> None:
        """Do nothing: the creator of the model closes it."""


class Prompting:
    """One prompt in progress; `result` is available at any time."""

    def __init__(self, message: str, options: PromptOptions, *, provider: str | None, model: str | None) -> None:
        self._message = message
        self._options = options
        self._provider, self._model = provider, model
        self._started = time.perf_counter()
        self._watched: WatchedModel | None = None
        self._tools = ToolSet(())
        self._evidence: Evidence | None = None

    async def run(self, model: ChatModel, tools: Sequence[AgentTool], settings: AgentSettings, timeout_s: float) -> None:
        """Work until there is an answer. Raises what the loop raises."""
        self._tools = ToolSet(tools, stop_after=self._options.stop_after_tool_call)
        context = read_sdk_messages(message for result in self._options.context for message in result.get_messages())
        self._watched = watched = WatchedModel(model, context, self._find_stop_reason, self._options.step_ms)
        agent = McpAgent("eval", servers=self._tools, model_for=lambda _tape: watched, settings=settings)
        id = uuid4().hex
        # The loop ends a little before its limit, so it gets that much more time.
        attempt_timeout_s = timeout_s / 0.95 if timeout_s < 19 else timeout_s + 1
        attempt = Attempt(case=Case(id="prompt", input=self._message), request_id=id, session_id=id, timeout_s=attempt_timeout_s)
        self._evidence = await agent.run(attempt, LIVE)

    def _find_stop_reason(self, steps: Sequence[Step]) -> str | None:
        if self._tools.stopped:
            return "stop_after_tool_call"
        return "stop_when" if any(condition(steps) for condition in self._options.stop_when) else None

    @property
    def timed_out(self) -> bool:
        """Whether the loop ended because of its time limit."""
        return self._evidence is not None and self._evidence.metadata.get("code") == "timeout"

    def make_result(self, error: str | None = None, error_code: str | None = None) -> PromptResult:
        """Return what was observed so far."""
        evidence, watched = self._evidence, self._watched
        replies = watched.replies if watched is not None else []
        model_spans = watched.spans if watched is not None else []
        calls = tuple(self._tools.made) if evidence is None else evidence.tool_calls or ()
        stop = watched.stopped if watched is not None else None
        if evidence is not None and error is None and stop is None:
            code = evidence.metadata.get("code")
            if code == "max_turns":
                stop = "max_steps"
            elif evidence.error is not None:
                error, error_code = evidence.error, code
            elif evidence.account is not None and "tool_calls" in evidence.account.unknown:
                # The requested calls are unknown, so their absence is too.
                error, error_code = evidence.account.unknown["tool_calls"], "bad_answer"
            else:
                stop = "answered"
        servers = evidence.metadata.get("servers") if evidence is not None else None
        return PromptResult(
            prompt=self._message,
            text=replies[-1].text if replies else "",
            messages=self._list_messages(calls),
            tool_calls=calls,
            usage=add_usage(reply.usage for reply in replies),
            latency=LatencyBreakdown(
                e2e_ms=round((time.perf_counter() - self._started) * 1000, 3),
                # A call without a reply does not count.
                llm_ms=round(sum(span.ended - span.started for span in model_spans if span.reply is not None) * 1000, 3),
                mcp_ms=round(sum(span.ended - span.started for span in self._tools.spans) * 1000, 3),
            ),
            error=error,
            error_code=error_code,
            provider=self._provider,
            model=self._model,
            spans=self._list_spans(error, calls),
            stop_reason="error" if error is not None else stop,
            available_tools=evidence.available_tools if evidence is not None else None,
            servers=servers or (),
        )

    def _list_messages(self, calls: Sequence[ToolCall]) -> list[Message]:
        messages: list[ChatMessage] = list(self._watched.messages) if self._watched is not None else []
        if self._evidence is not None:
            # The evidence has shortened texts; the model's messages are complete.
            stored = self._evidence.metadata["messages"]
            messages += convert_to(stored[len(messages) :], list[ChatMessage])
        messages = messages or [ChatMessage(role="user", text=self._message)]
        return write_sdk_messages((message for message in messages if message.role != "system"), calls)

    def _list_spans(self, error: str | None, calls: Sequence[ToolCall]) -> list[Message]:
        executed = [
            call
            for call in calls
            # Without an object for arguments, it reached no tool.
            if call.server is not None and isinstance(call.arguments, dict) and _NO_OBJECT not in str(call.error)
        ]
        ids = [call.id for call in executed] + [None] * len(self._tools.spans)
        called = [msgspec.structs.replace(span, id=id) for span, id in zip(self._tools.spans, ids, strict=False)]
        model_spans = self._watched.spans if self._watched is not None else ()
        return write_spans(model_spans, called, began=self._started, error=error, provider=self._provider, model=self._model)


_NO_OBJECT: Final = "are not a JSON object"
