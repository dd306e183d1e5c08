"""Large batches whose every count equals that of a hand-written loop; sizes from the environment, see `make torture`."""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import proctor
from proctor.batches.run import open_batch
from tests.batches.batch_world import evaluate, write_suite

TRACES = int(os.environ.get("PROCTOR_BATCH_TRACES", "3000"))
"""Traces of the batch that is counted by hand; a million in `make torture`."""
PARTITIONS = int(os.environ.get("PROCTOR_BATCH_PARTITIONS", "300"))
"""Partitions with twenty traces each, every one a slice of its own; 50,000 in `make torture`."""
pytestmark = pytest.mark.timeout(3600)
GROUP = 10_000
TOOLS = ("refund", "lookup", "search", "cancel", "ship", "mail")
SUITE = """\
proctor: 1
name: Counted
cases:
  - id: calls
    expect: {tool_called: {name: refund}}
  - id: answer
    expect: {response_contains: done}
"""


def make_one(number: int, chance: random.Random) -> tuple[dict[str, Any], str]:
    """A trace, and the user in a column of its own."""
    tool = TOOLS[min(5, int(chance.expovariate(1.0)))]
    day = f"2025-{1 + number % 12:02}-{1 + number % 28:02}"
    text = "done" if chance.random() < 0.9 else "sorry"
    record = {"text": text, "tool_calls": [{"name": tool, "arguments": {"order": number % 9}}], "now": f"{day}T10:00:00Z"}
    return {**record, "model": f"m{number % 7}", "duration_ms": number % 500}, f"user-{int(chance.paretovariate(0.8)) % 900}"


def count_by_hand(records: list[tuple[dict[str, Any], str]], counts: dict[str, Counter[Any]]) -> None:
    for record, user in records:
        tool, done = record["tool_calls"][0]["name"], "done" in record["text"]
        passed = (tool == "refund") + done
        for name, key in (("day", record["now"][:10]), ("model", record["model"]), ("user", user)):
            counts[name][key] += 1
            counts[f"{name} passed"][key] += passed
        counts["reasons"][None if tool == "refund" else tool] += 1
        counts["answers"][done] += 1


def test_every_count_equals_a_loop_written_by_hand(tmp_path: Path) -> None:
    chance, counts = random.Random(7), {name: Counter[Any]() for name in ("day", "model", "user", "reasons", "answers")}
    counts |= {f"{name} passed": Counter[Any]() for name in ("day", "model", "user")}
    schema = pa.schema([("record", pa.string()), ("user", pa.string())])
    with pq.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
        for start in range(0, TRACES, GROUP):
            some = [make_one(number, chance) for number in range(start, min(TRACES, start + GROUP))]
            count_by_hand(some, counts)
            rows = {"record": [json.dumps(record) for record, _ in some], "user": [user for _, user in some]}
            writer.write_table(pa.table(rows, schema=schema))
    suite = write_suite(tmp_path, text=SUITE)
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = proctor.batch(suite, tmp_path / "a.parquet", output=tmp_path / "out", by=["model", "user"], workers=2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{TRACES:,} traces in {time.monotonic() - started:.1f} s, {used:.1f} s of CPU in workers, {summary.partitions:,} partitions")
    assert summary.traces == TRACES and not any("inexact" in warning for warning in summary.warnings)
    tables = {"day": summary.days, "model": summary.slices[0].slices, "user": summary.slices[1].slices}
    others = summary.slices[1].others
    for name, slices in tables.items():
        assert all(not one.missed for one in slices)
        found = {one.values[0]: (one.traces, one.rate.passed) for one in slices}
        true = {key: (count, counts[f"{name} passed"][key]) for key, count in counts[name].items()}
        rest = 0 if others is None or name != "user" else others.traces
        assert found == {key: true[key] for key in found} and sum(traces for traces, _ in found.values()) + rest == TRACES
        # Values counted together are lighter than every listed one.
        assert len(found) == len(true) or max(true[key][0] for key in true if key not in found) <= min(
            traces for traces, _ in found.values()
        )
    calls, answer = summary.cases
    missing = {reason.reason.rpartition(": ")[2]: reason.count for reason in calls.reasons}
    assert missing == {tool: count for tool, count in counts["reasons"].items() if tool is not None}
    assert calls.rate.counts == {"pass": counts["reasons"][None], "fail": TRACES - counts["reasons"][None]}
    assert [reason.count for reason in answer.reasons] == [counts["answers"][False]] and not calls.more_reasons + answer.more_reasons


@pytest.mark.in_turn
def test_many_partitions_with_slices_without_end(tmp_path: Path) -> None:
    """One user has a tenth of all traces; every other trace has a user of its own."""
    users = [f"u{number}" if number % 10 else "heavy" for number in range(20 * PARTITIONS)]
    schema = pa.schema([("record", pa.string()), ("user", pa.string())])
    record = json.dumps({"text": "done", "tool_calls": [{"name": "refund"}]})
    (tmp_path / "data").mkdir()
    for part in range(0, PARTITIONS, 1_000):
        with pq.ParquetWriter(tmp_path / "data" / f"{part:06}.parquet", schema) as writer:
            for group in range(part, min(PARTITIONS, part + 1_000)):
                some = users[20 * group : 20 * group + 20]
                writer.write_table(pa.table({"record": [record] * len(some), "user": some}, schema=schema))
    started, used = time.monotonic(), time.process_time()
    suite = write_suite(tmp_path, text=SUITE)
    summary, tasks = evaluate(suite, [tmp_path / "data"], tmp_path / "out", by=(("user",),), partition_bytes=1)
    print(f"{tasks:,} partitions in {time.monotonic() - started:.1f} s, {time.process_time() - used:.1f} s of CPU")
    assert tasks == summary.committed == PARTITIONS and summary.traces == len(users)
    table = summary.slices[0]
    assert table.others is not None and sum(one.traces for one in table.slices) + table.others.traces == len(users)
    heavy = next(one for one in table.slices if one.values == ("heavy",))
    assert heavy.traces <= len(users) // 10 <= heavy.traces + heavy.missed and heavy.missed <= len(users) // 500
    assert sum("inexact" in warning for warning in summary.warnings) == 1
    started, used = time.monotonic(), time.process_time()
    assert open_batch(tmp_path / "out").slices == summary.slices
    print(f"shown in {time.monotonic() - started:.2f} s, {time.process_time() - used:.2f} s of CPU, from the index")
    (tmp_path / "out" / "index.json").unlink()
    started, used = time.monotonic(), time.process_time()
    assert open_batch(tmp_path / "out").slices == summary.slices
    print(f"shown in {time.monotonic() - started:.1f} s, {time.process_time() - used:.1f} s of CPU, from the footers")
