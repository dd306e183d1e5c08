"""Assigns every span of the process to the agent call that it belongs to.

A span belongs to a call by two signs. Its trace id is that of the span that was opened around the call, or of a trace that began within
the call: children have it, also in threads that carry the context of OpenTelemetry alone. Or the context variable of its thread or task
names the call, as tasks and threads with a copied context inherit it: that finds spans which begin a trace of their own.

If the two signs name different calls, the span is dropped and both calls get a gap. A span of an agent's work without either sign may
belong to any running call, so all of them get a gap. So does a span whose call has ended: it may come from a worker that all cases share.

Spans arrive from any thread while the function runs, within limits. Gaps are recorded: spans over the limits, unfinished spans, spans that
two calls claim, and spans of an agent's work without a call.

Spans of the OpenTelemetry SDK are converted into ours, as the OTLP reader would return them, attribute by attribute. A value that OTLP
cannot carry (a foreign object, unbounded nesting) is replaced by the name of its type, and the span is marked as not understood.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import msgspec
from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.trace import SpanKind, StatusCode

from proctor.errors import InputError
from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, Span, SpanEvent
from proctor.evidence.traces.attribute_shapes import find_shape
from proctor.evidence.traces.kind import find_kind
from proctor.model.evidence import Json
from proctor.model.json_values import join_surrogates
from proctor.model.show import exception_text, show

_LARGEST = 2**63
"""Integers have 64 bits on the wire."""


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
        try:
            found[name] = _convert_value(value)
        except (TypeError, RecursionError):
            found[name], found[NOT_UNDERSTOOD] = type(value).__name__, name
    return found


def _convert_value(value: object) -> Json:
    """Return an attribute's value as JSON. Raises `TypeError` for a value that OTLP cannot carry."""
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
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {join_surrogates(str(key)): _convert_value(member) for key, member in members.items()}
    if isinstance(value, Sequence):
        return [_convert_value(item) for item in cast("Sequence[object]", value)]
    raise TypeError


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


# --- which call a span belongs to -------------------------------------------------------------------------------------------

SCOPE = "proctor.capture"
"""The instrumentation scope of the spans that we open around calls."""

_CURRENT: ContextVar[CallSpans | None] = ContextVar("proctor_call", default=None)
_IS_OURS: ContextVar[bool] = ContextVar("proctor_drives", default=False)
"""Whether proctor itself is working in this context, for example calling a judge: those spans belong to no call."""


class CallSpanProcessor(SpanProcessor):
    """Assigns spans to calls. It never raises: an agent must not fail because it is observed."""

    def __init__(self) -> None:
        # Reentrant, for the same reason as in `CallSpans`.
        self._lock = threading.RLock()
        self._calls: set[CallSpans] = set()
        self._by_trace: dict[int, CallSpans] = {}
        self._running: dict[SpanKey, CallSpans | tuple[CallSpans, ...]] = {}
        """The call of each open span; for one of unknown origin, the calls that were running when it started."""
        self._roots: set[int] = set()
        """Ids of our spans that started, until checked: they prove that this processor receives spans."""

    def on_start(self, span: SdkSpan, parent_context: context_api.Context | None = None) -> None:
        """Find the call that a span belongs to."""
        if span.instrumentation_scope is not None and span.instrumentation_scope.name == SCOPE:
            self._roots.add(span.get_span_context().span_id)
        # Called for every span of the process, also while no call is observed: then it must cost nothing.
        elif self._calls:
            self._guard(span, self._sort)

    def on_end(self, span: ReadableSpan) -> None:
        """Store a span with its call."""
        if self._running:
            self._guard(span, self._finish)

    def take_root(self, span_id: int) -> bool:
        """Return whether the start of one of our spans was seen."""
        has_started = span_id in self._roots
        self._roots.discard(span_id)
        return has_started

    def open(self, call: CallSpans, root: trace.Span) -> None:
        """Accept spans for a call from now on."""
        context = root.get_span_context()
        call.root_id = context.span_id if context.is_valid else None
        with self._lock:
            self._calls.add(call)
            if context.is_valid:
                self._by_trace[context.trace_id] = call

    def close(self, call: CallSpans, unfinished: list[SpanKey]) -> None:
        """Accept no more spans for a call."""
        with self._lock:
            self._calls.discard(call)
            for trace_id in [trace_id for trace_id, owner in self._by_trace.items() if owner is call]:
                del self._by_trace[trace_id]
            # They may never end, and would stay in memory until the process ends.
            for key in unfinished:
                self._running.pop(key, None)

    def _guard(self, span: ReadableSpan, work: Callable[[SpanKey, ReadableSpan], None]) -> None:
        try:
            context = span.get_span_context()
            if context is not None:
                work((context.trace_id, context.span_id), span)
        except Exception as error:
            why = f"a span could not be stored: {type(error).__name__}: {exception_text(error)}"
            for call in tuple(self._calls):
                call.note_gap(why)

    def _sort(self, key: SpanKey, span: ReadableSpan) -> None:
        by_context = _CURRENT.get()
        with self._lock:
            by_trace = self._by_trace.get(key[0])
            if by_trace is not None and by_context is not None and by_trace is not by_context:
                why = f"the span {show(span.name, 60)} belongs to this case by its trace or by its context, and to another by the other"
                by_trace.note_gap(why)
                by_context.note_gap(why)
                return
            owner = by_trace or by_context
            if owner is None and _IS_OURS.get():
                return
            if owner is not None and owner.begin(key, span):
                self._running[key] = owner
                # A trace that started elsewhere may also continue elsewhere.
                if by_trace is None and span.parent is None:
                    self._by_trace[key[0]] = owner
                return
            calls = tuple(self._calls)
            self._running[key] = calls
        for call in calls:
            call.note_stranger(key, span.name)

    def _finish(self, key: SpanKey, span: ReadableSpan) -> None:
        with self._lock:
            owner = self._running.pop(key, None)
        if isinstance(owner, CallSpans):
            owner.end(key, span)
        elif owner is not None:
            read = convert_span(span)
            is_work = find_kind(read.name, read.attributes) is not None or find_shape(read.attributes).work is not None
            if not is_work and not any(event.name.startswith("gen_ai.") for event in read.events):
                for call in owner:
                    call.forget_stranger(key)


