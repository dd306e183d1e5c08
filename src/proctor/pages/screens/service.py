"""The service: audit log, health, search."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from proctor import __version__
from proctor.pages import nouns
from proctor.pages.desk import get_caller, get_hub, name_authors, open_desk, read_if_allowed
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import render_page
from proctor.pages.words import find_project_address
from proctor.service.access.audit import list_notes
from proctor.service.access.projects import search_everywhere
from proctor.service.upkeep.health import find_watch, read_figures

RESOURCES = ("project", "agent", "case", "run", "alert", "key", "secret", "session")
"""Suggested resource types of the audit log."""


async def show_audit(request: Request, source: Source) -> Response:
    """Show a page of the audit log."""
    params = request.query_params
    resource, resource_id = params.get("resource", "").strip() or None, params.get("resource_id", "").strip() or None
    page = await list_notes(
        get_hub(request),
        get_caller(request),
        resource=resource,
        resource_id=resource_id,
        limit=50,
        cursor=params.get("cursor") or None,
    )
    kinds = sorted({*RESOURCES, *(noun.kind for _, noun in nouns.list_nouns())})
    authors = await name_authors(open_desk(request, source), page["data"], "actor")
    values = {"page": page, "authors": authors, "resource": resource, "resource_id": resource_id, "kinds": kinds, "find": find_address}
    return render_page(request, "audit.html", values)


async def show_health(request: Request, source: Source) -> Response:
    """Show health, queues and storage."""
    found = await find_watch(request.app.state, get_hub(request)).get_health()
    figures: Record | None = None
    if found.database == "reachable":
        figures = await read_if_allowed(read_figures(get_hub(request), get_caller(request)))
    values = {"health": found, "figures": figures, "service_version": __version__}
    return render_page(request, "health.html", values)


async def show_search(request: Request, source: Source) -> Response:
    """Show search results by id or name."""
    text = request.query_params.get("q", "")[:200].strip()
    found: Record | None = await search_everywhere(get_hub(request), get_caller(request), text) if text else None
    names = {project["id"]: project["name"] for project in (await source.list_projects(None))["data"]}
    rows = [(find_address(row["kind"], row["id"], row["project_id"]), row) for row in (found or {}).get("data", ())]
    return render_page(request, "search.html", {"text": text, "found": found, "rows": rows, "project_names": names})


def find_address(kind: str, id: str, project_id: str | None = None) -> str | None:
    """Return the page of an object by kind and id, if it has one."""
    match kind:
        case "project":
            return find_project_address(id)
        case "run" | "case" | "trace" | "agent" if project_id:
            return find_project_address(project_id, f"{kind}s", id)
        case "key":
            return "/ui/keys"
        case _:
            return nouns.find_record_address(kind, id)
