"""One trace: input and answer, verdicts, and its spans as a tree next to the selected span; or the conversation.

The query holds the state of the tree: `level` is the open depth, `turned` are spans toggled against it, `from` is the first row of the
window, `span` is selected (default: the first failing one). A script fetches other windows and spans, with `part`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces.rows import SpanRow
from proctor.model.cost import PriceList
from proctor.model.evidence import Cost, Json
from proctor.model.json_values import read_digits
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit
from proctor.report.blocks.markdown import draw_rich_text
from proctor.report.html.timeline import build_timeline, usage_words
from proctor.report.words.html_text import write_pretty
from proctor.report.words.wording import price_words
from proctor.service.access.agents import get_agent
from proctor.service.decisions.trace_verdicts import make_digest, read_digest
from proctor.service.labels.annotations import LONGEST_NOTE, NewAnnotation, create_annotation, list_annotations
from proctor.service.refusals import Refusal
from proctor.service.runs.building import read_project_prices
from proctor.service.traces import search, span_trees
from proctor.service.traces.search import ResultSearch
from proctor.service.traces.span_trees import ExpandedRows, SpanTree, choose_level, list_above, list_visible, match_calls

WINDOW = 100
"""Rows of one window."""
_RANKS = {"fail": 0, "error": 0, "skip": 1}
"""The order of outcomes: what failed first."""
_MOST_TURNED = 60
_MOST_RESULTS = 10
_MOST_ASSERTIONS = 30
_MOST_STEPS = 40
_MOST_ATTRIBUTES = 80
_DEEPEST = 16
"""Levels that are indented; deeper ones show their depth."""


async def show_trace(visit: Visit) -> Response:
    """Show a trace, or with `part` a window of its spans, the selected span, or both."""
    trace = await visit.find("trace", search.find_trace)
    tree = await visit.call(span_trees.read_span_tree, trace["id"])
    params = visit.params
    part, span_id = params.get("part"), params.get("span")
    if span_id is None and tree.rows:
        # Selected at first: the first failing one, else the first.
        span_id = tree.rows[tree.failing[0] if tree.failing else 0].id
    place = tree.places.get(span_id or "")
    window = {} if part == "span" else await asyncio.to_thread(_cut_window, tree, visit, place)
    span = None
    if part != "rows" and place is not None:
        span = await visit.call(span_trees.read_one_span, trace["id"], tree, tree.rows[place].id)
    selected: dict[str, Any] = {
        "trace": trace,
        "window": window,
        "part": part,
        "span": None if span is None or place is None else _write_span(span, place, tree),
        "no_span": "span" in params and span is None,
        "failing": _find_failing(tree, place),
    }
    if part is not None:
        return visit.render("span_parts.html", **selected)
    words = params.get("q", "").strip()[:200]
    results = await _list_results(visit, trace["id"])
    labels = await list_own_labels(visit, parent_id=trace["id"])
    shown = [await visit.call(search.get_result, result["id"]) for result in results[:_MOST_RESULTS]]
    found, total = await visit.call(span_trees.find_spans, trace["id"], tree, words) if words else ([], 0)
    links = match_calls(tree)
    talk = params.get("view") == "conversation" or not tree.rows
    steps = await asyncio.to_thread(build_timeline, tree.evidence, None) if talk and tree.evidence is not None else []
    begin = min(_read_number(params.get("step"), 1), max(1, len(steps))) - 1
    begin = max(0, begin // _MOST_STEPS * _MOST_STEPS)
    annotations = (await visit.call(list_annotations, subject_id=trace["id"], limit=20))["data"]
    alerts = await visit.source.list_firing_alerts(visit.project_id) if trace["outcome"] in ("fail", "error") else ()
    return visit.render(
        "trace.html",
        **selected,
        **_write_head(trace, tree, find_prices(visit.project)),
        agent=await _find_agent(visit, trace["agent_id"]),
        tree=tree,
        talk=talk,
        results=[_write_result(result, links, labels) for result in shown],
        more_results=results[_MOST_RESULTS:],
        words=words,
        found=found,
        found_total=total,
        steps=list(enumerate(steps, 1))[begin : begin + _MOST_STEPS],
        earlier=begin + 1 - _MOST_STEPS,
        later=begin + 1 + _MOST_STEPS if begin + _MOST_STEPS < len(steps) else None,
        alerts=[rule for rule in alerts if rule["agent_id"] in (None, trace["agent_id"])],
        annotations=[{**result, "address": visit.find_address("labels", result["id"])} for result in annotations],
        authors=await visit.name_authors(annotations),
        longest_note=LONGEST_NOTE,
    )


def _find_failing(tree: SpanTree, place: int | None) -> Record:
    """Return the number of failing spans, which of them is selected, and the addresses of its neighbours."""
    count = len(tree.failing)
    if not count:
        return {"count": 0}
    at = bisect_left(tree.failing, -1 if place is None else place)
    is_one = at < count and tree.failing[at] == place
    around = [tree.failing[(at - 1) % count], tree.failing[(at + is_one) % count]]
    before, after = (f"?{urlencode({'span': tree.rows[other].id})}#r{other}" for other in around)
    return {"count": count, "at": at + 1 if is_one else None, "before": before, "after": after}


def find_prices(project: Record) -> PriceList | None:
    """Return the prices of a project; None if there are none, or they cannot be read."""
    try:
        return read_project_prices(project)
    except Refusal:
        return None  # of no use; the settings report it


def write_cost(cost: float, prices: PriceList) -> str:
    """Return the cost of a trace with its currency."""
    return price_words(Cost(agent=cost, judge=0.0, currency=prices.currency))


def _write_head(trace: Record, tree: SpanTree, prices: PriceList | None) -> Record:
    """Return the input, the answer and figures of the trace."""
    evidence, digest = tree.evidence, trace["digest"]
    if evidence is not None:
        digest = msgspec.structs.replace(read_digest(make_digest(evidence)), answer=evidence.text or evidence.body)
    cost = digest.find_cost(prices)
    prompt = trace["input_text"] if evidence is None or evidence.input in (None, "") else evidence.input
    usage, duration_ms = digest.usage, digest.duration_ms
    models = usage.models if usage is not None else ()
    if duration_ms is None and tree.rows:
        duration_ms = (tree.end_ns - tree.start_ns) / 1e6
    return {
        "prompt": None if prompt in (None, "") else draw_rich_text(prompt),
        "answer": None if digest.answer in (None, "") else draw_rich_text(digest.answer),
        "models": ", ".join(models) or digest.model or "",
        "tokens": usage_words(usage),
        "cost": None if cost is None or prices is None else write_cost(cost, prices),
        "took_ms": duration_ms,
    }


async def label_trace(visit: Visit) -> Response:
    """Store a label or note of a trace and show it."""
    form = await visit.read_form()
    trace = await visit.find("trace", search.find_trace)
    label = form.get("label") or None
    if label not in (None, "pass", "fail"):
        raise Refusal("BAD_REQUEST", "a label must be pass or fail")
    made = NewAnnotation(subject="trace", subject_id=trace["id"], label=label, note=form.get("note", "").strip())
    await visit.call(create_annotation, made)
    return redirect(f"{visit.find_address('traces', trace['id'])}#comments")


async def _list_results(visit: Visit, trace_id: str) -> Sequence[Record]:
    """Return the results of a trace, without assertions, what failed first."""
    page = await visit.call(search.list_results, ResultSearch(trace_id=trace_id), limit=100)
    return sorted(page["data"], key=lambda result: (_RANKS.get(result["outcome"], 2), result["case_key"]))


async def _find_agent(visit: Visit, id: str) -> Record | None:
    """Return an agent; None if it was deleted."""
    try:
        return await visit.call(get_agent, id)
    except Refusal:
        return None


async def list_own_labels(visit: Visit, *, parent_id: str | None = None, subject_id: str | None = None) -> dict[tuple[str, int], str]:
    """Return the caller's labels of the claims of a trace or an attempt, by result or attempt and number."""
    found = await visit.call(list_annotations, parent_id=parent_id, subject_id=subject_id, limit=100)
    mine = [label for label in found["data"] if label["author"] == visit.caller.actor]
    return {(label["subject_id"], label["claim"]): label["label"] or "" for label in mine if label["claim"] is not None}


