"""The difference of two answers: exact, short where it can be, and never dear."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.actions.history.answers import MOST_CHARACTERS, DiffPiece, diff_words

TEXTS = st.text(alphabet="ab c.\n", max_size=60)


def write(pieces: tuple[DiffPiece, ...]) -> str:
    marks = {"same": "{}", "removed": "[-{}-]", "added": "[+{}+]", "left_out": "<{}>"}
    return "".join(marks[piece.kind].format(piece.text or piece.characters) for piece in pieces)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", ""),
        ("hello", "hello", "hello"),
        ("", "hello", "[+hello+]"),
        ("hello", "", "[-hello-]"),
        ("open from nine to five", "open from ten to five", "open from [-nine-][+ten+] to five"),
        ("it is now closed", "it was ever open", "it [-is now closed-][+was ever open+]"),
        ("a payment", "a repayment", "a [-payment-][+repayment+]"),
        ("the order", "the orders", "the [-order-][+orders+]"),
        ("one two three", "three", "[-one two -]three"),
        ("x" * 1000 + " nine", "x" * 1000 + " ten", f"<{1001 - 120}>{'x' * 119} [-nine-][+ten+]"),
    ],
)
def test_words_are_compared(before: str, after: str, expected: str) -> None:
    assert write(diff_words(before, after)) == expected


@given(TEXTS, TEXTS)
def test_both_texts_can_be_restored(before: str, after: str) -> None:
    pieces = diff_words(before, after)
    assert "".join(piece.text for piece in pieces if piece.kind != "added") == before
    assert "".join(piece.text for piece in pieces if piece.kind != "removed") == after


@given(st.text(alphabet="ab \n", max_size=40_000), st.text(alphabet="ab \n", max_size=400))
def test_no_character_is_omitted(before: str, after: str) -> None:
    pieces = diff_words(before, after)
    shown = sum(piece.characters * (2 if piece.kind == "same" else 1) for piece in pieces if piece.kind != "left_out")
    assert shown <= len(before) + len(after)
    if len(before) < MOST_CHARACTERS // 2 and not any(piece.kind == "left_out" for piece in pieces):
        assert shown == len(before) + len(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("word " * 2_000_000, "other " * 1_700_000),
        ("a" * 10_000_000, "b" * 10_000_000),
        ("a b " * 2_500_000, "b a " * 2_500_000),
        ("same " * 2_000_000 + "end", "same " * 2_000_000 + "fin"),
        ("\n" * 10_000_000, " " * 10_000_000),
    ],
    ids=["words", "one word", "turned", "only the end", "white"],
)
def test_an_answer_of_ten_megabytes_is_compared_in_a_moment(before: str, after: str) -> None:
    begun = time.process_time()
    pieces = diff_words(before, after)
    assert time.process_time() - begun < 2.5
    assert sum(len(piece.text) for piece in pieces) <= 2 * MOST_CHARACTERS + 2_000
