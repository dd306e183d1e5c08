"""What Python code may hand over by mistake is refused with an error of ours that says what was found."""

from __future__ import annotations

import json
from typing import Any

import pytest

import proctor
from proctor.errors import EvidenceError, InputError
from proctor.report.json_text import render_json

SUITE = proctor.parse_suite("proctor: 1\ncases: [{id: a, expect: [{response_contains: a}]}]")
LONG = "x" * 5_000


@pytest.mark.parametrize("found", [5, 1e308, None, True, object(), b"{}"])
def test_what_is_no_evidence_is_refused(found: Any) -> None:
    with pytest.raises(EvidenceError, match="expected an object, a list or the path of a file"):
        proctor.read_evidence(found)


@pytest.mark.parametrize("found", [5, None, True, object(), "evidence.json", b"{}", [5], ["evidence.json"], [None]])
def test_what_cannot_be_checked_is_refused(found: Any) -> None:
    with pytest.raises(InputError, match="expected evidence"):
        proctor.check(SUITE, found)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    for use in (proctor.load_suite, proctor.read_evidence):
        with pytest.raises(InputError, match="File name too long"):
            use(LONG)


def test_half_a_character_in_an_object_is_read_as_it_is_from_a_file() -> None:
    document = {"data": {"text": {"output": {"text": "half \ud83d", "\ud83d": [1, "\udc00"]}}}}
    read = proctor.read_evidence(document)
    assert read.text is not None and "half \ufffd" in read.text
    assert proctor.check(SUITE, document).cases[0].outcome == "pass"
    assert document["data"]["text"]["output"]["text"] == "half \ud83d", "what was handed over is not changed"


@pytest.mark.parametrize(
    "document",
    [
        {"case": "\ud83d", "text": "a"},
        {"text": "b\ud83d"},
        {"text": "b", "tool_calls": [{"name": "sea\ud83drch"}]},
        {"spans": [{"span_id": "t", "name": "Tool", "attributes": {"gen_ai.tool.name": "T\ud83dl"}}]},
    ],
)
def test_half_a_character_anywhere_in_a_record_is_written_into_the_report(document: Any) -> None:
    suite = proctor.parse_suite("proctor: 1\ncases: [{id: a, expect: [{response_contains: a}, {tool_called: x}, {response_equals: a}]}]")
    written = render_json(proctor.check(suite, document))
    written.encode()
    assert json.loads(written)["schema"]
