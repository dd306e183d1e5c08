"""Summary tables with too many entries: the heaviest stay, inexact ones are marked, and the rest is counted."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.batches.sketch import MOST_SLICES, Heaviest, Reason, count_most_slices
from proctor.model.batch import BatchSummary, Slice
from tests.batches.batch_world import (
    evaluate,
    make_trace,
    render_batch,
    render_batch_html,
    render_batch_markdown,
    write_lines,
    write_parquet,
    write_suite,
)

pytestmark = pytest.mark.timeout(180)
ONE_CASE = """\
proctor: 1
name: Shop
cases:
  - id: answer
    expect:
      - tool_called: foo
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def spell(number: int) -> str:
    """Reasons that differ in a number have one shape; in letters they do not."""
    return "".join(LETTERS[number // 26**place % 26] for place in range(4))


def test_the_reason_of_nearly_all_failures_is_listed_first(tmp_path: Path) -> None:
    texts = [spell(number) for number in range(240)] + ["same"] * 3_000
    write_lines(tmp_path / "a.jsonl", [{"text": "done", "tool_calls": [{"name": text}]} for text in texts])
    for size in (None, 4_096):
        summary, _ = evaluate(write_suite(tmp_path, text=ONE_CASE), [tmp_path / "a.jsonl"], tmp_path / f"out-{size}", partition_bytes=size)
        (case,) = summary.cases
        assert case.reasons[0].count == 3_000 and "same" in case.reasons[0].reason
        assert sum(reason.count for reason in case.reasons) + case.more_reasons == 3_240


def test_a_reason_that_came_after_many_others_is_marked_as_inexact(tmp_path: Path) -> None:
    texts = [spell(number) for number in range(900)] + ["same"] * 50
    write_lines(tmp_path / "a.jsonl", [{"text": "done", "tool_calls": [{"name": text}]} for text in texts])
    summary, _ = evaluate(write_suite(tmp_path, text=ONE_CASE), [tmp_path / "a.jsonl"], tmp_path / "out")
    first = summary.cases[0].reasons[0]
    assert first.count == 50 and 0 < first.missed < 10
    expect_warning(summary, "reasons")
    assert f"50 to {50 + first.missed} times" in render_batch(summary)


def expect_warning(summary: BatchSummary, what: str) -> None:
    """Every format warns."""
    found = [warning for warning in summary.warnings if what in warning and "inexact" in warning]
    assert len(found) == 1
    for text in (render_batch(summary), render_batch_markdown(summary), render_batch_html(summary), msgspec.json.encode(summary).decode()):
        assert "inexact" in text


def test_faults_keep_the_heaviest_and_count_the_others(tmp_path: Path) -> None:
    records: list[Any] = [make_trace(1)]
    records += [{**make_trace(1), "case": spell(number)} for number in range(450)] + ["{"] * 2_000
    write_lines(tmp_path / "a.jsonl", records)
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out")
    assert summary.errors == 2_450 and summary.faults[0].count == 2_000
    assert sum(fault.count for fault in summary.faults) + summary.more_faults == 2_450


def find_bounds(one: Slice) -> tuple[int, int]:
    return one.traces, one.traces + one.missed


def test_slices_keep_the_heaviest_with_a_known_error(tmp_path: Path) -> None:
    # `early` comes first, is driven out, and comes again; `user` is late and has a third of all traces.
    values = ["early"] * 5 + [f"one-{number}" for number in range(1_600)] + ["early"] * 1_100
    values += [name for number in range(1_500) for name in ("user", f"late-{number}")]
    write_parquet(tmp_path / "a.parquet", [make_trace(1, metadata={"user": value}) for value in values], group=600)
    true = Counter(values)
    for size in (None, 1):
        summary, _ = evaluate(
            write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / f"out-{size}", by=(("user",),), partition_bytes=size
        )
        table = summary.slices[0]
        found = {one.values[0]: one for one in table.slices}
        assert len(found) == MOST_SLICES and table.others is not None
        for value, one in found.items():
            low, high = find_bounds(one)
            assert low <= true[value or ""] <= high and one.missed <= len(values) // MOST_SLICES
        assert {"early", "user"} <= found.keys()
        assert sum(one.traces for one in table.slices) + table.others.traces == len(values)
        assert sum(one.rate.decided for one in (*table.slices, table.others)) == 2 * len(values)
        expect_warning(summary, "--by user")


def test_a_year_of_days_has_every_day_however_many_cases(tmp_path: Path) -> None:
    cases = "".join(f"  - id: c{number}\n    expect: {{response_contains: done}}\n" for number in range(60))
    suite = write_suite(tmp_path, text=f"proctor: 1\nname: Year\ncases:\n{cases}")
    days = [f"2025-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29 if month == 2 else 31)]
    write_lines(tmp_path / "a.jsonl", [make_trace(1, now=f"{day}T09:00:00Z") for day in days])
    summary, _ = evaluate(suite, [tmp_path / "a.jsonl"], tmp_path / "out")
    assert [day.values[0] for day in summary.days] == days and summary.other_days is None
    page = render_batch_html(summary)
    assert all(f">{day}<" in page for day in days)


def test_days_beyond_the_bound_are_one_row_and_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.batches.sketch.MOST_DAYS", 10)
    write_lines(tmp_path / "a.jsonl", [make_trace(1, now=f"2025-01-{1 + number % 28:02}T09:00:00Z") for number in range(56)])
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out")
    assert len(summary.days) == 20 and summary.other_days is not None
    assert sum(day.traces for day in (*summary.days, summary.other_days)) == 56
    assert any("day" in warning for warning in summary.warnings)
    assert "all others" in render_batch(summary) and "all others" in render_batch_markdown(summary)


@given(seed=st.integers(0, 10**6), parts=st.integers(1, 6), most=st.integers(2, 12))
def test_every_split_of_a_stream_bounds_the_true_counts(seed: int, parts: int, most: int) -> None:
    chance = random.Random(seed)
    whole, true = Heaviest[Reason](), Counter[str]()
    for _ in range(parts):
        part = Heaviest[Reason]()
        for _ in range(chance.randrange(120)):
            key = f"k{int(chance.paretovariate(0.6))}"
            true[key] += 1
            part.add(key, Reason(check="", outcome="fail", reason=key, count=1))
            part.cut(most)
        whole.merge(part)
        whole.cut(most)
    assert len(whole.items) <= 2 * most
    assert sum(reason.count for reason in whole.items.values()) + whole.others == true.total()
    for key, count in true.items():
        held = whole.items.get(key)
        assert count <= whole.most_missed if held is None else held.count <= count <= held.count + held.missed


@pytest.mark.on_request
def test_a_changed_case_is_carried_into_full_tables(tmp_path: Path) -> None:
    records = [make_trace(number, metadata={"user": f"u{number % 1_300 if number % 3 else 7}"}) for number in range(4_000)]
    write_lines(tmp_path / "a.jsonl", records)
    by = {"by": (("user",),)}
    evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out", **by)
    changed, _ = evaluate(write_suite(tmp_path, word="nowhere"), [tmp_path / "a.jsonl"], tmp_path / "out", **by)
    redone, _ = evaluate(write_suite(tmp_path, word="nowhere"), [tmp_path / "a.jsonl"], tmp_path / "anew", **by)
    assert changed.slices == redone.slices
    more = "".join(f"  - id: c{number}\n    expect: {{response_contains: done}}\n" for number in range(70))
    text = (tmp_path / "suite.yaml").read_text() + more
    grown, _ = evaluate(write_suite(tmp_path, text=text), [tmp_path / "a.jsonl"], tmp_path / "out", **by)
    fresh, _ = evaluate(tmp_path / "suite.yaml", [tmp_path / "a.jsonl"], tmp_path / "fresh", **by)
    assert grown.slices == fresh.slices and count_most_slices(72) < MOST_SLICES
