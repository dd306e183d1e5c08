"""What the names of a span's attributes determine, computed once for each set of names, and the decoding of their values."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD
from proctor.evidence.traces import vocabulary
from proctor.evidence.values.access import list_of
from proctor.evidence.values.json_bytes import decode_container, decode_embedded
from proctor.evidence.values.near_miss import is_misspelt
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json
from proctor.model.missing import MISSING

Names = dict[str, tuple[str, ...]]
_MAX_CACHED_NAMES = 200
"""Attributes of a span whose shape is cached; a sender who invents names must not fill the memory."""
_ALL: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "usage", "nodes", "turns")
_INSIDE: tuple[Part, ...] = ("tool_arguments", "tool_results")
_CONTENT: tuple[Part, ...] = (*CALL_PARTS, "answer", "nodes", "turns")
_TABLES: dict[str, tuple[tuple[str, ...], tuple[Part, ...]]] = {
    "kind": (vocabulary.KIND, _ALL),
    "tool_name": ((*vocabulary.TOOL_NAME, vocabulary.TOOL_ENTITY), CALL_PARTS),
    "tool_arguments": (vocabulary.TOOL_ARGUMENTS, _INSIDE),
    "tool_result": (vocabulary.TOOL_RESULT, _INSIDE),
    "tool_call_id": (vocabulary.TOOL_CALL_ID, _INSIDE),
    "tool_errors": ((*vocabulary.TOOL_ERRORS, vocabulary.ERROR_TYPE), _INSIDE),
    "tool_status": ((vocabulary.TOOL_STATUS,), _INSIDE),
    "tool_server": (vocabulary.TOOL_SERVER, ()),
    "input_tokens": (vocabulary.INPUT_TOKENS, ("usage",)),
    "output_tokens": (vocabulary.OUTPUT_TOKENS, ("usage",)),
    "total_tokens": (vocabulary.TOTAL_TOKENS, ("usage",)),
    "cached_tokens": (vocabulary.CACHED_TOKENS, ("usage",)),
    "cache_write_tokens": (vocabulary.CACHE_WRITE_TOKENS, ("usage",)),
    "usage_objects": ((*vocabulary.USAGE_OBJECTS, vocabulary.USAGE_TEXT), ("usage",)),
    "model_name": (vocabulary.MODEL_NAME, ()),
    "response_id": (vocabulary.RESPONSE_ID, ()),
    "finish": (vocabulary.FINISH_REASONS, _CONTENT),
    "parameters": (vocabulary.PARAMETERS, ()),
    "offered": ((*vocabulary.OFFERED, vocabulary.OUTPUT_LISTS), ()),
    "agent_name": (vocabulary.AGENT_NAME, ()),
    "input_messages": (vocabulary.INPUT_MESSAGES, _CONTENT),
    "output_messages": (vocabulary.OUTPUT_MESSAGES, _CONTENT),
    "output_text": (vocabulary.OUTPUT_TEXT, _CONTENT),
    "output_calls": ((vocabulary.OUTPUT_CALLS,), _CONTENT),
    "conversations": (vocabulary.CONVERSATIONS, _CONTENT),
    "input_value": (vocabulary.INPUT_VALUE, ("input", "turns")),
    "output_value": (vocabulary.OUTPUT_VALUE, ("answer", "nodes", "turns")),
    "http_status": (vocabulary.HTTP_STATUS, ()),
    "n8n": (vocabulary.N8N, _CONTENT),
}
"""The attributes that are read, with the parts that they carry."""
_INDEX: dict[str, list[tuple[str, int]]] = {}
for _table, (_names, _) in _TABLES.items():
    for _rank, _name in enumerate(_names):
        _INDEX.setdefault(_name, []).append((_table, _rank))
_NONE: Names = dict.fromkeys(_TABLES, ())
_MESSAGES = ("input_messages", "output_messages", "output_text", "output_calls", "conversations")
_PASSED = frozenset(("arguments", "args", "parameters", "tool_input"))
_BY_LENGTH: dict[int, list[str]] = {}
for _name in _INDEX:
    if not _name.isalpha():  # A plain word (`output`) is too close to others (`outputs`).
        _BY_LENGTH.setdefault(len(_name), []).append(_name)
_INDEXED_INPUT = tuple(f"{name}." for name in vocabulary.INDEXED_INPUT)
_INDEXED_OUTPUT = tuple(f"{name}." for name in vocabulary.INDEXED_OUTPUT)
_RECOGNISED = frozenset((*_INDEX, *vocabulary.CONVERSATION, vocabulary.CHOICES, vocabulary.BETA, NOT_UNDERSTOOD, "haystack.component.type"))
_NOT_LISTED = (
    *(*_INDEXED_INPUT, *_INDEXED_OUTPUT),
    *vocabulary.list_names("""
        service. telemetry. process. host. os. container. k8s. cloud. deployment. device. faas. otel. http. url. net. network.
        server. client. peer. rpc. db. messaging. user_agent. tls. dns. error. exception. code. thread. log. event. enduser. user.
        session. graphql. feature_flag. openai. aws. azure. az. logfire. sentry. operation. resource. jsonrpc. metadata
        gen_ai.request. gen_ai.usage. gen_ai.agent. gen_ai.system gen_ai.provider. gen_ai.openai. gen_ai.tool.type gen_ai.tool.desc
        gen_ai.tool.json_schema gen_ai.response.t gen_ai.response.s llm.request. llm.usage. llm.token_count. llm.tools. llm.provider
        llm.system ai.settings. ai.usage. ai.model. ai.request. ai.telemetry. ai.schema. mlflow.trace mlflow.experiment
        langfuse.trace. langfuse.observation.metadata. langsmith.metadata. langsmith.trace. langsmith.span. traceloop.association.
        traceloop.workflow. traceloop.entity.path traceloop.entity.version input.mime_type output.mime_type mcp.session.
        mcp.protocol. mcp.request. mcp.transport fastmcp. n8n. tag.
        """),
)
"""Prefixes of attributes that describe machinery and settings: unrecognised ones are neither listed nor examined."""
_NOT_WORK = vocabulary.list_names("""
    gen_ai.conversation.id gen_ai.agent. gen_ai.system gen_ai.provider.name gen_ai.request.model gen_ai.response.model gen_ai.usage.
    gen_ai.aggregated_usage. gen_ai.event. gen_ai.task.id llm.provider llm.system llm.model_name llm.token_count. llm.usage. ai.usage.
    agent.id traceloop.association. traceloop.workflow.name traceloop.entity.path traceloop.entity.version langfuse.trace. langfuse.session.
    langfuse.user. langfuse.internal. langfuse.version langfuse.release langfuse.env langfuse.observation.metadata. mlflow.trace
    mlflow.experimentId mcp.session.id mcp.protocol.version haystack.agent.step langsmith.metadata. langsmith.trace.
    gcp.vertex.agent.event_id gcp.vertex.agent.invocation_id gcp.vertex.agent.session_id
    """)
"""Prefixes of attributes that name an agent, a conversation or a model and may be on any span."""
_SPEAKING = frozenset((*vocabulary.OUTPUT_TEXT, "all_messages_events", "gen_ai.output.messages", "gen_ai.input.messages"))
_TEXTS = frozenset((*vocabulary.KIND, *vocabulary.TOOL_MARKS, *vocabulary.OUTPUT_TEXT, *vocabulary.N8N[:3], NOT_UNDERSTOOD))
_COUNTS = frozenset((*vocabulary.INPUT_TOKENS, *vocabulary.OUTPUT_TOKENS, *vocabulary.TOTAL_TOKENS))

_TYPES: dict[str, type] = {**dict.fromkeys(_TEXTS, str), **dict.fromkeys(_COUNTS, int), NOT_UNDERSTOOD: object}


class Shape:
    """The known attributes of a span by what they are, each tuple in the order of the vocabulary."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        found: dict[str, list[tuple[int, str]]] = {}
        for key in keys:
            for table, rank in _INDEX.get(key, ()):
                found.setdefault(table, []).append((rank, key))
        self.names: Names = {**_NONE, **{table: tuple(key for _, key in sorted(ranked)) for table, ranked in found.items()}}
        self.indexed_input = any(key.startswith(_INDEXED_INPUT) for key in keys)
        self.indexed_output = any(key.startswith(_INDEXED_OUTPUT) for key in keys)
        self.indexed_tools = any(key.startswith("llm.tools.") for key in keys)
        self.tool_marks = tuple(key for key in keys if key in vocabulary.TOOL_MARKS)
        self.has_model_mark = not vocabulary.MODEL_MARKS.isdisjoint(keys)
        self.has_agent_mark = not _SPEAKING.isdisjoint(keys)
        self.only_messages = tuple(key for key in keys if key in vocabulary.ONLY_MESSAGES)
        self.counts = tuple(key for key in keys if key in _COUNTS)
        self.typed = tuple((key, _TYPES[key]) for key in keys if key in _TYPES)
        """Attributes that must be texts or counts, and the one that names a field which cannot be read."""
        inputs, outputs = self.names["input_tokens"], self.names["output_tokens"]
        self.only_counts = (inputs[0], outputs[0]) if len(inputs) == len(outputs) == 1 and len(self.counts) == 2 else None
        """The attributes with the tokens if there are exactly two, one for each direction, and none of cached ones."""
        if self.names["cached_tokens"] or self.names["cache_write_tokens"]:
            self.only_counts = None
        self.unrecognised = tuple(key for key in keys if not is_recognised(key))
        """Attributes that are not read, for rule b; those of machinery and settings are left out."""
        self.near_misses = tuple((key, parts) for key in keys if key not in _RECOGNISED and (parts := find_near_parts(key)))
        """Attributes that are one letter away from one that is read, and the parts which that carries."""
        self.failures = tuple(key for key in vocabulary.FAILURES if key in keys)
        separate = bool(self.names["output_text"] or self.names["output_calls"])
        self.answers = len(self.names["output_messages"]) + self.indexed_output + separate
        """In how many places an answer may be."""
        self.work = NOT_UNDERSTOOD if NOT_UNDERSTOOD in keys else next((key for key in keys if is_work(key)), None)
        """The first attribute that describes the work of an agent."""
        self.passes_arguments = any(key.rpartition(".")[2] in _PASSED for key in keys)
        self.has_content = "output.value" in keys or self.indexed_input or self.indexed_output or any(map(self.names.get, _MESSAGES))


