"""What must hold of tables of spans that the real Arize Phoenix and the real MLflow wrote: the same evidence as over OTLP.

They are held to it as they are committed (`test_real_span_tables.py`), and as the installed clients write them now
(`tests/platforms/test_span_tables.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from proctor.evidence.otlp import read_batches, read_request
from proctor.model.evidence import Evidence, Source
from proctor.sources.dataset_cells import read_cells
from proctor.sources.dataset_files import list_files
from proctor.sources.dataset_plan import plan_partitions
from proctor.sources.records import RecordReader
from tests.batches.batch_world import evaluate, read_errors, read_results, write_lines, write_suite
from tests.batches.span_world import SPAN_SUITE, read_recording, write_requests
from tests.batches.test_batch_spans import tell


def read_table(path: Path) -> list[bytes]:
    """The records of a table as a batch reads them."""
    found: list[bytes] = []
    for partition in plan_partitions(list_files([str(path)])):
        for cells in read_cells(partition):
            found += [cell for cell in cells.records if isinstance(cell, bytes)]
    return found


def tell_run(evidence: Evidence, *, model: bool = True) -> tuple[Any, ...]:
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
    # Phoenix gives them in an order of its own; a trace is what it is in any.
    found = sorted(repr(tell_run(one)) for one in read_batches([spans]))
    sent = sorted(repr(tell_run(one)) for one in read_batches([read_recording("langchain-0-oi")]))
    assert found == sent and len(found) > 3
    suite = write_suite(folder, text=SPAN_SUITE)
    lines = write_lines(folder / "otlp.jsonl", write_requests("langchain-0-oi"))
    evaluate(suite, [lines], folder / "of-otlp")
    summary, _ = evaluate(suite, [tables / "phoenix.parquet"], folder / "of-table", partition_bytes=5_000)
    assert summary.traces > 3 and not read_errors(folder / "of-table")
    assert tell(folder / "of-table") == tell(folder / "of-otlp")


def check_mlflow(tables: Path, folder: Path) -> None:
    """The traces of MLflow are the evidence that it sent."""
    requests = json.loads((tables / "mlflow-otlp.json").read_text())
    reader = RecordReader(None, holds_spans=False)
    runs = [one for record in read_table(tables / "mlflow.parquet") for one in reader.read_record(record, Source())]
    # MLflow finds out the model when it keeps a trace, and has sent it before that.
    found = {one.evidence.input: tell_run(one.evidence, model=False) for one in runs if one.evidence is not None}
    sent = [span for request in requests for span in read_request(request)]
    assert found == {one.input: tell_run(one, model=False) for one in read_batches([sent])}
    assert len(found) == pq.read_metadata(tables / "mlflow.parquet").num_rows == 3
    suite = write_suite(folder, text=SPAN_SUITE)
    evaluate(suite, [tables / "mlflow.parquet"], folder / "out")
    assert [row["outcome"] for row in read_results(folder / "out") if row["case"] == "looked-up"] == ["pass"] * 3
