"""Writes what took how long in a prompt, as MCPJam shows it: steps, and in each of them the model and the tools it called.

    step    one answer of the model and the calls it requested
    llm     waiting for the model
    tool    waiting for a tool; status `error` where the call itself failed
    error   where the prompt went wrong

Times are milliseconds from the start of the prompt; a span ends after it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from proctor.evals.agents.messages import Message
from proctor.llm.ports import ChatReply

_SHORTEST_MS: Final = 1.0


class ModelSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model."""

    started: float
    ended: float
    reply: ChatReply | None = None
    """Nothing where none came."""


class ToolSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One time that a tool was called."""

    tool: str
    server: str
    started: float
    ended: float
    ok: bool
    id: str | None = None


def write_spans(
    model_spans: Sequence[ModelSpan],
    called: Iterable[ToolSpan],
    *,
    began: float,
    error: str | None,
    provider: str | None,
    model: str | None,
) -> list[Message]:
    """Return all spans: each step with what happened in it, and the error at the end."""
    found: list[Message] = []

    def add(category: str, name: str, start: float, end: float, ok: bool, **more: object) -> str:
        id = f"span-{len(found)}"
        first, last = round((start - began) * 1000, 3), round((end - began) * 1000, 3)
        known = {key: value for key, value in more.items() if value is not None}
        times = {"startMs": first, "endMs": last if last > first else first + _SHORTEST_MS}
        found.append({"id": id, "name": name, "category": category, **times, "promptIndex": 0, **known, "status": "ok" if ok else "error"})
        return id

    waiting = sorted(called, key=lambda call: call.started)
    # The user's message comes first.
    end, place = began, 1
    for number, step in enumerate(model_spans):
        until = model_spans[number + 1].started if number + 1 < len(model_spans) else float("inf")
        own = [call for call in waiting if step.started <= call.started < until]
        end = max([step.ended, *(call.ended for call in own)])
        reply = step.reply
        of_model = {"modelId": model, "provider": provider, **_write_usage(reply)}
        inside: Message = {"stepIndex": number}
        if reply is not None and error is None:
            inside |= {"messageStartIndex": place, "messageEndIndex": place + bool(reply.tool_calls)}
            place += 1 + bool(reply.tool_calls)
        parent = add("step", f"Step {number + 1}", step.started, end, reply is not None, **inside, **of_model)
        inside["parentId"] = parent
        add("llm", "Model", step.started, step.ended, reply is not None, **inside, **of_model)
        for call in own:
            about = {"toolName": call.tool, "toolCallId": call.id, "serverId": call.server}
            add("tool", call.tool, call.started, call.ended, call.ok, **inside, **about)
    if error is not None:
        add("error", error.strip()[:200] or "error", end, end, False)
    return found


def _write_usage(reply: ChatReply | None) -> Message:
    if reply is None:
        return {}
    usage = reply.usage
    tokens = {} if usage is None else {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens, "totalTokens": usage.total()}
    return {**tokens, "finishReason": reply.finish or None}
