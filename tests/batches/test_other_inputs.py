"""A batch decides records whose input differs from the input of their case, and its summary counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.batches.run import open_batch
from tests.batches.batch_world import evaluate, make_trace, read_results, write_lines, write_parquet, write_suite

MCPLAB = """\
scenarios:
  - id: refund
    prompt: Refund order 17
    eval: {response_assertions: [{type: contains, value: "{word}"}]}
"""
NATIVE = """\
proctor: 1
cases:
  - {id: refund, input: Refund order 17, expect: [response_contains: "{word}"]}
  - {id: greet, input: Hello, expect: [response_contains: "{word}"]}
"""


def warn(count: str, case: str, expected: str, recorded: str) -> str:
    return f'{count} although their input differs from that of the case {case!r}: the case has "{expected}", the record has "{recorded}"'


@pytest.mark.parametrize("count", [200])
def test_production_records_are_decided_against_the_only_case_of_a_dialect_with_prompts(count: int, tmp_path: Path) -> None:
    records = [make_trace(number, input=f"Please refund order {number}") for number in range(count)]
    write_parquet(tmp_path / "data" / "a.parquet", records, group=50)
    summary, tasks = evaluate(write_suite(tmp_path, text=MCPLAB), [tmp_path / "data"], tmp_path / "out", partition_bytes=1)
    assert (tasks, summary.traces, summary.errors, summary.cases[0].rate.counts) == (4, count, 0, {"pass": count})
    assert summary.warnings == (warn("200 records were decided", "refund", "Refund order 17", "Please refund order 0"),)
    assert open_batch(tmp_path / "out").warnings == summary.warnings


def test_a_changed_case_gives_the_counts_of_a_new_batch(tmp_path: Path) -> None:
    names = ("refund", "greet", "refund", "refund", "greet")
    records = [make_trace(number, case=case, input=f"I {number}") for number, case in enumerate(names)]
    write_lines(tmp_path / "data" / "a.jsonl", records)
    evaluate(write_suite(tmp_path, text=NATIVE), [tmp_path / "data"], tmp_path / "out")
    changed = NATIVE.replace('input: Hello, expect: [response_contains: "{word}"]', "input: Hello, expect: [response_contains: nowhere]")
    again, tasks = evaluate(write_suite(tmp_path, text=changed), [tmp_path / "data"], tmp_path / "out")
    assert tasks == 1 and [(row["case"], row["outcome"]) for row in read_results(tmp_path / "out")][:2] == [
        ("refund", "pass"),
        ("greet", "fail"),
    ]
    assert again.warnings == (
        warn("3 records were decided", "refund", "Refund order 17", "I 0"),
        warn("2 records were decided", "greet", "Hello", "I 1"),
    )
