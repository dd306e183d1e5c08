"""Labels: the next claim to label, the agreement with the judge, and all labels."""

from __future__ import annotations

import asyncio
from typing import Any, get_args
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import Response

from proctor.model.json_values import read_digits
from proctor.model.typed import convert_to
from proctor.pages.form_page import Form, ask_first, refuse_if_changed, returning_form, show_form
from proctor.pages.inputs import derive_fields, read_inputs, write_record
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit
from proctor.pages.words import show_share
from proctor.report.blocks.markdown import draw_rich_text
from proctor.report.builders.calibration import make_sweep_chart, place_figure
from proctor.report.document.html import draw_chart, draw_interval_bar
from proctor.report.words.html_text import write_block, write_markup, write_pretty
from proctor.scoring.agreement import Figure
from proctor.service.labels import annotations, claims
from proctor.service.labels.agreement import Agreement, count_labels, read_agreement, write_labels
from proctor.service.labels.annotations import LONGEST_NOTE, ChangedAnnotation, Label, NewAnnotation
from proctor.service.labels.claims import JudgedClaim, ShownClaim, SubjectKind, require_kind
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import Table

_LATEST = 8
_LONGEST_ANSWER = 20_000
_FIGURES = ("accuracy", "kappa", "precision", "recall")


async def show_labels(visit: Visit) -> Response:
    """Show the next claim to label, or the one that the query names, and the agreement so far."""
    await visit.find_project()
    params = visit.params
    second = params.get("second") == "1"
    waiting = await visit.call(claims.list_waiting, visit.project_id, second=second)
    if params.get("subject"):
        kind, number = require_kind(params["subject"]), _read_claim(params.get("claim"))
        posed = await visit.call(claims.pose_claim, kind, params.get("id", ""), number)
        if posed is not None and posed.subject.project_id != visit.project_id:
            raise Refusal("NOT_FOUND", "there is no such claim in this project")
    else:
        posed = await visit.call(claims.pose_next, waiting)
    found = await visit.call(read_agreement, visit.project_id)
    latest = (await visit.call(annotations.list_annotations, project_id=visit.project_id, limit=_LATEST))["data"]
    known = {} if found.calibration is None else found.calibration.figures
    return visit.render(
        "labels.html",
        waiting=waiting,
        second=second,
        done=await _find_done(visit, params.get("done")),
        reviewers=[_write_figure(name, figure) for name, figure in found.reviewers.figures.items()],
        disputed=[visit.find_address("labels", id) for id in found.reviewers.disputed[:_LATEST]],
        posed=None if posed is None else _write_posed(visit, posed),
        chosen=bool(params.get("subject")),
        found=found,
        counts=count_labels(found),
        figures=[_write_figure(name, known[name]) for name in _FIGURES if name in known],
        curve=await asyncio.to_thread(_draw_curve, found),
        latest=[{**entry, "address": visit.find_address("labels", entry["id"])} for entry in latest],
        authors=await visit.name_authors(latest),
        longest_note=LONGEST_NOTE,
    )


async def save_label(visit: Visit) -> Response:
    """Store a label and continue with the next claim."""
    form = await visit.read_form()
    await visit.find_project()
    label = form.get("label")
    if label not in ("pass", "fail", "skip"):
        raise Refusal("BAD_REQUEST", "a label is pass, fail or skip", hint="go back and use one of the three buttons")
    claim = _read_claim(form.get("claim"))
    kind = require_kind(form.get("subject", ""))
    annotation = NewAnnotation(subject=kind, subject_id=form.get("id", ""), claim=claim, label=label, note=form.get("note", "").strip())
    made = await visit.call(annotations.create_annotation, annotation)
    back = form.get("back", "")
    # From where the verdict is shown, only to a page of this project.
    if back.startswith(f"{visit.find_address()}/") and "\n" not in back:
        return redirect(back)
    more = "&second=1" if form.get("second") else ""
    return redirect(f"{visit.find_address('labels')}?done={made['id']}{more}#ask")


async def undo_label(visit: Visit) -> Response:
    """Delete the label that was just written and ask its question again."""
    form = await visit.read_form()
    label = await _find_label(visit, to_write=True)
    if label["author"] != visit.caller.actor:
        raise Refusal("FORBIDDEN", "only its author can undo a label")
    await visit.call(annotations.delete_annotation, label["id"])
    query = {"subject": label["subject"], "id": label["subject_id"], "claim": label["claim"]}
    query |= {"second": "1"} if form.get("second") else {}
    return redirect(f"{visit.find_address('labels')}?{urlencode(query)}#ask")


async def _find_done(visit: Visit, id: str | None) -> Record | None:
    """Return the label that was just written; None if there is none."""
    if not id:
        return None
    try:
        return await visit.call(annotations.get_annotation, id)
    except Refusal:
        return None


async def export_labels(visit: Visit) -> Response:
    """Return the labels as JSONL for `proctor judge calibrate`."""
    await visit.find_project()
    found = await visit.call(read_agreement, visit.project_id, figures=False)
    headers = {"content-disposition": 'attachment; filename="labels.jsonl"'}
    return Response(write_labels(found), media_type="application/x-ndjson", headers=headers)


