"""The MCP server: tools, pages and prompts over the MCP protocol, in both of its versions.

It is stateless. A rejected call returns a result with `isError`, so that the model sees it; an unknown tool is a protocol error.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import msgspec
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.methods import CacheableMethod
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from sqlalchemy.exc import IntegrityError

from proctor import __version__
from proctor.actions.help.describe import describe
from proctor.errors import EvidenceError, InputError, ProctorError, StoreError
from proctor.formats.suites import DIALECTS
from proctor.formats.verial.assertions import KINDS
from proctor.mcp_server.arguments import Runs, camel, camel_path
from proctor.mcp_server.local_runs import LocalRuns
from proctor.mcp_server.nouns import NOUNS
from proctor.mcp_server.pages import TEMPLATES, Page, fixed_pages, read_page
from proctor.mcp_server.runs import COMPARE_RUNS, EXAMINE_SERVER, GET_RUN, LIST_RUNS, RUN_SUITE, SEARCH_TRACES
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
_NO_RESOURCE = -32002
"""The code of an unknown resource before 2026-07-28."""
_LISTS_LAST_MS = 300_000
_LISTS: tuple[CacheableMethod, ...] = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")

_LISTED_BY = {
    noun.called: noun.tool.name
    for noun in reversed(nouns.NOUNS)  # if two nouns have the same name, the first counts
    if noun.tool is not None and any("list" in operation.actions for operation in noun.operations)
}
"""The list tool by missing object."""

ASSERTIONS = ", ".join(KINDS)


def write_refusal(error: Exception, tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
    """Return the answer to a failed call."""
    refusal = _make_refusal(error, tool)
    details = {_rename_path(path, tool): list(texts) for path, texts in list(refusal.fields.items())[:_MOST_DETAILS]}
    document: dict[str, Json] = {"code": refusal.code, "message": refusal.message}
    if details:
        document["path"] = next(iter(details))
    elif refusal.problems and refusal.problems[0].get("path"):
        document["path"] = refusal.problems[0]["path"]
    near = _find_nearest(refusal)
    if near:
        document["nearest"] = near
    document |= {"details": details, "nextStep": _suggest_next_step(refusal, tool, arguments)}
    if refusal.retry_after_s is not None:
        document["retryAfterS"] = refusal.retry_after_s
    if refusal.problems:
        document["problems"] = [dict(problem) for problem in refusal.problems]
    return {"error": document}


def _rename_path(path: str, tool: str) -> str:
    # Evals are stored as criteria, whose text is called `assertion`.
    return f"assert{path.removeprefix('assertion')}" if tool == "evals" and path.startswith("assertion") else camel_path(path)


def _make_refusal(error: Exception, tool: str) -> Refusal:
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


def _find_nearest(refusal: Refusal) -> list[str]:
    for problem in refusal.problems:
        nearest = problem.get("nearest")
        if isinstance(nearest, list) and nearest:
            return [str(name) for name in nearest]
    for texts in (*refusal.fields.values(), [refusal.message]):
        for text in texts:
            match = _NEAREST.search(text)
            if match is not None:
                return [name.strip() for name in match[1].split(",")]
    return []


def _suggest_next_step(refusal: Refusal, tool: str, arguments: dict[str, Json]) -> str:
    if refusal.hint is not None:
        return refusal.hint
    match refusal.code:
        case "VALIDATION_ERROR" if tool == "criteria" and any(path.startswith("assertion.") for path in refusal.fields):
            return (
                f"correct `assertion` and call {tool} again; `assert` is one of {ASSERTIONS}, "
                "and the resource proctor://docs/reference/verial.md shows their fields"
            )
        case "VALIDATION_ERROR" | "BAD_REQUEST":
            location = "`details`" if refusal.fields else "`problems`" if refusal.problems else "the message"
            return f"correct what {location} names and call {tool} again"
        case "NOT_FOUND" if "action" in arguments:
            return f"find the right id with {_LISTED_BY.get(refusal.missing or '', tool)} {{action: list}}"
        case "NOT_FOUND":
            return "list what there is; take an id from there"
        case "CONFLICT":
            return "its state does not allow this now; look at it" + (f" with {tool} {{action: get}}" if "action" in arguments else "")
        case "FORBIDDEN" | "UNAUTHORIZED":
            return "use an organization key (`proctor keys create --kind organization`); this one does not allow it"
        case "RATE_LIMITED" | "UNAVAILABLE":
            return "wait, then call again with the same arguments"
        case _:
            return "try something else, or contact the administrator"


OURS = (VALIDATE, CHECK, RUN_SUITE, EXAMINE_SERVER, LIST_RUNS, GET_RUN, COMPARE_RUNS, SEARCH_TRACES, DESCRIBE)
OF_THE_MACHINE = ("path", "evidencePath")
"""Parameters that name files: only for callers on the same machine."""
OF_THE_SERVICE = ("caseIds", "projectId", "authorizeWith")
"""Parameters that name objects of the service."""


def all_tools(*, local: bool) -> tuple[Tool, ...]:
    """Return all tools. File parameters exist only on the caller's machine, project parameters only elsewhere."""
    dropped = OF_THE_SERVICE if local else OF_THE_MACHINE
    tools = NOUNS
    if not local:
        # Only a service runs schedules and has proposals, and only it needs what this loads.
        from proctor.mcp_server.declared_tools import DECLARED

        tools = (*NOUNS, *DECLARED)
    return (*tools, *(tool if tool is SEARCH_TRACES else _drop_parameters(tool, dropped) for tool in OURS))


