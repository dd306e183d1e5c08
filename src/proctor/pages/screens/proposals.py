"""Proposed cases of a project: the queue, one proposal with its difference, and the decision about it."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.json_values import read_digits
from proctor.pages.desk import find_in_project, find_project, name_authors, open_desk
from proctor.pages.form_page import Question, ask_first, belongs_in_form
from proctor.pages.forms import read_form
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.screens.cases import compare_documents, find_case_address, list_project_agents
from proctor.pages.words import find_project_address
from proctor.service.refusals import Refusal
from proctor.service.runs import proposals
from proctor.service.traces.cases import get_case

_ROWS = 50
_STATES = ("pending", "accepted", "rejected")
_TRACES = "500"


async def show_proposals(request: Request, source: Source) -> Response:
    """Show the proposals of a project with a status, pending by default."""
    return await _show_queue(request, source)


async def generate(request: Request, source: Source) -> Response:
    """Propose cases from stored traces."""
    form = await read_form(request)
    desk = open_desk(request, source, to_write=True)
    project = await find_project(request, source)
    try:
        limit = read_digits(form.get("limit", ""), 6)
        if limit is None:
            raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"limit": ["expected a number"]})
        spec = proposals.TracesToGroup(project_id=project["id"], agent_id=form.get("agent") or None, limit=limit)
        done = await proposals.generate_proposals(desk.hub, desk.caller, spec)
    except Refusal as refusal:
        if not belongs_in_form(refusal):
            raise
        return await _show_queue(request, source, refusal=refusal, form=form, status=refusal.status)
    return await _show_queue(request, source, done=done, form=form)


async def _show_queue(request: Request, source: Source, *, status: int = 200, **more: Any) -> Response:
    desk = open_desk(request, source)
    project = await find_project(request, source)
    params = request.query_params
    state = params.get("status") if params.get("status") in _STATES else _STATES[0]
    page = await proposals.list_proposals(
        desk.hub, desk.caller, project_id=project["id"], status=state, limit=_ROWS, cursor=params.get("cursor")
    )
    authors = await name_authors(desk, page["data"], "proposed_by")
    values = {"page": page, "authors": authors, "state": state, "states": _STATES, "done": None, "refusal": None}
    values |= {"agents": await list_project_agents(desk, project["id"]), "form": {"limit": _TRACES}, "most": proposals.MOST_TRACES}
    return render_page(request, "proposals.html", {**values, **more}, status=status)


async def show_proposal(request: Request, source: Source) -> Response:
    """Show one proposal."""
    _, proposal = await _find_proposal(request, source)
    return await _show_proposal(request, source, proposal)


async def _show_proposal(
    request: Request, source: Source, proposal: Record, *, refusal: Refusal | None = None, status: int = 200
) -> Response:
    desk = open_desk(request, source)
    case, diff = None, None
    if proposal["case_id"] is not None:
        try:
            case = await get_case(desk.hub, desk.caller, proposal["case_id"])
        except Refusal as missing:
            if missing.code != "NOT_FOUND":
                raise
        if case is not None and proposal["status"] != "accepted":
            diff = await asyncio.to_thread(compare_documents, case["document"], proposal["document"])
    authors = await name_authors(desk, [proposal], "proposed_by")
    agents = await list_project_agents(desk, proposal["project_id"])
    agent = next((entry for entry in agents if entry["id"] == proposal["agent_id"]), None)
    values = {"proposal": proposal, "authors": authors, "agent": agent, "case": case, "diff": diff, "refusal": refusal}
    return render_page(request, "proposal.html", values, status=status)


async def act(request: Request, source: Source) -> Response:
    """Accept, reject or delete a proposal."""
    form = await read_form(request)
    desk = open_desk(request, source, to_write=True)
    project, proposal = await _find_proposal(request, source)
    own = find_project_address(project["id"], "proposals")
    try:
        match request.path_params["action"]:
            case "accept":
                # The version that the page showed: another person may have edited it since.
                seen = proposals.Acceptance(expected_version=read_digits(form.get("version", ""), 15) or 0)
                accepted = await proposals.accept_proposal(desk.hub, desk.caller, proposal["id"], seen)
                return redirect(find_case_address(project["id"], accepted["case_id"] or ""))
            case "reject":
                reason = proposals.Rejection(reason=form.get("reason", "").strip())
                await proposals.reject_proposal(desk.hub, desk.caller, proposal["id"], reason)
            case "delete":
                await proposals.delete_proposal(desk.hub, desk.caller, proposal["id"])
            case _:
                raise Refusal("NOT_FOUND", "this page does not exist")
    except Refusal as refusal:
        if not belongs_in_form(refusal) and refusal.code != "FORBIDDEN":
            raise
        _, proposal = await _find_proposal(request, source)
        return await _show_proposal(request, source, proposal, refusal=refusal, status=refusal.status)
    return redirect(own)


async def ask_delete(request: Request, source: Source) -> Response:
    """Confirm the deletion of a proposal."""
    open_desk(request, source, to_write=True)
    project, proposal = await _find_proposal(request, source)
    all_of_them = find_project_address(project["id"], "proposals")
    address = f"{all_of_them}/{proposal['id']}"
    question = Question(
        title=f"Delete the proposal {proposal['name']}?",
        about="An accepted case stays. A rejected proposal can be made again.",
        action=f"{address}/delete",
        button="Delete",
        back=address,
        crumbs=[(find_project_address(project["id"]), project["name"]), (all_of_them, "Proposals")],
    )
    return ask_first(request, question)


async def _find_proposal(request: Request, source: Source) -> tuple[Record, Record]:
    return await find_in_project(request, source, "proposal", proposals.get_proposal)
