"""Converts spans of the OpenTelemetry SDK into ours, as the reader of OTLP would have them from the wire.

Attributes are converted one by one. A value that OTLP cannot carry (a foreign object, unbounded nesting) is replaced by the name of its
type, and the span is marked as not understood.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, Span, SpanEvent
from proctor.model.evidence import Json
from proctor.model.json_values import join_surrogates

_DEEPEST = 32
"""Levels of values inside each other."""
_LARGEST = 2**63
"""Whole numbers of the wire have 64 bits."""
_UNREADABLE = object()


def convert_span(span: ReadableSpan, *, root_id: int | None = None) -> Span:
    """Return a span of the SDK as ours; a span directly below the one of `root_id` has no parent."""
    context, parent = span.get_span_context(), span.parent
    events = span.events
    return Span(
        trace_id=f"{context.trace_id:032x}" if context is not None else "",
        id=f"{context.span_id:016x}" if context is not None else "",
        parent_id=None if parent is None or parent.span_id == root_id else f"{parent.span_id:016x}",
        name=join_surrogates(span.name),
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        attributes=convert_attributes(span.attributes),
        failed=span.status.status_code is StatusCode.ERROR,
        message=join_surrogates(span.status.description) if span.status.description else None,
        events=tuple([SpanEvent(join_surrogates(event.name), convert_attributes(event.attributes)) for event in events]),
        resource=convert_attributes({key: value for key, value in span.resource.attributes.items() if key == "service.name"}),
        scope=span.instrumentation_scope.name if span.instrumentation_scope is not None else "",
        is_remote=span.kind is SpanKind.CLIENT,
        # A remote parent is a span of another process, which is never captured.
        is_entry=span.kind in (SpanKind.SERVER, SpanKind.CONSUMER) or (span.parent is not None and span.parent.is_remote),
        dropped=span.dropped_attributes + span.dropped_events + sum(event.dropped_attributes for event in events),
    )


def convert_attributes(attributes: Mapping[str, Any] | None) -> dict[str, Json]:
    """Return attributes as a plain object."""
    found: dict[str, Json] = {}
    for key, value in (attributes or {}).items():
        name = join_surrogates(str(key))
        plain = _convert_value(value, 0)
        if plain is _UNREADABLE:
            found[name], found[NOT_UNDERSTOOD] = type(value).__name__, name
        else:
            found[name] = plain
    return found


def _convert_value(value: object, depth: int) -> Json:
    if isinstance(value, str):
        return join_surrogates(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -_LARGEST <= number < _LARGEST else str(number)
    if isinstance(value, float):
        # NaN and the infinities are no JSON, and would make the evidence impossible to write down.
        return float(value) if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if depth >= _DEEPEST:
        return _UNREADABLE
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        inner = {join_surrogates(str(key)): _convert_value(member, depth + 1) for key, member in members.items()}
        return _UNREADABLE if any(member is _UNREADABLE for member in inner.values()) else inner
    if isinstance(value, Sequence):
        items = [_convert_value(item, depth + 1) for item in cast("Sequence[object]", value)]
        return _UNREADABLE if any(item is _UNREADABLE for item in items) else items
    return _UNREADABLE
