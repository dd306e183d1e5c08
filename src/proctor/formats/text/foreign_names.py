"""Names of claims in other systems and our checks for them: `llm-rubric` is `judged`."""

from __future__ import annotations

import re

COUNTERPARTS: dict[str, str] = {
    "agent-rubric": "judged",
    "agent_goal_accuracy": "task_completion",
    "answer-relevance": "answer_relevancy",
    "answer_correctness": "rating",
    "answer_relevancy": "answer_relevancy",
    "arena_g_eval": "pairwise",
    "aspect_critic": "judged",
    "bias": "bias",
    "bleu": "similar_to",
    "classifier": "category",
    "contains": "response_contains",
    "contains-all": "response_contains",
    "contains-any": "response_matches",
    "contains-json": "json_schema",
    "context-faithfulness": "faithfulness",
    "context-precision": "context_precision",
    "context-recall": "context_recall",
    "context-relevance": "context_relevance",
    "contextual_precision": "context_precision",
    "contextual_recall": "context_recall",
    "contextual_relevancy": "context_relevance",
    "conversation-relevance": "judged",
    "cost": "cost_within",
    "dag": "category",
    "equals": "response_equals",
    "factuality": "judged",
    "faithfulness": "faithfulness",
    "g-eval": "g_eval",
    "gleu": "similar_to",
    "groundedness": "faithfulness",
    "guidelines": "judged",
    "hallucination": "faithfulness",
    "icontains": "response_contains",
    "icontains-all": "response_contains",
    "icontains-any": "response_matches",
    "is-json": "json_schema",
    "is-refusal": "refuses_politely",
    "javascript": "that",
    "latency": "responded_within",
    "levenshtein": "similar_to",
    "llm-rubric": "judged",
    "llm_context_precision_with_reference": "context_precision",
    "llm_context_precision_without_reference": "context_precision",
    "llm_context_recall": "context_recall",
    "make_genai_metric": "rating",
    "make_judge": "judged",
    "meteor": "similar_to",
    "model-graded-closedqa": "judged",
    "model-graded-factuality": "judged",
    "moderation": "toxicity",
    "python": "that",
    "regex": "response_matches",
    "relevance_to_query": "answer_relevancy",
    "response_groundedness": "faithfulness",
    "response_relevancy": "answer_relevancy",
    "retrieval_groundedness": "faithfulness",
    "retrieval_relevance": "context_relevance",
    "retrieval_sufficiency": "context_recall",
    "rouge-n": "similar_to",
    "rubrics_score": "rating",
    "safety": "toxicity",
    "search-rubric": "judged",
    "select-best": "pairwise",
    "similar": "judged",
    "starts-with": "response_starts_with",
    "summarization": "summary_covers",
    "summarization_score": "summary_covers",
    "task_completion": "task_completion",
    "tool-call-f1": "tools_called",
    "tool_call_accuracy": "tools_called",
    "tool_correctness": "tools_called",
    "toxicity": "toxicity",
    "trajectory:goal-success": "task_completion",
    "trajectory:step-count": "tool_call_count",
    "trajectory:tool-args-match": "tool_called",
    "trajectory:tool-sequence": "tools_in_order",
    "trajectory:tool-used": "tool_called",
}
"""Types of promptfoo, and metrics of DeepEval, Ragas and MLflow, with the equivalent or nearest check."""
_LETTERS = re.compile(r"[^a-z0-9]")


def find_counterpart(name: str) -> str | None:
    """Return our check for a claim of another system, or None; `FaithfulnessMetric` is `faithfulness`."""
    return _BY_LETTERS.get(_fold(name.removeprefix("not-")))


def _fold(name: str) -> str:
    return _LETTERS.sub("", name.lower()).removesuffix("metric")


_BY_LETTERS = {_fold(name): check for name, check in COUNTERPARTS.items()}
