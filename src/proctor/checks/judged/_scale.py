"""Shared by categories and ratings: one question with named choices about the answer, decided step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from proctor.checks.shared.rubric import attach_images, find_answer, find_request, require_filled
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material, Opinion, Question, make_pending, make_verdict
from proctor.model.verdict import Verdict, missing


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
    answer = find_answer(evidence)
    if isinstance(answer, Verdict):
        return answer
    request = find_request(evidence) if spec.show_prompt else None
    material = Material(subject=answer.value, context={} if request is None else {"request": request})
    if spec.show_images:
        material = attach_images(material, evidence.body)
        if not material.images:
            return missing("an image as data")
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
        details: dict[str, Json] = {**opinion.details, "choice": choice, "choices": list(choices)}
        if threshold is not None:
            details["threshold"] = threshold
        reason = opinion.reason if choice is None else f"{choice}: {opinion.reason}"
        return make_verdict(msgspec.structs.replace(opinion, reason=reason, details=details), pointers=(answer.pointer,))

    return make_pending([question], settle)
