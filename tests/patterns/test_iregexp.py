"""I-Regexp, whole and in part."""

from __future__ import annotations

from typing import Any

import iregexp_check
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.patterns.engine import LONGEST_PATTERN
from proctor.patterns.iregexp import compile_iregexp
from tests.tables import rows


@rows("patterns/cases/iregexp.yaml")
def test_iregexp_follows_rfc_9485(row: dict[str, Any]) -> None:
    for whole, expected in ((True, row["match"]), (False, row["search"])):
        pattern = compile_iregexp(row["pattern"], whole=whole)
        assert (pattern is None) == (expected is None)
        if pattern is not None:
            assert (pattern.search(row["text"]) is not None) == expected


@given(st.text(alphabet="ab01()[]{},|*+?.^$-\\pLnd\u2028é", max_size=12))
@settings(max_examples=300, deadline=None)
def test_we_accept_nothing_that_an_independent_checker_refuses(source: str) -> None:
    ours = compile_iregexp(source, whole=True) is not None
    # The checker judges the grammar alone; bounds and ranges in disorder are in the grammar and match nothing.
    assert not ours or iregexp_check.check(source)


def test_too_long_and_too_deep_match_nothing() -> None:
    assert compile_iregexp("a" * LONGEST_PATTERN, whole=True) is None
    assert compile_iregexp("(" * 3_000 + ")" * 3_000, whole=True) is None
    assert compile_iregexp("\ud800", whole=True) is None
