"""Examinations of MCP servers: the list, one with its findings by severity, and the form to start one."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.desk import find_project, open_desk
from proctor.pages.form_page import Form, belongs_in_form, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import derive_fields, read_inputs
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.case_edit import LARGEST_FORM
from proctor.pages.words import find_project_address
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.examinations import TAG, NewExamination, start_examination
from proctor.service.runs.run import RunSearch
from proctor.service.verification.shared.fields import Field, Table, text

_FIELDS: Table = {name: field for name, field in derive_fields(NewExamination).items() if name != "project_id"}
_FIELDS["server"] = Field(text(500, 1), "the address of the server, or the id of a server in the settings of the project", required=True)
_SEVERITIES = (("fail", "Failed"), ("could_not_run", "Could not run"), ("advice", "Advice"))


async def show_examinations(request: Request, source: Source) -> Response:
    """Show the examinations of a project."""
    project = await find_project(request, source)
    page = await source.list_runs(project["id"], RunSearch(tag=TAG), cursor=request.query_params.get("cursor"), limit=50)
    previous = await source.find_previous_runs(project["id"], page["data"])
    return render_page(request, "examinations.html", {"page": page, "previous": previous})


async def show_examination(request: Request, source: Source) -> Response:
    """Show one examination: areas, findings by severity, changed definitions."""
    project = await find_project(request, source)
    run = await source.get_run(request.path_params["run"])
    if run["project_id"] != project["id"]:
        raise not_found("run", run["id"])
    found = await source.read_findings(run["id"])
    if found is None and TAG not in run["tags"]:
        raise not_found("examination", run["id"])
    groups: list[tuple[str, str, list[Any]]] = []
    for verdict, title in _SEVERITIES:
        findings = [] if found is None else [finding for finding in found["findings"] if finding["verdict"] == verdict]
        groups += [(verdict, title, findings)] if findings else []
    before = (await source.find_previous_runs(project["id"], [run])).get(run["id"])
    values = {"run": run, "found": found, "groups": groups, "before": before}
    return render_page(request, "examination.html", values)


async def show_new_examination(request: Request, source: Source) -> Response:
    """Show the form, with values of its address: to examine the server of a run again."""
    open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    return show_form(request, _make_form(project), request.query_params)


async def send_new_examination(request: Request, source: Source) -> Response:
    """Start an examination and show its run."""
    body = await read_form(request, largest=LARGEST_FORM)
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    try:
        inputs: dict[str, Any] = read_inputs(_FIELDS, body)
        if not inputs.get("server"):
            raise Refusal("VALIDATION_ERROR", "the form is incomplete", fields={"server": ["required"]})
        run = await start_examination(desk.hub, desk.caller, NewExamination(project_id=project["id"], **inputs))
    except Refusal as refusal:
        if not (belongs_in_form(refusal) or refusal.code == "FORBIDDEN"):
            raise
        return show_form(request, _make_form(project), body, refusal)
    return redirect(find_project_address(project["id"], "runs", run["id"]))


def _make_form(project: Record) -> Form:
    address = find_project_address(project["id"], "examinations")
    return Form(
        title="Examine an MCP server",
        about="No tool is called unless you declare calls.",
        action=f"{address}/new",
        button="Examine",
        back=address,
        fields=_FIELDS,
        crumbs=[(find_project_address(project["id"]), project["name"]), (address, "Examinations")],
    )