def _drop_parameters(tool: Tool, names: tuple[str, ...]) -> Tool:
    action = tool.single
    assert action is not None
    takes = tuple(name for name in action.takes if name.rstrip("!") not in names)
    fewer = Action(call=action.call, does=action.does, takes=takes, clears=action.clears, reads=action.reads)
    return msgspec.structs.replace(tool, single=fewer)


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
        self._tools = {_normalise_name(tool.name): tool for tool in all_tools(local=folder is not None)}
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
            # The lists do not change while the process runs.
            cache_hints={method: CacheHint(ttl_ms=_LISTS_LAST_MS) for method in _LISTS},
        )
        self.protocol.add_request_handler("server/discover", types.RequestParams, self._discover)

    def _make_desk(self, context: Context) -> Desk:
        return Desk(hub=self._hub, caller=self._who_asks(context), runs=self._runs, folder=self._folder, trust=self._trust)

    async def _discover(self, context: Context, params: types.RequestParams | None) -> types.DiscoverResult:
        return types.DiscoverResult(
            supported_versions=[*MODERN_PROTOCOL_VERSIONS, *HANDSHAKE_PROTOCOL_VERSIONS],
            capabilities=self.protocol.get_capabilities(protocol_version=context.protocol_version),
            instructions=INSTRUCTIONS,
        )

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        _refuse_cursor(params)
        return types.ListToolsResult(tools=[_describe_tool(tool) for tool in self._tools.values()])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = self._tools.get(_normalise_name(params.name))
        if tool is None:
            close = nearest(params.name, [known.name for known in self._tools.values()])
            hint = f"; nearest: {', '.join(close)}" if close else "; tools/list shows what there is"
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {params.name[:100]!r}{hint}")
        arguments: dict[str, Json] = dict(params.arguments or {})
        try:
            # A copy: a refusal shows the original arguments.
            result = await tool.call(self._make_desk(context), dict(arguments))
        except Exception as error:
            # Including bugs: an exception would be a protocol error, which the model does not see.
            return _make_result(write_refusal(error, tool.name, arguments), is_error=True)
        if tool.actions and context.request is not None:
            result = complete_addresses(result, context.request.state.root)
        # Nouns use the field names of the service; the other tools have their own.
        return _make_result(camel(result) if tool.actions else result)

    async def _list_resources(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        _refuse_cursor(params)
        return types.ListResourcesResult(
            resources=[
                types.Resource(name=page.uri.partition("://")[2], title=page.title, uri=page.uri, **_add_about(page))
                for page in fixed_pages()
            ]
        )

    async def _list_templates(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        _refuse_cursor(params)
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(name=page.title, title=page.title, uri_template=page.uri, **_add_about(page)) for page in TEMPLATES
            ]
        )

    async def _read_resource(self, context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            kind, text = await read_page(self._make_desk(context), uri)
        except Exception as error:
            fault = _make_protocol_error(error, "resources", {"uri": uri})
            if fault.code == types.INVALID_PARAMS and context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
                raise MCPError(code=_NO_RESOURCE, message=fault.message, data=fault.data) from None
            raise fault from None
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])

    async def _list_prompts(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        _refuse_cursor(params)
        return types.ListPromptsResult(prompts=[WRITE_SUITE])

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        try:
            text = fill_prompt(params.name, params.arguments or {})
        except ProctorError as error:
            raise _make_protocol_error(error, "prompts", {"name": params.name}) from None
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=WRITE_SUITE.description, messages=[message])


def _refuse_cursor(params: types.PaginatedRequestParams | None) -> None:
    """Refuse a position in a list: every list has one page."""
    if params is not None and params.cursor is not None:
        raise MCPError(code=types.INVALID_PARAMS, message="unknown cursor: the list has one page")


def _normalise_name(name: str) -> str:
    """Return a tool name without its spelling: `criterion-runs`, `criterionRuns` and `criterion_runs` are equal."""
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


