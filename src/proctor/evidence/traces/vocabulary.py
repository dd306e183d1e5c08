"""What instrumentations call things: one table for all conventions, with the versions it was tried with.

Each tuple lists names for the same thing, the preferred first. A convention that is not in `CONVENTIONS` is read as far as it uses
names that are; what is left over is counted and named by `proctor describe trace FILE`. When a convention moves, add the new name in front
and a recording of it under `tests/evidence/frameworks`; old traces stay readable.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Convention(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which an instrumentation writes down what an agent did."""

    name: str
    """What people call it."""
    marks: tuple[str, ...]
    """Attributes, or beginnings of attributes, that only it uses."""
    scopes: tuple[str, ...] = ()
    """Beginnings of the names of its instrumentation scopes."""
    tried: str = ""
    """The packages and versions whose recordings are read in the tests."""


CONVENTIONS: Final = (
    Convention(
        name="OpenInference",
        marks=("openinference.span.kind", "llm.input_messages.", "llm.output_messages.", "llm.token_count."),
        scopes=("openinference.", "@arizeai/openinference"),
        tried="openinference-instrumentation-* 0.1 to 1.0; @arizeai/openinference-* 2 to 6",
    ),
    Convention(
        name="Traceloop (OpenLLMetry)",
        marks=("traceloop.", "gen_ai.prompt.0.", "gen_ai.completion.0.", "llm.request.type"),
        scopes=("traceloop.", "@traceloop/"),
        tried="opentelemetry-instrumentation-{openai,anthropic,langchain,llamaindex} 0.55 to 0.62; @traceloop/* 0.20 to 0.22",
    ),
    Convention(
        name="LangSmith",
        marks=("langsmith.",),
        scopes=("langsmith",),
        tried="langsmith 0.4 to 0.8, Python and JavaScript, OpenTelemetry mode",
    ),
    Convention(name="Langfuse", marks=("langfuse.observation.",), scopes=("langfuse-sdk",), tried="langfuse 3 to 4, @langfuse/* 4 to 5"),
    Convention(name="MLflow", marks=("mlflow.spanType",), scopes=("mlflow.",), tried="mlflow 3.5 to 3.17"),
    Convention(name="Haystack", marks=("haystack.",), scopes=("haystack",), tried="haystack-ai 2.2x"),
    Convention(name="Mastra", marks=("mastra.",), scopes=("@mastra/",), tried="@mastra/core 1.x with @mastra/otel-exporter"),
    Convention(name="Google ADK", marks=("gcp.vertex.agent.",), scopes=("gcp.vertex.agent",), tried="google-adk 1.x and 2.x"),
    Convention(
        name="AI SDK", marks=("ai.operationId", "ai.toolCall.", "ai.response.", "ai.prompt"), scopes=("ai",), tried="ai 4, 5, 6 and 7"
    ),
    Convention(name="Logfire", marks=("logfire.",), scopes=("logfire",), tried="logfire 4.x"),
    Convention(
        name="Pydantic AI",
        marks=("pydantic_ai.", "all_messages_events", "final_result", "model_request_parameters"),
        scopes=("pydantic-ai",),
        tried="pydantic-ai 1.x and 2.x, instrumentation versions 1 to 6",
    ),
    Convention(name="Strands", marks=("event_loop.",), scopes=("strands",), tried="strands-agents 1.x, both semantic conventions"),
    Convention(name="AG2", marks=("ag2.",), scopes=("opentelemetry.instrumentation.ag2",), tried="ag2 0.9 to 0.12"),
    Convention(name="MCP", marks=("mcp.",), scopes=("mcp-python-sdk", "fastmcp"), tried="mcp 2.3, fastmcp 3"),
    Convention(name="Genkit", marks=("genkit:",), scopes=("genkit",), tried="genkit 1.x"),
    Convention(name="VoltAgent", marks=("voltagent.",), scopes=("@voltagent/",), tried="@voltagent/core 2.x"),
    Convention(name="n8n", marks=("n8n.",), tried="n8n 2.8"),
    Convention(
        name="OpenTelemetry GenAI",
        marks=("gen_ai.",),
        scopes=("opentelemetry.instrumentation.", "@opentelemetry/instrumentation-openai", "agent_framework", "autogen", "semantic_kernel"),
        tried="semantic conventions 1.28 to 1.4x and the events before them; Agent Framework, Semantic Kernel, AutoGen",
    ),
)
"""The conventions that are read, the most particular first."""

