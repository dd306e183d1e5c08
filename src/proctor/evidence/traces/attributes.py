"""Which attributes of spans are understood: used by a reader, or known to tell of nothing an agent did.

An attribute is *understood* when some table of `vocabulary` names it, or when it belongs to the general conventions of OpenTelemetry and
the settings of a request. One of a vocabulary that nobody here knows (`customer.tier`) is its owner's; any other could be a misspelt one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeGuard

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD, Span
from proctor.evidence.shared.usage import read_count
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.values.near_miss import is_misspelt
from proctor.model.evidence import Json

CONVERSATION: Final = (
    *("gen_ai.conversation.id", "session.id", "langfuse.session.id", "mlflow.trace.session", "conversation.id"),
    *("traceloop.association.properties.session_id", "langsmith.trace.session_id", "gcp.vertex.agent.session_id", "user.session.id"),
)
"""Attributes that tell which conversation a trace belongs to."""

GENERAL: Final = (
    *("service.", "telemetry.", "process.", "host.", "os.", "container.", "k8s.", "cloud.", "deployment.", "device.", "faas.", "otel."),
    *("http.", "url.", "net.", "network.", "server.", "client.", "peer.", "rpc.", "db.", "messaging.", "user_agent.", "tls.", "dns."),
    *("error.", "exception.", "code.", "thread.", "log.", "event.", "enduser.", "user.", "session.", "graphql.", "feature_flag."),
    *("openai.api.", "openai.request.", "openai.response.", "aws.", "azure.", "az.", "logfire.", "sentry.", "operation.", "resource."),
)
"""How attributes of OpenTelemetry's general conventions begin: they tell of the machinery, not of an agent."""

SETTINGS: Final = (
    *(
        "gen_ai.request.",
        "gen_ai.openai.",
        "gen_ai.usage.",
        "gen_ai.client.",
        "gen_ai.token.",
        "gen_ai.agent.version",
        "gen_ai.evaluation.",
    ),
    *("gen_ai.response.time_to_first_", "gen_ai.response.service_tier", "gen_ai.response.system_fingerprint", "gen_ai.output.type"),
    *("gen_ai.system_instructions", "gen_ai.tool.type", "gen_ai.tool.description", "gen_ai.tool.json_schema", "gen_ai.workflow."),
    *("gen_ai.prompt.name", "gen_ai.data_source.", "gen_ai.execute_tool.duration", "gen_ai.server.time_"),
    *(
        "llm.request.functions.",
        "llm.headers",
        "llm.user",
        "llm.is_streaming",
        "llm.tools.",
        "llm.usage.",
        "llm.cost.",
        "llm.chat.",
        "llm.top_",
    ),
    *(
        "llm.prompt_template.",
        "llm.frequency_penalty",
        "llm.presence_penalty",
        "llm.request.reasoning_effort",
        "llm.request.structured_output",
    ),
    *("ai.settings.", "ai.model.", "ai.request.headers.", "ai.usage.", "ai.telemetry.", "ai.prompt.toolChoice", "ai.schema."),
    *("ai.response.timestamp", "ai.response.avg", "ai.response.msTo", "ai.response.providerMetadata"),
    *("mlflow.trace", "mlflow.experiment", "mlflow.message.format", "mlflow.chat.", "mlflow.llm.", "mlflow.spanLogLevel"),
    *(
        "langfuse.observation.metadata.",
        "langfuse.observation.level",
        "langfuse.observation.model.parameters",
        "langfuse.observation.prompt.",
    ),
    *("langfuse.observation.completion_start_time", "langfuse.observation.cost_details", "langfuse.observation.version", "langfuse.trace"),
    *("langfuse.environment", "langfuse.release", "langfuse.internal.", "langsmith.metadata.", "langsmith.trace.", "langsmith.span."),
    *(
        "traceloop.association.",
        "traceloop.prompt.",
        "metadata",
        "tag.tags",
        "mcp.session.",
        "mcp.protocol.",
        "mcp.request.id",
        "mcp.transport",
    ),
    *("jsonrpc.", "input.mime_type", "output.mime_type", "fastmcp.span.", "fastmcp.provider.", "fastmcp.component.type"),
)
"""How attributes begin that describe a request, an agent or a tool without telling what was done."""


