"""Pages for the objects of the verification API ("nouns"): lists, records, JSON, shared runs, leaderboards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.model.evidence import Json, State, StateChange, StateRequest
from proctor.model.typed import convert_to
from proctor.pages import nouns
from proctor.pages.pictures import draw_share
from proctor.pages.places import Record
from proctor.pages.rendering import render_page
from proctor.pages.screens import noun_forms
from proctor.pages.visit import Visit, get_hub
from proctor.report.blocks.attempt import draw_time
from proctor.report.blocks.systems import draw_request_table, draw_systems
from proctor.report.html.case import write_request, write_systems
from proctor.report.words.html_text import Element, Node, make
from proctor.report.words.tallies import has_named_axes, name_axis
from proctor.service.refusals import Refusal
from proctor.service.verification.runs.leaderboard import MOST_RUNS, get_public_leaderboard
from proctor.service.verification.runs.shares import get_shared_run
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.fields import label_of
from proctor.store.sql.compressed_json import to_json

# --- a shared benchmark run, for everyone with the link

_LONGEST_EVIDENCE = 5_000
"""Characters of the evidence of one criterion; the JSON has all of it."""
_MOST_TASKS = 50
_MOST_CRITERIA = 200
"""Tasks and criteria on the page; the JSON has all of them."""
_HEADERS = {"referrer-policy": "no-referrer", "x-robots-tag": "noindex, nofollow"}
"""The address is the secret: it must not leak through referrers or search engines."""


async def show_shared_run(request: Request) -> Response:
    """Show a shared run."""
    token = request.path_params["token"]
    run = await get_shared_run(get_hub(request), token)
    tasks, remaining = run["tasks"][:_MOST_TASKS], _MOST_CRITERIA
    shown_tasks: list[dict[str, Json]] = []
    for task in tasks:
        criteria = task.get("criteria", [])[: max(0, remaining)]
        remaining -= len(criteria)
        shown_tasks.append({**task, "criteria": [{**criterion, "evidence": _shorten(criterion.get("evidence"))} for criterion in criteria]})
    criteria_counts = [(len(shown["criteria"]), len(task.get("criteria", []))) for shown, task in zip(shown_tasks, tasks, strict=True)]
    is_cut = len(tasks) < len(run["tasks"]) or any(shown < total for shown, total in criteria_counts)
    values = {"run": run, "tasks": shown_tasks, "is_cut": is_cut, "json_path": f"/shared/{token}", "draw_share": draw_share}
    return render_page(request, "shared_run.html", values, headers=_HEADERS)


def _shorten(evidence: Json) -> str:
    if not evidence:
        return ""
    return msgspec.json.format(to_json(evidence), indent=2).decode(errors="replace")[:_LONGEST_EVIDENCE]


# --- the leaderboard of a published benchmark

_MOST_AXES = 6
"""Axes with a column."""


async def show_leaderboard(visit: Visit) -> Response:
    """Show the agents of a benchmark, best first."""
    slug = visit.path["slug"]
    board = await visit.call(get_public_leaderboard, slug)
    axes = sorted({axis for place in board["places"] for axis in place["axes"]})
    return visit.render(
        "leaderboard.html",
        nouns=nouns,
        parts=["leaderboard", slug],
        board=board,
        most_runs=MOST_RUNS,
        # A single axis without a name repeats the score. A benchmark may have any number of axes; REST has all of them.
        axes=axes[:_MOST_AXES] if has_named_axes(axes) else [],
        draw_share=draw_share,
    )


_ROWS = 50
_KINDS_OF_CHANGE = ("added", "changed", "removed")
_MOST_NAMED = 20
"""Records that others refer to whose names a page reads."""
_LONGEST_JSON = 20_000
"""Characters of a large value on a page; the rest is linked."""


async def show(visit: Visit) -> Response:
    """Show a list, record, form or confirmation by its address."""
    parts = noun_forms.find_parts(visit)
    found = nouns.find_operation("GET", parts)
    is_new = parts[-1] == "new" and nouns.find_operation("POST", parts[:-1]) is not None
    if found is not None and not is_new:
        return await (_show_list(visit, found, parts) if found.pages else _show_record(visit, found, parts))
    if parts[-1] == "json" and (record := nouns.find_operation("GET", parts[:-1])) is not None and not record.pages:
        body = await asyncio.to_thread(_write_json, await _call(visit, record, parts[:-1]))
        return Response(body, media_type="application/json")
    return await noun_forms.show(visit, parts)


async def _show_list(visit: Visit, operation: Operation, parts: list[str]) -> Response:
    within = visit.params.get(operation.within) if operation.within else None
    page = await _call(visit, operation, parts, within=within, cursor=visit.cursor)
    can_create = nouns.find_operation("POST", parts) is not None
    parent = (operation.within, within) if operation.within and within else None
    names = await _name_references(visit, {}, [(operation.gives, page["data"])], parent)
    return visit.render(
        "nouns.html",
        title=parts[-1],
        nouns=nouns,
        operation=operation,
        parts=parts,
        page=page,
        within=parent,
        above=_find_above(parts, parent, names),
        new=f"{nouns.make_address(parts)}/new" if can_create else None,
        table={**_make_table(operation, parts, page["data"]), "names": names},
        log=_draw_log(page["data"]) if _lists_requests(operation) else None,
    )


async def _show_record(visit: Visit, operation: Operation, parts: list[str]) -> Response:
    record = await _call(visit, operation, parts)
    assert operation.gives is not None
    facts, large, nested = nouns.choose_facts(operation.gives, parts)
    sections: list[Record] = []
    titles = nouns.collect_names(record.get("snapshot"))
    below = [
        (one, address, await _call(visit, one, address, within=parts[1] if one.within else None))
        for one, address in nouns.list_below(parts)
    ]
    # The field that names the parent of the record, and its value.
    noun = operation.noun
    parent = (noun.parent, str(record[noun.parent])) if noun.parent and record.get(noun.parent) else None
    shown = [(operation.gives, [record]), *((one.gives, page["data"]) for one, _, page in below if "data" in page)]
    known = titles | ({parts[-1]: nouns.find_title(record)} if len(parts) == 2 else {})
    names = await _name_references(visit, known, shown, parent)
    for one, address, page in below:
        section = _make_section(one, address, page, parts, names, titles)
        sections.append({**section, "log": _draw_log(page["data"])} if _lists_requests(one) else section)
    return visit.render(
        "noun.html",
        nouns=nouns,
        operation=operation,
        parts=parts,
        record=record,
        facts={name: (field, record.get(name)) for name, field in facts.items() if record.get(name) not in (None, [])},
        large={name: _shorten_json(record[name]) for name in large if record.get(name) not in (None, {}, [])},
        differs=_draw_differences(record) if _lists_differences(operation) else None,
        apart=[await _read_apart(visit, one, address) for one, address in nouns.list_apart(parts)],
        axes=_list_axes(record.get("axes")),
        nested=[_make_nested(name, field, record, parts, names, titles) for name, field in nested.items()],
        sections=sections,
        actions=[
            {"last": last, "about": one.about, "label": noun_forms.name_action(one), "asks": one.takes or one.path.endswith("}")}
            for last, one in nouns.list_actions(parts)
            if nouns.is_possible(last, record)
        ],
        draw_share=draw_share,
        may_change=nouns.find_operation("PATCH", parts) is not None,
        may_delete=nouns.find_operation("DELETE", parts) is not None,
        above=_find_above(parts, parent, names),
        names=names,
    )


async def _name_references(
    visit: Visit, names: dict[str, str], tables: Sequence[tuple[Any, Sequence[Record]]], parent: tuple[str, str] | None
) -> dict[str, str]:
    """Return the names of what records refer to, by id, besides those that are known."""
    wanted = {} if parent is None else {parent[1]: parent[0].removesuffix("_id")}
    for shape, rows in tables:
        for name, field in shape.fields.items():
            wanted |= {str(row[name]): field.kind.refers for row in rows if field.kind.refers and isinstance(row.get(name), str)}
    found = dict(names)
    for id, kind in [pair for pair in wanted.items() if pair[0] not in names][:_MOST_NAMED]:
        address = nouns.find_record_address(kind, id)
        parts = [] if address is None else [address.split("/")[2], id]
        operation = nouns.find_operation("GET", parts) if parts else None
        if operation is None:
            continue
        try:
            found[id] = nouns.find_title(await _call(visit, operation, parts))
        except Refusal:
            continue  # deleted
    return {id: name for id, name in found.items() if name != id}


async def _read_apart(visit: Visit, operation: Operation, address: list[str]) -> Record:
    """Return other documents of a record, or why the service has none."""
    section: dict[str, Any] = {"title": address[-1], "address": nouns.make_address(address), "about": operation.about}
    try:
        record = await _call(visit, operation, address)
    except Refusal as refusal:
        if refusal.code not in ("NOT_FOUND", "CONFLICT"):
            raise
        return {**section, "refused": refusal.message}
    if _lists_differences(operation):
        return {**section, "differs": _draw_differences(record)}
    assert operation.gives is not None
    _, large, _ = nouns.choose_facts(operation.gives, address)
    found = [(name, *_shorten_json(record[name])) for name in large if record.get(name) not in (None, {}, [])]
    return {**section, "large": found}


def _lists_differences(operation: Operation) -> bool:
    return operation.gives is not None and operation.gives.fields.keys() >= {*_KINDS_OF_CHANGE}


def _draw_differences(record: Record) -> list[Node]:
    """Return added, changed and removed records with before and after."""
    changes = [{**one, "change": kind} for kind in _KINDS_OF_CHANGE for one in record.get(kind) or ()]
    state = State(changes=convert_to(changes, tuple[StateChange, ...]))
    return draw_systems(write_systems(state))


def _lists_requests(operation: Operation) -> bool:
    return operation.pages and operation.gives is not None and operation.gives.fields.keys() >= {"method", "path", "response"}


def _draw_log(rows: Sequence[Record]) -> Element | None:
    """Return requests and steps of a system."""
    return draw_request_table([_write_event(row) for row in rows]) if rows else None


def _write_event(row: Record) -> dict[str, Any]:
    method, path = (row["method"] or "", row["path"] or "") if row["type"] == "request" else (row["step"] or "", "")
    request_body, response_body = (row["body"], row["response"]) if row["type"] == "request" else (row["given"], row["error"])
    request = StateRequest(
        system=row["system"] or "", method=method, path=path, status=row["status"] or 0, body=request_body, response=response_body,
        duration_ms=row["duration_ms"],
    )  # fmt: skip
    return {**write_request(request), "status": row["status"], "when": make("small", "", draw_time(row["created_at"]))}


async def _call(visit: Visit, operation: Operation, parts: list[str], *, cursor: str | None = None, within: str | None = None) -> Any:
    options: dict[str, Any] = {"limit": _ROWS, "cursor": cursor} if operation.pages else {}
    if operation.within is not None:
        options[operation.within] = within or None
    return await visit.call(operation.call, *nouns.find_ids(operation, parts), **options)


def _make_section(
    operation: Operation, address: list[str], page: Any, parts: list[str], names: dict[str, str], titles: dict[str, str]
) -> Record:
    """Return a list that belongs to a record; if the answer is not a list, the records in it."""
    assert operation.gives is not None
    query = f"?{operation.within}={nouns.quote_part(parts[1])}" if operation.within else ""
    new = nouns.find_operation("POST", address)
    rows, more, shape = page.get("data"), bool(page.get("_meta", {}).get("next")), operation.gives
    if rows is None:
        inner = next((name, field.kind.shape) for name, field in shape.fields.items() if field.kind.shape is not None)
        rows, shape = page[inner[0]], inner[1]
    return {
        "title": address[-1],
        "address": nouns.make_address(address) + query,
        "new": f"{nouns.make_address(address)}/new{query}" if new is not None and (operation.within or new.takes) else None,
        "more": more,
        "table": {**_make_table(operation, address, rows, shape=shape, drop=operation.within), "names": names, "titles": titles},
    }


def _make_nested(name: str, field: Any, record: Record, parts: list[str], names: dict[str, str], titles: dict[str, str]) -> Record:
    rows: Any = record.get(name) or []
    address = [*parts, name]
    kind = next((noun.kind for first, noun in nouns.list_nouns() if first.replace("-", "_") == name), "")
    found = [(nouns.find_record_address(kind, str(row.get("id"))), _find_remove(address, row), row) for row in rows]
    return {"title": name, "table": {"columns": nouns.choose_columns(field.kind.shape), "rows": found, "names": names, "titles": titles}}


def _make_table(operation: Operation, parts: list[str], rows: Any, *, shape: Any = None, drop: str | None = None) -> Record:
    shape = shape or operation.gives
    assert shape is not None
    has_page = nouns.find_operation("GET", [*parts, ""]) is not None
    kind = next((noun.kind for _, noun in nouns.list_nouns() if noun.name == shape.group and shape.group), None)
    found: list[tuple[str | None, str | None, Json]] = []
    for row in rows:
        id = str(row.get("id", ""))
        address = nouns.make_address([*parts, id]) if has_page else nouns.find_record_address(kind, id)
        found.append((address, None if has_page else _find_remove(parts, row), row))
    return {"columns": [one for one in nouns.choose_columns(shape) if one[0] != drop], "rows": found, "names": {}, "titles": {}}


def _find_remove(parts: list[str], row: Record) -> str | None:
    """Return the address that removes a row from its list, if possible."""
    address = [*parts, str(row.get("id", ""))]
    return f"{nouns.make_address(address)}/delete" if nouns.find_operation("DELETE", address) else None


def _find_above(parts: list[str], within: tuple[str, str] | None, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the addresses above a page, the nearest last: of a record within another one, that one and its list."""
    above: list[tuple[str, str]] = []
    kind = within[0].removesuffix("_id") if within else ""
    if within and (address := nouns.find_record_address(kind, within[1])):
        noun = address.split("/")[2]
        above = [(nouns.make_address([noun]), noun_forms.name_noun(noun)), (address, names.get(within[1], label_of(kind)))]
        if len(parts) <= 2:
            return above
    for number in range(1, len(parts)):
        if nouns.find_operation("GET", parts[:number]) is not None:
            # The noun, since an id is no name.
            noun = noun_forms.name_noun(parts[number - 1 - (number + 1) % 2])
            name = noun if number % 2 else noun.removesuffix("s")
            above.append((nouns.make_address(parts[:number]), name))
    return above


def _list_axes(axes: Any) -> list[tuple[str, float, float]]:
    """Return the axes of a task run with score and weight."""
    if not isinstance(axes, dict):
        return []
    found: list[tuple[str, float, float]] = []
    for name, one in axes.items():  # type: ignore[misc]  # JSON
        if isinstance(one, dict) and isinstance(one.get("score"), (int, float)):  # type: ignore[union-attr]
            found.append((name_axis(str(name)), float(one["score"]), float(one.get("weight") or 1)))  # type: ignore[arg-type]
    return found if has_named_axes(axes) else []  # type: ignore[arg-type]


def _shorten_json(value: Json) -> tuple[str, bool]:
    """Return a value as JSON of limited length, and whether it was cut."""
    text = _write_json(value).decode(errors="replace")
    return text[:_LONGEST_JSON], len(text) > _LONGEST_JSON


def _write_json(value: Json) -> bytes:
    return msgspec.json.format(to_json(value), indent=2)
