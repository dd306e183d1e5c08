"""What people said: all labels of a project, and one of them with what was judged, changed and taken back by forms."""

from __future__ import annotations

from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.typed import convert_to
from proctor.pages.desk import Desk, find_in_project, open_desk
from proctor.pages.form_page import Question, ask_first, refuse_if_changed
from proctor.pages.forms import read_form
from proctor.pages.ports import Page, Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.labels import find_label_address, find_subject_address, write_claim
from proctor.pages.words import find_project_address
from proctor.report.words.html_text import write_block
from proctor.service.labels import annotations
from proctor.service.labels.annotations import LONGEST_NOTE, Label
from proctor.service.labels.claims import JudgedClaim, SubjectKind
from proctor.service.refusals import Refusal

_ROWS = 50
LABELS: tuple[str, ...] = get_args(Label)
SUBJECTS: tuple[str, ...] = get_args(SubjectKind)


async def show_all_labels(request: Request, source: Source) -> Response:
    """Show a page of what people said in a project, newest first."""
    desk = open_desk(request, source)
    project = await source.get_project(request.path_params["project"])
    asked = request.query_params
    wanted: dict[str, Any] = {name: asked[name] for name, words in (("label", LABELS), ("subject", SUBJECTS)) if asked.get(name) in words}
    page: Page = await annotations.list_annotations(
        desk.hub, desk.caller, project_id=project["id"], **wanted, limit=_ROWS, cursor=asked.get("cursor")
    )
    values = {
        "project": project,
        "source": source,
        "page": page,
        "rows": [{"label": one, "about": _find_subject(project, one)} for one in page["data"]],
        "wanted": wanted,
        "filters": (("label", LABELS), ("subject", SUBJECTS)),
    }
    return render_page(request, "labels_all.html", values)


async def show_label(request: Request, source: Source) -> Response:
    """Show one label: who said what about what, and what a judge had said to it."""
    _, project, label = await _find_label(request, source)
    judged = label["judged"]
    values = {
        "project": project,
        "source": source,
        "label": label,
        "note": write_block(label["note"], LONGEST_NOTE),
        "about": _find_subject(project, label),
        "judged": None if judged is None else write_claim(convert_to(judged, JudgedClaim)),
    }
    return render_page(request, "label.html", values)


async def show_change(request: Request, source: Source) -> Response:
    """Show the form that changes a label."""
    _, project, label = await _find_label(request, source, to_write=True)
    form = {"label": label["label"] or "", "note": label["note"], "seen": label["updated_at"]}
    return _show_form(request, source, project, label, form)


async def change_label(request: Request, source: Source) -> Response:
    """Change a label, its note, or both."""
    form: Record = dict(await read_form(request, proven=False))
    desk, project, label = await _find_label(request, source, to_write=True)
    if not request.state.form_proven:
        return _show_form(request, source, project, label, form, lost="proof", status=403)
    # Browsers send every end of a line as CRLF; nobody wrote that.
    said = {"label": form.get("label") or None, "note": form.get("note", "").replace("\r\n", "\n").strip()}
    try:
        refuse_if_changed(form, label["updated_at"])
        # Who sends the form as it was says nothing, and does not become the author.
        changes = {name: value for name, value in said.items() if value != label[name]}
        if changes:
            await annotations.change_annotation(desk.hub, desk.caller, label["id"], changes)
    except Refusal as refusal:
        form["seen"] = label["updated_at"]
        return _show_form(request, source, project, label, form, refusal=refusal, status=refusal.status)
    return redirect(find_label_address(project["id"], label["id"]))


async def ask_delete(request: Request, source: Source) -> Response:
    """Ask before a label is taken back."""
    _, project, label = await _find_label(request, source, to_write=True)
    here = find_label_address(project["id"], label["id"])
    question = Question(
        title="Take this label back?",
        about="The label and its note are deleted for good, and count no more in the agreement with the judge. "
        "The answer waits for a person again.",
        action=f"{here}/delete",
        button="Take it back",
        back=here,
        crumbs=[*_list_ways(project), (here, "Label")],
        project=project,
    )
    return ask_first(request, source, question)


async def delete_label(request: Request, source: Source) -> Response:
    """Take a label back."""
    await read_form(request)
    desk, project, label = await _find_label(request, source, to_write=True)
    await annotations.delete_annotation(desk.hub, desk.caller, label["id"])
    return redirect(find_project_address(project["id"], "labels", "all"))


async def _find_label(request: Request, source: Source, *, to_write: bool = False) -> tuple[Desk, Record, Record]:
    return open_desk(request, source, to_write=to_write), *await find_in_project(request, source, "label", annotations.get_annotation)


def _find_subject(project: Record, label: Record) -> str:
    return find_subject_address(project["id"], label["subject"], label["parent_id"], label["subject_id"], label["claim"])


def _list_ways(project: Record) -> list[tuple[str, str]]:
    here = find_project_address(project["id"])
    return [(here, project["name"]), (f"{here}/labels", "Labels")]


def _show_form(
    request: Request, source: Source, project: Record, label: Record, form: Record, *, status: int = 200, **more: Any
) -> Response:
    values = {"project": project, "source": source, "label": label, "form": form, "labels": LABELS, "longest_note": LONGEST_NOTE}
    return render_page(request, "label_edit.html", {**values, "lost": None, "refusal": None, **more}, status=status)
