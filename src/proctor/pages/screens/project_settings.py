"""Settings of a project: name, settings, secrets, retention, pause, delete; and new projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from proctor.pages.form_page import FORM_ERRORS, Form, ask_first, refuse_if_changed, returning_form, show_form
from proctor.pages.inputs import derive_fields, make_inputs, read_inputs, write_record
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit
from proctor.pages.words import find_project_address
from proctor.service.access import projects, secrets
from proctor.service.access.permissions import require_writer
from proctor.service.access.projects import NewProject
from proctor.service.refusals import Refusal
from proctor.service.upkeep.retention import NewRetention, get_retention, preview_retention, set_retention
from proctor.service.verification.shared.fields import Field, Table, matching

RETENTION_FIELDS: Table = derive_fields(NewRetention)
FIELDS: Table = derive_fields(NewProject)
SECRET: Table = {
    "name": Field(matching(r"[A-Za-z_][A-Za-z0-9_]{0,99}", "letters, digits and underscores"), "as in ${NAME}", required=True, null=False),
    **derive_fields(secrets.SecretValue),
}


async def show_retention(visit: Visit) -> Response:
    """Show the form of the retention."""
    require_writer(visit.caller, "the retention can be changed")
    await visit.find_project()
    return _show_retention(visit, write_record(RETENTION_FIELDS, await visit.call(get_retention, visit.project_id)))


async def send_retention(visit: Visit) -> Response:
    """Preview what would be deleted, then save after the preview."""
    body = await visit.read_form()
    require_writer(visit.caller, "the retention can be changed")
    await visit.find_project()
    try:
        inputs: dict[str, Any] = read_inputs(RETENTION_FIELDS, body)
        retention = NewRetention(**inputs)
        name = f"{retention.trace_days or ''},{retention.run_days or ''}"
        # Changed values need a new preview.
        if body.get("previewed") == name:
            await visit.call(set_retention, visit.project_id, retention)
            return redirect(f"{visit.find_address('settings')}#retention")
        preview = await visit.call(preview_retention, visit.project_id, retention)
    except Refusal as refusal:
        if refusal.code not in FORM_ERRORS:
            raise
        return _show_retention(visit, body, refusal=refusal)
    return _show_retention(visit, body, preview={**preview, "name": name})


def _show_retention(
    visit: Visit, typed: Mapping[str, str], *, preview: Mapping[str, Any] | None = None, refusal: Refusal | None = None
) -> Response:
    return visit.render(
        "retention.html",
        status=200 if refusal is None else refusal.status,
        inputs=make_inputs(RETENTION_FIELDS, typed, problems={} if refusal is None else refusal.fields),
        preview=preview,
        refusal=refusal,
        service_days=visit.hub.settings.retention_days,
    )


async def show_settings(visit: Visit) -> Response:
    """Show the settings of a project."""
    project = await visit.find_project()
    retention = await visit.call(get_retention, visit.project_id)
    return visit.render(
        "settings.html",
        secrets=(await visit.call(secrets.list_secrets, visit.project_id))["data"],
        settings_text=write_record(FIELDS, project)["settings"],
        retention=retention,
        retention_inputs=make_inputs(RETENTION_FIELDS, write_record(RETENTION_FIELDS, retention)),
    )


async def show_change(visit: Visit) -> Response:
    """Show the form of a project."""
    project = await _find_changeable(visit)
    return show_form(visit, _make_form(visit, project), write_record(FIELDS, project))


async def change_project(visit: Visit) -> Response:
    """Save the changed fields."""
    body = await visit.read_form()
    project = await _find_changeable(visit)
    with returning_form(visit, _make_form(visit, project), body):
        refuse_if_changed(body, project)
        changes = read_inputs(FIELDS, body, before=write_record(FIELDS, project))
        if changes:
            # Empty settings are an empty object.
            changes = {name: {} if name == "settings" and value is None else value for name, value in changes.items()}
            await visit.call(projects.update_project, visit.project_id, changes)
    return redirect(visit.find_address("settings"))


async def show_new_project(visit: Visit) -> Response:
    """Show the form of a new project."""
    require_writer(visit.caller, "projects can be changed")
    return show_form(visit, _make_form(visit, None))


async def create_project(visit: Visit) -> Response:
    """Create a project."""
    body = await visit.read_form()
    require_writer(visit.caller, "projects can be changed")
    with returning_form(visit, _make_form(visit, None), body):
        inputs: dict[str, Any] = {"name": "", **read_inputs(FIELDS, body)}
        project = await visit.call(projects.create_project, NewProject(**inputs))
    return redirect(find_project_address(project["id"]))


async def pause_project(visit: Visit) -> Response:
    """Pause or resume a project."""
    await visit.read_form()
    project = await visit.find_project()
    await visit.call(projects.resume_project if project["paused"] else projects.pause_project, visit.project_id)
    return redirect(visit.find_address("settings"))


async def ask_delete(visit: Visit) -> Response:
    """Confirm the deletion of a project."""
    project = await _find_changeable(visit)
    return ask_first(
        visit,
        f"Delete {project['name']}?",
        "Its agents, cases, traces, results, runs and secrets are deleted, and its keys revoked. This cannot be undone.",
        action=visit.find_address("delete"),
        button="Delete project",
        back=visit.find_address("settings"),
        crumbs=visit.list_crumbs("settings", "Settings"),
    )


async def delete_project(visit: Visit) -> Response:
    """Delete a project with everything in it."""
    await visit.read_form()
    await visit.find_project()
    await visit.call(projects.delete_project, visit.project_id)
    return redirect("/ui/")


async def show_secret(visit: Visit) -> Response:
    """Show the form of a secret."""
    await _find_changeable(visit)
    return show_form(visit, _make_secret_form(visit), {"name": visit.params.get("name", ""), "value": ""})


async def keep_secret(visit: Visit) -> Response:
    """Store or replace a secret."""
    body = await visit.read_form()
    await visit.find_project()
    with returning_form(visit, _make_secret_form(visit), body):
        await visit.call(secrets.set_secret, visit.project_id, body.get("name", "").strip(), body.get("value", ""))
    return redirect(f"{visit.find_address('settings')}#secrets")


async def delete_secret(visit: Visit) -> Response:
    """Delete a secret."""
    body = await visit.read_form()
    await visit.find_project()
    await visit.call(secrets.delete_secret, visit.project_id, body.get("name", ""))
    return redirect(f"{visit.find_address('settings')}#secrets")


async def ask_delete_secret(visit: Visit) -> Response:
    """Confirm the deletion of a secret."""
    await _find_changeable(visit)
    name = visit.params.get("name", "")
    return ask_first(
        visit,
        f"Delete {name}?",
        "Suites and settings that use it will be rejected until a secret of this name exists again.",
        action=visit.find_address("secrets", "delete"),
        back=visit.find_address("settings"),
        crumbs=visit.list_crumbs("settings", "Settings"),
        hidden={"name": name},
    )


def _make_form(visit: Visit, project: Record | None) -> Form:
    if project is None:
        return Form(title="New project", action="/ui/projects/new", back="/ui/", fields=FIELDS, crumbs=[("/ui/", "Projects")])
    return Form(
        title=f"Edit {project['name']}",
        action=visit.find_address("settings", "change"),
        back=visit.find_address("settings"),
        fields=FIELDS,
        record=project,
        crumbs=visit.list_crumbs("settings", "Settings"),
    )


def _make_secret_form(visit: Visit) -> Form:
    return Form(
        title="Add secret",
        about="Stored encrypted. Use ${NAME} in settings and suites. Values cannot be read again.",
        action=visit.find_address("secrets"),
        back=f"{visit.find_address('settings')}#secrets",
        fields=SECRET,
        crumbs=visit.list_crumbs("settings", "Settings"),
    )


async def _find_changeable(visit: Visit) -> Record:
    require_writer(visit.caller, "projects can be changed")
    return await visit.find_project()
