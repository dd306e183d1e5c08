"""Harmless fields, and the places of a document that may contain them.

A place is an object of the format, or a list of attributes. What belongs to the agent or its tools (arguments, results, answers, inputs,
state) holds no places: a field in there is one more value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.evidence import framework_facts, message_samples
from tests.evidence.mutants import JSON, Mutation, Place, apply
from tests.evidence.mutations import PAYLOAD
from tests.tables import load

SAMPLES = Path(__file__).parent / "samples"
NAMES = (
    *("is_cached", "cache_hint", "billing", "service_tier_v2", "moderation", "latency_breakdown", "x_request_cost", "trace_flags"),
    *("safety_ratings", "prompt_cache_key", "audio_timestamps", "region_hint", "reasoning_effort_used", "experiment", "vendor_extensions"),
    *("queueTimeMs", "modelRevision", "isBeta", "rateLimitBucket", "tenantId", "carbon_grams", "speculative_tokens", "shard", "priority"),
    *("accelerator", "citations_enabled", "watermark", "promptVersion", "data_residency", "routing_hints", "ab_bucket", "token_logprobs"),
)
"""Fields as providers invent them. None resembles a field of calls or of the answer, none reports a loss or a failure."""
ATTRIBUTES = (
    *("gen_ai.vendor.cache_hint", "gen_ai.request.region_hint", "llm.vendor.billing", "vendor.is_cached", "host.accelerator"),
    *("ai.settings.priority", "app.tenant_id", "deployment.shard", "traceloop.vendor.experiment", "openinference.vendor.moderation"),
)
"""Attributes of spans as providers invent them; the names above are used as well."""
VALUES: tuple[Any, ...] = (
    *(7, 0, 0.25, -1, True, False, None, "eu", "The request was served by a warm replica.", "2026-11-15T09:00:00Z"),
    *("6f1c2d34-8a75-4a2e-9a39-0c4a5b1f7e21", [], ["a", "b"], [1, 2.5], {}, {"hit": True, "ttl": 5}, {"region": "eu", "labels": ["a"]}),
    *({"cache": {"hit": False, "ttl": 5}}, [{"category": "hate", "probability": 0.01}], {"scores": [0.1, 0.2], "model": "guard-2"}),
)


class Document(NamedTuple):
    """One document of a format."""

    format: str
    name: str
    load: Callable[[], Any]
    read_as: str | None
    find_places: Callable[[Any], Iterator[Place]]


class Insertion(NamedTuple):
    """One field at one place."""

    place: Place
    name: str
    value: Any

    def into(self, document: Any) -> Any:
        """A copy of the document with the field."""
        change: Mutation = ("insert", self.place, self._insert)
        return apply(document, change)

    def _insert(self, target: Any) -> Any:
        if isinstance(target, dict):
            return {**target, self.name: self.value}
        return [*target, {"key": self.name, "value": any_value(self.value)}]

    def __str__(self) -> str:
        return f"{json.dumps({self.name: self.value})} at {'.'.join(map(str, self.place)) or '$'}"


def any_value(value: Any) -> dict[str, Any]:
    """A value as OTLP types it in JSON."""
    match value:
        case None:
            return {}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(entry) for entry in value]}}
        case _:
            return {"kvlistValue": {"values": [{"key": key, "value": any_value(entry)} for key, entry in value.items()]}}


def names_at(document: Any, place: Place) -> frozenset[str]:
    """The names that are taken at a place."""
    for step in place:
        document = json.loads(document) if step == JSON else document[step]
    return frozenset(document if isinstance(document, dict) else (entry["key"] for entry in document))


def is_attribute(place: Place) -> bool:
    return bool(place) and place[-1] == "attributes"


_SCHEMAS = frozenset(("schema", "input_schema", "inputSchema", "json_schema", "output_schema", "parsed", "properties"))
_STATES = frozenset(("state", "stateDelta", "state_delta", "session_state", "artifactDelta", "artifact_delta", "structured_output"))
_BY_ID = frozenset(("requestedAuthConfigs", "requested_auth_configs", "requestedToolConfirmations", "requested_tool_confirmations"))
_MESSAGES = PAYLOAD | _SCHEMAS | _STATES | _BY_ID | {"output", "outputs", "toolResult", "toolResponse", "tool_call_result"}
_RESULTS = re.compile(r"result|return|output$|^tool$|^function$", re.IGNORECASE)
"""Kinds and roles of what holds a result of a tool."""


def _walk(value: Any, place: Place, payload: frozenset[str], named: frozenset[str]) -> Iterator[Place]:
    """Every object, except inside of payload; `named` are objects whose keys are names."""
    if isinstance(value, dict):
        if not place or place[-1] not in named:
            yield place
        for key, member in value.items():
            if key not in payload:
                yield from _walk(member, (*place, key), payload, named)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _walk(member, (*place, index), payload, named)


def find_message_places(document: Any) -> Iterator[Place]:
    """The objects of a message list: messages, blocks, calls, usage."""
    yield from _inside_messages(document, ())


def _inside_messages(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from _inside_messages(member, (*place, index))
    if not isinstance(value, dict):
        return
    yield place
    is_result = any(_RESULTS.search(str(value.get(key))) for key in ("type", "part_kind", "role"))
    for key, member in value.items():
        # A Response lists its items under `output`, a session has its messages under `state`; elsewhere these belong to the agent.
        is_envelope = (key == "output" and not place and isinstance(member, list)) or (key == "state" and value.get("type") == "session")
        if key in _MESSAGES and not is_envelope:
            continue
        if is_result and key in ("content", "items") and not _is_list_of_results(member):
            continue
        yield from _inside_messages(member, (*place, key))


def _is_list_of_results(value: Any) -> bool:
    """Return whether a list contains blocks with results, and is not a result itself."""
    return isinstance(value, list) and all(
        isinstance(entry, dict) and any(_RESULTS.search(str(entry.get(key, ""))) for key in ("type", "content_type")) for entry in value
    )


_CAPTURED = frozenset(
    (
        *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions", "ai.prompt.messages"),
        *("ai.response.toolCalls", "pydantic_ai.all_messages", "all_messages_events", "llm.messages", "agent.messages"),
    )
)
"""Attributes that hold messages as text: what is in them is a format, too."""
_SPANS = frozenset(("body", "value", "input", "output", "arguments", "result", "messages", "data", "error"))


def find_span_places(document: Any) -> Iterator[Place]:
    """The objects of a trace, its lists of attributes, and the objects of messages captured in attributes."""
    yield from _inside_spans(document, ())


def _inside_spans(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from _inside_spans(member, (*place, index))
    if not isinstance(value, dict):
        return
    yield place
    for key, member in value.items():
        if key == "attributes":
            yield (*place, key)
            yield from _inside_attributes(member, (*place, key))
        elif key not in _SPANS:
            yield from _inside_spans(member, (*place, key))


_ANSWERS = {
    "output.value": ("openinference.span.kind", ("LLM",)),
    "langfuse.observation.output": ("langfuse.observation.type", ("generation",)),
    "mlflow.spanOutputs": ("mlflow.spanType", ("CHAT_MODEL", '"CHAT_MODEL"', "LLM", '"LLM"')),
}
"""Attributes that hold what a provider answered, if the span is one of a model."""


def _inside_attributes(attributes: Any, place: Place) -> Iterator[Place]:
    if isinstance(attributes, dict):
        found = [(key, (*place, key), value) for key, value in attributes.items()]
    else:
        found = [
            (entry["key"], (*place, index, "value", "stringValue"), entry.get("value", {}).get("stringValue"))
            for index, entry in enumerate(attributes)
        ]
    values = {key: value for key, _, value in found}
    for key, inner, value in found:
        kind, kinds = _ANSWERS.get(key, ("", ()))
        if key not in _CAPTURED and values.get(kind) not in kinds:
            continue
        if isinstance(value, str):
            try:
                value, inner = json.loads(value), (*inner, JSON)
            except ValueError:
                continue
        for step in _inside_messages(value, ()):
            # A list in an attribute is a list of messages, whose own `state` or `output` belong to the agent.
            yield (*inner, *step)


_CALLS = frozenset(("arguments", "args", "input", "toolInput", "result", "output", "toolOutput", "parameters"))
_PLAIN = _CALLS | {"metadata", "context", "body", "state", "error", "account", "tool_callz", "argumentz", "toolz"}
_MIBO = _CALLS | {"metadata", "externalMetadata", "context", "json", "items", "error", "runData", "booking", "made", "tool_callz"}
_N8N = frozenset(
    ("json", "parameters", "credentials", "settings", "pinData", "staticData", "executionData", "startData", "error", "connections")
)
_N8N_NAMED = frozenset(("runData",))
_FLOWISE = _CALLS | {"json", "state", "chatHistory", "availableTools", "error", "usedToolz"}
_UNUSED = frozenset(("empty-object", "whole-response-as-text", "what-the-phoenix-exporter-of-an-agentflow-sends"))
"""Rows without a known field, whose answer is the whole document, or that are traces."""


def _walker(payload: frozenset[str], named: frozenset[str] = frozenset()) -> Callable[[Any], Iterator[Place]]:
    return lambda document: _walk(document, (), payload, named)


def _rows(table: str, find_places: Callable[[Any], Iterator[Place]]) -> Iterator[Document]:
    for row in load(f"evidence/cases/{table}.yaml"):
        if "error" not in row and row["id"] not in _UNUSED:
            yield Document(table, row["id"], lambda row=row: _given(row), row.get("format"), find_places)


def _given(row: dict[str, Any]) -> Any:
    return msgspec.json.decode((SAMPLES / row["file"]).read_bytes()) if "file" in row else row["given"]


_FAMILIES = (
    *("ai-sdk", "agent-framework", "semantic-kernel", "pydantic-ai", "openai-agents", "openai-responses", "openai-assistants"),
    *("openai-functions", "openai-chat"),
)
_CONVENTIONS = ("oi", "traceloop", "langfuse", "langsmith", "logfire", "laminar", "genai", "mlflow", "openlit", "ai-sdk", "pydantic-ai")


def _recorded_messages() -> Iterator[Document]:
    for name in message_samples.NAMES:
        family = next((family for family in _FAMILIES if name.startswith(family)), name.split("-")[0])
        for scenario in message_samples.documents(name):
            yield Document(
                f"messages of {family}",
                f"{name} {scenario}",
                lambda name=name, scenario=scenario: message_samples.documents(name)[scenario],
                None,
                find_message_places,
            )


def _recorded_traces() -> Iterator[Document]:
    for path in sorted(framework_facts.FOLDER.glob("*.json")):
        if not path.name.startswith("truth"):
            words = path.stem.split("-")
            convention = next((c for c in _CONVENTIONS if c in words or path.stem.startswith(c)), "others")
            yield Document(
                f"traces of {convention}", path.stem, lambda path=path: msgspec.json.decode(path.read_bytes()), None, find_span_places
            )


@cache
def documents() -> dict[str, tuple[Document, ...]]:
    """Every document by its format."""
    found: dict[str, list[Document]] = {}
    every = (
        _rows("plain", _walker(_PLAIN)),
        _rows("mibo", _walker(_MIBO)),
        _rows("n8n", _walker(_N8N, _N8N_NAMED)),
        _rows("flowise", _walker(_FLOWISE)),
        _rows("mcplab", find_message_places),
        _rows("otlp", find_span_places),
        _rows("spans", find_span_places),
        _rows("messages", find_message_places),
        _rows("messages_gaps", find_message_places),
        _rows("messages_answers", find_message_places),
        _recorded_messages(),
        _recorded_traces(),
    )
    for document in (document for group in every for document in group):
        found.setdefault(document.format, []).append(document)
    return {format: tuple(group) for format, group in found.items()}
