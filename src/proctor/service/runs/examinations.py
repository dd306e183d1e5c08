"""Examinations of MCP servers by the doctor: each is a run, with one case for each check.

A server is an address, or a command that the operator allows (`--allowed-command`). Addresses are guarded like every target; secrets are
those of the project.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict, TypeVar, Unpack

import msgspec

from proctor.actions.doctor.examination import make_suite, read_options, read_server, read_settings
from proctor.actions.doctor.server_names import list_servers
from proctor.actions.doctor.snapshots import EXAMINATION, TAG, read_examination
from proctor.actions.running.run_builder import EXAMINED
from proctor.doctor.catalogue import CHECKS, parse_profile, read_expected
from proctor.doctor.model import Area, Examination, Level
from proctor.doctor.model import Verdict as FindingVerdict
from proctor.doctor.report import describe_verdict
from proctor.errors import InputError
from proctor.formats.native.text import write_native
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, Paging, about, list_fields, operation, show_row
from proctor.service.runs.names import MOST_TAGS, read_run
from proctor.service.runs.requests import check_spec, find_startable_project, list_runs, prepare_run, queue_run, read_run_suite
from proctor.service.runs.run import LONGEST_NOTE, NewRun, Run, RunSearch, show_run
from proctor.service.suites.documents import refusal_of
from proctor.store.files.run_references import LONGEST
from proctor.store.runs.run_rows import read_snapshots
from proctor.store.sql.pages import Row

T = TypeVar("T")
MOST_FUZZ = 100
LONGEST_WAIT_S = 60.0
_AT_ONCE = 64
_VERDICTS: tuple[FindingVerdict, ...] = ("fail", "could_not_run", "advice", "pass", "not_applicable")
"""The most severe first."""


class AreaCounts(TypedDict):
    """How many checks of one area had each verdict, over all revisions."""

    area: Area
    passed: int
    failed: int
    advice: int
    could_not_run: int
    not_applicable: int


class ShownMessage(TypedDict):
    """A message that shows a finding."""

    number: int
    direction: str
    text: str
    http: str


class ShownFinding(TypedDict):
    """What was found for one check; the same finding in several revisions is one."""

    check: str
    area: Area
    level: Level
    verdict: FindingVerdict
    claim: Annotated[str, about("what is true of a correct server")]
    clause: Annotated[str, about("the address of the page of the specification")]
    reason: str
    revisions: list[str]
    expected: Annotated[bool, about("a failure that was expected")]
    evidence: list[ShownMessage]


class ProfileScore(TypedDict):
    """The score of one revision."""

    profile: str
    score: Annotated[int | None, about("of 100; null if no check applied")]
    incomplete: bool


class DefinitionChange(TypedDict):
    """A difference from the locked definitions."""

    kind: str
    item: str
    what: str
    fails: bool


class TriedAddress(TypedDict):
    """An address of authorization metadata, as it was tried."""

    url: str
    what: str
    status: str


class Findings(TypedDict):
    """The result of an examination."""

    target: Annotated[str, about("the address or the command, without secrets")]
    server: Annotated[str, about("name and version, as the server reports them")]
    verdict: Literal["passed", "failed", "incomplete"]
    summary: str
    scores: list[ProfileScore]
    seconds: float
    messages: int
    tool_calls: Annotated[int, about("calls that were declared; without them no tool is called")]
    notes: list[str]
    areas: list[AreaCounts]
    findings: Annotated[list[ShownFinding], about("without passes and what does not apply; the most severe first")]
    changes: Annotated[list[DefinitionChange], about("differences from `lock`")]
    stale: Annotated[list[str], about("expected failures that did not occur")]
    metadata: list[TriedAddress]


class ShownExamination(TypedDict):
    """An examination: its run, and what was found."""

    run: Run
    findings: Annotated[Findings | None, about("null until the server was examined")]
    definitions: Annotated[dict[str, Json] | None, about("all definitions of the server, as a lock file has them")]


class NewExamination(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server to examine, and how."""

    project_id: str
    server: Annotated[
        str | dict[str, Json],
        about(
            "the address of the server, the id of a server of a target in the project's settings, or settings such as "
            "{url, headers, auth}; secrets as ${NAME}. A command must be allowed by the operator"
        ),
    ]
    authorize_with: Annotated[str, about("the project's secret that is sent as bearer token", max_length=LONGEST)] = ""
    profiles: Annotated[
        list[str], about("revisions such as mcp-2025-11-25@1; default: the newest of each era that the server speaks", max_length=10)
    ] = []
    areas: Annotated[list[Area], about("only checks of these areas", max_length=20)] = []
    calls: Annotated[dict[str, Json] | None, about("calls that may be made, as in calls.yaml; without them no tool is called")] = None
    fuzz: Annotated[int, about("boundary values per declared call", ge=0, le=MOST_FUZZ)] = 0
    expected: Annotated[list[str], about("checks that may fail for now; one that does not fail any more fails", max_length=200)] = []
    lock: Annotated[dict[str, Json] | None, about("definitions to compare with, from a lock file or an earlier examination")] = None
    timeout_s: Annotated[float, about("seconds for one response", gt=0, le=LONGEST_WAIT_S)] = 10.0
    name: Annotated[str, about("name of the run; a shared name refers to the newest", max_length=LONGEST)] = ""
    tags: Annotated[list[str], about(f"tags, to find the run by `@tag`; it also has @{TAG}", max_length=MOST_TAGS - 1)] = []
    note: Annotated[str, about(max_length=LONGEST_NOTE)] = ""


