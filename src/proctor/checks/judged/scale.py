"""Shared by categories and ratings: one question with named choices about the answer, decided step by step.

A category: which of several named classes the answer belongs to.

The judge chooses exactly one of `categories`, each with its meaning, and the claim passes for those in `accept`. Categories should exclude
each other and cover every answer: add `other` where they do not. `steps` are instructions that the judge follows in order.

A rating on a scale with anchors, such as 1 to 5.

Each number of the scale has a meaning, its anchor, and the judge chooses one number: scores without anchors mean something else to every
model. Numbers between two anchors mean "between" them. The score is the place on the scale from 0 to 1 (of 1 to 5, a 4 is 0.75); several
judgements are combined by their median. `steps` are instructions that the judge follows in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import attach_images, find_answer, require_filled, settle_one, show_request
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.judgement import Material, Opinion, Question, make_pending
from proctor.model.show import nearest, show
from proctor.model.verdict import Verdict


class ScaleFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The question, and the parts that the judge sees."""

    criteria: str
    """What the choice is about."""
    steps: tuple[str, ...] = ()
    """What the judge does, step by step, before it decides."""
    reference: str | None = None
    """An answer that would be right, for the judge to compare with."""
    show_prompt: bool = True
    """Whether the judge sees the agent's input."""
    show_images: bool = False
    """Whether the judge sees the images in the answer; the model must accept images."""

    def require_usable(self, choices: Mapping[str, str], field: str) -> None:
        """Reject empty texts, and a scale with fewer than two choices."""
        if len(choices) < 2:
            raise SpecError(f"expected at least two, found {len(choices)}", field=field)
        texts = {"criteria": self.criteria, **{f"{field}.{name}": meaning for name, meaning in choices.items()}}
        for place, text in (texts | {f"steps.{index}": step for index, step in enumerate(self.steps)}).items():
            require_filled(text, place)


def write_steps(steps: Sequence[str]) -> tuple[str, ...]:
    """Return steps as points of a rubric: the judge follows them in order, and decides after the last."""
    return tuple(f"Step {number} of {len(steps)}, in this order: {step}" for number, step in enumerate(steps, 1))


def ask_choice(
    spec: ScaleFields,
    evidence: Evidence,
    criterion: str,
    choices: dict[str, str],
    *,
    accepted: tuple[str, ...] = (),
    threshold: float | None = None,
) -> Verdict:
    """Return a pending verdict on a choice about the answer."""
    if isinstance(answer := find_answer(evidence), Verdict):
        return answer
    material = Material(subject=answer.value, context=show_request(evidence) if spec.show_prompt else {})
    if spec.show_images:
        material = attach_images(material, evidence.body)
        if isinstance(material, Verdict):
            return material
    question = Question(
        criterion=criterion,
        material=material,
        threshold=threshold,
        rubric=write_steps(spec.steps),
        reference=spec.reference,
        choices=choices,
        accepted=accepted,
    )

    def settle(opinions: Sequence[Opinion]) -> Verdict:
        (opinion,) = opinions
        choice = question.read_choice(opinion)
        if choice is not None:
            opinion = msgspec.structs.replace(opinion, reason=f"{choice}: {opinion.reason}")
        return settle_one(opinion, threshold, (answer.pointer,), choice=choice, choices=list(choices))

    return make_pending([question], settle)


class Category(ScaleFields, frozen=True, kw_only=True, omit_defaults=True):
    """The answer belongs to one of the accepted categories, in the opinion of a judge."""

    categories: dict[str, str] | tuple[str, ...]
    """The categories by name, each with its meaning; or a list of names that need none."""
    accept: tuple[str, ...]
    """The categories that pass."""


@check(
    "category",
    judged=True,
    example="category: {criteria: What became of it, categories: {solved: it helps, refused: it declines}, accept: [solved]}",
    reads=Reads(("answer",), "exact", "fail"),
    locate_by=locate_quoted_answer,
)
def category(spec: Category) -> Decide:
    """The answer belongs to one of the accepted categories, in the opinion of a judge."""
    categories = spec.categories if isinstance(spec.categories, dict) else {name: name for name in spec.categories}
    spec.require_usable(categories, "categories")
    if not spec.accept or len(set(spec.accept)) >= len(categories):
        raise SpecError("name at least one category that passes, and leave at least one that does not", field="accept")
    for index, name in enumerate(spec.accept):
        if name not in categories:
            raise SpecError(f"unknown category {show(name)}", field=f"accept.{index}", nearest=nearest(name, categories))

    def decide(evidence: Evidence) -> Verdict:
        return ask_choice(spec, evidence, f"Classify the answer: {spec.criteria}", categories, accepted=spec.accept)

    return decide


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