N8N_EXPORTER: Final = ("n8n.workflow.", "n8n.execution.", "n8n.instance.", "n8n.project.", "n8n.node.custom.")
"""How attributes begin that n8n writes of itself and of a whole workflow."""
N8N_NODE: Final = frozenset(
    ("n8n.node.id", "n8n.node.type_version", "n8n.node.typeVersion", "n8n.node.items.input", "n8n.node.termination")
)


def is_understood(key: str) -> bool:
    """Return whether an attribute is used by a reader, or known to tell of nothing an agent did."""
    return key in _UNDERSTOOD or key.startswith(_PREFIXES)


def looks_like_work(key: str) -> bool:
    """Return whether an attribute belongs to a vocabulary of agents."""
    return key == NOT_UNDERSTOOD or key.startswith(names.GENAI_PREFIXES)


def could_be_said(key: str) -> bool:
    """Return whether an attribute may hold what was said, passed or returned, and is no setting."""
    return not key.startswith((*GENERAL, *SETTINGS))


def is_foreign(key: str) -> bool:
    """Return whether an attribute belongs to a vocabulary that nobody here knows."""
    return "." in key and not looks_like_work(key) and find_vocabulary(key) not in _VOCABULARIES


def find_vocabulary(key: str) -> str:
    """Return the word before the first dot of an attribute."""
    return key.partition(".")[0]


def find_misread_attribute(span: Span) -> str | None:
    """Return the first attribute of a span whose value is not the text or the token count that its name promises."""
    miscounted: str | None = None
    for key, value in span.attributes.items():
        if value is None:
            continue
        if key in _TEXTS:
            if not isinstance(value, str):
                return key
        elif miscounted is None and key in _COUNTS and read_count(value) is None:
            miscounted = key
    return miscounted


def mend_counts(attributes: dict[str, Json]) -> dict[str, Json]:
    """Return attributes of a table that holds texts alone with its token counts as numbers."""
    return {key: int(value) if key in _COUNTS and _is_digits(value) else value for key, value in attributes.items()}


def _is_digits(value: Json) -> TypeGuard[str]:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16


def find_strange_attribute(span: Span) -> str | None:
    """Return the first attribute of a span that could be misspelt: not understood, and of nobody's own vocabulary."""
    return next((key for key, value in span.attributes.items() if value is not None and is_strange(key)), None)


def is_strange(key: str) -> bool:
    """Return whether an attribute could be a misspelt one."""
    if is_understood(key):
        # Counts of tokens have many details, so that any name is understood among them but one that is nearly a count.
        return key.startswith(names.HARMLESS_PREFIXES) and is_misspelt(key, _COUNTS)
    return not is_foreign(key)


def _list_names(value: object) -> Iterable[str]:
    """Return the attributes that one table of the vocabulary names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, frozenset, set)):
        for entry in value:  # pyright: ignore[reportUnknownVariableType] - whatever a table holds, only its texts are names
            if isinstance(entry, str):
                yield entry


_NOT_ATTRIBUTES = frozenset(
    (
        "GENAI_PREFIXES",
        "HARMLESS_PREFIXES",
        "NOT_TOOLS",
        "OUTPUT_TOOLS",
        "EVENT_SAID",
        "EVENT_DETAILS",
        "EVENTS_BESIDE",
        "TOOL_ERROR",
    )
)
# Every table of the vocabulary in capitals, so that a name that is added
# there is understood at once; `_NOT_ATTRIBUTES` are tables of other things.
_UNDERSTOOD = frozenset(
    (
        *(name for table, value in vars(names).items() if table.isupper() and table not in _NOT_ATTRIBUTES for name in _list_names(value)),
        *CONVERSATION,
        *N8N_NODE,
    )
)
_PREFIXES = (
    *(f"{name}." for name in (*names.GIVEN_INDEXED, *names.SAID_INDEXED)),
    *names.HARMLESS_PREFIXES,
    *GENERAL,
    *SETTINGS,
    *N8N_EXPORTER,
)
_VOCABULARIES = frozenset(find_vocabulary(name) for name in (*_UNDERSTOOD, *(mark for one in names.CONVENTIONS for mark in one.marks)))
"""The words before the first dot that some reader knows."""

_TEXTS = frozenset((*names.KIND, *names.TOOL_MARKS, *names.SAID_TEXT, names.N8N_NAME, names.N8N_TYPE, names.N8N_STATUS))
"""Attributes that are texts."""
_COUNTS = frozenset((*names.INPUT_TOKENS, *names.OUTPUT_TOKENS, *names.TOTAL_TOKENS))
"""Attributes that are counts of tokens."""