def _add_about(page: Page) -> dict[str, Any]:
    return {"description": page.about or None, "mime_type": page.kind}


def _make_result(value: Json, *, is_error: bool = False) -> types.CallToolResult:
    # Also as text, for clients without structured content.
    text = msgspec.json.encode(value, enc_hook=str).decode("utf-8", errors="replace")
    plain = msgspec.to_builtins(value, enc_hook=str)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=plain, is_error=is_error)


def _make_protocol_error(error: Exception, what: str, data: dict[str, Json]) -> MCPError:
    refusal = write_refusal(error, what, {})["error"]
    code = types.INTERNAL_ERROR if refusal["code"] in ("INTERNAL_ERROR", "UNAVAILABLE") else types.INVALID_PARAMS
    return MCPError(code=code, message=refusal["message"], data={**data, **refusal})


@contextlib.asynccontextmanager
async def over_http(hub: Hub, runs: Runs, *, largest: int) -> AsyncGenerator[StreamableHTTPSessionManager]:
    """Yield the server for streamable HTTP, an ASGI application that works inside the block.

    The surrounding application has already authenticated and limited the request: the caller is in `request.state.caller`.
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
        async with stdio_server() as (reader, writer):
            # Standard output carries the protocol: redirect what a function under test prints.
            with contextlib.redirect_stdout(sys.stderr):
                await server.protocol.run(reader, writer, server.protocol.create_initialization_options())
    finally:
        await runs.close()


_LONGEST = 20_000


WRITE_SUITE = types.Prompt(
    name="write_suite",
    title="Write a suite",
    description="Write a suite for an agent, validate it, try it on evidence, and report.",
    arguments=[
        types.PromptArgument(name="goal", description="what the agent must and must not do, in your own words", required=True),
        types.PromptArgument(
            name="tools", description="the tools the agent has, with their arguments, where you know them", required=False
        ),
        types.PromptArgument(name="dialect", description=f"the format to write: {', '.join(DIALECTS)} (default native)", required=False),
        types.PromptArgument(name="file", description="where to put the suite (default suite.yaml)", required=False),
    ],
)

_EXAMPLE = """\
proctor: 1
name: booking
cases:
  - id: books-the-named-doctor
    input: Book an appointment with Dr. Rivera on Monday
    expect:
      - tool_called: {name: create_appointment, arguments: {doctor: Dr. Rivera}}
      - response_contains: Rivera
      - no_tool_errors: {}
"""


def fill_prompt(name: str, given: Mapping[str, str]) -> str:
    """Return the text of a prompt with the arguments filled in. Raises `Refusal`."""
    if name != WRITE_SUITE.name:
        raise Refusal("NOT_FOUND", f"there is no prompt {name!r}; there are {WRITE_SUITE.name}")
    arguments = WRITE_SUITE.arguments or []
    wrong = {word: ["unknown argument"] for word in given if word not in {argument.name for argument in arguments}}
    wrong |= {argument.name: ["required"] for argument in arguments if argument.required and not given.get(argument.name, "").strip()}
    dialect = given.get("dialect") or "native"
    if dialect not in DIALECTS:
        wrong["dialect"] = [f"expected one of {', '.join(DIALECTS)}"]
    if wrong:
        raise Refusal(
            "VALIDATION_ERROR", f"the prompt cannot be filled in: {next(iter(wrong))}: {next(iter(wrong.values()))[0]}", fields=wrong
        )
    checks = "\n".join(f"- `{entry.name}`: {entry.summary}" for entry in describe("checks"))
    tools = f"\n## The agent's tools\n\n{given['tools'][:_LONGEST]}\n" if given.get("tools", "").strip() else ""
    example = (
        f"\n```yaml\n{_EXAMPLE}```\n"
        if dialect == "native"
        else f"\nIts reference is the resource proctor://docs/reference/{dialect}.md.\n"
    )
    return f"""\
Write a proctor suite ({dialect} format) into {given.get("file") or "suite.yaml"} for this agent.

## What it must and must not do

{given["goal"][:_LONGEST]}
{tools}
## How to go about it

1. One case per situation: the user's message, and what must then be true. Include at least one thing that must not happen.
2. Assert what can be observed: which tools were called, with which arguments, in which order; what the answer contains; how long it took.
   Prefer exact checks to judged prose; use a judged check only if no exact one fits.
3. Look up fields and examples with the tool `describe` (kind `check`, and the name) before you use a check.
4. After every change call `validate_suite`, and mend every problem at the line and column it names.
5. Try it: call `check_evidence` with evidence that should pass and with evidence that should fail. A suite that nothing fails is of no use.
6. With a target configured, `run_suite` drives the real agent; `get_run` and `compare_runs` show what came of it.

## The format
{example}
## The checks there are

{checks}
"""
