"""Context recall: how much of a reference answer is in what was retrieved.

Every statement of the reference is judged on its own: `attributed` to the context, or `missing` from it. The score is attributed / all, as
in Ragas and DeepEval. The answer of the agent is not judged: a low score means that the retrieval did not find what the right answer needs.
A reference given as a list is taken statement by statement as it is.
"""

from __future__ import annotations

from proctor.checks.answer.similar_to import require_share
from proctor.checks.judged._metric import Metric, batch_parts, split_statements
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.rubric import ContextFields, require_filled
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict


class ContextRecall(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """What was retrieved contains the statements of a reference answer, each judged on its own."""

    reference: str | tuple[str, ...]
    """The right answer: one text, which is split into statements, or a list of statements."""
    threshold: float = 1.0
    """The least share of statements that the context contains, above 0 and up to 1."""

    def list_statements(self) -> list[str]:
        """Return the statements of the reference."""
        return split_statements(self.reference) if isinstance(self.reference, str) else list(self.reference)

    def count_requests(self) -> int:
        """Return the number of requests that the statements take."""
        return len(list(batch_parts(self.list_statements())))


def _declare_reads(spec: ContextRecall) -> Reads:
    return Reads(spec.list_parts(), "exact")


@check(
    "context_recall",
    shorthand="reference",
    judged=True,
    example="context_recall: {reference: The parcel is in Linz. It arrives on Friday., context_from: tool_results}",
    reads=_declare_reads,
)
def context_recall(spec: ContextRecall) -> Decide:
    """What was retrieved contains the statements of a reference answer, each judged on its own."""
    spec.require_source()
    require_share(spec.threshold, "threshold")
    whole = spec.reference if isinstance(spec.reference, str) else None
    statements = spec.list_statements()
    for index, text in enumerate(statements):
        require_filled(text, f"reference.{index}")
    if not statements:
        raise SpecError("the reference has no statement", field="reference")
    metric = Metric.load("context_recall", parts="statements", verb="attributed", good=("attributed",), founded_in="retrieved")

    def decide(evidence: Evidence) -> Verdict:
        context = spec.find_in(evidence)
        if isinstance(context, Verdict):
            return context
        return metric.ask(statements, {"retrieved": context.value}, threshold=spec.threshold, whole=whole)

    return decide