OFFERED: Final = (
    "gen_ai.tool.definitions",
    "ai.prompt.tools",
    "llm.invocation_parameters",
    "input.value",
    "mlflow.spanInputs",
    "langfuse.observation.input",
)
"""Where a span tells which tools a model was offered: a list, or an object with `tools`."""
OFFERED_LISTS: Final = frozenset(("gen_ai.tool.definitions", "ai.prompt.tools"))
BETA: Final = "anthropic.beta"
"""Where a client names what it uses before it is generally there; servers of tools are among it."""

GENAI_PREFIXES: Final = (
    *("gen_ai.", "llm.", "openinference.", "traceloop.", "langfuse.", "mlflow.", "langsmith.", "haystack.", "mastra.", "ai.", "ag2."),
    *("gcp.vertex.agent.", "tool.", "tool_call.", "pydantic_ai.", "mcp.", "agent.", "crewai.", "smolagents.", "dspy.", "genkit:"),
    "llamaindex.",
    *("input.value", "output.value"),
)
"""How attributes begin that could tell of an agent's work. A span that has one and is not understood is a gap, not a detail."""

HARMLESS: Final = frozenset(
    (
        *(
            "gen_ai.conversation.id",
            "gen_ai.agent.id",
            "gen_ai.agent.name",
            "gen_ai.agent.description",
            "gen_ai.system",
            "gen_ai.agent.call.id",
        ),
        *("gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model", "llm.provider", "llm.system", "llm.model_name"),
        *(
            "traceloop.association.properties",
            "langfuse.trace.name",
            "langfuse.session.id",
            "langfuse.user.id",
            "langfuse.internal.is_app_root",
        ),
        *("langfuse.version", "langfuse.release", "langfuse.environment", "mlflow.traceRequestId", "mlflow.experimentId", "agent.id"),
        *("mlflow.trace.session", "mlflow.trace.user", "mcp.session.id", "mcp.protocol.version", "gen_ai.event.start_time"),
        *("gen_ai.event.end_time", "traceloop.workflow.name", "traceloop.entity.path", "traceloop.entity.version", "gen_ai.task.id"),
        *("haystack.agent.step", "gcp.vertex.agent.event_id", "gcp.vertex.agent.invocation_id", "gcp.vertex.agent.session_id"),
    )
)
"""Attributes that tell of nothing an agent did; they may stand on any span."""

HARMLESS_PREFIXES: Final = (
    "traceloop.association.",
    "langfuse.observation.metadata.",
    "langfuse.trace.",
    "langsmith.metadata.",
    "langsmith.trace.",
    "gen_ai.usage.",
    "gen_ai.aggregated_usage.",
    "llm.token_count.",
    "llm.usage.",
    "ai.usage.",
)

# --- what a span is ----------------------------------------------------------------------------------------------------

KIND: Final = (
    *(
        "langfuse.observation.type",
        "mlflow.spanType",
        "mastra.span.type",
        "langsmith.span.kind",
        "ag2.span.type",
        "openinference.span.kind",
    ),
    *("gen_ai.operation.name", "ai.operationId", "traceloop.span.kind", "gen_ai.span.kind", "llm.request.type", "mcp.method.name"),
    *("genkit:metadata:subtype", "genkit:type", "span.type", "entity.type"),
)
"""Where a span says what it is, the most particular first: a framework that also writes the GenAI name means its own word."""

