"""Labels: the next claim to label, the agreement with the judge, and all labels."""

from __future__ import annotations

import asyncio
from typing import Any, get_args
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from proctor.model.typed import convert_to
from proctor.pages.desk import Desk, find_in_project, find_project, name_authors, open_desk
from proctor.pages.form_page import Question, ask_first, refuse_if_changed
from proctor.pages.forms import read_form
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address, show_share
from proctor.report.blocks.markdown import draw_rich_text
from proctor.report.builders.calibration import make_sweep_chart, place_figure
from proctor.report.document.html import draw_chart, draw_interval_bar
from proctor.report.words.html_text import write_block, write_markup, write_pretty
from proctor.scoring.agreement import Figure
from proctor.service.labels import annotations, claims
from proctor.service.labels.agreement import Agreement, count_labels, read_agreement, write_labels
from proctor.service.labels.annotations import LONGEST_NOTE, Label, NewAnnotation
from proctor.service.labels.claims import JudgedClaim, ShownClaim, SubjectKind, require_kind
from proctor.service.refusals import Refusal

_LATEST = 8
_LONGEST_ANSWER = 20_000
_FIGURES = ("accuracy", "kappa", "precision", "recall")


async def show_labels(request: Request, source: Source) -> Response:
    """Show the next claim to label, or the one that the query names, and the agreement so far."""
    desk = open_desk(request, source)
    project = await find_project(request, source)
    params = request.query_params
    second = params.get("second") == "1"
    waiting = await claims.list_waiting(desk.hub, desk.caller, project["id"], second=second)
    if params.get("subject"):
        kind, number = require_kind(params["subject"]), _read_claim(params.get("claim"))
        posed = await claims.pose_claim(desk.hub, desk.caller, kind, params.get("id", ""), number)
        if posed is not None and posed.subject.project_id != project["id"]:
            raise Refusal("NOT_FOUND", "there is no such claim in this project")
    else:
        posed = await claims.pose_next(desk.hub, desk.caller, waiting)
    found = await read_agreement(desk.hub, desk.caller, project["id"])
    latest = (await annotations.list_annotations(desk.hub, desk.caller, project_id=project["id"], limit=_LATEST))["data"]
    values = {
        "waiting": waiting,
        "second": second,
        "done": await _find_done(desk, params.get("done")),
        "reviewers": [_write_figure(name, figure) for name, figure in found.reviewers.figures.items()],
        "disputed": [find_label_address(project["id"], id) for id in found.reviewers.disputed[:_LATEST]],
        "posed": None if posed is None else _write_posed(posed, project),
        "chosen": bool(params.get("subject")),
        "found": found,
        "counts": count_labels(found),
        "figures": _list_figures(found),
        "curve": await asyncio.to_thread(_draw_curve, found),
        "latest": [{**entry, "address": find_label_address(project["id"], entry["id"])} for entry in latest],
        "authors": await name_authors(desk, latest),
        "longest_note": LONGEST_NOTE,
    }
    return render_page(request, "labels.html", values)


async def save_label(request: Request, source: Source) -> Response:
    """Store a label and continue with the next claim."""
    form = await read_form(request)
    desk = open_desk(request, source)
    project = await find_project(request, source)
    label = form.get("label")
    if label not in ("pass", "fail", "skip"):
        raise Refusal("BAD_REQUEST", "a label is pass, fail or skip", hint="go back and use one of the three buttons")
    claim = _read_claim(form.get("claim"))
    kind = require_kind(form.get("subject", ""))
    annotation = NewAnnotation(subject=kind, subject_id=form.get("id", ""), claim=claim, label=label, note=form.get("note", "").strip())
    made = await annotations.create_annotation(desk.hub, desk.caller, annotation)
    here = find_project_address(project["id"], "labels")
    back = form.get("back", "")
    # From where the verdict is shown, only to a page of this project.
    if back.startswith(f"{find_project_address(project['id'])}/") and "\n" not in back:
        return redirect(back)
    more = "&second=1" if form.get("second") else ""
    return redirect(f"{here}?done={made['id']}{more}#ask")


