"""What a trace is made of, for whoever wants to know what was understood of it: `proctor describe trace FILE`.

Counted are spans by kind, requests to models with and without their content, tools, conversations, and attributes that no reader
uses. An attribute is *understood* when some table of `vocabulary` names it, or when it belongs to the general conventions of
OpenTelemetry and the settings of a request, which tell of nothing an agent did. Whatever else there is gets named, those that look
like an agent's work first, and counted by vocabulary: the word before the first dot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from proctor.evidence import vocabulary as names
from proctor.evidence.shape import text_or_none
from proctor.evidence.span_evidence import speaks
from proctor.evidence.span_exchanges import find_exchanges
from proctor.evidence.span_step import could_tell_of_work
from proctor.evidence.span_tool import tool_call_of_span
from proctor.evidence.span_tree import SpanTree
from proctor.evidence.spans import NOT_UNDERSTOOD, Span
from proctor.model.show import shorten

MOST_NAMED = 100
"""How many attributes, scopes, tools and other names a survey lists; the rest is counted."""
_LONGEST = 120

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


class Counted(msgspec.Struct, frozen=True):
    """A name and how often it occurs."""

    name: str
    count: int


class TraceSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace is made of."""

    spans: int
    conventions: list[Counted]
    """The conventions found, with the number of spans that speak each."""
    scopes: list[Counted]
    """The instrumentations that wrote the spans."""
    kinds: list[Counted]
    """Spans by what they are; `other` tells of no agent's work, `not understood` could and is not understood."""
    requests: int
    """Requests to models, each once although several spans may tell of it."""
    requests_with_content: int
    """Those whose answer was captured."""
    tools: list[Counted]
    """Spans of tools, by the name of the tool."""
    conversations: list[str]
    """The ids of the conversations the spans say they belong to."""
    strange: list[str]
    """Pieces of messages that nobody understood."""
    not_understood: list[Counted]
    """Attributes that no reader uses, those that could tell of an agent's work first."""
    vocabularies: list[Counted]
    """Vocabularies that nobody knows, by the number of their attributes in this trace."""
    left_out: int = 0
    """How many more names there are than are listed."""


def survey_trace(spans: Sequence[Span]) -> TraceSurvey:
    """Return what a trace is made of."""
    tree = SpanTree(spans)
    exchanges = find_exchanges(tree)
    attributes = Counter(key for span in tree.spans for key in span.attributes if not is_understood(key))
    unknown = sorted(attributes.items(), key=lambda entry: (not _looks_like_work(entry[0]), -entry[1], entry[0]))
    foreign = Counter(_vocabulary(key) for span in tree.spans for key in span.attributes if not is_understood(key) and _is_foreign(key))
    tools = Counter(tool_call_of_span(span, None).name for span in tree.of_kind("tool"))
    scopes = Counter(span.scope or "(not named)" for span in tree.spans)
    strange = list(dict.fromkeys(what for exchange in exchanges for step in exchange.steps for what in step.strange))
    talks = list(dict.fromkeys(talk for span in tree.spans for talk in _conversations(span)))
    listed = (unknown, foreign, tools, scopes, strange, talks)
    return TraceSurvey(
        spans=len(tree.spans),
        conventions=_counted((name, count) for name, count in _conventions(tree.spans).items() if count),
        scopes=_counted(scopes.most_common()),
        kinds=_counted(Counter(_kind(tree, span) for span in tree.spans).most_common()),
        requests=len(exchanges),
        requests_with_content=sum(bool(exchange.said) for exchange in exchanges),
        tools=_counted(tools.most_common()),
        conversations=[shorten(talk, _LONGEST) for talk in talks[:MOST_NAMED]],
        strange=[shorten(what, _LONGEST) for what in strange[:MOST_NAMED]],
        not_understood=_counted(unknown),
        vocabularies=_counted(foreign.most_common()),
        left_out=sum(max(0, len(some) - MOST_NAMED) for some in listed),
    )


def _counted(entries: Iterable[tuple[str, int]]) -> list[Counted]:
    return [Counted(shorten(name, _LONGEST), count) for name, count in list(entries)[:MOST_NAMED]]


def _kind(tree: SpanTree, span: Span) -> str:
    kind = tree.kind(span)
    if kind is None or kind == "unknown":
        return "other" if could_tell_of_work(span) is None else "not understood"
    return kind


def _conventions(spans: Sequence[Span]) -> dict[str, int]:
    return {convention.name: sum(speaks(span, convention) for span in spans) for convention in names.CONVENTIONS}


def _conversations(span: Span) -> Iterable[str]:
    for key in CONVERSATION:
        id = text_or_none(span.attributes.get(key))
        if id:
            yield id


def is_understood(key: str) -> bool:
    """Return whether an attribute is used by a reader, or known to tell of nothing an agent did."""
    return key in _UNDERSTOOD or key.startswith(_PREFIXES)


def _looks_like_work(key: str) -> bool:
    return key == NOT_UNDERSTOOD or key.startswith(names.GENAI_PREFIXES)


def _is_foreign(key: str) -> bool:
    return "." in key and not _looks_like_work(key) and _vocabulary(key) not in _VOCABULARIES


def _vocabulary(key: str) -> str:
    return key.partition(".")[0]


def _names_of(value: object) -> Iterable[str]:
    """The attributes that one table of the vocabulary names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, frozenset, set)):
        for entry in value:  # pyright: ignore[reportUnknownVariableType] - whatever a table holds, only its texts are names
            if isinstance(entry, str):
                yield entry


_NOT_ATTRIBUTES = frozenset(
    ("GENAI_PREFIXES", "HARMLESS_PREFIXES", "NOT_TOOLS", "DROPS_HOSTED", "EVENT_SAID", "EVENT_DETAILS", "TOOL_ERROR")
)
_UNDERSTOOD = frozenset(
    (
        *(name for table, value in vars(names).items() if table.isupper() and table not in _NOT_ATTRIBUTES for name in _names_of(value)),
        *CONVERSATION,
    )
)
_PREFIXES = (
    *(f"{name}." for name in (*names.GIVEN_INDEXED, *names.SAID_INDEXED)),
    *names.HARMLESS_PREFIXES,
    *GENERAL,
    *SETTINGS,
    "n8n.",
)
_VOCABULARIES = frozenset(_vocabulary(name) for name in (*_UNDERSTOOD, *(mark for one in names.CONVENTIONS for mark in one.marks)))
"""The words before the first dot that some reader knows."""
