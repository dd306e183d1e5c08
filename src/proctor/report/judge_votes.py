"""Every answer of a judge to one claim, as a row: who said what, and why."""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.model.numbers import is_number
from proctor.model.verdict import Verdict
from proctor.report.detail_rows import find_part
from proctor.report.html_text import write_block, write_label
from proctor.report.wording import number_words

_MOST_VOTES = 20


def list_votes(verdict: Verdict) -> list[Json]:
    """Return the answers of a judge: `outcome` of each, `who`, `score` and `reason` as far as they are known."""
    samples = verdict.details.get("samples")
    rows: list[Json] = [_write_vote(sample) for sample in samples[:_MOST_VOTES]] if isinstance(samples, (list, tuple)) else []
    return [row for row in rows if row]


def _write_vote(sample: Json) -> dict[str, Json]:
    said, code = find_part(sample, "passed"), find_part(sample, "code")
    if not isinstance(said, bool) and code is None:
        return {}
    vote: dict[str, Json] = {"outcome": "error" if not isinstance(said, bool) else "pass" if said else "fail"}
    model, score, reason = (find_part(sample, name) for name in ("model", "score", "reason"))
    if isinstance(model, str) and model:
        vote["who"] = write_label(model, 80)
    if is_number(score):
        vote["score"] = number_words(score)
    if isinstance(reason, str) and reason:
        vote["reason"] = write_block(reason, 2000)
    return vote
