"""The fuzzers detect a bug, an endless example, and one that takes too much time or memory."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.fuzz import bounds
from tests.fuzz.bounds import examine_all
from tests.fuzz.mutating import Mutator
from tests.fuzz.seeds import DIALECTS, recordings, suites

GOOD = [{"a": [1, {"b": "text"}], "c": None}]


def divide(example: Any) -> None:
    _ = 1 / example


def swallow(example: Any) -> None:
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


def compute(example: Any) -> None:
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass


def hold(example: Any) -> None:
    # More than malloc takes from its heap (32 MB), which may be resident already.
    _ = bytearray(example)


@pytest.mark.parametrize(
    ("use", "examples", "message"),
    [
        (divide, [1, 0, 0], "1 kinds of failure\nZeroDivisionError"),
        (swallow, [1], "does not end"),
        (compute, [1], "too slow"),
        (hold, [1, 60_000_000], "too large"),
    ],
)
def test_a_failure_is_reported_with_its_first_example(use: Any, examples: list[Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CPU_S", 0.15)
    monkeypatch.setattr(bounds, "MEMORY_BYTES", 20_000_000)
    with pytest.raises(AssertionError) as caught:
        examine_all(examples, use)
    assert message.partition("\n")[2] in str(caught.value) and message.partition("\n")[0] in str(caught.value)
    assert "of seed" in str(caught.value)


def test_harmless_examples_are_not_reported() -> None:
    examine_all([1, 2], divide)


def test_the_same_seed_makes_the_same_examples_and_changes_no_good_document() -> None:
    before = repr(GOOD)
    one, two, other = ([repr(mutator.document()) for _ in range(200)] for mutator in (Mutator(1, GOOD), Mutator(1, GOOD), Mutator(2, GOOD)))
    assert one == two != other and len(set(one)) > 100
    assert repr(GOOD) == before


@pytest.mark.timeout(60)
def test_there_are_good_suites_of_every_dialect_and_many_recordings() -> None:
    assert {dialect: len(suites(dialect)) >= 10 for dialect in DIALECTS} == dict.fromkeys(DIALECTS, True)
    assert len(recordings()) > 100
