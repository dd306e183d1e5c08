"""Our own agent: a chat model with the tools of MCP servers that works until it has an answer.

Every attempt has its own conversation (`agent_conversation.py` has the rules), within the time of the attempt, and sessions of its
own with the servers. The simulated systems of a case are servers, too, without any configuration (`WithSystems`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from proctor import __version__
from proctor.cassettes.ports import Tape
from proctor.errors import SpecError, TargetError
from proctor.llm.ports import Attachment, ChatModel
from proctor.model.attempt import Attempt, OwnTools
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.model.typed import convert_to
from proctor.targets.mcp.agent_conversation import AgentConversation, AgentSettings, measure_ms
from proctor.targets.mcp.results import CallResult, Listing, RemoteTool, bound_result, can_be_written
from proctor.targets.mcp.servers import McpServers, ReachedServers
from proctor.targets.mcp.settings import read_servers
from proctor.targets.shared.conversation import direct_calls, with_conversation, with_user
from proctor.targets.shared.faults import TargetFault

if TYPE_CHECKING:
    from proctor.targets.shared.wire import MakeTransport


class McpAgent:
    """A target: an agent loop over a chat model and MCP servers.

    `model_for` makes the model of an attempt, on the attempt's tape; its creator closes its connections.
    """

    takes_speakers = True

    def __init__(
        self,
        name: str,
        *,
        servers: McpServers,
        model_for: Callable[[Tape], ChatModel],
        settings: AgentSettings | None = None,
    ) -> None:
        self.name = name
        self._servers = servers
        self._model_for = model_for
        self._settings = settings or AgentSettings()
        self.listings: tuple[Listing, ...] = ()
        """What the servers offered when they were connected."""

    def uses_variable(self, name: str) -> bool:
        """Return False: only the messages of a case are sent."""
        return False

    async def open(self) -> None:
        """Connect the servers."""
        await self._servers.open()
        self.listings = self._servers.listings

    async def close(self) -> None:
        """Close the connections to the servers."""
        await self._servers.close()

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Work through the turns of the case, in separate sessions."""
        async with self._servers.open_session() as servers:
            reached = servers if attempt.tools is None else WithSystems(servers, attempt.tools)
            return await self._drive_case(reached, attempt, tape)

    async def _drive_case(self, servers: ReachedServers, attempt: Attempt, tape: Tape) -> Evidence:
        direct = direct_calls(attempt.case)
        case = attempt.case
        has_input = case.custom_body is not None or bool(case.turns) or case.input is not None
        silent = attempt.speaker is not None or (direct and not has_input)
        texts = () if silent else list_inputs(case)
        files = load_attachments(case)
        systems = () if attempt.tools is None else tuple(attempt.tools.list_tools())
        named = case.settings.get("mcp_servers")
        # A case that names no servers uses all of them.
        wanted = [str(entry.get("id") if isinstance(entry, dict) else entry) for entry in named] if isinstance(named, list) else servers.ids
        server_ids = tuple(dict.fromkeys((*wanted, *systems)))
        conversation = AgentConversation(self._settings, servers, self._model_for(tape), attempt, tape)
        fixed_texts = iter(texts)
        inputs: list[str] = []
        started = time.perf_counter()

        def make_evidence() -> Evidence:
            return with_user(conversation.make_evidence(inputs if attempt.speaker is not None else texts, measure_ms(started)), attempt)

        # A little less than our own limit, so that the caller still gets the observations.
        deadline = asyncio.timeout(attempt.timeout_s - min(1.0, attempt.timeout_s / 20))
        try:
            async with deadline:
                await conversation.list_tools(server_ids)
                await conversation.call_directly(call for call in direct if call.after_prompts == 0)
                while conversation.broken is None:
                    answer = conversation.show_last_turn()
                    try:
                        text = next(fixed_texts, None) if attempt.speaker is None else await attempt.speaker.say_next(answer)
                    except TargetError as error:
                        if answer is None:
                            raise
                        # A user who cannot continue is a fault with the turns so far.
                        raise with_conversation(TargetFault(error.code, error.message), make_evidence()) from None
                    if text is None:
                        break
                    inputs.append(text)
                    await conversation.work_turn(text, files if len(inputs) == 1 else ())
                    await conversation.call_directly(call for call in direct if call.after_prompts == len(inputs))
        except TimeoutError:
            if not deadline.expired():
                raise
            conversation.broken = ("timeout", f"the run took longer than {attempt.timeout_s:g} s{conversation.describe_open_call()}")
        return make_evidence()


