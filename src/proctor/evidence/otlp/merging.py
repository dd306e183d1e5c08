"""Merges spans that came in several requests: a span may be told twice, first as begun and then as ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from proctor.evidence.otlp.spans import Span, TreeSpan

AnySpan = TypeVar("AnySpan", bound=TreeSpan)


def merge_spans(batches: Iterable[Iterable[Span]]) -> dict[str, list[Span]]:
    """Merge the spans of several requests by trace, in order of first arrival."""
    traces: dict[str, dict[str, Span]] = {}
    for batch in batches:
        for span in batch:
            known = traces.setdefault(span.trace_id, {})
            before = known.get(span.id)
            known[span.id] = span if before is None else _merge_two(before, span)
    return {trace_id: list(spans.values()) for trace_id, spans in traces.items()}


def merge_tree_span(before: AnySpan, after: AnySpan) -> AnySpan:
    """Return a span that came twice, merged in what its tree is made of."""
    return msgspec.structs.replace(
        after,
        parent_id=after.parent_id or before.parent_id,
        name=after.name or before.name,
        start_ns=after.start_ns or before.start_ns,
        end_ns=after.end_ns or before.end_ns,
        # What came later is the newer state of the span; a failure that was told once stays one.
        attributes={**before.attributes, **after.attributes},
        failed=before.failed or after.failed,
        message=after.message or before.message,
    )


def _merge_two(before: Span, after: Span) -> Span:
    return msgspec.structs.replace(
        merge_tree_span(before, after),
        events=(*before.events, *(event for event in after.events if event not in before.events)),
        resource={**before.resource, **after.resource},
        scope=after.scope or before.scope,
        case=after.case or before.case,
        is_remote=after.is_remote or before.is_remote,
        is_entry=after.is_entry or before.is_entry,
        # Both count the losses of the same span, so they are not added.
        dropped=max(before.dropped, after.dropped),
    )
