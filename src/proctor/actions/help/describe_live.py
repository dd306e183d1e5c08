"""Describes what only runs need: kinds of targets, providers of models, the settings of a judge and its exact prompts."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proctor.actions.help.description import Description, Field, struct_fields
from proctor.actions.judging.judge_settings import JudgeSection
from proctor.checks.shared.rubric import METRICS, VERSIONS, load_rubric
from proctor.errors import install_command
from proctor.judge.prompt import Prompt, load_prompt
from proctor.llm.providers import KNOWN
from proctor.llm.settings import ModelSettings
from proctor.targets.build import TYPES

TARGET_EXAMPLES = {
    "http": """\
targets:
  desk:
    type: http
    url: http://127.0.0.1:9000/chat
    auth: {type: bearer, token: "${DESK_TOKEN}"}
    template: {input: "{user_message}", session: "{session_id}"}
    response_path: data.answer""",
    "flowise": """\
targets:
  flow:
    type: flowise
    url: http://127.0.0.1:3000
    flow: 3f1c2b7e
    api_key: "${FLOWISE_KEY}\"""",
    "n8n": """\
targets:
  workflow:
    type: n8n
    webhook: http://127.0.0.1:5678/webhook/agent
    api: http://127.0.0.1:5678
    api_key: "${N8N_KEY}\"""",
    "mcp_agent": """\
targets:
  agent:
    type: mcp_agent
    model: small
    system: You help customers with their orders.
    servers:
      - {id: shop, transport: stdio, command: python, args: [shop_server.py]}
models:
  small: {provider: openai, model: gpt-4.1-mini, api_key: "${OPENAI_API_KEY}"}""",
    "callable": """\
targets:
  function: {type: callable, function: "my_agent:answer"}""",
    "command": """\
targets:
  program: {type: command, command: [python, agent.py]}""",
    "recorded": """\
targets:
  yesterday: {type: recorded, evidence: [recordings]}""",
}
_PROVIDERS = {
    "openai": ("OpenAI's chat completions, and every server that speaks them.", "{provider: openai, model: gpt-4.1-mini}"),
    "openai_responses": ("OpenAI's responses.", "{provider: openai_responses, model: gpt-4.1-mini}"),
    "anthropic": ("Anthropic's messages.", "{provider: anthropic, model: claude-sonnet-4-5}"),
    "azure": (
        "OpenAI's models on Azure, by deployment.",
        "{provider: azure, deployment: small, base_url: 'https://NAME.openai.azure.com',\n"
        "          api_version: 2024-10-21, api_key: '${AZURE_API_KEY}'}",
    ),
    "scripted": ("A model with fixed replies, turn by turn, without a network.", "{provider: scripted, replies: [hello]}"),
}


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
    for name, (summary, example) in _PROVIDERS.items():
        others = f"With `{install_command('providers')}` also: {', '.join(KNOWN)}."
        yield Description(kind="models", name=name, summary=summary, fields=shared, example=f"models:\n  small: {example}", notes=(others,))


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
