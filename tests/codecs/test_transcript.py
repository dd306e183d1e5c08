"""Transcripts from a table, and text that is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.codecs.transcript import read_transcript
from proctor.errors import EvidenceError
from tests.tables import rows


@rows("codecs/cases/transcripts.yaml")
def test_a_transcript_becomes_turns(row):
    assert [[turn.speaker, turn.text] for turn in read_transcript(row["given"])] == row["expect"]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("hello", "vtt", "the first line is not WEBVTT"),
        ("hello there", None, "no cue with a time line"),
        ("{", None, "not a JSON transcript"),
        ('{"a": 1}', None, "expected a list of turns"),
        ("[3]", None, "turn 0 of the transcript: expected an object, found number"),
        ('[{"speaker": "agent"}]', None, "turn 0 of the transcript has no text"),
        ("[" * 100_000, "json", "not a JSON transcript"),
    ],
)
def test_other_text_is_refused(text, kind, message):
    with pytest.raises(EvidenceError, match=message):
        read_transcript(text, kind)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["", "WEBVTT\n\n00:01.000 --> 00:02.000\n", "1\n00:00:01,000 --> 00:00:02,000\n", "["]))
def test_any_text_is_read_or_refused(text, start):
    try:
        turns = read_transcript(start + text)
    except EvidenceError:
        return
    assert all(isinstance(turn.text, str) for turn in turns)
