"""What the attributes of spans are called: one table for all conventions.

Each tuple lists names for the same thing, the preferred first. Conventions covered, as of `VERSION`:

- OpenTelemetry GenAI, current (`gen_ai.input.messages`, `gen_ai.usage.input_tokens`, `gen_ai.tool.call.arguments`) and before 1.37
  (`gen_ai.prompt`, `gen_ai.usage.prompt_tokens`, span events)
- OpenInference (`openinference.span.kind`, `input.value`, `llm.output_messages.0.message.content`)
- OpenLLMetry / Traceloop (`traceloop.span.kind`, `traceloop.entity.input`, `gen_ai.completion.0.content`)
- AI SDK telemetry (`ai.toolCall.name`, `ai.response.text`)
- Pydantic AI before it took the GenAI names (`tool_arguments`, `final_result`)
- Mibo (`gen_ai.response.text`, `n8n.node.output`) and n8n's own export (`n8n.node.name`)

When a convention moves, add the new name in front and raise the version; old traces stay readable.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "2026-11"

SPAN_KIND = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "gen_ai.span.kind", "llm.request.type")

KINDS = {
    "execute_tool": "tool",
    "tool": "tool",
    "function": "tool",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "agent": "agent",
    "chat": "llm",
    "completion": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "llm": "llm",
    "embeddings": "embedding",
    "embedding": "embedding",
    "invoke_workflow": "workflow",
    "workflow": "workflow",
    "chain": "chain",
    "task": "task",
}
"""Words of the conventions for what a span is, in lower case, and ours. A word not listed stays as it is."""

AI_SDK_OPERATION = "ai.operationId"
"""Carries `ai.generateText`, `ai.generateText.doGenerate`, `ai.toolCall`, ..."""

TOOL_NAME = ("gen_ai.tool.name", "tool_call.function.name", "tool.name", "ai.toolCall.name", "mcp.tool.name")
TOOL_ENTITY = "traceloop.entity.name"
"""The tool's name where the span is marked as a tool."""
TOOL_ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "tool_call.function.arguments",
    "ai.toolCall.args",
    "tool_arguments",
    "input.value",
    "traceloop.entity.input",
    # The parameters a tool declares; some instrumentations put the actual ones here.
    "tool.parameters",
)
TOOL_RESULT = ("gen_ai.tool.call.result", "ai.toolCall.result", "tool_response", "output.value", "traceloop.entity.output")
TOOL_CALL_ID = ("gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id")
AI_SDK_CALLS = "ai.response.toolCalls"
"""The calls a model asked for, as a list or as JSON text."""
TOOL_SERVER = ("mcp.server.name", "server.name")

INPUT_TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
    "ai.usage.inputTokens",
    "ai.usage.promptTokens",
)
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
    "ai.usage.outputTokens",
    "ai.usage.completionTokens",
)
TOTAL_TOKENS = ("gen_ai.usage.total_tokens", "llm.token_count.total", "llm.usage.total_tokens", "ai.usage.totalTokens")

INPUT_MESSAGES = ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages", "ai.prompt", "llm.input_messages")
"""Messages as a list or as JSON text; `gen_ai.prompt` may also be plain text."""
OUTPUT_MESSAGES = ("gen_ai.output.messages", "gen_ai.completion", "llm.output_messages")
OUTPUT_TEXT = ("gen_ai.response.text", "ai.response.text", "ai.result.text", "final_result")

INDEXED_INPUT = ("gen_ai.prompt", "llm.input_messages")
"""Prefixes of messages flattened into `prefix.0.role`, `prefix.0.content` (OpenInference: `prefix.0.message.role`)."""
INDEXED_OUTPUT = ("gen_ai.completion", "llm.output_messages")

INPUT_VALUE = ("input.value", "traceloop.entity.input")
OUTPUT_VALUE = ("output.value", "traceloop.entity.output", "ai.response.object")

_EVENT_BOTH = "gen_ai.client.inference.operation.details"
EVENT_INPUT = frozenset(("gen_ai.content.prompt", "gen_ai.user.message", _EVENT_BOTH))
# Not `gen_ai.assistant.message`: that is what the model said earlier and was given again.
EVENT_OUTPUT = frozenset(("gen_ai.content.completion", "gen_ai.choice", _EVENT_BOTH))
"""Span events that carry messages; before messages became attributes there was one for each."""
EVENT_CONTENT = ("gen_ai.event.content", "message", "content")
"""Where such an event holds its message, beside the names of the attributes."""

HTTP_STATUS = ("http.response.status_code", "http.status_code")
ERROR_TYPE = "error.type"
TOOL_ERROR = "tool_error"
"""`error.type` of an MCP call whose result said `isError`."""

N8N_NAME, N8N_TYPE, N8N_STATUS = "n8n.node.name", "n8n.node.type", "n8n.node.status"
N8N_PARAMETERS, N8N_OUTPUT, N8N_ITEMS = "n8n.node.parameters", "n8n.node.output", "n8n.node.items.output"
