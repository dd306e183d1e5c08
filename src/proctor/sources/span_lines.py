"""Recognises from the beginning of a file of JSON lines whether its records are parts of traces."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.errors import EvidenceError
from proctor.model.lazy_pattern import lazy_pattern

SPAN_FORMATS = frozenset(("otlp", "phoenix", "langfuse", "langsmith", "spans"))
"""Formats in which a record may be a part of a trace."""
OTLP_WORDS = (b"resourceSpans", b"resource_spans", b"resourceLogs", b"resource_logs")
_ROW_WORDS = (b'"context.trace_id"', b'"span_kind"', b'"run_type"', b'"traceId"', b'"parent_observation_id"')
"""Keys that rows of spans have, and few other records."""
# A collector's file may contain all three.
_BOM = b"\xef\xbb\xbf"
_OTLP_BEGINNING = lazy_pattern(rb'\s*\{\s*"resource_?(?:Spans|spans|Logs|logs|Metrics|metrics)"')
_METRICS_BEGINNING = lazy_pattern(rb'\s*\{\s*"resource_?(?:Metrics|metrics)"')


def is_metrics(record: bytes) -> bool:
    """Return whether a record is an OTLP request with metrics, which has no trace."""
    return _METRICS_BEGINNING.match(record) is not None and not any(word in record for word in OTLP_WORDS)


def may_hold_rows(data: bytes) -> bool:
    """Return whether a record may be a row of spans, by the words in it."""
    if data[:64].removeprefix(_BOM).lstrip()[:1] not in (b"{", b"["):
        return False
    if any(word in data for word in _ROW_WORDS):
        return True
    # Spans in OTLP spelling: separate, not in a body that contains all of them.
    return (b'"span_id"' in data or b'"spanId"' in data) and b'"spans"' not in data and not any(word in data for word in OTLP_WORDS)


def begins_with_spans(head: bytes, format: str | None) -> bool | None:
    """Return whether the records of a file are parts of traces, by its beginning and the given format.

    Returns None where no line of the beginning can be read.
    """
    if format is not None:
        return format in SPAN_FORMATS
    head = head.removeprefix(_BOM)
    if not head.strip():
        return False
    return next(
        (answer for line, is_whole in _list_lines(head) if (answer := _is_line_of_spans(line, is_whole=is_whole)) is not None), None
    )


def _list_lines(head: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield each line that is not blank, and whether it is complete."""
    for line in head.splitlines(keepends=True):
        if not line.isspace():
            yield line, line.endswith(b"\n")


def _is_line_of_spans(line: bytes, *, is_whole: bool) -> bool | None:
    from proctor.evidence.reading import find_spans
    from proctor.evidence.values.json_bytes import decode  # only for the first lines of a file

    if _OTLP_BEGINNING.match(line):
        return True
    if may_hold_rows(line):
        try:
            return find_spans(decode(line)) is not None
        except EvidenceError:
            # An incomplete line, or an invalid row among others.
            return True if not is_whole or any(word in line for word in _ROW_WORDS) else None
    try:
        decode(line)
    except EvidenceError:
        return False if not is_whole and line.lstrip()[:1] in (b"{", b"[") else None
    return False
