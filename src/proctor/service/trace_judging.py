"""What a judge says about traces: which judge that is, and what is left of a trace for it to decide.

A case that needs a judge has other assertions too. They are decided in a thread, so that requests are answered meanwhile, whatever they
are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from proctor.actions.judges import open_judge
from proctor.actions.settings import workspace_file
from proctor.cassettes.ports import LIVE
from proctor.decide.judging import Deliberation
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError
from proctor.formats.references import References
from proctor.model.evidence import Evidence
from proctor.model.judgement import Opinion, Question
from proctor.model.result import CaseResult
from proctor.runner.ports import Judge
from proctor.service.assembling import evidence_of_pieces
from proctor.service.deciding import CaseText, Finding, PreparedDocument, Task
from proctor.service.hub import Hub

JUDGE_S = 300.0
"""How long a judge may take for what it is asked at once."""
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


async def judgements(judge: Judge, task: Task, wanted: Sequence[tuple[int, CaseText]], pool: Executor) -> list[Finding]:
    """What a judge decides of one trace: of some cases, by their positions, everything that needs one."""
    loop = asyncio.get_running_loop()

    async def ask(case: str, questions: Sequence[Question]) -> Sequence[Opinion]:
        try:
            async with asyncio.timeout(JUDGE_S):
                return await judge.judge(questions, case=case, attempt=0, tape=LIVE)
        except TimeoutError:
            told = f"the judge did not answer within {JUDGE_S:g} s"
        except Exception as error:
            _LOG.exception("the judge failed", extra={"trace": task.id})
            told = f"the judge failed: {type(error).__name__}"
        return [Opinion(outcome="error", code="judge_unavailable", reason=told)] * len(questions)

    async def settled(prepared: PreparedCase, evidence: Evidence) -> CaseResult:
        deliberation = prepared.deliberate(evidence, None, 0, lambda: task.created_at)
        step = await loop.run_in_executor(pool, _next, deliberation, None)
        while not isinstance(step, CaseResult):
            step = await loop.run_in_executor(pool, _next, deliberation, await ask(prepared.case.id, step))
        return step

    # Read again rather than kept: what waits for a judge may wait for long.
    evidence = await loop.run_in_executor(pool, evidence_of_pieces, task.pieces, task.response_path)
    found: list[Finding] = []
    for position, text in wanted:
        document = await loop.run_in_executor(pool, PreparedDocument, text)
        for _, prepared in () if document.suite is None else document.suite.cases_for_trace(evidence.case):
            if prepared.judged:
                found.append(document.finding(position, await settled(prepared, evidence)))
    return found


def _next(deliberation: Deliberation, opinions: Sequence[Opinion] | None) -> tuple[Question, ...] | CaseResult:
    """The next questions, or the result; a generator cannot end in another thread by itself."""
    try:
        return next(deliberation) if opinions is None else deliberation.send(opinions)
    except StopIteration as end:
        return end.value
