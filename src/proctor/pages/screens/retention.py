"""How long a project keeps its traces and runs: the form, and what would be deleted before it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.desk import get_caller, get_hub
from proctor.pages.form_page import is_mended_in_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import make_inputs, read_inputs, write_record
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address
from proctor.service.access.permissions import require_writer
from proctor.service.refusals import Refusal
from proctor.service.upkeep.retention import LONGEST_DAYS, Retention, get_retention, preview_retention, set_retention
from proctor.service.verification.shared.fields import Field, Table, read_fields, whole

_DAYS = whole(most=LONGEST_DAYS)
FIELDS: Table = {
    "trace_days": Field(_DAYS, "empty: as long as the service keeps them"),
    "run_days": Field(_DAYS, "empty: as long as the service keeps them"),
}


async def show_retention(request: Request, source: Source) -> Response:
    """Show the form with what is set."""
    require_writer(get_caller(request), "setting retention")
    project = await source.get_project(request.path_params["project"])
    kept = await get_retention(get_hub(request), get_caller(request), project["id"])
    return _show(request, source, project, write_record(FIELDS, kept))


async def send_retention(request: Request, source: Source) -> Response:
    """Show what would be deleted; keep what was typed once somebody has seen that."""
    sent = await read_form(request)
    hub, caller = get_hub(request), get_caller(request)
    require_writer(caller, "setting retention")
    project = await source.get_project(request.path_params["project"])
    try:
        wanted = Retention(**read_fields(FIELDS, read_inputs(FIELDS, sent), "retention"))
        # Looked at again where somebody typed something else behind the preview.
        if sent.get("previewed") == _name(wanted):
            await set_retention(hub, caller, project["id"], wanted)
            return redirect(f"{find_project_address(project['id'], 'settings')}#retention")
        preview = await preview_retention(hub, caller, project["id"], wanted)
    except Refusal as refusal:
        if not is_mended_in_form(refusal):
            raise
        return _show(request, source, project, sent, refusal=refusal)
    return _show(request, source, project, sent, preview={**preview, "name": _name(wanted)})


def _show(
    request: Request,
    source: Source,
    project: Record,
    typed: Mapping[str, str],
    *,
    preview: Mapping[str, Any] | None = None,
    refusal: Refusal | None = None,
) -> Response:
    problems = {} if refusal is None else refusal.fields
    values = {
        "source": source,
        "project": project,
        "inputs": make_inputs(FIELDS, typed, problems=problems),
        "preview": preview,
        "refusal": refusal,
        "service_days": get_hub(request).settings.retention_days,
    }
    return render_page(request, "retention.html", values, status=200 if refusal is None else refusal.status)


def _name(wanted: Retention) -> str:
    return f"{wanted.trace_days or ''},{wanted.run_days or ''}"
