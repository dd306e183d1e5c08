"""Our own agent: a chat model that is given the tools of MCP servers and works until it has an answer.

Every attempt has a conversation of its own (`agent_conversation.py` has the rules), within the time of the attempt, and sessions of its
own with the servers. The simulated systems of a case are servers, too, which nobody configures (`mcp_systems.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import SpecError, TargetError
from proctor.llm.ports import ChatModel
from proctor.model.attempt import Attempt, Speaker
from proctor.model.evidence import Evidence, Json
from proctor.model.typed import convert_to
from proctor.targets.agent_conversation import AgentConversation, AgentSettings, measure_ms
from proctor.targets.conversation import choose_speaker, with_conversation, with_user
from proctor.targets.direct_calls import direct_calls
from proctor.targets.faults import TargetFault
from proctor.targets.mcp_case import list_inputs, list_wanted_servers, load_attachments, says_anything
from proctor.targets.mcp_servers import McpServers, ReachedServers
from proctor.targets.mcp_settings import read_servers
from proctor.targets.mcp_systems import WithSystems

if TYPE_CHECKING:
    from proctor.targets.wire import MakeTransport


class McpAgent:
    """A target: an agent loop over a chat model and MCP servers.

    `model_for` makes the model an attempt talks to, on the attempt's tape; whoever made its connections closes them.
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
        self._name = name
        self._servers = servers
        self._model_for = model_for
        self._settings = settings or AgentSettings()

    @property
    def name(self) -> str:
        """The name that reports show."""
        return self._name

    def uses_variable(self, name: str) -> bool:
        """Return False: of a case only its messages are sent."""
        return False

    async def open(self) -> None:
        """Connect the servers."""
        await self._servers.open()

    async def close(self) -> None:
        """Close the connections to the servers."""
        await self._servers.close()

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Work through the turns of the case, in sessions of their own."""
        async with self._servers.open_session() as servers:
            reached = servers if attempt.tools is None else WithSystems(servers, attempt.tools)
            return await self._drive_case(reached, attempt, tape)

    async def _drive_case(self, servers: ReachedServers, attempt: Attempt, tape: Tape) -> Evidence:
        direct = direct_calls(attempt.case)
        silent = attempt.speaker is not None or (direct and not says_anything(attempt.case))
        texts = () if silent else list_inputs(attempt.case)
        files = load_attachments(attempt.case)
        systems = () if attempt.tools is None else tuple(attempt.tools.list_tools())
        wanted = tuple(dict.fromkeys((*list_wanted_servers(attempt.case, servers.ids), *systems)))
        conversation = AgentConversation(self._settings, servers, self._model_for(tape), attempt, tape)
        speaker = choose_speaker(attempt, texts)
        said: list[str] = []
        started = time.perf_counter()

        def make_evidence() -> Evidence:
            return with_user(conversation.make_evidence(said if attempt.speaker is not None else texts, measure_ms(started)), attempt)

        # A little less than we are given: whoever waits for us would not keep what we saw.
        deadline = asyncio.timeout(attempt.timeout_s - min(1.0, attempt.timeout_s / 20))
        try:
            async with deadline:
                await conversation.list_tools(wanted)
                await conversation.call_directly(call for call in direct if call.after_prompts == 0)
                while conversation.broken is None and (text := await self._ask_speaker(speaker, conversation, make_evidence)) is not None:
                    said.append(text)
                    await conversation.work_turn(text, files if len(said) == 1 else ())
                    await conversation.call_directly(call for call in direct if call.after_prompts == len(said))
        except TimeoutError:
            if not deadline.expired():
                raise
            conversation.broken = ("timeout", f"the run took longer than {attempt.timeout_s:g} s{conversation.describe_open_call()}")
        return make_evidence()

    async def _ask_speaker(self, speaker: Speaker, conversation: AgentConversation, make_evidence: Callable[[], Evidence]) -> str | None:
        """Return what is said next; a user who cannot go on is a fault that keeps the turns before it."""
        answer = conversation.show_last_turn()
        try:
            return await speaker.say_next(answer)
        except TargetError as error:
            if answer is None:
                raise
            raise with_conversation(TargetFault(error.code, error.message), make_evidence()) from None


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
    own = {key: value for key, value in settings.items() if key not in ("type", "model", "servers")}
    try:
        agent = convert_to(own, AgentSettings)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$.")
        raise SpecError(f"an MCP agent: {problem}", field=at.rstrip("`") or None) from None
    if agent.max_turns < 1:
        raise SpecError(f"expected at least 1 model call, found {agent.max_turns}", field="max_turns")
    servers = read_servers(settings.get("servers", []))
    connected = McpServers(servers, offline=offline, transport=transport)
    return McpAgent(name, servers=connected, model_for=model_for, settings=agent)
