"""Pairwise comparison: whether the answer is better than another one, in both orders.

Judges prefer an answer for its place. So the comparison is made twice, in two requests, with the answers swapped. The claim holds if it
holds in both orders, and fails if it fails in both; of a jury more than half of the members must decide so in both. A preference that
depends on the order is no decision: an `error` with the code `judge_position_dependent`, never a pass. `details.preference` is `answer`,
`against`, `tie` or `undecided`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from proctor.checks.judged.metrics import describe_judge, describe_votes
from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import METRICS, build_question, find_answer, load_rubric, require_filled, show_request
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material, Opinion, Question, make_pending, make_verdict
from proctor.model.verdict import Verdict, errored, failed, passed

_NAMES = ({"first": "answer", "second": "against", "tie": "tie"}, {"first": "against", "second": "answer", "tie": "tie"})
"""The meaning of the choices in each of the two requests: with the answer first, then second."""


class Pairwise(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer is better than another one, compared in both orders."""

    against: str
    """The other answer: of another version or model, or one that is known to be good."""
    criteria: str = "It answers the request more correctly, completely and clearly."
    """What better means."""
    must_be: Literal["better", "not_worse"] = "better"
    """`better`: the answer wins. `not_worse`: it wins, or neither does."""

    def count_requests(self) -> int:
        """Return the number of requests: one for each order."""
        return 2


@check(
    "pairwise",
    shorthand="against",
    judged=True,
    example="pairwise: {against: It is on its way., criteria: It tells the customer more about the delivery., must_be: better}",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def pairwise(spec: Pairwise) -> Decide:
    """The answer is better than another one, compared in both orders."""
    require_filled(spec.against, "against")
    require_filled(spec.criteria, "criteria")
    rubric = load_rubric("pairwise")

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(answer := find_answer(evidence), Verdict):
            return answer
        questions: list[Question] = []
        for own, both in (("first", (answer.value, spec.against)), ("second", (spec.against, answer.value))):
            material = Material(subject={"first": both[0], "second": both[1]}, name="answers", context=show_request(evidence))
            question = build_question(rubric, material, fill={"criteria": spec.criteria})
            accepted = (own,) if spec.must_be == "better" else (own, "tie")
            questions.append(msgspec.structs.replace(question, choices=rubric.choices, accepted=accepted))
        return make_pending(questions, lambda opinions: _settle(questions, opinions, (answer.pointer,)))

    return decide


def _settle(questions: Sequence[Question], opinions: Sequence[Opinion], pointers: tuple[str, ...]) -> Verdict:
    chosen = [question.read_choice(opinion) for question, opinion in zip(questions, opinions, strict=True)]
    preferred = [names.get(choice or "") for choice, names in zip(chosen, _NAMES, strict=True)]
    details: dict[str, Json] = {
        **describe_judge(opinions[0]),
        "rubric": {"name": "pairwise", "version": METRICS["pairwise"]},
        "preference": preferred[0] if preferred[0] == preferred[1] and preferred[0] else "undecided",
        "orders": [
            {"preferred": choice, "reason": opinion.reason, "code": opinion.code, **describe_votes(opinion)}
            for choice, opinion in zip(preferred, opinions, strict=True)
        ],
    }
    for opinion, choice in zip(opinions, chosen, strict=True):
        if choice is None:
            return msgspec.structs.replace(make_verdict(opinion, pointers=pointers), details=details, code=opinion.code or "judge_failed")
    reason = f"preferred: {preferred[0]} and, with the order swapped, {preferred[1]}; {opinions[0].reason}"
    # Each member of a jury must agree with itself in both orders: two that prefer opposite positions would form a majority in each.
    ballots = list(zip(*(opinion.details.get("samples", ()) for opinion in opinions), strict=True))
    decided = [first.get("passed") for first, second in ballots if first.get("passed") == second.get("passed")]
    agreeing_count = decided.count(opinions[0].outcome == "pass")
    agreement, quorum = (opinions[0].details.get(name, 0.5) for name in ("least_agreement", "least_quorum"))
    too_few = agreeing_count <= agreement * len(ballots) or len(decided) - decided.count(None) <= quorum * len(ballots)
    if opinions[0].outcome != opinions[1].outcome or (ballots and too_few):
        members = f"{agreeing_count} of {len(ballots)} decide so in both orders; " if len(ballots) > 1 else ""
        return errored("judge_position_dependent", f"the preference depends on the order: {members}{reason}", details=details)
    score = sum({"answer": 1.0, "tie": 0.5}.get(choice or "", 0.0) for choice in preferred) / 2
    return (passed if opinions[0].outcome == "pass" else failed)(reason, score=score, details=details, pointers=pointers)
