"""Schedules of a project: next times and last results, forms with a preview of the next times, and starting a run by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from starlette.responses import Response

from proctor.formats.suites import DIALECTS
from proctor.model.evidence import Json
from proctor.pages.form_page import Form, ask_first, refuse_if_changed, require_inputs, returning_form, show_form
from proctor.pages.inputs import derive_fields, read_inputs, read_json, write_record
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.screens.case_edit import LARGEST_FORM
from proctor.pages.visit import Visit
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
_FIELDS: Table = {
    name: replace({**_OWN, **_RUN}[name], about=_ABOUT.get(name, {**_OWN, **_RUN}[name].about))
    for name in ("name", "cron", "timezone", *_RUN, "overlap", "active")
}


async def show_schedules(visit: Visit) -> Response:
    """Show the schedules of a project."""
    await visit.find_project()
    page = await visit.call(schedules.list_schedules, project_id=visit.project_id, limit=50, cursor=visit.cursor)
    return visit.render("schedules.html", page=page)


async def show_schedule(visit: Visit) -> Response:
    """Show one schedule with its next times and its runs."""
    schedule = await _find_schedule(visit)
    page = await visit.source.list_runs(visit.project_id, RunSearch(schedule_id=schedule["id"]), cursor=visit.cursor, limit=20)
    times = None
    if schedule["active"] and visit.source.may_write:
        times = await visit.call(preview_times, TimesRequest(cron=schedule["cron"], timezone=schedule["timezone"]))
    return visit.render("schedule.html", schedule=schedule, page=page, preview=times)


async def show_edit(visit: Visit) -> Response:
    """Show the form of a schedule, or of a new one; `case` in the query selects cases."""
    require_writer(visit.caller, "changing schedules")
    schedule = await _find_edited(visit)
    start = {name: field.default for name, field in _FIELDS.items()} | {"cases": visit.params.getlist("case")}
    typed = write_record(_FIELDS, start) if schedule is None else _write_schedule(schedule)
    return show_form(visit, await _make_form(visit, schedule), typed)


async def save_schedule(visit: Visit) -> Response:
    """Save a new schedule or a change, or only show the next times."""
    body = await visit.read_form(largest=LARGEST_FORM)
    require_writer(visit.caller, "changing schedules")
    schedule = await _find_edited(visit)
    form = await _make_form(visit, schedule)
    with returning_form(visit, form, body, "NOT_FOUND", inside="run"):
        inputs = read_inputs(form.fields, body)
        if body.get("only") == "preview":
            times = TimesRequest(cron=inputs.get("cron") or "", timezone=inputs.get("timezone") or "UTC")
            return show_form(visit, form, body, preview=await visit.call(preview_times, times))
        fields = _gather(inputs)
        if schedule is None:
            schedule = cast(Record, await visit.call(schedules.create_schedule, NewSchedule(project_id=visit.project_id, **fields)))
        else:
            refuse_if_changed(body, schedule)
            before = _gather(read_inputs(form.fields, _write_schedule(schedule)))
            changes = {name: value for name, value in fields.items() if value != before.get(name)}
            if changes:
                await visit.call(schedules.update_schedule, schedule["id"], changes)
    return redirect(visit.find_address("schedules", schedule["id"]))


async def act(visit: Visit) -> Response:
    """Pause or resume a schedule, start its run now, or delete it."""
    await visit.read_form()
    schedule = await _find_schedule(visit)
    match visit.path["action"]:
        case "switch":
            await visit.call(schedules.update_schedule, schedule["id"], {"active": not schedule["active"]})
            return redirect(visit.find_address("schedules", schedule["id"]))
        case "run-now":
            run = await visit.call(schedules.run_now, schedule["id"])
            return redirect(visit.find_address("runs", run["id"]))
        case "delete":
            await visit.call(schedules.delete_schedule, schedule["id"])
            return redirect(visit.find_address("schedules"))
        case _:
            raise Refusal("NOT_FOUND", "this page does not exist")


async def ask_delete(visit: Visit) -> Response:
    """Confirm the deletion of a schedule."""
    schedule = await _find_schedule(visit)
    back = visit.find_address("schedules", schedule["id"])
    crumbs = visit.list_crumbs("schedules", "Schedules")
    return ask_first(visit, f"Delete {schedule['name']}?", "Its runs stay.", action=f"{back}/delete", back=back, crumbs=crumbs)


async def _make_form(visit: Visit, schedule: Record | None) -> Form:
    cases = (await visit.call(list_cases, project_id=visit.project_id, limit=100))["data"]
    address = visit.find_address("schedules", *(() if schedule is None else (schedule["id"],)))
    return Form(
        title=f"Edit {schedule['name']}" if schedule else "New schedule",
        about="Starts a run at every due time.",
        action=f"{address}/change" if schedule else f"{address}/new",
        back=address,
        fields=_FIELDS,
        record=schedule,
        crumbs=visit.list_crumbs("schedules", "Schedules"),
        choices={
            "cases": [(case["id"], case["name"]) for case in cases],
            "dialect": [(word, word) for word in DIALECTS],
            "overlap": [("skip", "Skip the due run"), ("queue", "Start one run when it has ended")],
        },
        extra="schedule_times.html",
    )


def _gather(inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a schedule with those of its run under `run`, as in REST."""
    require_inputs(inputs, "the schedule", "name", "cron")
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


async def _find_edited(visit: Visit) -> Record | None:
    """Return the schedule that is edited; None for a new one."""
    if "schedule" in visit.path:
        return await _find_schedule(visit)
    await visit.find_project()
    return None


async def _find_schedule(visit: Visit) -> Record:
    return await visit.find("schedule", schedules.get_schedule)
