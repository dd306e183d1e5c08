"""The stored excerpt of very long texts has their length, their ends and the parts that verdicts are about."""

from __future__ import annotations

import msgspec
import pytest

from proctor.errors import StoreError
from proctor.model.evidence import Evidence, EvidenceTurn, ToolCall
from proctor.model.run import RunEntry
from proctor.model.verdict import TextRange, Verdict
from proctor.store.runs.entry_previews import LONG_TEXT, Ranges, make_shown, read_shown
from proctor.store.sql.compressed_json import compress_bytes

LONG = "".join(f'line {number}: "é"\n' for number in range(80_000))
SEEN = Evidence(
    input="say much",
    text=LONG,
    body={"deep": [{"said": LONG.upper()}, "short"]},
    turns=(EvidenceTurn(input="a", text=LONG[::-1]), EvidenceTurn(input="b", text="short")),
    tool_calls=(ToolCall(name="search", arguments={"q": "\x01b\x02" * 400_000}, result="found"),),
    duration_ms=12.5,
    metadata={"k": 10**40},
)
ENTRY = RunEntry(case="a", attempt=2, outcome="fail", score=0.0, verdicts=(Verdict("fail", 0.0, "why", None, {"d": [1]}),), evidence=SEEN)
RANGES: Ranges = ((TextRange("$.text", 500_000, 500_010), TextRange("$.text", 700_000, 900_000)),)


def make(entry: RunEntry, ranges: Ranges = RANGES) -> bytes:
    data = make_shown(entry, lambda _: ranges)
    assert data is not None
    return data


def list_texts(entry: RunEntry) -> list[str]:
    seen = entry.evidence
    assert seen is not None and seen.turns is not None and seen.tool_calls is not None
    return [str(seen.text), seen.body["deep"][0]["said"], str(seen.turns[0].text), seen.tool_calls[0].arguments["q"]]


def test_long_texts_keep_their_length_their_ends_and_what_verdicts_are_about() -> None:
    before = msgspec.json.encode(ENTRY)
    data = make(ENTRY)
    assert msgspec.json.encode(ENTRY) == before, "the attempt itself stays as it is"
    assert len(data) < 100_000
    found, ranges = read_shown(data)
    assert ranges == RANGES
    for text, shown in zip(list_texts(ENTRY), list_texts(found), strict=True):
        assert len(text) > LONG_TEXT and text != shown
        assert len(shown) == len(text) and len(msgspec.json.encode(shown).decode()) == len(msgspec.json.encode(text).decode())
        assert (shown[:6_000], shown[-6_000:]) == (text[:6_000], text[-6_000:])
        for edge in (500_000, 500_010, 700_000, 900_000):
            assert shown[edge - 200 : edge + 400] == text[edge - 200 : edge + 400]


def test_everything_else_is_as_it_was() -> None:
    found, _ = read_shown(make(ENTRY))
    seen = found.evidence
    assert seen is not None and seen.turns is not None and seen.tool_calls is not None
    calls = (msgspec.structs.replace(seen.tool_calls[0], arguments=SEEN.tool_calls[0].arguments if SEEN.tool_calls else {}),)
    turns = (msgspec.structs.replace(seen.turns[0], text=LONG[::-1]), seen.turns[1])
    whole = msgspec.structs.replace(seen, text=LONG, body=SEEN.body, turns=turns, tool_calls=calls)
    assert msgspec.structs.replace(found, evidence=whole) == ENTRY


def test_texts_that_differ_in_what_is_left_out_differ_still() -> None:
    texts = ["a" * 2_000_000, "a" * 1_000_000 + "b" + "a" * 999_999]
    found = [read_shown(make(RunEntry(case="a", outcome="pass", evidence=Evidence(text=text)), ((),))).entry for text in texts]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "entry",
    [
        RunEntry(case="a", outcome="error"),
        RunEntry(case="a", outcome="pass", evidence=Evidence(text="x" * LONG_TEXT)),
        RunEntry(case="a", outcome="pass", evidence=Evidence(text="x" * (LONG_TEXT + 1), body=[LONG[:900_000], LONG[:900_000]])),
    ],
    ids=["no evidence", "no long text", "too much other data"],
)
def test_an_attempt_of_which_little_would_be_left_out_has_none(entry: RunEntry) -> None:
    assert make_shown(entry, lambda _: ((),)) is None


@pytest.mark.parametrize("data", [b"?", compress_bytes(b"{}"), compress_bytes(b'[{"case":"a","outcome":"pass"},[[["text"],[["x"]]]],[]]')])
def test_damaged_excerpts_are_a_store_error(data: bytes) -> None:
    with pytest.raises(StoreError):
        read_shown(data)
