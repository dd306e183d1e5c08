"""Names and values of queries and forms, compared with Python's own library."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.codecs.http import decode_percent, decode_query, encode_percent, encode_query

_PAIRS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
)


@pytest.mark.parametrize(
    "text", ["", "a=1", "a=1&a=2", "a=b+c%20d", "a", "a=%C3%BC", "a=%FF", "a=%zz", "a=b=c", "&&a=1&", "date=ge2026-11-18"]
)
def test_queries_are_read_as_the_library_reads_them(text: str) -> None:
    assert list(decode_query(text)) == parse_qsl(text, keep_blank_values=True)


@given(_PAIRS)
def test_written_queries_read_back(pairs: list[tuple[str, str]]) -> None:
    assert list(decode_query(encode_query(pairs))) == pairs
    assert parse_qsl(encode_query(pairs), keep_blank_values=True) == pairs


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_percent_encoding_is_that_of_the_library(text: str) -> None:
    assert encode_percent(text, "/") == quote(text)
    assert decode_percent(quote(text)) == text == unquote(encode_percent(text))
