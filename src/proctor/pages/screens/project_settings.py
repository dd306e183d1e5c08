"""Settings of a project: name, settings, secrets, retention, pause, delete; and new projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.desk import find_project, get_caller, get_hub
from proctor.pages.form_page import Form, Question, ask_first, belongs_in_form, refuse_if_changed, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import derive_fields, make_inputs, read_inputs, write_record
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address
from proctor.service.access import projects, secrets
from proctor.service.access.permissions import require_writer
from proctor.service.access.projects import NewProject
from proctor.service.refusals import Refusal
from proctor.service.upkeep.retention import NewRetention, get_retention, preview_retention, set_retention
from proctor.service.verification.shared.fields import Field, Table, matching, read_fields

RETENTION_FIELDS: Table = derive_fields(NewRetention)


async def show_retention(request: Request, source: Source) -> Response:
    """Show the form of the retention."""
    require_writer(get_caller(request), "the retention can be changed")
    project = await find_project(request, source)
    current = await get_retention(get_hub(request), get_caller(request), project["id"])
    return _show_retention(request, write_record(RETENTION_FIELDS, current))


async def send_retention(request: Request, source: Source) -> Response:
    """Preview what would be deleted, then save after the preview."""
    form_fields = await read_form(request)
    hub, caller = get_hub(request), get_caller(request)
    require_writer(caller, "the retention can be changed")
    project = await find_project(request, source)
    try:
        retention = NewRetention(**read_fields(RETENTION_FIELDS, read_inputs(RETENTION_FIELDS, form_fields), "retention"))
        # Changed values need a new preview.
        if form_fields.get("previewed") == _name_retention(retention):
            await set_retention(hub, caller, project["id"], retention)
            return redirect(f"{find_project_address(project['id'], 'settings')}#retention")
        preview = await preview_retention(hub, caller, project["id"], retention)
    except Refusal as refusal:
        if not belongs_in_form(refusal):
            raise
        return _show_retention(request, form_fields, refusal=refusal)
    return _show_retention(request, form_fields, preview={**preview, "name": _name_retention(retention)})


def _show_retention(
    request: Request,
    typed: Mapping[str, str],
    *,
    preview: Mapping[str, Any] | None = None,
    refusal: Refusal | None = None,
) -> Response:
    problems = {} if refusal is None else refusal.fields
    values = {
        "inputs": make_inputs(RETENTION_FIELDS, typed, problems=problems),
        "preview": preview,
        "refusal": refusal,
        "service_days": get_hub(request).settings.retention_days,
    }
    return render_page(request, "retention.html", values, status=200 if refusal is None else refusal.status)


def _name_retention(retention: NewRetention) -> str:
    return f"{retention.trace_days or ''},{retention.run_days or ''}"


FIELDS: Table = derive_fields(NewProject)
SECRET: Table = {
    "name": Field(matching(r"[A-Za-z_][A-Za-z0-9_]{0,99}", "letters, digits and underscores"), "as in ${NAME}", required=True, null=False),
    **derive_fields(secrets.SecretValue),
}


async def show_settings(request: Request, source: Source) -> Response:
    """Show the settings of a project."""
    project = await find_project(request, source)
    hub, caller = get_hub(request), get_caller(request)
    retention = await get_retention(hub, caller, project["id"])
    values = {
        "secrets": await secrets.list_secrets(hub, caller, project["id"]),
        "settings_text": write_record(FIELDS, project)["settings"],
        "retention": retention,
        "retention_inputs": make_inputs(RETENTION_FIELDS, write_record(RETENTION_FIELDS, retention)),
    }
    return render_page(request, "settings.html", values)


async def show_change(request: Request, source: Source) -> Response:
    """Show the form of a project."""
    project = await _find_changeable(request, source)
    return show_form(request, _make_form(project), write_record(FIELDS, project))


async def change_project(request: Request, source: Source) -> Response:
    """Save the changed fields."""
    form_fields = await read_form(request)
    project = await _find_changeable(request, source)
    try:
        refuse_if_changed(form_fields, project["updated_at"])
        changes = read_inputs(FIELDS, form_fields, before=write_record(FIELDS, project))
        if changes:
            # Empty settings are an empty object.
            changes = {name: {} if name == "settings" and value is None else value for name, value in changes.items()}
            await projects.update_project(get_hub(request), get_caller(request), project["id"], changes)
    except Refusal as refusal:
        if not belongs_in_form(refusal):
            raise
        return show_form(request, _make_form(project, form_fields.get("seen", "")), form_fields, refusal)
    return redirect(f"{_find_address(project)}/settings")


async def show_new_project(request: Request, source: Source) -> Response:
    """Show the form of a new project."""
    require_writer(get_caller(request), "projects can be changed")
    return show_form(request, _make_form(None))


async def create_project(request: Request, source: Source) -> Response:
    """Create a project."""
    form_fields = await read_form(request)
    require_writer(get_caller(request), "projects can be changed")
    try:
        inputs: dict[str, Any] = {"name": "", **read_inputs(FIELDS, form_fields)}
        project = await projects.create_project(get_hub(request), get_caller(request), NewProject(**inputs))
    except Refusal as refusal:
        if not belongs_in_form(refusal):
            raise
        return show_form(request, _make_form(None), form_fields, refusal)
    return redirect(find_project_address(str(project["id"])))


async def pause_project(request: Request, source: Source) -> Response:
    """Pause or resume a project."""
    await read_form(request)
    project = await find_project(request, source)
    change = projects.resume_project if project["paused"] else projects.pause_project
    await change(get_hub(request), get_caller(request), project["id"])
    return redirect(f"{_find_address(project)}/settings")


async def ask_delete(request: Request, source: Source) -> Response:
    """Confirm the deletion of a project."""
    project = await _find_changeable(request, source)
    question = Question(
        title=f"Delete {project['name']}?",
        about="Its agents, cases, traces, results, runs and secrets are deleted, and its keys revoked. This cannot be undone.",
        action=f"{_find_address(project)}/delete",
        button="Delete project",
        back=f"{_find_address(project)}/settings",
        crumbs=_list_breadcrumbs(project),
    )
    return ask_first(request, question)


async def delete_project(request: Request, source: Source) -> Response:
    """Delete a project with everything in it."""
    await read_form(request)
    project = await find_project(request, source)
    await projects.delete_project(get_hub(request), get_caller(request), project["id"])
    return redirect("/ui/")


async def show_secret(request: Request, source: Source) -> Response:
    """Show the form of a secret."""
    project = await _find_changeable(request, source)
    return show_form(request, _make_secret_form(project), {"name": request.query_params.get("name", ""), "value": ""})


async def keep_secret(request: Request, source: Source) -> Response:
    """Store or replace a secret."""
    form_fields = await read_form(request)
    project = await find_project(request, source)
    try:
        name, value = form_fields.get("name", "").strip(), form_fields.get("value", "")
        await secrets.set_secret(get_hub(request), get_caller(request), project["id"], name, value)
    except Refusal as refusal:
        if not belongs_in_form(refusal):
            raise
        return show_form(request, _make_secret_form(project), form_fields, refusal)
    return redirect(f"{_find_address(project)}/settings#secrets")


async def delete_secret(request: Request, source: Source) -> Response:
    """Delete a secret."""
    form_fields = await read_form(request)
    project = await find_project(request, source)
    await secrets.delete_secret(get_hub(request), get_caller(request), project["id"], form_fields.get("name", ""))
    return redirect(f"{_find_address(project)}/settings#secrets")


async def ask_delete_secret(request: Request, source: Source) -> Response:
    """Confirm the deletion of a secret."""
    project = await _find_changeable(request, source)
    name = request.query_params.get("name", "")
    values: Mapping[str, Any] = {"name": name, "here": f"{_find_address(project)}/secrets/delete"}
    return render_page(request, "forget_secret.html", values)


def _make_form(project: Record | None, seen: str = "") -> Form:
    address = "/ui/projects/new" if project is None else f"{_find_address(project)}/settings/change"
    return Form(
        title="New project" if project is None else f"Edit {project['name']}",
        action=address,
        button="Save",
        back="/ui/" if project is None else f"{_find_address(project)}/settings",
        fields=FIELDS,
        partial=project is not None,
        seen=seen or ("" if project is None else project["updated_at"]),
        updated_at="" if project is None else project["updated_at"],
        crumbs=[("/ui/", "Projects")] if project is None else _list_breadcrumbs(project),
    )


def _make_secret_form(project: Record) -> Form:
    return Form(
        title="Add secret",
        about="Stored encrypted. Use ${NAME} in settings and suites. Values cannot be read again.",
        action=f"{_find_address(project)}/secrets",
        button="Save",
        back=f"{_find_address(project)}/settings#secrets",
        fields=SECRET,
        crumbs=_list_breadcrumbs(project),
    )


async def _find_changeable(request: Request, source: Source) -> Record:
    require_writer(get_caller(request), "projects can be changed")
    return await find_project(request, source)


def _find_address(project: Record) -> str:
    return find_project_address(project["id"])


def _list_breadcrumbs(project: Record) -> list[tuple[str, str]]:
    address = _find_address(project)
    return [(address, project["name"]), (f"{address}/settings", "Settings")]
