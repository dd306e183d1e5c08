"""Finds the span of a trace that its results are about: the root, as evidence has it. Only ids are read, not what the spans hold.

The root is the first span without a parent in the trace, by its start where every span has one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.model.typed import make_json_decoder
from proctor.store.sql.compressed_json import expand_bytes, from_json

RESPONSE = "gen_ai.response.id"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where in OpenTelemetry's terms a result belongs; empty where it is unknown."""

    trace_id: str = ""
    span_id: str = ""
    response_id: str | None = None


class _Attributes(msgspec.Struct, rename={"response": RESPONSE}):
    response: Json = None


class _Span(msgspec.Struct):
    """A stored span; of its fields only these are looked at."""

    id: str
    trace_id: str = ""
    parent_id: str | None = None
    name: str = ""
    start_ns: int = 0
    attributes: _Attributes = msgspec.field(default_factory=_Attributes)

    @property
    def is_bare(self) -> bool:
        """Whether only a log record told of it, which knows neither its name nor its place."""
        return not self.name and not self.start_ns and self.parent_id is None


class _Group(msgspec.Struct):
    spans: list[_Span]


_GROUPS = make_json_decoder(list[_Group])


def find_place(pieces: Sequence[bytes]) -> Place:
    """Return the place of a trace from what is kept of it; an empty place where nothing can be read."""
    spans: dict[str, _Span] = {}
    try:
        for piece in pieces:
            for span in _read_spans(expand_bytes(piece)):
                # A log record may arrive after its span; it must not replace what the span itself said.
                if not span.is_bare or span.id not in spans:
                    spans[span.id] = span
    except (StoreError, msgspec.MsgspecError, RecursionError):
        # A place is only an extra of what is exported. Whoever evaluates the trace finds what is wrong with it, and says so.
        return Place()
    return _choose_place(list(spans.values()))


def _read_spans(data: bytes) -> list[_Span]:
    if data[:1] == b"[":
        return [span for group in _GROUPS.decode(data) for span in group.spans]
    document = from_json(data)
    listed: Json = document.get("spans") if isinstance(document, dict) else None
    return [_read_body_span(span) for span in listed if isinstance(span, dict)] if isinstance(listed, list) else []


def _read_body_span(span: dict[str, Json]) -> _Span:
    """Return a span of a body in one piece, by either spelling."""
    attributes = span.get("attributes")
    start = span.get("start_time_unix_nano", span.get("startTimeUnixNano"))
    return _Span(
        id=_read_text(span.get("span_id", span.get("spanId"))),
        trace_id=_read_text(span.get("trace_id", span.get("traceId"))),
        parent_id=_read_text(span.get("parent_span_id", span.get("parentSpanId"))) or None,
        name=_read_text(span.get("name")),
        start_ns=int(start) if isinstance(start, (int, str)) and str(start).isascii() and str(start).isdigit() else 0,
        attributes=_Attributes(attributes.get(RESPONSE) if isinstance(attributes, dict) else None),
    )


def _choose_place(spans: list[_Span]) -> Place:
    spans = [span for span in spans if not span.is_bare] or spans
    if not spans:
        return Place()
    # Only where all have a start: one without would count as the earliest, and be taken for the root.
    if all(span.start_ns for span in spans):
        spans.sort(key=lambda span: span.start_ns)
    known = {span.id for span in spans}
    root = next((span for span in spans if span.parent_id is None or span.parent_id not in known), spans[0])
    # The answer of a run is its last one.
    told = [span.attributes.response for span in spans if isinstance(span.attributes.response, str)]
    return Place(trace_id=root.trace_id, span_id=root.id, response_id=told[-1] if told else None)


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""
