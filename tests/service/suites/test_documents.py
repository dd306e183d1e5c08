"""Suites that are sent: the same document is taken as text and as JSON."""

from __future__ import annotations

import asyncio
import json

import pytest

from proctor.service.refusals import Refusal
from proctor.service.suites.documents import LONGEST_DOCUMENT, read_sent_suite


@pytest.mark.timeout(60)
def test_a_document_that_only_indentation_makes_too_large_is_taken() -> None:
    document = {"proctor": 1, "cases": [{"id": f"case {n}", "expect": [{"tool_called": {"name": "search"}}]} for n in range(7_000)]}
    assert len(json.dumps(document, indent=2)) > LONGEST_DOCUMENT
    suite, text = asyncio.run(read_sent_suite(document))
    assert len(suite.cases) == 7_000 and len(text) <= LONGEST_DOCUMENT


def test_a_document_that_is_too_large_in_any_form_is_refused() -> None:
    with pytest.raises(Refusal, match="too large"):
        asyncio.run(read_sent_suite({"proctor": 1, "name": "x" * LONGEST_DOCUMENT, "cases": []}))
