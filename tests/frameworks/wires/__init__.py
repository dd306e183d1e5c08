"""Wire formats of model providers: each file turns a scripted step into the response of one provider's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.frameworks.shop import Step


@dataclass(frozen=True)
class ModelReply:
    """A reply of the model: the step it sends, the step it means, its number among all replies, and its token counts."""

    step: Step
    means: Step
    number: int
    input_tokens: int
    output_tokens: int
    model: str
    # For tools that the provider calls itself: output and error of each call.
    hosted: tuple[tuple[Any, str | None], ...] = ()

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def calls(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Id, name and arguments of every call."""
        for index, (name, arguments) in enumerate(self.step.calls):
            yield f"call_{self.number}_{index}", name, arguments

    def pieces(self) -> Iterator[str]:
        """The text in streaming chunks, word by word."""
        words = self.step.text.split(" ")
        for index, word in enumerate(words):
            yield word if index == 0 else f" {word}"


def halves(text: str) -> tuple[str, str]:
    """Split arguments into two chunks, so that a stream reader must join them."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
