"""Reads the evidence of a trace from its stored pieces.

A piece that is a list contains spans by resource; a piece that is an object is a received body. Spans in several pieces are merged by id:
the latest wins. For a body of the second generation, an agent may have a `response_path` to the text of its answers, or `evidence` with a
mapping of the body and the complete parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from proctor.errors import EvidenceError, InputError, StoreError
from proctor.evidence import mibo
from proctor.evidence.otlp.spans import Span, SpanGroup, merge_spans, read_span
from proctor.evidence.reading import read_document
from proctor.evidence.traces.build import build_evidence
from proctor.evidence.unknowns.account import declare_complete
from proctor.evidence.values.json_bytes import too_deep_error
from proctor.evidence.values.text import as_text
from proctor.formats.native.declared_evidence import build_declared
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import MISSING, exceeds_depth
from proctor.model.mapping import DeclaredEvidence, EvidenceMap
from proctor.model.typed import convert_to, make_json_decoder
from proctor.paths.dotted import find_dotted
from proctor.store.sql.compressed_json import BodyTooLarge, expand_bytes, from_json

if TYPE_CHECKING:
    # The decision process needs no database.
    from proctor.service.caches import Agent

LARGEST_EVIDENCE = 128 * 1024 * 1024
"""Bytes of JSON of the largest trace that is read. Stored, it may be a hundredth; in memory it is ten times as large."""
_GROUPS = make_json_decoder(list[SpanGroup])


def read_agent_evidence(pieces: Sequence[bytes], agent: Agent | None) -> Evidence:
    """Return the evidence of one trace of an agent. Raises `EvidenceError`, or `StoreError` for damaged data."""
    return read_evidence(pieces, *((None, None) if agent is None else (get_response_path(agent), get_declared(agent.settings))))


def get_declared(settings: Mapping[str, Json]) -> DeclaredEvidence | None:
    """Return the `evidence` declaration in the settings of an agent; None if it is missing or invalid."""
    declaration = settings.get("evidence")
    try:
        return build_declared(declaration, source="the settings of the agent") if isinstance(declaration, dict) else None
    except InputError:
        return None


def get_response_path(agent: Agent) -> str | None:
    """Return the path of the text of an agent's answers, if it is set."""
    path = agent.settings.get("response_path")
    return path if isinstance(path, str) and path else None


def read_evidence(
    pieces: Sequence[bytes],
    response_path: str | None,
    declared: DeclaredEvidence | None = None,
    parts: Collection[Part] | None = None,
) -> Evidence:
    """Return the evidence of one trace; `parts` limits what is read. Raises `EvidenceError`, or `StoreError` for damaged data."""
    evidence = _read_pieces(pieces, response_path, None if declared is None else declared.map, parts)
    return evidence if declared is None else declare_complete(evidence, declared.complete, declared.source)


def _read_pieces(
    pieces: Sequence[bytes], response_path: str | None, mapping: EvidenceMap | None, parts: Collection[Part] | None
) -> Evidence:
    batches: list[list[SpanGroup]] = []
    document: Json = None
    for data in expand_pieces(pieces):
        if data[:1] == b"[":
            batches.append(decode_groups(data))
        else:
            document = from_json(data)
    if batches:
        return _read_spans(batches, parts)
    if mapping is not None and isinstance(document, dict) and "data" in document:
        evidence = read_document(document["data"], mapping=mapping)
        if len(evidence) != 1:
            raise EvidenceError(f"the mapping of the agent finds {len(evidence)} runs in the body, expected one")
        return evidence[0]
    return _read_body(document, response_path)


def expand_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the JSON of each piece. Raises `EvidenceError` if there is too much."""
    bytes_left = LARGEST_EVIDENCE
    for piece in pieces:
        try:
            data = expand_bytes(piece, largest=bytes_left)
        except BodyTooLarge:
            raise EvidenceError(f"the trace has more than {LARGEST_EVIDENCE} bytes of JSON", code="too_large") from None
        yield data
        # Never 0, which means no limit to zlib.
        bytes_left = max(1, bytes_left - len(data))


def read_body_spans(document: Json) -> list[Span]:
    """Return the spans of a body in one piece. Raises `EvidenceError`."""
    spans: Json = document.get("spans") if isinstance(document, dict) else None
    return [read_span(raw_span, f"$.spans[{number}]") for number, raw_span in enumerate(spans)] if isinstance(spans, list) else []


def list_spans(data: bytes) -> list[Span]:
    """Return the spans of one piece. Raises `EvidenceError`, or `StoreError` for damaged data."""
    if data[:1] == b"[":
        return [span for group in decode_groups(data) for span in group.spans]
    return read_body_spans(from_json(data))


def decode_groups(data: bytes) -> list[SpanGroup]:
    """Return stored spans by resource. Raises `StoreError` for damaged data."""
    try:
        return _GROUPS.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        # Integers beyond 64 bits, which msgspec does not decode.
        try:
            return convert_to(from_json(data), list[SpanGroup])
        except msgspec.ValidationError as error:
            raise StoreError(f"stored spans cannot be read: {error}") from error


def _read_spans(batches: list[list[SpanGroup]], parts: Collection[Part] | None) -> Evidence:
    groups = [group for batch in batches for group in batch]
    spans: list[Span] = groups[0].spans
    # A single group without repeated ids is the common case, and merging is expensive.
    if len(groups) > 1 or len({span.id for span in spans}) < len(spans):
        spans = [span for merged in merge_spans(group.spans for group in groups).values() for span in merged]
    evidence = build_evidence(spans, parts=parts)
    service = next((name for group in groups if (name := group.resource.get("service.name")) is not None), None)
    if service is not None:
        evidence.metadata.setdefault("service.name", service)
    return evidence


def _read_body(document: Json, response_path: str | None) -> Evidence:
    if exceeds_depth(document):
        raise too_deep_error()
    mibo_evidence = mibo.read(document, declared=True)
    if not mibo_evidence:
        raise EvidenceError("the trace has nothing to check")
    evidence = mibo_evidence[0]
    if response_path is not None and isinstance(document, dict) and "data" in document:
        text = find_dotted(document["data"], response_path)
        if text is not MISSING:
            evidence = msgspec.structs.replace(evidence, text=as_text(text))
    return evidence
