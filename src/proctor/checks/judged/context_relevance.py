"""Claims that the retrieved context is about the question.

The context is judged, not the answer: whether the retrieval found the information needed to answer the question. The context is found as
for `faithful_to_context`, the question as for `answers_the_question`; if either was not recorded the claim is `missing_evidence`.

The rubric asks whether the context as a whole contains what the question asks for. It does not look for the best passage of your
collection, which takes labelled retrieval data, and it accepts useless passages next to a useful one.
"""

from __future__ import annotations

from collections.abc import Iterator

from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quotes
from proctor.checks.shared.rubric import (
    ContextFields,
    ContextSource,
    ask_rubric,
    find_question,
    load_rubric,
    require_filled,
    require_threshold,
)
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material
from proctor.model.verdict import TextRange, Verdict


class ContextRelevance(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """What was retrieved holds what it takes to answer the question, in the opinion of a judge."""

    question: str | None = None
    """The question, where it is not the input of the run."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


def _declare_reads(spec: ContextRelevance) -> Reads:
    return Reads((*spec.list_parts(), *(() if spec.question is not None else ("input",))), "exact")


def _locate(spec: ContextRelevance, evidence: Evidence, verdict: Verdict) -> Iterator[TextRange]:
    """Find the quotes where they were recorded; a context given in the suite is not evidence."""
    if spec.context:
        return iter(())
    places: dict[ContextSource, tuple[Json, str]] = {
        "tool_results": ([{"result": call.result, "error": call.error} for call in evidence.tool_calls or ()], "$.tool_calls"),
        "steps": ([{"output": node.output} for node in evidence.nodes or ()], "$.nodes"),
        "variables": (evidence.context, "$.context"),
        "body": (evidence.body, "$.body"),
    }
    return locate_quotes(*places[spec.context_from or "tool_results"], verdict)


@check(
    "context_relevance",
    judged=True,
    example="context_relevance: {context_from: tool_results}",
    reads=_declare_reads,
    locate_by=_locate,
)
def context_relevance(spec: ContextRelevance) -> Decide:
    """What was retrieved holds what it takes to answer the question, in the opinion of a judge."""
    spec.require_source()
    require_filled(spec.question, "question")
    require_threshold(spec.threshold)
    rubric = load_rubric("context_relevance")

    def decide(evidence: Evidence) -> Verdict:
        context = spec.find_in(evidence)
        if isinstance(context, Verdict):
            return context
        question = find_question(evidence, spec.question)
        if isinstance(question, Verdict):
            return question
        material = Material(subject=context.value, name="retrieved", context={"question": question})
        return ask_rubric(rubric, material, threshold=spec.threshold, pointers=(context.pointer,) if context.pointer else ())

    return decide
