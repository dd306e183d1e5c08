"""Drafts a case from a stored trace or an attempt of a run: its input, the calls and the answer as claims."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, TypedDict

from proctor.actions.checking.draft_case import write_draft
from proctor.evidence.values.text import as_text
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import reading
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import about, operation
from proctor.service.runs.names import find_attempt
from proctor.service.traces.case_history import COLUMNS, fetch_pieces, read_stored_trace
from proctor.store.runs.run_rows import read_entry
from proctor.store.sql.tables import traces

_SPECIAL = re.compile(r"[.*+?^${}()|\[\]\\/]")
_LONGEST_PATTERN = 200
"""Characters of the input in a filter."""


class CaseDraft(TypedDict):
    """A drafted case, which is not stored."""

    project_id: str
    agent_id: Annotated[str | None, about("the agent of the trace")]
    document: Annotated[str, about("a suite with one case, as YAML; each of its claims holds")]
    when: Annotated[dict[str, str] | None, about("a trace filter for the same input")]


@operation("cases", "GET /api/cases/draft", name="draft_case", doing="drafting cases")
async def draft_case(
    hub: Hub,
    caller: Caller,
    *,
    trace_id: Annotated[str | None, about("draft from this trace")] = None,
    attempt_id: Annotated[str | None, about("draft from this attempt of a run")] = None,
) -> CaseDraft:
    """Draft a case from a trace or an attempt; requires an organization key. Claims that it does not satisfy are left out."""
    if (trace_id is None) == (attempt_id is None):
        raise Refusal("VALIDATION_ERROR", "expected a trace or an attempt", fields={"trace_id": ["expected this or attempt_id"]})
    if attempt_id is not None:
        async with reading(hub, caller) as tx:
            attempt, run = await find_attempt(tx, attempt_id)
        read_evidence = (await asyncio.to_thread(read_entry, attempt["body"])).evidence
        if read_evidence is None:
            raise Refusal("BAD_REQUEST", "no case can be drafted from this attempt: it has no evidence")
        project_id, agent_id, evidence = run["project_id"], None, read_evidence
    else:
        id = trace_id or ""
        async with reading(hub, caller) as tx:
            row = await tx.find_visible(traces, "trace", id, columns=(*COLUMNS, "project_id"))
            (stored,) = await fetch_pieces(tx.connection, tx.owner, [row])
        read = await read_stored_trace(stored, None)
        if read.evidence is None:
            code, message = read.error or ("unreadable_evidence", "")
            raise Refusal("BAD_REQUEST", f"no case can be drafted from this trace: {code}: {message}")
        project_id, agent_id, evidence = row["project_id"], row["agent_id"], read.evidence
    prompt = as_text(evidence.input) or ""
    document = await asyncio.to_thread(write_draft, prompt, evidence)
    return {"project_id": project_id, "agent_id": agent_id, "document": document, "when": match_input(prompt)}


def match_input(prompt: str) -> dict[str, str] | None:
    """Return a filter for traces with this input, which is needed because a case does not compare inputs."""
    begin = prompt.split("\n", 1)[0][:_LONGEST_PATTERN]
    if not begin.strip():
        return None
    return {"input": "^" + _SPECIAL.sub(r"\\\g<0>", begin) + ("$" if begin == prompt else "")}
