"""Tools over runs: `run_suite`, `examine_server`, `list_runs`, `get_run`, `compare_runs`; and `search_traces` over production traces."""

from __future__ import annotations

from typing import cast

from proctor.mcp_server.arguments import RunRequest, camel
from proctor.mcp_server.suites import DETAIL, DIALECT, DOCUMENT, SELECT
from proctor.mcp_server.tool import (
    PAGING,
    RESULT,
    Action,
    Desk,
    Tool,
    a_list,
    amount,
    describe_fields,
    page_of,
    shape,
    shorten_result,
    text,
)
from proctor.model.evidence import Json
from proctor.service.access.permissions import require_reader
from proctor.service.runs.examinations import NewExamination
from proctor.service.runs.run import RunSearch
from proctor.service.schemas import Schema
from proctor.service.traces.search import TraceSearch, get_trace, list_traces

LONGEST_WAIT_S = 50.0
"""Callers give up after a minute."""
_WAIT_S = 20.0

_RUN = shape({"id": {"type": "string"}, "status": {"type": "string"}}, counts={"type": ["object", "null"]}, error={})
_WAIT = {"waitS": amount(f"seconds to wait for its end, at most {LONGEST_WAIT_S:g}", least=0, most=LONGEST_WAIT_S)}


async def _run(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    wait_s = arguments.pop("wait_s", _WAIT_S)
    detail = arguments.pop("detail", None)
    lists = {name: tuple(cast(list[str], arguments.pop(name, None) or ())) for name in ("case_ids", "tags")}
    request = RunRequest(**lists, **arguments)
    return _show_run(await desk.runs.start(desk.caller, request, wait_s), detail)


async def _list(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    tag = arguments.get("tag")
    search = RunSearch(project_id=arguments.get("project_id"), name=arguments.get("name"), tag=tag.removeprefix("@") if tag else None)
    page = await desk.runs.list(desk.caller, search, limit=arguments.get("limit"), cursor=arguments.get("cursor"))
    return cast(dict[str, Json], camel(page))


async def _get(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    described = await desk.runs.get(desk.caller, arguments["id"], wait_s=arguments.get("wait_s", 0.0))
    return _show_run(described, arguments.get("detail"))


def _show_run(run: dict[str, Json], detail: str | None) -> dict[str, Json]:
    result: Json = run.pop("result", None)
    described = cast(dict[str, Json], camel(run))
    if result is not None:
        # A result has the same field names everywhere.
        described["result"] = shorten_result(cast(dict[str, Json], result), detail)
    return described


async def _compare(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    return await desk.runs.compare(desk.caller, arguments.get("base"), arguments.get("candidate"))


_TARGET: Schema = {
    "type": ["string", "object"],
    "description": "the agent: the name of a target in the workspace, the suite or the project, the address of one that takes messages "
    "over HTTP, or its settings such as {type: http, url, template, response_path}; left out: the default target, or an MCPLab suite's own "
    "agents",
}
RUN_SUITE = Tool(
    name="run_suite",
    title="Run a suite",
    about="Drive the agent through a suite, record what it does, decide and keep everything. Calls the agent (and a judge, where the suite "
    "needs one), which may cost money. Comes back when the run has ended or after `waitS`; a run that goes on is followed with get_run.",
    properties={
        **DOCUMENT,
        "path": text("or where the suite lies"),
        "caseIds": a_list("or ids of cases that the project has", {"type": "string"}),
        "projectId": text("the project whose targets, secrets and cases are meant"),
        **DIALECT,
        "target": _TARGET,
        "repeat": amount("how often to drive every case (default 1)", least=1, most=1000, whole=True),
        "concurrency": amount("how many cases at once (default 4)", least=1, most=64, whole=True),
        "timeoutS": amount("seconds for one attempt (default 120)", least=0.1, most=3600),
        **SELECT,
        "note": text("a remark to keep with the run"),
        "name": text("what to call the run"),
        "tags": a_list("words to find the run by, as @tag", {"type": "string"}),
        **_WAIT,
        **DETAIL,
    },
    result={**_RUN, "properties": {**_RUN["properties"], "result": RESULT}},
    single=Action(call=_run, does=""),
    open_world=True,
)


async def _examine(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    wait_s = arguments.pop("wait_s", _WAIT_S)
    detail = arguments.pop("detail", None)
    examined = await desk.runs.examine(desk.caller, arguments, wait_s)
    findings: Json = examined.pop("findings", None)
    return {**_show_run(examined, detail), "findings": None if findings is None else camel(findings)}


_EXAMINED = describe_fields(NewExamination)
EXAMINE_SERVER = Tool(
    name="examine_server",
    title="Examine an MCP server",
    about="Examine an MCP server as the doctor does: protocol, errors, HTTP, authorization, and what a model reads of its tools. Calls no "
    "tool unless `calls` declares it. When it has ended, `findings` has failures, obstacles and advice with their clauses of the "
    "specification. The run is stored, and get_run and compare_runs know it.",
    properties={
        **_EXAMINED,
        "server": {
            "type": ["string", "object"],
            "description": "the address of the server, the id of a declared one, or settings such as {url, headers}",
        },
        **_WAIT,
        **DETAIL,
    },
    result={**_RUN, "properties": {**_RUN["properties"], "result": RESULT, "findings": {"type": ["object", "null"]}}},
    single=Action(call=_examine, does="", takes=(*(f"{name}!" if name == "server" else name for name in _EXAMINED), "waitS", "detail")),
    open_world=True,
)
LIST_RUNS = Tool(
    name="list_runs",
    title="List runs",
    about="Stored runs, newest first: id, status, suite, target, counts of outcomes, name, tags and note.",
    properties={
        "projectId": text("only those of a project"),
        "name": text("only those of this name"),
        "tag": text("only those with this tag"),
        **PAGING,
    },
    result=page_of(_RUN),
    single=Action(call=_list, does="", reads=True),
)
GET_RUN = Tool(
    name="get_run",
    title="One run",
    about="One run: its status and its result so far, with every assertion that did not pass. `waitS` waits for its end.",
    properties={
        "id": text("the run: its id, its name, @tag, latest or previous; on your own machine also the beginning of an id, or baseline"),
        **_WAIT,
        **DETAIL,
    },
    result={**_RUN, "properties": {**_RUN["properties"], "result": RESULT}},
    single=Action(call=_get, does="", takes=("id!", "waitS", "detail"), reads=True),
)
COMPARE_RUNS = Tool(
    name="compare_runs",
    title="Compare two runs",
    about="Two runs: regressed, improved, unchanged or too little data; cases that newly fail or pass; latency, tokens, cost. `base` and "
    "`candidate` of the answer say which runs they are, and `chosen` why these.",
    properties={
        "base": text("the run to compare with, named as in get_run; left out: on your own machine the baseline, else the run before"),
        "candidate": text("the run to judge; left out: the latest"),
    },
    result=shape(
        {"comparison": {"type": "object"}},
        base={},
        candidate={},
        chosen={"type": "array", "items": {"type": "string"}},
        latency={},
        tokens={},
        cost={},
        baseIncomplete={},
        candidateIncomplete={},
    ),
    single=Action(call=_compare, does="", reads=True),
)


async def _search(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    require_reader(desk.caller)
    id = arguments.pop("id", None)
    if id is not None:
        trace = await get_trace(desk.hub, desk.caller, id)
        # `evidence` is passed on unchanged.
        shown = {name: value for name, value in trace.items() if name != "received"} | {"evidence": trace["received"]}
        return cast(dict[str, Json], camel(shown))
    page = {name: arguments.pop(name, None) for name in ("limit", "cursor")}
    return cast(dict[str, Json], camel(await list_traces(desk.hub, desk.caller, TraceSearch(**arguments), **page)))


SEARCH_TRACES = Tool(
    name="search_traces",
    title="Search traces",
    about="Traces that production sent, newest first, with the outcome of the cases they were evaluated against. With `id` one trace in "
    "full: what was received (`evidence`) and its results.",
    properties={
        "id": text("one trace; then nothing else is taken into account"),
        **describe_fields(TraceSearch),
        "externalId": text("the x-request-id or the OTLP trace id"),
        **PAGING,
    },
    result={
        "anyOf": [
            page_of(shape({"id": {"type": "string"}, "status": {"type": "string"}})),
            shape({"id": {"type": "string"}, "evidence": {}}),
        ]
    },
    single=Action(call=_search, does="", reads=True),
)
