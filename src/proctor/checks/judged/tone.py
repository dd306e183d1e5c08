"""Claims about the tone of the answer.

The judge sees the answer and, if it was recorded, the input, since the same words can be kind or cold. The tone is yours to
describe, in a word (`friendly`) or in a sentence (`calm and factual, without exclamation marks`). The narrower it is, the more judges and
people agree.

Only the manner is judged: a friendly answer may be wrong. Emojis and exclamation marks are neither needed nor enough.
"""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import ask_rubric, find_answer, find_request, load_rubric, require_filled, require_threshold
from proctor.model.evidence import Evidence
from proctor.model.judgement import Material
from proctor.model.verdict import Verdict


class Tone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer has a tone, in the opinion of a judge."""

    should_be: str
    """The tone in a word or a sentence: `friendly`, `formal`, `calm and factual`."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


@check(
    "tone",
    shorthand="should_be",
    judged=True,
    example="tone: friendly",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def tone(spec: Tone) -> Decide:
    """The answer has a tone, in the opinion of a judge."""
    require_filled(spec.should_be, "should_be")
    require_threshold(spec.threshold)
    rubric = load_rubric("tone")
    fill = {"tone": spec.should_be}

    def decide(evidence: Evidence) -> Verdict:
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        request = find_request(evidence)
        material = Material(subject=answer.value, context={} if request is None else {"request": request})
        return ask_rubric(rubric, material, threshold=spec.threshold, fill=fill, pointers=(answer.pointer,))

    return decide
