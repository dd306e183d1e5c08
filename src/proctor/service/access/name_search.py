"""Finds projects, agents, cases, runs, traces and records of benchmarks by their id or name, as far as the caller may see them."""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import query_seen, require_reader
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.sql.tables import agents, cases, projects, runs, traces
from proctor.store.sql.text_search import MOST_LOOKED_AT, find_in_table, find_record_by_id

LONGEST_TEXT = 200
MOST_OF_A_KIND = 10
_PLACES = (
    ("project", projects, ("name",)),
    ("agent", agents, ("name", "service_name", "external_ref")),
    ("case", cases, ("name",)),
    ("run", runs, ("suite_name", "name", "note")),
    ("trace", traces, ("external_id", "input_text")),
)
"""Each kind, its table, and the columns that are names; the first one is shown."""


async def search_everywhere(hub: Hub, caller: Caller, text: str) -> dict[str, Json]:
    """Return what has this id, or a name that holds this text in any case; of each kind the newest few."""
    require_reader(caller)
    text = text.strip()
    if not 1 <= len(text) <= LONGEST_TEXT or "\0" in text:
        raise Refusal("VALIDATION_ERROR", "this cannot be looked for", fields={"q": [f"expected 1 to {LONGEST_TEXT} characters"]})
    found: list[dict[str, Json]] = []
    async with hub.database.reading() as connection:
        for kind, table, names in _PLACES:
            # Keys for some agents read no runs: those are of the whole project.
            if kind == "run" and caller.agent_ids is not None:
                continue
            for row in await find_in_table(connection, query_seen(table, caller), table, text, names, MOST_OF_A_KIND):
                title = next((row[name] for name in names if row[name]), row["id"])
                place = row["id"] if kind == "project" else row["project_id"]
                found.append({"kind": kind, "id": row["id"], "name": title, "project_id": place, "created_at": row["created_at"]})
        record = await find_record_by_id(connection, caller.organization_id, text) if caller.kind == "organization" else None
        if record is not None:
            title = record["body"].get("name") or record["body"].get("label") or record["slug"] or record["id"]
            found.append(
                {"kind": record["kind"], "id": record["id"], "name": title, "project_id": None, "created_at": record["created_at"]}
            )
    return {"data": found, "looked_at": MOST_LOOKED_AT}
