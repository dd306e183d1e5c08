"""Merges the spans of a trace that came in several requests, and marks what is unknown if some of them could not be read.

A span may come twice, first when it begins and then when it ends. A record that cannot be read may still name its traces. If it names none,
is cut off, or has more spans than it names traces, its spans may belong to any trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from proctor.evidence.otlp.spans import Span, TreeSpan, fold_id
from proctor.model.account import Account, Part
from proctor.model.evidence import Evidence
from proctor.model.show import shorten

_TRACE = re.compile(rb'"(?:context\.)?trace_?id"\s*:\s*"([^"\\]{1,256})"', re.IGNORECASE)
_SPAN = re.compile(rb'"(?:context\.)?span_?id"\s*:', re.IGNORECASE)
_PARTS: tuple[Part, ...] = ("tool_calls", "tool_results", "answer", "input", "turns", "usage", "nodes")
"""The parts that a lost span may carry; the arguments of a call come with the call."""
_MAX_REASON = 300

AnySpan = TypeVar("AnySpan", bound=TreeSpan)


def merge_spans(batches: Iterable[Iterable[Span]]) -> dict[str, list[Span]]:
    """Merge the spans of several requests by trace, in order of first arrival."""
    return merge_by_trace(batches, _merge_two)


def merge_by_trace(batches: Iterable[Iterable[AnySpan]], merge: Callable[[AnySpan, AnySpan], AnySpan]) -> dict[str, list[AnySpan]]:
    """Merge the spans of several requests by trace, two records of one span by `merge`."""
    traces: dict[str, dict[str, AnySpan]] = {}
    for batch in batches:
        for span in batch:
            known = traces.setdefault(span.trace_id, {})
            before = known.get(span.id)
            known[span.id] = span if before is None else merge(before, span)
    return {trace_id: list(spans.values()) for trace_id, spans in traces.items()}


def merge_tree_span(before: AnySpan, after: AnySpan) -> AnySpan:
    """Return a span that came twice, with its tree fields merged."""
    return msgspec.structs.replace(
        after,
        parent_id=after.parent_id or before.parent_id,
        name=after.name or before.name,
        start_ns=after.start_ns or before.start_ns,
        end_ns=after.end_ns or before.end_ns,
        # The later one is the newer state of the span; a failure that was recorded once stays one.
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


def find_lost_traces(record: bytes, *, readable: bool = False) -> frozenset[str] | None:
    """Return the traces that an unreadable record names; None if it may be about any. A `readable` one is JSON without spans."""
    found = [fold_id(match[1].decode("utf-8", "replace")) for match in _TRACE.finditer(record)]
    is_cut = not record.rstrip().endswith((b"}", b"]"))
    if not readable and (not found or is_cut or len(_SPAN.findall(record)) > len(found)):
        return None
    return frozenset(found)


def mark_lost_spans(evidence: Evidence, why: str) -> Evidence:
    """Return the evidence of a trace that may lack spans, with every part of spans unknown."""
    account = evidence.account or Account()
    # The reader's own reasons are more exact.
    unknown = {**dict.fromkeys(_PARTS, shorten(why, _MAX_REASON)), **account.unknown}
    account = msgspec.structs.replace(account, unknown=unknown, seen_tools=())
    turns = evidence.turns and tuple(msgspec.structs.replace(turn, duration_ms=None) for turn in evidence.turns)
    # A span that began earlier or ended later would make it longer.
    return msgspec.structs.replace(evidence, account=account, duration_ms=None, turns=turns)