def is_recognised(key: str) -> bool:
    """Return whether an attribute is read, or describes machinery or settings."""
    return key in _RECOGNISED or key.startswith(_NOT_LISTED)


def is_work(key: str) -> bool:
    """Return whether an attribute describes the work of an agent."""
    return key.startswith(vocabulary.GENAI_PREFIXES) and not key.startswith(_NOT_WORK)


def may_hold_content(key: str) -> bool:
    """Return whether an attribute of a span or an event may hold calls, results or text that is read."""
    if key in vocabulary.EVENT_CONTENT or key.startswith((*_INDEXED_INPUT, *_INDEXED_OUTPUT)):
        return True
    return any(_TABLES[table][1] for table, _ in _INDEX.get(key, ()))


@functools.lru_cache(maxsize=4096)
def find_near_parts(key: str) -> tuple[Part, ...]:
    """Return the parts carried by the attribute that a name nearly is: `gen_ai.tool.namez`."""
    names = [name for length in range(len(key) - 1, len(key) + 2) for name in _BY_LENGTH.get(length, ())]
    near = next((name for name in names if is_misspelt(key, (name,))), None)
    return tuple(dict.fromkeys(part for table, _ in _INDEX[near] for part in _TABLES[table][1])) if near is not None else ()


_recall_shape = functools.lru_cache(maxsize=1024)(Shape)
_EMPTY = Shape(())


