"""Who judged a claim, and how sure that was, in one line.

A reader of a judged verdict asks three things that the judge's own reason does not answer: which model said so, how far the score lies from
the threshold, and whether all answers agreed. Details come from any judge, also one of another distribution, so nothing is taken for
granted about their shape.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.model.show import shorten, show
from proctor.model.verdict import Verdict
from proctor.report.detail_rows import part
from proctor.report.wording import number_words, weight_words

_MOST_MODELS = 4
_NAME = 80
_REPLY = 160


def judge_words(verdict: Verdict) -> str:
    """`gpt-4o · score 0.79, passes from 0.8 · 2 yes, 1 no`; empty where no judge decided."""
    details = verdict.details
    who = _who(details)
    # The reason of a judge that gave no answer names it already.
    if not who or (verdict.outcome == "error" and who in verdict.reason and not _rows_with_votes(details.get("samples"))):
        return ""
    return " · ".join(part for part in (who, _score(verdict), _votes(details.get("samples"))) if part)


def reply_words(verdict: Verdict) -> str:
    """The beginning of what a judge replied that could not be read; empty elsewhere."""
    if verdict.outcome != "error" or not (verdict.code or "").startswith("judge_"):
        return ""
    replies = _rows(verdict.details.get("replies"))
    last = replies[-1] if replies else None
    return show(last, _REPLY) if isinstance(last, str) and not _rows_with_votes(verdict.details.get("samples")) else ""


def _who(details: dict[str, Json]) -> str:
    models = [shorten(model, _NAME) for model in _rows(details.get("models")) if isinstance(model, str)]
    name = details.get("judge")
    if len(models) > 1:
        more = len(models) - _MOST_MODELS
        return ", ".join(models[:_MOST_MODELS]) + (f" and {more} more" if more > 0 else "")
    if isinstance(name, str) and name:
        return shorten(name, _NAME) + (f" ({models[0]})" if models and models[0] != name else "")
    return models[0] if models else ""


def _score(verdict: Verdict) -> str:
    threshold = _number(verdict.details.get("threshold"))
    if threshold is None or not _rows_with_votes(verdict.details.get("samples")):
        return ""
    if verdict.code == "judge_uncertain" and verdict.outcome == "error":
        return f"passes from {weight_words(threshold)}"
    # A violated constraint takes the score of the claim away, not that of its criterion.
    score = _number(part(verdict.details.get("criterion"), "score"))
    return f"score {number_words(verdict.score if score is None else score)}, passes from {weight_words(threshold)}"


def _votes(samples: Json) -> str:
    """How many of several answers agreed, and how many never came."""
    rows = _rows(samples)
    if len(rows) < 2:
        return ""
    votes = _rows_with_votes(samples)
    yes = sum(bool(part(row, "passed")) for row in votes)
    parts = [f"{yes} yes, {len(votes) - yes} no"] if votes else []
    if len(votes) < len(rows):
        parts.append(f"{len(rows) - len(votes)} without an answer")
    return ", ".join(parts)


def _rows_with_votes(samples: Json) -> list[Json]:
    return [row for row in _rows(samples) if isinstance(part(row, "passed"), bool)]


def _rows(value: Json) -> list[Json]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
