from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import StoreError
from proctor.model.evidence import Evidence, ToolCall
from proctor.store.sql.compressed_json import compress_bytes, expand_bytes, pack, unpack

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
@pytest.mark.timeout(60)
def test_packed_values_read_back(value: object) -> None:
    assert unpack(pack(value)) == value


def test_a_struct_is_packed_as_its_json() -> None:
    evidence = Evidence(text="hi", tool_calls=(ToolCall(name="t", arguments={"a": "\ud800"}),))
    assert unpack(pack(evidence))["tool_calls"][0]["arguments"] == {"a": "\ud800"}


def test_repeating_text_takes_little_space() -> None:
    assert len(pack({"text": "the same again " * 1000})) < 500


def test_a_bomb_is_not_unpacked() -> None:
    bomb = compress_bytes(b" " * 2_000_000)
    assert len(bomb) < 20_000
    with pytest.raises(StoreError, match="larger than 1000000 bytes"):
        unpack(bomb, largest=1_000_000)
    assert len(expand_bytes(compress_bytes(b" " * 1_000_000), largest=1_000_000)) == 1_000_000


@pytest.mark.parametrize("body", [b"", b"not zlib", zlib.compress(b"{}")[:-3], zlib.compress(b"not json"), zlib.compress(b"[" * 100_000)])
def test_an_invalid_body_is_a_store_error(body: bytes) -> None:
    with pytest.raises(StoreError):
        unpack(body)


def test_large_numbers_are_stored_exactly() -> None:
    large = [3**50, -(3**60), 2**64]
    assert unpack(pack(large)) == large == json.loads(expand_bytes(pack(large)))
    assert {type(number) for number in unpack(pack(large))} == {int}
