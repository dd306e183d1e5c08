"""Names of attributes, kinds of spans and events: one table for all conventions, with the versions it was tested with.

Each tuple lists names of the same thing, the preferred first. A convention that is not in `CONVENTIONS` is read as far as it uses known
names; the rest is listed by `proctor describe trace FILE`. When a convention changes, add the new name in front and a recording of it
under `tests/evidence/frameworks`; old traces stay readable.
"""

from __future__ import annotations

from typing import Final

from proctor.evidence.values.access import split_words
from proctor.model.account import CALL_PARTS, Part


def list_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, in order."""
    return tuple(text.split())


CONVENTIONS: Final[dict[str, tuple[str, str]]] = {
    "OpenInference": (
        "openinference.span.kind llm.input_messages. llm.output_messages. llm.token_count.",
        "openinference. @arizeai/openinference",
    ),
    "Traceloop (OpenLLMetry)": ("traceloop. gen_ai.prompt.0. gen_ai.completion.0. llm.request.type", "traceloop. @traceloop/"),
    "LangSmith": ("langsmith.", "langsmith"),
    "Langfuse": ("langfuse.observation.", "langfuse-sdk"),
    "MLflow": ("mlflow.spanType", "mlflow."),
    "Haystack": ("haystack.", "haystack"),
    "Mastra": ("mastra.", "@mastra/"),
    "Google ADK": ("gcp.vertex.agent.", "gcp.vertex.agent"),
    "AI SDK": ("ai.operationId ai.toolCall. ai.response. ai.prompt", "ai"),
    "Logfire": ("logfire.", "logfire"),
    "Pydantic AI": ("pydantic_ai. all_messages_events final_result model_request_parameters", "pydantic-ai"),
    "Strands": ("event_loop.", "strands"),
    "AG2": ("ag2.", "opentelemetry.instrumentation.ag2"),
    "MCP": ("mcp.", "mcp-python-sdk fastmcp"),
    "Genkit": ("genkit:", "genkit"),
    "VoltAgent": ("voltagent.", "@voltagent/"),
    "n8n": ("n8n.", ""),
    "OpenTelemetry GenAI": ("gen_ai.", ""),
}
"""The conventions that are read, the most specific first, with the prefixes of the attributes and of the scopes that only they use."""

N8N_NAME, N8N_TYPE, N8N_STATUS = "n8n.node.name", "n8n.node.type", "n8n.node.status"
N8N_PARAMETERS, N8N_OUTPUT, N8N_ITEMS = "n8n.node.parameters", "n8n.node.output", "n8n.node.items.output"
_ALL: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "usage", "nodes", "turns")
_CONTENT: tuple[Part, ...] = (*CALL_PARTS, "answer", "nodes", "turns")
NAMES: Final[dict[str, tuple[str, ...]]] = {
    thing: tuple(names.split())
    for thing, names in {
        # A framework's own word comes before the general one.
        "kind": """
            langfuse.observation.type mlflow.spanType mastra.span.type langsmith.span.kind ag2.span.type openinference.span.kind
            gen_ai.operation.name ai.operationId traceloop.span.kind gen_ai.span.kind llm.request.type mcp.method.name
            genkit:metadata:subtype genkit:type span.type entity.type
            """,
        "tool_name": """
            gen_ai.tool.name tool_call.function.name tool.name ai.toolCall.name mcp.tool.name haystack.tool.name mlflow.spanFunctionName
            fastmcp.component.key traceloop.entity.name
            """,
        # `tool.parameters` is what a tool declares; some instrumentations write the actual ones there.
        "tool_arguments": """
            gen_ai.tool.call.arguments tool_call.function.arguments ai.toolCall.args tool_arguments tool.arguments
            gcp.vertex.agent.tool_call_args haystack.agent.step.tool.input langfuse.observation.input mlflow.spanInputs
            mastra.tool_call.input mastra.mcp_tool_call.input gen_ai.tool.input mcp.request.argument genkit:input input.value
            traceloop.entity.input gen_ai.prompt input tool.args tool.input tool.params tool.parameters
            """,
        "tool_result": """
            gen_ai.tool.call.result ai.toolCall.result tool_response gcp.vertex.agent.tool_response haystack.agent.step.tool.output
            langfuse.observation.output mlflow.spanOutputs mastra.tool_call.output mastra.mcp_tool_call.output gen_ai.tool.output
            genkit:output output.value traceloop.entity.output gen_ai.completion output tool.output tool.result tool.response
            """,
        "tool_call_id": "gen_ai.tool.call.id tool_call.id ai.toolCall.id gen_ai.tool_call.id tool.call.id",
        "tool_errors": """
            error.message langfuse.observation.status_message genkit:error gen_ai.tool.error exception.message error error.type
            """,
        # The last ones are names that people use by hand.
        "tool_outcome": "gen_ai.tool.status tool.error tool.status tool.success tool.is_error tool.exit_code tool.outcome",
        "tool_server": "mcp.server.name server.name fastmcp.server.name",
        "input_tokens": """
            gen_ai.usage.input_tokens gen_ai.usage.prompt_tokens llm.token_count.prompt llm.usage.prompt_tokens ai.usage.inputTokens
            ai.usage.promptTokens gen_ai.aggregated_usage.input_tokens
            """,
        "output_tokens": """
            gen_ai.usage.output_tokens gen_ai.usage.completion_tokens llm.token_count.completion llm.usage.completion_tokens
            ai.usage.outputTokens ai.usage.completionTokens gen_ai.aggregated_usage.output_tokens
            """,
        "total_tokens": """
            gen_ai.usage.total_tokens llm.token_count.total llm.usage.total_tokens ai.usage.totalTokens ag2.usage.total_tokens
            """,
        "cached_tokens": """
            gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_read_input_tokens llm.token_count.prompt_details.cache_read
            ai.usage.cachedInputTokens
            """,
        "cache_write_tokens": """
            gen_ai.usage.cache_creation.input_tokens gen_ai.usage.cache_creation_input_tokens llm.token_count.prompt_details.cache_write
            """,
        # `crewai.crew.token_usage` is a text: `total_tokens=110 prompt_tokens=100`.
        "usage_objects": """
            langfuse.observation.usage_details mlflow.chat.tokenUsage usage langsmith.metadata.usage_metadata crewai.crew.token_usage
            """,
        "model_name": """
            gen_ai.response.model ai.response.model langfuse.observation.model.name mlflow.llm.model llm.response.model llm.model_name
            gen_ai.request.model ai.model.id
            """,
        "response_id": "gen_ai.response.id ai.response.id response_id llm.response.id",
        "finish": """
            gen_ai.response.finish_reasons ai.response.finishReason llm.finish_reason anthropic.message.stop_reason
            gen_ai.response.finish_reason llm.response.finish_reason llm.response.stop_reason gen_ai.completion.0.finish_reason
            """,
        "parameters": "llm.invocation_parameters request_data",
        # A list, or an object with `tools`.
        "offered": """
            gen_ai.tool.definitions ai.prompt.tools llm.invocation_parameters input.value mlflow.spanInputs langfuse.observation.input
            model_request_parameters
            """,
        # `name` only on an agent's span of a convention that uses it so.
        "agent_name": """
            gen_ai.agent.name agent.name agent_name graph.node.name ai.telemetry.functionId graph.node.id llamaindex.agent.name
            entity.name name
            """,
        # A list of messages, an object that contains one, or their JSON text.
        "input_messages": """
            gen_ai.input.messages ai.prompt.messages llm.input_messages gcp.vertex.agent.llm_request langfuse.observation.input
            mlflow.spanInputs haystack.agent.step.llm.input haystack.component.input mastra.model_step.input mastra.model_generation.input
            gen_ai.prompt ai.prompt llm.messages input request_data raw_input genkit:input
            """,
        "output_messages": """
            gen_ai.output.messages llm.output_messages gcp.vertex.agent.llm_response langfuse.observation.output mlflow.spanOutputs
            haystack.agent.step.llm.output haystack.component.output mastra.model_step.output gen_ai.completion response_data response
            genkit:output output
            """,
        "output_text": "gen_ai.response.text ai.response.text ai.result.text final_result ai.response.object",
        "output_calls": "ai.response.toolCalls",
        # A whole conversation in one attribute: inputs, then the last output.
        "conversations": "events all_messages_events pydantic_ai.all_messages agent.messages",
        # The last ones are names that people use by hand.
        "input_value": """
            langfuse.observation.input mlflow.spanInputs haystack.agent.input mastra.agent_run.input mastra.workflow_run.input ai.prompt
            genkit:input input.value traceloop.entity.input gen_ai.prompt gen_ai.input.messages crew_tasks crewai.task.description
            crewai.crew.tasks input question query prompt user_input user.input user.question user.query agent.input agent.question
            agent.query request.text
            """,
        "output_value": """
            langfuse.observation.output mlflow.spanOutputs haystack.agent.output mastra.agent_run.output mastra.workflow_run.output
            ai.response.text genkit:output output.value traceloop.entity.output gen_ai.completion gen_ai.output.messages
            crewai.crew.result output answer reply final_answer agent.output agent.answer agent.response agent.reply response.text
            """,
        "http_status": "http.response.status_code http.status_code",
        "n8n": " ".join((N8N_NAME, N8N_TYPE, N8N_STATUS, N8N_PARAMETERS, N8N_OUTPUT, N8N_ITEMS)),
    }.items()
}
"""The attributes that are read, by meaning."""
CARRIED: Final[dict[str, tuple[Part, ...]]] = {
    "kind": _ALL,
    "tool_name": CALL_PARTS,
    **dict.fromkeys(list_names("tool_arguments tool_result tool_call_id tool_errors tool_outcome"), ("tool_arguments", "tool_results")),
    **dict.fromkeys(list_names("input_tokens output_tokens total_tokens cached_tokens cache_write_tokens usage_objects"), ("usage",)),
    **dict.fromkeys(list_names("finish input_messages output_messages output_text output_calls conversations n8n"), _CONTENT),
    "input_value": ("input", "turns"),
    "output_value": ("answer", "nodes", "turns"),
}
"""The parts that an attribute carries, by meaning; other attributes carry none."""
OFFERED_LISTS: Final = split_words("ai.prompt.tools gen_ai.tool.definitions")
GENAI_PREFIXES: Final = list_names("""
    gen_ai. llm. openinference. traceloop. langfuse. mlflow. langsmith. haystack. mastra. ai. ag2. gcp.vertex.agent. tool. tool_call.
    pydantic_ai. mcp. agent. crewai. smolagents. dspy. genkit: llamaindex. input.value output.value
    """)
MACHINERY: Final = list_names("""
    service. telemetry. process. host. os. container. k8s. cloud. deployment. device. faas. otel. http. url. net. network.
    server. client. peer. rpc. db. messaging. user_agent. tls. dns. error. exception. code. thread. log. event. enduser. user.
    session. graphql. feature_flag. openai. aws. azure. az. logfire. sentry. operation. resource. jsonrpc. metadata
    gen_ai.request. gen_ai.usage. gen_ai.agent. gen_ai.system gen_ai.provider. gen_ai.openai. gen_ai.tool.type gen_ai.tool.desc
    gen_ai.tool.json_schema gen_ai.response.t gen_ai.response.s llm.request. llm.usage. llm.token_count. llm.tools. llm.provider
    llm.system ai.settings. ai.usage. ai.model. ai.request. ai.telemetry. ai.schema. mlflow.trace mlflow.experiment
    langfuse.trace. langfuse.observation.metadata. langsmith.metadata. langsmith.trace. langsmith.span. traceloop.association.
    traceloop.workflow. traceloop.entity.path traceloop.entity.version input.mime_type output.mime_type mcp.session.
    mcp.protocol. mcp.request. mcp.transport fastmcp. n8n. tag.
    """)
"""Prefixes of attributes for infrastructure and settings: unrecognised ones are neither listed nor examined."""
NOT_WORK: Final = list_names("""
    gen_ai.conversation.id gen_ai.agent. gen_ai.system gen_ai.provider.name gen_ai.request.model gen_ai.response.model gen_ai.usage.
    gen_ai.aggregated_usage. gen_ai.event. gen_ai.task.id llm.provider llm.system llm.model_name llm.token_count. llm.usage. ai.usage.
    agent.id traceloop.association. traceloop.workflow.name traceloop.entity.path traceloop.entity.version langfuse.trace. langfuse.session.
    langfuse.user. langfuse.internal. langfuse.version langfuse.release langfuse.env langfuse.observation.metadata. mlflow.trace
    mlflow.experimentId mcp.session.id mcp.protocol.version haystack.agent.step langsmith.metadata. langsmith.trace.
    gcp.vertex.agent.event_id gcp.vertex.agent.invocation_id gcp.vertex.agent.session_id
    """)
"""Prefixes of attributes that name an agent, a conversation or a model and may be on any span."""

# --- kinds of spans

KINDS: Final = {
    word: kind
    for kind, words in {
        "tool": "execute_tool tool function tool_call mcp_tool_call provider_tool_call client_tool_call ai.toolCall tools/call",
        "model": """
            chat completion text_completion generate_content llm generation chat_model model model_inference model_step
            responses message messages ai.generateText.doGenerate ai.streamText.doStream ai.generateObject.doGenerate
            ai.streamObject.doStream
            """,
        "agent": "invoke_agent agent agent_run ai.generateText ai.streamText ai.generateObject ai.streamObject",
        "create_agent": "create_agent",
        "embedding": "embeddings embedding ai.embed ai.embedMany ai.embed.doEmbed ai.embedMany.doEmbed embedder",
        "retriever": """
            retriever retrieval reranker rerank ai.rerank ai.rerank.doRerank memory rag search_memory create_memory
            update_memory upsert_memory delete_memory create_memory_store delete_memory_store
            """,
        "workflow": "invoke_workflow workflow workflow_run flow invoke_swarm invoke_graph",
        "chain": "chain runnable prompt parser prompt_template",
        "task": """
            agent_handoff plan task execute_task step agent_step execute_event_loop_cycle workflow_step model_generation turn
            handoff
            """,
        "step": """
            span event generic unknown guardrail evaluator evaluation processor_run model_chunk guardrail_check run_guardrail
            usage human_input code_execution_step speaker_selection action util custom
            """,
        "mcp": """
            session initialize ping tools/list server/discover resources/list prompts/list logging/setLevel resources/read
            resources/templates/list prompts/get completion/complete notifications/initialized
            """,
    }.items()
    for word in words.split()
}
"""Words of the conventions for the kind of a span, as written or in lower case, and ours.

