"""The results of a partition as a Parquet file, one row for every trace and case with its verdicts nested in it, and its errors as another.

Nearly all traces pass with identical verdicts (the checks return one object for a plain pass), so the columns of each distinct result are
written once and repeated by Arrow; only values that differ between traces are handled in Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proctor.batches.sketch import Sketch
from proctor.model.batch import TracePlace
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import is_integer
from proctor.model.result import CaseResult
from proctor.sources.datasets.columns import ID_NAMES
from proctor.sources.datasets.files import import_arrow

ROWS_AT_ONCE = 16_384
"""Rows that are buffered and written together."""
ERRORS_AT_ONCE = 10_000
"""The same for errors: an unreadable file must not fill the memory."""


def make_schema(carry: Sequence[str] = ()) -> Any:
    """Return the columns of `results`, including those carried over from the data set."""
    arrow = import_arrow("pyarrow")
    text, integer, number = arrow.string(), arrow.int64(), arrow.float64()
    verdict = arrow.struct([("check", text), ("outcome", text), ("score", number), ("code", text), ("reason", text), ("path", text)])
    return arrow.schema(
        [
            *(("trace", text), ("file", text), ("row", integer), ("offset", integer), ("run", arrow.int32())),
            *(("case", text), ("outcome", text), ("score", number), ("code", text), ("reason", text)),
            ("verdicts", arrow.list_(verdict)),
            *(("model", text), ("at", text), ("duration_ms", number), ("input_tokens", integer), ("output_tokens", integer)),
            *(("cost", number), ("currency", text)),
            *((name, text) for name in carry),
        ]
    )


def find_trace_id(metadata: dict[str, Json]) -> str | None:
    """Return the trace id of a recording, if it has one."""
    for key in ID_NAMES:
        id = metadata.get(key)
        if isinstance(id, str) or is_integer(id):
            return str(id)
    return None


class ResultTable:
    """Gathers the rows of one partition, writes them in groups, and counts them for the sketch."""

    def __init__(self, path: Path, file: str | None, sketch: Sketch, carry: Sequence[str] = ()) -> None:
        """Without `file`, the rows come from several files, and `file` is set before each row."""
        self._arrow, parquet = import_arrow("pyarrow"), import_arrow("pyarrow.parquet")
        self.file, self._sketch = file or "", sketch
        self._one_file = file is not None
        self.schema, self._carry = make_schema(carry), carry
        self._writer = parquet.ParquetWriter(path, self.schema, compression="zstd")
        self._begin_group()

    def _begin_group(self) -> None:
        # A kind is a distinct result, which many rows repeat; the lists have one entry per row.
        self._kinds: list[tuple[CaseResult, TracePlace | None]] = []
        self._by_verdicts: dict[int, int] = {}
        self._by_parts: dict[tuple[object, ...], int] = {}
        self._kind_numbers: list[int] = []
        self._files: list[str] = []
        self._rows: list[int | None] = []
        self._offsets: list[int | None] = []
        self._runs: list[int] = []
        self._traces: list[str | None] = []
        self._evidence: list[tuple[Json, ...]] = []
        self._costs: dict[int, CaseResult] = {}
        self._carried: list[Sequence[str | None]] = []

    def add(
        self,
        result: CaseResult,
        evidence: Evidence,
        row: int | None,
        offset: int | None,
        run: int = 0,
        trace: str | None = None,
        carried: Sequence[str | None] = (),
    ) -> None:
        """Add the row of one result; `trace` is the id from a separate column, `carried` has the carried values."""
        if self._carry:
            self._carried.append(carried)
        kind = self._by_verdicts.get(id(result.verdicts))
        if trace is None and evidence.metadata:
            trace = find_trace_id(evidence.metadata)
        if kind is None or result.outcome != "pass" or result.code is not None:
            kind = self._find_kind(result, row, offset, trace)
        if result.cost is not None:
            self._costs[len(self._kind_numbers)] = result
        self._kind_numbers.append(kind)
        if not self._one_file:
            self._files.append(self.file)
        self._rows.append(row)
        self._offsets.append(offset)
        self._runs.append(run)
        self._traces.append(trace)
        usage = evidence.usage
        tokens = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        self._evidence.append((evidence.model, evidence.now or result.now, evidence.duration_ms, *tokens))
        if len(self._kind_numbers) >= ROWS_AT_ONCE:
            self.flush()

    def _find_kind(self, result: CaseResult, row: int | None, offset: int | None, trace: str | None) -> int:
        is_plain_pass = result.outcome == "pass" and result.code is None and result.reason is None
        # The same verdict objects of the same case make the same row; they are referenced, so that their `id()` is not reused.
        key = (id(result.case), *map(id, result.verdicts))
        known = self._by_parts.get(key) if is_plain_pass else None
        if known is None:
            place = None if is_plain_pass else TracePlace(file=self.file, row=row, offset=offset, trace=trace)
            known = len(self._kinds)
            self._kinds.append((result, place))
            if is_plain_pass:
                self._by_parts[key] = known
                # All cases share one empty tuple.
                if result.verdicts:
                    self._by_verdicts[id(result.verdicts)] = known
        return known

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._kind_numbers:
            return
        arrow, count = self._arrow, len(self._kind_numbers)
        for kind, number in Counter(self._kind_numbers).items():
            self._sketch.count(self._kinds[kind][0], number, self._kinds[kind][1])
        kinds = arrow.RecordBatch.from_pylist(
            [_write_kind(result) for result, _ in self._kinds],
            schema=self._arrow.schema([self.schema.field(name) for name in ("case", "outcome", "score", "code", "reason", "verdicts")]),
        )
        repeated = kinds.take(arrow.array(self._kind_numbers, arrow.int32()))
        columns = {name: repeated.column(name) for name in repeated.schema.names}
        model, at, duration, tokens_in, tokens_out = zip(*self._evidence, strict=True)
        total = [self._find_cost(number) for number in range(count)] if self._costs else [(None, None)] * count
        cost, currency = zip(*total, strict=True)
        columns |= {"row": self._rows, "offset": self._offsets, "run": self._runs, "duration_ms": duration, "cost": cost}
        untrusted = {"trace": self._traces, "model": model, "at": at, "currency": currency}
        untrusted |= {"input_tokens": tokens_in, "output_tokens": tokens_out}
        # A recording may have any number of tokens, and half a surrogate pair in the name of a model.
        columns |= {
            name: [_fit(value) if type(value) is str or type(value) is int else value for value in values]
            for name, values in untrusted.items()
        }
        columns |= dict(zip(self._carry, zip(*self._carried, strict=True), strict=True)) if self._carry else {}
        columns["file"] = arrow.repeat(self.file, count) if self._one_file else arrow.array(self._files, arrow.string())
        arrays = [
            column if isinstance(column := columns[field.name], arrow.Array) else arrow.array(column, field.type) for field in self.schema
        ]
        self._writer.write_table(arrow.Table.from_arrays(arrays, schema=self.schema))
        self._begin_group()

    def _find_cost(self, number: int) -> tuple[float | None, str | None]:
        result = self._costs.get(number)
        total = result.cost.total() if result is not None and result.cost is not None else None
        return (None, None) if total is None or result is None or result.cost is None else (total, result.cost.currency)

    def finish(self, metadata: dict[bytes, bytes]) -> None:
        """Write the remaining rows, and the metadata of the file."""
        self.flush()
        self._writer.add_key_value_metadata(metadata)
        self._writer.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        self._writer.close()


def _fit(value: str | int) -> str | int | None:
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _write_kind(result: CaseResult) -> dict[str, Any]:
    verdicts = [
        {
            "check": assertion.id or assertion.label or assertion.check,
            "outcome": verdict.outcome,
            "score": verdict.score,
            "code": verdict.code,
            "reason": _fit(verdict.reason),
            "path": _fit(verdict.pointers[0]) if verdict.pointers else None,
        }
        for assertion, verdict in zip(result.case.assertions, result.verdicts, strict=False)
    ]
    reason = None if result.reason is None else _fit(result.reason)
    return {
        "case": _fit(result.case.id),
        "outcome": result.outcome,
        "score": result.score,
        "code": result.code,
        "reason": reason,
        "verdicts": verdicts,
    }


class ErrorTable:
    """Gathers the rows of one partition; there is a file only where there are rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: Any = None
        self._rows: list[dict[str, Json]] = []

    def add(self, row: dict[str, Json]) -> None:
        """Add one row."""
        self._rows.append(row)
        if len(self._rows) >= ERRORS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        arrow, parquet = import_arrow("pyarrow"), import_arrow("pyarrow.parquet")
        text, integer = arrow.string(), arrow.int64()
        schema = arrow.schema([("file", text), ("row", integer), ("offset", integer), ("rows", integer), ("code", text), ("reason", text)])
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self.path, schema, compression="zstd")
        self._writer.write_table(arrow.Table.from_pylist(self._rows, schema=schema))
        self._rows.clear()

    def finish(self) -> Path | None:
        """Write what is left; returns the file, if there were any rows."""
        if self._rows:
            self._flush()
        self.close()
        return None if self._writer is None else self.path

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._writer is not None:
            self._writer.close()
