"""Proposed cases of a project: the queue, one proposal with its difference, and the decision about it."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from proctor.model.json_values import read_digits
from proctor.pages.form_page import FORM_ERRORS, ask_first
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.screens.cases import compare_documents, list_project_agents
from proctor.pages.visit import Visit
from proctor.service.refusals import Refusal
from proctor.service.runs import proposals
from proctor.service.traces.cases import get_case

_ROWS = 50
_STATES = ("pending", "accepted", "rejected")
_TRACES = "500"


async def show_proposals(visit: Visit) -> Response:
    """Show the proposals of a project with a status, pending by default."""
    await visit.find_project()
    return await _show_queue(visit)


async def generate(visit: Visit) -> Response:
    """Propose cases from stored traces."""
    form = await visit.read_form()
    visit.require_writer()
    await visit.find_project()
    try:
        limit = read_digits(form.get("limit", ""), 6)
        if limit is None:
            raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"limit": ["expected a number"]})
        spec = proposals.TracesToGroup(project_id=visit.project_id, agent_id=form.get("agent") or None, limit=limit)
        done = await visit.call(proposals.generate_proposals, spec)
    except Refusal as refusal:
        if refusal.code not in FORM_ERRORS:
            raise
        return await _show_queue(visit, refusal=refusal, form=form, status=refusal.status)
    return await _show_queue(visit, done=done, form=form)


async def _show_queue(visit: Visit, *, status: int = 200, **more: Any) -> Response:
    state = visit.params.get("status") if visit.params.get("status") in _STATES else _STATES[0]
    page = await visit.call(proposals.list_proposals, project_id=visit.project_id, status=state, limit=_ROWS, cursor=visit.cursor)
    authors = await visit.name_authors(page["data"], "proposed_by")
    values = {"page": page, "authors": authors, "state": state, "states": _STATES, "done": None, "refusal": None}
    values |= {"agents": await list_project_agents(visit), "form": {"limit": _TRACES}, "most": proposals.MOST_TRACES}
    return visit.render("proposals.html", status=status, **{**values, **more})


async def show_proposal(visit: Visit, refusal: Refusal | None = None) -> Response:
    """Show one proposal, and why an action was rejected."""
    proposal = await _find_proposal(visit)
    case, diff = None, None
    if proposal["case_id"] is not None:
        try:
            case = await visit.call(get_case, proposal["case_id"])
        except Refusal as missing:
            if missing.code != "NOT_FOUND":
                raise
        if case is not None and proposal["status"] != "accepted":
            diff = await asyncio.to_thread(compare_documents, case["document"], proposal["document"])
    agents = await list_project_agents(visit)
    return visit.render(
        "proposal.html",
        status=200 if refusal is None else refusal.status,
        proposal=proposal,
        authors=await visit.name_authors([proposal], "proposed_by"),
        agent=next((entry for entry in agents if entry["id"] == proposal["agent_id"]), None),
        case=case,
        diff=diff,
        refusal=refusal,
    )


async def act(visit: Visit) -> Response:
    """Accept, reject or delete a proposal."""
    form = await visit.read_form()
    visit.require_writer()
    proposal = await _find_proposal(visit)
    try:
        match visit.path["action"]:
            case "accept":
                # The version that the page showed: another person may have edited it since.
                seen = proposals.Acceptance(expected_version=read_digits(form.get("version", ""), 15) or 0)
                accepted = await visit.call(proposals.accept_proposal, proposal["id"], seen)
                return redirect(visit.find_address("cases", accepted["case_id"] or ""))
            case "reject":
                reason = proposals.Rejection(reason=form.get("reason", "").strip())
                await visit.call(proposals.reject_proposal, proposal["id"], reason)
            case "delete":
                await visit.call(proposals.delete_proposal, proposal["id"])
            case _:
                raise Refusal("NOT_FOUND", "this page does not exist")
    except Refusal as refusal:
        if refusal.code not in (*FORM_ERRORS, "FORBIDDEN"):
            raise
        return await show_proposal(visit, refusal)
    return redirect(visit.find_address("proposals"))


async def ask_delete(visit: Visit) -> Response:
    """Confirm the deletion of a proposal."""
    visit.require_writer()
    proposal = await _find_proposal(visit)
    back = visit.find_address("proposals", proposal["id"])
    about = "An accepted case stays. A rejected proposal can be made again."
    crumbs = visit.list_crumbs("proposals", "Proposals")
    return ask_first(visit, f"Delete the proposal {proposal['name']}?", about, action=f"{back}/delete", back=back, crumbs=crumbs)


async def _find_proposal(visit: Visit) -> Record:
    return await visit.find("proposal", proposals.get_proposal)
