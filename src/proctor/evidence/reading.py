"""The entry points of this package: recorded evidence in, `Evidence` out. Nothing here opens files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.plain.fast_lines import decode_line
from proctor.evidence.values.json_bytes import decode, too_deep_error
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import exceeds_depth, join_surrogates
from proctor.model.mapping import EvidenceMap, list_paths

if TYPE_CHECKING:
    from proctor.evidence.otlp.spans import Span


def read_document(value: Json, *, format: str | None = None, mapping: EvidenceMap | None = None) -> list[Evidence]:
    """Return all evidence in one decoded document, read by a mapping if there is one."""
    try:
        if mapping is not None:
            return _read_mapped(value, format, mapping)
        from proctor.evidence.recognise import read_value  # loads a reader per format

        return read_value(value, format)
    except UnicodeEncodeError:
        # Half a surrogate pair in a document built by a program; in a file it would have been replaced.
        return read_document(_mend_texts(value), format=format, mapping=mapping)


def _read_mapped(value: Json, format: str | None, paths: EvidenceMap) -> list[Evidence]:
    from proctor.evidence.mapping.read import compile_mapping  # most evidence needs no mapping

    mapping = compile_mapping(paths)
    if exceeds_depth(value):
        raise too_deep_error()
    records = mapping.open_records(value)
    if records is not None:
        inner = msgspec.structs.replace(paths, record=None)
        # If there are no other paths, each record is read separately.
        paths_inside = inner if list_paths(inner) else None
        found = [(one, why) for entry, why in records for one in read_document(entry, format=format, mapping=paths_inside)]
        return [one if why is None or one.error else msgspec.structs.replace(one, error=why) for one, why in found]
    if mapping.has_run and format is None:
        return mapping.read_all(value)
    # The mapping adds to what is read from a record of a known format.
    entries = value if isinstance(value, list) and all(map(_is_plain, value)) else [value]
    if mapping.group is not None and isinstance(value, list):
        entries = list[Json](mapping.split_runs(value))
    found = [(entry, read_document(entry, format=format)) for entry in entries]
    return [mapping.add_to(evidence, entry) for entry, read in found for evidence in read]


def _mend_texts(value: Json) -> Json:
    """Return the document with every half surrogate pair replaced; the caller has checked its depth."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, list):
        return list(map(_mend_texts, value))
    if isinstance(value, dict):
        members = {str(_mend_texts(key)): _mend_texts(member) for key, member in value.items()}
        if len(members) != len(value):
            raise EvidenceError("keys of an object differ only in halves of characters, which no text can carry")
        return members
    return value


def read_bytes(data: bytes, *, format: str | None = None, mapping: EvidenceMap | None = None) -> list[Evidence]:
    """Return all evidence in one document as bytes: JSON text, or OTLP protobuf."""
    if mapping is not None:
        return read_document(decode(data), format=format, mapping=mapping)
    if format is None:
        evidence = decode_line(data)
        if evidence is not None:
            return [evidence]
    from proctor.evidence.recognise import read_data  # loads a reader per format

    return read_data(data, format)


def read_sent(sent: Json, *, format: str | None = None, mapping: EvidenceMap | None = None) -> list[Evidence]:
    """Read a caller's input: one recorded run or a list of runs, as JSON or text; text may be JSON lines."""
    if not isinstance(sent, str):
        if mapping is None and format is None and isinstance(sent, list) and sent and all(map(_is_plain, sent)):
            return [one for entry in sent for one in read_document(entry)]
        return read_document(sent, format=format, mapping=mapping)
    data = sent.encode("utf-8", errors="replace")
    try:
        return read_bytes(data, format=format, mapping=mapping)
    except EvidenceError:
        # Tried only if the input is not one document: a pretty-printed document also has many lines, none of which is valid JSON.
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        if mapping is not None:
            return read_document([decode(line) for line in lines], format=format, mapping=mapping)
        return [one for line in lines for one in read_bytes(line, format=format)]


def _is_plain(entry: Json) -> bool:
    # A list of messages is one run; each entry of a list of runs has an answer or calls.
    return (
        isinstance(entry, dict) and "role" not in entry and not {"text", "body", "tool_calls", "state", "turns", "case"}.isdisjoint(entry)
    )


def find_spans(value: Json, *, format: str | None = None) -> list[Span] | None:
    """Return the spans of an OTLP document, a list of them or a row of spans, so that traces can be merged across documents; else None."""
    from proctor.evidence.tables.read import SPAN_TABLES, read_rows
    from proctor.evidence.traces.read_otlp import read_request, sniff  # loads the span readers

    # A list of rows in one record is a complete trace.
    if format in SPAN_TABLES:
        return read_rows(value, SPAN_TABLES[format]) if isinstance(value, dict) else None

    if isinstance(value, list) and value and all(sniff(entry) for entry in value):
        return [span for index, entry in enumerate(value) for span in read_request(entry, f"$[{index}]")]
    if sniff(value):
        return read_request(value)
    return read_rows(value) if format is None and isinstance(value, dict) else None
