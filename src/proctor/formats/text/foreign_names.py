"""Names of claims in other systems and our checks for them: `llm-rubric` is `judged`."""

from __future__ import annotations

from proctor.model.lazy_pattern import lazy_pattern

_NAMES: dict[str, tuple[str, ...]] = {
    "answer_relevancy": ("answer-relevance", "answer_relevancy", "relevance_to_query", "response_relevancy"),
    "bias": ("bias",),
    "category": ("classifier", "dag"),
    "context_precision": (
        "context-precision",
        "contextual_precision",
        "llm_context_precision_with_reference",
        "llm_context_precision_without_reference",
    ),
    "context_recall": ("context-recall", "contextual_recall", "llm_context_recall", "retrieval_sufficiency"),
    "context_relevance": ("context-relevance", "contextual_relevancy", "retrieval_relevance"),
    "cost_within": ("cost",),
    "faithfulness": (
        "context-faithfulness",
        "faithfulness",
        "groundedness",
        "hallucination",
        "response_groundedness",
        "retrieval_groundedness",
    ),
    "g_eval": ("g-eval",),
    "json_schema": ("contains-json", "is-json"),
    "judged": (
        "agent-rubric",
        "aspect_critic",
        "conversation-relevance",
        "factuality",
        "guidelines",
        "llm-rubric",
        "make_judge",
        "model-graded-closedqa",
        "model-graded-factuality",
        "search-rubric",
        "similar",
    ),
    "pairwise": ("arena_g_eval", "select-best"),
    "rating": ("answer_correctness", "make_genai_metric", "rubrics_score"),
    "refuses_politely": ("is-refusal",),
    "responded_within": ("latency",),
    "response_contains": ("contains", "contains-all", "icontains", "icontains-all"),
    "response_equals": ("equals",),
    "response_matches": ("contains-any", "icontains-any", "regex"),
    "response_starts_with": ("starts-with",),
    "similar_to": ("bleu", "gleu", "levenshtein", "meteor", "rouge-n"),
    "summary_covers": ("summarization", "summarization_score"),
    "task_completion": ("agent_goal_accuracy", "task_completion", "trajectory:goal-success"),
    "that": ("javascript", "python"),
    "tool_call_count": ("trajectory:step-count",),
    "tool_called": ("trajectory:tool-args-match", "trajectory:tool-used"),
    "tools_called": ("tool-call-f1", "tool_call_accuracy", "tool_correctness"),
    "tools_in_order": ("trajectory:tool-sequence",),
    "toxicity": ("moderation", "safety", "toxicity"),
}
"""Each check with the types of promptfoo, and the metrics of DeepEval, Ragas and MLflow, that it is equivalent or nearest to."""
COUNTERPARTS: dict[str, str] = {name: check for check, names in _NAMES.items() for name in names}
_LETTERS = lazy_pattern(r"[^a-z0-9]")


def find_counterpart(name: str) -> str | None:
    """Return our check for a claim of another system, or None; `FaithfulnessMetric` is `faithfulness`."""
    return _BY_LETTERS.get(_fold(name.removeprefix("not-")))


def _fold(name: str) -> str:
    return _LETTERS.sub("", name.lower()).removesuffix("metric")


_BY_LETTERS = {_fold(name): check for name, check in COUNTERPARTS.items()}
