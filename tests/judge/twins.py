"""Scripted models and caches for the tests of the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from proctor.judge.cached import strip_reply
from proctor.judge.request import shuffle
from proctor.judge.scripted import list_ids
from proctor.llm.ports import ChatReply, ChatRequest
from proctor.model.evidence import Json, Usage
from proctor.model.judgement import Material, Question

ANSWER = Material(subject="Hello, your order 12 is on its way.")


def ask(*labels: str, threshold: float | None = None, material: Material = ANSWER) -> list[Question]:
    return [Question(criterion=f"it {label}", label=label, material=material, threshold=threshold) for label in labels]


def ids_in(request: ChatRequest) -> list[str]:
    """The ids that a request asks about, in the order of the questions, for the usual seed."""
    listed = list_ids(request)
    listing = shuffle(len(listed), 0)
    return [listed[listing.index(position)] for position in range(len(listed))]


def fill_ids(text: str, request: ChatRequest) -> str:
    """Replace `agent-check-1` and so on in a written reply by the ids of a request, in the order of the questions."""
    for number, identifier in enumerate(ids_in(request), 1):
        text = text.replace(f"agent-check-{number}", identifier)
    return text


def follow(line: Any, request: ChatRequest) -> Any:
    """Resolve a line of a script for a request."""
    line = line(request) if callable(line) else line
    if isinstance(line, str):
        return fill_ids(line, request)
    return msgspec.structs.replace(line, text=fill_ids(line.text, request)) if isinstance(line, ChatReply) else line


def entry(identifier: str, decision: Any, reason: str = "because") -> dict[str, Json]:
    kind = "pass" if isinstance(decision, bool) else "score"
    return {"id": identifier, "reason": reason, kind: decision}


def results(*entries: dict[str, Json]) -> str:
    return json.dumps({"results": entries})


def deciding(decision: Any, reason: str = "because", **fields: Any) -> Callable[[ChatRequest], ChatReply]:
    """A model that gives the same decision for every question."""
    usage = Usage(input_tokens=100, output_tokens=10)

    def reply(request: ChatRequest) -> ChatReply:
        text = results(*(entry(identifier, decision, reason) for identifier in ids_in(request)))
        return ChatReply(text=text, usage=usage, **fields)

    return reply


class ReplySequence:
    """Replies with its lines, one per request."""

    def __init__(self, lines: Sequence[Any]) -> None:
        self._lines = list(lines)

    def __call__(self, request: ChatRequest) -> Any:
        return follow(self._lines.pop(0), request)


class MemoryCache:
    """An in-memory cache of replies."""

    def __init__(self) -> None:
        self.replies: dict[str, ChatReply] = {}

    def get(self, key: str) -> ChatReply | None:
        return self.replies.get(key)

    def put(self, key: str, reply: ChatReply) -> None:
        self.replies[key] = strip_reply(reply)

    def close(self) -> None:
        """Nothing to close."""
