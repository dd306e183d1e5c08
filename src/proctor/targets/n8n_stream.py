"""What a webhook of n8n answers in streaming mode: a line of JSON for every piece.

    {"type": "begin", "metadata": {"nodeName": "AI Agent", ...}}
    {"type": "item", "content": "Your order", ...}
    {"type": "end", ...}
    {"type": "error", "content": "...", ...}

An agent begins and ends once for every round with its model. The answer is what was said in the last round that said anything.
"""

from __future__ import annotations

import msgspec

from proctor.evidence.json_bytes import embedded
from proctor.evidence.shape import text_or_none

_KINDS = ("begin", "item", "end", "error", "keepalive")


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces put together."""

    text: str | None
    error: str | None


def streamed(answer: str | None) -> Streamed | None:
    """The streamed answer; None where this is something else."""
    if answer is None or not answer.startswith('{"type":"'):
        return None
    rounds: list[list[str]] = []
    error: str | None = None
    for line in filter(None, map(str.strip, answer.split("\n"))):
        piece = embedded(line)
        if not isinstance(piece, dict) or piece.get("type") not in _KINDS:
            return None
        content = text_or_none(piece.get("content"))
        if piece["type"] == "begin" or not rounds:
            rounds.append([])
        if piece["type"] == "item" and content is not None:
            rounds[-1].append(content)
        elif piece["type"] == "error":
            error = content or "n8n reported an error"
    spoken = next((words for words in reversed(rounds) if words), None)
    return Streamed(text=None if spoken is None else "".join(spoken), error=error)
