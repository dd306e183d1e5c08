"""Who judged a claim, and how sure that was, in one line.

A reader of a judged verdict asks three things that the judge's own reason does not answer: which model said so, how far the score lies from
the threshold, and whether all answers agreed. Details come from any judge, also one of another distribution, so nothing is taken for
granted about their shape.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import shorten, show
from proctor.model.verdict import Verdict
from proctor.report.words.detail_rows import find_part, list_rows
from proctor.report.words.wording import number_words, weight_words

_MOST_MODELS = 4
"""Models of a jury that are named."""
_NAME = 80
"""Characters of a model's name."""
_REPLY = 160
"""Characters of a reply that could not be read."""


def judge_words(verdict: Verdict) -> str:
    """Return who judged and how: `gpt-4o · score 0.79, passes from 0.8 · 2 yes, 1 no`; empty where no judge decided."""
    details = verdict.details
    who = _name_judge(details)
    # The reason of a judge that gave no answer names it already.
    if not who or (verdict.outcome == "error" and who in verdict.reason and not _list_rows_with_votes(details.get("samples"))):
        return ""
    return " · ".join(part for part in (who, _score(verdict), _describe_votes(details.get("samples"))) if part)


def reply_words(verdict: Verdict) -> str:
    """Return the beginning of what a judge replied that could not be read; empty elsewhere."""
    if verdict.outcome != "error" or not (verdict.code or "").startswith("judge_"):
        return ""
    replies = list_rows(verdict.details.get("replies"))
    last = replies[-1] if replies else None
    return show(last, _REPLY) if isinstance(last, str) and not _list_rows_with_votes(verdict.details.get("samples")) else ""


def _name_judge(details: dict[str, Json]) -> str:
    models = [shorten(model, _NAME) for model in list_rows(details.get("models")) if isinstance(model, str)]
    name = details.get("judge")
    if len(models) > 1:
        more = len(models) - _MOST_MODELS
        return ", ".join(models[:_MOST_MODELS]) + (f" and {more:,} more" if more > 0 else "")
    if isinstance(name, str) and name:
        return shorten(name, _NAME) + (f" ({models[0]})" if models and models[0] != name else "")
    return models[0] if models else ""


def _score(verdict: Verdict) -> str:
    threshold = _number(verdict.details.get("threshold"))
    if threshold is None or not _list_rows_with_votes(verdict.details.get("samples")):
        return ""
    least = weight_words(threshold)
    if verdict.code == "judge_uncertain" and verdict.outcome == "error":
        return f"passes from {least}"
    # A violated constraint takes the score of the claim away, not that of its criterion.
    score = _number(find_part(verdict.details.get("criterion"), "score"))
    reached = number_words(verdict.score if score is None else score)
    return f"score {reached}, passes from {least}"


def _describe_votes(samples: Json) -> str:
    """Return how many of several answers agreed, and how many never came."""
    rows = list_rows(samples)
    if len(rows) < 2:
        return ""
    votes = _list_rows_with_votes(samples)
    yes = sum(bool(find_part(row, "passed")) for row in votes)
    parts = [f"{yes:,} yes, {len(votes) - yes:,} no"] if votes else []
    if len(votes) < len(rows):
        parts.append(f"{len(rows) - len(votes):,} without an answer")
    return ", ".join(parts)


def _list_rows_with_votes(samples: Json) -> list[Json]:
    return [row for row in list_rows(samples) if isinstance(find_part(row, "passed"), bool)]


def _number(value: Json) -> float | None:
    return float(value) if is_number(value) else None
