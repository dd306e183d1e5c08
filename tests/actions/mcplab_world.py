"""An MCPLab workspace on disk, and a model with OpenAI's protocol that follows the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proctor.actions.judging.trust import trust_for
from proctor.actions.running.mcplab_run import Ready, Together, prepare_all
from proctor.actions.running.run import LiveRun, drive, read_run_options
from proctor.actions.running.run_policy import McplabOptions, Policy
from proctor.model.case import Suite
from tests.llm.provider_server import ReceivedRequest, ScriptedResponse

AGENTS = """\
gpt: {provider: openai, model: gpt-test, temperature: 0, system: You are the shop's clerk.}
mini: {provider: openai, model: mini-test, max_turns: 2}
page: {type: browser, provider: claude, url: "https://chat.example/new"}
"""

CONFIG = """\
name: Orders
agents: [{ref: gpt}]
scenarios:
  - ref: lookup
  - id: total
    prompt: total of order 17
    mcp_servers: [{ref: shop}]
    eval:
      tool_sequence: [lookup_order]
      tool_input_assertions:
        - {type: jsonpath, tool: lookup_order, path: $.id, equals: 17}
        - {type: contains, tool: lookup_order, value: '"id":17'}
        - {type: regex, tool: lookup_order, pattern: '17'}
      response_assertions:
        - {type: jsonpath, path: $.total, equals: 9.5}
        - {type: jsonpath_not_exists, path: $.refund}
        - {type: regex, pattern: 'total'}
        - {type: not_contains, value: sorry}
    extract:
      - {name: total, from: final_text, regex: '"total":\\s*([0-9.]+)'}
run_defaults: {selected_agents: [gpt]}
"""

LOOKUP = """\
id: lookup
name: Where is it?
prompt: status of order 17
mcp_servers: [{ref: shop}]
eval:
  tool_constraints: {required_tools: [lookup_order], forbidden_tools: [delete_order]}
  response_assertions:
    - {type: contains, value: shipped}
"""


def workspace(folder: Path, url: str, *, auth: str = "", config: str = CONFIG, agents: str = AGENTS, lookup: str = LOOKUP) -> Path:
    """Write a workspace; the path of its config."""
    (folder / "evals").mkdir(parents=True)
    (folder / "test-cases").mkdir()
    (folder / "servers.yaml").write_text(f'shop: {{transport: http, url: "{url}/mcp"{auth}}}\n')
    (folder / "agents.yaml").write_text(agents)
    (folder / "test-cases" / "lookup.yaml").write_text(lookup)
    path = folder / "evals" / "orders.yaml"
    path.write_text(config)
    return path


async def drive_mcplab(suite: Any, *, environment: dict[str, str], **options: Any) -> LiveRun:
    chosen = {name: options.pop(name) for name in McplabOptions.__struct_fields__ if name in options}
    place = {name: options.pop(name) for name in ("target", "home") if name in options}
    run_options = read_run_options({"environment": environment, "mcplab": McplabOptions(**chosen), **options})
    return await drive(suite, run_options, **place)


def prepare_together(suite: Suite, environment: dict[str, str], **options: Any) -> Together:
    return prepare_all(suite, Policy(Path(), trust_for("running"), environment), McplabOptions(**options))


def prepare_mcplab(suite: Suite, environment: dict[str, str], **options: Any) -> Ready:
    (ready,) = prepare_together(suite, environment, **options).configs.values()
    return ready


def completion(text: str = "", calls: list[tuple[str, Any]] | None = None) -> ScriptedResponse:
    made = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, (name, arguments) in enumerate(calls or [])
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if made:
        message["tool_calls"] = made
    finish = "tool_calls" if made else "stop"
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return ScriptedResponse(
        body={"model": "gpt-test-2026", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}
    )


def clerk(request: ReceivedRequest) -> ScriptedResponse:
    """Looks the order up, then answers with its status or total."""
    messages = request.body["messages"]
    if messages[-1]["role"] != "tool":
        return completion("I will look.", [("lookup_order", {"id": 17})])
    prompt = next(message["content"] for message in messages if message["role"] == "user")
    return completion('{"total": 9.5}' if "total" in prompt else "It has shipped.")


def restless(request: ReceivedRequest) -> ScriptedResponse:
    """Never comes to an end."""
    return completion("", [("lookup_order", {"id": 17})])


def answering(text: str) -> Callable[[ReceivedRequest], ScriptedResponse]:
    return lambda request: completion(text)
