"""Holds spans of traces that arrive in pieces: across the lines of a file, or several files.

A trace is yielded at the end of the input, or when it is the oldest and too many spans are buffered: memory stays bounded, and only a trace
whose pieces are extremely far apart is decided in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces.read_otlp import read_batches
from proctor.model.evidence import Evidence, Source

MOST_SPANS = 200_000
"""Maximum spans in memory, over all open traces."""

OnTrace = Callable[[Source, list[Span]], None]
"""Receives the spans of each trace before its evidence is yielded."""


class TraceWindow:
    """Spans by trace, oldest trace first."""

    def __init__(self, most_spans: int = MOST_SPANS, on_trace: OnTrace | None = None) -> None:
        self._most = most_spans
        self._on_trace = on_trace
        self._held = 0
        self._traces: dict[str, tuple[Source, list[Span]]] = {}

    def add(self, spans: Iterable[Span], source: Source) -> Iterator[tuple[Evidence, Source]]:
        """Add spans, and yield the evidence of the oldest traces if there are too many spans in memory."""
        for span in spans:
            entry = self._traces.get(span.trace_id)
            if entry is None:
                entry = self._traces[span.trace_id] = (source, [])
            entry[1].append(span)
            self._held += 1
        # The newest trace always stays: its pieces are still arriving.
        while self._held > self._most and len(self._traces) > 1:
            yield from self._release_trace(next(iter(self._traces)))

    def finish(self) -> Iterator[tuple[Evidence, Source]]:
        """Yield the evidence of all remaining traces."""
        for trace_id in list(self._traces):
            yield from self._release_trace(trace_id)

    def _release_trace(self, trace_id: str) -> Iterator[tuple[Evidence, Source]]:
        source, spans = self._traces.pop(trace_id)
        self._held -= len(spans)
        named = Source(file=source.file, line=source.line, id=trace_id or None)
        if self._on_trace is not None:
            self._on_trace(named, spans)
        for evidence in read_batches([spans]):
            yield evidence, named