def _cut_window(tree: SpanTree, visit: Visit, selected: int | None) -> Record:
    params = visit.params
    level = _read_number(params.get("level"), -1)
    level = choose_level(tree.by_depth, WINDOW) if level < 0 else level
    turned = tuple(dict.fromkeys(params.getlist("turned")))[:_MOST_TURNED]
    # A selected row is opened, unless the rows were chosen otherwise.
    target = selected if "span" in params or not {"level", "turned", "from"} & params.keys() else None
    opened = ExpandedRows(level=level, turned=frozenset(turned))
    above = set[int]() if target is None else list_above(tree, target)
    visible = list_visible(tree, opened, also=above)
    last = max(0, len(visible) - WINDOW)
    # Show the target span with a few rows before it.
    near = 0 if target is None else max(0, visible.index(target) - WINDOW // 3)
    first = min(last, _read_number(params.get("from"), near))
    state: dict[str, Any] = {"level": level, "turned": turned}
    span = {} if selected is None else {"span": tree.rows[selected].id}
    window = visible[first : first + WINDOW]
    total_ns = max(1, tree.end_ns - tree.start_ns)
    # Rows open and close where they are.
    place_of_window = {**state, "from": first}
    return {
        "rows": [_write_row(tree, place, opened, place in above, place_of_window, total_ns, selected) for place in window],
        "first": first,
        "visible": len(visible),
        "size": WINDOW,
        "level": level,
        "deepest": tree.deepest,
        "address": _write_address({**state, **(span if target is not None else {})}),
        "before": _write_address({**state, **span, "from": max(0, first - WINDOW)}) if first else None,
        "after": _write_address({**state, **span, "from": first + WINDOW}) if first + WINDOW < len(visible) else None,
        "shallower": _write_address({"level": max(1, level - 1)}),
        "deeper": _write_address({"level": level + 1}),
    }


def _write_row(
    tree: SpanTree, place: int, opened: ExpandedRows, forced: bool, state: Record, total_ns: int, selected: int | None
) -> Record:
    row = tree.rows[place]
    failing_below = bisect_right(tree.failing, place + row.below) - bisect_right(tree.failing, place)
    is_open = forced or opened.is_open(row)
    turned = [id for id in state["turned"] if id != row.id] if row.id in state["turned"] else [*state["turned"], row.id]
    begin = (row.start_ns - tree.start_ns) / total_ns * 1000 if row.start_ns else 0
    # Short spans have a visible minimum width.
    length = max(2.0, ((row.took_ms or 0) * 1e6) / total_ns * 1000)
    return {
        "place": place,
        "row": row,
        "indent": min(row.depth, _DEEPEST),
        "deep": row.depth if row.depth > _DEEPEST else None,
        "is_open": is_open,
        "is_target": place == selected,
        "failing_below": failing_below,
        "begin": round(min(998.0, max(0.0, begin)), 1),
        "length": round(min(1000.0, length), 1),
        # A row above the selected one is closed only without it.
        "turn": _write_address({**state, "turned": turned}, span=None if forced or selected is None else tree.rows[selected].id)
        + f"#r{place}",
        "address": _write_address({"level": state["level"], "turned": state["turned"], "span": row.id}) + f"#r{place}",
    }


def _write_address(state: Record, **more: str | None) -> str:
    return "?" + urlencode({name: value for name, value in {**state, **more}.items() if value is not None}, doseq=True)


def _read_number(text: str | None, otherwise: int) -> int:
    found = read_digits(text, 8)
    return otherwise if found is None else found


def _write_span(span: Span, place: int, tree: SpanTree) -> Record:
    row = tree.rows[place]
    above: list[tuple[int, SpanRow]] = []
    parent = row.parent
    while parent >= 0 and len(above) < 12:
        above.append((parent, tree.rows[parent]))
        parent = tree.rows[parent].parent
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


def _write_result(result: Record, links: dict[str, str], labels: Mapping[tuple[str, int], str]) -> Record:
    document: Json = result["result"]
    assertions: list[Json] = (document.get("assertions") if isinstance(document, dict) else None) or []
    numbered = [(number, assertion) for number, assertion in enumerate(assertions) if isinstance(assertion, dict)]
    ordered = sorted(numbered, key=lambda assertion: _RANKS.get(str(assertion[1].get("outcome")), 2))
    rows = [
        {
            "outcome": assertion.get("outcome"),
            "title": assertion.get("label") or assertion.get("check") or "",
            "reason": assertion.get("reason") or "",
            "spans": [(pointer, _find_link(str(pointer), links)) for pointer in (assertion.get("pointers") or ())[:6]],
            "number": number,
            "code": assertion.get("code"),
            "judged": bool((assertion.get("details") or {}).get("judge")) and assertion.get("outcome") != "skip",
            "label": labels.get((result["id"], number), ""),
        }
        for number, assertion in ordered[:_MOST_ASSERTIONS]
    ]
    return {**result, "result": None, "assertions": rows, "more": max(0, len(ordered) - _MOST_ASSERTIONS)}


def _find_link(pointer: str, links: dict[str, str]) -> str | None:
    """Return the address of the span that a pointer refers to, if known."""
    found = next((span_id for place, span_id in links.items() if pointer == place or pointer.startswith((f"{place}.", f"{place}["))), None)
    return None if found is None else _write_address({"span": found}) + "#evidence"