def build_mcp_agent(
    settings: Mapping[str, Json],
    *,
    name: str,
    model_for: Callable[[Tape], ChatModel],
    offline: bool = False,
    transport: MakeTransport | None = None,
) -> McpAgent:
    """Return the agent that a file describes: the fields of `AgentSettings`, and `servers`. Raises `SpecError`.

    `type` and `model` stand in the file too; the model itself is made by the caller.
    """
    loop_settings = {key: value for key, value in settings.items() if key not in ("type", "model", "servers")}
    try:
        agent = convert_to(loop_settings, AgentSettings)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$.")
        raise SpecError(f"an MCP agent: {problem}", field=at.rstrip("`") or None) from None
    if agent.max_turns < 1:
        raise SpecError(f"expected at least 1 model call, found {agent.max_turns}", field="max_turns")
    servers = read_servers(settings.get("servers", []))
    connected = McpServers(servers, offline=offline, transport=transport)
    return McpAgent(name, servers=connected, model_for=model_for, settings=agent)


# --- what a case asks for -------------------------------------------------------------------------------------------


def list_inputs(case: Case) -> tuple[str, ...]:
    """Return the messages of a case, turn by turn. Raises `TargetError` for a step this agent does not support."""
    if case.custom_body is not None:
        raise TargetError(f"case {case.id!r} has a custom body, which only an agent over HTTP can be sent")
    if case.turns:
        return tuple(turn.input for turn in case.turns)
    if case.input is None:
        raise TargetError(f"case {case.id!r} has neither input nor turns")
    return (case.input,)


def load_attachments(case: Case) -> tuple[Attachment, ...]:
    """Return the files of the first message. Raises `TargetError` for one that was not loaded."""
    found: list[Attachment] = []
    for attachment in case.settings.get("attachments") or ():
        if not attachment.get("data") and not attachment.get("url"):
            name = show(attachment.get("path") or attachment.get("name"), 80)
            raise TargetError(f"case {case.id!r}: the attachment {name} was not loaded")
        fields = {key: attachment[key] for key in ("media_type", "data", "url", "name") if attachment.get(key) is not None}
        found.append(Attachment(**fields))
    return tuple(found)


# --- simulated systems ----------------------------------------------------------------------------------------------


class WithSystems:
    """The servers of an agent, and the systems of one attempt."""

    def __init__(self, servers: ReachedServers, tools: OwnTools) -> None:
        """Raises `TargetError` if a system and a server have the same name."""
        self._servers = servers
        self._tools = tools
        self._listed = tools.list_tools()
        duplicates = [name for name in self._listed if name in servers.ids]
        if duplicates:
            message = f"the agent has an MCP server {duplicates[0]!r}, and the case a system of that name; call one of them otherwise"
            raise TargetError(message, code="bad_request")

    @property
    def ids(self) -> tuple[str, ...]:
        """The servers in the order of the settings, then the systems."""
        return (*self._servers.ids, *self._listed)

    async def get_listing(self, server: str) -> Listing:
        """Return the identity and the tools of a server."""
        if server not in self._listed:
            return await self._servers.get_listing(server)
        tools = tuple(RemoteTool(name=tool.name, description=tool.description, schema=tool.schema) for tool in self._listed[server])
        return Listing(server=server, name="proctor", version=__version__, tools=tools)

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Json], *, request_id: str | None = None) -> CallResult:
        """Call a tool of a server or a system, once; a failure is part of the result."""
        if server not in self._listed:
            return await self._servers.call_tool(server, tool, arguments, request_id=request_id)
        if not can_be_written(arguments):
            return CallResult(error="the arguments contain a lone surrogate, which cannot be sent")
        return CallResult(result=bound_result(await self._tools.call_tool(server, tool, arguments)))
