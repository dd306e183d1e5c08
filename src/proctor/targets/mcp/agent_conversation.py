"""The conversation of our own agent in one attempt.

The loop, turn by turn of a case, over one conversation:

* The model gets the system prompt, the conversation so far and all tools. The tool calls of its reply are made in order and answered; then
  the model is called again. A reply without tool calls ends the turn: its text is the answer. Text next to tool calls is stored in the
  messages and is never the answer.
* A call of an unknown tool, or with arguments that are not an object, never reaches a server: the model gets the error, and the call is
  recorded with it, as are `isError` results and calls that failed on the wire. With `unknown_tools: end`, a call of an unknown tool ends
  the run.
* A reply that is cut off, filtered or not understood is incomplete: the account marks what is unknown, as it does after a run was stopped.
* `max_turns` bounds the model calls of the whole case. Reaching it, the time limit, a server that ends, or a model that fails after tools
  were called stop the run: the evidence has what was observed, `error` the reason and `metadata.code` its code. A call that was running
  when the time ended is recorded with its error: it may have had its effect. Before any tool was called the model's fault is raised.
* Calls that the case makes itself (`shared/conversation.py`) come at their place between the turns; a case may have nothing else.
* Tool lists and tool calls go through the tape, so a replay needs no server; model calls do too, by the model the caller makes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from proctor.cassettes.ports import Tape
from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR
from proctor.evidence.shared.usage import add_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.text import parse_json
from proctor.llm.ports import Attachment, ChatMessage, ChatModel, ChatReply, ChatRequest, Finish, ModelCall, ModelFault, ToolDefinition
from proctor.model.account import Account
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence, EvidenceTurn, Json, ToolCall, Usage, find_result_error
from proctor.model.show import show, suggest
from proctor.model.stamps import stamp_moment
from proctor.model.typed import convert_to
from proctor.targets.mcp.results import RESULT_LIMIT, CallResult, Listing, bound_result, cut_middle, text_for_model
from proctor.targets.mcp.servers import OfferedTool, ReachedServers, name_tools
from proctor.targets.shared.conversation import DirectCall

READER: Final = "mcp agent"
MAX_TURNS: Final = 30
_ENDS: Final[dict[Finish, str]] = {
    "length": "the model's answer was cut off at the token limit",
    "other": "the model stopped for an unrecognised reason",
}
_NO_CALL: Final = "the model stopped to call tools, and its reply contains no call"
_NOTHING_LEFT: Final = "a content filter left nothing of the model's answer"
_CUT_OFF: Final = "the time of the run was over before the tool had answered; whether it took effect is unknown"
_MESSAGE_LIMIT: Final = 4_000
"""Characters of a tool result in the stored messages: the complete result is stored with the call."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the agent loop."""

    system: str = ""
    max_turns: int = MAX_TURNS
    """Maximum model calls of a case, over all its turns."""
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    result_limit: int = RESULT_LIMIT
    """Maximum characters of one tool result passed to the model."""
    unknown_tools: Literal["told", "end"] = "told"
    """The effect of a call of an unknown tool: the model is `told`, or the run `end`s, as in MCPLab."""
    tool_errors: Literal["text", "json"] = "text"
    """How the model gets the error of a failed call: `Error: ...`, or `{"error": "..."}` as in MCPLab."""