`agent` and `model` spans hold conversations, `tool` spans are calls; the others are steps around them.
"""
CLOSED_KINDS: Final = {
    "openinference.span.kind": split_words("agent chain embedding evaluator guardrail llm prompt reranker retriever tool unknown")
}
"""Conventions with a closed list of kinds: words of other conventions are not theirs."""
TOOL_MARKS: Final = split_words("ai.toolCall.name gen_ai.tool.name haystack.tool.name")
MODEL_MARKS: Final = split_words("gcp.vertex.agent.llm_request gen_ai.request.model llm.model_name")
OUTPUT_TOOLS: Final = frozenset(("FinalAnswerTool",))
"""Names of tool spans whose tool only returns the answer (smolagents)."""
OUTPUT_LISTS: Final = "model_request_parameters"
"""The attribute that lists the offered tools which only return the answer as `output_tools` (Pydantic AI)."""
NOT_REQUESTS: Final = ("._prepare_chat_with_tools",)
"""Suffixes of spans that are marked as requests to a model and only prepare one (LlamaIndex)."""
NOT_TOOLS: Final = frozenset(("(merged tools)", "mcp_tools"))
"""ADK repeats parallel calls in one span, and OpenAI's agents list the tools of a server in one: neither is a call."""

# --- single attributes

