"""The case editor: validates while typing, tries a draft on stored traces, saves versions.

The page always returns the text, with problems, trial results or a newer version.
"""

from __future__ import annotations

import functools
from textwrap import shorten
from typing import Any

import msgspec
from starlette.responses import JSONResponse, Response

from proctor.checks.registry import default_registry
from proctor.errors import StoreError
from proctor.formats.suites import DIALECTS
from proctor.model.json_values import read_digits
from proctor.model.typed import decode_json
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.screens.cases import find_case, list_project_agents
from proctor.pages.visit import Visit
from proctor.pages.words import read_typed_number
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


async def show_new_case(visit: Visit) -> Response:
    """Show the editor with an example, or with a draft from a trace (`trace`) or an attempt of a run (`attempt`)."""
    visit.require_writer()
    await visit.find_project()
    form = {"document": EXAMPLE, "name": "", "agent": visit.params.get("agent") or "", "dialect": "", "sample": "1", "active": "yes"}
    trace, attempt = visit.params.get("trace") or None, visit.params.get("attempt") or None
    if trace or attempt:
        draft = await visit.call(draft_case, trace_id=trace, attempt_id=attempt)
        if draft["project_id"] != visit.project_id:
            raise not_found("trace or attempt", trace or attempt or "")
        form |= {"document": draft["document"], "agent": draft["agent_id"] or "", "trace": trace or ""}
        form["when_input"] = (draft["when"] or {}).get("input", "")
    return await _show_editor(visit, None, form)


async def send_new_case(visit: Visit) -> Response:
    """Save, check or try a new case."""
    form = await _read_editor(visit)
    await visit.find_project()
    return await _answer(visit, None, form)


async def show_edit_case(visit: Visit) -> Response:
    """Show the editor for a case."""
    visit.require_writer()
    case = await find_case(visit)
    return await _show_editor(visit, case, write_form(case))


async def send_edit_case(visit: Visit) -> Response:
    """Save, check or try a new version of a case."""
    form = await _read_editor(visit)
    return await _answer(visit, await find_case(visit), form)


async def show_edit_proposal(visit: Visit) -> Response:
    """Show the editor for a proposed case."""
    visit.require_writer()
    proposal = await visit.find("proposal", proposals.get_proposal)
    return await _show_editor(visit, None, write_form({**proposal, "sample": 1.0, "active": True}), proposal=proposal)


async def send_edit_proposal(visit: Visit) -> Response:
    """Save, check or try a proposed case."""
    form = await _read_editor(visit)
    return await _answer(visit, None, form, await visit.find("proposal", proposals.get_proposal))


async def check_document(visit: Visit) -> Response:
    """Return the problems of a document as JSON, for the editor."""
    form = await _read_editor(visit)
    await visit.find_project()
    return JSONResponse(await _validate_text(visit, form))


async def _validate_text(visit: Visit, form: Record) -> Record:
    """Return the result of reading the document; a document that is rejected unread is a problem without a position."""
    try:
        return await validate_document(visit.caller, form["document"], dialect=form.get("dialect") or None)
    except Refusal as refusal:
        if refusal.code != "VALIDATION_ERROR":
            raise
        messages = [text for texts in refusal.fields.values() for text in texts] or [refusal.message]
        problems = [
            {"message": f"{refusal.message}: {text}", "line": None, "column": None, "nearest": [], "level": "error"} for text in messages
        ]
        return {"valid": False, "problems": problems, "cases": [], "case_count": 0, "dialect": None, "name": None}


async def _read_editor(visit: Visit) -> Record:
    """Return the form of the editor, sent by someone who may make changes."""
    form = await visit.read_form(largest=LARGEST_FORM)
    visit.require_writer()
    # Browsers send line ends as CRLF.
    return {**form, "document": form.get("document", "").replace("\r\n", "\n")}


async def _answer(visit: Visit, case: Record | None, form: Record, proposal: Record | None = None) -> Response:
    show = functools.partial(_show_editor, visit, case, form, proposal=proposal)
    try:
        match form.get("do", "save"):
            case "try":
                return await show(trial=await _try(visit, form))
            case "check":
                return await show()
            case _:
                return redirect(await _save(visit, case, form, proposal))
    except Refusal as refusal:
        return await show(refusal=refusal, status=refusal.status)
    except StoreError as error:
        refusal = Refusal("UNAVAILABLE", str(error))
        return await show(refusal=refusal, status=503)


async def _save(visit: Visit, case: Record | None, form: Record, proposal: Record | None) -> str:
    """Save a new case, a version of one, or a proposal, and return its address."""
    values: dict[str, Any] = {
        "document": form["document"],
        "dialect": form.get("dialect") or None,
        "agent_id": form.get("agent") or None,
        "when": _read_when(form),
    }
    if proposal is None:
        values |= {"sample": _read_sample(form.get("sample", "1")), "active": form.get("active") == "yes"}
    name = form.get("name", "").strip()
    if case is None and proposal is None:
        made = await visit.call(cases.create_case, cases.NewCase(project_id=visit.project_id, name=name or None, **values))
        return visit.find_address("cases", made["id"])
    version = read_digits(form.get("expected_version"), 15)
    if version is None:
        raise Refusal("VALIDATION_ERROR", "the form cannot be read", fields={"expected_version": ["expected a number"]})
    changes = {**values, "expected_version": version, **({"name": name} if name else {})}
    if proposal is not None:
        await visit.call(proposals.update_proposal, proposal["id"], changes)
        return visit.find_address("proposals", proposal["id"])
    assert case is not None
    return visit.find_address("cases", (await visit.call(cases.update_case, case["id"], changes))["id"])


async def _try(visit: Visit, form: Record) -> Record:
    trial = TrialRequest(
        project_id=visit.project_id,
        document=form["document"],
        dialect=form.get("dialect") or None,
        agent_id=form.get("agent") or None,
        when=_read_when(form),
        trace_id=form.get("trace") or None,
        limit=read_digits(form.get("count"), 3) or _TRIED,
    )
    return await visit.call(try_document, trial)


async def _show_editor(visit: Visit, case: Record | None, form: Record, *, status: int = 200, **more: Any) -> Response:
    refusal: Refusal | None = more.get("refusal")
    # If the database is unavailable, do not read the agents as well.
    away = refusal is not None and refusal.code == "UNAVAILABLE"
    now = None
    if refusal is not None and refusal.code == "CONFLICT" and case is not None:
        now = await visit.call(cases.get_case, case["id"])
    begun = more.get("proposal") or case
    values = {
        "case": case,
        "proposal": None,
        "form": form,
        "dialects": DIALECTS,
        "checks": _list_checks(),
        "agents": [] if away else await list_project_agents(visit),
        "found": await _validate_text(visit, form),
        "now": now,
        "dirty": form["document"] != (EXAMPLE if begun is None else begun["document"]),
        "trial": None,
        "refusal": None,
        "most_traces": MOST_TRACES,
        "tried": _TRIED,
        **more,
    }
    return visit.render("case_edit.html", status=status, **values)


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


def _read_when(form: Record) -> dict[str, Any] | None:
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


def _read_sample(text: str) -> float:
    """Return the typed share of traces. Raises `Refusal`."""
    try:
        share = float(read_typed_number(text))
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"sample": ["expected a share from 0 to 1"]})
    return share
