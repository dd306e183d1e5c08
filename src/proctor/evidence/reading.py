"""Recorded evidence in, `Evidence` out: the entry points of this package. Nothing here opens files.

Plain evidence in our own spelling is read at once (`fast_lines`). Everything else goes to `recognise`, which reads all formats and is
loaded when it is first needed. Records in a user's own format are read by their mapping (`proctor.evidence.mapping`).
"""

from __future__ import annotations

from typing import cast

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span
from proctor.evidence.plain.fast_lines import decode_line
from proctor.evidence.values.json_bytes import decode, exceeds_depth, too_deep_error
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import join_surrogates
from proctor.model.mapping import EvidenceMap

__all__ = ["find_spans", "read_bytes", "read_document", "read_line"]


def read_document(value: Json, *, format: str | None = None, mapping: EvidenceMap | None = None) -> list[Evidence]:
    """Return all evidence in one decoded document, read by a mapping if there is one."""
    try:
        return _read_value(value, format, mapping)
    except UnicodeEncodeError:
        # Half of a surrogate pair, in a document that a program made. Read from a file it would have been replaced.
        return _read_value(_mend_texts(value), format, mapping)


def _read_value(value: Json, format: str | None, mapping: EvidenceMap | None) -> list[Evidence]:
    if mapping is not None:
        return _read_mapped(value, format, mapping)
    from proctor.evidence.recognise import read_value  # loads a reader per format

    return read_value(value, format)


def _read_mapped(value: Json, format: str | None, paths: EvidenceMap) -> list[Evidence]:
    from proctor.evidence.mapping.read import compile_mapping  # most evidence needs no mapping

    mapping = compile_mapping(paths)
    if exceeds_depth(value):
        raise too_deep_error()
    if mapping.has_run and format is None:
        return mapping.read_all(value)
    # What the agent said and did is read as in any record of its format; the mapping adds to it.
    entries = value if isinstance(value, list) and not _is_one_run(value) else [value]
    found = [(entry, read_document(entry, format=format)) for entry in entries]
    return [mapping.add_to(evidence, entry) for entry, read in found for evidence in read]


def _is_one_run(value: list[Json]) -> bool:
    return not all(_is_plain(entry) for entry in value)


def _mend_texts(value: Json) -> Json:
    """Return the document with every half of a character replaced; the caller has checked its depth."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, list):
        return [_mend_texts(one) for one in cast(list[Json], value)]
    if isinstance(value, dict):
        members = {str(_mend_texts(key)): _mend_texts(one) for key, one in cast(dict[str, Json], value).items()}
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
    """Read what a caller sent: one recorded run or a list of them, as JSON or as text; text may be JSON lines."""
    if not isinstance(sent, str):
        if mapping is not None:
            return read_document(sent, format=format, mapping=mapping)
        if format is None and isinstance(sent, list) and sent and all(_is_plain(entry) for entry in cast(list[Json], sent)):
            return [one for entry in cast(list[Json], sent) for one in read_document(entry)]
        return read_document(sent, format=format)
    data = sent.encode("utf-8", errors="replace")
    try:
        return read_bytes(data, format=format, mapping=mapping)
    except EvidenceError:
        # Tried only after the whole failed as one document: one pretty-printed document has many lines, too, and each line alone is broken.
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        if mapping is not None:
            return read_document([decode(line) for line in lines], format=format, mapping=mapping)
        return [one for line in lines for one in read_bytes(line, format=format)]


def _is_plain(entry: Json) -> bool:
    # A list of messages is one run; a list of runs says of each what it answered or did.
    return (
        isinstance(entry, dict) and "role" not in entry and not {"text", "body", "tool_calls", "state", "turns", "case"}.isdisjoint(entry)
    )


def read_line(line: bytes, *, mapping: EvidenceMap | None = None) -> Evidence | list[Evidence]:
    """Return the evidence on one line of JSONL; an empty list for lines that are none (blank, or a trace's header)."""
    evidence = decode_line(line) if mapping is None else None
    if evidence is not None:
        return evidence
    if not line.strip():
        return []
    found = read_bytes(line, mapping=mapping)
    return found[0] if len(found) == 1 else found


def find_spans(value: Json, *, format: str | None = None) -> list[Span] | None:
    """Return the spans of an OTLP document, of a list of them, or of a row of spans, to merge traces over several; None for others."""
    from proctor.evidence.tables.read import SPAN_TABLES, read_rows
    from proctor.evidence.traces.read_otlp import read_request, sniff  # loads what reads spans

    # A list of rows in one record is a whole trace, which waits for no other.
    if format in SPAN_TABLES:
        return read_rows(value, SPAN_TABLES[format]) if isinstance(value, dict) else None

    if isinstance(value, list) and value and all(sniff(entry) for entry in value):
        return [span for index, entry in enumerate(value) for span in read_request(entry, f"$[{index}]")]
    if sniff(value):
        return read_request(value)
    return read_rows(value) if format is None and isinstance(value, dict) else None
