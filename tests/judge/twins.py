"""Models that answer a judge's request, and tapes that remember, for the tests of this room."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from proctor.llm.ports import ChatReply, ChatRequest
from proctor.model.evidence import Json, Usage
from proctor.model.judgement import Material, Question

ANSWER = Material(subject="Hello, your order 12 is on its way.")
_CHECK_IDS = re.compile(r"check-\d+-[0-9a-f]{12}")


def ask(*labels: str, threshold: float | None = None, material: Material = ANSWER) -> list[Question]:
    return [Question(criterion=f"it {label}", label=label, material=material, threshold=threshold) for label in labels]


def ids_in(request: ChatRequest) -> list[str]:
    """The ids that a request asks about, in the order of the list."""
    return sorted(set(_CHECK_IDS.findall(request.messages[-1].text)), key=lambda word: int(word.split("-")[1]))


def entry(identifier: str, decision: Any, reason: str = "because") -> dict[str, Json]:
    kind = "pass" if isinstance(decision, bool) else "score"
    return {"id": identifier, kind: decision, "reason": reason}


def results(*entries: dict[str, Json]) -> str:
    return json.dumps({"results": entries})


def says(decision: Any, reason: str = "because", **fields: Any) -> Callable[[ChatRequest], ChatReply]:
    """A model that gives one and the same decision for everything it is asked."""
    usage = Usage(input_tokens=100, output_tokens=10)

    def reply(request: ChatRequest) -> ChatReply:
        text = results(*(entry(identifier, decision, reason) for identifier in ids_in(request)))
        return ChatReply(text=text, usage=usage, **fields)

    return reply


class OneAfterTheOther:
    """A function of the request that is another one each time."""

    def __init__(self, lines: Sequence[Any]) -> None:
        self._lines = list(lines)

    def __call__(self, request: ChatRequest) -> Any:
        line = self._lines.pop(0)
        return line(request) if callable(line) else line
