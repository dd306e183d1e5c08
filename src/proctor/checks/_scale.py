"""What categories and ratings share: one question with named choices about the answer, decided step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from proctor.checks._images import attach_images
from proctor.checks._rubric import find_answer, find_request, require_filled
from proctor.errors import SpecError
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material, Opinion, Question, make_pending, make_verdict
from proctor.model.verdict import Verdict


class _Scaled(Protocol):
    @property
    def steps(self) -> tuple[str, ...]: ...
    @property
    def show_prompt(self) -> bool: ...
    @property
    def show_images(self) -> bool: ...


def require_scale(criteria: str, choices: Mapping[str, str], steps: Sequence[str], field: str) -> None:
    """Refuse empty texts, and a scale with less than two choices."""
    require_filled(criteria, "criteria")
    if len(choices) < 2:
        raise SpecError(f"expected at least two, found {len(choices)}", field=field)
    for name, meaning in choices.items():
        require_filled(name, field)
        require_filled(meaning, f"{field}.{name}")
    for index, step in enumerate(steps):
        require_filled(step, f"steps.{index}")


def write_steps(steps: Sequence[str]) -> tuple[str, ...]:
    """Return steps as points of a rubric: the judge follows them in order, and decides after the last."""
    return tuple(f"Step {number} of {len(steps)}, in this order: {step}" for number, step in enumerate(steps, 1))


def ask_choice(
    spec: _Scaled,
    evidence: Evidence,
    criterion: str,
    choices: dict[str, str],
    *,
    accepted: tuple[str, ...] = (),
    threshold: float | None = None,
    reference: str | None = None,
) -> Verdict:
    """Return the verdict that waits for a choice about the answer."""
    answer = find_answer(evidence)
    if isinstance(answer, Verdict):
        return answer
    request = find_request(evidence) if spec.show_prompt else None
    material = Material(subject=answer.value, context={} if request is None else {"request": request})
    question = Question(
        criterion=criterion,
        material=attach_images(material, evidence.body) if spec.show_images else material,
        threshold=threshold,
        rubric=write_steps(spec.steps),
        reference=reference,
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
