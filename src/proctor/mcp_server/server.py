"""The MCP server: tools, pages and prompts over the protocol of `mcp`, in both of its versions.

It is stateless. A rejected call returns a result with `isError`, so that the model sees it; an unknown tool is a protocol error.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from sqlalchemy.exc import IntegrityError

from proctor import __version__
from proctor.errors import EvidenceError, InputError, ProctorError, StoreError
from proctor.formats.verial.assertions import KINDS
from proctor.mcp_server.arguments import camel, camel_path
from proctor.mcp_server.local_runs import LocalRuns
from proctor.mcp_server.nouns import NOUNS
from proctor.mcp_server.pages import TEMPLATES, Page, fixed_pages, read_page
from proctor.mcp_server.ports import Runs
from proctor.mcp_server.prompts import PROMPTS, fill_prompt
from proctor.mcp_server.runs import COMPARE_RUNS, GET_RUN, LIST_RUNS, RUN_SUITE, SEARCH_TRACES
from proctor.mcp_server.suites import CHECK, DESCRIBE, VALIDATE
from proctor.mcp_server.tool import Action, Desk, Tool
from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.suites.documents import shown_problems
from proctor.service.verification import nouns
from proctor.service.verification.sandboxes.system_kinds import complete_addresses

# --- results of rejected calls, which a model can act on

_LOG = logging.getLogger("proctor.mcp")
_NEAREST = re.compile(r"nearest: ([^;()]+)")
_MOST_DETAILS = 50

_LISTED_BY = {
    noun.called: noun.tool.name
    for noun in reversed(nouns.NOUNS)  # the first of two nouns with one name counts
    if noun.tool is not None and any("list" in operation.actions for operation in noun.operations)
}
"""The list tool by missing object."""

ASSERTIONS = ", ".join(KINDS)


def write_refusal(error: Exception, tool: str, given: dict[str, Json]) -> dict[str, Json]:
    """Return the answer to a failed call."""
    refusal = _as_refusal(error, tool)
    details = {_path(path, tool): list(texts) for path, texts in list(refusal.fields.items())[:_MOST_DETAILS]}
    found: dict[str, Json] = {"code": refusal.code, "message": refusal.message}
    if details:
        found["path"] = next(iter(details))
    elif refusal.problems and refusal.problems[0].get("path"):
        found["path"] = refusal.problems[0]["path"]
    near = _nearest(refusal)
    if near:
        found["nearest"] = near
    found |= {"details": details, "nextStep": _next_step(refusal, tool, given)}
    if refusal.retry_after_s is not None:
        found["retryAfterS"] = refusal.retry_after_s
    if refusal.problems:
        found["problems"] = [dict(problem) for problem in refusal.problems]
    return {"error": found}


def _path(path: str, tool: str) -> str:
    # Evals are criteria inside, where their text is called `assertion`.
    return f"assert{path.removeprefix('assertion')}" if tool == "evals" and path.startswith("assertion") else camel_path(path)


def _as_refusal(error: Exception, tool: str) -> Refusal:
    match error:
        case Refusal():
            return error
        case StoreError():
            return Refusal("UNAVAILABLE", str(error), retry_after_s=2.0)
        case IntegrityError():
            # Two callers created the same key; the driver's message would show tables and values.
            return Refusal("CONFLICT", "the same object was created by another request")
        case InputError():
            problems = shown_problems(error.problems)
            first = error.problems[0].message if error.problems else str(error)
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            return Refusal("VALIDATION_ERROR", f"{first}{more}", problems=problems)
        case EvidenceError():
            return Refusal("VALIDATION_ERROR", f"the evidence cannot be read: {error.message}", fields={"evidence": [error.message]})
        case ProctorError():
            return Refusal("BAD_REQUEST", str(error))
        case _:
            # Details are hidden: they may belong to other tenants.
            _LOG.error("a tool failed", extra={"tool": tool}, exc_info=error)
            return Refusal("INTERNAL_ERROR", "internal error; see the log of the server")


def _nearest(refusal: Refusal) -> list[str]:
    for problem in refusal.problems:
        named = problem.get("nearest")
        if isinstance(named, list) and named:
            return [str(name) for name in named]
    for texts in (*refusal.fields.values(), [refusal.message]):
        for text in texts:
            found = _NEAREST.search(text)
            if found is not None:
                return [name.strip() for name in found[1].split(",")]
    return []


def _next_step(refusal: Refusal, tool: str, given: dict[str, Json]) -> str:
    if refusal.hint is not None:
        return refusal.hint
    match refusal.code:
        case "VALIDATION_ERROR" if tool == "criteria" and any(path.startswith("assertion.") for path in refusal.fields):
            return (
                f"correct `assertion` and call {tool} again; `assert` is one of {ASSERTIONS}, "
                "and the resource proctor://docs/reference/verial.md shows their fields"
            )
        case "VALIDATION_ERROR" | "BAD_REQUEST":
            where = "`details`" if refusal.fields else "`problems`" if refusal.problems else "the message"
            return f"correct what {where} names and call {tool} again"
        case "NOT_FOUND" if "action" in given:
            return f"find the right id with {_LISTED_BY.get(refusal.missing or '', tool)} {{action: list}}"
        case "NOT_FOUND":
            return "list what there is; take an id from there"
        case "CONFLICT":
            return "its state does not allow this now; look at it" + (f" with {tool} {{action: get}}" if "action" in given else "")
        case "FORBIDDEN" | "UNAUTHORIZED":
            return "use an organization key (`proctor keys create --kind organization`); this one does not allow it"
        case "RATE_LIMITED" | "UNAVAILABLE":
            return "wait, then call again with the same arguments"
        case _:
            return "try something else, or contact the administrator"


# ---


# --- all tools

OURS = (VALIDATE, CHECK, RUN_SUITE, LIST_RUNS, GET_RUN, COMPARE_RUNS, SEARCH_TRACES, DESCRIBE)
OF_THE_MACHINE = ("path", "evidencePath")
"""Parameters that name files: only for callers on the same machine."""
OF_THE_SERVICE = ("caseIds", "projectId")
"""Parameters that name what only the service has."""


def all_tools(*, local: bool) -> tuple[Tool, ...]:
    """Return all tools. File parameters exist only on the caller's machine, project parameters only elsewhere."""
    dropped = OF_THE_SERVICE if local else OF_THE_MACHINE
    return (*NOUNS, *(tool if tool is SEARCH_TRACES else _without(tool, dropped) for tool in OURS))


