"""The settings of a judge, and its exact prompts, including those of the rubrics."""

from __future__ import annotations

from collections.abc import Iterable

from proctor.actions.judging.judge_settings import JudgeSection
from proctor.actions.workspace.description import Description, struct_fields
from proctor.checks.shared.rubric import METRICS, VERSIONS, load_rubric
from proctor.judge.prompt import Prompt, load_prompt

_EXAMPLE = """judge: {model: main}
judge: {model: [main, other], samples: 3, combine: majority, uncertain: fail}
judge: {model: openai/some-model, prompt: our-instruction.md}"""

_PARTS = {
    "instruction": "How to judge. `prompt` names a file that replaces this part, and only this one.",
    "boundary": "Where the data begins and ends, and what that means.",
    "passes": "The shape of a yes-or-no reply.",
    "scores": "The shape of a reply that gives scores.",
    "choices": "The shape of a reply that chooses among named answers.",
    "opening": "Comes before the checks.",
    "lead_in": "Comes before the data.",
    "reminder": "Comes after the data.",
    "again": "Added where an earlier reply could not be used.",
    "examples": "Comes before decisions of people, if `examples` names some.",
    "images": "Added where pictures go with the request.",
}


def judge() -> Iterable[Description]:
    """The settings of `judge:`, then every part of the prompt in use, then the text of every rubric."""
    yield Description(
        kind="judge",
        name="settings",
        summary="What `judge:` may say, in a suite or in proctor.yaml.",
        # The required field first.
        fields=tuple(sorted(struct_fields(JudgeSection), key=lambda field: field.name != "model")),
        example=_EXAMPLE,
        notes=("Without it: PROCTOR_JUDGE_MODEL, PROCTOR_JUDGE_BASE_URL and PROCTOR_JUDGE_API_KEY.",),
    )
    prompt = load_prompt()
    for part in Prompt.__struct_fields__:
        if part not in ("version", "decisions"):
            text: str = getattr(prompt, part)
            yield Description(kind="judge", name=part, summary=f"Prompt version {prompt.version}. {_PARTS[part]}", example=text)
    for name in (*VERSIONS, *METRICS):
        rubric = load_rubric(name)
        text = "\n".join(
            [
                rubric.criterion,
                "",
                *(f"- {point}" for point in rubric.points),
                *(f"* {name}: {what}" for name, what in rubric.choices.items()),
            ]
        )
        yield Description(kind="judge", name=name, summary=f"Rubric version {rubric.version}, for the check `{name}`.", example=text)
