"""`/api/search`: find objects by id or name."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.service.access.projects import LONGEST_TEXT, search_everywhere

router = make_router("search")


class Found(BaseModel):
    """An object with that id or name."""

    kind: str = Field(description="project, agent, case, run, trace, or a noun of the verification API")
    id: str
    name: str
    project_id: str | None = Field(description="none: it belongs to the organization")
    created_at: str


class FoundEverywhere(BaseModel):
    """The newest ten matches of each kind."""

    data: list[Found]
    looked_at: int = Field(description="names are searched among this many newest objects of each kind; ids among all")


@router.get("/api/search", response_model=FoundEverywhere)
async def search(
    hub: TheHub,
    caller: TheCaller,
    q: Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT, description="an id, or a part of a name")],
) -> object:
    """Find projects, agents, cases, runs and traces by id or part of their name; benchmark objects by id or slug."""
    return await search_everywhere(hub, caller, q)
