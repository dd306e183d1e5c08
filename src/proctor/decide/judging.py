"""Decides a case that needs a judge: deterministic claims first, then as many questions at once as possible.

A deliberation is a generator: it yields questions, receives opinions, and returns the result. It does no I/O, so that a live run, a check
of recorded evidence and a test use the same code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import islice

import msgspec

from proctor.checks.registry import CheckEntry, Decide
from proctor.model.case import Assertion, Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import NO_JUDGE_CODE, Opinion, PendingVerdict, Question
from proctor.model.result import CaseResult
from proctor.model.verdict import Verdict

Deliberation = Generator[tuple[Question, ...], Sequence[Opinion], CaseResult]
Ask = Callable[[tuple[Question, ...]], Awaitable[Sequence[Opinion]]]


def prepare_check(entry: CheckEntry, assertion: Assertion, case: Case) -> Decide:
    """Compile an assertion. Questions to a judge show the input of the case if the evidence did not record one."""
    decide = entry.prepare(assertion.spec)
    return (lambda evidence: decide(add_input(evidence, assertion, case))) if entry.judged else decide


def add_input(evidence: Evidence, assertion: Assertion, case: Case) -> Evidence:
    """Return the evidence, with the input of the case if it did not record one."""
    if evidence.input is not None or case.input is None or assertion.turn not in (None, 0):
        return evidence
    return msgspec.structs.replace(evidence, input=case.input)


async def settle(deliberation: Deliberation, ask: Ask) -> CaseResult:
    """Return the result of a deliberation; `ask` answers its questions."""
    try:
        questions = next(deliberation)
        while True:
            questions = deliberation.send(await ask(questions))
    except StopIteration as end:
        return end.value


def settle_all(
    asking: Sequence[tuple[int, PendingVerdict]], assertions: Sequence[Assertion]
) -> Generator[tuple[Question, ...], Sequence[Opinion], dict[int, Verdict]]:
    """Ask all questions of the pending verdicts at once; return the verdicts by index."""
    questions = tuple(_label_question(question, assertions[index]) for index, verdict in asking for question in verdict.questions)
    opinions = yield questions
    # Opinions are matched to questions by position, so a missing one would shift every later claim.
    if len(opinions) != len(questions):
        raise ValueError(f"the judge answered {len(opinions)} of {len(questions)} questions")
    verdicts: dict[int, Verdict] = {}
    left = iter(opinions)
    for index, verdict in asking:
        received = list(islice(left, len(verdict.questions)))
        # With several judges, the one for this case may be missing.
        missing_judge = all(opinion.code == NO_JUDGE_CODE for opinion in received)
        verdicts[index] = verdict.with_words() if missing_judge else verdict.settle_with(received)
    return verdicts


def _label_question(question: Question, assertion: Assertion) -> Question:
    if question.label or not assertion.label:
        return question
    return msgspec.structs.replace(question, label=assertion.label)
