"""All agents of an MCPLab run as one target: each case goes to its own agent.

Servers are connected before the first case; one that cannot be reached ends the run there, as in MCPLab. The first tool call of an attempt
opens a session of its own with a server, unless that server says `session: shared` (our own key). Tool calls carry
MCPLab's request id: `mcplab-run:<run>:<scenario>:<agent slug>:<case>-run<k>`, at most 180 characters, the tail of it kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from proctor.actions.workspace.close_all import close_all
from proctor.actions.workspace.combined_suites import TargetsTogether
from proctor.cassettes.ports import Tape
from proctor.errors import TargetError
from proctor.llm.ports import ChatModel
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence, Json
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.servers import McpServers

NO_MODEL: Final = "missing_variable"
_LONGEST_ID: Final = 180
_NOT_IN_SLUG = re.compile(r"[^a-z0-9_-]+")
# What cannot stand in the value of a header.
_NOT_IN_HEADER = re.compile(r"[^\x21-\x7e]")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where one case goes, and with what."""

    scenario: str
    agent: str
    servers: tuple[str, ...] = ()
    attachments: tuple[dict[str, Json], ...] = ()


class McplabTarget:
    """The agents of a run. It owns the models and the servers, and gives both back."""

    def __init__(
        self,
        *,
        routes: Mapping[str, Route],
        agents: Mapping[str, McpAgent],
        models: Mapping[str, ChatModel],
        servers: McpServers,
        name: str,
        lacking: Mapping[str, str] | None = None,
    ) -> None:
        self._routes = routes
        self._agents = agents
        self._models = models
        self._servers = servers
        self._name = name
        self._lacking = lacking or {}
        """Why an agent cannot be driven, by its name."""

    @property
    def name(self) -> str:
        """The agents, in order."""
        return self._name

    @property
    def cases(self) -> frozenset[str]:
        """The cases that come here."""
        return frozenset(self._routes)

    async def open(self) -> None:
        """Connect every server that a case uses."""
        await self._servers.open()

    async def close(self) -> None:
        """Leave the servers and the models."""
        await close_all((self._servers, *self._models.values()))

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Let the agent of the case work."""
        case = attempt.case
        route = self._routes.get(case.id)
        if route is None:
            raise TargetError(f"case {case.id!r} belongs to no agent of this run")
        if route.agent in self._lacking:
            raise TargetError(self._lacking[route.agent], code=NO_MODEL)
        settings = {**case.settings, "mcp_servers": list(route.servers), "attachments": list(route.attachments)}
        run_id = attempt.request_id.removesuffix(f":{case.id}:{attempt.number}")
        asked = msgspec.structs.replace(
            attempt,
            case=msgspec.structs.replace(case, settings=settings),
            request_id=request_id(run_id, route, case.id, attempt.number),
        )
        evidence = await self._agents[route.agent].run(asked, tape)
        model = self._models[route.agent]
        about: dict[str, Json] = {"agent": route.agent, "scenario": route.scenario, "request_id": asked.request_id}
        answered = evidence.metadata.get("model")
        if answered != model.name:
            about["answered_by"] = answered
        return msgspec.structs.replace(evidence, metadata={**evidence.metadata, "model": model.name, **about})


class McplabTargets(TargetsTogether):
    """The agents of several configs as one target. Each config has its own connections: the same id may mean another server in another."""

    def __init__(self, targets: Sequence[McplabTarget]) -> None:
        super().__init__([(target, target.cases) for target in targets])


def request_id(run_id: str, route: Route, case_id: str, number: int) -> str:
    """The id that the tool calls of one attempt carry."""
    slug = _NOT_IN_SLUG.sub("_", route.agent.lower()).strip("_")
    # MCPLab calls a combination by scenario and agent, be there one agent or several.
    combination = case_id if case_id != route.scenario else f"{route.scenario}-{route.agent}"
    whole = f"mcplab-run:{run_id}:{route.scenario}:{slug}:{combination}-run{number + 1}"
    return _NOT_IN_HEADER.sub("_", whole)[-_LONGEST_ID:]
