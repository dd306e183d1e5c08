"""What a model can do in the sandboxes of a service: the tools of their kinds, each a request like any other."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.sandboxes.requests import answer_request
from proctor.simulators.ports import Tool
from proctor.simulators.registry import find_simulator
from proctor.simulators.tools import describe_wrong_call, find_tools, make_tool_request, write_tool_refusal, write_tool_result
from proctor.store.sql.pages import Row


class Reached(msgspec.Struct, frozen=True):
    """The sandboxes that somebody may use, and below which address."""

    heads: tuple[Row, ...]
    base: str
    token: str = ""
    """What they are reached with, which no event may show."""


def list_system_tools(reached: Reached) -> dict[str, tuple[Row, Tool]]:
    """Return the tools of all systems by name, each with its sandbox."""
    # Every tool begins with its kind, and a run has one system of a kind.
    return {tool.name: (head, tool) for head in reached.heads for tool in find_tools(find_simulator(head["kind"]))}


async def call_system_tool(hub: Hub, reached: Reached, name: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Call a tool, and return a result of MCP; what is refused is one that says `isError`. Raises `SpecError` for an unknown tool."""
    tools = list_system_tools(reached)
    if name not in tools:
        raise SpecError(f"there is no tool {show(name, 100)}", field="name", nearest=nearest(name, tools))
    head, tool = tools[name]
    try:
        request = make_tool_request(tool, arguments)
    except SpecError as error:
        return write_tool_refusal(describe_wrong_call(error))
    try:
        request = msgspec.structs.replace(request, base=f"{reached.base}/{head['kind']}", token=reached.token)
        answer = await answer_request(hub, head, request)
    except Refusal as refusal:
        return write_tool_refusal(refusal.message)
    return write_tool_result(answer)
