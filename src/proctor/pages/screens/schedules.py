"""Schedules of a project: next times and last results, forms with a preview of the next times, and starting a run by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.formats.suites import DIALECTS
from proctor.model.evidence import Json
from proctor.pages.desk import find_in_project, find_project, get_caller, get_hub
from proctor.pages.form_page import Form, Question, ask_first, belongs_in_form, refuse_if_changed, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import derive_fields, read_inputs, read_json, write_record
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.case_edit import LARGEST_FORM
from proctor.pages.words import find_project_address, quote_part
from proctor.service.access.permissions import require_writer
from proctor.service.refusals import Refusal
from proctor.service.runs import schedules
from proctor.service.runs.run import RunOptions, RunSearch
from proctor.service.runs.schedules import NewSchedule, TimesRequest, preview_times
from proctor.service.traces.cases import list_cases
from proctor.service.verification.shared.fields import LONGEST_TEXT, Field, Table, text

_OWN = derive_fields(NewSchedule, "name", "cron", "timezone", "overlap", "active")
_RUN = derive_fields(RunOptions, "cases", "suite", "dialect", "target", "selection", "repeat", "concurrency", "timeout_s", "tags", "note")
_RUN["suite"] = Field(text(LONGEST_TEXT), "YAML or JSON, of any dialect; instead of cases")
_ABOUT = {
    "name": "also the name of its runs",
    "overlap": "if the previous run has not ended when the next is due",
    "active": "",
    "cases": "",
    "selection": "only these cases, such as: refund and not slow",
}
"""Descriptions that differ from those of REST."""
_LAST = ("overlap", "active")
_FIELDS: Table = {
    name: replace(field, about=_ABOUT.get(name, field.about))
    for name, field in (
        {name: one for name, one in _OWN.items() if name not in _LAST} | _RUN | {name: _OWN[name] for name in _LAST}
    ).items()
}


async def show_schedules(request: Request, source: Source) -> Response:
    """Show the schedules of a project."""
    project = await find_project(request, source)
    cursor = request.query_params.get("cursor")
    page = await schedules.list_schedules(get_hub(request), get_caller(request), project_id=project["id"], limit=50, cursor=cursor)
    return render_page(request, "schedules.html", {"page": page})


async def show_schedule(request: Request, source: Source) -> Response:
    """Show one schedule with its next times and its runs."""
    project, schedule = await _find_schedule(request, source)
    page = await source.list_runs(project["id"], RunSearch(schedule_id=schedule["id"]), cursor=request.query_params.get("cursor"), limit=20)
    times = None
    if schedule["active"] and source.may_write:
        spec = TimesRequest(cron=schedule["cron"], timezone=schedule["timezone"])
        times = await preview_times(get_hub(request), get_caller(request), spec)
    values = {"schedule": schedule, "page": page, "preview": times}
    return render_page(request, "schedule.html", values)


async def show_edit(request: Request, source: Source) -> Response:
    """Show the form of a schedule, or of a new one; `case` in the query selects cases."""
    require_writer(get_caller(request), "changing schedules")
    project, schedule = await _find_place(request, source)
    start = {name: field.default for name, field in _FIELDS.items()} | {"cases": request.query_params.getlist("case")}
    typed = write_record(_FIELDS, start) if schedule is None else _write_schedule(schedule)
    return show_form(request, await _make_form(request, project, schedule), typed)


async def save_schedule(request: Request, source: Source) -> Response:
    """Save a new schedule or a change, or only show the next times."""
    body = await read_form(request, largest=LARGEST_FORM)
    hub, caller = get_hub(request), get_caller(request)
    require_writer(caller, "changing schedules")
    project, schedule = await _find_place(request, source)
    form = await _make_form(request, project, schedule, seen=body.get("seen", ""))
    try:
        inputs = read_inputs(form.fields, body)
        if body.get("only") == "preview":
            spec = TimesRequest(cron=inputs.get("cron") or "", timezone=inputs.get("timezone") or "UTC")
            form = msgspec.structs.replace(form, values={"preview": await preview_times(hub, caller, spec)})
            return show_form(request, form, body)
        fields = _gather(inputs)
        if schedule is None:
            schedule = cast(Record, await schedules.create_schedule(hub, caller, NewSchedule(project_id=project["id"], **fields)))
        else:
            refuse_if_changed(body, schedule["updated_at"])
            before = _gather(read_inputs(form.fields, _write_schedule(schedule)))
            changes = {name: value for name, value in fields.items() if value != before.get(name)}
            if changes:
                await schedules.update_schedule(hub, caller, schedule["id"], changes)
    except Refusal as refusal:
        if not (belongs_in_form(refusal) or refusal.code == "NOT_FOUND"):
            raise
        fields = {name.removeprefix("run."): texts for name, texts in refusal.fields.items()}
        return show_form(request, form, body, Refusal(refusal.code, refusal.message, fields=fields, hint=refusal.hint))
    return redirect(_find_address(project, schedule["id"]))


async def act(request: Request, source: Source) -> Response:
    """Pause or resume a schedule, start its run now, or delete it."""
    await read_form(request)
    project, schedule = await _find_schedule(request, source)
    hub, caller = get_hub(request), get_caller(request)
    match request.path_params["action"]:
        case "switch":
            await schedules.update_schedule(hub, caller, schedule["id"], {"active": not schedule["active"]})
        case "run-now":
            run = await schedules.run_now(hub, caller, schedule["id"])
            return redirect(find_project_address(project["id"], "runs", run["id"]))
        case "delete":
            await schedules.delete_schedule(hub, caller, schedule["id"])
            return redirect(_find_address(project))
        case _:
            raise Refusal("NOT_FOUND", "this page does not exist")
    return redirect(_find_address(project, schedule["id"]))


async def ask_delete(request: Request, source: Source) -> Response:
    """Confirm the deletion of a schedule."""
    project, schedule = await _find_schedule(request, source)
    address = _find_address(project, schedule["id"])
    question = Question(
        title=f"Delete {schedule['name']}?",
        about="Its runs stay.",
        action=f"{address}/delete",
        button="Delete",
        back=address,
        crumbs=_list_breadcrumbs(project),
    )
    return ask_first(request, question)


async def _make_form(request: Request, project: Record, schedule: Record | None = None, seen: str = "") -> Form:
    cases = (await list_cases(get_hub(request), get_caller(request), project_id=project["id"], limit=100))["data"]
    address = _find_address(project)
    own = address if schedule is None else f"{address}/{quote_part(schedule['id'])}"
    return Form(
        title=f"Edit {schedule['name']}" if schedule else "New schedule",
        about="Starts a run at every due time.",
        action=f"{own}/change" if schedule else f"{own}/new",
        button="Save",
        back=own,
        fields=_FIELDS,
        seen=seen or ("" if schedule is None else schedule["updated_at"]),
        updated_at="" if schedule is None else schedule["updated_at"],
        crumbs=_list_breadcrumbs(project),
        choices={
            "cases": [(case["id"], case["name"]) for case in cases],
            "dialect": [(word, word) for word in DIALECTS],
            "overlap": [("skip", "Skip the due run"), ("queue", "Start one run when it has ended")],
        },
        extra="schedule_times.html",
        values={"preview": None},
    )


def _gather(inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a schedule with those of its run under `run`, as in REST."""
    missing = [name for name in ("name", "cron") if not inputs.get(name)]
    if missing:
        raise Refusal("VALIDATION_ERROR", "the schedule is incomplete", fields={name: ["required"] for name in missing})
    run = {name: inputs[name] for name in _RUN if inputs.get(name) not in (None, [])}
    target: Json = run.get("target")
    if isinstance(target, str) and target.startswith("{"):
        try:
            run["target"] = read_json(target)
        except ValueError as error:
            raise Refusal("VALIDATION_ERROR", "the target is invalid", fields={"target": [str(error)]}) from None
    return {**{name: inputs[name] for name in _OWN if inputs.get(name) is not None}, "run": run}


def _write_schedule(schedule: Record) -> dict[str, str]:
    return write_record(_FIELDS, {**schedule["run"], **{name: schedule[name] for name in _OWN}})


async def _find_place(request: Request, source: Source) -> tuple[Record, Record | None]:
    """Return the project, and the schedule unless the form is that of a new one."""
    if "schedule" in request.path_params:
        return await _find_schedule(request, source)
    return await find_project(request, source), None


async def _find_schedule(request: Request, source: Source) -> tuple[Record, Record]:
    return await find_in_project(request, source, "schedule", schedules.get_schedule)


def _find_address(project: Record, *parts: str) -> str:
    return find_project_address(project["id"], "schedules", *parts)


def _list_breadcrumbs(project: Record) -> list[tuple[str, str]]:
    return [(find_project_address(project["id"]), project["name"]), (_find_address(project), "Schedules")]