def _read_claim(text: str | None) -> int:
    claim = read_digits(text, 5)
    if claim is None:
        raise Refusal("BAD_REQUEST", "the claim must be a number")
    return claim


def _write_posed(visit: Visit, posed: ShownClaim) -> Record:
    subject = posed.subject
    address = _find_subject(visit, subject.kind, subject.parent_id, subject.id, posed.claim.number)
    return {**_write_claim(posed.claim), "subject": subject, "address": address, "applies_to": posed.applies_to}


def _find_subject(visit: Visit, kind: str, parent_id: str, id: str, claim: int | None) -> str:
    """Return the address of the subject of a label: assertion, attempt or trace."""
    if kind != "attempt":
        return visit.find_address("traces", parent_id)
    return visit.find_address("runs", parent_id, "r", id) + ("" if claim is None else f"#a{claim + 1}")


def _find_subject_of(visit: Visit, label: Record) -> str:
    return _find_subject(visit, label["subject"], label["parent_id"], label["subject_id"], label["claim"])


def _write_claim(claim: JudgedClaim) -> Record:
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


_ROWS = 50
LABELS: tuple[str, ...] = get_args(Label)
SUBJECTS: tuple[str, ...] = get_args(SubjectKind)
_FIELDS: Table = derive_fields(ChangedAnnotation)


async def show_all_labels(visit: Visit) -> Response:
    """Show a page of labels, newest first."""
    await visit.find_project()
    filters = (("label", LABELS), ("subject", SUBJECTS))
    chosen: dict[str, Any] = {name: visit.params[name] for name, words in filters if visit.params.get(name) in words}
    page = await visit.call(annotations.list_annotations, project_id=visit.project_id, **chosen, limit=_ROWS, cursor=visit.cursor)
    return visit.render(
        "labels_all.html",
        page=page,
        rows=[{"label": entry, "about": _find_subject_of(visit, entry)} for entry in page["data"]],
        authors=await visit.name_authors(page["data"]),
        wanted=chosen,
        filters=filters,
    )


async def show_label(visit: Visit) -> Response:
    """Show one label with its subject and the judge's verdict."""
    label = await _find_label(visit)
    others = await visit.call(annotations.list_labels_of_question, label["id"])
    return visit.render(
        "label.html",
        label=label,
        note=write_block(label["note"], LONGEST_NOTE),
        about=_find_subject_of(visit, label),
        others=[{**entry, "address": visit.find_address("labels", entry["id"])} for entry in others if entry["id"] != label["id"]],
        authors=await visit.name_authors([label, *others]),
        judged=None if label["judged"] is None else _write_claim(convert_to(label["judged"], JudgedClaim)),
    )


async def show_change(visit: Visit) -> Response:
    """Show the form of a label."""
    label = await _find_label(visit, to_write=True)
    return show_form(visit, _make_form(visit, label), write_record(_FIELDS, label))


async def change_label(visit: Visit) -> Response:
    """Save a label and its note."""
    body = await visit.read_form()
    label = await _find_label(visit, to_write=True)
    with returning_form(visit, _make_form(visit, label), body):
        refuse_if_changed(body, label)
        # An unchanged form does not change the author.
        changes = read_inputs(_FIELDS, body, before=write_record(_FIELDS, label))
        if changes:
            changes |= {"note": str(changes["note"] or "").strip()} if "note" in changes else {}
            await visit.call(annotations.change_annotation, label["id"], changes)
    return redirect(visit.find_address("labels", label["id"]))


def _make_form(visit: Visit, label: Record) -> Form:
    address = visit.find_address("labels", label["id"])
    return Form(
        title="Edit label",
        about="Editing a label makes you its author. Without a label it is only a note.",
        action=f"{address}/change",
        back=address,
        fields=_FIELDS,
        record=label,
        crumbs=[*visit.list_crumbs("labels", "Labels"), (address, "Label")],
    )


async def ask_delete(visit: Visit) -> Response:
    """Confirm the deletion of a label."""
    label = await _find_label(visit, to_write=True)
    back = visit.find_address("labels", label["id"])
    about = "The label and its note are deleted and no longer count. The answer returns to the queue. This cannot be undone."
    crumbs = [*visit.list_crumbs("labels", "Labels"), (back, "Label")]
    return ask_first(visit, "Delete label?", about, action=f"{back}/delete", button="Delete label", back=back, crumbs=crumbs)


async def delete_label(visit: Visit) -> Response:
    """Delete a label."""
    await visit.read_form()
    label = await _find_label(visit, to_write=True)
    await visit.call(annotations.delete_annotation, label["id"])
    return redirect(visit.find_address("labels", "all"))


async def _find_label(visit: Visit, *, to_write: bool = False) -> Record:
    if to_write:
        visit.require_writer()
    return await visit.find("label", annotations.get_annotation)