TOOL_ENTITY: Final = "traceloop.entity.name"
USAGE_TEXT: Final = "crewai.crew.token_usage"
USAGE_IN_OUTPUT: Final = ("haystack.agent.step.llm.output", "haystack.component.output", "genkit:output")
CHOICES: Final = "gen_ai.request.choice.count"
BETA: Final = "anthropic.beta"
"""Where a client lists the beta features it uses; MCP servers are one of them."""
CONVERSATION: Final = list_names("""
    gen_ai.conversation.id session.id langfuse.session.id mlflow.trace.session conversation.id traceloop.association.properties.session_id
    langsmith.trace.session_id gcp.vertex.agent.session_id user.session.id
    """)

# --- messages

ONLY_MESSAGES: Final = split_words("ai.prompt.messages gen_ai.input.messages gen_ai.output.messages")
INDEXED_INPUT: Final = list_names("llm.input_messages gen_ai.prompt llm.prompts")
"""Prefixes of messages flattened into `prefix.0.role`, `prefix.0.content` (OpenInference: `prefix.0.message.role`)."""
INDEXED_OUTPUT: Final = list_names("llm.output_messages gen_ai.completion llm.choices")
INPUT_EVENTS: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.content.prompt": "user",
}
FAILED_EVENTS: Final = ("exception", "error")
"""Events that report an error of their span; people write the second one by hand."""
OUTPUT_EVENTS: Final = frozenset(("gen_ai.choice", "gen_ai.content.completion"))
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
"""An event with inputs and outputs, under the names of the attributes."""
READ_EVENTS: Final = (*INPUT_EVENTS, *OUTPUT_EVENTS, DETAILS_EVENT, "ai.stream.", "mlflow.", "exception")
"""Prefixes of events that are read, or contain no calls."""
EVENT_CONTENT: Final = list_names("gen_ai.event.content body message content gen_ai.prompt gen_ai.completion")

