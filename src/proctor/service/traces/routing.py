"""Finds the agent that a trace belongs to.

Only the agents of the key's project are looked at; a key of the organization looks at all of its organization.

Current generation, in this order: the one agent a key is restricted to; the agent that is named (`platformId`, `metadata.mibo.platform_id`,
or the resource attribute `mibo.platform_id`); for OTLP the agent whose service name is the resource's `service.name`. What resolves to
nothing is refused with a hint, unless its service name makes its agent (`intake.py`). The second generation (`data` bodies) also
finds an agent by `workflowId` or `chatflowId`, and what resolves to nothing there is an agent that was not found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from proctor.service.access.callers import Caller
from proctor.service.access.known_agents import load_agents, reload_agents
from proctor.service.agent import Agent
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal

PLATFORM_ATTRIBUTE = "mibo.platform_id"
_PAUSE_S = 0.2
"""How long is waited between two readings for unknown agents: a flood of unknown names costs five queries a second, not one each."""
_HINT = (
    "name the agent with platformId, with metadata.mibo.platform_id, or with a key that is restricted to one agent; "
    "for OTLP also with the resource attribute service.name, which an agent has as its service_name"
)


class NoAgentFound(Refusal):
    """Raised for a trace that has no agent, and none that it could have meant."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says about where it belongs."""

    platform_id: str | None = None
    service_name: str | None = None
    external_ref: str | None = None
    generation: Literal["second", "current"] = "current"


def require_sender(caller: Caller) -> None:
    """Refuse everybody who does not send traces."""
    if caller.kind not in ("organization", "project"):
        raise Refusal("FORBIDDEN", f"a {caller.kind} key does not send traces")


async def require_agent(hub: Hub, caller: Caller, address: Address, *, since: int | None = None) -> Agent:
    """Return the agent of a trace. Raises `Refusal`.

    `since` is how many readings of agents had begun when the trace came in (`AgentCache.begun`), for a request with many traces.
    """
    require_sender(caller)
    found = _choose_agent(await load_agents(hub, caller.organization_id), caller, address)
    if isinstance(found, Refusal):
        # Another server may have made the agent just now. A sender does not send again what was refused, so nobody is refused by memory.
        found = _choose_agent(await reload_agents(hub, caller.organization_id, since=since, pause_s=_PAUSE_S), caller, address)
    if isinstance(found, Refusal):
        raise found
    if found.paused:
        raise Refusal("FORBIDDEN", "the agent is paused: its traces are not taken")
    return found


def _choose_agent(known: Mapping[str, Agent], caller: Caller, address: Address) -> Agent | Refusal:
    # The same rule as `access/permissions.py` has for queries: what is not of the key's project does not exist for it.
    of_project = [agent for agent in known.values() if caller.project_id is None or agent.project_id == caller.project_id]
    if caller.agent_ids is not None and len(caller.agent_ids) == 1:
        only = next((agent for agent in of_project if agent.id == caller.agent_ids[0]), None)
        return only or Refusal("NOT_FOUND", "the agent that the key is restricted to is gone")
    of_key = of_project if caller.agent_ids is None else [agent for agent in of_project if agent.id in caller.agent_ids]
    if address.platform_id is not None:
        # Looked for in the whole project, so that a restricted key hears that it may not, and not that there is none.
        named = next((agent for agent in of_project if agent.id == address.platform_id), None)
        if named is None:
            return Refusal("NOT_FOUND", f"there is no agent {address.platform_id[:100]!r}")
        return named if named in of_key else Refusal("FORBIDDEN", "the key is not allowed for this agent")
    for field, value in (("service_name", address.service_name), ("external_ref", address.external_ref)):
        matching = [agent for agent in of_key if getattr(agent, field) == value] if value else []
        if len(matching) == 1:
            return matching[0]
        if matching:
            return Refusal("VALIDATION_ERROR", f"several agents have the {field} {str(value)[:100]!r}", hint=_HINT)
    if address.generation == "second":
        return Refusal("NOT_FOUND", "the trace names no agent that there is", hint=_HINT)
    said = f" (service.name is {address.service_name[:100]!r})" if address.service_name else ""
    told = ["no agent could be found for this trace" + said]
    hint = f"{_HINT}; with --unknown-agents create the service makes it by itself" if address.service_name else _HINT
    return NoAgentFound("VALIDATION_ERROR", "the trace belongs to no agent" + said, fields={"platformId": told}, hint=hint)
