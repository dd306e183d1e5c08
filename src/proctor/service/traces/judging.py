"""Asks a judge about traces: opens the judge, and decides what is left of a trace for it.

A case that needs a judge has other assertions too. They are decided where everything is decided (`decisions/pool.py`), anew for every round
of questions, so that nobody holds a process while the judge thinks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from proctor.actions.judging.judges import open_home_judge
from proctor.cassettes.ports import LIVE
from proctor.errors import InputError
from proctor.model.judgement import Opinion, Question
from proctor.runner.ports import Judge
from proctor.service.decisions.messages import TraceWork, pack_plain, unpack_plain
from proctor.service.decisions.pool import Decisions, Who
from proctor.service.decisions.trace_verdicts import CaseText, Finding, Task
from proctor.service.hub import Hub
from proctor.store.sql.compressed_json import pack

JUDGE_S = 300.0
"""How long a judge may take for what it is asked at once."""
_LOG = logging.getLogger("proctor.serve")


def open_workspace_judge(hub: Hub, environment: Mapping[str, str]) -> Judge | None:
    """Return the judge that the workspace of the service names, if it can be used."""
    try:
        opened = open_home_judge(hub.settings.home, environment)
    except InputError as error:
        _LOG.warning("the judge cannot be used; what needs one will be errors", extra={"error": str(error)})
        return None
    if opened is None:
        return None
    if opened.warning is not None:
        _LOG.warning("%s", opened.warning)
    return opened.judge


async def judge_trace(judge: Judge, task: Task, wanted: Sequence[tuple[int, CaseText]], decisions: Decisions, who: Who) -> list[Finding]:
    """Return what a judge decides of one trace: of some cases, by their positions, everything that needs one."""

    async def ask(case: str, questions: Sequence[Question]) -> Sequence[Opinion]:
        try:
            async with asyncio.timeout(JUDGE_S):
                return await judge.judge(questions, case=case, attempt=0, tape=LIVE)
        except TimeoutError:
            told = f"the judge did not answer within {JUDGE_S:g} s"
        except Exception as error:
            _LOG.exception("the judge failed", extra={"trace": task.id})
            # The type alone: what a client raises may quote its request, and by that a key.
            told = f"the judge failed: {type(error).__name__}"
        # An error, not an exception: the other cases of this trace are decided, and whoever reads the result sees why this one was not.
        return [Opinion(outcome="error", code="judge_unavailable", reason=told)] * len(questions)

    found: list[Finding] = []
    for position, text in wanted:
        opinions: dict[str, list[Sequence[Opinion]]] = {}
        while True:
            packed = {case: pack_plain(said) for case, said in opinions.items()}
            # Read again rather than kept: what waits for a judge may wait for long.
            work = TraceWork(
                pieces=task.pieces,
                response_path=task.response_path,
                declared=task.declared,
                clock=task.created_at,
                position=position,
                text=text,
                opinions=packed,
            )
            (answer,) = await decisions.answers(who, [work], {})
            if answer.error is not None:
                found.append(_make_undecided(position, *answer.error))
                break
            asked = {step.id: unpack_plain(step.questions, tuple[Question, ...]) for step in answer.steps if step.questions is not None}
            if not asked:
                found += [step.finding for step in answer.steps if step.finding is not None]
                break
            for case, questions in asked.items():
                opinions.setdefault(case, []).append(await ask(case, questions))
    return found


def _make_undecided(position: int, code: str, reason: str) -> Finding:
    """Return the finding of a document that could not be decided on a trace."""
    told = {"id": None, "outcome": "error", "code": code, "reason": reason, "assertions": []}
    return Finding(case=position, key="", outcome="error", score=None, verdict=None, code=code, body=pack(told))
