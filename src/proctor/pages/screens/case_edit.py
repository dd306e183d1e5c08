"""The case editor: validates while typing, tries a draft on stored traces, saves versions.

The page always returns the text, with problems, trial results or a newer version.
"""

from __future__ import annotations

import functools
from textwrap import shorten
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proctor.checks.registry import default_registry
from proctor.errors import StoreError
from proctor.formats.suites import DIALECTS
from proctor.model.typed import decode_json
from proctor.pages.desk import Desk, find_in_project, find_project, open_desk
from proctor.pages.forms import read_form
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.cases import find_case, find_case_address, list_project_agents
from proctor.pages.words import find_project_address, read_typed_number
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs import proposals
from proctor.service.runs.case_draft import draft_case
from proctor.service.suites.documents import LONGEST_DOCUMENT
from proctor.service.traces import cases
from proctor.service.traces.case_trial import MOST_TRACES, TrialRequest, try_document, validate_document

LARGEST_FORM = 4 * LONGEST_DOCUMENT
"""Bytes; a character may take several."""
_TRIED = 10
_MOST_ABOUT = 100
"""Characters of the description of a check."""
EXAMPLE = """\
proctor: 1
cases:
  - id: greets
    input: hello
    expect:
      - response_contains: hello
"""


async def show_new_case(request: Request, source: Source) -> Response:
    """Show the editor with an example, or with a draft from a trace (`trace`) or an attempt of a run (`attempt`)."""
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    params = request.query_params
    form = {"document": EXAMPLE, "name": "", "agent": params.get("agent") or "", "dialect": "", "sample": "1", "active": "yes"}
    if params.get("trace") or params.get("attempt"):
        draft = await draft_case(desk.hub, desk.caller, trace_id=params.get("trace") or None, attempt_id=params.get("attempt") or None)
        if draft["project_id"] != project["id"]:
            raise not_found("trace or attempt", params.get("trace") or params.get("attempt") or "")
        form |= {
            "document": draft["document"],
            "agent": draft["agent_id"] or "",
            "trace": params.get("trace") or "",
            "when_input": (draft["when"] or {}).get("input", ""),
        }
    return await _show_editor(request, desk, project, None, form)


async def send_new_case(request: Request, source: Source) -> Response:
    """Save, check or try a new case."""
    form = await _read_editor(request)
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    return await _answer(request, source, desk, project, None, form)


async def show_edit_case(request: Request, source: Source) -> Response:
    """Show the editor for a case."""
    desk, project, case = await find_case(request, source, to_write=True)
    return await _show_editor(request, desk, project, case, write_form(case))


async def send_edit_case(request: Request, source: Source) -> Response:
    """Save, check or try a new version of a case."""
    form = await _read_editor(request)
    desk, project, case = await find_case(request, source, to_write=True)
    return await _answer(request, source, desk, project, case, form)


async def show_edit_proposal(request: Request, source: Source) -> Response:
    """Show the editor for a proposed case."""
    desk = open_desk(request, source, to_write=True)
    project, proposal = await find_in_project(request, source, "proposal", proposals.get_proposal)
    form = write_form({**proposal, "sample": 1.0, "active": True})
    return await _show_editor(request, desk, project, None, form, proposal=proposal)


async def send_edit_proposal(request: Request, source: Source) -> Response:
    """Save, check or try a proposed case."""
    form = await _read_editor(request)
    desk = open_desk(request, source, to_write=True)
    project, proposal = await find_in_project(request, source, "proposal", proposals.get_proposal)
    return await _answer(request, source, desk, project, None, form, proposal)


async def check_document(request: Request, source: Source) -> Response:
    """Return the problems of a document as JSON, for the editor."""
    form = await read_form(request, largest=LARGEST_FORM)
    desk = open_desk(request, source, to_write=True)
    await find_project(request, source)
    return JSONResponse(await validate_text(desk, form))


async def validate_text(desk: Desk, form: Record) -> Record:
    """Return the result of reading the document; a document that is rejected unread is a problem without a position."""
    try:
        return await validate_document(desk.caller, form.get("document", ""), dialect=form.get("dialect") or None)
    except Refusal as refusal:
        if refusal.code != "VALIDATION_ERROR":
            raise
        messages = [text for texts in refusal.fields.values() for text in texts] or [refusal.message]
        problems = [
            {"message": f"{refusal.message}: {text}", "line": None, "column": None, "nearest": [], "level": "error"} for text in messages
        ]
        return {"valid": False, "problems": problems, "cases": [], "case_count": 0, "dialect": None, "name": None}


async def _read_editor(request: Request) -> Record:
    """Return the form of the editor, even without a valid proof: nothing is saved then, but the text is returned."""
    form: Record = dict(await read_form(request, largest=LARGEST_FORM, proven=False))
    form["proven"] = request.state.form_proven
    # Browsers send line ends as CRLF.
    form["document"] = form.get("document", "").replace("\r\n", "\n")
    return form


