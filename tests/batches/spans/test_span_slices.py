"""Tables of spans support the same as whole records: slices, conditions on folders, and judged samples."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import proctor
from proctor.batches.judging import JudgeBounds
from proctor.batches.plan import BatchOptions
from proctor.batches.run import run_batch
from proctor.errors import InputError
from proctor.judge.scripted import ScriptedJudge
from proctor.model.batch import BatchSummary
from proctor.model.judgement import Opinion, Question
from tests.batches.batch_world import InlineExecutor, evaluate, read_results, write_lines, write_parquet, write_suite
from tests.batches.spans.test_spans import write_table

pytestmark = pytest.mark.timeout(60)
JUDGED_SUITE = """\
proctor: 1
name: Judged spans
cases:
  - id: answered
    expect:
      - response_contains: answer
      - judged: {criteria: is friendly}
"""
SUITE = JUDGED_SUITE.replace("      - judged: {criteria: is friendly}\n", "").replace("Judged spans", "Spans")
START = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp()) * 10**9


def make_spans(number: int, **root: Any) -> list[dict[str, Any]]:
    """A trace of two spans: the answer of an agent and its model request."""
    trace, start = f"{number:032x}", START + number * 10**9
    attributes = {
        "openinference.span.kind": "AGENT",
        "input.value": "hello",
        "output.value": f"answer {number}" if number % 5 else "silence 0",
    }
    model_request = {"openinference.span.kind": "LLM", "llm.model_name": "small", "output.value": str(attributes["output.value"])}
    plain = {"trace_id": trace, "start_time_unix_nano": start, "end_time_unix_nano": start + 10**9, "status_code": "OK"}
    return [
        {**plain, "span_id": f"{number:015x}2", "parent_span_id": f"{number:015x}1", "name": "ask", "attributes": model_request},
        {**plain, "span_id": f"{number:015x}1", "parent_span_id": None, "name": "agent", "attributes": attributes, **root},
    ]


def write_spans(path: Path, numbers: range, **root: Any) -> Path:
    rows = [span for number in numbers for span in make_spans(number, **root)]
    # The halves of every trace are far apart.
    return write_lines(path, [*rows[::2], *rows[1::2]])


def read_slices(summary: BatchSummary, table: int = 0) -> dict[tuple[str | None, ...], int]:
    return {one.values: one.traces for one in summary.slices[table].slices}


def test_traces_are_sliced_by_extra_columns_of_any_span(tmp_path: Path) -> None:
    gold = write_spans(tmp_path / "gold.jsonl", range(10), tier="gold")
    plain = write_spans(tmp_path / "plain.jsonl", range(10, 16))
    summary, _ = evaluate(write_suite(tmp_path, text=SUITE), [gold, plain], tmp_path / "out", by=(("tier",), ("tier", "day")))
    assert summary.is_complete and summary.traces == 16
    assert read_slices(summary) == {("gold",): 10, (None,): 6}
    assert read_slices(summary, 1) == {("gold", "2026-10-01"): 10, (None, "2026-10-01"): 6}
    assert [(one.values, one.traces) for one in summary.days] == [(("2026-10-01",), 16)]


def test_extra_parquet_columns_slice_spans_and_folder_keys_win(tmp_path: Path) -> None:
    for region, numbers in (("eu", range(4)), ("us", range(4, 10))):
        rows = [span for number in numbers for span in make_spans(number, tenant=number % 2)]
        write_table(tmp_path / "data" / f"region={region}" / "a.parquet", [{"tenant": None, "region": "nowhere", **row} for row in rows], 3)
    summary, _ = evaluate(write_suite(tmp_path, text=SUITE), [tmp_path / "data"], tmp_path / "out", by=(("region",), ("tenant",)))
    assert read_slices(summary) == {("us",): 6, ("eu",): 4}
    assert read_slices(summary, 1) == {("0",): 5, ("1",): 5}


def test_a_condition_on_folders_chooses_files_of_spans_and_one_on_rows_is_refused(tmp_path: Path) -> None:
    for region, numbers in (("eu", range(4)), ("us", range(4, 10))):
        write_spans(tmp_path / "data" / f"region={region}" / "a.jsonl", numbers, tier="gold")
    suite = write_suite(tmp_path, text=SUITE)
    summary, _ = evaluate(suite, [tmp_path / "data"], tmp_path / "out", where="region = 'eu'")
    assert (summary.is_complete, summary.traces, summary.errors) == (True, 4, 0)
    with pytest.raises(InputError, match=r"--where needs 'tier' of every row, and a row of .*a\.jsonl is one span"):
        evaluate(suite, [tmp_path / "data"], tmp_path / "other", where="region = 'eu' and tier = 'gold'")
    assert not (tmp_path / "other" / "manifest.json").exists()


def judge_spans(folder: Path, bounds: JudgeBounds) -> tuple[BatchSummary, ScriptedJudge, int]:
    def say(question: Question) -> Opinion:
        friendly = int(str(question.material.subject).split()[-1]) % 2 == 0
        return Opinion(outcome="pass" if friendly else "fail", score=float(friendly), reason="so it is")

    judge, executor = ScriptedJudge(say), InlineExecutor()
    options = BatchOptions(places=(str(folder / "data"),), output=folder / "out", judging=bounds, partition_bytes=3000)
    suite = proctor.load_suite(write_suite(folder, text=JUDGED_SUITE))
    return run_batch(suite, options, executor, open_judge=lambda memory: judge), judge, executor.tasks


def test_a_sample_of_traces_of_spans_is_judged_and_judged_again(tmp_path: Path) -> None:
    write_spans(tmp_path / "data" / "a.jsonl", range(30))
    write_spans(tmp_path / "data" / "b.jsonl", range(30, 40))
    write_parquet(tmp_path / "data" / "c.parquet", [{"text": f"answer {number}"} for number in range(40, 50)])
    summary, judge, _ = judge_spans(tmp_path, JudgeBounds(sample=50))
    assert summary.is_complete and summary.traces == 50 and len(judge.questions) == 50
    assert not (tmp_path / "out" / "spans").exists()
    judged = [row for file in sorted((tmp_path / "out" / "judged").glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    results = {(row["file"], row["row"], row["trace"]): row for row in read_results(tmp_path / "out")}
    assert len(judged) == 50 and {(row["file"], row["row"], row["trace"]) for row in judged} == set(results)
    assert {Path(row["file"]).name for row in judged} == {"a.jsonl", "b.jsonl", "c.parquet"}
    for row in judged:
        number = None if row["trace"] is None else int(row["trace"], 16)
        wanted = "fail" if number is not None and (number % 5 == 0 or number % 2) else "pass"
        assert number is None or row["outcome"] == wanted, row
    # The spans are gone with the first batch: they are gathered again, and nothing is decided twice.
    again, judge, tasks = judge_spans(tmp_path, JudgeBounds(sample=50))
    assert again.is_complete and again.evaluated == 0 and tasks > 0
    assert len(judge.questions) == 50 and again.cases == summary.cases
