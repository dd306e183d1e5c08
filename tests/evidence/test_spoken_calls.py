"""Texts of a model that request a tool in prose, and texts that only look similar."""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.spoken_calls import call_in_words
from tests.tables import rows


@rows("evidence/cases/spoken_calls.yaml")
def test_texts_that_request_a_tool_are_recognised(row: dict[str, Any]) -> None:
    assert (call_in_words(row["text"]) is not None) is row["call"]
