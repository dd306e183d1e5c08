"""Claims that the answer states nothing beyond its context.

The context is what was retrieved for the answer: given in the suite (`context`), or taken from the evidence (`context_from`): the results
of tool calls, the outputs of steps, the variables of the run, or the body of the answer. Where it was not recorded, or no tool gave
anything back, the claim is `missing_evidence` and no judge is called.

The rubric asks whether every statement of fact is borne out; an answer that leaves something out is still faithful, and so is one that
admits not to know. What is true but not in the context counts as invented.
"""

from __future__ import annotations

from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import (
    ContextFields,
    ask_rubric,
    find_answer,
    find_request,
    load_rubric,
    require_threshold,
)
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material
from proctor.model.verdict import Verdict


class FaithfulToContext(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the answer states is borne out by the context, in the opinion of a judge."""

    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


def _declare_reads(spec: FaithfulToContext) -> Reads:
    return Reads(("answer", *spec.list_parts()), "exact")


@check(
    "faithful_to_context",
    shorthand="context",
    judged=True,
    example="faithful_to_context: {context_from: tool_results}",
    reads=_declare_reads,
    locate_by=locate_quoted_answer,
)
def faithful_to_context(spec: FaithfulToContext) -> Decide:
    """Everything the answer states is borne out by the context, in the opinion of a judge."""
    spec.require_source()
    require_threshold(spec.threshold)
    rubric = load_rubric("faithful_to_context")

    def decide(evidence: Evidence) -> Verdict:
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        context = spec.find_in(evidence)
        if isinstance(context, Verdict):
            return context
        shown: dict[str, Json] = {"retrieved": context.value}
        request = find_request(evidence)
        if request is not None:
            shown["question"] = request
        return ask_rubric(rubric, Material(subject=answer.value, context=shown), threshold=spec.threshold, pointers=(answer.pointer,))

    return decide
