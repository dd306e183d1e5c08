"""How model providers speak: each file turns a scripted step into what one provider's API would have answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.frameworks.shop import Step


@dataclass(frozen=True)
class Said:
    """One answer of the model: what it says, what it means, its number among all answers, and the tokens it reports."""

    step: Step
    means: Step
    number: int
    input_tokens: int
    output_tokens: int
    model: str
    # What the provider itself got from the tools that it called: output and error of each.
    hosted: tuple[tuple[Any, str | None], ...] = ()

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def calls(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Id, name and arguments of every call."""
        for index, (name, arguments) in enumerate(self.step.calls):
            yield f"call_{self.number}_{index}", name, arguments

    def pieces(self) -> Iterator[str]:
        """The text as a stream would bring it: word by word."""
        words = self.step.text.split(" ")
        for index, word in enumerate(words):
            yield word if index == 0 else f" {word}"


def halves(text: str) -> tuple[str, str]:
    """Arguments come in two chunks, so that whoever reads a stream has to put them together."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
