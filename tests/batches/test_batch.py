"""A batch: the same verdicts as `proctor check`, each partition committed once, and only what is new or changed evaluated again."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proctor
from proctor.actions.checking.check_stream import CheckStream
from proctor.batches.run import open_batch
from proctor.errors import InputError
from proctor.sources.records import read_records
from tests.batches.batch_world import (
    SUITE,
    evaluate,
    make_trace,
    read_errors,
    read_results,
    write_lines,
    write_parquet,
    write_suite,
)

pytestmark = pytest.mark.timeout(60)


def decide_by_check(suite: Path, lines: Path) -> list[tuple[Any, ...]]:
    """The results of `proctor check` per line: line, case, outcome, score, code and verdicts."""
    stream = CheckStream(proctor.load_suite(suite))
    results: list[Any] = []
    found: list[tuple[Any, ...]] = []
    for record in read_records([str(lines)], repeated_keys=not stream.only_presence):
        stream.decide(record, results)
        for result in results:
            verdicts = [(verdict.outcome, verdict.score, verdict.code, verdict.reason) for verdict in result.verdicts]
            if result.case.id:
                found.append((record.source.line, result.case.id, result.outcome, result.score, result.code, verdicts))
        results.clear()
    return found


def summarize_row(row: dict[str, Any], line: int) -> tuple[Any, ...]:
    verdicts = [(verdict["outcome"], verdict["score"], verdict["code"], verdict["reason"]) for verdict in row["verdicts"]]
    return (line, row["case"], row["outcome"], row["score"], row["code"], verdicts)


RECORDS = st.lists(
    st.one_of(
        st.integers(0, 50).map(make_trace),
        st.integers(0, 50).map(lambda number: make_trace(number, case="short")),
        st.integers(0, 50).map(lambda number: make_trace(number, case="nobody")),
        st.just({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "done, run"}]}),
        st.just({"text": "stopped", "error": "it broke off"}),
        st.just({"data": {"output": "done"}}),
        st.sampled_from(["{", '{"text": 1e999}', '{"text": "\\ud800"}', "[]", '{"text": "a", "text": "b"}', "null"]),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.in_turn
@settings(max_examples=25)
@given(
    records=RECORDS,
    group=st.integers(1, 15),
    size=st.sampled_from([1, 50, 300, 1000, 10**6]),
    text=st.sampled_from([SUITE, SUITE + "  - id: none\n    expect: {tool_not_called: refund}\n"]),
)
def test_any_split_of_the_data_gives_the_verdicts_of_check(
    records: list[Any], group: int, size: int, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("split")
    suite = write_suite(folder, text=text)
    lines = write_lines(folder / "lines.jsonl", records)
    table = write_parquet(folder / "table.parquet", records, group=group)
    expected = decide_by_check(suite, lines)
    evaluate(suite, [table], folder / "of-table", partition_bytes=size)
    rows = sorted(read_results(folder / "of-table"), key=lambda row: (row["row"], row["run"]))
    assert [summarize_row(row, row["row"]) for row in rows] == expected
    evaluate(suite, [lines], folder / "of-lines", partition_bytes=size)
    rows = sorted(read_results(folder / "of-lines"), key=lambda row: (row["offset"], row["run"]))
    starts, position = {}, 0
    for number, line in enumerate(lines.read_bytes().splitlines(keepends=True), 1):
        starts[position], position = number, position + len(line)
    assert [summarize_row(row, starts[row["offset"]]) for row in rows] == expected
    errors = [sorted((row["code"], row["reason"]) for row in read_errors(folder / name)) for name in ("of-table", "of-lines")]
    assert errors[0] == errors[1]


EXAMPLES = Path(proctor.__file__).parent / "examples"


@pytest.mark.parametrize(
    ("suite", "evidence"),
    [
        ("native/suite.yaml", "native/evidence.jsonl"),
        ("mcplab/orders.yaml", "mcplab/trace.jsonl"),
        ("mcpjam/calculator.yaml", "mcpjam/messages.json"),
        ("mibo/calculator.json", "mibo/n8n-execution.json"),
    ],
)
def test_every_dialect_and_its_evidence_gives_the_verdicts_of_check(suite: str, evidence: str, tmp_path: Path) -> None:
    text = (EXAMPLES / evidence).read_text()
    records = [line for line in text.splitlines() if line.strip()] if evidence.endswith(".jsonl") else [json.loads(text)]
    lines = write_lines(tmp_path / "a.jsonl", records)
    table = write_parquet(tmp_path / "a.parquet", records)
    expected = decide_by_check(EXAMPLES / suite, lines)
    assert expected
    for name, place in (("lines", lines), ("table", table)):
        evaluate(EXAMPLES / suite, [place], tmp_path / name)
        assert [summarize_row(row, row["row"]) for row in read_results(tmp_path / name)] == expected


def test_the_cost_of_a_trace_is_in_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text("prices: {small: {input: 1, output: 2, currency: EUR}}\n")
    usage = {"input_tokens": 1_000_000, "output_tokens": 500_000}
    lines = write_lines(tmp_path / "a.jsonl", [make_trace(1, model="small", usage=usage), make_trace(2)])
    evaluate(write_suite(tmp_path), [lines], tmp_path / "out")
    priced, unknown = (row for row in read_results(tmp_path / "out") if row["case"] == "short")
    assert (priced["cost"], priced["currency"], priced["model"], priced["output_tokens"]) == (2.0, "EUR", "small", 500_000)
    assert unknown["cost"] is None and unknown["model"] is None


def test_a_line_that_is_too_long_is_an_error_and_the_next_ones_keep_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.sources import records
    from proctor.sources.datasets import cells as dataset_cells

    monkeypatch.setattr(records, "MAX_LINE_BYTES", 2_000)
    monkeypatch.setattr(dataset_cells, "_BLOCK", 100)
    lines = write_lines(tmp_path / "a.jsonl", [make_trace(1), {"text": "x" * 9_000}, make_trace(2), {"text": "y" * 9_000}])
    starts = [0]
    for line in lines.read_bytes().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for number, size in enumerate((10**6, 500)):
        output = tmp_path / f"out{number}"
        evaluate(write_suite(tmp_path), [lines], output, partition_bytes=size)
        assert sorted((row["offset"], row["code"]) for row in read_errors(output)) == [
            (starts[1], "line_too_long"),
            (starts[3], "line_too_long"),
        ]
        assert sorted({(row["offset"], row["trace"]) for row in read_results(output)}) == [(starts[0], "t1"), (starts[2], "t2")]


def test_every_trace_has_a_row_for_every_case_with_its_place_and_figures(tmp_path: Path) -> None:
    table = write_parquet(tmp_path / "day=2026-10-01" / "a.parquet", [make_trace(number) for number in range(25)])
    summary, tasks = evaluate(write_suite(tmp_path), [tmp_path / "day=2026-10-01"], tmp_path / "out", partition_bytes=1)
    rows = read_results(tmp_path / "out")
    assert tasks == 3 and summary.partitions == summary.committed == 3
    assert sorted((row["row"], row["case"]) for row in rows) == [(number, case) for number in range(1, 26) for case in ("refund", "short")]
    failed = next(row for row in rows if row["row"] == 1 and row["case"] == "refund")
    assert (failed["trace"], failed["file"], failed["outcome"], failed["duration_ms"]) == ("t0", str(table), "fail", 100)
    assert failed["verdicts"][0]["outcome"] == "fail" and "18" in failed["verdicts"][0]["reason"]
    refund = summary.cases[0]
    assert (refund.rate.passed, refund.rate.decided, refund.checks[1].rate.passed) == (20, 25, 25)
    assert refund.rate.low < 0.8 < refund.rate.high
    assert refund.reasons[0].count == 5 and [place.trace for place in refund.reasons[0].samples] == ["t0", "t5", "t10"]
    latency = summary.amounts.latency
    assert latency is not None and latency.traces == 25
    assert (latency.p50, latency.p99) == (pytest.approx(112, rel=0.01), pytest.approx(124, rel=0.01))
    assert open_batch(tmp_path / "out").cases == summary.cases


def test_lines_are_read_plain_and_compressed(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "data" / "a.jsonl", [make_trace(number) for number in range(9)])
    with gzip.open(tmp_path / "data" / "b.jsonl.gz", "wb") as file:
        file.write(plain.read_bytes())
    with pa.CompressedOutputStream(str(tmp_path / "data" / "c.jsonl.zst"), "zstd") as packed:
        packed.write(plain.read_bytes())
    (tmp_path / "data" / "_SUCCESS").touch()
    (tmp_path / "data" / "notes.txt").write_text("no data")
    evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")
    rows = read_results(tmp_path / "out")
    assert len(rows) == 3 * 9 * 2 and not read_errors(tmp_path / "out")
    by_file = {Path(row["file"]).name: [] for row in rows}
    for row in rows:
        by_file[Path(row["file"]).name].append((row["row"], row["trace"], row["case"], row["outcome"]))
    assert by_file["a.jsonl"] == by_file["b.jsonl.gz"] == by_file["c.jsonl.zst"]


def test_a_struct_and_the_fields_of_a_record_are_read_as_the_same_json(tmp_path: Path) -> None:
    traces = [make_trace(number) for number in range(8)]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"key": list(range(8)), "trace": traces, "id": [f"own{n}" for n in range(8)]}), tmp_path / "data" / "a.parquet")
    fields = pa.Table.from_pylist([{**trace, "tool_calls": json.dumps(trace["tool_calls"]), "note": None} for trace in traces])
    metadata = pa.array([[("trace_id", f"t{number}")] for number in range(8)], pa.map_(pa.string(), pa.string()))
    pq.write_table(fields.set_column(fields.schema.get_field_index("metadata"), "metadata", metadata), tmp_path / "data" / "b.parquet")
    evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")
    rows = read_results(tmp_path / "out")
    struct, table = ([row for row in rows if row["file"].endswith(name)] for name in ("a.parquet", "b.parquet"))
    assert [row["outcome"] for row in struct] == [row["outcome"] for row in table] and len(struct) == 16
    assert not read_errors(tmp_path / "out")
    assert struct[0]["trace"] == "own0" and table[0]["trace"] == "t0"


@pytest.mark.parametrize(
    "place", ["data/**/*.parquet", "data/day=*/a.parquet", "data/day=1", "file://{folder}/data", "file://{folder}/data/**"]
)
def test_a_data_set_is_named_by_a_folder_a_pattern_or_an_address(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_parquet(tmp_path / "data" / "day=1" / "a.parquet", [make_trace(1)])
    evaluate(write_suite(tmp_path), [place.format(folder=tmp_path)], tmp_path / "out")
    assert len(read_results(tmp_path / "out")) == 2


def test_a_second_batch_over_a_grown_data_set_reads_only_what_is_new(tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(number) for number in range(10)])
    assert evaluate(suite, [tmp_path / "data"], tmp_path / "out")[1] == 1
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out" / "results").iterdir()}
    assert evaluate(suite, [tmp_path / "data"], tmp_path / "out")[1] == 0
    write_parquet(tmp_path / "data" / "b.parquet", [make_trace(number) for number in range(10, 15)])
    summary, tasks = evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert (tasks, summary.traces, summary.evaluated) == (1, 15, 1)
    assert before.items() <= {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out" / "results").iterdir()}.items()


def test_a_second_batch_opens_no_known_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.sources.datasets import cells as dataset_cells
    from proctor.sources.datasets import plan as dataset_plan

    suite = write_suite(tmp_path)
    for name in ("a", "b"):
        write_parquet(tmp_path / "data" / f"{name}.parquet", [make_trace(number) for number in range(10)])
        write_lines(tmp_path / "data" / f"{name}.jsonl", [make_trace(number) for number in range(10)])
    evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    opened: list[str] = []
    open_file = dataset_cells.open_file

    def count(root: str, path: str) -> Any:
        opened.append(Path(path).name)
        return open_file(root, path)

    for module in (dataset_cells, dataset_plan):
        monkeypatch.setattr(module, "open_file", count)
    evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert opened == []
    write_parquet(tmp_path / "data" / "c.parquet", [make_trace(number) for number in range(10)])
    summary, _ = evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert set(opened) == {"c.parquet"} and summary.traces == 50


def test_results_of_changed_or_removed_files_are_dropped(tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    for name in ("a", "b", "c"):
        write_parquet(tmp_path / "data" / f"{name}.parquet", [make_trace(number) for number in range(10)])
    evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    (tmp_path / "data" / "b.parquet").unlink()
    summary, tasks = evaluate(suite, [tmp_path / "data"], tmp_path / "out")
    assert (tasks, summary.traces, len(read_results(tmp_path / "out"))) == (1, 11, 22)


def test_a_changed_case_is_decided_again_alone(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(number) for number in range(12)])
    evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", partition_bytes=1)
    marked = next((tmp_path / "out" / "results").iterdir())
    # Results are carried over unchanged: a mark in them shows that they were not decided again.
    table = pq.read_table(marked)
    reasons = pa.array(["a mark" if case == "refund" else None for case in table["case"].to_pylist()], pa.string())
    table = table.set_column(table.schema.get_field_index("reason"), "reason", reasons)
    metadata = {key: value for key, value in pq.read_metadata(marked).metadata.items() if key.startswith(b"proctor.")}
    pq.write_table(table.replace_schema_metadata(metadata), marked)
    summary, tasks = evaluate(write_suite(tmp_path, "nowhere"), [tmp_path / "data"], tmp_path / "out", partition_bytes=1)
    rows = read_results(tmp_path / "out")
    assert tasks == 2 and len(rows) == 24
    assert {row["outcome"] for row in rows if row["case"] == "short"} == {"fail"}
    assert any(row["reason"] == "a mark" for row in rows if row["case"] == "refund")
    fresh, _ = evaluate(write_suite(tmp_path, "nowhere"), [tmp_path / "data"], tmp_path / "fresh", partition_bytes=1)
    assert summary.cases == fresh.cases
    new = [{**row, "reason": None} for row in read_results(tmp_path / "fresh")]
    assert [{**row, "reason": None} for row in rows] == new, "the same rows in the same order as of a batch from the beginning"


@pytest.mark.parametrize("change", ["added", "removed", "input"])
def test_added_and_removed_cases_give_the_results_of_a_new_batch(change: str, tmp_path: Path) -> None:
    records = [make_trace(1), make_trace(2, case="late"), make_trace(3, case="short"), make_trace(4, input="hello")]
    write_parquet(tmp_path / "data" / "a.parquet", records)
    late = SUITE + '  - id: late\n    expect: {response_contains: "2"}\n'
    texts = {"added": (SUITE, late), "removed": (late, SUITE), "input": (SUITE, late.replace("id: late", "id: late\n    input: hello"))}
    before, after = texts[change]
    evaluate(write_suite(tmp_path, text=before), [tmp_path / "data"], tmp_path / "out")
    again, _ = evaluate(write_suite(tmp_path, text=after), [tmp_path / "data"], tmp_path / "out")
    fresh, _ = evaluate(write_suite(tmp_path, text=after), [tmp_path / "data"], tmp_path / "fresh")
    assert read_results(tmp_path / "out") == read_results(tmp_path / "fresh")
    assert read_errors(tmp_path / "out") == read_errors(tmp_path / "fresh")
    assert again.cases == fresh.cases and again.faults == fresh.faults


# --- errors ---------------------------------------------------------------------------------------------------------------


def test_a_bad_record_is_one_row_of_errors(tmp_path: Path) -> None:
    records = [
        make_trace(1),
        "{broken",
        b'{"text": "\xff\xfe"}',
        None,
        make_trace(2),
        '{"resourceSpans": []}',
        make_trace(3, case="nobody"),
    ]
    write_parquet(tmp_path / "a.parquet", records)
    summary, _ = evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out")
    errors = read_errors(tmp_path / "out")
    assert {row["row"]: row["code"] for row in errors} == {
        2: "unreadable_evidence",
        3: "unreadable_evidence",
        4: "empty_record",
        6: "spans_apart",
        7: "unmatched_evidence",
    }
    assert "not UTF-8" in errors[1]["reason"] and all(row["file"].endswith("a.parquet") for row in errors)
    assert sorted({row["row"] for row in read_results(tmp_path / "out")}) == [1, 5]
    assert (summary.errors, summary.has_passed, sum(fault.count for fault in summary.faults)) == (5, False, 5)


def test_a_record_that_is_too_large_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.sources.datasets import columns as dataset_columns

    monkeypatch.setattr(dataset_columns, "MAX_LINE_BYTES", 500)
    write_parquet(tmp_path / "a.parquet", [make_trace(1), {"text": "x" * 600}, make_trace(2)])
    evaluate(write_suite(tmp_path), [tmp_path / "a.parquet"], tmp_path / "out")
    assert [(row["row"], row["code"]) for row in read_errors(tmp_path / "out")] == [(2, "too_large")]
    assert {row["row"] for row in read_results(tmp_path / "out")} == {1, 3}


def test_a_batch_killed_before_its_start_is_restarted(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".manifest.json.77.tmp").write_text("{")
    assert evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")[0].is_complete


def test_broken_files_do_not_affect_the_others(tmp_path: Path) -> None:
    good = write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    (tmp_path / "data" / "b.parquet").write_bytes(good.read_bytes()[:-20])
    write_parquet(tmp_path / "data" / "c.parquet", ["x"], column="other")
    pq.write_table(pa.table({"record": [1, 2]}), tmp_path / "data" / "d.parquet")
    pq.write_table(pa.table({"record": pa.array([], pa.string())}), tmp_path / "data" / "e.parquet")
    evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", column="record")
    reasons = {Path(row["file"]).name: row["reason"] for row in read_errors(tmp_path / "out")}
    assert reasons.keys() == {"b.parquet", "c.parquet", "d.parquet"}
    assert "no Parquet file" in reasons["b.parquet"] and "no column 'record'" in reasons["c.parquet"] and "int64" in reasons["d.parquet"]
    assert len(read_results(tmp_path / "out")) == 2


def test_undecodable_rows_are_reported_with_their_number(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [make_trace(number) for number in range(30)])
    column = pq.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    evaluate(write_suite(tmp_path), [path], tmp_path / "out")
    (error,) = read_errors(tmp_path / "out")
    assert (error["row"], error["rows"], error["code"]) == (11, 10, "unreadable_rows") and "row group 2" in error["reason"]
    assert sorted({row["row"] for row in read_results(tmp_path / "out")}) == [*range(1, 11), *range(21, 31)]


def test_the_readable_part_of_a_truncated_file_is_used(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "a.jsonl", [make_trace(number, note="x" * number) for number in range(3000)])
    whole = gzip.compress(plain.read_bytes())
    (tmp_path / "b.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    evaluate(write_suite(tmp_path), [tmp_path / "b.jsonl.gz"], tmp_path / "out")
    (error,) = [row for row in read_errors(tmp_path / "out") if row["code"] == "unreadable_rows"]
    assert error["file"].endswith("b.jsonl.gz")


def test_a_file_changed_after_planning_is_reported_and_left_for_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", [make_trace(1)])
    good = write_parquet(tmp_path / "b.parquet", [make_trace(2)])
    from proctor.batches import plan as module

    plan = module.plan_partitions

    def plan_and_change(*arguments: Any, **options: Any) -> Any:
        planned = plan(*arguments, **options)
        write_parquet(path, [make_trace(3), make_trace(4)])
        return planned

    monkeypatch.setattr(module, "plan_partitions", plan_and_change)
    summary, _ = evaluate(write_suite(tmp_path), [path, good], tmp_path / "out")
    assert not summary.is_complete and "has changed since" in summary.failures[0]
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"not finished \(1 of 2 partitions\); --resume"):
        evaluate(write_suite(tmp_path), [path, good], tmp_path / "out")
    summary, tasks = evaluate(write_suite(tmp_path), [path, good], tmp_path / "out", resume=True)
    assert (summary.is_complete, tasks, summary.traces) == (True, 1, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"places": ["nowhere"]}, "no data set at 'nowhere'"),
        ({"places": ["suite.yaml"]}, "no file that a batch reads"),
        ({"places": ["empty"]}, "nothing to read at 'empty'"),
        ({"places": ["none/*.parquet"]}, "no data set at"),
        ({"places": ["ftp://host/a.parquet"]}, "ftp:// cannot be read"),
        ({"places": ["s3://key:secret@bucket/a"]}, "a key does not belong into an address"),
        ({"places": ["s3://bucket/a?secret_key=secret"]}, "a key does not belong into an address"),
        ({"places": ["rowless"]}, "no row in 2 files"),
        ({"column": "recrd"}, "no column 'recrd'; nearest: 'record'"),
        ({"evidence_format": "mibbo"}, "unknown evidence format"),
        ({"output": "s3://bucket/out"}, "hand it over as text"),
        ({"output": "data"}, "is no output of a batch"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_unusable_settings_are_reported_at_once(
    wrong: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write_parquet(tmp_path / "rowless" / "a.parquet", [])
    write_lines(tmp_path / "rowless" / "b.jsonl", [])
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    options: dict[str, Any] = {"places": ["data"], "output": "out", **wrong}
    with pytest.raises(InputError, match=message) as caught:
        evaluate(write_suite(tmp_path), options.pop("places"), Path(options.pop("output")), **options)
    assert "secret" not in str(caught.value)


def test_the_folder_of_another_batch_is_refused_with_the_next_step(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    suite, output = write_suite(tmp_path), tmp_path / "out"
    evaluate(suite, [tmp_path / "data"], output)
    with pytest.raises(InputError, match="another data set, or of one read in another way"):
        evaluate(suite, [tmp_path / "data" / "a.parquet"], output)
    with pytest.raises(InputError, match="results of the suite 'Shop', not of 'Other'; name a new folder with --output"):
        evaluate(write_suite(tmp_path, text=SUITE.replace("Shop", "Other")), [tmp_path / "data"], output)
    manifest = json.loads((output / "manifest.json").read_text())
    (output / "manifest.json").write_text(json.dumps({**manifest, "version": "0.0.1"}))
    with pytest.raises(InputError, match=r"written by proctor 0\.0\.1"):
        evaluate(write_suite(tmp_path), [tmp_path / "data"], output)
    (output / "manifest.json").write_text(json.dumps({**manifest, "format": "proctor.batch/9"}))
    with pytest.raises(InputError, match="another version"):
        evaluate(suite, [tmp_path / "data"], output)


def test_claims_in_plain_language_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    judged = "proctor: 1\nname: J\ncases:\n  - id: a\n    expect: {judged: {criteria: is friendly}}\n"
    with pytest.raises(InputError, match="give it a limit: --judge-sample"):
        evaluate(write_suite(tmp_path, text=judged), [tmp_path / "data"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_results_inside_the_data_set_are_no_data(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    for expected in (1, 0):
        assert evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "data" / "out")[1] == expected


def test_a_full_disk_leaves_no_partial_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from proctor.batches import output_store

    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1), "{"])

    put = output_store.LocalStore.put

    def refuse(store: output_store.LocalStore, part: Path, name: str) -> None:
        if part.name.startswith(".part-"):
            raise OSError(errno.ENOSPC, "No space left on device")
        put(store, part, name)

    monkeypatch.setattr(output_store.LocalStore, "put", refuse)
    with pytest.raises(InputError, match="No space left on device; committed results stay"):
        evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")
    assert not list((tmp_path / "out" / "results").iterdir()) and not list((tmp_path / "out" / "errors").iterdir())
    monkeypatch.undo()
    assert evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out", resume=True)[0].is_complete


def test_two_batches_on_one_folder_refuse_each_other(tmp_path: Path) -> None:
    from proctor.batches.output_folder import OutputFolder

    write_parquet(tmp_path / "data" / "a.parquet", [make_trace(1)])
    with OutputFolder(tmp_path / "out").lock(), pytest.raises(InputError, match="another batch is at work in"):
        evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")
    assert evaluate(write_suite(tmp_path), [tmp_path / "data"], tmp_path / "out")[0].is_complete


def test_files_written_by_zstd_are_read(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "a.jsonl", [make_trace(number) for number in range(9)])
    subprocess.run(["zstd", "-q", str(plain), "-o", str(tmp_path / "b.jsonl.zst")], check=True)
    evaluate(write_suite(tmp_path), [tmp_path / "b.jsonl.zst"], tmp_path / "out")
    assert len(read_results(tmp_path / "out")) == 18
