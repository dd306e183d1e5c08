"""Names of claims in other systems and our checks for them: `llm-rubric` is `judged`."""

from __future__ import annotations

COUNTERPARTS: dict[str, str] = {
    "agent-rubric": "judged",
    "answer-relevance": "answer_relevancy",
    "answer_correctness": "rating",
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
    "conversation-relevance": "judged",
    "cost": "cost_within",
    "equals": "response_equals",
    "factuality": "judged",
    "g-eval": "g_eval",
    "groundedness": "faithfulness",
    "hallucination": "faithfulness",
    "gleu": "similar_to",
    "icontains": "response_contains",
    "icontains-all": "response_contains",
    "icontains-any": "response_matches",
    "is-json": "json_schema",
    "is-refusal": "refuses_politely",
    "javascript": "that",
    "latency": "responded_within",
    "levenshtein": "similar_to",
    "llm-rubric": "judged",
    "meteor": "similar_to",
    "model-graded-closedqa": "judged",
    "model-graded-factuality": "judged",
    "moderation": "toxicity",
    "python": "that",
    "regex": "response_matches",
    "rouge-n": "similar_to",
    "search-rubric": "judged",
    "select-best": "pairwise",
    "similar": "judged",
    "starts-with": "response_starts_with",
    "tool-call-f1": "tools_called",
    "trajectory:goal-success": "task_completion",
    "trajectory:step-count": "tool_call_count",
    "trajectory:tool-args-match": "tool_called",
    "trajectory:tool-sequence": "tools_in_order",
    "trajectory:tool-used": "tool_called",
}
"""Types of promptfoo, and a few metrics of DeepEval and Ragas, with the equivalent or nearest check."""


def find_counterpart(name: str) -> str | None:
    """Return the check of ours for a claim of another system; None where there is none."""
    return COUNTERPARTS.get(name.removeprefix("not-").lower())
