"""Text with the characters marked that verdicts are about."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.actions.checking.check import check, read_evidence
from proctor.actions.workspace.suites import parse_suite
from proctor.model.evidence import Json
from proctor.model.run import RunEntry
from proctor.report.blocks.marked_text import Mark, Piece, select_marks, write_marked_text, write_marked_value
from proctor.report.html.case import write_attempt
from tests.tables import rows


def join(pieces: list[Piece]) -> str:
    return "".join(piece if isinstance(piece, str) else piece["text"] for piece in pieces)


def list_marked(pieces: list[Piece]) -> list[tuple[str, list[int], str]]:
    return [(piece["text"], piece["of"], piece["kind"]) for piece in pieces if not isinstance(piece, str)]


@rows("report/cases/marked_text.yaml")
def test_marks_stand_where_they_belong(row: dict[str, Any]) -> None:
    marks = {path: [Mark(*mark) for mark in here] for path, here in row["marks"].items()}
    pieces = write_marked_value(row["value"], marks, row.get("limit", 6000))
    assert list_marked(pieces) == [tuple(mark) for mark in row["expect"]]
    assert row.get("shown", "") in join(pieces)


@given(
    st.text('ab \n\t\u202e"\\{', max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4), st.integers(5, 50)
)
def test_marks_change_nothing_of_what_is_read(text: str, places: list[tuple[int, int]], limit: int) -> None:
    marks = [Mark(min(place), min(len(text), max(place)), number, False) for number, place in enumerate(places, 1)]
    pieces = write_marked_text(text, [mark for mark in marks if mark.start < mark.end], limit)
    assert "\ufdd0" not in join(pieces) and "\u202e" not in join(pieces)
    if len(text) <= limit and "\t" not in text:
        assert "".join(join(pieces).split()) == "".join(text.replace("\u202e", "\\u202e").split())


def test_ten_megabytes_are_cut_around_what_is_marked() -> None:
    text = "x" * 5_000_000 + " forbidden " + "y" * 5_000_000
    pieces = write_marked_text(text, [Mark(5_000_001, 5_000_010, 1, True)])
    assert list_marked(pieces) == [("forbidden", [1], "fail")]
    assert len(join(pieces)) < 7000 and "more)…" in join(pieces)


def test_a_whole_text_of_ten_megabytes_may_be_marked() -> None:
    pieces = write_marked_text("x" * 10_000_000, [Mark(0, 10_000_000, 1, False)])
    assert len(join(pieces)) < 7000 and {tuple(of) for _, of, _ in list_marked(pieces)} == {(1,)}


def test_marks_below_a_place_apply_from_there_on() -> None:
    one = Mark(0, 1, 1, False)
    found = select_marks({"$.tool_calls[1].arguments.q": [one], "$.tool_calls[10].arguments.q": [one]}, ["$.tool_calls[1].arguments"])
    assert found == {".q": [one]}


SUITE = """\
proctor: 1
name: s
cases:
  - id: a
    turns:
      - {input: hi, expect: [response_contains: hello]}
      - {input: "and?"}
    expect:
      - response_not_contains: secret
      - tool_called: {name: search, arguments: {q: {$contains: shoe}}}
      - response_contains: nowhere
"""


def test_an_attempt_names_its_marks_and_their_assertions() -> None:
    evidence = read_evidence(
        {
            "turns": [
                {"input": "hi", "text": "Hello!", "tool_calls": [{"name": "search", "arguments": {"n": 1, "q": "red shoes"}}]},
                {"input": "and?", "text": "the secret </script>", "tool_calls": []},
            ]
        }
    )
    result = check(parse_suite(SUITE), evidence).cases[0]
    entry = RunEntry(case="a", outcome=result.outcome, evidence=evidence)
    document = msgspec.to_builtins(write_attempt(result, entry, with_evidence=True))
    marked = [(step["kind"], piece) for step in document["timeline"] for pieces in step.get("marked", {}).values() for piece in pieces]
    assert [(kind, piece["text"], piece["first"], piece["kind"]) for kind, piece in marked if not isinstance(piece, str)] == [
        ("call", "shoe", [3], "pass"),
        ("agent", "Hello", [1], "pass"),
        ("agent", "secret", [2], "fail"),
    ]
    assert [one.get("marked", False) for one in document["assertions"]] == [True, True, True, False]


def _nest(value: Json, levels: int) -> Json:
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", ["\ufdd0", {"\ufdd0": 1}, {"k": ["\ufdd0\ufdd0"]}], ids=["text", "key", "list"])
def test_a_boundary_that_lies_deeper_than_marks_is_shown(value: Json) -> None:
    pieces = write_marked_value({"deep": _nest(value, 70), "a": "marked"}, {".a": [Mark(0, 3, 1, True)]}, 100_000)
    assert "\\ufdd0" in join(pieces) and "marked" in join(pieces)


def test_a_mark_next_to_a_lone_surrogate_is_shown() -> None:
    pieces = write_marked_value({"a": "cut \ud83d here", "\udc00": "x"}, {".a": [Mark(0, 3, 1, True), Mark(4, 5, 2, False)]})
    assert {"text": "cut", "of": [1], "kind": "fail"} in pieces
    assert any(isinstance(piece, dict) and piece["of"] == [2] and "ud83d" in str(piece["text"]) for piece in pieces)
    join(pieces).encode()


def test_names_that_are_numbers_are_shown() -> None:
    assert join(write_marked_value({"a": {7: "x"}}, {".a": []})) == '{"a":{"7":"x"}}'  # pyright: ignore[reportArgumentType]