async def _answer(
    request: Request, source: Source, desk: Desk, project: Record, case: Record | None, form: Record, proposal: Record | None = None
) -> Response:
    show = functools.partial(_show_editor, request, desk, project, case, form, proposal=proposal)
    if not form["proven"]:
        return await show(lost="proof", status=403)
    action = form.get("do", "save")
    try:
        if action == "try":
            return await show(trial=await _try(desk, project, form))
        if action == "check":
            return await show()
        address = await _save(desk, project, case, form, proposal)
    except Refusal as refusal:
        status = refusal.status
        return await show(refusal=refusal, status=status)
    except StoreError as error:
        refusal = Refusal("UNAVAILABLE", str(error))
        return await show(refusal=refusal, status=503)
    return redirect(address)


async def _save(desk: Desk, project: Record, case: Record | None, form: Record, proposal: Record | None) -> str:
    """Save a new case, a version of one, or a proposal, and return its address."""
    values: dict[str, Any] = {
        "document": form["document"],
        "dialect": form.get("dialect") or None,
        "agent_id": form.get("agent") or None,
        "when": read_when(form),
    }
    more: dict[str, Any] = {}
    if proposal is None:
        more = {"sample": read_sample(form.get("sample", "1")), "active": form.get("active") == "yes"}
    name = form.get("name", "").strip()
    if case is None and proposal is None:
        new = cases.NewCase(project_id=project["id"], name=name or None, **values, **more)
        return find_case_address(project["id"], (await cases.create_case(desk.hub, desk.caller, new))["id"])
    version = form.get("expected_version", "")
    if not version.isdecimal() or len(version) > 15:
        raise Refusal("VALIDATION_ERROR", "the form cannot be read", fields={"expected_version": ["expected a number"]})
    changes = {**values, **more, "expected_version": int(version), **({"name": name} if name else {})}
    if proposal is not None:
        await proposals.update_proposal(desk.hub, desk.caller, proposal["id"], changes)
        return find_project_address(project["id"], "proposals", proposal["id"])
    assert case is not None
    return find_case_address(project["id"], (await cases.update_case(desk.hub, desk.caller, case["id"], changes))["id"])


async def _try(desk: Desk, project: Record, form: Record) -> Record:
    count = form.get("count", "")
    trial = TrialRequest(
        project_id=project["id"],
        document=form["document"],
        dialect=form.get("dialect") or None,
        agent_id=form.get("agent") or None,
        when=read_when(form),
        trace_id=form.get("trace") or None,
        limit=int(count) if count.isdecimal() and len(count) < 4 else _TRIED,
    )
    return await try_document(desk.hub, desk.caller, trial)


async def _show_editor(
    request: Request, desk: Desk, project: Record, case: Record | None, form: Record, *, status: int = 200, **more: Any
) -> Response:
    refusal: Refusal | None = more.get("refusal")
    # If the database is unavailable, do not read the agents as well.
    away = refusal is not None and refusal.code == "UNAVAILABLE"
    now = None
    if refusal is not None and refusal.code == "CONFLICT" and case is not None:
        now = await cases.get_case(desk.hub, desk.caller, case["id"])
    begun = more.get("proposal") or case
    values = {
        "case": case,
        "proposal": None,
        "form": form,
        "dialects": DIALECTS,
        "checks": _list_checks(),
        "agents": [] if away else await list_project_agents(desk, project["id"]),
        "found": await validate_text(desk, form),
        "now": now,
        "dirty": form.get("document", "") != (EXAMPLE if begun is None else begun["document"]),
        "trial": None,
        "lost": None,
        "refusal": None,
        "most_traces": MOST_TRACES,
        "tried": _TRIED,
        **more,
    }
    return render_page(request, "case_edit.html", values, status=status)


@functools.cache
def _list_checks() -> tuple[tuple[str, str], ...]:
    """Return the name and summary of every check, for completion."""
    checks = ((entry.name, entry.summary.split("\n")[0]) for entry in default_registry())
    return tuple((name, shorten(about, _MOST_ABOUT, placeholder=" …")) for name, about in checks)


def write_form(case: Record) -> Record:
    """Return a case as form fields."""
    when: Record = case["when"] or {}
    return {
        "document": case["document"],
        "name": case["name"],
        "agent": case["agent_id"] or "",
        "dialect": case["dialect"],
        "sample": f"{case['sample']:g}",
        "active": "yes" if case["active"] else "",
        "expected_version": str(case["version"]),
        "when_input": when.get("input") or "",
        "when_tags": ", ".join(when.get("tags") or ()),
        "when_metadata": msgspec.json.encode(when["metadata"]).decode() if when.get("metadata") else "",
    }


def read_when(form: Record) -> dict[str, Any] | None:
    """Return the trace filter of the form. Raises `Refusal`."""
    when: dict[str, Any] = {}
    if form.get("when_input"):
        when["input"] = form["when_input"]
    tags = [tag.strip() for tag in form.get("when_tags", "").split(",") if tag.strip()]
    if tags:
        when["tags"] = tags
    if form.get("when_metadata", "").strip():
        when["metadata"] = read_object(form["when_metadata"], "when_metadata")
    return when or None


def read_object(text: str, field: str) -> dict[str, Any]:
    """Return a typed JSON object. Raises `Refusal`."""
    try:
        return decode_json(text, dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        problem = f'expected a JSON object such as {{"name": "value"}}: {str(error)[:200]}'
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={field: [problem]}) from None


def read_sample(text: str) -> float:
    """Return the typed share of traces. Raises `Refusal`."""
    try:
        share = float(read_typed_number(text))
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"sample": ["expected a share from 0 to 1"]})
    return share
