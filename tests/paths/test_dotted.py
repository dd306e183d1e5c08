"""Dot paths."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proctor.model.json_values import MISSING
from proctor.paths.dotted import find_dotted
from tests.tables import rows

DOCUMENT = {"items": [{"sku": "A1", "tags": []}, {"sku": None}], "0": "zero", "a": {"": 1, "b c": 2, "01": 3}, "n": 5, "s": "text"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@rows("paths/cases/dotted.yaml")
def test_a_dot_path_finds_what_is_there(row: dict[str, Any]) -> None:
    found = find_dotted(DOCUMENT, row["path"])
    if row.get("missing"):
        assert found is MISSING
    else:
        assert found == row["expect"] and found is not MISSING


@given(JSON, st.text(alphabet="ab.01-٠", max_size=10) | st.text(max_size=10))
def test_no_path_and_no_document_raises(document: Any, path: str) -> None:
    find_dotted(document, path)


@given(JSON)
def test_every_leaf_is_found_under_its_own_path(document: Any) -> None:
    pending: list[tuple[Any, list[str]]] = [(document, [])]
    while pending:
        value, path = pending.pop()
        if path and not any("." in part for part in path):
            assert find_dotted(document, ".".join(path)) is value
        if isinstance(value, dict):
            pending.extend((child, [*path, key]) for key, child in value.items())
        elif isinstance(value, list):
            pending.extend((child, [*path, str(place)]) for place, child in enumerate(value))