def _without(tool: Tool, names: tuple[str, ...]) -> Tool:
    action = tool.single
    assert action is not None
    takes = tuple(name for name in action.takes if name.rstrip("!") not in names)
    fewer = Action(call=action.call, does=action.does, takes=takes, clears=action.clears, reads=action.reads)
    return msgspec.structs.replace(tool, single=fewer)


# ---


Context = ServerRequestContext[Any, Any]
WhoAsks = Callable[[Context], Caller]

INSTRUCTIONS = """\
proctor examines AI agents: a suite states what an agent must do, evidence is what it did, every assertion is decided with a reason.
To write a suite: `describe` what there is, write, `validate_suite`, try it with `check_evidence`, then `run_suite` and `get_run`.
To author a benchmark: `benchmarks` create, `tasks` create, `criteria` create; then `benchmark_runs` start, `task-runs` putState and
complete, and read `criterion-runs`. Results with isError say what is wrong (path, nearest right word) and what to do next.
"""
_MARKS = re.compile(r"[-_\s]")


class McpServer:
    """Return the server of one hub; `who_asks` identifies the caller."""

    def __init__(self, hub: Hub, runs: Runs, who_asks: WhoAsks, *, folder: Path | None = None, trust: bool | None = None) -> None:
        self._hub = hub
        self._runs = runs
        self._who_asks = who_asks
        self._folder = folder
        self._trust = trust
        self._tools = {_plain(tool.name): tool for tool in all_tools(local=folder is not None)}
        self._schemas = {tool.name: tool.input_schema for tool in self._tools.values()}
        self.protocol: Server[Any] = Server(
            "proctor",
            version=__version__,
            title="proctor",
            description="Examine AI agents: suites, evidence, runs, criteria.",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=self._schemas.get,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    def _desk(self, context: Context) -> Desk:
        return Desk(hub=self._hub, caller=self._who_asks(context), runs=self._runs, folder=self._folder, trust=self._trust)

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe_tool(tool) for tool in self._tools.values()])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = self._tools.get(_plain(params.name))
        if tool is None:
            close = nearest(params.name, [known.name for known in self._tools.values()])
            hint = f"; nearest: {', '.join(close)}" if close else "; tools/list shows what there is"
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {params.name[:100]!r}{hint}")
        given: dict[str, Json] = dict(params.arguments or {})
        try:
            # A copy: a refusal shows the original arguments.
            found = await tool.call(self._desk(context), dict(given))
        except Exception as error:
            # Including bugs: an exception would be a protocol error, which the model does not see.
            return _result(write_refusal(error, tool.name, given), is_error=True)
        if tool.actions and context.request is not None:
            found = complete_addresses(found, context.request.state.root)
        # Nouns speak the names of the service; the other tools have chosen theirs.
        return _result(camel(found) if tool.actions else found)

    async def _list_resources(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(name=page.uri.partition("://")[2], title=page.title, uri=page.uri, **_about(page)) for page in fixed_pages()
            ]
        )

    async def _list_templates(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(name=page.title, title=page.title, uri_template=page.uri, **_about(page)) for page in TEMPLATES
            ]
        )

    async def _read_resource(self, context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            kind, text = await read_page(self._desk(context), uri)
        except Exception as error:
            raise _protocol_error(error, "resources", {"uri": uri}) from None
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])

    async def _list_prompts(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=prompt.name,
                title=prompt.title,
                description=prompt.about,
                arguments=[types.PromptArgument(name=one.name, description=one.about, required=one.required) for one in prompt.arguments],
            )
            for prompt in PROMPTS
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        try:
            about, text = fill_prompt(params.name, params.arguments or {})
        except ProctorError as error:
            raise _protocol_error(error, "prompts", {"name": params.name}) from None
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=about, messages=[message])


