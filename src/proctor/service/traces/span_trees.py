"""A trace as a tree of spans: a window over it, single spans, and search.

A trace may have a hundred thousand spans. The tree without attributes is built once and cached; single spans are read again on request.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from proctor.errors import EvidenceError, StoreError
from proctor.evidence.otlp.spans import Span, merge_spans
from proctor.evidence.traces.rows import SpanRow, TreeSpan, list_span_rows, merge_tree_spans, take_for_tree
from proctor.evidence.traces.vocabulary import CONVERSATION
from proctor.model.evidence import Evidence, Json
from proctor.model.typed import make_json_decoder
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import reading
from proctor.service.caches import Agent
from proctor.service.decisions.trace_evidence import expand_pieces, read_agent_evidence, read_body_spans
from proctor.service.hub import Hub
from proctor.service.traces.search import read_pieces
from proctor.store.sql.compressed_json import from_json, to_json
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import traces

MOST_EXPLAINED = 5_000
"""Spans of the largest trace whose evidence is shown next to its tree; larger ones take seconds to read."""
_MOST_FOUND = 50
_SESSION_SPANS = 50
"""Spans that are searched for the session."""


class SpanTree(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of a trace."""

    rows: list[SpanRow]
    places: dict[str, int]
    """Row index of each span by id."""
    start_ns: int
    end_ns: int
    deepest: int
    by_depth: tuple[int, ...] = ()
    failing: Sequence[int] = ()
    """Indices of rows that failed."""
    session: str | None = None
    pieces: Sequence[int] = ()
    """The received piece of each row; -1: several."""
    evidence: Evidence | None = None
    """The evidence, unless the trace is too large."""
    problem: str | None = None
    """Why the trace cannot be shown."""


class ExpandedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows are expanded: those above a level, except toggled ones."""

    level: int
    turned: frozenset[str] = frozenset()

    def is_open(self, row: SpanRow) -> bool:
        """Return whether the children of a row are shown."""
        return (row.depth < self.level) != (row.id in self.turned)


class FoundSpan(msgspec.Struct, frozen=True):
    """A span that matches a search."""

    place: int
    row: SpanRow


class _RawSpan(msgspec.Struct, frozen=True):
    """A span with undecoded attributes, which makes scanning many cheap."""

    id: str
    name: str = ""
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    events: msgspec.Raw = msgspec.Raw(b"[]")


class _RawGroup(msgspec.Struct, frozen=True):
    spans: list[_RawSpan]


class _UnreadGroup(msgspec.Struct, frozen=True):
    resource: dict[str, Json]
    spans: list[msgspec.Raw]


class _TreeGroup(msgspec.Struct, frozen=True):
    spans: list[TreeSpan]


_TREE_GROUPS = make_json_decoder(list[_TreeGroup])
_RAW = make_json_decoder(list[_RawGroup])
_UNREAD = make_json_decoder(list[_UnreadGroup])
_SPAN = make_json_decoder(Span)


async def read_span_tree(hub: Hub, caller: Caller, id: str) -> SpanTree:
    """Return the tree of a trace. Raises `Refusal` if there is none."""
    async with reading(hub, caller) as tx:
        # Scrolling requests the same tree repeatedly: the body is read only to build it.
        head = await tx.find_visible(traces, "trace", id, columns=("revision", "updated_at"))
    key = (id, head["revision"], head["updated_at"])
    known: SpanTree | None = hub.span_trees.get(key)
    if known is not None:
        return known
    # One at a time: the largest ones take a second and a lot of memory.
    async with hub.span_trees.turn:
        known = hub.span_trees.get(key)
        if known is None:
            row, pieces, agent = await _read_trace(hub, caller, id)
            known = await asyncio.to_thread(_build_tree, pieces, agent)
            # The trace may have changed since the first query.
            hub.span_trees.put((id, row["revision"], row["updated_at"]), known, len(known.rows) + 100)
    return known


async def read_one_span(hub: Hub, caller: Caller, id: str, tree: SpanTree, span_id: str) -> Span | None:
    """Return one span with all of its attributes; None if there is none."""
    _, pieces, _ = await _read_trace(hub, caller, id)
    place = tree.places.get(span_id)
    only = -1 if place is None or place >= len(tree.pieces) else tree.pieces[place]
    # Only the piece of the span is unpacked, or all pieces if the trace was replaced.
    span = await asyncio.to_thread(_find_one, pieces[only : only + 1], span_id) if 0 <= only < len(pieces) else None
    return span or await asyncio.to_thread(_find_one, pieces, span_id)


async def find_spans(hub: Hub, caller: Caller, id: str, tree: SpanTree, words: str) -> tuple[list[FoundSpan], int]:
    """Return the first spans with a text in their id, name, attributes or events, in tree order, and the number of matches."""
    _, pieces, _ = await _read_trace(hub, caller, id)
    hits = await asyncio.to_thread(_search, pieces, words)
    places = sorted({tree.places[hit] for hit in hits if hit in tree.places})
    return [FoundSpan(place, tree.rows[place]) for place in places[:_MOST_FOUND]], len(places)


def choose_level(by_depth: Sequence[int], most: int) -> int:
    """Return the deepest level that shows at most `most` rows, and at least one level."""
    row_count, level = 0, 0
    for depth, count in enumerate(by_depth):
        row_count += count
        if row_count > most and depth > 1:
            break
        level = depth
    return max(1, level)


def list_visible(tree: SpanTree, opened: ExpandedRows, *, also: Collection[int] = ()) -> Sequence[int]:
    """Return the indices of the visible rows; `also` are expanded in any case."""
    if opened.level > tree.deepest and not opened.turned:
        return range(len(tree.rows))  # all rows, without a loop over a large trace
    visible: list[int] = []
    rows, place = tree.rows, 0
    while place < len(rows):
        visible.append(place)
        row = rows[place]
        place += 1 if row.below == 0 or place in also or opened.is_open(row) else row.below + 1
    return visible


def list_above(tree: SpanTree, place: int) -> set[int]:
    """Return the indices of all rows above one."""
    ancestors: set[int] = set()
    above = tree.rows[place].parent
    while above >= 0:
        ancestors.add(above)
        above = tree.rows[above].parent
    return ancestors


def match_calls(tree: SpanTree) -> dict[str, str]:
    """Return the span of each tool call of the evidence, by pointer; nothing if they do not match one to one."""
    if tree.evidence is None:
        return {}
    calls = tree.evidence.tool_calls or ()
    tools = sorted((row for row in tree.rows if row.kind == "tool"), key=lambda row: row.start_ns)
    # By order, and only if every name matches: a wrong link would be worse than none.
    if len(calls) != len(tools) or not all(call.name in row.name for call, row in zip(calls, tools, strict=True)):
        return {}
    return {f"$.tool_calls[{number}]": row.id for number, row in enumerate(tools)}


async def _read_trace(hub: Hub, caller: Caller, id: str) -> tuple[Row, list[bytes], Agent | None]:
    async with reading(hub, caller) as tx:
        row = await tx.find_visible(traces, "trace", id)
        return row, *await read_pieces(tx.connection, row)


def _build_tree(pieces: list[bytes], agent: Agent | None) -> SpanTree:
    try:
        spans, homes = _read_spans(pieces)
    except (EvidenceError, StoreError, msgspec.MsgspecError, RecursionError) as error:
        return SpanTree(rows=[], places={}, start_ns=0, end_ns=0, deepest=0, problem=str(error))
    rows = list_span_rows(spans)
    times = [row for row in rows if row.start_ns]
    depths = Counter(row.depth for row in rows)
    sessions = (span.attributes.get(name) for span in spans[:_SESSION_SPANS] for name in CONVERSATION)
    evidence: Evidence | None = None
    problem: str | None = None
    if len(rows) <= MOST_EXPLAINED:
        try:
            evidence = read_agent_evidence(pieces, agent)
        except (EvidenceError, StoreError) as error:
            problem = str(error)
    return SpanTree(
        rows=rows,
        places={row.id: place for place, row in enumerate(rows)},
        start_ns=min((row.start_ns for row in times), default=0),
        end_ns=max((max(row.end_ns, row.start_ns) for row in times), default=0),
        deepest=max(depths, default=0),
        by_depth=tuple(depths[depth] for depth in range(max(depths, default=-1) + 1)),
        failing=array("i", (place for place, row in enumerate(rows) if row.failed)),
        session=next((value[:200] for value in sessions if isinstance(value, str) and value), None),
        pieces=array("i", (homes[row.id] for row in rows)),
        evidence=evidence,
        problem=problem,
    )


def _read_spans(pieces: list[bytes]) -> tuple[list[TreeSpan], dict[str, int]]:
    """Return the spans of a trace, and the piece of each; -1: several."""
    batches: list[list[TreeSpan]] = []
    homes: dict[str, int] = {}
    for number, data in enumerate(expand_pieces(pieces)):
        if data[:1] == b"[":
            groups = [group.spans for group in _TREE_GROUPS.decode(data)]
        else:
            groups = [[take_for_tree(span) for span in read_body_spans(from_json(data))]]
        batches += groups
        for group in groups:
            for span in group:
                if homes.setdefault(span.id, number) != number:
                    homes[span.id] = -1
    return merge_tree_spans(batches), homes


def _find_one(pieces: list[bytes], span_id: str) -> Span | None:
    quoted_id = to_json(span_id)
    batches: list[list[Span]] = []
    try:
        for data in expand_pieces(pieces):
            if data[:1] != b"[":
                batches.append(read_body_spans(from_json(data)))
                continue
            # Only groups that contain the id are decoded.
            for group in _UNREAD.decode(data) if quoted_id in data else ():
                spans = [_SPAN.decode(raw) for raw in group.spans if quoted_id in bytes(raw)]
                batches.append([msgspec.structs.replace(span, resource={**group.resource, **span.resource}) for span in spans])
    except (EvidenceError, StoreError, msgspec.MsgspecError):
        return None
    return next((span for merged in merge_spans(batches).values() for span in merged if span.id == span_id), None)


def _search(pieces: list[bytes], words: str) -> set[str]:
    low = words.lower()
    # As it is encoded in JSON.
    escaped = to_json(low)[1:-1]
    hits: set[str] = set()
    for data in expand_pieces(pieces):
        if data[:1] != b"[":
            spans = read_body_spans(from_json(data))
            hits |= {span.id for span in spans if _is_mentioned(escaped, to_json([span.id, span.name, span.attributes, span.events]))}
            continue
        for group in _RAW.decode(data):
            for span in group.spans:
                carried = bytes(span.attributes) + bytes(span.events)
                if _is_mentioned(escaped, carried) or low in span.name.lower() or low in span.id.lower():
                    hits.add(span.id)
    return hits


def _is_mentioned(low: bytes, text: bytes) -> bool:
    # `bytes.lower` only knows ASCII letters; other text is decoded first.
    return low in text.lower() if low.isascii() else low.decode() in text.decode().lower()
