"""Reads what a webhook of n8n answers in streaming mode: one line of JSON per piece.

    {"type": "begin", "metadata": {"nodeName": "AI Agent", ...}}
    {"type": "item", "content": "Your order", ...}
    {"type": "end", ...}
    {"type": "error", "content": "...", ...}

An agent begins and ends once for every round with its model. The answer is what was said in the last round that said anything. A stream
that stops before the last round has ended was cut off.
"""

from __future__ import annotations

import msgspec

from proctor.evidence.values.access import text_or_none
from proctor.evidence.values.json_bytes import decode_embedded

_KINDS = ("begin", "item", "end", "error", "keepalive")


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces, joined."""

    text: str | None
    error: str | None


def read_stream(answer: str | None) -> Streamed | None:
    """Return the streamed answer; None where the text is something else."""
    # n8n writes its pieces without blanks. An answer of an agent that only begins so is found out by its lines.
    if answer is None or not answer.startswith('{"type":"'):
        return None
    rounds: list[list[str]] = []
    error: str | None = None
    unfinished = 0
    for line in filter(None, map(str.strip, answer.split("\n"))):
        piece = decode_embedded(line)
        if not isinstance(piece, dict) or piece.get("type") not in _KINDS:
            return None
        content = text_or_none(piece.get("content"))
        if piece["type"] == "begin" or not rounds:
            rounds.append([])
        if piece["type"] == "item" and content is not None:
            rounds[-1].append(content)
        unfinished += {"begin": 1, "end": -1}.get(piece["type"], 0)
        if piece["type"] == "error":
            error = content or "n8n reported an error"
    if unfinished > 0:
        error = error or "the stream stopped before the agent had ended"
    spoken = next((words for words in reversed(rounds) if words), None)
    return Streamed(text=None if spoken is None else "".join(spoken), error=error)
