"""Answer relevancy: which statements of the answer are about the question.

Every statement is judged on its own: `relevant`, `neutral` (a greeting, a heading) or `irrelevant`. The score is the share of statements
that are not irrelevant, as in DeepEval. The question is found as for `answers_the_question`, which asks something else: whether every part
of the question is answered. An answer can be relevant and incomplete, or complete and full of advertising.
"""

from __future__ import annotations

import msgspec

from proctor.checks.answer.similar_to import require_share
from proctor.checks.judged._metric import Metric, locate_statements
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.rubric import find_conversation, find_question, require_filled
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict


class AnswerRelevancy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The statements of the answer are about the question, each judged on its own."""

    question: str | None = None
    """The question, where it is not the input of the run."""
    threshold: float = 1.0
    """The least share of statements that are not irrelevant, above 0 and up to 1."""


def _declare_reads(spec: AnswerRelevancy) -> Reads:
    return Reads(("answer",) if spec.question is not None else ("answer", "input"), "exact")


@check(
    "answer_relevancy",
    shorthand="question",
    judged=True,
    example="answer_relevancy: {threshold: 0.8}",
    reads=_declare_reads,
    locate_by=locate_statements,
)
def answer_relevancy(spec: AnswerRelevancy) -> Decide:
    """The statements of the answer are about the question, each judged on its own."""
    require_filled(spec.question, "question")
    require_share(spec.threshold, "threshold")
    metric = Metric.load("answer_relevancy", parts="statements", verb="relevant", good=("relevant", "neutral"))

    def decide(evidence: Evidence) -> Verdict:
        question = find_question(evidence, spec.question)
        if isinstance(question, Verdict):
            return question
        return metric.ask_statements(evidence, {"question": question, **find_conversation(evidence)}, threshold=spec.threshold)

    return decide
