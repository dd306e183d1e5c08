"""One attempt: assertions, evidence and timeline; alone or next to other attempts of its case."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.model.evidence import Evidence
from proctor.pages.desk import find_project, open_desk
from proctor.pages.drawing import label_buttons
from proctor.pages.pictures import draw_history, lay_out_durations
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import render_page
from proctor.pages.screens.cases import say_history
from proctor.pages.screens.run import find_run
from proctor.pages.screens.trace import list_own_labels
from proctor.pages.session_cookie import make_form_proof
from proctor.pages.words import find_project_address
from proctor.report.blocks.attempt_layout import lay_out_attempt
from proctor.report.html.case import write_attempt, write_case
from proctor.report.words.html_text import Element
from proctor.report.words.wording import cost_words
from proctor.service.refusals import not_found
from proctor.service.runs.backtest_runner import TRACE_KEY
from proctor.service.runs.results import ReadResult, write_read_result
from proctor.service.runs.run import AttemptFilter
from proctor.store.sql.compressed_json import to_json

_MOST_ATTEMPTS = 100
_HISTORY = 30
"""Runs of a history per page."""
_MOST_OTHERS = 3
"""Further attempts next to the first one."""
_STEPS, _STEPS_SIDE_BY_SIDE = 80, 40
"""Steps of a timeline per page, alone and side by side."""
_STEP_OF_PATH = re.compile(r"\.(\w+)|\[(\d{1,6})\]")


async def show_result(request: Request, source: Source) -> Response:
    """Show an attempt, or several side by side (`?with=ID`, up to three times)."""
    project, run = await find_run(request, source)
    first, requested = _read_number(request.query_params.get("step")), request.query_params.getlist("with")
    # Written again in the rare case that none of the others exist.
    most = _STEPS_SIDE_BY_SIDE if requested else _STEPS
    attempt = await _show(source, run["id"], request.path_params["result"], first, most)
    others = await source.list_results(run["id"], AttemptFilter(case=attempt["summary"]["case"]), limit=_MOST_ATTEMPTS)
    # Lists the newest attempts, and always the one shown.
    listed = {other["id"]: other for other in (*others["data"], attempt["summary"])}
    attempts = sorted(listed.values(), key=lambda other: other["attempt"])
    other_ids = _choose_others(requested, attempts, attempt["summary"]["id"])
    if requested and not other_ids:
        attempt = await _show(source, run["id"], request.path_params["result"], first, _STEPS)
    side_by_side = [await _show(source, run["id"], id, 1, most) for id in other_ids]
    failing, previous = await asyncio.gather(
        source.find_failing_place(run["id"], attempt["summary"]["id"]), source.find_previous_runs(project["id"], [run])
    )
    before = previous.get(run["id"])
    earlier = None if before is None else await source.list_results(before["id"], AttemptFilter(case=attempt["summary"]["case"]))
    values = {
        "run": run,
        "failing": failing,
        "before": before,
        "earlier": [] if earlier is None else earlier["data"],
        "contests": await _draw_contests(request, source, project, run, attempt),
        "attempts": attempts,
        "more_attempts": max(0, (others["_meta"].get("total") or 0) - len(attempts)),
        **attempt,
        "others": side_by_side,
        "shown_ids": [attempt["summary"]["id"], *other_ids],
        "assertion_rows": _compare_assertions([attempt["doc"], *(other["doc"] for other in side_by_side)]),
        **_find_neighbours(attempts, attempt["summary"]),
    }
    return render_page(request, "result.html", values)


async def _draw_contests(request: Request, source: Source, project: Record, run: Record, attempt: Record) -> dict[int, Element]:
    """Return the buttons that label what a judge decided, by the number of the assertion."""
    if not attempt["judged"] or source.is_local or not source.may_write:
        return {}
    id, proof, address = attempt["summary"]["id"], make_form_proof(request.scope), find_project_address(project["id"], "labels")
    labels = await list_own_labels(open_desk(request, source), subject_id=id)
    back = find_project_address(project["id"], "runs", run["id"], "r", id)
    return {
        number: label_buttons(address, proof, "attempt", id, number, f"{back}#a{number + 1}", labels.get((id, number), ""))
        for number in attempt["judged"]
    }


async def _show(source: Source, run_id: str, result_id: str, first: int, most: int) -> Record:
    """Return what the page shows of an attempt: summary, name of its case, document."""

    def write(read: ReadResult) -> Record:
        metadata = None if read.entry.evidence is None else read.entry.evidence.metadata
        trace = (metadata or {}).get(TRACE_KEY)
        return {
            "summary": read.summary,
            "name": read.result.case.name,
            "doc": _write_document(read, first, most),
            "trace": trace if isinstance(trace, str) else None,
            "judged": [number for number, each in enumerate(read.entry.verdicts) if each.details.get("judge") and each.outcome != "skip"],
        }

    return await source.show_result(run_id, result_id, (first, most), write)


async def show_history(request: Request, source: Source) -> Response:
    """Show a case of a suite over its runs: `?suite=shop&case=refund`."""
    project = await find_project(request, source)
    params = request.query_params
    suite, case = params.get("suite", "")[:1000], params.get("case", "")[:1000]
    page = await source.list_case_history(project["id"], suite, case, cursor=params.get("cursor"), limit=_HISTORY)
    if not page["data"] and not params.get("cursor"):
        raise not_found("case", case[:200])
    chart = draw_history(page["data"], say_history("runs", page["data"]))
    values = {"suite": suite, "case": case, "page": page, "chart": chart}
    return render_page(request, "case_history.html", values)


async def show_json(request: Request, source: Source) -> Response:
    """Return the attempt as JSON, as in REST."""
    _, run = await find_run(request, source)
    read = await source.read_result(run["id"], request.path_params["result"])
    body = await asyncio.to_thread(lambda: msgspec.json.format(to_json(write_read_result(read)), indent=2))
    return Response(body, media_type="application/json")


async def show_text(request: Request, source: Source) -> Response:
    """Return a text of the evidence in full: `?at=$.text`."""
    _, run = await find_run(request, source)
    read = await source.read_result(run["id"], request.path_params["result"])
    place = request.query_params.get("at", "$.text")
    found = None if read.entry.evidence is None else await asyncio.to_thread(find_text, read.entry.evidence, place)
    if found is None:
        raise not_found("text", place[:200])
    # Lone surrogates are replaced.
    return Response(found.encode("utf-8", errors="replace"), media_type="text/plain")


def find_text(evidence: Evidence, place: str) -> str | None:
    """Return the text at a path such as `$.turns[1].text`, if any."""
    value: Any = msgspec.to_builtins(evidence)
    # The whole path must match: `findall` skips what it does not know and would lead to another text.
    if not re.fullmatch(rf"\$(?:{_STEP_OF_PATH.pattern})+", place[:500]):
        return None
    for name, index in _STEP_OF_PATH.findall(place):
        if name and isinstance(value, dict):
            value = value.get(name)
        elif index and isinstance(value, (list, tuple)) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    return value if isinstance(value, str) else None


def _choose_others(requested: Sequence[str], attempts: Sequence[Record], shown_id: str) -> list[str]:
    """Return the requested other attempts of the case; ids that are not are ignored."""
    known = {attempt["id"] for attempt in attempts} - {shown_id}
    return [id for id in dict.fromkeys(requested) if id in known][:_MOST_OTHERS]


def _read_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else 1


def _write_document(read: ReadResult, first: int, most: int) -> Record:
    """Return an attempt as the page shows it: steps from `first` on, and the target of each assertion."""
    shown: dict[str, Any] = {**write_case(read.result.case), **write_attempt(read.result, read.entry, with_evidence=True)}
    document: dict[str, Any] = lay_out_attempt(shown, first, most)
    if read.entry.evidence is not None and document.get("timeline"):
        document["waterfall"] = _find_durations(read, document["timeline"], document["find_page"])
    return document


def _find_durations(read: ReadResult, steps: Sequence[dict[str, Any]], find_page: Any) -> Record | None:
    assert read.entry.evidence is not None
    found = lay_out_durations(steps, read.entry.evidence, find_page)
    cost = read.result.cost
    return None if found is None else {**found, "cost": "" if cost is None else cost_words(cost)}


def _compare_assertions(documents: Sequence[Record]) -> list[Record]:
    """Return a row per assertion with its outcome in each attempt; different ones first."""
    most = max(len(document["assertions"]) for document in documents)
    rows: list[Record] = []
    for number in range(most):
        cells = [document["assertions"][number] if number < len(document["assertions"]) else None for document in documents]
        outcomes = {cell["outcome"] if cell else None for cell in cells}
        title = next(cell["title"] for cell in cells if cell)
        rows.append({"number": number + 1, "title": title, "cells": cells, "differs": len(outcomes) > 1})
    return sorted(rows, key=lambda row: not row["differs"])


def _find_neighbours(attempts: Sequence[Record], summary: Record) -> Record:
    ids = [attempt["id"] for attempt in attempts]
    at = ids.index(summary["id"]) if summary["id"] in ids else -1
    return {
        "previous": ids[at - 1] if at > 0 else None,
        "next": ids[at + 1] if 0 <= at < len(ids) - 1 else None,
    }