@operation("examinations", "POST /api/examinations", status=202, doing="examining servers")
async def start_examination(hub: Hub, caller: Caller, spec: NewExamination) -> Run:
    """Queue the examination of an MCP server; requires an organization key. No tool is called unless `calls` declares it."""
    project = await find_startable_project(hub, caller, spec.project_id)
    server = dict(spec.server) if isinstance(spec.server, dict) else _find_server(spec.server.strip(), project)
    if spec.authorize_with:
        server["auth"] = {"type": "bearer", "token": f"${{{spec.authorize_with}}}"}
    options = {name: getattr(spec, name) for name in ("profiles", "areas", "calls", "fuzz", "expected", "lock", "timeout_s")}
    settings = {"type": EXAMINED, "server": server, **{name: value for name, value in options.items() if value}}
    run = await asyncio.to_thread(_make_run, spec, settings)
    try:
        check_spec(run)
        prepared = await prepare_run(hub, caller, project, run, await read_run_suite(hub, caller, project, run))
    except Refusal as refusal:
        # The target of the run is the server of this request.
        raise refusal.rename_fields(lambda path: re.sub(r"^target(\.server)?\b", "server", path)) from None
    return show_run(await queue_run(hub, caller, run, prepared))


@operation("examinations", "GET /api/examinations")
async def list_examinations(hub: Hub, caller: Caller, *, project_id: str | None = None, **paging: Unpack[Paging]) -> Page[Run]:
    """List examinations, newest first: the runs that have the tag `doctor`."""
    return await list_runs(hub, caller, RunSearch(project_id=project_id, tag=TAG), **paging)


@operation("examinations", "GET /api/examinations/{run_id}")
async def get_examination(hub: Hub, caller: Caller, id: str) -> ShownExamination:
    """Read an examination by the id, the name or a `@tag` of its run. Attempts, reports and comparisons are those of the run."""
    row = await read_run(hub, caller, id, document=False)
    examination = await _read_examination(hub, row)
    inline = (row["settings"] or {}).get("inline_target")
    if examination is None and not (isinstance(inline, dict) and inline.get("type") == EXAMINED):
        raise not_found("examination", row["id"])
    definitions: Any = None if examination is None else examination.snapshot
    return {"run": show_run(row), "findings": None if examination is None else show_findings(examination), "definitions": definitions}


async def read_findings(hub: Hub, caller: Caller, id: str) -> Findings | None:
    """Return what an examination found; None for another run, or before its end."""
    examination = await _read_examination(hub, await read_run(hub, caller, id, document=False))
    return None if examination is None else show_findings(examination)


