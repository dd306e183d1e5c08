"""Settings of a project: its name and settings, its secrets by name, pausing and deleting it; and the form of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.desk import get_caller, get_hub
from proctor.pages.form_page import Form, Question, ask_first, is_mended_in_form, refuse_if_changed, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import make_inputs, read_inputs, write_record
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.retention import FIELDS as RETENTION_FIELDS
from proctor.pages.words import find_project_address
from proctor.service.access import projects, secrets
from proctor.service.access.permissions import require_writer
from proctor.service.refusals import Refusal
from proctor.service.upkeep.retention import get_retention
from proctor.service.verification.shared.fields import NAME, OBJECT, Field, Table, matching, text

FIELDS: Table = {
    "name": NAME,
    "description": Field(text(4000, 0), "what it is for"),
    "settings": Field(
        OBJECT,
        "targets, models, judge and the like, as in proctor.yaml; secrets are named as ${NAME}",
        example={"targets": {"support": {"type": "http", "url": "https://agent.example.com/chat", "response_path": "text"}}},
    ),
}
SECRET: Table = {
    "name": Field(matching(r"[A-Za-z_][A-Za-z0-9_]{0,99}", "letters, digits and underscores"), "as in ${NAME}", required=True, null=False),
    "value": Field(text(400), "kept encrypted; nobody can ask for it again", required=True, null=False),
}


async def show_settings(request: Request, source: Source) -> Response:
    """Show what can be set of a project."""
    project = await source.get_project(request.path_params["project"])
    hub, caller = get_hub(request), get_caller(request)
    retention = await get_retention(hub, caller, project["id"])
    values = {
        "source": source,
        "project": project,
        "secrets": await secrets.list_secrets(hub, caller, project["id"]),
        "settings_text": write_record(FIELDS, project)["settings"],
        "retention": retention,
        "retention_inputs": make_inputs(RETENTION_FIELDS, write_record(RETENTION_FIELDS, retention)),
    }
    return render_page(request, "settings.html", values)


async def show_change(request: Request, source: Source) -> Response:
    """Show the form that changes a project."""
    project = await _find_changeable(request, source)
    return show_form(request, source, _make_form(project), write_record(FIELDS, project))


async def change_project(request: Request, source: Source) -> Response:
    """Change what was typed anew."""
    sent = await read_form(request)
    project = await _find_changeable(request, source)
    try:
        refuse_if_changed(sent, project["updated_at"])
        changes = read_inputs(FIELDS, sent, before=write_record(FIELDS, project))
        if changes:
            # A project always has settings; emptied they are none.
            changes = {name: {} if name == "settings" and value is None else value for name, value in changes.items()}
            await projects.update_project(get_hub(request), get_caller(request), project["id"], changes)
    except Refusal as refusal:
        if not is_mended_in_form(refusal):
            raise
        return show_form(request, source, _make_form(project, sent.get("seen", "")), sent, refusal)
    return redirect(f"{_find_address(project)}/settings")


async def show_new_project(request: Request, source: Source) -> Response:
    """Show the form of a new project."""
    require_writer(get_caller(request), "projects are changed")
    return show_form(request, source, _make_form(None))


async def create_project(request: Request, source: Source) -> Response:
    """Make a project."""
    sent = await read_form(request)
    require_writer(get_caller(request), "projects are changed")
    try:
        given: dict[str, Any] = {"name": "", "description": None, "settings": {}, **read_inputs(FIELDS, sent)}
        made = await projects.create_project(get_hub(request), get_caller(request), **given)
    except Refusal as refusal:
        if not is_mended_in_form(refusal):
            raise
        return show_form(request, source, _make_form(None), sent, refusal)
    return redirect(find_project_address(str(made["id"])))


async def pause_project(request: Request, source: Source) -> Response:
    """Pause a project, or resume it."""
    await read_form(request)
    project = await source.get_project(request.path_params["project"])
    action = "resume" if project["paused"] else "pause"
    await projects.update_project(get_hub(request), get_caller(request), project["id"], {"paused": not project["paused"]}, action=action)
    return redirect(f"{_find_address(project)}/settings")


async def ask_delete(request: Request, source: Source) -> Response:
    """Ask before a project is deleted."""
    project = await _find_changeable(request, source)
    question = Question(
        title=f"Delete {project['name']}?",
        about="Its agents, cases, traces, results, runs and secrets are deleted, and its keys revoked. It cannot be taken back.",
        action=f"{_find_address(project)}/delete",
        button="Delete the project",
        back=f"{_find_address(project)}/settings",
        crumbs=_list_ways(project),
        project=project,
    )
    return ask_first(request, source, question)


async def delete_project(request: Request, source: Source) -> Response:
    """Delete a project with everything in it."""
    await read_form(request)
    project = await source.get_project(request.path_params["project"])
    await projects.delete_project(get_hub(request), get_caller(request), project["id"])
    return redirect("/ui/")


async def show_secret(request: Request, source: Source) -> Response:
    """Show the form that keeps a secret."""
    project = await _find_changeable(request, source)
    return show_form(request, source, _make_secret_form(project), {"name": request.query_params.get("name", ""), "value": ""})


async def keep_secret(request: Request, source: Source) -> Response:
    """Keep a secret, or replace it."""
    sent = await read_form(request)
    project = await source.get_project(request.path_params["project"])
    try:
        name, value = sent.get("name", "").strip(), sent.get("value", "")
        await secrets.set_secret(get_hub(request), get_caller(request), project["id"], name, value)
    except Refusal as refusal:
        if not is_mended_in_form(refusal):
            raise
        return show_form(request, source, _make_secret_form(project), sent, refusal)
    return redirect(f"{_find_address(project)}/settings#secrets")


async def delete_secret(request: Request, source: Source) -> Response:
    """Forget a secret."""
    sent = await read_form(request)
    project = await source.get_project(request.path_params["project"])
    await secrets.delete_secret(get_hub(request), get_caller(request), project["id"], sent.get("name", ""))
    return redirect(f"{_find_address(project)}/settings#secrets")


async def ask_delete_secret(request: Request, source: Source) -> Response:
    """Ask before a secret is forgotten."""
    project = await _find_changeable(request, source)
    name = request.query_params.get("name", "")
    values: Mapping[str, Any] = {"source": source, "project": project, "name": name, "here": f"{_find_address(project)}/secrets/delete"}
    return render_page(request, "forget_secret.html", values)


def _make_form(project: Record | None, seen: str = "") -> Form:
    here = "/ui/projects/new" if project is None else f"{_find_address(project)}/settings/change"
    return Form(
        title="New project" if project is None else f"Change {project['name']}",
        action=here,
        button="Save",
        back="/ui/" if project is None else f"{_find_address(project)}/settings",
        fields=FIELDS,
        partial=project is not None,
        seen=seen or ("" if project is None else project["updated_at"]),
        updated_at="" if project is None else project["updated_at"],
        crumbs=[("/ui/", "Projects")] if project is None else _list_ways(project),
        project=project,
    )


def _make_secret_form(project: Record) -> Form:
    return Form(
        title="Keep a secret",
        about="Kept encrypted and named as ${NAME} in settings and suites. Nobody can read them again.",
        action=f"{_find_address(project)}/secrets",
        button="Save",
        back=f"{_find_address(project)}/settings#secrets",
        fields=SECRET,
        crumbs=_list_ways(project),
        project=project,
    )


async def _find_changeable(request: Request, source: Source) -> Record:
    require_writer(get_caller(request), "projects are changed")
    return await source.get_project(request.path_params["project"])


def _find_address(project: Record) -> str:
    return find_project_address(project["id"])


def _list_ways(project: Record) -> list[tuple[str, str]]:
    here = _find_address(project)
    return [(here, project["name"]), (f"{here}/settings", "Settings")]
