"""Decides a case that needs a judge: deterministic claims first, then the questions, as many at once as possible.

A deliberation is a generator: it yields questions, is sent opinions, and returns the result. It does no I/O, so that a live run, a check of
recorded evidence and a test drive the same code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence

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
    """Compile an assertion. The questions to a judge show the input of the case if the evidence did not record one."""
    decide = entry.prepare(assertion.spec)
    if not entry.judged or case.input is None or assertion.turn not in (None, 0):
        return decide
    return lambda evidence: decide(add_input(evidence, assertion, case))


def add_input(evidence: Evidence, assertion: Assertion, case: Case) -> Evidence:
    """Return evidence with the input of the case if it did not record one."""
    if evidence.input is not None or case.input is None or assertion.turn not in (None, 0):
        return evidence
    return msgspec.structs.replace(evidence, input=case.input)


async def settle(deliberation: Deliberation, ask: Ask) -> CaseResult:
    """Return the result of a deliberation whose questions `ask` answers."""
    try:
        questions = next(deliberation)
        while True:
            questions = deliberation.send(await ask(questions))
    except StopIteration as end:
        return end.value
    finally:
        # `ask` may raise or be cancelled: release here what the generator holds.
        deliberation.close()


def settle_all(
    asking: Sequence[tuple[int, PendingVerdict]], assertions: Sequence[Assertion]
) -> Generator[tuple[Question, ...], Sequence[Opinion], dict[int, Verdict]]:
    """Ask everything the pending verdicts want to know in one go; gives the verdicts by index."""
    questions = tuple(_label_question(question, assertions[index]) for index, verdict in asking for question in verdict.questions)
    opinions = yield questions
    # Opinions belong to questions by position: one too few would give every later claim the opinion on another.
    if len(opinions) != len(questions):
        raise ValueError(f"the judge answered {len(opinions)} of {len(questions)} questions")
    verdicts: dict[int, Verdict] = {}
    start = 0
    for index, verdict in asking:
        end = start + len(verdict.questions)
        heard = opinions[start:end]
        # Of several judges the one for this case may be missing, while there are others.
        absent = all(opinion.code == NO_JUDGE_CODE for opinion in heard)
        verdicts[index] = verdict.with_words() if absent else verdict.settle_with(heard)
        start = end
    return verdicts


def _label_question(question: Question, assertion: Assertion) -> Question:
    if question.label or not assertion.label:
        return question
    return msgspec.structs.replace(question, label=assertion.label)
