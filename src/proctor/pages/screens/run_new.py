"""A run to be started: what is driven, against which target, how often; looked at in a dry run first, then started."""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.case import MOST_REPEATS
from proctor.pages.desk import Desk, open_desk
from proctor.pages.forms import read_form
from proctor.pages.ports import Page, Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.case_edit import LARGEST_FORM, read_object
from proctor.pages.words import find_project_address, read_typed_number
from proctor.service.refusals import Refusal
from proctor.service.runs.requests import MOST_AT_ONCE, MOST_CASES, RunSpec, plan_run, start_run
from proctor.service.traces import cases

_OTHER = "other:"
"""Marks a target that the form describes itself."""


async def show_new_run(request: Request, source: Source) -> Response:
    """Show the form; `case` in the address ticks cases."""
    desk = open_desk(request, source, to_write=True)
    project = await source.get_project(request.path_params["project"])
    chosen = request.query_params.getlist("case")
    form: Record = {"repeat": "1", "concurrency": "4", "timeout_s": "120", "what": "cases", "case": chosen}
    return await _show_form(request, source, desk, project, form)


async def send_new_run(request: Request, source: Source) -> Response:
    """Start a run and go to it, or look what keeps it from being started."""
    form: Record = dict(await read_form(request, largest=LARGEST_FORM, proven=False))
    form["case"] = request.state.form_lists.get("case", [])
    form["suite"] = form.get("suite", "").replace("\r\n", "\n")
    desk = open_desk(request, source, to_write=True)
    project = await source.get_project(request.path_params["project"])
    if not request.state.form_proven:
        return await _show_form(request, source, desk, project, form, lost="proof", status=403)
    try:
        spec = read_spec(project["id"], form)
        if form.get("do") != "start":
            return await _show_form(request, source, desk, project, form, plan=await plan_run(desk.hub, desk.caller, spec))
        run = await start_run(desk.hub, desk.caller, spec)
    except Refusal as refusal:
        return await _show_form(request, source, desk, project, form, refusal=refusal, status=refusal.status)
    return redirect(find_project_address(project["id"], "runs", run["id"]))


def read_spec(project_id: str, form: Record) -> RunSpec:
    """Return the run that a form asks for. Raises `Refusal`."""
    fields: dict[str, list[str]] = {}
    target = form.get("target") or None
    if target == _OTHER:
        target = read_object(form.get("own_target", ""), "own_target")
    numbers: dict[str, Any] = {}
    for name, whole in (("repeat", True), ("concurrency", True), ("timeout_s", False)):
        try:
            numbers[name] = read_typed_number(form.get(name, ""), whole=whole)
            if whole and not isinstance(numbers[name], int):
                raise ValueError("expected a number")
        except ValueError as error:
            fields[name] = [str(error)]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields=fields)
    what = {"suite": form["suite"]} if form.get("what") == "suite" else {"cases": list(form["case"])}
    return RunSpec(
        project_id=project_id,
        target=target,
        dialect=(form.get("dialect") or None) if form.get("what") == "suite" else None,
        selection=form.get("selection", "").strip() or None,
        name=form.get("name", "").strip(),
        tags=[tag.strip() for tag in form.get("tags", "").split(",") if tag.strip()],
        note=form.get("note", "").strip(),
        **what,
        **numbers,
    )


async def _show_form(
    request: Request, source: Source, desk: Desk, project: Record, form: Record, *, status: int = 200, **more: Any
) -> Response:
    page: Page = await cases.list_cases(desk.hub, desk.caller, project_id=project["id"], limit=MOST_CASES)
    described = project["settings"].get("targets")
    values = {
        "project": project,
        "source": source,
        "form": form,
        "cases": page["data"],
        "more_cases": page["_meta"]["next"] is not None,
        "targets": sorted(map(str, cast(Record, described))) if isinstance(described, dict) else [],
        "default_target": project["settings"].get("default_target"),
        "other": _OTHER,
        "most_repeats": MOST_REPEATS,
        "most_at_once": MOST_AT_ONCE,
        "plan": None,
        "lost": None,
        "refusal": None,
        **more,
    }
    return render_page(request, "run_new.html", values, status=status)
