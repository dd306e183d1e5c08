"""`/api/agents`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel, Field

from proctor.rest.route_parts import Body, PageOf, TheCaller, TheHub, ThePaging, list_sent_fields, make_router
from proctor.service.access import agents
from proctor.service.access.agents import AgentKind

router = make_router("agents")


class Agent(BaseModel):
    """An agent that sends traces."""

    id: str
    project_id: str
    name: str
    kind: str
    service_name: str | None = Field(description="the `service.name` that OTLP traces are assigned by")
    external_ref: str | None = Field(description="the workflow id of n8n or chatflow id of Flowise that traces are assigned by")
    paused: bool = Field(description="its traces are rejected")
    settings: dict[str, Any]
    created_at: str
    updated_at: str


class NewAgent(Body):
    """A new agent."""

    project_id: str
    name: str = Field(min_length=1, max_length=200)
    kind: AgentKind = Field("http", description="how the bodies of its traces are read")
    service_name: str | None = Field(None, min_length=1, max_length=200)
    external_ref: str | None = Field(None, min_length=1, max_length=200)
    settings: dict[str, Any] = Field(default_factory=dict)


class AgentChanges(Body):
    """Changed fields; omitted fields stay unchanged."""

    name: str = Field("", min_length=1, max_length=200)
    kind: AgentKind = "http"
    service_name: str | None = Field(None, min_length=1, max_length=200)
    external_ref: str | None = Field(None, min_length=1, max_length=200)
    paused: bool = False
    settings: dict[str, Any] = Field(default_factory=dict)


@router.post("/api/agents", response_model=Agent, status_code=201)
async def create_agent(hub: TheHub, caller: TheCaller, body: NewAgent) -> object:
    """Create an agent; requires an organization key."""
    return await agents.create_agent(hub, caller, **body.model_dump())


@router.get("/api/agents", response_model=PageOf[Agent])
async def list_agents(hub: TheHub, caller: TheCaller, paging: ThePaging, project_id: Annotated[str | None, Query()] = None) -> object:
    """List agents, newest first."""
    return await agents.list_agents(hub, caller, project_id=project_id, limit=paging.limit, cursor=paging.cursor)


@router.get("/api/agents/{agent_id}", response_model=Agent)
async def get_agent(hub: TheHub, caller: TheCaller, agent_id: str) -> object:
    """Read an agent."""
    return await agents.get_agent(hub, caller, agent_id)


@router.patch("/api/agents/{agent_id}", response_model=Agent)
async def update_agent(hub: TheHub, caller: TheCaller, agent_id: str, body: AgentChanges) -> object:
    """Change an agent; requires an organization key."""
    return await agents.update_agent(hub, caller, agent_id, list_sent_fields(body))


@router.delete("/api/agents/{agent_id}", status_code=204)
async def delete_agent(hub: TheHub, caller: TheCaller, agent_id: str) -> Response:
    """Delete an agent with its cases, traces, results and alerts; requires an organization key."""
    await agents.delete_agent(hub, caller, agent_id)
    return Response(status_code=204)


@router.post("/api/agents/{agent_id}/pause", response_model=Agent)
async def pause_agent(hub: TheHub, caller: TheCaller, agent_id: str) -> object:
    """Reject traces of the agent until it is resumed; requires an organization key."""
    return await agents.update_agent(hub, caller, agent_id, {"paused": True}, action="pause")


@router.post("/api/agents/{agent_id}/resume", response_model=Agent)
async def resume_agent(hub: TheHub, caller: TheCaller, agent_id: str) -> object:
    """Accept traces of the agent again; requires an organization key."""
    return await agents.update_agent(hub, caller, agent_id, {"paused": False}, action="resume")
