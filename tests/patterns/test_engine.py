"""Two engines with the same semantics, and their limits."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import CheckFault, SpecError
from proctor.patterns.engine import LONGEST_PATTERN, LONGEST_TEXT, PatternError, PatternMatch, compile_pattern
from tests.tables import rows

MONSTER = "(a+)+$"
PREY = "a" * 40 + "!"


@rows("patterns/cases/search.yaml")
def test_a_search_answers_as_ecmascript_does(row: dict[str, Any]) -> None:
    given = row["given"]
    found = compile_pattern(given["pattern"], given.get("flags", "")).search(given["text"])
    if row["expect"] is None:
        assert found is None
        return
    start, end, text, groups = row["expect"]
    assert found == PatternMatch(start, end, text, tuple(groups), row.get("named", {}))


@rows("patterns/cases/invalid.yaml")
def test_an_invalid_pattern_is_refused_with_its_place(row: dict[str, Any]) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(row["given"]["pattern"], row["given"].get("flags", ""))
    assert row["message"] in caught.value.message
    assert (caught.value.field, caught.value.offset) == ("pattern", row["offset"])
    assert row.get("hint", "") in (caught.value.hint or "")


def test_a_pattern_that_runs_away_is_stopped_and_the_next_search_works() -> None:
    began = time.process_time()
    with pytest.raises(CheckFault) as caught:
        compile_pattern(MONSTER).search(PREY)
    assert time.process_time() - began < 1
    assert caught.value.code == "regex_timeout"
    assert '"(a+)+$"' in caught.value.message
    found = compile_pattern(MONSTER).search("aaa")
    assert found is not None and found.text == "aaa"


def test_memory_that_runs_out_is_a_limit_and_the_next_search_works() -> None:
    with pytest.raises(CheckFault) as caught:
        compile_pattern("(?:(a)|(b)|(c)|(d)|(e)|(?=f)f)*z").search("abcde" * 150_000)
    assert caught.value.code in ("regex_limit", "regex_timeout")
    assert compile_pattern("(?:(a)|(b)|(?=f)f)*z").search("abz") is not None


def test_running_out_of_memory_names_the_pattern() -> None:
    with pytest.raises(CheckFault) as caught:
        compile_pattern("^(?:(?=a)a|b)*c").search("ab" * 490_000)
    assert caught.value.code == "regex_limit"
    assert "memory" in caught.value.message and "(?=a)" in caught.value.message


def test_patterns_and_texts_have_a_longest_length() -> None:
    compile_pattern("a" * LONGEST_PATTERN)
    with pytest.raises(PatternError, match="at most 10000"):
        compile_pattern("a" * (LONGEST_PATTERN + 1))
    with pytest.raises(CheckFault) as caught:
        compile_pattern("a").search("b" * (LONGEST_TEXT + 1))
    assert caught.value.code == "regex_limit"


def test_a_deeply_nested_pattern_is_an_error_and_no_crash() -> None:
    for opening, closing in (("(?:", ")"), ("(?=", ")"), ("(?:a|", ")*")):
        count = (LONGEST_PATTERN - 10) // len(opening + closing)
        with pytest.raises(PatternError):
            compile_pattern(opening * count + closing * count)


def test_costly_classes_compile_in_time() -> None:
    began = time.process_time()
    compile_pattern("[^\\u0000-\\uffff\\s\\W]" * 400, "iu")
    assert time.process_time() - began < 2


def test_halves_of_surrogate_pairs_do_not_crash() -> None:
    assert compile_pattern("x").search("\ud800x") == PatternMatch(1, 2, "x", (), {})
    assert compile_pattern("\ud800").search("a\ud800") == PatternMatch(1, 2, "\ud800", (), {})
    assert compile_pattern(".", "u").search("\udc00") is not None
    # Two halves side by side are one character to ECMAScript, and two to Python.
    assert compile_pattern("^.$", "u").search("\ud83d\ude00") == PatternMatch(0, 2, "\ud83d\ude00", (), {})


def test_threads_search_side_by_side() -> None:
    answers: list[object] = []

    def work() -> None:
        pattern = compile_pattern("(?=b)b(c)")
        answers.extend(pattern.search("abc") for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [PatternMatch(1, 3, "bc", ("c",), {})] * 200


def test_many_patterns_in_one_thread_stay_correct() -> None:
    for number in range(900):
        assert compile_pattern(f"(?=x)x{number}$").search(f"x{number}") is not None


@given(st.text(max_size=30), st.sampled_from(["", "i", "m", "s", "u", "imsu", "g"]))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_pattern_or_a_spec_error(source: str, flags: str) -> None:
    try:
        pattern = compile_pattern(source, flags)
    except SpecError as error:
        assert error.offset is None or 0 <= error.offset <= len(source)
        return
    found = pattern.search("some text, 1 emoji 😀")
    assert found is None or found.start <= found.end


@given(st.text(alphabet="()[]{}|*+?\\^$.abk1-,:<=!idn", max_size=25), st.text(max_size=15))
@settings(max_examples=200, deadline=None)
def test_pattern_like_text_is_a_pattern_or_a_spec_error(source: str, text: str) -> None:
    try:
        found = compile_pattern(source).search(text)
    except (SpecError, CheckFault):
        return
    assert found is None or found.text == text[found.start : found.end]
