"""Rows that cannot be read: whose spans they were, where their ids can be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from proctor.sources.datasets.columns import read_lost_traces, read_trace_ids

RAW = bytes(range(0x80, 0x90))


@pytest.mark.parametrize(
    ("ids", "kind", "expected"),
    [
        (["a1", "b2"], pa.string(), {"a1", "b2"}),
        (["a1", None], pa.string(), None),
        (["0AF7651916CD43DD8448EB211C80319C"], pa.string(), {"0af7651916cd43dd8448eb211c80319c"}),
        (["a1", ""], pa.string(), None),
        ([RAW, RAW], pa.binary(16), {RAW.hex()}),
        ([RAW.hex().encode()], pa.binary(), {RAW.hex()}),
        ([b"0123456789abcdef"], pa.binary(), {"0123456789abcdef"}),
        ([b"\xff\xfe"], pa.binary(), None),
    ],
)
def test_ids_of_lost_rows_are_spelt_like_those_of_readable_rows(ids: list[Any], kind: Any, expected: set[str] | None) -> None:
    assert read_trace_ids(pa.table({"trace_id": pa.array(ids, kind)})) == expected


def test_non_utf8_ids_belong_to_no_trace() -> None:
    assert read_trace_ids(pa.table({"trace_id": pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())})) is None


class _Broken:
    schema_arrow = pa.schema([("trace_id", pa.string())])

    def __init__(self, error: Exception) -> None:
        self._error = error

    def read_row_group(self, group: int, **options: object) -> pa.Table:
        raise self._error


@pytest.mark.parametrize("error", [OSError("gone"), pa.ArrowInvalid("no page"), NotImplementedError("an encoding of tomorrow")])
def test_an_unreadable_id_column_gives_no_ids(error: Exception) -> None:
    assert read_lost_traces(_Broken(error), 0, 0) is None
