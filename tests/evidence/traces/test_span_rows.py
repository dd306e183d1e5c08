"""Spans as rows of a tree, whatever they say of their parents."""

from __future__ import annotations

import pytest

from proctor.evidence.otlp.spans import Span, merge_spans
from proctor.evidence.traces.rows import list_span_rows, merge_tree_spans, take_for_tree


def make(*pairs: tuple[str, str | None]) -> list[Span]:
    return [Span(id=id, parent_id=parent, start_ns=number + 1, end_ns=number + 2) for number, (id, parent) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("spans", "rows"),
    [
        ([], []),
        ([("a", None)], [("a", 0, 0)]),
        ([("a", None), ("b", "a"), ("c", "b"), ("d", "a")], [("a", 0, 3), ("b", 1, 1), ("c", 2, 0), ("d", 1, 0)]),
        ([("b", "a"), ("a", None)], [("a", 0, 1), ("b", 1, 0)]),
        ([("a", "gone"), ("b", "a")], [("a", 0, 1), ("b", 1, 0)]),
        ([("a", "a")], [("a", 0, 0)]),
        ([("a", "b"), ("b", "a")], [("a", 0, 1), ("b", 1, 0)]),
        ([("r", None), ("a", "c"), ("b", "a"), ("c", "b")], [("r", 0, 0), ("a", 0, 2), ("b", 1, 1), ("c", 2, 0)]),
    ],
    ids=["none", "one", "a tree", "the child came first", "a parent that is gone", "its own parent", "a circle", "a circle and a root"],
)
def test_every_span_is_one_row(spans: list[tuple[str, str | None]], rows: list[tuple[str, int, int]]) -> None:
    assert [(row.id, row.depth, row.below) for row in list_span_rows(make(*spans))] == rows


def test_a_chain_of_many_spans_needs_no_recursion() -> None:
    rows = list_span_rows(make(*((str(number), str(number - 1) if number else None) for number in range(20_000))))
    assert rows[-1].depth == 19_999 and rows[0].below == 19_999


def test_untimed_spans_have_an_unknown_duration() -> None:
    (row,) = list_span_rows([Span(id="a")])
    assert row.took_ms is None
    (row,) = list_span_rows([Span(id="a", start_ns=5_000_000, end_ns=4_000_000)])
    assert row.took_ms is None


def test_spans_of_a_tree_are_merged_as_whole_spans_are() -> None:
    batches = [
        [
            Span(trace_id="t", id="a", name="first", start_ns=3, attributes={"x": 1, "y": 1}, message="m"),
            Span(trace_id="u", id="a", name="of another trace"),
        ],
        [Span(trace_id="t", id="b", parent_id="a", start_ns=2), Span(trace_id="t", id="a", parent_id="b", end_ns=9, failed=True)],
        [Span(trace_id="t", id="a", name="last", attributes={"y": 2})],
    ]
    whole = [take_for_tree(span) for spans in merge_spans(batches).values() for span in spans]
    assert merge_tree_spans([[take_for_tree(span) for span in batch] for batch in batches]) == whole
    assert (whole[0].name, whole[0].attributes, whole[0].failed, whole[0].parent_id) == ("last", {"x": 1, "y": 2}, True, "b")


def test_the_earlier_one_comes_first_and_those_without_a_time_last() -> None:
    spans = [
        Span(id="r", start_ns=1),
        *(Span(id=id, parent_id="r", start_ns=at) for id, at in (("late", 9), ("none", 0), ("early", 2), ("same", 2))),
    ]
    assert [row.id for row in list_span_rows(spans)] == ["r", "early", "same", "late", "none"]