def _plain(name: str) -> str:
    """Tools are found under all spellings: `criterion-runs`, `criterionRuns`, `criterion_runs`."""
    return _MARKS.sub("", name).lower()


def _describe_tool(tool: Tool) -> types.Tool:
    read_only = tool.read_only
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=read_only,
            destructive_hint=tool.destroys,
            idempotent_hint=read_only,
            open_world_hint=tool.open_world,
        ),
    )


def _about(page: Page) -> dict[str, Any]:
    return {"description": page.about or None, "mime_type": page.kind}


def _result(value: Json, *, is_error: bool = False) -> types.CallToolResult:
    # The same as text, for clients without structured content.
    text = msgspec.json.encode(value, enc_hook=str).decode("utf-8", errors="replace")
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=value, is_error=is_error)


def _protocol_error(error: Exception, what: str, data: dict[str, Json]) -> MCPError:
    refusal = write_refusal(error, what, {})["error"]
    code = types.INTERNAL_ERROR if refusal["code"] in ("INTERNAL_ERROR", "UNAVAILABLE") else types.INVALID_PARAMS
    return MCPError(code=code, message=refusal["message"], data={**data, **refusal})


# --- the two ways in --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def over_http(hub: Hub, runs: Runs, *, largest: int) -> AsyncGenerator[StreamableHTTPSessionManager]:
    """The server for streamable HTTP: an ASGI application, as long as the block lasts.

    Who asks, from where and how much was found out before by the layers of the application around it: the caller is in
    `request.state.caller`.
    """

    def who_asks(context: Context) -> Caller:
        request = context.request
        assert request is not None  # over HTTP there always is one
        return cast(Caller, request.state.caller)

    server = McpServer(hub, runs, who_asks)
    # Stateless: any replica can answer any request.
    manager = StreamableHTTPSessionManager(server.protocol, json_response=True, stateless=True, max_request_body_size=largest)
    async with manager.run():
        yield manager


async def over_stdio(hub: Hub, caller: Caller, runs: LocalRuns) -> None:
    """Serve one client on standard input and output until it closes them."""
    server = McpServer(hub, runs, lambda context: caller, folder=runs.folder, trust=runs.trust)
    try:
        async with stdio_server() as (received, sent):
            # Standard output is the wire: redirect what a function under test prints.
            with contextlib.redirect_stdout(sys.stderr):
                await server.protocol.run(received, sent, server.protocol.create_initialization_options())
    finally:
        await runs.close()
