"""Exports traces and results as Parquet files by day, for `proctor batch`, DuckDB and others.

    FOLDER/traces/day=2026-10-01/part-0.parquet     a row per trace, with the received data as `record`
    FOLDER/results/day=2026-10-01/part-0.parquet    a row per trace and case

A record is a received body, or the list of all spans of a trace. An unreadable trace has an empty record and an `error`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError, ProctorError
from proctor.evidence.otlp.spans import Span, SpanGroup
from proctor.model.evidence import Json
from proctor.service.decisions.trace_evidence import decode_groups, expand_pieces
from proctor.sources.datasets.files import import_arrow
from proctor.store.sql.compressed_json import expand_bytes, to_json
from proctor.store.sql.pages import Row, fetch_all
from proctor.store.sql.tables import agents, results, traces
from proctor.store.traces.traces import list_pieces

_ROWS_AT_ONCE = 100
"""Rows of one query."""
_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Bytes of records that are buffered."""
_TRACES = ("trace_id", "id", "project_id", "agent_id", "agent", "at", "format", "status", "outcome", "metadata", "error", "record")
_RESULTS = (
    "trace_id", "trace", "project_id", "agent_id", "agent", "at", "case_id", "case_version", "case", "outcome", "score",
    "verdict", "code", "result",
)  # fmt: skip


class ExportCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of exported rows."""

    traces: int
    results: int


async def export_parquet(connection: AsyncConnection, folder: Path) -> ExportCounts:
    """Export every trace and result into a new folder. Raises `InputError` if it is not empty."""
    import_arrow("pyarrow.parquet")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{str(folder)!r} already exists; choose a new folder")
    names: dict[str, str] = {row[0]: row[1] for row in (await connection.execute(sa.select(agents.c.id, agents.c.name))).all()}
    return ExportCounts(
        traces=await _export_traces(connection, folder / "traces", names),
        results=await _export_results(connection, folder / "results", names),
    )


async def _export_traces(connection: AsyncConnection, folder: Path, names: dict[str, str]) -> int:
    with _DayFiles(folder, _TRACES) as files:
        async for rows in _read_pages(connection, sa.select(traces), traces):
            pieces = await list_pieces(connection, rows)
            for row in rows:
                error, record = _write_record(pieces[row["id"]])
                columns = {name: row[name] for name in ("id", "project_id", "agent_id", "format", "status", "outcome")}
                columns |= {"trace_id": row["external_id"], "agent": names.get(row["agent_id"]), "at": row["created_at"], "record": record}
                files.add({**columns, "metadata": to_json(row["metadata"]).decode(), "error": error or row["error"]})
        return files.finish()


async def _export_results(connection: AsyncConnection, folder: Path, names: dict[str, str]) -> int:
    query = sa.select(results, traces.c.external_id).join(traces, traces.c.id == results.c.trace_id, isouter=True)
    with _DayFiles(folder, _RESULTS) as files:
        async for rows in _read_pages(connection, query, results):
            for row in rows:
                columns = {
                    name: row[name] for name in ("project_id", "agent_id", "case_id", "case_version", "outcome", "score", "verdict", "code")
                }
                columns |= {"trace_id": row["external_id"], "trace": row["trace_id"], "agent": names.get(row["agent_id"])}
                files.add({**columns, "at": row["created_at"], "case": row["case_key"], "result": expand_bytes(row["body"]).decode()})
        return files.finish()


async def _read_pages(connection: AsyncConnection, query: sa.Select[Any], table: sa.Table) -> AsyncGenerator[list[Row]]:
    order = (table.c.created_at, table.c.id)
    last = ("", "")
    # After the last row, not by offset: every page costs the same, and concurrent deletions skip nothing.
    while rows := await fetch_all(
        connection, query.where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, last))).order_by(*order).limit(_ROWS_AT_ONCE)
    ):
        yield rows
        last = (rows[-1]["created_at"], rows[-1]["id"])


def _write_record(pieces: Sequence[bytes]) -> tuple[str | None, str | None]:
    """Return the reason of a missing record, and the record."""
    spans: list[dict[str, Json]] = []
    body: bytes | None = None
    try:
        for data in expand_pieces(pieces):
            if data[:1] == b"[":
                spans += [_write_span(span, group) for group in decode_groups(data) for span in group.spans]
            else:
                body = data
    except ProctorError as error:
        return str(error), None
    record = to_json(spans) if spans else body
    return (None, record.decode()) if record is not None else ("no data is stored", None)


def _write_span(span: Span, group: SpanGroup) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "trace_id": span.trace_id,
        "span_id": span.id,
        "parent_span_id": span.parent_id,
        "name": span.name,
        "kind": "SPAN_KIND_CLIENT" if span.is_remote else "SPAN_KIND_SERVER" if span.is_entry else None,
        "start_time_unix_nano": span.start_ns,
        "end_time_unix_nano": span.end_ns,
        "attributes": span.attributes,
        "status": {"code": 2 if span.failed else 0, **({"message": span.message} if span.message else {})},
        "events": [{"name": event.name, "attributes": event.attributes} for event in span.events],
        "resource": group.resource or span.resource,
        "scope": {"name": span.scope},
        "case": span.case,
        "dropped_attributes_count": span.dropped,
    }
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


class _DayFiles:
    """Writes rows in order of days, one file per day, which gets its name when it is complete."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names
        self._day = ""
        self._writer: Any = None
        self._rows: list[dict[str, Any]] = []
        self._size = self._count = 0

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; its day is that of `at`."""
        day = str(row["at"])[:10]
        if day != self._day:
            self._end_day()
            self._day = day
        self._rows.append(row)
        self._count += 1
        self._size += len(row.get("record") or row.get("result") or "")
        if self._size > _BYTES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        arrow, parquet = import_arrow("pyarrow"), import_arrow("pyarrow.parquet")
        kinds = {"case_version": arrow.int64(), "score": arrow.float64()}
        # Explicit, since pyarrow would guess another type for a column of nulls.
        schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in self._names])
        if self._writer is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._part, schema, compression="zstd")
        self._writer.write_table(arrow.Table.from_pylist(self._rows, schema=schema))
        self._rows.clear()
        self._size = 0

    @property
    def _file(self) -> Path:
        return self._folder / f"day={self._day}" / "part-0.parquet"

    @property
    def _part(self) -> Path:
        return self._file.with_name(".part-0.parquet.tmp")

    def _end_day(self) -> None:
        if self._rows:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._part.replace(self._file)

    def finish(self) -> int:
        """Write the remaining rows and return the number of rows."""
        self._end_day()
        return self._count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()