def find_shape(attributes: dict[str, Json]) -> Shape:
    """Return the shape of a span with these attributes."""
    if not attributes:
        return _EMPTY
    keys = tuple(attributes)
    return _recall_shape(keys) if len(keys) <= _MAX_CACHED_NAMES else Shape(keys)


_CONVENTIONS = {name: (tuple(marks.split()), tuple(scopes.split())) for name, (marks, scopes) in vocabulary.CONVENTIONS.items()}


def list_conventions(keys: Iterable[str], scopes: Iterable[str]) -> list[str]:
    """Return the conventions that attributes or scopes belong to."""
    return [
        name
        for name, (marks, prefixes) in _CONVENTIONS.items()
        if any(scope.startswith(prefixes) for scope in scopes) or any(key.startswith(marks) for key in keys)
    ]


# --- values

_NUMBER = re.compile(r"^\d{1,4}$")
_MAX_SEGMENTS = 16
"""Levels of a flattened name; the conventions need eight."""


def decode_attribute(attributes: dict[str, Json], key: str) -> Json:
    """Return the value of an attribute: a structure from its JSON text, a text without its quotes."""
    value = attributes.get(key)
    return unquote(decode_container(value)) if isinstance(value, str) else value


def unquote(value: Json) -> Json:
    """Return a text without its quotes: MLflow writes every attribute as JSON."""
    if isinstance(value, str) and value[:1] == '"':
        inner = decode_embedded(value)
        return value if inner is MISSING else inner
    return value


def find_value(attributes: dict[str, Json], keys: tuple[str, ...]) -> Json:
    """Return the first value under these keys that is not null."""
    for key in keys:
        if attributes[key] is not None:
            return attributes[key]
    return None


def find_decoded(attributes: dict[str, Json], keys: tuple[str, ...]) -> tuple[Json, Json]:
    """Return the first value under these keys that is neither null nor empty, decoded and as it is written."""
    for key in keys:
        value = decode_attribute(attributes, key)
        if value not in (None, "", "null"):
            return value, attributes[key]
    return None, None


def unflatten(attributes: dict[str, Json], prefix: str) -> list[Json]:
    """Return a list of nested objects from attributes such as `prefix.0.message.role`."""
    start = f"{prefix}."
    flat = {key[len(start) :]: value for key, value in attributes.items() if key.startswith(start)}
    return list_of(_nest(flat, 0)) if flat else []


def _nest(flat: dict[str, Json], depth: int) -> Json:
    """Return nested values from names with dots: numbers index lists, everything else is a field."""
    if depth > _MAX_SEGMENTS:
        return flat
    groups: dict[str, dict[str, Json]] = {}
    inner: dict[str, Json] = {}
    for key, value in flat.items():
        head, dot, rest = key.partition(".")
        if dot:
            groups.setdefault(head, {})[rest] = value
        else:
            inner[head] = value
    inner |= {head: _nest(group, depth + 1) for head, group in groups.items()}
    # By number: exporters write attributes in any order, and as texts "10" comes before "2".
    if inner and all(_NUMBER.match(head) for head in inner):
        return [inner[head] for head in sorted(inner, key=int)]
    # OpenInference puts each message and each part under one more name (`0.message.role`).
    for wrapper in ("message", "tool_call", "message_content", "completion", "prompt"):
        if set(inner) == {wrapper} and isinstance(inner[wrapper], dict):
            return inner[wrapper]
    return inner
