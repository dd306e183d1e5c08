"""Rows of a table of spans that cannot be read: the column with the ids of traces is often whole, and tells whose they were."""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import fold_id

TRACE_COLUMNS = ("context.trace_id", "trace_id", "traceId")
"""What the id of a trace is called in tables of spans."""
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
_ID_BYTES = (8, 16)
"""How many bytes the ids of spans and traces have."""


class LostRows(EvidenceError):
    """Rows that cannot be read, with the traces whose spans they are; None where nobody knows."""

    def __init__(self, message: str, *, code: str, traces: frozenset[str] | None) -> None:
        super().__init__(message, code=code)
        self.traces = traces


def read_lost_traces(opened: Any, group: int, first: int) -> frozenset[str] | None:
    """Return the traces of the rows of a row group from `first` on; None where their ids cannot be read, or one is missing."""
    name = _find_column(opened.schema_arrow.names)
    if name is None:
        return None
    try:
        return find_traces(opened.read_row_group(group, columns=[name], use_threads=False).slice(first))
    except (OSError, ValueError, NotImplementedError):  # what made the rows unreadable may concern this column, too
        return None


def find_traces(rows: Any) -> frozenset[str] | None:
    """Return the traces of some rows; None where their ids cannot be read, or one is missing."""
    name = _find_column(rows.schema.names)
    if name is None:
        return None
    try:
        return _fold_ids(rows.column(name).to_pylist())
    except ValueError:
        return None


def find_row_trace(row: dict[str, Any]) -> frozenset[str] | None:
    """Return the trace of one row; None where its id cannot be read, or is missing."""
    name = _find_column(list(row))
    try:
        return None if name is None else _fold_ids([row[name]])
    except ValueError:
        return None


def _fold_ids(ids: list[Any]) -> frozenset[str] | None:
    """Return ids as the rows that can be read tell them: under another spelling nobody would find the trace."""
    found = [fold_id(write_id(id) if isinstance(id, bytes) else str(id)) for id in ids if id]
    return frozenset(found) if len(found) == len(ids) else None


def write_id(data: bytes) -> str:
    """Return an id that stands in a column of bytes: as OTLP writes it, where it is none of text already. Raises `UnicodeDecodeError`."""
    return data.hex() if len(data) in _ID_BYTES and not _HEXADECIMAL.issuperset(data) else data.decode()


def _find_column(names: list[str]) -> str | None:
    return next((name for name in TRACE_COLUMNS if name in names), None)
