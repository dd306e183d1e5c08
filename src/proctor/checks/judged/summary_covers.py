"""Claims that a summary covers certain points.

Every point is a yes-or-no question, all in one request. The score is the share of points that are covered, and at least `at_least` must
be; the verdict lists each point with the judge's reason. If one point could not be judged, the claim is an `error`, unless that point
cannot change the outcome.

A point is covered if the summary states it, in any wording; a hint or the opposite does not cover it. Whether the summary states things
that are not in its source is another claim: `faithful_to_context`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.checks.answer.similar_to import require_share
from proctor.checks.registry import Decide, check
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import Rubric, build_question, find_answer, load_rubric, require_filled
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material, Opinion, make_pending
from proctor.model.show import show
from proctor.model.verdict import Verdict, errored, failed, passed

MOST_POINTS = 100
"""The maximum number of points that a judge can answer in one reply."""


class SummaryCovers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, a summary, covers certain points, in the opinion of a judge."""

    points: tuple[str, ...]
    """The points that the summary must state."""
    at_least: float = 1.0
    """The least share of points that must be covered, above 0 and up to 1."""


@check(
    "summary_covers",
    shorthand="points",
    judged=True,
    example="summary_covers: {points: [the contract ends in May, the rent rises by 3 %], at_least: 1}",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def summary_covers(spec: SummaryCovers) -> Decide:
    """The answer, a summary, covers certain points, in the opinion of a judge."""
    if not 0 < len(spec.points) <= MOST_POINTS:
        raise SpecError(f"expected 1 to {MOST_POINTS} points, found {len(spec.points)}", field="points")
    for index, point in enumerate(spec.points):
        require_filled(point, f"points.{index}")
    require_share(spec.at_least)
    rubric = load_rubric("summary_covers")

    def decide(evidence: Evidence) -> Verdict:
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        material = Material(subject=answer.value, name="summary")
        questions = [build_question(rubric, material, fill={"point": point}) for point in spec.points]
        return make_pending(questions, lambda opinions: _settle(spec, rubric, opinions, (answer.pointer,)))

    return decide


def _settle(spec: SummaryCovers, rubric: Rubric, opinions: Sequence[Opinion], pointers: tuple[str, ...]) -> Verdict:
    total = len(spec.points)
    covered = sum(opinion.outcome == "pass" for opinion in opinions)
    open_points = [(point, opinion) for point, opinion in zip(spec.points, opinions, strict=True) if opinion.outcome == "error"]
    listed: list[Json] = [
        {"point": point, "outcome": opinion.outcome, "reason": opinion.reason, "code": opinion.code}
        for point, opinion in zip(spec.points, opinions, strict=True)
    ]
    details: dict[str, Json] = {
        **opinions[0].details,
        "rubric": {"name": rubric.name, "version": rubric.version},
        "points": listed,
        "covered": covered,
    }
    share = covered / total
    counts = f"{covered} of {total} points covered, a share of at least {spec.at_least:g} expected"
    if share >= spec.at_least - 1e-12:
        return passed(counts, score=share, details=details, pointers=pointers)
    # A point that could not be judged matters only if it could change the outcome.
    if open_points and (covered + len(open_points)) / total >= spec.at_least - 1e-12:
        point, opinion = open_points[0]
        return errored(opinion.code or "judge_failed", f"point {show(point)}: {opinion.reason}", details=details)
    first = next((point, opinion) for point, opinion in zip(spec.points, opinions, strict=True) if opinion.outcome != "pass")
    reason = f"{counts}; not covered: {show(first[0])} ({first[1].reason})"
    return failed(reason, score=share, details=details, pointers=pointers)
