"""The chunks that Haystack hands to a streaming callback, put together to messages.

The chunks of one answer of the model end with the reason why it ended; the results of tools come between. Where such an end is missing,
somebody left chunks out, and with them perhaps calls.
"""

from __future__ import annotations

from typing import Any

from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json
from proctor.targets.frameworks.found import EVERYTHING, Found
from proctor.targets.frameworks.looking import call_member, find_entry, is_instance_of, list_members, read_member
from proctor.targets.frameworks.simplify import Budget, simplify


def is_chunk(value: object) -> bool:
    """Return whether a value is a chunk of a stream."""
    return is_instance_of(value, "haystack", "StreamingChunk")


def read_chunks(chunks: list[object], budget: Budget) -> Found:
    """Read the chunks of one run of an agent."""
    messages: list[dict[str, Any]] = []
    found = Found(document=messages, format="haystack")
    answer = _Answer()
    for chunk in chunks:
        result = read_member(chunk, "tool_call_result")
        if result is not None:
            messages.extend(answer.close(found))
            answer = _Answer()
            written = simplify(call_member(result, "to_dict"), budget, "$.tool_call_result")
            messages.append({"role": "tool", "content": [{"tool_call_result": written}], "meta": {}, "name": None})
        elif read_member(chunk, "finish_reason") != "tool_call_results":
            if answer.finish is not None and (read_member(chunk, "content") or read_member(chunk, "tool_calls")):
                messages.extend(answer.close(found))
                answer = _Answer()
            answer.add(chunk, budget)
    messages.extend(answer.close(found))
    if not any("tool_call" in part or "tool_call_result" in part for message in messages for part in message["content"]):
        # The last answer of a run with tools looks like the only answer of a run without.
        found.mark(CALL_PARTS, "these chunks show no call, and not whether they begin with the run: yield what the agent gives after them")
    if not messages or messages[-1]["role"] == "tool" or any("tool_call" in part for part in messages[-1]["content"]):
        found.mark(EVERYTHING, "the stream did not come to its end")
    return found if messages else Found(document={"text": ""}, unknowns=found.unknowns)


class _Answer:
    """One answer of the model, as far as its chunks have come."""

    def __init__(self) -> None:
        self.finish: str | None = None
        self._pieces: list[str] = []
        self._calls: dict[object, dict[str, Any]] = {}
        self._usage: Json = None

    def add(self, chunk: object, budget: Budget) -> None:
        """Take one chunk."""
        piece = read_member(chunk, "content")
        if isinstance(piece, str):
            budget.spend(len(piece))
            self._pieces.append(piece)
        for delta in list_members(chunk, "tool_calls"):
            call = self._calls.setdefault(read_member(delta, "index"), {"tool_name": "", "arguments": "", "id": None})
            call["tool_name"] += read_member(delta, "tool_name") or ""
            call["arguments"] += read_member(delta, "arguments") or ""
            call["id"] = read_member(delta, "id") or call["id"]
        self.finish = read_member(chunk, "finish_reason") or self.finish
        self._usage = simplify(find_entry(read_member(chunk, "meta"), "usage"), budget, "$.meta.usage") or self._usage

    def close(self, found: Found) -> list[dict[str, Any]]:
        """Return the answer as a message; none where no chunk held anything."""
        text = "".join(self._pieces)
        if self.finish is None and (text or self._calls):
            found.mark(CALL_PARTS, "these chunks are not all that was streamed: an answer has no end (`finish_reason`)")
        elif self.finish == "tool_calls" and not self._calls:
            found.mark(CALL_PARTS, "these chunks are not all that was streamed: the chunks of calls are missing")
        content: list[Json] = [{"text": text}] if text else []
        content.extend({"tool_call": call} for call in self._calls.values())
        meta = {"finish_reason": self.finish, "usage": self._usage}
        return [{"role": "assistant", "content": content, "meta": meta, "name": None}] if content else []
