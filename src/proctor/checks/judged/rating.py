"""A rating on a scale with anchors, such as 1 to 5.

Each number of the scale has a meaning, its anchor, and the judge chooses one number: scores without anchors mean something else to every
model. Numbers between two anchors mean "between" them. The score is the place on the scale from 0 to 1 (of 1 to 5, a 4 is 0.75); several
judgements are combined by their median. `steps` are instructions that the judge follows in order.
"""

from __future__ import annotations

from proctor.checks.judged._scale import ScaleFields, ask_choice
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.show import show
from proctor.model.verdict import Verdict

MOST_LEVELS = 11


class Rating(ScaleFields, frozen=True, kw_only=True, omit_defaults=True):
    """The answer reaches a number on a scale with anchors, in the opinion of a judge."""

    anchors: dict[str, str]
    """What the numbers of the scale mean, at least the lowest and the highest: `{1: wrong, 3: right with gaps, 5: right and complete}`."""
    at_least: int
    """The least number that passes."""


@check(
    "rating",
    judged=True,
    example='rating: {criteria: How helpful the answer is, anchors: {"1": of no use, "3": helps in part, "5": solves it}, at_least: 4}',
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def rating(spec: Rating) -> Decide:
    """The answer reaches a number on a scale with anchors, in the opinion of a judge."""
    spec.require_usable(spec.anchors, "anchors")
    for name in spec.anchors:
        if not (name.isascii() and name.isdigit()):
            raise SpecError(f"the numbers of a scale are 0, 1, 2 and so on, found {show(name)}", field=f"anchors.{name}")
    anchors = {int(name): meaning for name, meaning in sorted(spec.anchors.items(), key=lambda anchor: int(anchor[0]))}
    lowest, highest = min(anchors), max(anchors)
    if highest - lowest >= MOST_LEVELS:
        raise SpecError(f"a scale has at most {MOST_LEVELS} numbers, found {lowest} to {highest}", field="anchors")
    if not lowest < spec.at_least <= highest:
        raise SpecError(f"expected a number above {lowest} and up to {highest}, found {spec.at_least}", field="at_least")
    scale: dict[str, str] = {}
    for number in range(lowest, highest + 1):
        below, above = max(a for a in anchors if a <= number), min(a for a in anchors if a >= number)
        scale[str(number)] = anchors.get(number, f"between {below} and {above}")
    threshold = (spec.at_least - lowest) / (highest - lowest)

    def decide(evidence: Evidence) -> Verdict:
        criterion = f"Rate the answer from {lowest} to {highest}: {spec.criteria}"
        return ask_choice(spec, evidence, criterion, scale, threshold=threshold)

    return decide