class AgentConversation:
    """One attempt: its messages, calls and costs so far."""

    def __init__(self, settings: AgentSettings, servers: ReachedServers, model: ChatModel, attempt: Attempt, tape: Tape) -> None:
        self._settings = settings
        self._servers = servers
        self._model = model
        self._attempt = attempt
        self._tape = tape
        self._messages: list[ChatMessage] = [ChatMessage(role="system", text=settings.system)] if settings.system else []
        self._about: dict[int, dict[str, Json]] = {}
        """Time and cost of a message, by its index."""
        self._cut_off: ToolCall | None = None
        """The call that was running when the run was ended from outside."""
        self._tools: dict[str, OfferedTool] = {}
        self._definitions: tuple[ToolDefinition, ...] = ()
        self._about_servers: list[dict[str, Json]] = []
        self._turns: list[EvidenceTurn] = []
        self._model_calls = 0
        self._calls: list[ToolCall] = []
        self._direct = 0
        self._last: ChatReply | None = None
        self._unknowns = Unknowns()
        self.broken: tuple[str, str] | None = None
        """The code and the reason why the run was stopped, if it was."""

    async def list_tools(self, wanted: Sequence[str]) -> None:
        """Ask the servers for their tools."""

        async def send(server: str) -> Json:
            return msgspec.to_builtins(await self._servers.get_listing(server))

        listings: list[Listing] = []
        for server in wanted:
            answer = await self._tape.exchange("tool", {"method": "tools/list", "server": server}, lambda server=server: send(server))
            listings.append(convert_to(answer, Listing))
        tools = name_tools(listings)
        self._tools = {tool.name: tool for tool in tools}
        # With the default type `object`: models reject any other schema.
        self._definitions = tuple(
            ToolDefinition(name=tool.name, description=tool.description, schema={"type": "object", **tool.schema}) for tool in tools
        )
        self._about_servers = [
            {"id": listing.server, "name": listing.name, "version": listing.version, "protocol": listing.protocol} for listing in listings
        ]

    async def work_turn(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Send one message and work until it is answered; every outcome is recorded."""
        started, first_call = time.perf_counter(), len(self._calls)
        spent: list[Usage | None] = []
        answer: str | None = None
        self._say(ChatMessage(role="user", text=text, attachments=attachments))
        try:
            answer = await self._answer_turn(spent)
        finally:
            if self.broken is not None and self.broken[0] == "max_turns":
                # As in MCPLab: a run that reached its limit has the answer "".
                answer = ""
            self._turns.append(
                EvidenceTurn(
                    input=text,
                    text=answer,
                    body=parse_json(answer),
                    tool_calls=tuple(self._calls[first_call:]),
                    duration_ms=measure_ms(started),
                    usage=add_usage(spent),
                    metadata={"model_calls": len(spent)},
                )
            )

    async def call_directly(self, calls: Iterable[DirectCall]) -> None:
        """Make the calls of the case itself; calls after a turn belong to that turn."""
        first_call = len(self._calls)
        for call in calls:
            if self.broken is not None:
                break
            server = call.find_server(self._servers.ids)
            if server is None:
                self.broken = ("unknown_server", call.describe_unknown_server(self._servers.ids))
                break
            started = time.perf_counter()
            record = ToolCall(name=call.tool, arguments=call.arguments, id=call.id, server=server, aliases=(f"{server}:{call.tool}",))
            try:
                record, is_gone = await self._send_call(record, OfferedTool(name=call.tool, server=server, tool=call.tool), call.arguments)
            except asyncio.CancelledError:
                self._record_cut_off_call(record, started)
                raise
            self._calls.append(msgspec.structs.replace(record, duration_ms=measure_ms(started)))
            self._direct += 1
            if is_gone:
                self.broken = ("server_gone", str(record.error))
        new_calls = self._calls[first_call:]
        if new_calls and self._turns:
            last = self._turns[-1]
            self._turns[-1] = msgspec.structs.replace(last, tool_calls=(*(last.tool_calls or ()), *new_calls))

    async def _answer_turn(self, spent: list[Usage | None]) -> str | None:
        while self.broken is None:
            if self._model_calls >= self._settings.max_turns:
                self.broken = ("max_turns", "max_turns reached")
                return ""
            reply = await self._ask_model()
            if reply is None:
                return None
            spent.append(reply.usage)
            self._say(ChatMessage(role="assistant", text=reply.text, tool_calls=reply.tool_calls), usage=reply.usage)
            _mark_reply(self._unknowns, reply)
            if not reply.tool_calls:
                return reply.text
            for call in reply.tool_calls:
                if not await self._make_call(call):
                    return None
        return None

    def _make_account(self) -> Account:
        if self.broken is not None:
            why = f"the run did not finish: {self.broken[1]}"
            self._unknowns.mark("answer", why)
            self._unknowns.mark("tool_calls", why)
        return self._unknowns.close_account(READER)

    def _say(self, message: ChatMessage, usage: Usage | None = None) -> None:
        """Add a message to the conversation, with the time of day."""
        details: dict[str, Json] = {"ts": stamp_moment(datetime.now(UTC))}
        if usage is not None:
            details["usage"] = msgspec.to_builtins(usage)
        self._about[len(self._messages)] = details
        self._messages.append(message)

    def _record_cut_off_call(self, call: ToolCall, started: float) -> None:
        """Record a call without a response: its server may have run it."""
        changes: dict[str, Json] = {"error": _CUT_OFF, "error_kind": PROTOCOL_ERROR, "duration_ms": measure_ms(started)}
        self._cut_off = msgspec.structs.replace(call, **changes)
        self._calls.append(self._cut_off)

    def describe_open_call(self) -> str:
        """Return the call that was open when the run was ended, as the end of a sentence; empty if there was none."""
        if self._cut_off is None:
            return ""
        return f", while the tool {self._cut_off.name!r} of the MCP server {self._cut_off.server!r} was being called"

    async def _ask_model(self) -> ChatReply | None:
        settings = self._settings
        request = ChatRequest(
            messages=tuple(self._messages),
            tools=self._definitions,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=settings.seed,
        )
        self._model_calls += 1
        try:
            self._last = await self._model.complete(request)
        except ModelFault as fault:
            # Nothing was observed yet, so this fault can be retried. Later, tools have had their effect.
            if not self._calls and not self._turns:
                raise
            self.broken = (fault.code, f"the model failed: {fault.message}")
            return None
        return self._last

    async def _make_call(self, call: ModelCall) -> bool:
        """Make one call and return its result to the model; False if its server is gone."""
        started = time.perf_counter()
        tool = self._tools.get(call.name)
        arguments = {} if call.arguments is None else call.arguments
        is_gone = False
        if tool is None:
            why = f"there is no tool {show(call.name, 80)}" + suggest(call.name, self._tools)
            record = ToolCall(name=call.name, arguments=arguments, id=call.id, error=why, error_kind=PROTOCOL_ERROR)
        else:
            record = ToolCall(name=tool.tool, arguments=arguments, id=call.id, server=tool.server, aliases=(f"{tool.server}:{tool.tool}",))
            # MCP only takes an object; `read_arguments` stored other arguments as text.
            if not isinstance(arguments, dict):
                message = f"the arguments of {call.name!r} are not a JSON object: {show(arguments)}"
                record = msgspec.structs.replace(record, arguments=bound_result(arguments), error=message, error_kind=PROTOCOL_ERROR)
            else:
                try:
                    record, is_gone = await self._send_call(record, tool, arguments)
                except asyncio.CancelledError:
                    self._record_cut_off_call(record, started)
                    self._say(ChatMessage(role="tool", text=f"Error: {_CUT_OFF}", call_id=call.id, name=call.name))
                    raise
        self._calls.append(msgspec.structs.replace(record, duration_ms=measure_ms(started)))
        if tool is None and self._settings.unknown_tools == "end":
            self.broken = ("unknown_tool", str(record.error))
        settings = self._settings
        if record.result is not None:
            answer = text_for_model(record.result, settings.result_limit)
        else:
            answer = f"Error: {record.error}" if settings.tool_errors == "text" else msgspec.json.encode({"error": record.error}).decode()
        self._say(ChatMessage(role="tool", text=cut_middle(answer, settings.result_limit), call_id=call.id, name=call.name))
        if is_gone:
            self.broken = ("server_gone", str(record.error))
        return self.broken is None

    async def _send_call(self, made: ToolCall, tool: OfferedTool, arguments: dict[str, Json]) -> tuple[ToolCall, bool]:
        async def send() -> Json:
            result = await self._servers.call_tool(tool.server, tool.tool, arguments, request_id=self._attempt.request_id)
            return msgspec.to_builtins(result)

        request = {"method": "tools/call", "server": tool.server, "tool": tool.tool, "arguments": arguments}
        answer = convert_to(await self._tape.exchange("tool", request, send), CallResult)
        if answer.error is not None:
            return msgspec.structs.replace(made, error=answer.error, error_kind=PROTOCOL_ERROR), answer.gone
        failure = find_result_error(answer.result)
        kind = None if failure is None else CONTENT_ERROR
        return msgspec.structs.replace(made, result=answer.result, error=failure, error_kind=kind), False

    def show_last_turn(self) -> Evidence | None:
        """Return the observations of the last turn, or None before the first."""
        if not self._turns:
            return None
        last = self._turns[-1]
        return Evidence(
            case=self._attempt.case.id,
            input=last.input,
            text=last.text,
            body=last.body,
            tool_calls=last.tool_calls,
            duration_ms=last.duration_ms,
            usage=last.usage,
            model=self._find_model_name(),
            available_tools=tuple({tool.tool: None for tool in self._tools.values()}),
            account=self._make_account(),
        )

    def make_evidence(self, inputs: Sequence[str], duration_ms: float) -> Evidence:
        """Return all observations as evidence."""
        last = self._turns[-1] if self._turns else None
        names = {tool.tool: None for tool in self._tools.values()}
        # A claim may name a tool with or without its server, because calls have both names (`aliases`).
        qualified = {f"{tool.server}:{tool.tool}": None for tool in self._tools.values()}
        metadata: dict[str, Json] = {
            "provider": self._model.provider,
            "model": self._find_model_name(),
            "model_calls": self._model_calls,
            "servers": self._about_servers,
            "messages": [{**_shorten_message(message), **self._about.get(place, {})} for place, message in enumerate(self._messages)],
        }
        if self._direct:
            metadata["direct_calls"] = self._direct
        if self._last is not None:
            metadata["finish"] = self._last.finish
        if self.broken is not None:
            metadata["code"] = self.broken[0]
        return Evidence(
            case=self._attempt.case.id,
            input=inputs[0] if len(inputs) == 1 else list(inputs) or None,
            text=last.text if last is not None else None,
            body=last.body if last is not None else None,
            tool_calls=tuple(self._calls),
            duration_ms=duration_ms,
            usage=add_usage(turn.usage for turn in self._turns),
            turns=tuple(self._turns) or None,
            context=self._attempt.case.context or None,
            available_tools=(*names, *qualified),
            timezone=self._attempt.case.timezone,
            error=self.broken[1] if self.broken is not None else None,
            model=self._find_model_name(),
            account=self._make_account(),
            metadata=metadata,
        )

    def _find_model_name(self) -> str:
        """Return the model's name as the provider reports it, else from the settings."""
        return (self._last.model if self._last is not None else "") or self._model.name


def _shorten_message(message: ChatMessage) -> dict[str, Json]:
    """Return a message for reports, without the content of files and large results."""
    stored: dict[str, Json] = msgspec.to_builtins(message)
    if message.role == "tool":
        stored["text"] = cut_middle(message.text, _MESSAGE_LIMIT)
    if message.attachments:
        stored["attachments"] = [
            {"name": attachment.name, "media_type": attachment.media_type, "url": attachment.url, "characters": len(attachment.data or "")}
            for attachment in message.attachments
        ]
    return stored


def measure_ms(since: float) -> float:
    """Return the milliseconds since a reading of `time.perf_counter`."""
    return round((time.perf_counter() - since) * 1000, 3)


def _mark_reply(unknowns: Unknowns, reply: ChatReply) -> None:
    """Mark the parts that are unknown after a reply that was cut off, filtered or has unrecognised parts."""
    for what in reply.unread:
        if what.startswith("an answer"):
            unknowns.mark("answer", f"the model gave {what}")
        else:
            unknowns.mark_unrecognised(("answer", "tool_calls"), f"the model's reply contains {what}, which is unrecognised")
    if reply.tool_calls:
        return  # the conversation continues
    if reply.finish == "tool_calls":
        # The unrecognised part may be a call.
        if not reply.unread:
            unknowns.mark_parts(("tool_calls", "answer"), _NO_CALL)
    elif reply.finish == "content_filter" and not reply.text:
        unknowns.mark("answer", _NOTHING_LEFT)
    elif reply.finish in _ENDS:
        unknowns.mark("answer", _ENDS[reply.finish])