KIND_NAMES: Final = frozenset(KIND)
KINDS: Final = {
    **dict.fromkeys(("execute_tool", "tool", "function", "tool_call", "mcp_tool_call", "provider_tool_call", "client_tool_call"), "tool"),
    **dict.fromkeys(("ai.toolCall", "tools/call"), "tool"),
    **dict.fromkeys(("chat", "completion", "text_completion", "generate_content", "llm", "generation", "chat_model", "model"), "model"),
    **dict.fromkeys(("model_inference", "model_step", "responses", "message", "messages"), "model"),
    **dict.fromkeys(("ai.generateText.doGenerate", "ai.streamText.doStream", "ai.generateObject.doGenerate"), "model"),
    **dict.fromkeys(("ai.streamObject.doStream",), "model"),
    **dict.fromkeys(
        ("invoke_agent", "agent", "agent_run", "ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"), "agent"
    ),
    "create_agent": "create_agent",
    **dict.fromkeys(
        ("embeddings", "embedding", "ai.embed", "ai.embedMany", "ai.embed.doEmbed", "ai.embedMany.doEmbed", "embedder"), "embedding"
    ),
    **dict.fromkeys(("retriever", "retrieval", "reranker", "rerank", "ai.rerank", "ai.rerank.doRerank", "memory", "rag"), "retriever"),
    **dict.fromkeys(("invoke_workflow", "workflow", "workflow_run", "flow", "invoke_swarm", "invoke_graph"), "workflow"),
    **dict.fromkeys(("chain", "runnable", "prompt", "parser", "prompt_template"), "chain"),
    **dict.fromkeys(
        (
            "agent_handoff",
            "plan",
            "task",
            "execute_task",
            "step",
            "agent_step",
            "execute_event_loop_cycle",
            "workflow_step",
            "model_generation",
            "turn",
            "handoff",
        ),
        "task",
    ),
    **dict.fromkeys(
        ("span", "event", "generic", "unknown", "guardrail", "evaluator", "evaluation", "processor_run", "model_chunk"), "step"
    ),
    **dict.fromkeys(("guardrail_check", "run_guardrail"), "step"),
    **dict.fromkeys(("search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"), "retriever"),
    **dict.fromkeys(("create_memory_store", "delete_memory_store"), "retriever"),
    **dict.fromkeys(("usage", "human_input", "code_execution_step", "speaker_selection", "action", "util", "custom"), "step"),
    **dict.fromkeys(
        ("session", "initialize", "ping", "tools/list", "server/discover", "resources/list", "prompts/list", "logging/setLevel"), "mcp"
    ),
    **dict.fromkeys(
        ("resources/read", "resources/templates/list", "prompts/get", "completion/complete", "notifications/initialized"), "mcp"
    ),
}
"""Words of the conventions for what a span is, as written or in lower case, and ours.

`agent` and `model` spans hold conversations, `tool` spans are calls; the others are steps around them. A word that is not listed makes a
span that nobody understood.
"""

CLOSED_KINDS: Final = {
    "openinference.span.kind": frozenset(
        ("llm", "embedding", "chain", "retriever", "reranker", "tool", "agent", "guardrail", "evaluator", "prompt", "unknown")
    ),
}
"""Conventions that list their words for what a span is: one that another convention uses is none of theirs."""

TOOL_MARKS: Final = frozenset(("gen_ai.tool.name", "ai.toolCall.name", "haystack.tool.name"))
"""Attributes that only a tool span has, whatever else it says of itself."""
MODEL_MARKS: Final = frozenset(("gen_ai.request.model", "llm.model_name", "gcp.vertex.agent.llm_request"))
"""Attributes that tell a request to a model, where a span does not say what it is."""
OUTPUT_TOOLS: Final = frozenset(("FinalAnswerTool",))
"""Names of tool spans whose tool only hands over the answer (smolagents)."""
OUTPUT_LISTS: Final = {"model_request_parameters": "output_tools"}
"""Where a request tells which of the tools it offers only hand over the answer (Pydantic AI)."""
NOT_REQUESTS: Final = ("._prepare_chat_with_tools",)
"""How names of spans end that are marked as requests to a model and only prepare one (LlamaIndex)."""
NOT_TOOLS: Final = frozenset(("(merged tools)", "mcp_tools"))
"""ADK repeats parallel calls in one span, and OpenAI's agents list the tools of a server in one: neither is a call."""

# --- tools -------------------------------------------------------------------------------------------------------------

