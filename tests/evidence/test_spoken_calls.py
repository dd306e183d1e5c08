"""Which texts of a model ask for a tool in words, and which only look a little like it."""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.spoken_calls import call_in_words
from tests.tables import rows


@rows("evidence/cases/spoken_calls.yaml")
def test_a_text_that_asks_for_a_tool_is_told_from_one_that_does_not(row: dict[str, Any]) -> None:
    assert (call_in_words(row["text"]) is not None) is row["call"]
