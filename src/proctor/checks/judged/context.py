"""Claims about the retrieved context, and about the answer in relation to it.

Context precision: whether the useful passages were retrieved before the useless ones.

Every retrieved passage is judged on its own, `useful` or `useless` for the right answer: `reference`, else the answer of the agent.
The score is the mean of precision@k over the ranks k of the useful passages, as in Ragas and DeepEval; it is 0 where none is useful, and 1
where all useful ones come first. Passages are the members of the list that was retrieved, in order: of `context`, of the result of a tool
(or of the only list in it), of the value at `context_path`. A list written as JSON text counts as that list.

Context recall: how much of a reference answer is in what was retrieved.

Every statement of the reference is judged on its own: `attributed` to the context, or `missing` from it. The score is attributed / all, as
in Ragas and DeepEval. The answer of the agent is not judged: a low score means that the retrieval did not find what the right answer needs.
A reference given as a list is taken statement by statement as it is.

Claims that the retrieved context is about the question.

The context is judged, not the answer: whether the retrieval found the information needed to answer the question. The context is found as
for `faithful_to_context`, the question as for `answers_the_question`; if either was not recorded the claim is `missing_evidence`.

The rubric asks whether the context as a whole contains what the question asks for. It does not look for the best passage of your
collection, which takes labelled retrieval data, and it accepts useless passages next to a useful one.

Claims that the answer states nothing beyond its context.

The context is what was retrieved for the answer: given in the suite (`context`), or taken from the evidence (`context_from`): the results
of tool calls, the outputs of steps, the variables of the run, or the body of the answer. Where it was not recorded, or no tool gave
anything back, the claim is `missing_evidence` and no judge is called.

The rubric asks whether every statement of fact is borne out; an answer that leaves something out is still faithful, and so is one that
admits not to know. What is true but not in the context counts as invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.checks.answer.similar_to import require_share
from proctor.checks.judged.metrics import Metric, batch_parts, find_passages, split_statements
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.quotes import locate_quoted_answer, locate_quotes
from proctor.checks.shared.rubric import (
    ContextFields,
    ContextSource,
    decide_by_rubric,
    find_answer,
    find_question,
    require_filled,
    show_request,
)
from proctor.errors import SpecError
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.verdict import TextRange, Verdict


class ContextPrecision(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """The useful passages were retrieved before the useless ones, each judged on its own."""

    question: str | None = None
    """The question, if it is not the input of the run."""
    reference: str | None = None
    """The right answer; left out: the answer of the agent."""
    threshold: float = 1.0
    """The least mean of precision@k over the useful passages, above 0 and up to 1."""


def _declare_reads(spec: ContextPrecision) -> Reads:
    question: tuple[Part, ...] = ("input",) if spec.question is None else ()
    return Reads((*spec.list_parts(), *question, *(("answer",) if spec.reference is None else ())), "exact")


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
        if isinstance(passages := find_passages(spec, evidence), Verdict):
            return passages
        if isinstance(question := find_question(evidence, spec.question), Verdict):
            return question
        shown: dict[str, Json] = {"question": question}
        if spec.reference is None:
            if isinstance(answer := find_answer(evidence), Verdict):
                return answer
            shown["answer"] = answer.value
        return metric.ask(passages, shown, threshold=spec.threshold, reference=spec.reference)

    return decide


def compute_average_precision(useful: Sequence[bool]) -> float:
    """Return the mean of precision@k over the ranks of the useful passages; 0 if there are none."""
    ranks = [rank for rank, value in enumerate(useful, 1) if value]
    return sum(found / rank for found, rank in enumerate(ranks, 1)) / len(ranks) if ranks else 0.0


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


@check(
    "context_recall",
    shorthand="reference",
    judged=True,
    example="context_recall: {reference: The parcel is in Linz. It arrives on Friday., context_from: tool_results}",
    reads=lambda spec: Reads(spec.list_parts(), "exact"),
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
        if isinstance(context := spec.find_in(evidence), Verdict):
            return context
        return metric.ask(statements, {"retrieved": context.value}, threshold=spec.threshold, whole=whole)

    return decide


class ContextRelevance(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """What was retrieved holds what it takes to answer the question, in the opinion of a judge."""

    question: str | None = None
    """The question, if it is not the input of the run."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


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
    reads=lambda spec: Reads((*spec.list_parts(), *(() if spec.question is not None else ("input",))), "exact"),
    locate_by=_locate,
)
def context_relevance(spec: ContextRelevance) -> Decide:
    """What was retrieved holds what it takes to answer the question, in the opinion of a judge."""
    spec.require_source()
    require_filled(spec.question, "question")

    def find_context(evidence: Evidence) -> dict[str, Json] | Verdict:
        question = find_question(evidence, spec.question)
        return question if isinstance(question, Verdict) else {"question": question}

    return decide_by_rubric("context_relevance", spec.threshold, find_context, find_subject=spec.find_in, subject="retrieved")


class FaithfulToContext(ContextFields, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the answer states is borne out by the context, in the opinion of a judge."""

    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "faithful_to_context",
    shorthand="context",
    judged=True,
    example="faithful_to_context: {context_from: tool_results}",
    reads=lambda spec: Reads(("answer", *spec.list_parts()), "exact"),
    locate_by=locate_quoted_answer,
)
def faithful_to_context(spec: FaithfulToContext) -> Decide:
    """Everything the answer states is borne out by the context, in the opinion of a judge."""
    spec.require_source()

    def find_context(evidence: Evidence) -> dict[str, Json] | Verdict:
        context = spec.find_in(evidence)
        return context if isinstance(context, Verdict) else {"retrieved": context.value, **show_request(evidence, "question")}

    return decide_by_rubric("faithful_to_context", spec.threshold, find_context)
