"""Collects the spans of one call of an agent's function, and records which spans may be missing.

Spans arrive from any thread while the function runs, within limits. Gaps are recorded: spans over the limits, unfinished spans, spans that
two calls claim, and spans of an agent's work without a call.

Spans of the OpenTelemetry SDK are converted into ours, as the OTLP reader would return them, attribute by attribute. A value that OTLP
cannot carry (a foreign object, unbounded nesting) is replaced by the name of its type, and the span is marked as not understood.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, Span, SpanEvent
from proctor.model.evidence import Json
from proctor.model.json_values import join_surrogates
from proctor.model.show import exception_text, show

_DEEPEST = 32
"""Maximum nesting of values."""
_LARGEST = 2**63
"""Integers have 64 bits on the wire."""
_UNREADABLE = object()


def convert_span(span: ReadableSpan, *, root_id: int | None = None) -> Span:
    """Return an SDK span as ours; a direct child of `root_id` has no parent."""
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
        # NaN and the infinities are not JSON, so the evidence could not be serialised.
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


MAX_SPANS = 10_000
MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the spans of one call, as JSON."""
_MOST_STRANGERS = 1_000
"""Maximum number of distinct spans of unknown origin."""

SpanKey = tuple[int, int]
"""Trace id and span id."""


class CapturedSpans(msgspec.Struct, frozen=True):
    """The captured spans of one call."""

    spans: tuple[Span, ...] = ()
    gaps: tuple[str, ...] = ()
    """Why some spans of the call may be missing, as text."""


class CallSpans:
    """Collects the spans of one call. Every method may be called from any thread."""

    def __init__(self, *, max_spans: int = MAX_SPANS, max_bytes: int = MAX_BYTES) -> None:
        # Reentrant: the garbage collector may end a span of a forgotten generator while this thread holds the lock.
        self._lock = threading.RLock()
        self._max_spans, self._bytes_left = max_spans, max_bytes
        self._ended: list[Span] = []
        self._open: dict[SpanKey, ReadableSpan] = {}
        self._lost = 0
        self._strangers: dict[SpanKey, str] = {}
        self._gaps: list[str] = []
        self._on_idle: Callable[[], None] | None = None
        self._closed = False
        self.root_id: int | None = None
        """The id of the span that was opened around the call."""

    def begin(self, key: SpanKey, span: ReadableSpan) -> bool:
        """Note the start of a span of this call; return False if the call is over."""
        with self._lock:
            if not self._closed:
                self._open[key] = span
            return not self._closed

    def end(self, key: SpanKey, span: ReadableSpan) -> None:
        """Store a span that has ended."""
        # Before the lock: writing a large span as JSON takes time, and would block other threads.
        converted = self._convert(span)
        with self._lock:
            self._open.pop(key, None)
            # `close` has already stored the unfinished span.
            if not self._closed:
                self._keep(converted)
            idle = self._on_idle if not self._open else None
        if idle is not None:
            idle()

    def _convert(self, span: ReadableSpan) -> tuple[Span, int] | None:
        try:
            converted = convert_span(span, root_id=self.root_id)
            return converted, len(msgspec.json.encode(converted))
        except Exception as error:  # a foreign span processor may have added anything
            self.note_gap(f"the span {show(span.name, 60)} could not be read: {type(error).__name__}: {exception_text(error)}")
            return None

    def _keep(self, converted: tuple[Span, int] | None) -> None:
        if converted is None:
            return
        span, size = converted
        if len(self._ended) >= self._max_spans or size > self._bytes_left:
            self._lost += 1
        else:
            self._ended.append(span)
            self._bytes_left -= size

    def note_gap(self, why: str) -> None:
        """Note why spans of this call may be missing."""
        with self._lock:
            # Bounded: each unreadable span may add its own text, and an agent may create any number of spans.
            if why not in self._gaps and len(self._gaps) < _MOST_STRANGERS:
                self._gaps.append(why)

    def note_stranger(self, key: SpanKey, name: str) -> None:
        """Note a span of unknown origin that started during this call."""
        with self._lock:
            if len(self._strangers) < _MOST_STRANGERS:
                self._strangers[key] = name

    def forget_stranger(self, key: SpanKey) -> None:
        """Forget a span of unknown origin that turned out not to be an agent's work."""
        with self._lock:
            self._strangers.pop(key, None)

    async def wait_until_ended(self, seconds: float) -> None:
        """Wait a limited time until every open span has ended: a stream may continue after the function has returned."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(ended.set)

        with self._lock:
            # Cleared before the first check, because a span that ends in between would be missed.
            self._on_idle = wake
        try:
            async with asyncio.timeout(seconds):
                while self._open:
                    await ended.wait()
                    ended.clear()
        except TimeoutError:
            return  # `close` reports unfinished spans
        finally:
            with self._lock:
                self._on_idle = None

    def close(self) -> tuple[CapturedSpans, list[SpanKey]]:
        """End the capture; return the captured spans, and the keys of unfinished ones."""
        with self._lock:
            self._closed = True
            unfinished = dict(self._open)
            for span in unfinished.values():
                # Its content so far is valid, and its start alone may be a tool call.
                self._keep(self._convert(span))
            gaps = list(self._gaps)
            if self._lost:
                gaps.append(f"{self._lost} spans over the limit of one call were dropped")
            if unfinished:
                first = next(iter(unfinished.values())).name
                gaps.append(f"{_count(len(unfinished))} had not ended when the function had returned, such as {show(first, 60)}")
            if self._strangers:
                first = next(iter(self._strangers.values()))
                gaps.append(
                    f"{_count(len(self._strangers))} of an agent's work began meanwhile and may be of this case or of another, such as "
                    f"{show(first, 60)}: begun in a thread without the context of its caller, or by a case that had ended"
                )
            captured = CapturedSpans(tuple(self._ended), tuple(gaps))
            self._ended, self._open, self._strangers = [], {}, {}
        return captured, list(unfinished)


def _count(number: int) -> str:
    return "1 span" if number == 1 else f"{number} spans"
