"""Context precision: whether the useful passages were retrieved before the useless ones.

Every retrieved passage is judged on its own, `useful` or `useless` for the right answer: `reference`, else the answer of the agent.
The score is the mean of precision@k over the ranks k of the useful passages, as in Ragas and DeepEval; it is 0 where none is useful, and 1
where all useful ones come first. Passages are the members of the list that was retrieved, in order: of `context`, of the result of a tool
(or of the only list in it), of the value at `context_path`. A list written as JSON text counts as that list.
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.checks.answer.similar_to import require_share
from proctor.checks.judged._metric import Metric, find_passages
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.rubric import ContextFields, find_answer, find_question, require_filled
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.verdict import Verdict


class ContextPrecision(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """The useful passages were retrieved before the useless ones, each judged on its own."""

    question: str | None = None
    """The question, where it is not the input of the run."""
    reference: str | None = None
    """The right answer; left out: the answer of the agent."""
    threshold: float = 1.0
    """The least mean of precision@k over the useful passages, above 0 and up to 1."""


def _declare_reads(spec: ContextPrecision) -> Reads:
    parts: list[Part] = list(spec.list_parts())
    if spec.question is None:
        parts.append("input")
    return Reads((*parts, "answer") if spec.reference is None else tuple(parts), "exact")


@check(
    "context_precision",
    shorthand="reference",
    judged=True,
    example="context_precision: {context_from: tool_results, reference: The parcel is in Linz., threshold: 0.8}",
    reads=_declare_reads,
)
def context_precision(spec: ContextPrecision) -> Decide:
    """The useful passages were retrieved before the useless ones, each judged on its own."""
    spec.require_source()
    require_share(spec.threshold, "threshold")
    require_filled(spec.question, "question")
    require_filled(spec.reference, "reference")
    metric = Metric.load("context_precision", parts="passages", verb="useful", good=("useful",), compute=compute_average_precision)

    def decide(evidence: Evidence) -> Verdict:
        passages = find_passages(spec, evidence)
        if isinstance(passages, Verdict):
            return passages
        question = find_question(evidence, spec.question)
        if isinstance(question, Verdict):
            return question
        shown: dict[str, Json] = {"question": question}
        if spec.reference is None:
            answer = find_answer(evidence)
            if isinstance(answer, Verdict):
                return answer
            shown["answer"] = answer.value
        return metric.ask(passages, shown, threshold=spec.threshold, reference=spec.reference)

    return decide


def compute_average_precision(useful: Sequence[bool]) -> float:
    """Return the mean of precision@k over the ranks of the useful passages; 0 if there are none."""
    ranks = [rank for rank, value in enumerate(useful, 1) if value]
    return sum(found / rank for found, rank in enumerate(ranks, 1)) / len(ranks) if ranks else 0.0
