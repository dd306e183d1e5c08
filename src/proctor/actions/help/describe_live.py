"""What a workspace can hold: kinds of targets and providers of models, described from the settings they are read into."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proctor.actions.workspace.description import Description, Field, struct_fields
from proctor.errors import install_command
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
            fields=_target_fields(kind),
            example=TARGET_EXAMPLES[kind],
            notes=("Written under `targets` in `proctor.yaml` or in a suite; `proctor run SUITE --target NAME` drives it.",),
        )


def models() -> Iterable[Description]:
    """Every provider of models that has a client of ours."""
    shared = struct_fields(ModelSettings)
    for name, (summary, example) in _PROVIDERS.items():
        others = f"With `{install_command('providers')}` also: {', '.join(KNOWN)}."
        yield Description(kind="models", name=name, summary=summary, fields=shared, example=f"models:\n  small: {example}", notes=(others,))


def _target_fields(kind: str) -> tuple[Field, ...]:
    if kind == "mcp_agent":
        from proctor.targets.mcp.agent_conversation import AgentSettings  # one kind at a time, as when targets are built

        own = (
            Field(name="type", kind="`mcp_agent`", required=True),
            Field(name="model", kind="text", required=True, about="The model, by its name under `models`."),
            Field(name="servers", kind="list of objects", default="[]", about="The MCP servers whose tools it is given."),
        )
        return (*own, *struct_fields(AgentSettings))
    fields = struct_fields(_settings(kind))
    # A struct has its own kind as a default; a file has to say which it is.
    return tuple(msgspec.structs.replace(field, required=True, default=None) if field.name == "type" else field for field in fields)


def _settings(kind: str) -> type[msgspec.Struct]:
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
    return Settings
