"""The language of `--where`: what it reads, what it decides, and that pyarrow decides the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import EvidenceError, InputError
from proctor.sources.datasets.row_filter import (
    Both,
    Compare,
    Condition,
    Either,
    IsNull,
    Not,
    decide_row,
    find_member,
    list_names,
    may_hold,
    read_filter,
)
from proctor.sources.datasets.rows import GroupFilter, drop_lines, make_expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agent = 'shop'", Compare("agent", "=", "shop")),
        ("a.b-c == 'it''s'", Compare("a.b-c", "=", "it's")),
        ('"odd name" <> 3', Compare("odd name", "!=", 3)),
        ("x >= -1.5e3 AND y IS NULL", Both((Compare("x", ">=", -1500.0), IsNull("y")))),
        ("not a = true or b is not null", Either((Not(Compare("a", "=", True)), Not(IsNull("b"))))),
        (
            "a in (1, 2) and (b < 3 or c > 4)",
            Both((Either((Compare("a", "=", 1), Compare("a", "=", 2))), Either((Compare("b", "<", 3), Compare("c", ">", 4))))),
        ),
        ("a not in ('x')", Not(Either((Compare("a", "=", "x"),)))),
    ],
)
def test_conditions_are_read(text: str, expected: Condition) -> None:
    assert read_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  ", "the condition is empty"),
        ("agent", "character 6: expected a comparison after 'agent'"),
        ("agent = shop", "character 9: expected a value, found shop; write a text in single quotes"),
        ("agent = null", "write `is null`"),
        ("agent = 'a' tier = 'b'", "character 13: expected `and` or `or`, found 'tier'"),
        ("(a = 1", r"expected '\)'"),
        ("a not 3", "expected `in` after `not`"),
        ("a is 3", "expected `null`"),
        ("a = 'x", "single quotes"),
        ("a in ()", "expected a value"),
        ("= 3", "expected the name of a column"),
        ("a = 1; drop", "single quotes"),
        ("(" * 60 + "a = 1" + ")" * 60, "more than 50 brackets"),
        ("a = 1 or " * 2000 + "a = 1", "longer than 10,000"),
    ],
)
def test_an_invalid_condition_is_reported_at_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_filter(text)


def test_names_go_into_objects() -> None:
    assert find_member({"a": {"b": {"c": 1}}, "a.x": 2}, "a.b.c") == 1 and find_member({"a.x": 2}, "a.x") == 2
    assert find_member({"a": 3}, "a.b") is None and find_member([1], "a") is None
    assert list(list_names(read_filter("a = 1 and (b = 2 or not a is null)"))) == ["a", "b"]


def test_the_keys_of_folders_rule_files_out() -> None:
    where = read_filter("day >= '2026-10-02' and (agent = 'shop' or hour = 3)")
    assert not may_hold(where, {"day": "2026-10-01"}) and may_hold(where, {"day": "2026-10-02"}) and may_hold(where, {})
    assert not may_hold(where, {"day": "2026-10-03", "agent": "desk", "hour": "4"}) and may_hold(where, {"hour": "03"})
    assert may_hold(read_filter("not (day = '1' and agent = 'x')"), {"day": "1"}) and may_hold(read_filter("agent is null"), {"day": "1"})


LARGE = 2**53 + 1
"""As a float this is another number: 2**53."""


def test_the_numbers_of_folders_are_compared_digit_by_digit() -> None:
    assert may_hold(read_filter(f"user = {LARGE}"), {"user": str(LARGE)})
    assert not may_hold(read_filter(f"user = {LARGE}"), {"user": str(LARGE - 1)})
    assert may_hold(read_filter("user = 1234567890123456789"), {"user": "1234567890123456789"})
    assert not may_hold(read_filter("user = 1234567890123456789"), {"user": "1234567890123456788"})
    assert may_hold(read_filter("hour = 3"), {"hour": "3.0"}) and may_hold(read_filter("share < 0.5"), {"share": "1e-3"})


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1_0", " 1", "٣", "1e999", "9" * 5000, ""])
def test_a_folder_name_that_is_almost_a_number_is_no_number(text: str) -> None:
    for sign in ("=", "!=", "<", ">"):
        assert decide_row(read_filter(f"key {sign} 10"), {"key": text}.get) is None


@pytest.mark.parametrize("line", [b'\xef\xbb\xbf{"agent": "desk"}', b'{"agent": "desk", "said": "cut \\ud83d"}'])
def test_a_line_that_does_not_match_is_left_out(line: bytes) -> None:
    assert drop_lines([line], read_filter("agent = 'shop'"), "a.jsonl") == [b""]
    assert drop_lines([line], read_filter("agent = 'desk'"), "a.jsonl") == [line]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.sampled_from(["a", "b", "ü", "", None]),
            "whole": st.sampled_from([-1, 0, 1, 5, None]),
            "share": st.sampled_from([0.5, 1.0, -2.0, None]),
            "sure": st.sampled_from([True, False, None]),
        }
    ),
    min_size=1,
    max_size=12,
)
LEAVES = st.one_of(
    st.builds(Compare, st.just("text"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.sampled_from(["a", "b", "ü"])),
    st.builds(Compare, st.sampled_from(["whole", "share"]), st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from([0, 1, 0.5])),
    st.builds(Compare, st.just("sure"), st.just("="), st.booleans()),
    st.builds(IsNull, st.sampled_from(["text", "whole", "share", "sure"])),
    st.builds(Compare, st.just("day"), st.sampled_from(["=", "<"]), st.sampled_from(["2026-10-01", "2026-10-02"])),
)
PARTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Both(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Either(tuple(parts))),
    ),
    max_leaves=6,
)


@given(rows=ROWS, where=PARTS)
def test_pyarrow_decides_every_row_as_we_do(rows: list[dict[str, Any]], where: Condition) -> None:
    schema = pa.schema([("text", pa.string()), ("whole", pa.int64()), ("share", pa.float64()), ("sure", pa.bool_())])
    table = pa.Table.from_pylist(rows, schema=schema)
    keys = {"day": "2026-10-01"}
    expected = [row for row in rows if decide_row(where, {**row, **keys}.get) is True]
    assert table.filter(make_expression(where, schema, keys)).to_pylist() == expected


NUMBERS = {
    pa.int64(): [-1, 0, 1, LARGE, LARGE - 1, 2**63 - 1, -(2**63), None],
    pa.uint64(): [0, 1, LARGE, 2**63, 2**64 - 1, None],
    pa.int8(): [-128, 0, 127, None],
    pa.float64(): [0.0, 0.5, -2.0, 2.0**53, 2.0**53 + 2, 2.0**63, 1e300, None],
}


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_pyarrow_compares_every_number_as_we_do(kind: Any) -> None:
    table = pa.table({"n": pa.array(NUMBERS[kind], kind)})
    for value in (0, 1, -129, 0.5, -0.5, 128, LARGE, -LARGE, float(LARGE), 2**63 - 1, 2**64 - 1, 2.0**64, -1e300, float("inf")):
        for sign in ("=", "!=", "<", "<=", ">", ">="):
            where = Compare("n", sign, value)
            expected = [number for number in NUMBERS[kind] if decide_row(where, {"n": number}.get) is True]
            assert table.filter(make_expression(where, table.schema, {})).column("n").to_pylist() == expected, where


def test_a_moment_in_nanoseconds_chooses_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"start": pa.array([1760000000000000001 + number for number in range(4)], pa.int64())}), path, row_group_size=2)
    for text, expected in (("start > 1760000000000000002", [0, 2]), ("start = 1760000000000000001", [1, 0]), ("start > 1.5", [2, 2])):
        with pa.OSFile(str(path), "rb") as source:
            chosen = GroupFilter(source, pq.read_schema(path), read_filter(text), str(path))
            assert [0 if (keep := chosen.find_rows(group)) is None else keep.true_count for group in range(2)] == expected


def write_table(path: Path) -> Path:
    times = pa.array([f"2026-10-0{1 + number // 10} 08:00:00" for number in range(30)]).cast(pa.timestamp("us"))
    table = pa.table(
        {
            "at": times,
            "zoned": times.cast(pa.timestamp("us", "UTC")),
            "date": times.cast(pa.date32()),
            "kind": pa.array(["x", "y", None] * 10).dictionary_encode(),
            "inner": pa.array([{"n": number} for number in range(30)]),
            "share": pa.array([0.5] * 30),
        }
    )
    pq.write_table(table, path, row_group_size=10)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at >= '2026-10-02'", [0, 10, 10]),
        ("at >= '2026-10-02T10:00:00+02:00'", [0, 10, 10]),
        ("zoned < '2026-10-02'", [10, 0, 0]),
        ("zoned < '2026-10-02T08:00:01Z'", [10, 10, 0]),
        ("date = '2026-10-03'", [0, 0, 10]),
        ("kind = 'x'", [4, 3, 3]),
        ("kind != 'x'", [3, 4, 3]),
        ("not kind in ('x')", [3, 4, 3]),
        ("kind is null", [3, 3, 4]),
        ("inner.n between", None),
        ("inner.n >= 25 and share > 0", [0, 0, 5]),
        ("folder = 'f' and inner.n < 3", [3, 0, 0]),
    ],
)
def test_row_groups_are_left_out_and_rows_chosen(text: str, expected: list[int] | None, tmp_path: Path) -> None:
    if expected is None:
        with pytest.raises(InputError):
            read_filter(text)
        return
    (tmp_path / "folder=f").mkdir()
    path = write_table(tmp_path / "folder=f" / "a.parquet")
    schema = pq.read_schema(path)
    with pa.OSFile(str(path), "rb") as source:
        chosen = GroupFilter(source, schema, read_filter(text), str(path))
        found = [chosen.find_rows(group) for group in range(3)]
    assert [0 if keep is None else keep.true_count for keep in found] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("knd = 'x'", "no column 'knd'; nearest: 'kind'"),
        ("inner.m = 3", "no column 'inner.m'"),
        ("kind.x = 3", "no column 'kind.x'"),
        ("at = 'soon'", "timestamp.*'soon' is none"),
        ("share = 'half'", "double, which cannot be compared with the text 'half'"),
        ("kind = 3", "string, which cannot be compared with the number 3"),
        ("share = true", "cannot be compared with the value True"),
    ],
)
def test_a_missing_column_or_wrong_type_is_reported(text: str, message: str, tmp_path: Path) -> None:
    schema = pq.read_schema(write_table(tmp_path / "a.parquet"))
    with pytest.raises(EvidenceError, match=message):
        make_expression(read_filter(text), schema, {})
