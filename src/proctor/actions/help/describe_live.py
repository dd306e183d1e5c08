"""Describes what only runs need: kinds of targets, providers of models, the settings of a judge and its exact prompts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable

import msgspec

from proctor.actions.help.demo import examples_folder
from proctor.actions.help.description import Description, Field, struct_fields
from proctor.actions.judging.judge_settings import JudgeSection
from proctor.checks.shared.rubric import METRICS, VERSIONS, load_rubric
from proctor.errors import install_command
from proctor.judge.prompt import Prompt, load_prompt
from proctor.llm.providers import KNOWN
from proctor.llm.settings import ModelSettings
from proctor.model.typed import convert_to
from proctor.targets.build import TYPES


class _Provider(msgspec.Struct, frozen=True):
    summary: str
    example: str


class _Shown(msgspec.Struct, frozen=True):
    """The texts of `examples/describe.toml`."""

    targets: dict[str, str]
    models: dict[str, _Provider]
    prompt: dict[str, str]


_SHOWN = convert_to(tomllib.loads((examples_folder() / "describe.toml").read_text(encoding="utf-8")), _Shown)
TARGET_EXAMPLES = _SHOWN.targets


def targets() -> Iterable[Description]:
    """Every kind of target."""
    for kind, summary in TYPES.items():
        yield Description(
            kind="targets",
            name=kind,
            summary=f"{summary[0].upper()}{summary[1:]}.",
            fields=_list_target_fields(kind),
            example=TARGET_EXAMPLES[kind],
            notes=("Written under `targets` in `proctor.yaml` or in a suite; `proctor run SUITE --target NAME` drives it.",),
        )


def models() -> Iterable[Description]:
    """Every provider of models that has a client of ours."""
    shared = struct_fields(ModelSettings)
    for name, provider in _SHOWN.models.items():
        others = f"With `{install_command('providers')}` also: {', '.join(KNOWN)}."
        example = f"models:\n  small: {provider.example}"
        yield Description(kind="models", name=name, summary=provider.summary, fields=shared, example=example, notes=(others,))


def _list_target_fields(kind: str) -> tuple[Field, ...]:
    if kind == "mcp_agent":
        from proctor.targets.mcp.agent_conversation import AgentSettings  # one kind at a time, as when targets are built

        specific_fields = (
            Field(name="type", kind="`mcp_agent`", required=True),
            Field(name="model", kind="text", required=True, about="The model, by its name under `models`."),
            Field(name="servers", kind="list of objects", default="[]", about="The MCP servers whose tools it is given."),
        )
        return (*specific_fields, *struct_fields(AgentSettings))
    match kind:
        case "http":
            from proctor.targets.platforms.http import HttpSettings as Settings
        case "flowise":
            from proctor.targets.platforms.flowise import FlowiseSettings as Settings
        case "n8n":
            from proctor.targets.platforms.n8n import N8nSettings as Settings
        case "callable":
            from proctor.targets.local.callable import CallableSettings as Settings
        case "command":
            from proctor.targets.local.command import CommandSettings as Settings
        case _:
            from proctor.targets.local.recorded import RecordedSettings as Settings
    fields = struct_fields(Settings)
    # The struct has its kind as a default, but a file must name it.
    return tuple(msgspec.structs.replace(field, required=True, default=None) if field.name == "type" else field for field in fields)


_EXAMPLE = """judge: {model: main}
judge: {model: [main, other], samples: 3, combine: majority, uncertain: fail}
judge: {model: openai/some-model, prompt: our-instruction.md}"""


def judge() -> Iterable[Description]:
    """The settings of `judge:`, then every part of the prompt in use, then the text of every rubric."""
    yield Description(
        kind="judge",
        name="settings",
        summary="The settings of `judge:`, in a suite or in proctor.yaml.",
        # The required field first.
        fields=tuple(sorted(struct_fields(JudgeSection), key=lambda field: field.name != "model")),
        example=_EXAMPLE,
        notes=("Without it: PROCTOR_JUDGE_MODEL, PROCTOR_JUDGE_BASE_URL and PROCTOR_JUDGE_API_KEY.",),
    )
    prompt = load_prompt()
    for part in Prompt.__struct_fields__:
        if part not in ("version", "decisions"):
            text: str = getattr(prompt, part)
            yield Description(kind="judge", name=part, summary=f"Prompt version {prompt.version}. {_SHOWN.prompt[part]}", example=text)
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
