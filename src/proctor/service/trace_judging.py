"""What a judge says about traces: which judge that is, and what is left of a trace for it to decide."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from proctor.actions.judged_check import judged
from proctor.actions.judges import open_judge
from proctor.actions.settings import workspace_file
from proctor.errors import InputError
from proctor.formats.references import References
from proctor.runner.ports import Judge
from proctor.service.assembling import evidence_of_pieces
from proctor.service.deciding import CaseText, Finding, PreparedDocument, Task
from proctor.service.hub import Hub

_LOG = logging.getLogger("proctor.serve")


def judge_of_workspace(hub: Hub, environment: Mapping[str, str]) -> Judge | None:
    """The judge that the workspace of the service names, if it can be used."""
    home = hub.settings.home
    try:
        opened = open_judge(None, workspace_file(home), References(dict(environment)), environment, home=home)
    except InputError as error:
        _LOG.warning("the judge cannot be used; what needs one will be errors", extra={"error": str(error)})
        return None
    return None if opened is None else opened.judge


async def judgements(judge: Judge, task: Task, wanted: Sequence[tuple[int, CaseText]]) -> list[Finding]:
    """What a judge decides of one trace: of some cases, by their positions, everything that needs one."""
    # Read again rather than kept: what waits for a judge may wait for long.
    evidence = await asyncio.to_thread(evidence_of_pieces, task.pieces, task.response_path)
    found: list[Finding] = []
    for position, text in wanted:
        document = await asyncio.to_thread(PreparedDocument, text)
        for prepared in () if document.suite is None else document.suite.prepared.get(evidence.case, ()):
            if prepared.judged:
                result = await judged(prepared, evidence, judge, clock=task.created_at)
                found.append(document.finding(position, result))
    return found
