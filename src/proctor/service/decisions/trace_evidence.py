"""The evidence of a trace, from what is kept of it.

A piece that is a list holds spans, by resource; a piece that is an object is a body as it came. Spans that came in several pieces are
merged by their ids: what came later wins. A body of the second generation is read as the kind of its agent wants it: an HTTP agent may
have a `response_path`, where the text of its answers stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from proctor.errors import EvidenceError, StoreError
from proctor.evidence import mibo
from proctor.evidence.json_bytes import exceeds_depth, too_deep_error
from proctor.evidence.span_evidence import build_evidence
from proctor.evidence.spans import Span, SpanGroup, merge_spans
from proctor.evidence.text import as_text
from proctor.model.evidence import Evidence, Json
from proctor.model.missing import MISSING
from proctor.paths.dotted import find_dotted
from proctor.store.bodies import BodyTooLarge, expand, from_json

if TYPE_CHECKING:
    # Whoever decides in a process of its own needs no database.
    from proctor.service.agent import Agent

LARGEST_EVIDENCE = 128 * 1024 * 1024
"""Bytes of JSON of one trace that are looked at. Kept, it may be a hundred times as small; in memory it is ten times as large."""
_GROUPS = msgspec.json.Decoder(list[SpanGroup])


def evidence_in(pieces: Sequence[bytes], agent: Agent | None) -> Evidence:
    """The evidence of one trace of an agent. Raises `EvidenceError`, or `StoreError` for damage."""
    return evidence_of_pieces(pieces, None if agent is None else response_path_of(agent))


def response_path_of(agent: Agent) -> str | None:
    """Where the text of an agent's answers stands, if it says so."""
    path = agent.settings.get("response_path")
    return path if isinstance(path, str) and path else None


def evidence_of_pieces(pieces: Sequence[bytes], response_path: str | None) -> Evidence:
    """The evidence of one trace. Raises `EvidenceError`, or `StoreError` for damage."""
    batches: list[list[SpanGroup]] = []
    document: Json = None
    for data in opened(pieces):
        if data[:1] == b"[":
            batches.append(_groups(data))
        else:
            document = from_json(data)
    return _of_spans(batches) if batches else _of_body(document, response_path)


def opened(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The JSON of each piece. Raises `EvidenceError` when there is more of it than is looked at."""
    left = LARGEST_EVIDENCE
    for piece in pieces:
        try:
            data = expand(piece, largest=left)
        except BodyTooLarge:
            raise EvidenceError(f"more than {LARGEST_EVIDENCE} bytes of JSON, too much to be looked at", code="too_large") from None
        yield data
        left = max(1, left - len(data))


def _groups(data: bytes) -> list[SpanGroup]:
    try:
        return _GROUPS.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        # Integers beyond 64 bits, which the fast reader does not know.
        try:
            return msgspec.convert(from_json(data), list[SpanGroup])
        except msgspec.ValidationError as error:
            raise StoreError(f"stored spans cannot be read: {error}") from error


def _of_spans(batches: list[list[SpanGroup]]) -> Evidence:
    groups = [group for batch in batches for group in batch]
    if len(groups) == 1:
        spans: list[Span] = _alone(groups[0].spans)
    else:
        spans = [span for merged in merge_spans(group.spans for group in groups).values() for span in merged]
    evidence = build_evidence(spans)
    service = next((name for group in groups if (name := group.resource.get("service.name")) is not None), None)
    if service is not None:
        evidence.metadata.setdefault("service.name", service)
    return evidence


def _alone(spans: list[Span]) -> list[Span]:
    if len({span.id for span in spans}) == len(spans):
        return spans
    return [span for merged in merge_spans([spans]).values() for span in merged]


def _of_body(document: Json, response_path: str | None) -> Evidence:
    if exceeds_depth(document):
        raise too_deep_error()
    found = mibo.read(document)
    if not found:
        raise EvidenceError("the trace holds nothing that can be checked")
    evidence = found[0]
    if response_path is not None and isinstance(document, dict) and "data" in document:
        text = find_dotted(document["data"], response_path)
        if text is not MISSING:
            evidence = msgspec.structs.replace(evidence, text=as_text(text))
    return evidence
