"""Message lists of the providers: which provider's they are, and the evidence in them.

Accepted are a bare list of messages, `{"messages": [...]}` with keys of plain evidence beside it (`case`, `usage`, `now`, ...), and
the answers of the providers' endpoints as they come. Each provider is known by marks no other has; messages of nothing but role and text
are the same everywhere and are read as OpenAI's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence import mcplab, messages_ai_sdk, messages_anthropic, messages_gemini, messages_langchain, messages_openai
from proctor.evidence.conversation import Message, evidence_of
from proctor.evidence.plain import KEYS, read_plain
from proctor.evidence.shape import dict_of, list_of, object_at
from proctor.evidence.usage import usage_in
from proctor.model.evidence import Evidence, Json

PROVIDERS = ("openai", "responses", "anthropic", "gemini", "langchain", "ai-sdk")

_READERS: dict[str, Callable[[list[dict[str, Any]]], list[Message]]] = {
    "openai": messages_openai.read_chat,
    "responses": messages_openai.read_items,
    "anthropic": messages_anthropic.read,
    "gemini": messages_gemini.read,
    "langchain": messages_langchain.read,
    "ai-sdk": messages_ai_sdk.read,
}

# Keys of plain evidence that may stand beside messages; the others would contradict them.
BESIDE = frozenset(
    ("case", "context", "timezone", "now", "available_tools", "renders", "state", "http_status", "duration_ms", "error", "metadata")
)


def providers_of(document: Json) -> list[str]:
    """The providers whose marks a document bears; several if it mixes them, none if these are no messages."""
    if mcplab.sniff(document):
        # Its lines hold messages too, but say themselves what they are.
        return []
    if isinstance(document, dict):
        answers = [name for name, is_answer in _ANSWERS.items() if is_answer(document)]
        if answers:
            return answers
    found = _entries(document)
    if found is None or not all(_is_message(entry) for entry in found):
        return []
    marked = [name for name, is_marked in _MARKS.items() if any(is_marked(entry) for entry in found)]
    return marked or ["openai"]


def reader(provider: str) -> Callable[[Json], list[Evidence]]:
    """Reads a document of this provider."""
    return lambda document: [_read(document, provider)]


def _read(document: Json, provider: str) -> Evidence:
    entries = _all_entries(document, provider)
    messages = _READERS[provider]([object_at(entry, f"$[{index}]") for index, entry in enumerate(entries)])
    envelope = dict_of(document)
    evidence = evidence_of(messages, usage=usage_in(envelope))
    if provider == "ai-sdk":
        calls = messages_ai_sdk.with_failed_spans(evidence.tool_calls or (), envelope.get("spans"))
        evidence = msgspec.structs.replace(evidence, tool_calls=calls)
    return _with_envelope(evidence, envelope)


def _all_entries(document: Json, provider: str) -> list[Any]:
    if not isinstance(document, dict):
        return list_of(document)
    entries = list_of(document.get("messages"))
    if provider == "openai":
        return [*entries, *messages_openai.completion_messages(document)]
    if provider == "responses":
        return [*entries, *messages_openai.response_items(document)]
    if provider == "gemini":
        return [*entries, *messages_gemini.contents_of(document)]
    if provider == "anthropic" and messages_anthropic.is_message(document):
        return [*entries, document]
    return entries


def _with_envelope(evidence: Evidence, envelope: dict[str, Any]) -> Evidence:
    given = {key: value for key, value in envelope.items() if key in BESIDE and value is not None}
    tools = _offered(envelope.get("tools"))
    if tools and "available_tools" not in given:
        given["available_tools"] = tools
    ids = {key: envelope[key] for key in ("id", "model") if isinstance(envelope.get(key), str)}
    if not given and not ids:
        return evidence
    beside = read_plain(given)
    fields = {key: getattr(beside, key) for key in given if key in KEYS and key != "metadata"}
    return msgspec.structs.replace(evidence, **fields, metadata={**ids, **beside.metadata})


def _offered(tools: Json) -> list[str]:
    """Names of the tools a request offered, in each provider's spelling."""
    names: list[str] = []
    for tool in map(dict_of, list_of(tools)):
        declared = [tool, dict_of(tool.get("function")), *map(dict_of, list_of(tool.get("functionDeclarations")))]
        names.extend(entry["name"] for entry in declared if isinstance(entry.get("name"), str))
    return names


def _entries(document: Json) -> list[dict[str, Any]] | None:
    entries = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    # An empty bare list holds nothing at all; `{"messages": []}` is a conversation that never began.
    return None if not entries and not isinstance(document, dict) else entries


def _is_message(entry: dict[str, Any]) -> bool:
    if isinstance(entry.get("role"), str) and any(key in entry for key in ("content", "tool_calls", "function_call")):
        return True
    if "parts" in entry:
        return messages_gemini.marks(entry) or messages_ai_sdk.marks(entry)
    return messages_langchain.marks(entry) or messages_openai.is_item(entry)


def unreadable(document: Json) -> EvidenceError | None:
    """Why a list that begins like messages is none: the first entry that is not one."""
    found = _entries(document)
    if not found or not _is_message(found[0]):
        return None
    at = next((index for index, entry in enumerate(found) if not _is_message(entry)), None)
    where = "$.messages" if isinstance(document, dict) else "$"
    return None if at is None else EvidenceError(f"{where}[{at}]: not a message: it has no role with content, parts or tool calls")


_MARKS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "openai": messages_openai.marks_chat,
    "responses": messages_openai.is_item,
    "anthropic": messages_anthropic.marks,
    "gemini": messages_gemini.marks,
    "langchain": messages_langchain.marks,
    "ai-sdk": messages_ai_sdk.marks,
}

_ANSWERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "openai": messages_openai.is_completion,
    "responses": messages_openai.is_response,
    "anthropic": messages_anthropic.is_message,
    "gemini": messages_gemini.is_response,
}
