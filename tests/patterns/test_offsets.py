"""Positions between Python, UTF-16 and UTF-8."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proctor.patterns.faults import from_utf8, from_utf16, has_surrogates, is_within_basic_plane, measure_utf16_length

TEXTS = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from("aé😀𝒳")), max_size=12)


@given(TEXTS, st.data())
def test_whole_characters_keep_their_place(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    before, inside = text[:start], text[start:end]
    units = len(before.encode("utf-16-le")) // 2
    assert from_utf16(text)(units, units + len(inside.encode("utf-16-le")) // 2) == (start, end)
    octets = len(before.encode())
    assert from_utf8(text)(octets, octets + len(inside.encode())) == (start, end)
    assert measure_utf16_length(text) == len(text.encode("utf-16-le")) // 2


def test_half_a_character_becomes_the_whole() -> None:
    span = from_utf16("a😀b")
    assert span(1, 2) == (1, 2)
    assert span(2, 3) == (1, 2)
    assert span(2, 4) == (1, 3)
    assert span(2, 2) == (1, 1)
    assert span(3, 3) == (2, 2)


def test_surrogates_and_the_basic_plane_are_detected() -> None:
    assert has_surrogates("\ud800") and not has_surrogates("é😀") and not has_surrogates("abc")
    assert is_within_basic_plane("é") and not is_within_basic_plane("😀") and not is_within_basic_plane("\ud800")
