"""Examinations of MCP servers: the list, one with its findings by severity, and the form to start one."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from proctor.pages.form_page import Form, require_inputs, returning_form, show_form
from proctor.pages.inputs import derive_fields, read_inputs
from proctor.pages.rendering import redirect
from proctor.pages.screens.case_edit import LARGEST_FORM
from proctor.pages.visit import Visit
from proctor.service.refusals import not_found
from proctor.service.runs.examinations import TAG, NewExamination, start_examination
from proctor.service.runs.run import RunSearch
from proctor.service.verification.shared.fields import Field, Table, text

_FIELDS: Table = {name: field for name, field in derive_fields(NewExamination).items() if name != "project_id"}
_FIELDS["server"] = Field(text(500, 1), "the address of the server, or the id of a server in the settings of the project", required=True)
_SEVERITIES = (("fail", "Failed"), ("could_not_run", "Could not run"), ("advice", "Advice"))


async def show_examinations(visit: Visit) -> Response:
    """Show the examinations of a project."""
    await visit.find_project()
    page = await visit.source.list_runs(visit.project_id, RunSearch(tag=TAG), cursor=visit.cursor, limit=50)
    previous = await visit.source.find_previous_runs(visit.project_id, page["data"])
    return visit.render("examinations.html", page=page, previous=previous)


async def show_examination(visit: Visit) -> Response:
    """Show one examination: areas, findings by severity, changed definitions."""
    run = await visit.find_run()
    found = await visit.source.read_findings(run["id"])
    if found is None and TAG not in run["tags"]:
        raise not_found("examination", run["id"])
    groups: list[tuple[str, str, list[Any]]] = []
    for verdict, title in _SEVERITIES:
        findings = [] if found is None else [finding for finding in found["findings"] if finding["verdict"] == verdict]
        groups += [(verdict, title, findings)] if findings else []
    before = (await visit.source.find_previous_runs(visit.project_id, [run])).get(run["id"])
    return visit.render("examination.html", run=run, found=found, groups=groups, before=before)


async def show_new_examination(visit: Visit) -> Response:
    """Show the form, with values of its address: to examine the server of a run again."""
    visit.require_writer()
    await visit.find_project()
    return show_form(visit, _make_form(visit), visit.params)


async def send_new_examination(visit: Visit) -> Response:
    """Start an examination and show its run."""
    body = await visit.read_form(largest=LARGEST_FORM)
    visit.require_writer()
    await visit.find_project()
    with returning_form(visit, _make_form(visit), body, "FORBIDDEN"):
        inputs = read_inputs(_FIELDS, body)
        require_inputs(inputs, "the form", "server")
        run = await visit.call(start_examination, NewExamination(project_id=visit.project_id, **inputs))
    return redirect(visit.find_address("runs", run["id"]))


def _make_form(visit: Visit) -> Form:
    address = visit.find_address("examinations")
    return Form(
        title="Examine an MCP server",
        about="No tool is called unless you declare calls.",
        action=f"{address}/new",
        button="Examine",
        back=address,
        fields=_FIELDS,
        crumbs=visit.list_crumbs("examinations", "Examinations"),
    )
