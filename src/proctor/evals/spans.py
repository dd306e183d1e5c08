"""What took how long in a prompt, as MCPJam shows it: steps, and in each of them the model and the tools it called.

    step    one answer of the model and the calls it asked for
    llm     waiting for the model
    tool    waiting for a tool; status `error` where the call itself failed
    error   where the prompt went wrong

Times are milliseconds from the start of the prompt; a span ends after it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from proctor.evals.messages import Message
from proctor.llm.ports import ChatReply

_SHORTEST_MS: Final = 0.001


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One time that the model was asked."""

    started: float
    ended: float
    reply: ChatReply | None = None
    """Nothing where none came."""


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """One time that a tool was called."""

    tool: str
    server: str
    started: float
    ended: float
    ok: bool
    id: str | None = None


def spans_of(
    asked: Sequence[Asked], called: Iterable[Called], *, began: float, error: str | None, provider: str | None, model: str | None
) -> list[Message]:
    """All spans, in the order in which they began."""
    found: list[Message] = []

    def add(category: str, name: str, start: float, end: float, ok: bool, **more: object) -> str:
        id = f"span-{len(found)}"
        first = round((start - began) * 1000, 3)
        last = max(round((end - began) * 1000, 3), first + _SHORTEST_MS)
        known = {key: value for key, value in more.items() if value is not None}
        status = "ok" if ok else "error"
        span = {"id": id, "name": name, "category": category, "startMs": first, "endMs": last, "promptIndex": 0, **known, "status": status}
        found.append(span)
        return id

    waiting = sorted(called, key=lambda call: call.started)
    parent: str | None = None
    end = began
    for number, step in enumerate(asked):
        until = asked[number + 1].started if number + 1 < len(asked) else float("inf")
        own = [call for call in waiting if step.started <= call.started < until]
        end = max([step.ended, *(call.ended for call in own)])
        answered = step.reply is not None
        parent = add("step", f"step {number + 1}", step.started, end, answered, stepIndex=number)
        inside = {"parentId": parent, "stepIndex": number}
        add("llm", "llm", step.started, step.ended, answered, **inside, modelId=model, provider=provider, **_spent(step.reply))
        for call in own:
            about = {"toolName": call.tool, "toolCallId": call.id, "serverId": call.server}
            add("tool", call.tool, call.started, call.ended, call.ok, **inside, **about)
    if error is not None:
        add("error", error[:200], end, end, False, parentId=parent)
    return found


def _spent(reply: ChatReply | None) -> Message:
    if reply is None:
        return {}
    usage = reply.usage
    tokens = {} if usage is None else {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens, "totalTokens": usage.total()}
    return {**tokens, "finishReason": reply.finish or None}
