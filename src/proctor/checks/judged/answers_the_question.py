"""Claims that the answer answers the question.

The question is the input of the run, in a conversation the last message of the user, or `question`. If none was recorded, the claim is
`missing_evidence` and no judge is called.

The rubric asks whether the question was answered, not whether the answer is right: a wrong date still answers a question about the date.
To test correctness use `faithful_to_context`, a reference or a deterministic check. A refusal, a question back and a promise to look into
it are not answers.
"""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import (
    ask_rubric,
    find_answer,
    find_conversation,
    find_question,
    load_rubric,
    require_filled,
    require_threshold,
)
from proctor.model.evidence import Evidence
from proctor.model.judgement import Material
from proctor.model.verdict import Verdict


class AnswersTheQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer answers the whole question, in the opinion of a judge."""

    question: str | None = None
    """The question, where it is not the input of the run."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


def _declare_reads(spec: AnswersTheQuestion) -> Reads:
    return Reads(("answer",) if spec.question is not None else ("answer", "input"), "exact")


@check(
    "answers_the_question",
    shorthand="question",
    judged=True,
    example="answers_the_question: {threshold: 0.8}",
    reads=_declare_reads,
    locate_by=locate_quoted_answer,
)
def answers_the_question(spec: AnswersTheQuestion) -> Decide:
    """The answer answers the whole question, in the opinion of a judge."""
    require_filled(spec.question, "question")
    require_threshold(spec.threshold)
    rubric = load_rubric("answers_the_question")

    def decide(evidence: Evidence) -> Verdict:
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        question = find_question(evidence, spec.question)
        if isinstance(question, Verdict):
            return question
        material = Material(subject=answer.value, context={"question": question, **find_conversation(evidence)})
        return ask_rubric(rubric, material, threshold=spec.threshold, pointers=(answer.pointer,))

    return decide
