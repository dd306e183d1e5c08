"""Message lists of providers and frameworks: how each format is recognised, and the evidence in it.

Accepted are lists of messages, answers of providers, and envelopes of frameworks. Each format is recognised by marks that no other has;
messages of role and text alone are read as OpenAI's. Messages with marks of two formats are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages import ai_sdk, anthropic, frameworks, gemini, microsoft, openai, providers
from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, list_with_paths, read_all, without
from proctor.evidence.messages.markers import check_markers
from proctor.evidence.plain.record import KEYS, read_plain
from proctor.evidence.platforms import mcplab
from proctor.evidence.shared.conversation import NO_BEGINNING, Message, build_evidence
from proctor.evidence.shared.usage import HOLDERS, find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import find_failure
from proctor.evidence.unknowns.unrecognised import check_field, check_fields
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show

_MODULES = (openai, anthropic, gemini, frameworks, ai_sdk, providers, microsoft)
_SHOWN_LAST = ("pydantic-ai", "bedrock", "haystack", "agent-framework", "semantic-kernel", "autogen", "ag2", "llama-index", "adk", "cohere",
               "mistral", "agno", "smolagents", "beeai", "genkit")  # fmt: skip
_FOUND = [family for module in _MODULES for family in module.FORMATS]
_ALL = sorted(_FOUND, key=lambda family: _SHOWN_LAST.index(family.name) if family.name in _SHOWN_LAST else -1)

MESSAGE_FORMATS: dict[str, MessageFormat] = {family.name: family for family in _ALL}

# Fields of plain evidence that may be next to messages; the others would contradict them.
BESIDE = frozenset(
    ("case", "context", "timezone", "now", "available_tools", "renders", "state", "http_status", "duration_ms", "error", "metadata")
)
_TAKEN = frozenset((*HOLDERS, "tools", "id", "model", "spans", "input", "meta", "responseMetadata", "response_metadata"))
_ANSWERS = ("output", "answer", "response", "reply", "text", "final_output", "final_answer", "finalOutput")
"""Fields next to the messages that hold the answer a second time."""
_MAX_ENTRIES = 100


def recognise_formats(document: Json) -> list[str]:
    """Return the formats whose marks a document bears: several if it mixes them, none if these are no messages."""
    if mcplab.sniff(document):
        return []  # its lines hold messages, too
    # An envelope decides before the messages in it, which may look like another format's: several frameworks store OpenAI's form.
    opening = [family.name for family in _ALL if family.open_envelope(document) is not None]
    if opening:
        return _drop_extended(opening)
    found = _find_entries(document)
    if found is None:
        return []
    marked = _drop_extended([family.name for family in _ALL if any(family.marks(entry) for entry in found)])
    if marked:
        return marked
    if not all(_is_common(entry) for entry in found):
        return []
    return ["ag2"] if microsoft.is_ag2_history(found) else ["openai"]


def make_reader(name: str) -> Callable[[Json], list[Evidence]]:
    """Return the function that reads a document of this format."""
    return lambda document: [_read(document, MESSAGE_FORMATS[name])]


def find_broken_entry(document: Json) -> EvidenceError | None:
    """Return the error for a list that begins like messages but has an entry that is none, else None."""
    found = _find_entries(document)
    if not found or not _is_common(found[0]):
        return None
    at = next((index for index, entry in enumerate(found) if not _is_common(entry)), None)
    where = "$.messages" if isinstance(document, dict) else "$"
    return None if at is None else EvidenceError(f"{where}[{at}]: not a message: it has no role with content, parts or tool calls")


def _drop_extended(names: list[str]) -> list[str]:
    covered = {extended for name in names for extended in MESSAGE_FORMATS[name].extends}
    return [name for name in names if name not in covered]


def _find_entries(document: Json) -> list[dict[str, Any]] | None:
    entries = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    # An empty bare list holds nothing at all; `{"messages": []}` is a conversation that never began.
    return None if not entries and not isinstance(document, dict) else entries


def _is_common(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("role"), str) and any(key in entry for key in ("content", "text", "tool_calls", "function_call"))


def _read(document: Json, family: MessageFormat) -> Evidence:
    opened = family.open_envelope(document) or _open_plainly(document)
    unknowns = opened.unknowns
    entries: Entries = []
    for at, entry in opened.entries:
        if not isinstance(entry, dict):
            raise EvidenceError(f"{at}: expected a message, found {show(entry, 40)}")
        if family.name != "assistants" and openai.is_thread_entry(entry):
            # They do not record tools, so that read as another format they would show that none was called.
            raise EvidenceError(f"{at}: a message of OpenAI's Assistants API; name the format assistants with --evidence-format")
        entries.append((at, entry))
    messages = read_all(entries, unknowns, family.dialect) if family.read is None else family.read(entries, unknowns)
    if family.name == "langchain":
        messages = frameworks.finish_langchain(messages, opened.rest, unknowns)
    given = opened.rest.get("input")
    if isinstance(given, str) and not any(message.role == "user" for message in messages):
        messages = [Message(role="user", text=given), *messages]
    # MCPJam judges calls by its spans; results may be left out.
    promised = not (family.name == "ai-sdk" and "spans" in opened.rest)
    usage = opened.usage or find_usage(opened.rest)
    if usage is not None and usage.total_tokens is None and (usage.input_tokens is None or usage.output_tokens is None):
        unknowns.mark("usage", "$.usage: tokens of one kind are not reported")
    evidence = build_evidence(messages, unknowns, usage=usage, results_promised=promised)
    if family.name == "ai-sdk":
        calls = ai_sdk.mark_failed_calls(evidence.tool_calls or (), opened.rest.get("spans"))
        evidence = msgspec.structs.replace(evidence, tool_calls=calls)
    rest = without(opened.rest, *frameworks.LANGCHAIN_FINISHED) if family.name == "langchain" else opened.rest
    error = check_markers(document, entries, evidence.tool_calls or (), unknowns)
    evidence = _with_envelope(evidence, opened, rest, opened.error or find_failure(rest) or error, unknowns)
    # A response to a request that offered no tools cannot follow calls.
    if evidence.input is None and not opened.is_whole and not ("tools" in opened.rest and not opened.rest["tools"]):
        unknowns.mark_unrecognised(CALL_PARTS, NO_BEGINNING)
    return msgspec.structs.replace(evidence, account=unknowns.close_account(f"{family.name} messages"))


def _open_plainly(document: Json) -> Opened:
    if isinstance(document, list):
        return Opened(entries=list_with_paths(document, "$"))
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise EvidenceError("$: expected a list of messages, or an object with a list under messages")
    return Opened(entries=list_with_paths(document["messages"], "$.messages"), rest=without(document, "messages"))


def _with_envelope(evidence: Evidence, opened: Opened, rest: dict[str, Json], error: str | None, unknowns: Unknowns) -> Evidence:
    given = {key: value for key, value in rest.items() if key in BESIDE and value is not None}
    tools = _list_offered_tools(rest.get("tools"))
    if tools and "available_tools" not in given:
        given["available_tools"] = tools
    model = opened.model or text_or_none(rest.get("model")) or evidence.model
    ids = {key: rest[key] for key in ("id", "model") if isinstance(rest.get(key), str)}
    if opened.model is not None:
        ids["model"] = opened.model
    others = {key: value for key, value in rest.items() if key not in BESIDE and key not in _TAKEN and value is not None}
    short = {key: value for key, value in others.items() if not isinstance(value, (list, dict)) and value not in ("", False)}
    listed = [call.name for call in evidence.tool_calls or ()]
    check_fields(others, _ANSWERS, "$", unknowns, listed=listed, has_answer=True)
    for key, value in others.items():
        for entry in islice(_list_entries(value), _MAX_ENTRIES):
            check_field(key, entry, "$", unknowns, listed=listed, has_answer=True)
    for key in _ANSWERS:
        answer = others.get(key)
        if isinstance(answer, str) and answer.strip() and answer.strip() != (evidence.text or "").strip():
            unknowns.mark("answer", f"$.{key} and the last message record different answers")
    # Read as plain evidence, so that these fields follow the same rules and give the same errors as there.
    plain = read_plain(given)
    fields = {key: getattr(plain, key) for key in given if key in KEYS and key != "metadata"}
    if error is not None:
        fields.setdefault("error", error)
    return msgspec.structs.replace(evidence, **fields, model=model, metadata={**short, **ids, **plain.metadata})


def _list_entries(value: Json) -> Iterator[dict[str, Any]]:
    """Yield the objects in the lists of a field: messages of another format hold calls deeper than fields do."""
    if isinstance(value, dict):
        yield value
        value = [inner for inner in value.values() if isinstance(inner, list)]
    for entry in list_of(value):
        yield from _list_entries(entry)


def _list_offered_tools(tools: Json) -> list[str]:
    names: list[str] = []
    for tool in map(dict_or_empty, list_of(tools)):
        declared = [tool, dict_or_empty(tool.get("function")), dict_or_empty(tool.get("toolSpec"))]
        declared.extend(map(dict_or_empty, list_of(find_first(tool, "functionDeclarations", "function_declarations"))))
        names.extend(entry["name"] for entry in declared if isinstance(entry.get("name"), str))
    return names