TOOL_NAME: Final = (
    *("gen_ai.tool.name", "tool_call.function.name", "tool.name", "ai.toolCall.name", "mcp.tool.name", "haystack.tool.name"),
    *("mlflow.spanFunctionName", "fastmcp.component.key"),
)
TOOL_ENTITY: Final = "traceloop.entity.name"
"""The tool's name where the span is marked as a tool."""
TOOL_ARGUMENTS: Final = (
    *("gen_ai.tool.call.arguments", "tool_call.function.arguments", "ai.toolCall.args", "tool_arguments", "tool.arguments"),
    *("gcp.vertex.agent.tool_call_args", "haystack.agent.step.tool.input", "langfuse.observation.input", "mlflow.spanInputs"),
    *("mastra.tool_call.input", "mastra.mcp_tool_call.input", "gen_ai.tool.input", "mcp.request.argument", "genkit:input", "input.value"),
    *("traceloop.entity.input", "gen_ai.prompt", "input"),
    # The parameters a tool declares; some instrumentations put the actual ones here.
    "tool.parameters",
)
TOOL_RESULT: Final = (
    *(
        "gen_ai.tool.call.result",
        "ai.toolCall.result",
        "tool_response",
        "gcp.vertex.agent.tool_response",
        "haystack.agent.step.tool.output",
    ),
    *("langfuse.observation.output", "mlflow.spanOutputs", "mastra.tool_call.output", "mastra.mcp_tool_call.output", "gen_ai.tool.output"),
    *("genkit:output", "output.value", "traceloop.entity.output", "gen_ai.completion", "output"),
)
TOOL_CALL_ID: Final = ("gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "gen_ai.tool_call.id", "tool.call.id")
TOOL_STATUS: Final = ("gen_ai.tool.status",)
TOOL_ERRORS: Final = ("error.message", "langfuse.observation.status_message", "genkit:error", "gen_ai.tool.error")
TOOL_SERVER: Final = ("mcp.server.name", "server.name", "fastmcp.server.name")

# --- tokens and names --------------------------------------------------------------------------------------------------

INPUT_TOKENS: Final = (
    *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "llm.usage.prompt_tokens"),
    *("ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.aggregated_usage.input_tokens"),
)
OUTPUT_TOKENS: Final = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion", "llm.usage.completion_tokens"),
    *("ai.usage.outputTokens", "ai.usage.completionTokens", "gen_ai.aggregated_usage.output_tokens"),
)
TOTAL_TOKENS: Final = (
    *("gen_ai.usage.total_tokens", "llm.token_count.total", "llm.usage.total_tokens", "ai.usage.totalTokens", "ag2.usage.total_tokens"),
)
USAGE_OBJECTS: Final = ("langfuse.observation.usage_details", "mlflow.chat.tokenUsage", "usage", "langsmith.metadata.usage_metadata")
"""Usage as an object, or as its JSON text."""

USAGE_WORDS: Final = "crewai.crew.token_usage"
"""Usage in words: `total_tokens=110 prompt_tokens=100`."""

MODEL_NAME: Final = (
    *("gen_ai.response.model", "ai.response.model", "langfuse.observation.model.name", "mlflow.llm.model", "llm.response.model"),
    *("llm.model_name", "gen_ai.request.model", "ai.model.id"),
)
RESPONSE_ID: Final = ("gen_ai.response.id", "ai.response.id", "response_id", "llm.response.id")
FINISH_REASONS: Final = (
    *("gen_ai.response.finish_reasons", "ai.response.finishReason", "llm.finish_reason", "anthropic.message.stop_reason"),
    *("gen_ai.response.finish_reason", "llm.response.finish_reason", "llm.response.stop_reason", "gen_ai.completion.0.finish_reason"),
)
CHOICES: Final = "gen_ai.request.choice.count"
PARAMETERS: Final = ("llm.invocation_parameters", "request_data")
"""The settings of a request as one object."""
AGENT_NAME: Final = (
    *(
        "gen_ai.agent.name",
        "agent.name",
        "agent_name",
        "graph.node.name",
        "ai.telemetry.functionId",
        "graph.node.id",
        "llamaindex.agent.name",
        "entity.name",
    ),
    "name",
)
"""What an agent is called; `name` only on an agent's span of a convention that uses it so."""

# --- what was said -----------------------------------------------------------------------------------------------------