async def undo_label(request: Request, source: Source) -> Response:
    """Delete the label that was just written and ask its question again."""
    form = await read_form(request)
    desk, project, label = await _find_label(request, source, to_write=True)
    if label["author"] != desk.caller.actor:
        raise Refusal("FORBIDDEN", "only its author can undo a label")
    await annotations.delete_annotation(desk.hub, desk.caller, label["id"])
    query = {"subject": label["subject"], "id": label["subject_id"], "claim": label["claim"]} | (
        {"second": "1"} if form.get("second") else {}
    )
    return redirect(f"{find_project_address(project['id'], 'labels')}?{urlencode(query)}#ask")


async def _find_done(desk: Desk, id: str | None) -> Record | None:
    """Return the label that was just written; None if there is none."""
    if not id:
        return None
    try:
        found = await annotations.get_annotation(desk.hub, desk.caller, id)
    except Refusal:
        return None
    return {"id": found["id"], "label": found["label"]}


async def export_labels(request: Request, source: Source) -> Response:
    """Return the labels as JSONL for `proctor judge calibrate`."""
    desk = open_desk(request, source)
    project = await find_project(request, source)
    found = await read_agreement(desk.hub, desk.caller, project["id"], figures=False)
    headers = {"content-disposition": 'attachment; filename="labels.jsonl"'}
    return Response(write_labels(found), media_type="application/x-ndjson", headers=headers)


def _read_claim(text: str | None) -> int:
    if not text or not text.isascii() or not text.isdigit() or len(text) > 5:
        raise Refusal("BAD_REQUEST", "the claim must be a number")
    return int(text)


def _write_posed(posed: ShownClaim, project: Record) -> Record:
    subject = posed.subject
    address = find_subject_address(project["id"], subject.kind, subject.parent_id, subject.id, posed.claim.number)
    return {**write_claim(posed.claim), "subject": subject, "address": address, "applies_to": posed.applies_to}


