"""The service: audit log, health, search."""

from __future__ import annotations

from starlette.responses import Response

from proctor import __version__
from proctor.pages import nouns
from proctor.pages.places import Record
from proctor.pages.visit import Visit, read_if_allowed
from proctor.pages.words import find_project_address
from proctor.service.access.audit import list_notes
from proctor.service.access.projects import search_everywhere
from proctor.service.upkeep.health import find_watch, read_figures

RESOURCES = ("project", "agent", "case", "run", "alert", "key", "secret", "session")
"""Suggested resource types of the audit log."""


async def show_audit(visit: Visit) -> Response:
    """Show a page of the audit log."""
    resource, resource_id = (visit.params.get(name, "").strip() or None for name in ("resource", "resource_id"))
    page = await visit.call(list_notes, resource=resource, resource_id=resource_id, limit=50, cursor=visit.cursor)
    return visit.render(
        "audit.html",
        page=page,
        authors=await visit.name_authors(page["data"], "actor"),
        resource=resource,
        resource_id=resource_id,
        kinds=sorted({*RESOURCES, *(noun.kind for _, noun in nouns.list_nouns())}),
        find=find_address,
    )


async def show_health(visit: Visit) -> Response:
    """Show health, queues and storage."""
    found = await find_watch(visit.request.app.state, visit.hub).get_health()
    figures: Record | None = None
    if found.database == "reachable":
        figures = await read_if_allowed(visit.call(read_figures))
    return visit.render("health.html", health=found, figures=figures, service_version=__version__)


async def show_search(visit: Visit) -> Response:
    """Show search results by id or name."""
    text = visit.params.get("q", "")[:200].strip()
    found: Record | None = await visit.call(search_everywhere, text) if text else None
    names = {project["id"]: project["name"] for project in (await visit.source.list_projects(None))["data"]}
    rows = [(find_address(row["kind"], row["id"], row["project_id"]), row) for row in (found or {}).get("data", ())]
    return visit.render("search.html", text=text, found=found, rows=rows, project_names=names)


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
