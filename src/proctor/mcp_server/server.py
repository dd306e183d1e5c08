"""What the MCP server answers: tools, pages and prompts. `stdio.py` and `http.py` receive the requests.

It is stateless. A rejected call returns a result with `isError`, so that the model sees it; an unknown tool is a protocol error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from sqlalchemy.exc import IntegrityError

from proctor.actions.help.describe import describe
from proctor.errors import EvidenceError, InputError, ProctorError, StoreError
from proctor.formats.suites import DIALECTS
from proctor.formats.verial.assertions import KINDS
from proctor.mcp_server.arguments import camel, camel_path
from proctor.mcp_server.nouns import NOUNS
from proctor.mcp_server.pages import FIXED, TEMPLATES, read_page
from proctor.mcp_server.protocol import INTERNAL_ERROR, INVALID_PARAMS, LISTS, NO_RESOURCE, Lists, Page, ProtocolError, find_doc, read_list
from proctor.mcp_server.runs import COMPARE_RUNS, EXAMINE_SERVER, GET_RUN, LIST_RUNS, RUN_SUITE, SEARCH_TRACES
from proctor.mcp_server.suites import CHECK, DESCRIBE, VALIDATE
from proctor.mcp_server.tool import Action, Desk, Tool
from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.model.typed import convert_to
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


OpenDesk = Callable[[], Awaitable[Desk]]
_MARKS = re.compile(r"[-_\s]")


class _Params(msgspec.Struct):
    name: str = ""
    uri: str = ""
    arguments: dict[str, Json] | None = None


class McpServer:
    """The answers to callers on the same machine (`local`), or elsewhere."""

    def __init__(self, *, local: bool) -> None:
        tools = all_tools(local=local)
        self._tools = {_normalise_name(tool.name): tool for tool in tools}
        self.schemas = {tool.name: tool.input_schema for tool in tools}
        self.lists: Lists = {
            "tools/list": {"tools": [_describe_tool(tool) for tool in tools]},
            "prompts/list": {"prompts": [WRITE_SUITE]},
            "resources/list": {"resources": [*map(Page.describe, FIXED)]},
            "resources/templates/list": {"resourceTemplates": [*map(Page.describe, TEMPLATES)]},
        }

    async def answer(self, method: str, params: Mapping[str, Json], open_desk: OpenDesk, *, stateless: bool) -> dict[str, Json]:
        """Return the result of a list or a call. Raises `ProtocolError`."""
        if method in LISTS:
            return read_list(self.lists, method, params)
        if method == "resources/read" and (page := find_doc(params)) is not None:
            return page
        try:
            read = convert_to(params, _Params)
            match method:
                case "tools/call":
                    return await self._call_tool(read.name, read.arguments or {}, open_desk)
                case "resources/read":
                    return await _read_resource(read.uri, open_desk, stateless=stateless)
                case _:
                    return _get_prompt(read.name, convert_to(read.arguments or {}, dict[str, str]))
        except msgspec.ValidationError as error:
            raise ProtocolError(INVALID_PARAMS, f"invalid parameters: {error}") from None

    async def _call_tool(self, name: str, arguments: dict[str, Json], open_desk: OpenDesk) -> dict[str, Json]:
        tool = self._tools.get(_normalise_name(name))
        if tool is None:
            close = nearest(name, [known.name for known in self._tools.values()])
            hint = f"; nearest: {', '.join(close)}" if close else "; tools/list shows what there is"
            raise ProtocolError(INVALID_PARAMS, f"there is no tool {name[:100]!r}{hint}")
        try:
            desk = await open_desk()
            # A copy: a refusal shows the original arguments.
            result = await tool.call(desk, dict(arguments))
        except Exception as error:
            # Including bugs: an exception would be a protocol error, which the model does not see.
            return _make_result(write_refusal(error, tool.name, arguments), is_error=True)
        if tool.actions and desk.root is not None:
            result = complete_addresses(result, desk.root)
        # Nouns use the field names of the service; the other tools have their own.
        return _make_result(camel(result) if tool.actions else result)


async def _read_resource(uri: str, open_desk: OpenDesk, *, stateless: bool) -> dict[str, Json]:
    try:
        kind, text = await read_page(await open_desk(), uri)
    except Exception as error:
        fault = _make_protocol_error(error, "resources", {"uri": uri})
        if fault.code == INVALID_PARAMS and not stateless:
            fault.code = NO_RESOURCE
        raise fault from None
    return {"contents": [{"uri": uri, "mimeType": kind, "text": text}]}


def _get_prompt(name: str, given: dict[str, str]) -> dict[str, Json]:
    try:
        text = fill_prompt(name, given)
    except ProctorError as error:
        raise _make_protocol_error(error, "prompts", {"name": name}) from None
    return {"description": WRITE_SUITE["description"], "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def _normalise_name(name: str) -> str:
    """Return a tool name without its spelling: `criterion-runs`, `criterionRuns` and `criterion_runs` are equal."""
    return _MARKS.sub("", name).lower()


def _describe_tool(tool: Tool) -> dict[str, Json]:
    read_only = tool.read_only
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": {
            "title": tool.title,
            "readOnlyHint": read_only,
            "destructiveHint": tool.destroys,
            "idempotentHint": read_only,
            "openWorldHint": tool.open_world,
        },
    }


def _make_result(value: Json, *, is_error: bool = False) -> dict[str, Json]:
    # Also as text, for clients without structured content.
    text = msgspec.json.encode(value, enc_hook=str).decode("utf-8", errors="replace")
    plain = msgspec.to_builtins(value, enc_hook=str)
    return {"content": [{"type": "text", "text": text}], "structuredContent": plain, "isError": is_error}


def _make_protocol_error(error: Exception, what: str, data: dict[str, Json]) -> ProtocolError:
    refusal = write_refusal(error, what, {})["error"]
    code = INTERNAL_ERROR if refusal["code"] in ("INTERNAL_ERROR", "UNAVAILABLE") else INVALID_PARAMS
    return ProtocolError(code, refusal["message"], {**data, **refusal})


_LONGEST = 20_000


WRITE_SUITE: dict[str, Json] = {
    "name": "write_suite",
    "title": "Write a suite",
    "description": "Write a suite for an agent, validate it, try it on evidence, and report.",
    "arguments": [
        {"name": "goal", "description": "what the agent must and must not do, in your own words", "required": True},
        {"name": "tools", "description": "the tools the agent has, with their arguments, where you know them", "required": False},
        {"name": "dialect", "description": f"the format to write: {', '.join(DIALECTS)} (default native)", "required": False},
        {"name": "file", "description": "where to put the suite (default suite.yaml)", "required": False},
    ],
}

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
    if name != WRITE_SUITE["name"]:
        raise Refusal("NOT_FOUND", f"there is no prompt {name!r}; there are {WRITE_SUITE['name']}")
    required = {argument["name"]: argument["required"] for argument in WRITE_SUITE["arguments"]}
    wrong = {word: ["unknown argument"] for word in given if word not in required}
    wrong |= {word: ["required"] for word, needed in required.items() if needed and not given.get(word, "").strip()}
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
