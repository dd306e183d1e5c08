"""Assigns every span of the process to the agent call that it belongs to.

A span belongs to a call by two signs. Its trace id is that of the span that was opened around the call, or of a trace that began within
the call: children have it, also in threads that carry the context of OpenTelemetry alone. Or the context variable of its thread or task
names the call, as tasks and threads with a copied context inherit it: that finds spans which begin a trace of their own.

If the two signs name different calls, the span is dropped and both calls get a gap. A span of an agent's work without either sign may
belong to any running call, so all of them get a gap. So does a span whose call has ended: it may come from a worker that all cases share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan

from proctor.errors import InputError
from proctor.evidence.traces.attribute_shapes import find_shape
from proctor.evidence.traces.kind import find_kind
from proctor.model.show import exception_text, show
from proctor.targets.capture.call_spans import CallSpans, SpanKey, convert_span

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
