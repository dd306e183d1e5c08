"""Reasons shared by the checks about the text of an answer."""

from __future__ import annotations

from typing import Final

from proctor.model.show import show
from proctor.model.verdict import Verdict, failed, missing

NO_TEXT: Final = missing("response text")
POINTER: Final = ("$.text",)
AROUND: Final = 40
"""How much of the text is shown on either side of a find."""


def fail_text_claim(claim: str, expected: str, text: str, hint: str | None) -> Verdict:
    """Return a failed claim about the answer: what was expected, what was found, and perhaps why."""
    reason = f"expected the answer to {claim}, found {show(text)}"
    return failed(
        reason if hint is None else f"{reason}; {hint}",
        details={"expected": show(expected)} if hint is None else {"expected": show(expected), "hint": hint},
        pointers=POINTER,
    )


def quote_around(text: str, start: int, end: int) -> str:
    """Return a match with a little of the text on both sides."""
    left, right = max(0, start - AROUND), min(len(text), end + AROUND)
    return show(f"{'…' if left else ''}{text[left:right]}{'…' if right < len(text) else ''}")
