"""One attempt: assertions, evidence and timeline; alone or next to other attempts of its case."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from proctor.model.evidence import Evidence
from proctor.model.json_values import read_digits
from proctor.pages.drawing import label_buttons
from proctor.pages.pictures import draw_history, lay_out_durations
from proctor.pages.places import Record
from proctor.pages.screens.cases import say_history
from proctor.pages.screens.trace import list_own_labels
from proctor.pages.session_cookie import make_form_proof
from proctor.pages.visit import Source, Visit
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


async def show_result(visit: Visit) -> Response:
    """Show an attempt, or several side by side (`?with=ID`, up to three times)."""
    run = await visit.find_run()
    source, id = visit.source, visit.path["result"]
    first, requested = read_digits(visit.params.get("step"), 6) or 1, visit.params.getlist("with")
    # Written again in the rare case that none of the others exist.
    most = _STEPS_SIDE_BY_SIDE if requested else _STEPS
    attempt = await _show(source, run["id"], id, first, most)
    same_case = AttemptFilter(case=attempt["summary"]["case"])
    others = await source.list_results(run["id"], same_case, limit=_MOST_ATTEMPTS)
    # Lists the newest attempts, and always the one shown.
    listed = {other["id"]: other for other in (*others["data"], attempt["summary"])}
    attempts = sorted(listed.values(), key=lambda other: other["attempt"])
    # Ids that are no other attempts of the case are ignored.
    other_ids = [other for other in dict.fromkeys(requested) if other in listed and other != id][:_MOST_OTHERS]
    if requested and not other_ids:
        attempt = await _show(source, run["id"], id, first, _STEPS)
    side_by_side = [await _show(source, run["id"], id, 1, most) for id in other_ids]
    failing, previous = await asyncio.gather(source.find_failing_place(run["id"], id), source.find_previous_runs(visit.project_id, [run]))
    before = previous.get(run["id"])
    earlier = None if before is None else await source.list_results(before["id"], same_case)
    ids = [other["id"] for other in attempts]
    at = ids.index(id)
    return visit.render(
        "result.html",
        run=run,
        failing=failing,
        before=before,
        earlier=[] if earlier is None else earlier["data"],
        contests=await _draw_contests(visit, run, attempt),
        attempts=attempts,
        more_attempts=max(0, (others["_meta"].get("total") or 0) - len(attempts)),
        **attempt,
        others=side_by_side,
        shown_ids=[id, *other_ids],
        assertion_rows=_compare_assertions([attempt["doc"], *(other["doc"] for other in side_by_side)]),
        previous=ids[at - 1] if at > 0 else None,
        next=ids[at + 1] if at < len(ids) - 1 else None,
    )


async def _draw_contests(visit: Visit, run: Record, attempt: Record) -> dict[int, Element]:
    """Return the buttons that label what a judge decided, by the number of the assertion."""
    if not attempt["judged"] or not visit.source.may_write:
        return {}
    id, proof, address = attempt["summary"]["id"], make_form_proof(visit.request.scope), visit.find_address("labels")
    labels = await list_own_labels(visit, subject_id=id)
    back = visit.find_address("runs", run["id"], "r", id)
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


async def show_history(visit: Visit) -> Response:
    """Show a case of a suite over its runs: `?suite=shop&case=refund`."""
    await visit.find_project()
    suite, case = (visit.params.get(name, "")[:1000] for name in ("suite", "case"))
    page = await visit.source.list_case_history(visit.project_id, suite, case, cursor=visit.cursor, limit=_HISTORY)
    if not page["data"] and not visit.cursor:
        raise not_found("case", case[:200])
    chart = draw_history(page["data"], say_history("runs", page["data"]))
    return visit.render("case_history.html", suite=suite, case=case, page=page, chart=chart)


async def show_json(visit: Visit) -> Response:
    """Return the attempt as JSON, as in REST."""
    run = await visit.find_run()
    read = await visit.source.read_result(run["id"], visit.path["result"])
    body = await asyncio.to_thread(lambda: msgspec.json.format(to_json(write_read_result(read)), indent=2))
    return Response(body, media_type="application/json")


async def show_text(visit: Visit) -> Response:
    """Return a text of the evidence in full: `?at=$.text`."""
    run = await visit.find_run()
    read = await visit.source.read_result(run["id"], visit.path["result"])
    place = visit.params.get("at", "$.text")
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


def _write_document(read: ReadResult, first: int, most: int) -> Record:
    """Return an attempt as the page shows it: steps from `first` on, and the target of each assertion."""
    evidence, cost = read.entry.evidence, read.result.cost
    shown: dict[str, Any] = {**write_case(read.result.case), **write_attempt(read.result, read.entry, with_evidence=True)}
    document: dict[str, Any] = lay_out_attempt(shown, first, most)
    if evidence is not None and document.get("timeline"):
        found = lay_out_durations(document["timeline"], evidence, document["find_page"])
        document["waterfall"] = None if found is None else {**found, "cost": "" if cost is None else cost_words(cost)}
    return document


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
