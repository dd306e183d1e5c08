"""Collects the spans of one call of an agent's function, and records which spans may be missing.

Spans arrive from any thread while the function runs, within limits. Gaps are recorded: spans over the limits, unfinished spans, spans that
two calls claim, and spans of an agent's work without a call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import msgspec
from opentelemetry.sdk.trace import ReadableSpan

from proctor.evidence.otlp.spans import Span
from proctor.model.show import exception_text, show
from proctor.targets.capture.sdk_spans import convert_span

MAX_SPANS = 10_000
"""Maximum number of spans per call."""
MAX_BYTES = 64 * 1024 * 1024
"""How much the spans of one call may take, written as JSON."""
_MOST_STRANGERS = 1_000
"""Maximum number of distinct spans of unknown origin."""

SpanKey = tuple[int, int]
"""Trace id and span id."""


class CapturedSpans(msgspec.Struct, frozen=True):
    """What was captured of one call."""

    spans: tuple[Span, ...] = ()
    gaps: tuple[str, ...] = ()
    """Why some spans of the call may be missing, in words."""


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
        """Note that a span of this call has begun; return False if the call is over."""
        with self._lock:
            if not self._closed:
                self._open[key] = span
            return not self._closed

    def end(self, key: SpanKey, span: ReadableSpan) -> None:
        """Keep a span that has ended."""
        # Before the lock is taken: writing a large span as JSON takes time, in which no other thread could begin or end one.
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
            # Bounded: each span that cannot be read may add words of its own, and an agent may make any number of spans.
            if why not in self._gaps and len(self._gaps) < _MOST_STRANGERS:
                self._gaps.append(why)

    def note_stranger(self, key: SpanKey, name: str) -> None:
        """Note a span that began during this call and does not say whose it is."""
        with self._lock:
            if len(self._strangers) < _MOST_STRANGERS:
                self._strangers[key] = name

    def forget_stranger(self, key: SpanKey) -> None:
        """Forget a span of unknown origin that turned out not to be an agent's work."""
        with self._lock:
            self._strangers.pop(key, None)

    async def wait_until_ended(self, seconds: float) -> None:
        """Wait until every span that has begun has ended, a bounded time: a stream may go on after the function has returned."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(ended.set)

        with self._lock:
            # Set before the first look, or a span that ends between the two would be missed.
            self._on_idle = wake
        try:
            async with asyncio.timeout(seconds):
                while self._has_open():
                    await ended.wait()
                    ended.clear()
        except TimeoutError:
            return  # `close` reports unfinished spans
        finally:
            with self._lock:
                self._on_idle = None

    def _has_open(self) -> bool:
        with self._lock:
            return bool(self._open)

    def close(self) -> tuple[CapturedSpans, list[SpanKey]]:
        """End the capture; return what was captured, and the keys of the spans that have not ended."""
        with self._lock:
            self._closed = True
            unfinished = dict(self._open)
            for span in unfinished.values():
                # Its content so far is true, and its start alone may be a tool call.
                self._keep(self._convert(span))
            captured = CapturedSpans(tuple(self._ended), tuple(self._explain_gaps(list(unfinished.values()))))
            self._ended, self._open, self._strangers = [], {}, {}
        return captured, list(unfinished)

    def _explain_gaps(self, unfinished: list[ReadableSpan]) -> list[str]:
        gaps = list(self._gaps)
        if self._lost:
            gaps.append(f"{self._lost} spans over the limit of one call were dropped")
        if unfinished:
            gaps.append(f"{_count(len(unfinished))} had not ended when the function had returned, such as {show(unfinished[0].name, 60)}")
        if self._strangers:
            first = next(iter(self._strangers.values()))
            gaps.append(
                f"{_count(len(self._strangers))} of an agent's work began meanwhile and may be of this case or of another, such as "
                f"{show(first, 60)}: begun in a thread without the context of its caller, or by a case that had ended"
            )
        return gaps


def _count(number: int) -> str:
    return "1 span" if number == 1 else f"{number} spans"