_PROCESSOR = CallSpanProcessor()
"""One per process, like the tracer provider: an SDK cannot remove a processor."""
_SET_UP = threading.Lock()
_PROVIDERS: dict[int, object] = {}
"""Providers that have our processor, by identity; some of them cannot be hashed."""


def find_provider() -> trace.TracerProvider:
    """Return the tracer provider of the process, creating one if there is none. Raises `InputError` if it cannot be observed."""
    with _SET_UP:
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            # Nothing is exported, so the usual limits, which truncate long conversations, are not needed.
            no_limits = SpanLimits(max_span_attributes=SpanLimits.UNSET, max_events=SpanLimits.UNSET, max_event_attributes=SpanLimits.UNSET)
            trace.set_tracer_provider(TracerProvider(span_limits=no_limits, shutdown_on_exit=False))
            provider = trace.get_tracer_provider()
        if id(provider) not in _PROVIDERS:
            _add_processor(provider)
            # References the object: the id of a deleted one may be reused.
            _PROVIDERS[id(provider)] = provider
    return provider


def _add_processor(provider: trace.TracerProvider) -> None:
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        kind = type(provider)
        raise InputError(
            f"capture: otel cannot watch the tracer provider that is set, {kind.__module__}.{kind.__qualname__}: "
            "it takes no span processors; set up one of opentelemetry.sdk.trace"
        )
    add(_PROCESSOR)


@contextmanager
def watch_call(call: CallSpans, name: str) -> Generator[None]:
    """Assign the spans of the enclosed code to `call`, until `stop_watching`."""
    provider = find_provider()
    root = _open_root(provider, name, call)
    _PROCESSOR.open(call, root)
    # Not reset: what this task does after the call, such as calling a judge, is proctor's own work.
    _IS_OURS.set(True)
    token = _CURRENT.set(call)
    attached = context_api.attach(trace.set_span_in_context(root))
    try:
        yield
    finally:
        context_api.detach(attached)
        _CURRENT.reset(token)
        root.end()
        if isinstance(root, ReadableSpan) and (root.attributes or root.events or not root.status.is_unset):
            # The function added something to the surrounding span.
            call.end(_ROOT_KEY, root)


def stop_watching(call: CallSpans, unfinished: list[SpanKey]) -> None:
    """Accept no more spans for a call; later ones are of unknown origin."""
    _PROCESSOR.close(call, unfinished)


def _open_root(provider: trace.TracerProvider, name: str, call: CallSpans) -> trace.Span:
    """Open the span around a call, and check that this processor receives spans."""
    tracer = provider.get_tracer(SCOPE)
    # In an empty context: a span around the whole run would put all calls into one trace, and the trace identifies the call.
    root = tracer.start_span(name, context=context_api.Context())
    if not root.is_recording():
        call.note_gap("the tracer provider records no spans: OTEL_SDK_DISABLED is set, or its sampler drops them")
        return root
    if not _PROCESSOR.take_root(root.get_span_context().span_id):
        # The provider has been replaced in the meantime.
        root.end()
        _add_processor(provider)
        root = provider.get_tracer(SCOPE).start_span(name, context=context_api.Context())
        if not _PROCESSOR.take_root(root.get_span_context().span_id):
            call.note_gap("the tracer provider does not pass spans to its span processors")
    why = explain_sampling(getattr(provider, "sampler", None))
    if why is not None:
        call.note_gap(why)
    return root


def explain_sampling(sampler: object) -> str | None:
    """Explain why a sampler may have dropped spans; None if it records all or is unknown."""
    describe = getattr(sampler, "get_description", None)
    if describe is None:
        return None
    description = str(describe()).replace("TraceIdRatioBased{1.0}", _ALL).replace("TraceIdRatioBased{1}", _ALL)
    keeps = description == _ALL or description.startswith("AlwaysRecordSampler{")
    if keeps or (description.startswith(f"ParentBased{{root:{_ALL},") and f"localParentSampled:{_ALL}" in description):
        return None
    return f"the sampler of the tracer provider, {show(description, 60)}, may have dropped spans: run with OTEL_TRACES_SAMPLER=always_on"


_ALL = "AlwaysOnSampler"
_ROOT_KEY: SpanKey = (0, 0)
