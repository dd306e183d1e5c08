"""Batches over tables of spans: traces are assembled from any files, with the verdicts of `proctor check`."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proctor
from proctor.actions.checking.check_stream import CheckStream
from proctor.batches import gathering as span_spill
from proctor.batches.run import BatchOptions, run_batch
from proctor.errors import InputError
from proctor.processes.executor import Done, StopWork, Work
from proctor.sources.records import read_records
from tests.batches.batch_world import InlineExecutor, evaluate, read_errors, read_results, write_lines, write_suite
from tests.batches.span_world import (
    SPAN_SUITE,
    read_recording,
    write_langfuse_row,
    write_langsmith_row,
    write_mlflow_rows,
    write_phoenix_row,
    write_requests,
    write_span_row,
)

pytestmark = pytest.mark.timeout(60)
RECORDING = "langchain-0-oi"
Verdicts = dict[tuple[str | None, str], tuple[Any, ...]]


def decide_by_check(suite: Path, places: Sequence[Path]) -> Verdicts:
    """The verdicts of `proctor check` on every trace and case."""
    stream = CheckStream(proctor.load_suite(suite))
    results: list[Any] = []
    found: Verdicts = {}
    for record in read_records([str(place) for place in places], repeated_keys=not stream.only_presence):
        stream.decide(record, results)
        for result in results:
            verdicts = [(verdict.outcome, verdict.score, verdict.code, verdict.reason) for verdict in result.verdicts]
            found[record.source.id, result.case.id] = (result.outcome, result.score, result.code, verdicts)
        results.clear()
    return found


def read_verdicts(output: Path) -> Verdicts:
    found: Verdicts = {}
    for row in read_results(output):
        verdicts = [(verdict["outcome"], verdict["score"], verdict["code"], verdict["reason"]) for verdict in row["verdicts"]]
        assert (row["trace"], row["case"]) not in found, "a trace was decided twice"
        found[row["trace"], row["case"]] = (row["outcome"], row["score"], row["code"], verdicts)
    return found


def write_table(path: Path, rows: Sequence[dict[str, Any]], group: int = 5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path, row_group_size=group)
    return path


@pytest.mark.in_turn
@settings(max_examples=12)
@given(data=st.data(), files=st.integers(1, 4), size=st.sampled_from([30_000, 200_000, 10**7]), seed=st.integers(0, 99))
def test_spans_anywhere_give_the_verdicts_of_check(
    data: st.DataObject, files: int, size: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spans")
    suite = write_suite(folder, text=SPAN_SUITE)
    requests = write_requests(RECORDING)
    random.Random(seed).shuffle(requests)
    # Some are sent twice, some are lost, and with them the parents of others.
    twice = data.draw(st.lists(st.sampled_from(requests), max_size=5))
    lost = data.draw(st.sets(st.integers(0, len(requests) - 1), max_size=4))
    sent = [*(request for number, request in enumerate(requests) if number not in lost), *twice]
    places = [write_lines(folder / f"{number}.jsonl", sent[number::files]) for number in range(files)]
    evaluate(suite, places, folder / "out", partition_bytes=size)
    assert read_verdicts(folder / "out") == decide_by_check(suite, places) and not read_errors(folder / "out")
    assert not (folder / "out" / "spans").exists()


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("recording", "write_row"),
    [
        (RECORDING, write_phoenix_row),
        (RECORDING, write_span_row),
        ("openai-langfuse-3", write_langfuse_row),
        ("langgraph-langsmith", write_langsmith_row),
    ],
    ids=["phoenix", "spans", "langfuse", "langsmith"],
)
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_every_table_of_spans_is_recognised_and_assembled(recording: str, write_row: Any, kind: str, tmp_path: Path) -> None:
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    spans = read_recording(recording)
    random.Random(1).shuffle(spans)
    rows = [write_row(span) for span in spans]
    if write_row in (write_langfuse_row, write_langsmith_row):
        # Objects of varying shape fit no struct: these tables store them as JSON.
        rows = [{name: json.dumps(value) if isinstance(value, (dict, list)) else value for name, value in row.items()} for row in rows]
    places: list[Path] = []
    for number in range(2):
        part = rows[number::2]
        if kind == "parquet":
            places.append(write_table(tmp_path / "data" / f"{number}.parquet", part))
        else:
            places.append(write_lines(tmp_path / "data" / f"{number}.jsonl", [json.dumps(row, default=str) for row in part]))
    lines = write_lines(tmp_path / "check.jsonl", [json.dumps(row, default=str) for row in rows])
    evaluate(suite, [tmp_path / "data"], tmp_path / "out", partition_bytes=2_000)
    expected = {key: verdict[0] for key, verdict in decide_by_check(suite, [lines]).items()}
    assert {key: verdict[0] for key, verdict in read_verdicts(tmp_path / "out").items()} == expected
    assert len(expected) >= 6 and {"pass", "fail"} <= set(expected.values()) and not read_errors(tmp_path / "out")


def test_traces_of_mlflow_are_decided_row_by_row(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    rows = write_mlflow_rows(read_recording("mlflow-langgraph"))
    texts = [{**row, "spans": json.dumps(row["spans"])} for row in rows]
    write_table(tmp_path / "a.parquet", texts)
    write_lines(tmp_path / "b.jsonl", rows)
    for name in ("a.parquet", "b.jsonl"):
        summary, tasks = evaluate(suite, [tmp_path / name], tmp_path / f"out-{name}")
        assert (tasks, summary.traces, summary.errors) == (1, len(rows), 0)
    first, second = (
        sorted((row["row"], row["case"], row["outcome"]) for row in read_results(tmp_path / f"out-{name}"))
        for name in ("a.parquet", "b.jsonl")
    )
    assert first == second


def test_broken_spans_are_reported_at_their_place(tmp_path: Path) -> None:
    requests: list[Any] = write_requests(RECORDING)
    lines = write_lines(tmp_path / "a.jsonl", [requests[0], "{broken", {"text": "no span"}, *requests[1:], '{"resourceSpans": 3}'])
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes())[:-30])
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    summary, _ = evaluate(suite, [lines], tmp_path / "out", partition_bytes=10**6)
    codes = {row["row"]: row["code"] for row in read_errors(tmp_path / "out")}
    assert codes == {2: "unreadable_evidence", 3: "not_spans", len(requests) + 3: "not_spans"} or codes.keys() == {2, 3, len(requests) + 3}
    assert summary.errors == 3 and summary.traces == len({span.trace_id for span in read_recording(RECORDING)})
    evaluate(suite, [packed], tmp_path / "cut")
    assert any(row["code"] == "unreadable_rows" for row in read_errors(tmp_path / "cut"))


def test_a_large_share_is_read_in_parts_and_an_oversized_trace_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    lines = write_lines(tmp_path / "a.jsonl", write_requests(RECORDING))
    evaluate(suite, [lines], tmp_path / "plain")
    monkeypatch.setattr(span_spill, "MOST_BYTES_PER_PASS", 20_000)
    monkeypatch.setattr(span_spill, "MOST_BUFFERED_BYTES", 10_000)
    evaluate(suite, [lines], tmp_path / "turns")
    assert read_verdicts(tmp_path / "turns") == read_verdicts(tmp_path / "plain")
    from proctor.batches import worker

    for module in (span_spill, worker):
        monkeypatch.setattr(module, "MAX_TRACE_BYTES", 3_000)
    summary, _ = evaluate(suite, [lines], tmp_path / "small")
    assert summary.errors and {row["code"] for row in read_errors(tmp_path / "small")} == {"too_large"}


class StoppingExecutor(InlineExecutor):
    """Ends before a certain task, as a driver that is killed."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.last = last

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        for done in super().map(work, tasks):
            yield done
            if self.tasks >= self.last:
                raise StopWork("ended")