GIVEN: Final = (
    *("gen_ai.input.messages", "ai.prompt.messages", "llm.input_messages", "gcp.vertex.agent.llm_request", "langfuse.observation.input"),
    *(
        "mlflow.spanInputs",
        "haystack.agent.step.llm.input",
        "haystack.component.input",
        "mastra.model_step.input",
        "mastra.model_generation.input",
    ),
    *("gen_ai.prompt", "ai.prompt", "llm.messages", "input", "request_data", "raw_input", "genkit:input"),
)
"""The messages a model was given: a list, an object that holds one, or their JSON text."""
SAID: Final = (
    *(
        "gen_ai.output.messages",
        "llm.output_messages",
        "gcp.vertex.agent.llm_response",
        "langfuse.observation.output",
        "mlflow.spanOutputs",
    ),
    *("haystack.agent.step.llm.output", "haystack.component.output", "mastra.model_step.output", "gen_ai.completion", "response_data"),
    *("response", "genkit:output", "output"),
)
"""The messages a model gave back, alike."""
BOTH: Final = ("events", "all_messages_events", "pydantic_ai.all_messages", "agent.messages")
"""A whole conversation in one attribute: what was given, then what was said last."""
ONLY_MESSAGES: Final = frozenset(("gen_ai.input.messages", "gen_ai.output.messages", "ai.prompt.messages"))
"""Names under which nothing but messages stands."""
GIVEN_INDEXED: Final = ("llm.input_messages", "gen_ai.prompt", "llm.prompts")
"""Beginnings of messages flattened into `prefix.0.role`, `prefix.0.content` (OpenInference: `prefix.0.message.role`)."""
SAID_INDEXED: Final = ("llm.output_messages", "gen_ai.completion", "llm.choices")
SAID_TEXT: Final = ("gen_ai.response.text", "ai.response.text", "ai.result.text", "final_result", "ai.response.object")
SAID_CALLS: Final = ("ai.response.toolCalls",)

INPUT_VALUE: Final = (
    *("langfuse.observation.input", "mlflow.spanInputs", "haystack.agent.input", "mastra.agent_run.input", "mastra.workflow_run.input"),
    *(
        "ai.prompt",
        "genkit:input",
        "input.value",
        "traceloop.entity.input",
        "gen_ai.prompt",
        "gen_ai.input.messages",
        "crew_tasks",
        "crewai.task.description",
        "crewai.crew.tasks",
        "input",
    ),
)
"""What went into an agent or a step around it."""
OUTPUT_VALUE: Final = (
    *(
        "langfuse.observation.output",
        "mlflow.spanOutputs",
        "haystack.agent.output",
        "mastra.agent_run.output",
        "mastra.workflow_run.output",
    ),
    *(
        "ai.response.text",
        "genkit:output",
        "output.value",
        "traceloop.entity.output",
        "gen_ai.completion",
        "gen_ai.output.messages",
        "crewai.crew.result",
        "output",
    ),
)

EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.content.prompt": "user",
}
"""Events that carry a message a model was given; before messages became attributes there was one for each."""
EVENT_SAID: Final = frozenset(("gen_ai.choice", "gen_ai.content.completion"))
EVENT_DETAILS: Final = frozenset(("gen_ai.client.inference.operation.details",))
"""An event with both sides, under the names of the attributes."""
EVENTS_BESIDE: Final = ("gen_ai.", "ai.stream.", "mlflow.", "exception")
"""How events begin that are read, or tell nothing of calls."""
EVENT_CONTENT: Final = ("gen_ai.event.content", "body", "message", "content", "gen_ai.prompt", "gen_ai.completion")
"""Where an event holds its message."""

HTTP_STATUS: Final = ("http.response.status_code", "http.status_code")
ERROR_TYPE: Final = "error.type"
TOOL_ERROR: Final = "tool_error"
"""`error.type` of an MCP call whose result said `isError`."""

N8N_NAME, N8N_TYPE, N8N_STATUS = "n8n.node.name", "n8n.node.type", "n8n.node.status"
N8N_PARAMETERS, N8N_OUTPUT, N8N_ITEMS = "n8n.node.parameters", "n8n.node.output", "n8n.node.items.output"
