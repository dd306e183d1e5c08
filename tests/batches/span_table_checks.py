"""Checks on span tables written by the real Arize Phoenix, MLflow, and SDKs of Langfuse and LangSmith: the same evidence as over OTLP.

They run on the committed tables (`test_real_span_tables.py`), and on those that the installed clients write now
(`tests/platforms/test_span_tables.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from proctor.evidence.traces.read_otlp import read_batches, read_request
from proctor.model.evidence import Evidence, Source
from proctor.sources.datasets.cells import read_cells
from proctor.sources.datasets.files import list_files
from proctor.sources.datasets.plan import plan_partitions
from proctor.sources.records import RecordReader
from tests.batches.batch_world import evaluate, read_errors, read_results, write_lines, write_suite
from tests.batches.span_world import SPAN_SUITE, read_recording, write_requests
from tests.batches.spans.test_spans import read_verdicts


def read_table(path: Path) -> list[bytes]:
    """The records of a table as a batch reads them."""
    found: list[bytes] = []
    for partition in plan_partitions(list_files([str(path)])):
        for cells in read_cells(partition):
            found += [cell for cell in cells.records if isinstance(cell, bytes)]
    return found


def summarize(evidence: Evidence, *, model: bool = True) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments, call.result, call.error) for call in evidence.tool_calls or ()]
    unknown = None if evidence.account is None else sorted(evidence.account.unknown)
    return (
        evidence.input,
        evidence.text,
        calls,
        evidence.usage,
        evidence.model if model else None,
        unknown,
        [node.name for node in evidence.nodes or ()],
    )


def check_phoenix(tables: Path, folder: Path) -> None:
    """The data frame of Phoenix is the evidence that was sent, and a batch over it gives the verdicts of OTLP."""
    reader = RecordReader(None)
    spans = [span for record in read_table(tables / "phoenix.parquet") for span in reader.find_spans(record) or ()]
    # Phoenix has its own order of spans; the order does not matter.
    found = sorted(repr(summarize(one)) for one in read_batches([spans]))
    sent = sorted(repr(summarize(one)) for one in read_batches([read_recording("langchain-0-oi")]))
    assert found == sent and len(found) > 3
    suite = write_suite(folder, text=SPAN_SUITE)
    lines = write_lines(folder / "otlp.jsonl", write_requests("langchain-0-oi"))
    evaluate(suite, [lines], folder / "of-otlp")
    summary, _ = evaluate(suite, [tables / "phoenix.parquet"], folder / "of-table", partition_bytes=5_000)
    assert summary.traces > 3 and not read_errors(folder / "of-table")
    assert read_verdicts(folder / "of-table") == read_verdicts(folder / "of-otlp")


def check_mlflow(tables: Path, folder: Path) -> None:
    """The traces of MLflow are the evidence that it sent."""
    requests = json.loads((tables / "mlflow-otlp.json").read_text())
    reader = RecordReader(None, holds_spans=False)
    runs = [one for record in read_table(tables / "mlflow.parquet") for one in reader.read_record(record, Source())]
    # MLflow finds out the model when it keeps a trace, and has sent it before that.
    found = {one.evidence.input: summarize(one.evidence, model=False) for one in runs if one.evidence is not None}
    sent = [span for request in requests for span in read_request(request)]
    assert found == {one.input: summarize(one, model=False) for one in read_batches([sent])}
    assert len(found) == pq.read_metadata(tables / "mlflow.parquet").num_rows == 3
    suite = write_suite(folder, text=SPAN_SUITE)
    evaluate(suite, [tables / "mlflow.parquet"], folder / "out")
    assert [row["outcome"] for row in read_results(folder / "out") if row["case"] == "looked-up"] == ["pass"] * 3


TRUTH = {
    "Where is order 17?": ("It has shipped.", [("lookup_order", {"id": 17})], [False]),
    "Where is order 18?": ("It has shipped.", [("lookup_order", {"id": 18})], [False]),
    "Where is order 19?": ("It could not be found.", [("lookup_order", {"id": 19})], [True]),
}
"""The questions, answers, calls and errors of the agent of `make_sdk_tables.py`."""
SDK_TABLES = {
    "langfuse": ("langfuse-api.jsonl", "langfuse-export.parquet"),
    "langsmith": ("langsmith-api.jsonl", "langsmith-frame.parquet", "langsmith-export.parquet"),
}


def check_sdk(name: str, tables: Path, folder: Path) -> None:
    """The traces of an SDK give the same, correct evidence in every table as over OTLP."""
    requests = json.loads((tables / f"{name}-otlp.json").read_text())
    sent = {one.input: summarize(one) for one in read_batches([[span for request in requests for span in read_request(request)]])}
    lines = write_lines(folder / "otlp.jsonl", requests)
    suite = write_suite(folder, text=SPAN_SUITE)
    evaluate(suite, [lines], folder / "of-otlp")
    expected = sorted((row["case"], row["outcome"]) for row in read_results(folder / "of-otlp"))
    parents: dict[str, str | None] = {}
    for file in SDK_TABLES[name]:
        spans = [span for record in read_table(tables / file) for span in RecordReader(None).find_spans(record) or ()]
        found = {one.input: one for one in read_batches([spans])}
        assert {question: summarize(one) for question, one in found.items()} == sent, file
        answers = {
            question: (one.text, [(call.name, call.arguments) for call in calls], [call.error is not None for call in calls])
            for question, one in found.items()
            if (calls := one.tool_calls) is not None
        }
        assert answers == TRUTH, file
        parents = parents or {span.id: span.parent_id for span in spans}
        assert {span.id: span.parent_id for span in spans} == parents and None in parents.values(), file
        output = folder / f"of-{file}"
        summary, _ = evaluate(suite, [tables / file], output, partition_bytes=5_000)
        assert (summary.traces, read_errors(output)) == (len(TRUTH), [])
        assert sorted((row["case"], row["outcome"]) for row in read_results(output)) == expected
        assert {"pass", "fail"} == {row["outcome"] for row in read_results(output)}


def check_langfuse(tables: Path, folder: Path) -> None:
    """Observations of Langfuse, from its API and from its export to blob storage."""
    check_sdk("langfuse", tables, folder)


def check_langsmith(tables: Path, folder: Path) -> None:
    """Runs of LangSmith, from its API, as a data frame and as its bulk export."""
    check_sdk("langsmith", tables, folder)
