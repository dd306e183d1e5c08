"""Slices of a batch: by day, by columns, by metadata; merged from partitions, bounded, and carried over with their cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.batches.sketch import MOST_SLICES, Sketch, count_most_slices
from proctor.batches.slicer import Slicer, read_groupings
from proctor.batches.summary import list_slices
from proctor.errors import InputError
from proctor.model.batch import BatchSummary
from proctor.model.evidence import Evidence
from tests.batches.batch_world import evaluate, make_trace, write_lines, write_parquet, write_suite

pytestmark = pytest.mark.timeout(60)
DECODER = msgspec.json.Decoder(Sketch)


def count_slices(summary: BatchSummary, number: int = 0) -> dict[tuple[str | None, ...], tuple[int, int, int]]:
    """Of each slice: traces, results that passed, results that were decided."""
    return {one.values: (one.traces, one.rate.passed, one.rate.decided) for one in summary.slices[number].slices}


def make_day(day: int, number: int, **more: Any) -> dict[str, Any]:
    return make_trace(number, now=f"2026-10-{day:02}T09:00:00Z", **more)


def test_every_batch_has_a_trend_by_the_day_of_its_traces(tmp_path: Path) -> None:
    records = [make_day(1, number) for number in range(10)] + [make_day(2, number + 1) for number in range(4)] + [make_trace(1)]
    write_lines(tmp_path / "data" / "a.jsonl", records)
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")
    days = [(day.values, day.traces, day.cases["refund"].passed, day.cases["refund"].decided) for day in summary.days]
    assert days == [(("2026-10-01",), 10, 8, 10), (("2026-10-02",), 4, 4, 4), ((None,), 1, 1, 1)]
    latency = summary.days[0].amounts.latency
    assert latency is not None and (latency.traces, latency.p50) == (10, pytest.approx(104, rel=0.01))


def test_a_trend_needs_a_day(tmp_path: Path) -> None:
    write_lines(tmp_path / "data" / "a.jsonl", [make_trace(1)])
    assert evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")[0].days == ()


def test_a_day_folder_gives_the_day(tmp_path: Path) -> None:
    for key in ("day", "dt"):
        write_parquet(tmp_path / key / f"{key}=2026-10-03" / "a.parquet", [make_trace(1)])
        summary, _ = evaluate(write_suite(tmp_path), [tmp_path / key], tmp_path / f"out-{key}")
        assert [day.values for day in summary.days] == [("2026-10-03",)]


def test_slices_are_made_by_columns_folders_models_and_metadata(tmp_path: Path) -> None:
    records = [
        make_trace(number, model=("small", "large")[number % 2], metadata={"tier": "gold", "user": {"age": number}}) for number in range(10)
    ]
    table = pa.table({"record": [json.dumps(record) for record in records], "agent": ["shop"] * 6 + ["desk"] * 3 + [None]})
    place = tmp_path / "data" / "region=eu%20west"
    place.mkdir(parents=True)
    pq.write_table(table, place / "a.parquet", row_group_size=3)
    by = read_groupings(["model", "agent", "tier", "region,model", "user.age", "nobody"])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", by=by, partition_bytes=1)
    assert [one.by for one in summary.slices] == list(by)
    assert {values: counts[0] for values, counts in count_slices(summary, 0).items()} == {("large",): 5, ("small",): 5}
    assert {values: counts[0] for values, counts in count_slices(summary, 1).items()} == {("desk",): 3, ("shop",): 6, (None,): 1}
    # Numbers 0 and 5 fail one of their two cases.
    assert count_slices(summary, 2) == {("gold",): (10, 18, 20)}
    assert count_slices(summary, 3) == {("eu west", "large"): (5, 9, 10), ("eu west", "small"): (5, 9, 10)}
    assert len(count_slices(summary, 4)) == 10 and count_slices(summary, 5) == {(None,): (10, 18, 20)}


def test_keys_of_json_lines_are_columns_too(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{**make_trace(number), "agent": f"a{number % 2}"} for number in range(4)] + ["{"])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out", by=(("agent",),))
    assert {values: counts[0] for values, counts in count_slices(summary).items()} == {("a0",): 2, ("a1",): 2}


def test_costs_and_tokens_have_percentiles_and_a_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text("prices: {small: {input: 1, output: 2, currency: EUR}}\n")
    records = [make_trace(1, model="small", usage={"input_tokens": 1_000_000 * number, "output_tokens": 0}) for number in range(1, 5)]
    write_lines(tmp_path / "a.jsonl", [*records, make_trace(1, model="unknown")])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out", by=(("model",),))
    (cost,) = summary.amounts.cost
    assert (cost.currency, cost.total, cost.each.traces, cost.each.p50) == ("EUR", 10.0, 4, pytest.approx(2, rel=0.01))
    assert summary.amounts.tokens is not None and summary.amounts.tokens.p99 == pytest.approx(4_000_000, rel=0.01)
    assert [one.amounts.cost != () for one in summary.slices[0].slices] == [True, False]


def test_a_changed_case_is_sliced_again_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text("prices: {small: {input: 1, output: 2, currency: EUR}}\n")
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    write_lines(tmp_path / "a.jsonl", [make_day(1 + number % 2, number, model="small", usage=usage) for number in range(20)])
    by = {"by": (("model", "day"),)}
    evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out", **by)
    changed, _ = evaluate(write_suite(tmp_path, word="nowhere"), [tmp_path / "a.jsonl"], tmp_path / "out", **by)
    fresh, _ = evaluate(write_suite(tmp_path, word="nowhere"), [tmp_path / "a.jsonl"], tmp_path / "anew", **by)
    assert (changed.slices, changed.days, changed.amounts) == (fresh.slices, fresh.days, fresh.amounts)
    assert count_slices(changed) == {("small", "2026-10-01"): (10, 8, 20), ("small", "2026-10-02"): (10, 8, 20)}
    fewer = (tmp_path / "suite.yaml").read_text().split("  - id: short")[0]
    one_case, _ = evaluate(write_suite(tmp_path, text=fewer), [tmp_path / "a.jsonl"], tmp_path / "out", **by)
    assert one_case.amounts == fresh.amounts and count_slices(one_case)["small", "2026-10-01"] == (10, 8, 10)


@settings(max_examples=40)
@given(
    traces=st.lists(st.tuples(st.sampled_from(["a", "b", None, "\ud800"]), st.integers(0, 10**6)), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
)
def test_sketches_of_any_split_merge_to_the_same_figures(traces: list[tuple[str | None, int]], cuts: list[int]) -> None:
    def count(some: list[tuple[str | None, int]]) -> Sketch:
        sketch = Sketch()
        slicer = Slicer(sketch.tables, [("model",)], {}, (), cases=1)
        for model, ms in some:
            slicer.add(Evidence(model=model, duration_ms=ms), [])
        slicer.settle()
        return DECODER.decode(msgspec.json.encode(sketch))

    merged, start = Sketch(), 0
    for end in (*sorted(cuts), len(traces)):
        merged.merge(count(traces[start : max(start, end)]))
        start = max(start, end)
    assert list_slices(merged, [("model",)]) == list_slices(count(traces), [("model",)])


def test_too_many_values_are_counted_together(tmp_path: Path) -> None:
    records = [make_trace(number) for number in range(MOST_SLICES + 50)]
    write_parquet(tmp_path / "a.parquet", records, group=100)
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out", by=(("trace_id",),), partition_bytes=1)
    table = summary.slices[0]
    assert len(table.slices) == MOST_SLICES and table.others is not None and table.others.traces == 50
    assert sum(one.rate.decided for one in (*table.slices, table.others)) == 2 * len(records)
    assert count_most_slices(10_000) == 20


@pytest.mark.parametrize("wrong", ["", "model,", "model,model", "a,b,c,d,e"])
def test_an_invalid_list_of_names_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="--by"):
        read_groupings([wrong])


def test_other_slices_of_the_same_folder_are_another_reading(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [make_trace(1)])
    evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out")
    with pytest.raises(InputError, match="read in another way"):
        evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out", by=(("model",),))