def test_a_batch_of_spans_resumes_wherever_it_ended(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    requests = write_requests(RECORDING)
    random.Random(4).shuffle(requests)
    for number in range(3):
        write_lines(tmp_path / "data" / f"{number}.jsonl", requests[number::3])
    evaluate(suite, [tmp_path / "data"], tmp_path / "whole", partition_bytes=30_000)
    expected, tasks = read_verdicts(tmp_path / "whole"), 0
    for turn in range(40):
        executor = StoppingExecutor(1)
        options = BatchOptions(places=(str(tmp_path / "data"),), output=tmp_path / "out", partition_bytes=30_000, resume=bool(turn))
        try:
            run_batch(proctor.load_suite(suite), options, executor)
            break
        except InputError as error:
            assert "ended" in str(error)
        finally:
            tasks += executor.tasks
    again, done = evaluate(suite, [tmp_path / "data"], tmp_path / "out", partition_bytes=30_000, resume=True)
    assert again.is_complete and read_verdicts(tmp_path / "out") == expected
    assert tasks + done == json.loads((tmp_path / "out" / "manifest.json").read_text())["shares"] + _count_sources(tmp_path / "out")


def _count_sources(output: Path) -> int:
    return len(json.loads((output / "manifest.json").read_text())["sources"])


def test_a_finished_batch_of_spans_is_not_read_again_until_something_changes(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    requests = write_requests(RECORDING)
    write_lines(tmp_path / "data" / "0.jsonl", requests[:-3])
    evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert evaluate(suite, [tmp_path / "data"], tmp_path / "out")[1] == 0
    # Late spans belong to traces that were decided without them.
    write_lines(tmp_path / "data" / "1.jsonl", requests[-3:])
    summary, _ = evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    evaluate(suite, [tmp_path / "data"], tmp_path / "fresh")
    assert summary.is_complete and read_verdicts(tmp_path / "out") == read_verdicts(tmp_path / "fresh")
    changed = write_suite(tmp_path, text=SPAN_SUITE.replace("id: 17", "id: 18"))
    again, _ = evaluate(changed, [tmp_path / "data"], tmp_path / "out")
    fresh, _ = evaluate(changed, [tmp_path / "data"], tmp_path / "fresh-changed")
    assert read_verdicts(tmp_path / "out") == read_verdicts(tmp_path / "fresh-changed") and again.cases == fresh.cases


def test_a_format_that_is_named_gathers_spans_from_a_column(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, text=SPAN_SUITE)
    rows = [{"key": number, "body": json.dumps(request)} for number, request in enumerate(write_requests(RECORDING))]
    write_table(tmp_path / "a.parquet", rows)
    lines = write_lines(tmp_path / "a.jsonl", [row["body"] for row in rows])
    evaluate(suite, [tmp_path / "a.parquet"], tmp_path / "out", column="body", evidence_format="otlp")
    assert read_verdicts(tmp_path / "out") == decide_by_check(suite, [lines])


NEGATIVE = """\
proctor: 1
name: Nothing bad
cases:
  - id: never
    expect:
      - tool_not_called: delete_order
      - response_not_contains: guaranteed
      - no_tool_errors: {}
"""
IDS = {"trace_id": ["a" * 32] * 2, "span_id": ["1" * 16, "2" * 16], "parent_span_id": [None, "1" * 16]}
FOREIGN = {"acme.tool.name": "delete_order", "acme.tool.input": "{}"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.system": "openai"}
NOT_UNDERSTOOD: dict[str, dict[str, list[Any]]] = {
    "no attributes": {**IDS, "name": ["root", "child"]},
    "another kind of traffic": {**IDS, "name": ["GET /", "SELECT"], "attributes": ['{"http.method": "GET"}', '{"db.system": "x"}']},
    "words of a vendor": {**IDS, "name": ["agent", "tool"], "attributes": ['{"acme.agent": "x"}', json.dumps(FOREIGN)]},
    "names without attributes": {**IDS, "name": ["invoke_agent shop", "execute_tool delete_order"], "attributes": [None, None]},
    "a model next to vendor attributes": {
        **IDS, "name": ["chat m", "tool"], "attributes": [json.dumps(CHAT), json.dumps(FOREIGN)],
    },
    "kinds of Phoenix that are unknown": {
        "context.trace_id": ["a" * 32] * 2, "context.span_id": ["1" * 16, "2" * 16], "parent_id": [None, "1" * 16],
        "name": ["agent", "delete_order"], "span_kind": ["UNKNOWN", "UNKNOWN"],
    },
    "types of Langfuse that are unknown": {
        "traceId": ["a" * 32] * 2, "id": ["1", "2"], "parentObservationId": [None, "1"],
        "name": ["agent", "delete_order"], "type": ["X", "Y"],
    },
    "kinds of LangSmith that are unknown": {
        "trace_id": ["a"] * 2, "id": ["a", "2"], "parent_run_id": [None, "a"], "name": ["agent", "delete_order"], "run_type": ["x", "y"],
    },
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_UNDERSTOOD)
def test_absence_never_passes_over_unrecognised_spans(what: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table(NOT_UNDERSTOOD[what]), tmp_path / "data" / "a.parquet")
    summary, _ = evaluate(write_suite(tmp_path, text=NEGATIVE), [tmp_path / "data"], tmp_path / "out")
    assert not summary.has_passed
    for row in read_results(tmp_path / "out"):
        assert row["outcome"] in ("error", "skip", "fail"), row
        assert "pass" not in [verdict["outcome"] for verdict in row["verdicts"] if verdict["check"].startswith("tool_not_called")]


def test_traces_without_an_agent_are_counted_separately(tmp_path: Path) -> None:
    good = [write_span_row(span) for span in read_recording(RECORDING)]
    without_agent = [{"trace_id": f"{number:032x}", "span_id": f"{number:016x}", "name": "GET /"} for number in range(1, 10)]
    write_lines(tmp_path / "data" / "a.jsonl", [*good, *without_agent])
    text = "proctor: 1\nname: N\ncases:\n  - {id: never, expect: {tool_not_called: delete_order}}\n"
    summary, _ = evaluate(write_suite(tmp_path, text=text), [tmp_path / "data"], tmp_path / "out")
    assert summary.cases[0].rate.passed == 7 and summary.traces == 16
    (warning,) = summary.warnings
    assert warning.startswith("9 of 16 traces have no agent, model or tool: nothing was decided on them")
