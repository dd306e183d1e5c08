"""One trace: verdicts, and spans as a tree with a waterfall, in windows.

The query holds the state of the tree: `level` is the open depth, `turned` are spans toggled against it, `from` is the first row of the
window, `span` is shown in full. A script fetches other windows while scrolling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces.rows import SpanRow
from proctor.model.evidence import Json
from proctor.model.json_values import read_digits
from proctor.pages.forms import read_form
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.trace_source import TraceSource
from proctor.pages.words import find_project_address
from proctor.report.html.timeline import build_timeline
from proctor.report.words.html_text import write_pretty
from proctor.service.labels.annotations import LONGEST_NOTE, NewAnnotation
from proctor.service.refusals import Refusal, not_found
from proctor.service.traces.span_trees import Opened, SpanTree, choose_level, list_above, list_visible, match_calls

WINDOW = 120
"""Rows of one window."""
_MOST_TURNED = 60
_MOST_RESULTS = 10
_MOST_ASSERTIONS = 30
_MOST_STEPS = 30
_MOST_ATTRIBUTES = 80
_DEEPEST = 16
"""Levels that are indented; deeper ones show their depth."""


async def show_trace(request: Request, source: Source) -> Response:
    """Show a trace, or with `part=rows` only a window of its spans."""
    seen = TraceSource.of_request(request)
    project, trace = await _find_trace(request, source, seen)
    tree = await seen.read_tree(trace["id"])
    window = await asyncio.to_thread(_cut_window, tree, request)
    if request.query_params.get("part") == "rows":
        return render_page(request, "span_rows.html", {"window": window})
    words = request.query_params.get("q", "").strip()[:200]
    span_id = request.query_params.get("span")
    span = await seen.read_span(trace["id"], tree, span_id) if span_id is not None and span_id in tree.places else None
    results = await seen.read_results(trace["id"], _MOST_RESULTS)
    found, total = await seen.find_spans(trace["id"], tree, words) if words else ([], 0)
    links = match_calls(tree)
    steps = [] if tree.evidence is None else await asyncio.to_thread(build_timeline, tree.evidence, None)
    values = {
        "project": project,
        "source": source,
        "trace": trace,
        "tree": tree,
        "window": window,
        "span": None if span is None else _write_span(span, tree.rows[tree.places[span.id]], tree),
        "no_span": span_id is not None and span is None,
        "results": [_write_result(one, links) for one in results],
        "words": words,
        "found": found,
        "found_total": total,
        "steps": list(enumerate(steps[:_MOST_STEPS], 1)),
        "more_steps": max(0, len(steps) - _MOST_STEPS),
        "annotations": await seen.list_annotations(trace["id"]),
        "longest_note": LONGEST_NOTE,
    }
    return render_page(request, "trace.html", values)


async def label_trace(request: Request, source: Source) -> Response:
    """Store a label or note of a trace and show it."""
    form = await read_form(request)
    seen = TraceSource.of_request(request)
    project, trace = await _find_trace(request, source, seen)
    label = form.get("label") or None
    if label not in (None, "pass", "fail"):
        raise Refusal("BAD_REQUEST", "a label must be pass or fail")
    await seen.annotate(NewAnnotation(subject="trace", subject_id=trace["id"], label=label, note=form.get("note", "").strip()))
    return redirect(f"{find_project_address(project['id'], 'traces', trace['id'])}#comments")


async def _find_trace(request: Request, source: Source, seen: TraceSource) -> tuple[Record, Record]:
    project = await source.get_project(request.path_params["project"])
    trace = await seen.find_trace(request.path_params["trace"])
    if trace["project_id"] != project["id"]:
        raise not_found("trace", trace["id"])
    return project, trace


def _cut_window(tree: SpanTree, request: Request) -> Record:
    params = request.query_params
    level = _read_number(params.get("level"), -1)
    level = choose_level(tree.by_depth, WINDOW) if level < 0 else level
    turned = tuple(dict.fromkeys(params.getlist("turned")))[:_MOST_TURNED]
    target = tree.places.get(params.get("span", ""))
    opened = Opened(level=level, turned=frozenset(turned))
    above = set[int]() if target is None else list_above(tree, target)
    visible = list_visible(tree, opened, also=above)
    last = max(0, len(visible) - WINDOW)
    # Show the target span with a few rows before it.
    near = 0 if target is None else max(0, visible.index(target) - WINDOW // 3)
    first = min(last, _read_number(params.get("from"), near))
    state: dict[str, Any] = {"level": level, "turned": turned}
    shown = visible[first : first + WINDOW]
    whole = max(1, tree.end_ns - tree.start_ns)
    return {
        "rows": [_write_row(tree, place, opened, place in above, state, whole, target) for place in shown],
        "first": first,
        "visible": len(visible),
        "size": WINDOW,
        "level": level,
        "deepest": tree.deepest,
        "address": _write_address(state, span=params.get("span")),
        "before": _write_address({**state, "from": max(0, first - WINDOW)}) if first else None,
        "after": _write_address({**state, "from": first + WINDOW}) if first + WINDOW < len(visible) else None,
        "shallower": _write_address({"level": max(1, level - 1)}),
        "deeper": _write_address({"level": level + 1}),
    }


def _write_row(tree: SpanTree, place: int, opened: Opened, forced: bool, state: Record, whole: int, target: int | None) -> Record:
    row = tree.rows[place]
    is_open = forced or opened.is_open(row)
    turned = [id for id in state["turned"] if id != row.id] if row.id in state["turned"] else [*state["turned"], row.id]
    begin = (row.start_ns - tree.start_ns) / whole * 1000 if row.start_ns else 0
    # Short spans have a visible minimum width.
    length = max(2.0, ((row.took_ms or 0) * 1e6) / whole * 1000)
    return {
        "place": place,
        "row": row,
        "indent": min(row.depth, _DEEPEST),
        "deep": row.depth if row.depth > _DEEPEST else None,
        "is_open": is_open,
        "is_target": place == target,
        "begin": round(min(998.0, max(0.0, begin)), 1),
        "length": round(min(1000.0, length), 1),
        "turn": _write_address({**state, "turned": turned}) + f"#r{place}",
        "address": _write_address({**state, "span": row.id}) + "#span",
    }


def _write_address(state: Record, **more: str | None) -> str:
    return "?" + urlencode({name: value for name, value in {**state, **more}.items() if value is not None}, doseq=True)


def _read_number(text: str | None, otherwise: int) -> int:
    found = read_digits(text, 8)
    return otherwise if found is None else found


def _write_span(span: Span, row: SpanRow, tree: SpanTree) -> Record:
    above: list[SpanRow] = []
    place = row.parent
    while place >= 0 and len(above) < 12:
        above.append(tree.rows[place])
        place = tree.rows[place].parent
    attributes = _write_pairs(span.attributes)
    return {
        "row": row,
        "begins_ms": None if not row.start_ns else (row.start_ns - tree.start_ns) / 1e6,
        "attributes": attributes[:_MOST_ATTRIBUTES],
        "more": max(0, len(attributes) - _MOST_ATTRIBUTES),
        "events": [(event.name, write_pretty(event.attributes, 2000)) for event in span.events[:20]],
        "more_events": max(0, len(span.events) - 20),
        "resource": _write_pairs(span.resource)[:20],
        "scope": span.scope,
        "above": list(reversed(above)),
        "dropped": span.dropped,
    }


def _write_pairs(values: dict[str, Json]) -> list[tuple[str, str]]:
    return [(name, write_pretty(value, 5000)) for name, value in sorted(values.items())]


def _write_result(result: Record, links: dict[str, str]) -> Record:
    document: Json = result["result"]
    assertions: Sequence[Json] = (document.get("assertions") if isinstance(document, dict) else None) or ()
    rank = {"fail": 0, "error": 0, "skip": 1}
    ordered = sorted((one for one in assertions if isinstance(one, dict)), key=lambda one: rank.get(str(one.get("outcome")), 2))
    shown = [
        {
            "outcome": one.get("outcome"),
            "title": one.get("label") or one.get("check") or "",
            "reason": one.get("reason") or "",
            "spans": [(pointer, _find_link(str(pointer), links)) for pointer in (one.get("pointers") or ())[:6]],
        }
        for one in ordered[:_MOST_ASSERTIONS]
    ]
    return {**result, "result": None, "assertions": shown, "more": max(0, len(ordered) - _MOST_ASSERTIONS)}


def _find_link(pointer: str, links: dict[str, str]) -> str | None:
    """Return the address of the span that a pointer refers to, if known."""
    found = next((span_id for place, span_id in links.items() if pointer == place or pointer.startswith((f"{place}.", f"{place}["))), None)
    return None if found is None else _write_address({"span": found}) + "#span"
