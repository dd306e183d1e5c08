"""Writes the traces and results of the service as Parquet files, by the day on which they came: for `proctor batch`, DuckDB and others.

    FOLDER/traces/day=2026-10-01/part-0.parquet     a row for each trace, with what was received as `record`
    FOLDER/results/day=2026-10-01/part-0.parquet    a row for each trace and case

A record is a body as it came, or the list of all spans of a trace, which is read as they were. A trace that cannot be read any more has an
empty record, and `error` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError, ProctorError
from proctor.evidence.otlp.spans import Span, SpanGroup
from proctor.model.evidence import Json
from proctor.service.decisions.trace_evidence import decode_groups, expand_pieces
from proctor.sources.datasets.files import import_arrow
from proctor.store.sql.compressed_json import expand_bytes, to_json
from proctor.store.sql.tables import agents, results, traces
from proctor.store.traces.traces import list_pieces

_ROWS_AT_ONCE = 100
"""Rows that are asked for together."""
_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Bytes of records that are held before they are written."""
_TRACES = ("trace_id", "id", "project_id", "agent_id", "agent", "at", "format", "status", "outcome", "metadata", "error", "record")
_RESULTS = (
    *("trace_id", "trace", "project_id", "agent_id", "agent", "at", "case_id", "case_version", "case", "outcome", "score"),
    *("verdict", "code", "result"),
)


class ExportCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    traces: int
    results: int


async def export_parquet(connection: AsyncConnection, folder: Path) -> ExportCounts:
    """Write every trace and result into a new folder. Raises `InputError` where it holds something already."""
    import_arrow("pyarrow.parquet")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{str(folder)!r} is there already; name a new folder")
    names: dict[str, str] = {row[0]: row[1] for row in (await connection.execute(sa.select(agents.c.id, agents.c.name))).all()}
    return ExportCounts(
        traces=await _export_traces(connection, folder / "traces", names),
        results=await _export_results(connection, folder / "results", names),
    )


async def _export_traces(connection: AsyncConnection, folder: Path, names: dict[str, str]) -> int:
    files = _DayFiles(folder, _TRACES)
    last: tuple[str, str] = ("", "")
    try:
        while rows := await _read_page(connection, sa.select(traces), traces, last):
            pieces = await list_pieces(connection, rows)
            for row in rows:
                error, record = _write_record(pieces[row["id"]])
                told = {name: row[name] for name in ("id", "project_id", "agent_id", "format", "status", "outcome")}
                told |= {"trace_id": row["external_id"], "agent": names.get(row["agent_id"]), "at": row["created_at"], "record": record}
                files.add({**told, "metadata": to_json(row["metadata"]).decode(), "error": error or row["error"]})
            last = (rows[-1]["created_at"], rows[-1]["id"])
        return files.finish()
    finally:
        files.close()


async def _export_results(connection: AsyncConnection, folder: Path, names: dict[str, str]) -> int:
    files = _DayFiles(folder, _RESULTS)
    query = sa.select(results, traces.c.external_id).join(traces, traces.c.id == results.c.trace_id, isouter=True)
    last: tuple[str, str] = ("", "")
    try:
        while rows := await _read_page(connection, query, results, last):
            for row in rows:
                told = {
                    name: row[name] for name in ("project_id", "agent_id", "case_id", "case_version", "outcome", "score", "verdict", "code")
                }
                told |= {"trace_id": row["external_id"], "trace": row["trace_id"], "agent": names.get(row["agent_id"])}
                files.add({**told, "at": row["created_at"], "case": row["case_key"], "result": expand_bytes(row["body"]).decode()})
            last = (rows[-1]["created_at"], rows[-1]["id"])
        return files.finish()
    finally:
        files.close()


async def _read_page(connection: AsyncConnection, query: sa.Select[Any], table: sa.Table, last: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the next rows in the order in which they came."""
    # Behind the last row and not by an offset: every page costs the same, and what is deleted meanwhile makes none be left out.
    behind = sa.or_(table.c.created_at > last[0], sa.and_(table.c.created_at == last[0], table.c.id > last[1]))
    found = await connection.execute(query.where(behind).order_by(table.c.created_at, table.c.id).limit(_ROWS_AT_ONCE))
    return [dict(row) for row in found.mappings()]


def _write_record(pieces: Sequence[bytes]) -> tuple[str | None, str | None]:
    """Return why there is no record, and the record."""
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
    return (None, record.decode()) if record is not None else ("nothing is kept of it", None)


def _write_span(span: Span, group: SpanGroup) -> dict[str, Json]:
    told: dict[str, Json] = {
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
    return {name: value for name, value in told.items() if value not in (None, [], {})}


class _DayFiles:
    """Rows in the order of their days, a file for each; a file has its name when it is whole."""

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
        # Spelt out: of a batch that holds only nulls in a column pyarrow would guess another type, and it would not fit into the file.
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
        """Write what is left; returns how many rows there were."""
        self._end_day()
        return self._count

    def close(self) -> None:
        """Give the file back, whole or not."""
        if self._writer is not None:
            self._writer.close()
