"""Tools over suites and evidence that store nothing: `validate_suite`, `check_evidence`, `describe`.

A suite is text or JSON, or a path if the server runs on the caller's machine. Elsewhere only the judge of the service is used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from proctor.actions.checking.check import all_records
from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.checking.judged_check import JudgedStream
from proctor.actions.help import describe as describing
from proctor.actions.judging.judges import OpenedJudge, open_suite_judge
from proctor.actions.judging.trust import trust_for
from proctor.actions.mcplab.files import list_bundle_files
from proctor.actions.workspace.run_history import find_home
from proctor.actions.workspace.suites import load_suite
from proctor.decide.selection import select
from proctor.errors import InputError
from proctor.evidence.reading import read_sent
from proctor.evidence.unknowns.account import declare_complete
from proctor.formats.suites import DIALECTS
from proctor.mcp_server.tool import RESULT, Action, Desk, Tool, a_document, shape, shorten_result, text
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.result import RunResult
from proctor.model.show import escape_unseen, show
from proctor.report.data.json_text import render_json
from proctor.service.access.permissions import require_reader
from proctor.service.decisions.messages import SuiteSource
from proctor.service.decisions.pool import run_while_client_waits
from proctor.service.decisions.suite_verdicts import SuiteDecisions, decide_stream, read_evidence
from proctor.service.refusals import Refusal
from proctor.service.schemas import Schema
from proctor.service.suites.documents import read_sent_suite, shown_problems
from proctor.sources.records import DOCUMENT_SUFFIXES, LINE_SUFFIXES, Record, read_records
from proctor.sources.texts import SUITE_SUFFIXES, check_path, is_hidden
from proctor.sources.workspaces import find_suite_bundle

_READ = (*SUITE_SUFFIXES, *LINE_SUFFIXES, *DOCUMENT_SUFFIXES)


def find_local_path(folder: Path | None, path: str, *, trust: bool | None) -> Path:
    """Return the path that a caller names. Raises `Refusal` if it is outside the working folder, or the caller is not on this machine."""
    if folder is None:
        raise Refusal("FORBIDDEN", "files are not read from here", hint="send the contents instead")
    place = folder / path
    check_path(place)
    if trust_for("reading", granted=trust).granted:
        return place
    working = find_home(None, start=folder).parent.resolve()
    # The path itself first, so that nothing outside is listed.
    if not place.resolve().is_relative_to(working) or not all(file.resolve().is_relative_to(working) for file in _list_read(place)):
        raise Refusal(
            "FORBIDDEN",
            f"{escape_unseen(show(path))} leads out of the working folder {str(working)!r}, and nothing outside of it is read",
            hint="name files of the working folder, or have the server started with --trust",
        )
    return place


def _list_read(place: Path) -> Iterator[Path]:
    """Yield every file that is read for a path: the file or the files of the folder, and those of their MCPLab workspaces."""
    if place.is_dir():
        files = [file for file in place.rglob("*") if file.suffix.lower() in _READ and file.is_file() and not is_hidden(file, place)]
    else:
        results = place.parent / "results.json"
        files = [place, results] if results.is_file() else [place]
    yield from files
    for root in {place} | {find_suite_bundle(file) for file in files}:
        yield from list_bundle_files(root)


_MOST_EVIDENCE = 10_000

DIALECT = {"dialect": text("the dialect, where it is not recognised by shape", *DIALECTS)}
DOCUMENT = {"document": a_document("the suite: YAML or JSON text of any dialect, or JSON")}
SELECT = {"select": text("only cases whose id, name or tags fit, such as `refund and not slow`")}
DETAIL = {"detail": text("failures: passing cases in one line each (default); full: everything", "failures", "full")}


async def read_suite_argument(
    arguments: Mapping[str, Json], *, folder: Path | None, trust: bool | None
) -> tuple[Suite, SuiteSource | None]:
    """Return the suite of `document` or `path`, and for a document its source, so that another process can read it. Raises `Refusal`."""
    document, path = arguments.get("document"), arguments.get("path")
    if (document is None) == (path is None):
        ways = "`document` or `path`" if folder is not None else "`document`"
        raise Refusal(
            "VALIDATION_ERROR", f"name one suite, by {ways}", fields={"document": ["required"] if document is None else ["or path"]}
        )
    if path is None:
        suite, suite_text = await read_sent_suite(cast("str | dict[str, Json]", document), dialect=arguments.get("dialect"))
        source = SuiteSource(text=suite_text, dialect=suite.dialect, selection=arguments.get("select"))
    else:
        place = await asyncio.to_thread(find_local_path, folder, path, trust=trust)
        suite = await asyncio.to_thread(lambda: load_suite(place, dialect=arguments.get("dialect"), checks=()))
        source = None
    return select(suite, arguments.get("select")), source


def refuse_empty(suite: Suite) -> None:
    """Reject a selection without cases."""
    if not suite.cases:
        raise Refusal("VALIDATION_ERROR", "nothing is selected", fields={"select": ["no case fits"]})


async def _validate(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    require_reader(desk.caller)
    try:
        suite, _ = await read_suite_argument(arguments, folder=desk.folder, trust=desk.trust)
    except InputError as error:
        if not error.problems:
            raise
        return _describe_validation(None, shown_problems(error.problems))
    except Refusal as refusal:
        if not refusal.problems:
            raise
        return _describe_validation(None, refusal.problems)
    return _describe_validation(suite, shown_problems(suite.warnings))


def _describe_validation(suite: Suite | None, problems: Sequence[Mapping[str, object]]) -> dict[str, Json]:
    result: dict[str, Json] = {"valid": suite is not None, "problems": list(problems)}
    if suite is not None:
        cases = [{"id": case.id, "name": case.name, "assertions": len(case.assertions)} for case in suite.cases]
        result |= {"name": suite.name, "dialect": suite.dialect, "cases": cases}
    return result


VALIDATE = Tool(
    name="validate_suite",
    title="Validate a suite",
    about="Read a suite of any dialect (native, MCPLab, Mibo, Verial, MCPJam) without running it. Every problem with line, column, path "
    "and the nearest right word. Call it after every change of a suite.",
    properties={**DOCUMENT, "path": text("or where the suite lies"), **DIALECT},
    result=shape(
        {"valid": {"type": "boolean"}, "problems": {"type": "array", "items": {"type": "object"}}},
        name={"type": "string"},
        dialect={"type": "string"},
        cases={"type": "array", "items": {"type": "object"}},
    ),
    single=Action(call=_validate, does="", takes=("document", "path", "dialect"), reads=True),
)


async def _check(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    require_reader(desk.caller)
    suite, source = await read_suite_argument(arguments, folder=desk.folder, trust=desk.trust)
    refuse_empty(suite)
    if desk.local or source is None:
        run = await _check_here(desk, suite, arguments)
    else:
        run = await run_while_client_waits(_check_elsewhere(desk, suite, source, arguments))
    return await asyncio.to_thread(lambda: shorten_result(document_of(run), arguments.get("detail")))


async def _check_here(desk: Desk, suite: Suite, arguments: dict[str, Json]) -> RunResult:
    """Decide in this process: it belongs to the user, so no limits are needed."""
    records = await asyncio.to_thread(_read_records, desk, suite, arguments)
    stream = await asyncio.to_thread(CheckStream, suite, now=arguments.get("now"), shows="account")
    opened = _open_judge(desk, suite) if stream.judged else None
    if opened is None:
        return await asyncio.to_thread(lambda: stream.finish(list(stream.over(records))))
    try:
        return stream.finish([result async for result in JudgedStream(stream, opened.judge).over(records)])
    finally:
        await opened.judge.close()


async def _check_elsewhere(desk: Desk, suite: Suite, source: SuiteSource, arguments: dict[str, Json]) -> RunResult:
    """Read and decide in the pool of the service."""
    evidence: Json = arguments.get("evidence")
    if evidence is None:
        raise Refusal("VALIDATION_ERROR", "give evidence, by `evidence`", fields={"evidence": ["required"]})
    requester = (desk.caller.organization_id, desk.caller.actor)
    records = await read_evidence(desk.hub.decisions, requester, evidence, arguments.get("evidence_format"), suite.find_declared())
    if len(records) > _MOST_EVIDENCE:
        raise _make_too_much_evidence()
    stream = await asyncio.to_thread(CheckStream, suite, now=arguments.get("now"), shows="account")
    opened = _open_judge(desk, suite) if stream.judged else None
    decisions = SuiteDecisions(desk.hub.decisions, requester, source, suite.cases)
    try:
        results = await decide_stream(stream, decisions, records, None if opened is None else opened.judge)
    finally:
        if opened is not None:
            await opened.judge.close()
    return stream.finish(results)


def _make_too_much_evidence() -> Refusal:
    return Refusal("VALIDATION_ERROR", f"more than {_MOST_EVIDENCE} recorded runs at once", hint="use `proctor check` for large sets")


def document_of(run: RunResult) -> dict[str, Json]:
    """Return a result as `proctor.result/1`."""
    return msgspec.json.decode(render_json(run))


def _read_records(desk: Desk, suite: Suite, arguments: dict[str, Json]) -> list[Record]:
    evidence, path = arguments.get("evidence"), arguments.get("evidence_path")
    if (evidence is None) == (path is None):
        ways = "`evidence` or `evidencePath`" if desk.local else "`evidence`"
        raise Refusal("VALIDATION_ERROR", f"give evidence, by {ways}", fields={"evidence": ["required"]})
    declared = suite.find_declared()
    if path is not None:
        stream: Iterable[Record] = read_records(
            [str(find_local_path(desk.folder, path, trust=desk.trust))], format=arguments.get("evidence_format"), declared=declared
        )
    else:
        items = read_sent(evidence, format=arguments.get("evidence_format"), mapping=declared.map if declared is not None else None)
        stream = all_records(items if declared is None else [declare_complete(each, declared.complete, declared.source) for each in items])
    records: list[Record] = []
    for record in stream:
        # Counted while reading: a folder may not fit into memory.
        if len(records) == _MOST_EVIDENCE:
            raise _make_too_much_evidence()
        records.append(record)
    return records


def _open_judge(desk: Desk, suite: Suite) -> OpenedJudge | None:
    if not desk.local:
        # An untrusted suite must not choose the model or its address: it would use our keys.
        suite = msgspec.structs.replace(suite, settings={}, dialect="native", path=None)
    try:
        trust = trust_for("reading", granted=desk.trust if desk.local else False, home=desk.hub.settings.home)
        return open_suite_judge(suite, desk.hub.settings.home, os.environ, trust=trust)
    except InputError:
        if desk.local:
            raise
        # Without a working judge, judged checks are errors.
        return None


CHECK = Tool(
    name="check_evidence",
    title="Check recorded evidence",
    about="Decide a suite on recorded runs of an agent; no agent is called. Evidence is one run or a list: our own shape {case?, input?, "
    "text, tool_calls: [{name, arguments, result}], state?, ...}, message lists of the usual providers, OTLP JSON, n8n executions, Flowise "
    "predictions, Mibo bodies. Every assertion has the expected and actual value and its place.",
    properties={
        **DOCUMENT,
        "path": text("or where the suite lies"),
        **DIALECT,
        "evidence": a_document("what was recorded: JSON, or text (JSON or JSON lines)"),
        "evidencePath": text("or where it lies: a file or a folder"),
        "evidenceFormat": text("the shape, where it is not recognised"),
        "now": text("the clock of the evidence, ISO 8601"),
        **SELECT,
        **DETAIL,
    },
    result=RESULT,
    single=Action(
        call=_check,
        does="",
        takes=("document", "path", "evidence", "evidencePath", "dialect", "evidenceFormat", "now", "select", "detail"),
        reads=True,
    ),
)


async def _describe(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
    kind, name = arguments.get("kind"), arguments.get("name")
    if kind is None:
        return {"kinds": [{"name": known, "about": about} for known, (about, _) in describing.KINDS.items()]}
    described = await asyncio.to_thread(describing.describe, kind, name)
    if name is None:
        return {"kind": described[0].kind, "entries": [{"name": entry.name, "summary": entry.summary} for entry in described]}
    return {"kind": described[0].kind, "entries": msgspec.to_builtins(described)}


_ENTRY: Schema = shape({"name": {"type": "string"}}, summary={"type": "string"}, fields={"type": "array"}, example={"type": "string"})
DESCRIBE = Tool(
    name="describe",
    title="What exists",
    about="What a suite can be written with: without parameters the kinds there are; with `kind` (checks, matchers, functions, formats, "
    "evidence, targets, models, judge) all of a kind; with `name` too, its fields and an example.",
    properties={"kind": text("what to list", *describing.KINDS), "name": text("one of them")},
    result={"anyOf": [shape({"kinds": {"type": "array", "items": _ENTRY}}), shape({"entries": {"type": "array", "items": _ENTRY}})]},
    single=Action(call=_describe, does="", reads=True),
)