def write_claim(claim: JudgedClaim) -> Record:
    """Return a judged claim with its criterion, answer and context as text."""
    context = claim.context if isinstance(claim.context, dict) else {}
    prompt = None if claim.input in (None, "") else _write_text(claim.input)
    return {
        "claim": claim,
        "prompt": prompt,
        "saw_input": claim.input in context.values(),
        "criterion": _write_text(claim.criterion),
        "answer": draw_rich_text(claim.answer),
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
        return show_share(value) if name != "kappa" else f"{value:,.2f}".replace("-", "−")

    bounds, position = figure.interval, place_figure(name, figure)
    return {
        "name": name,
        "value": None if figure.value is None else write(figure.value),
        "low": None if bounds is None else write(bounds.low),
        "high": None if bounds is None else write(bounds.high),
        "bar": Markup("" if position is None else write_markup(draw_interval_bar(*position))),
    }


def _draw_curve(found: Agreement) -> Markup | None:
    known = found.calibration
    if known is None or found.threshold is None or len(known.sweep) < 2:
        return None
    chosen = None if known.cut is None else known.cut.threshold
    return Markup(write_markup(draw_chart(make_sweep_chart(known.sweep, found.threshold, chosen, "best"))))


def find_label_address(project_id: str, id: str) -> str:
    """Return the address of one label."""
    return find_project_address(project_id, "labels", id)


def find_subject_address(project_id: str, kind: str, parent_id: str, id: str, claim: int | None) -> str:
    """Return the address of the subject of a label: assertion, attempt or trace."""
    if kind != "attempt":
        return find_project_address(project_id, "traces", parent_id)
    return find_project_address(project_id, "runs", parent_id, "r", id) + ("" if claim is None else f"#a{claim + 1}")


_ROWS = 50
LABELS: tuple[str, ...] = get_args(Label)
SUBJECTS: tuple[str, ...] = get_args(SubjectKind)


async def show_all_labels(request: Request, source: Source) -> Response:
    """Show a page of labels, newest first."""
    desk = open_desk(request, source)
    project = await find_project(request, source)
    params = request.query_params
    chosen: dict[str, Any] = {name: params[name] for name, words in (("label", LABELS), ("subject", SUBJECTS)) if params.get(name) in words}
    page = await annotations.list_annotations(
        desk.hub, desk.caller, project_id=project["id"], **chosen, limit=_ROWS, cursor=params.get("cursor")
    )
    values = {
        "page": page,
        "rows": [{"label": entry, "about": _find_subject(project, entry)} for entry in page["data"]],
        "authors": await name_authors(desk, page["data"]),
        "wanted": chosen,
        "filters": (("label", LABELS), ("subject", SUBJECTS)),
    }
    return render_page(request, "labels_all.html", values)


async def show_label(request: Request, source: Source) -> Response:
    """Show one label with its subject and the judge's verdict."""
    desk, project, label = await _find_label(request, source)
    judged = label["judged"]
    others = await annotations.list_labels_of_question(desk.hub, desk.caller, label["id"])
    values = {
        "label": label,
        "note": write_block(label["note"], LONGEST_NOTE),
        "about": _find_subject(project, label),
        "others": [{**entry, "address": find_label_address(project["id"], entry["id"])} for entry in others if entry["id"] != label["id"]],
        "authors": await name_authors(desk, [label, *others]),
        "judged": None if judged is None else write_claim(convert_to(judged, JudgedClaim)),
    }
    return render_page(request, "label.html", values)


async def show_change(request: Request, source: Source) -> Response:
    """Show the form of a label."""
    _, _, label = await _find_label(request, source, to_write=True)
    form = {"label": label["label"] or "", "note": label["note"], "seen": label["updated_at"]}
    return _show_form(request, label, form)


async def change_label(request: Request, source: Source) -> Response:
    """Save a label and its note."""
    form: Record = dict(await read_form(request, proven=False))
    desk, project, label = await _find_label(request, source, to_write=True)
    if not request.state.form_proven:
        return _show_form(request, label, form, lost="proof", status=403)
    # Browsers send line ends as CRLF.
    edited = {"label": form.get("label") or None, "note": form.get("note", "").replace("\r\n", "\n").strip()}
    try:
        refuse_if_changed(form, label["updated_at"])
        # An unchanged form does not change the author.
        changes = {name: value for name, value in edited.items() if value != label[name]}
        if changes:
            await annotations.change_annotation(desk.hub, desk.caller, label["id"], changes)
    except Refusal as refusal:
        form["seen"] = label["updated_at"]
        return _show_form(request, label, form, refusal=refusal, status=refusal.status)
    return redirect(find_label_address(project["id"], label["id"]))


async def ask_delete(request: Request, source: Source) -> Response:
    """Confirm the deletion of a label."""
    _, project, label = await _find_label(request, source, to_write=True)
    address = find_label_address(project["id"], label["id"])
    question = Question(
        title="Delete label?",
        about="The label and its note are deleted and no longer count. The answer returns to the queue. This cannot be undone.",
        action=f"{address}/delete",
        button="Delete label",
        back=address,
        crumbs=[*_list_breadcrumbs(project), (address, "Label")],
    )
    return ask_first(request, question)


async def delete_label(request: Request, source: Source) -> Response:
    """Delete a label."""
    await read_form(request)
    desk, project, label = await _find_label(request, source, to_write=True)
    await annotations.delete_annotation(desk.hub, desk.caller, label["id"])
    return redirect(find_project_address(project["id"], "labels", "all"))


async def _find_label(request: Request, source: Source, *, to_write: bool = False) -> tuple[Desk, Record, Record]:
    return open_desk(request, source, to_write=to_write), *await find_in_project(request, source, "label", annotations.get_annotation)


def _find_subject(project: Record, label: Record) -> str:
    return find_subject_address(project["id"], label["subject"], label["parent_id"], label["subject_id"], label["claim"])


def _list_breadcrumbs(project: Record) -> list[tuple[str, str]]:
    address = find_project_address(project["id"])
    return [(address, project["name"]), (f"{address}/labels", "Labels")]


def _show_form(request: Request, label: Record, form: Record, *, status: int = 200, **more: Any) -> Response:
    values = {"label": label, "form": form, "labels": LABELS, "longest_note": LONGEST_NOTE}
    return render_page(request, "label_edit.html", {**values, "lost": None, "refusal": None, **more}, status=status)
