"""Faithfulness claim by claim: which statements of the answer the context supports.

Every statement of the answer (a sentence, an item of a list, a row of a table) is judged on its own: `supported`, `unsupported` or
`no_claim`. The score is supported / (supported + unsupported), as in Ragas, where statements without a claim (a greeting, a question back)
do not count; an answer without any claim is `missing_evidence`, as nothing was decided. The verdict lists every statement with its choice
and the judge's reason.
`faithful_to_context` asks the same about the answer as a whole, in one question.
"""

from __future__ import annotations

from proctor.checks.answer.similar_to import require_share
from proctor.checks.judged._metric import Metric, locate_statements
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.rubric import ContextFields, find_request
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict


class Faithfulness(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """The context supports the statements of the answer, each judged on its own."""

    threshold: float = 1.0
    """The least share of supported statements, above 0 and up to 1."""


def _declare_reads(spec: Faithfulness) -> Reads:
    return Reads(("answer", *spec.list_parts()), "exact")


@check(
    "faithfulness",
    shorthand="context",
    judged=True,
    example="faithfulness: {context_from: tool_results, threshold: 0.9}",
    reads=_declare_reads,
    locate_by=locate_statements,
)
def faithfulness(spec: Faithfulness) -> Decide:
    """The context supports the statements of the answer, each judged on its own."""
    spec.require_source()
    require_share(spec.threshold, "threshold")
    metric = Metric.load(
        "faithfulness", parts="statements", verb="supported", good=("supported",), uncounted=("no_claim",), founded_in="retrieved"
    )

    def decide(evidence: Evidence) -> Verdict:
        context = spec.find_in(evidence)
        if isinstance(context, Verdict):
            return context
        request = find_request(evidence)
        shown = {"retrieved": context.value} if request is None else {"retrieved": context.value, "question": request}
        return metric.ask_statements(evidence, shown, threshold=spec.threshold)

    return decide
