"""Reads an answer that is a list of messages, the result of an SDK or the answer of a provider, without anybody naming its format.

Whether such an answer shows all calls of the run, its reader says; the answer of a provider shows its last step only.
"""

from __future__ import annotations

from proctor.evidence.messages.ai_sdk_steps import complete_last_step, is_result
from proctor.evidence.messages.formats import recognise_formats
from proctor.evidence.plain.record import CARRYING, read_plain
from proctor.evidence.reading import read_document
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.model.evidence import Evidence, Json
from proctor.targets.told_text import lay_text, split_messages


def read_told_messages(body: Json) -> Evidence | None:
    """Return the evidence of such an answer; None for every other. Raises `EvidenceError` where it cannot be read."""
    body = complete_last_step(body)
    beside = split_messages(dict_or_empty(body))
    if beside is not None:
        told = read_told_messages(beside[1])
        return None if told is None else lay_text(told, read_plain({"text": beside[0]}))
    format = _find_format(body)
    found = read_document(body, format=format) if format is not None else []
    return found[0] if len(found) == 1 else None


def _find_format(body: Json) -> str | None:
    if is_result(body):
        return "ai-sdk"
    entry = dict_or_empty(body)
    if not CARRYING.isdisjoint(entry):
        return None
    provider = name_provider(entry)
    if provider is not None:
        return provider
    if not isinstance(body, list) and not isinstance(entry.get("messages"), list):
        return None
    names = recognise_formats(body)
    return names[0] if len(names) == 1 else None


def name_provider(entry: dict[str, Json]) -> str | None:
    """Return the format in which a provider writes its answers, where a mapping is such an answer."""
    if _lists_objects_with(entry.get("choices"), "message"):
        return "openai"
    if entry.get("object") == "response" and isinstance(entry.get("output"), list):
        return "responses"
    if entry.get("type") == "message" and entry.get("role") == "assistant" and isinstance(entry.get("content"), list):
        return "anthropic"
    if _lists_objects_with(entry.get("candidates"), "content"):
        return "gemini"
    return "bedrock" if "message" in dict_or_empty(entry.get("output")) and "stopReason" in entry else None


def _lists_objects_with(value: Json, key: str) -> bool:
    listed = list_of(value)
    return bool(listed) and all(key in dict_or_empty(one) for one in listed)
