"""Claims that the answer says nothing beyond its context.

The context is what was retrieved for the answer: given in the suite (`context`), or taken from the evidence (`context_from`): the results
of tool calls, the outputs of steps, the variables of the run, or the body of the answer. Where it was not recorded, or no tool gave
anything back, the claim is `missing_evidence` and no judge is asked.

The rubric asks whether every statement of fact is borne out; an answer that leaves something out is still faithful, and so is one that
says it does not know. What is true but not in the context counts as invented.
"""

from __future__ import annotations

import msgspec

from proctor.checks._quotes import locate_quoted_answer
from proctor.checks._rubric import (
    SOURCE_PARTS,
    ContextSource,
    ask_rubric,
    find_answer,
    find_context,
    find_request,
    load_rubric,
    require_source,
    require_threshold,
)
from proctor.checks.caution import Reads
from proctor.checks.registry import Decide, check
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material
from proctor.model.verdict import Verdict


class FaithfulToContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the answer states is borne out by the context, in the opinion of a judge."""

    context: tuple[str, ...] = ()
    """The context itself, as one text or several; left out: it is taken from the evidence."""
    context_from: ContextSource | None = None
    """Where the context stands in the evidence: `tool_results` (what is taken where nothing is said), `steps`, `variables` or `body`."""
    context_path: str | None = None
    """A dot path to the context inside the variables or the body."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; left out: the judge says yes or no."""


def _declare_reads(spec: FaithfulToContext) -> Reads:
    return Reads(("answer", *(() if spec.context else SOURCE_PARTS[spec.context_from or "tool_results"])), "exact")


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
    require_source(spec.context, spec.context_from, spec.context_path)
    require_threshold(spec.threshold)
    rubric = load_rubric("faithful_to_context")

    def decide(evidence: Evidence) -> Verdict:
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        context = find_context(evidence, spec.context, spec.context_from, spec.context_path)
        if isinstance(context, Verdict):
            return context
        shown: dict[str, Json] = {"retrieved": context.value}
        request = find_request(evidence)
        if request is not None:
            shown["question"] = request
        return ask_rubric(rubric, Material(subject=answer.value, context=shown), threshold=spec.threshold, pointers=(answer.pointer,))

    return decide