ERROR_TYPE: Final = "error.type"
STATUS_CODE: Final = "otel.status_code"
FAILURES: Final = (ERROR_TYPE, "exception.type", "exception.message", STATUS_CODE, "error", "error.message")
"""Attributes that mark a failed span, whatever its status is."""
TOOL_ERROR: Final = "tool_error"
"""`error.type` of an MCP call whose result has `isError`."""

# --- instrumentations by scope: the data that each of them omits. A newly found gap is one more name here, with a row in
# `tests/evidence/cases/span_gaps.yaml`.

DROPS_HOSTED: Final = split_words("""
    @traceloop/instrumentation-openai openlit.instrumentation.anthropic openlit.instrumentation.openai
    opentelemetry.instrumentation.anthropic opentelemetry.instrumentation.openai.v1 opentelemetry.instrumentation.openai_agents
    """)
"""They do not record calls that a provider runs itself."""
NAMES_SERVERS: Final = {"opentelemetry.instrumentation.anthropic": "com.anthropic.sdk.python"}
"""Those among them that record every offered tool except those of MCP servers, with the scope of the client span that names the beta."""
RUNS_NO_TOOLS: Final = {
    "gen_ai.operation.name": ("text_completion", "completion"),
    "llm.request.type": ("completion",),
    "openai.api.type": ("chat_completions",),
}
"""Attributes of OpenAI endpoints that run no tools of their own."""
KEEPS_ONE_CALL: Final = frozenset(("openlit.instrumentation.openai",))
"""They record one call of a Responses answer, even if it has several."""
NAMES_ENDS: Final = frozenset(("opentelemetry.instrumentation.openai.v1",))
"""They record why an answer ended, unless it was cut."""
DROPS_CALLS: Final = split_words("opentelemetry.instrumentation.mistralai opentelemetry.instrumentation.together")
"""They record the text of a model and never its calls."""
UNRELIABLE: Final = frozenset(("opentelemetry.instrumentation.haystack",))
"""Their messages are wrong (the word `replies` in place of the answer) and count as not captured."""
