"""Answers that wait for a person: one at a time, two keys to answer; and how far the judge agrees with the labels there are."""

from __future__ import annotations

import asyncio

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.forms import read_form
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.trace_source import TraceSource
from proctor.pages.words import find_project_address, show_share
from proctor.report.html.calibration_chart import WORDS, draw_interval_bar, draw_sweep_chart
from proctor.report.words.html_text import write_block, write_pretty
from proctor.scoring.agreement import Figure
from proctor.service.labels.agreement import Agreement, count_labels, write_labels
from proctor.service.labels.annotations import LONGEST_NOTE, NewAnnotation
from proctor.service.labels.claims import JudgedClaim
from proctor.service.labels.queue import Posed, require_kind
from proctor.service.refusals import Refusal

_LATEST = 8
_LONGEST_ANSWER = 20_000
_FIGURES = ("accuracy", "kappa", "precision", "recall")


async def show_labels(request: Request, source: Source) -> Response:
    """Show the claim to be judged next, or the one that the address names; and the agreement so far."""
    seen = TraceSource.of_request(request)
    project = await source.get_project(request.path_params["project"])
    waiting = await seen.list_waiting(project["id"])
    asked = request.query_params
    if asked.get("subject"):
        posed = await seen.pose_claim(require_kind(asked["subject"]), asked.get("id", ""), _read_claim(asked.get("claim")))
        if posed is not None and posed.subject.project_id != project["id"]:
            raise Refusal("NOT_FOUND", "there is no such claim in this project")
    else:
        posed = await seen.pose_next(waiting)
    found = await seen.read_agreement(project["id"])
    latest = await seen.list_latest_labels(project["id"], _LATEST)
    values = {
        "project": project,
        "source": source,
        "waiting": waiting,
        "posed": None if posed is None else _write_posed(posed, project),
        "chosen": bool(asked.get("subject")),
        "found": found,
        "counts": count_labels(found),
        "figures": _list_figures(found),
        "curve": await asyncio.to_thread(_draw_curve, found),
        "latest": [{**one, "address": find_label_address(project["id"], one["id"])} for one in latest],
        "longest_note": LONGEST_NOTE,
    }
    return render_page(request, "labels.html", values)


async def save_label(request: Request, source: Source) -> Response:
    """Keep a label, and go on to the next claim."""
    form = await read_form(request)
    seen = TraceSource.of_request(request)
    project = await source.get_project(request.path_params["project"])
    label = form.get("label")
    if label not in ("pass", "fail", "skip"):
        raise Refusal("BAD_REQUEST", "a label is pass, fail or skip", hint="go back and take one of the three buttons")
    claim = _read_claim(form.get("claim"))
    kind = require_kind(form.get("subject", ""))
    spoken = NewAnnotation(subject=kind, subject_id=form.get("id", ""), claim=claim, label=label, note=form.get("note", "").strip())
    await seen.annotate(spoken)
    return redirect(find_project_address(project["id"], "labels"))


async def export_labels(request: Request, source: Source) -> Response:
    """Return the labels as the file that `proctor judge calibrate` reads."""
    seen = TraceSource.of_request(request)
    project = await source.get_project(request.path_params["project"])
    found = await seen.read_agreement(project["id"], figures=False)
    headers = {"content-disposition": 'attachment; filename="labels.jsonl"'}
    return Response(write_labels(found), media_type="application/x-ndjson", headers=headers)


def _read_claim(text: str | None) -> int:
    if not text or not text.isascii() or not text.isdigit() or len(text) > 5:
        raise Refusal("BAD_REQUEST", "the claim is a number")
    return int(text)


def _write_posed(posed: Posed, project: Record) -> Record:
    subject = posed.subject
    address = find_subject_address(project["id"], subject.kind, subject.parent_id, subject.id, posed.claim.number)
    return {**write_claim(posed.claim), "subject": subject, "address": address}


def write_claim(claim: JudgedClaim) -> Record:
    """Return a claim that a judge decided, with what it was decided on in words that a page can bear."""
    context = claim.context if isinstance(claim.context, dict) else {}
    return {
        "claim": claim,
        "criterion": _write_text(claim.criterion),
        "answer": _write_text(claim.answer),
        "context": [(str(name), _write_text(value)) for name, value in list(context.items())[:12] if value not in (None, "", [], {})],
    }


def _write_text(value: object) -> str:
    return write_block(value, _LONGEST_ANSWER) if isinstance(value, str) else write_pretty(value, _LONGEST_ANSWER)


def _list_figures(found: Agreement) -> list[Record]:
    if found.calibration is None:
        return []
    return [_write_figure(name, found.calibration.figures[name]) for name in _FIGURES if name in found.calibration.figures]


def _write_figure(name: str, figure: Figure) -> Record:
    def write(value: float) -> str:
        return show_share(value) if name != "kappa" else f"{value:,.2f}"

    bounds = figure.interval
    return {
        "name": name,
        "value": None if figure.value is None else write(figure.value),
        "low": None if bounds is None else write(bounds.low),
        "high": None if bounds is None else write(bounds.high),
        # Coordinates alone: nothing in it comes from anybody else.
        "bar": Markup(draw_interval_bar(figure, low=-1.0 if name == "kappa" and (bounds is None or bounds.low < 0) else 0.0)),
    }


def _draw_curve(found: Agreement) -> Markup | None:
    known = found.calibration
    if known is None or found.threshold is None or len(known.sweep) < 2:
        return None
    chosen = None if known.cut is None else known.cut.threshold
    return Markup(draw_sweep_chart(known.sweep, found.threshold, chosen, {**WORDS, "chosen": "best"}))


def find_label_address(project_id: str, id: str) -> str:
    """Return the address of one label."""
    return find_project_address(project_id, "labels", id)


def find_subject_address(project_id: str, kind: str, parent_id: str, id: str, claim: int | None) -> str:
    """Return the address of what a label is about: an assertion of an attempt, the attempt, or the trace."""
    if kind != "attempt":
        return find_project_address(project_id, "traces", parent_id)
    return find_project_address(project_id, "runs", parent_id, "r", id) + ("" if claim is None else f"#a{claim + 1}")