async def _read_examination(hub: Hub, row: Row) -> Examination | None:
    async with hub.database.reading() as connection:
        stored = await read_snapshots(connection, [row["id"]], EXAMINATION)
    return await asyncio.to_thread(read_examination, stored.get(row["id"]))


def show_findings(examination: Examination) -> Findings:
    """Return the result of an examination, of the service or of a folder."""
    tone, summary = describe_verdict(examination)
    names = {"pass": "passed", "fail": "failed"}
    counts: dict[str, Any] = {}
    for finding in examination.findings:
        area = counts.setdefault(finding.area, dict.fromkeys(AreaCounts.__annotations__, 0) | {"area": finding.area})
        area[names.get(finding.verdict, finding.verdict)] += 1
    found: dict[str, Any] = {
        "verdict": "failed" if tone == "fail" else "incomplete" if tone == "error" else "passed",
        "summary": summary,
        "scores": [_show_struct(ProfileScore, part) for part in examination.examined],
        "notes": list(examination.notes),
        "areas": list(counts.values()),
        "findings": _join_findings(examination),
        "changes": [
            show_row(DefinitionChange, change, fails=bool(change.get("fails")))
            for change in examination.changes
            if isinstance(change, dict)
        ],
        "stale": list(examination.stale),
        "metadata": [_show_struct(TriedAddress, each) for each in examination.metadata],
    }
    return _show_struct(Findings, examination, **found)


def _join_findings(examination: Examination) -> list[ShownFinding]:
    checks = {check.id: check for check in CHECKS}
    joined: dict[tuple[str, str, str], ShownFinding] = {}
    for part in examination.examined:
        for finding in part.findings:
            if finding.verdict in ("pass", "not_applicable"):
                continue
            expected = finding.verdict == "fail" and examination.expects(finding, part)
            key = (finding.check, finding.verdict, f"{finding.reason}/{expected}")
            if key in joined:
                joined[key]["revisions"].append(part.revision)
                continue
            # A stored examination may have a check that a newer version dropped.
            check = checks.get(finding.check)
            joined[key] = _show_struct(
                ShownFinding,
                finding,
                claim="" if check is None else check.claim,
                clause="" if check is None else check.find_page(part.revision),
                revisions=[part.revision],
                expected=expected,
                evidence=[_show_struct(ShownMessage, each) for each in finding.evidence],
            )
    return sorted(joined.values(), key=lambda each: (_VERDICTS.index(each["verdict"]), each["expected"]))


def _show_struct(kind: type[T], value: object, **computed: object) -> T:
    return show_row(kind, {name: getattr(value, name, None) for name in list_fields(kind)}, **computed)


def _find_server(text: str, project: Row) -> dict[str, Json]:
    if "://" in text:
        return {"url": text}
    known: dict[str, dict[str, Json]] = {}
    for target in ((project["settings"] or {}).get("targets") or {}).values():
        known |= list_servers(target)
    if text not in known:
        listed = f"known: {', '.join(sorted(known))}" if known else "the settings of the project have none"
        reason = f"expected an address that begins with https:// or http://, or the id of a server; {listed}"
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"server": [reason]})
    return known[text]


def _make_run(spec: NewExamination, settings: dict[str, Json]) -> NewRun:
    server_settings = _read("server", lambda: read_settings(settings))
    _read("profiles", lambda: [parse_profile(name) for name in server_settings.profiles])
    _read("expected", lambda: read_expected("\n".join(server_settings.expected), "expected"))
    server = _read("server", lambda: read_server(server_settings.server))
    _read("lock", lambda: read_options(msgspec.structs.replace(server_settings, calls=None, fuzz=0)))
    options = _read("calls", lambda: read_options(server_settings))
    suite = _read("server", lambda: make_suite(server, options))
    return NewRun(
        project_id=spec.project_id,
        suite=write_native(suite),
        target=settings,
        concurrency=_AT_ONCE,
        note=spec.note,
        name=spec.name,
        tags=[*dict.fromkeys([*spec.tags, TAG])],
    )


def _read(field: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except InputError as error:
        raise refusal_of(error, field, what=f"`{field}`") from None
