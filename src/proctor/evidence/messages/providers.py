"""Gemini, ADK, Bedrock, Strands, Cohere, Mistral and Genkit. Tried with boto3 1.4x, strands-agents 1, cohere 5, mistralai 1, genkit 1."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import (
    Entries,
    MessageFormat,
    Opened,
    fold_outputs,
    join_answers,
    list_parts,
    list_with_paths,
    read_all,
    without,
)
from proctor.evidence.shared.blocks import KEYED, KEYED_SILENT, OMITS_ARGUMENTS, Draft, read_counts
from proctor.evidence.shared.conversation import compare_choices, mark_earlier
from proctor.evidence.shared.message import Message, Role
from proctor.evidence.shared.message_reader import draft_message, fill, find_role, mark_role, read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import CONTENT_PARTS, check_object
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.model.account import CALL_PARTS

# --- gemini and Google ADK. Tried with google-genai 1 (Python), @google/genai 1, google-adk 1 and 2

_HISTORY = ("automaticFunctionCallingHistory", "automatic_function_calling_history")
_GROUNDING = ("groundingMetadata", "grounding_metadata")
_PAGES = ("urlContextMetadata", "url_context_metadata")
_QUERIES = ("webSearchQueries", "web_search_queries")
_CHUNKS = ("groundingChunks", "grounding_chunks")
_URLS = ("urlMetadata", "url_metadata")


def _is_gemini_message(content: dict[str, Any]) -> bool:
    """Return whether a message can only be Gemini's: parts without a type."""
    # Other formats have `parts`, too: Pydantic AI's messages have a `kind`, and the parts of the others a type.
    parts = content.get("parts")
    return (
        isinstance(parts, list)
        and "kind" not in content
        and all(isinstance(part, dict) and not {"type", "kind", "part_kind"} & part.keys() for part in parts)
        and (not parts or any(not KEYED.isdisjoint(part) for part in parts))
    )


def _open_contents(document: dict[str, Any]) -> Opened | None:
    contents, candidates = document.get("contents"), document.get("candidates")
    if not isinstance(candidates, list) and not any(_is_gemini_message(dict_or_empty(content)) for content in list_of(contents)):
        return None
    # If the SDK runs functions itself, it records the run in its own history; `contents` is then only the caller's input.
    history = find_first(document, *_HISTORY)
    sent, at = (history, f"$.{_HISTORY[0]}") if isinstance(history, list) and history else (contents, "$.contents")
    unknowns, entries = Unknowns(), [*list_with_paths(list_of(document.get("messages")), "$.messages"), *list_with_paths(sent, at)]
    if candidates is not None:
        answers: Entries = []
        for index, candidate in enumerate(map(dict_or_empty, list_of(candidates) or [{}])):
            place, content = f"$.candidates[{index}].content", candidate.get("content")
            if not isinstance(content, dict):
                raise EvidenceError(f"{place}: an answer without content")
            answers.append((place, {"role": "model", **content, **without(candidate, "content", "index")}))
        if len(answers) > 1:
            read = [_read_content(answer, place, unknowns) for place, answer in answers]
            compare_choices([message for message in read if message is not None], "$.candidates", unknowns)
        entries.append(answers[0])
    return Opened(
        entries=entries,
        rest=without(document, "contents", "candidates", "messages", *_HISTORY),
        model=text_or_none(find_first(document, "modelVersion", "model_version")),
        unknowns=unknowns,
    )


def _read_content(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    # A request may omit the role `user`.
    draft = draft_message(without(entry, *_GROUNDING, *_PAGES), at, unknowns, OMITS_ARGUMENTS, default="user")
    if draft is None:
        return None
    _add_searches(draft, entry)
    return draft.build()


def _add_searches(draft: Draft, entry: dict[str, Any]) -> None:
    for key, value in entry.items():
        if key not in (*_PAGES, *_GROUNDING) and not {*_QUERIES, *_URLS}.isdisjoint(dict_or_empty(value)):
            draft.unknowns.mark_unrecognised(CALL_PARTS, f"{draft.at}: {key!r} is not read; did you mean {_GROUNDING[0]} or {_PAGES[0]}?")
    found = {keys[0]: reported for keys in (_PAGES, _GROUNDING) if (reported := find_first(entry, *keys)) is not None}
    for key, reported in found.items():
        at = f"{draft.at}.{key}"
        if not draft.expect(reported, dict, "an object", at, CALL_PARTS):
            continue
        if key == _PAGES[0]:
            read = find_first(reported, *_URLS)
            urls = [find_first(dict_or_empty(page), "retrievedUrl", "retrieved_url") for page in list_of(read)]
            if not isinstance(read, list) or not all(isinstance(url, str) for url in urls):
                draft.mark(at, "it is not recorded which pages were read", CALL_PARTS)
            name, given, sources = "url_context", {"urls": urls} if urls else None, read
        else:
            queries, sources = find_first(reported, *_QUERIES), find_first(reported, *_CHUNKS)
            name, given = "google_search", {"queries": queries} if queries and isinstance(queries, list) else None
            has_more = queries is None and any(isinstance(value, (list, dict)) and value for value in reported.values())
            if given is None and (queries or sources or has_more):
                draft.mark(at, "sources were looked up, and no search is recorded", CALL_PARTS)
        if given is not None:
            draft.append_call(name, given, at)
            draft.append_result(sources, at, name=name)
        check_object(reported, (*_URLS, *_QUERIES, *_CHUNKS), at, draft.unknowns)


# Google ADK

_EVENT = ("invocationId", "invocation_id", "actions")
_EVENT_KNOWN = frozenset((*_GROUNDING, *_PAGES, *_EVENT)) | split_words("""
    author content partial usageMetadata usage_metadata modelVersion model_version outputTranscription output_transcription
    inputTranscription input_transcription timestamp id
    """)


def _read_adk(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read events in order; a partial event is a piece of a stream, and a complete event follows it."""
    found: list[Message] = []
    streaming: str | None = None
    for at, entry in entries:
        if entry.get("partial") is True:
            streaming = at
            continue
        message = _read_event(entry, at, unknowns)
        if message is not None:
            found.append(message)
            streaming = None
    # A compaction does not remove the events that it summarises, so they are in the session unless it is only the rest of one.
    times = [entry["timestamp"] for _, entry in entries if isinstance(entry.get("timestamp"), (int, float)) and entry.get("content")]
    for at, entry in entries:
        compaction = dict_or_empty(entry.get("actions")).get("compaction")
        start = find_first(dict_or_empty(compaction), "startTimestamp", "start_timestamp")
        if compaction and not (isinstance(start, (int, float)) and any(time <= start for time in times)):
            mark_earlier(unknowns, f"{at}.actions: a compaction of events that are not in the session")
    if streaming is not None:
        unknowns.mark_parts(CONTENT_PARTS, f"{streaming}: a partial event that no whole one follows")
    return found


def _read_event(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    author, content = entry.get("author"), dict_or_empty(entry.get("content"))
    role: Role = "user" if author == "user" else "assistant"
    draft = Draft(role, at, unknowns, OMITS_ARGUMENTS)
    if not isinstance(author, str) or not isinstance(entry.get("content"), (dict, type(None))):
        draft.mark(at, "an event without an author, or whose content is no object")
        return None
    word = content.get("role")
    if isinstance(word, str) and find_role(word) is None:
        mark_role(content, word, f"{at}.content", unknowns, OMITS_ARGUMENTS)
        unknowns.mark_unrecognised(("usage",), f"{at}.content: unrecognised role {word!r}")
        return None
    if entry.get("content") is not None:
        fill(draft, content)
    # Gemini gives results the role `user`; if an agent wrote them, they are results of its tools.
    if draft.results and not draft.calls and not draft.texts:
        draft.role = "tool"
    draft.usage = read_counts(find_first(entry, "usageMetadata", "usage_metadata"), f"{at}.usageMetadata", unknowns)
    draft.model = text_or_none(find_first(entry, "modelVersion", "model_version"))
    _add_searches(draft, entry)
    # In a live session the agent speaks: its text is the transcription.
    if draft.role == "assistant" and not draft.texts:
        draft.add_text(dict_or_empty(find_first(entry, "outputTranscription", "output_transcription")).get("text"), at)
    check_object(entry, _EVENT_KNOWN, at, unknowns, has_answer=True)
    # An event without text or tools (a change of state, an end) is not a message.
    is_empty = not list_of(content.get("parts")) and not draft.texts and not draft.calls and draft.usage is None
    return None if is_empty else draft.build()


# Bedrock and Strands

_NO_ANSWER_BETWEEN = "two messages of the user without an answer between them: a summary of removed messages, or an answer is missing"
_BEDROCK_BLOCKS = KEYED_SILENT | {"text", "toolUse", "toolResult", "citationsContent"}


def _is_bedrock_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Bedrock's; Strands' storage wraps each."""
    if isinstance(message.get("message"), dict) and "message_id" in message:
        return _is_bedrock_message(message["message"])
    parts = list_parts(message)
    # Haystack's blocks have one key each as well; its messages have `meta` and `name`.
    if message.get("role") not in ("user", "assistant", "system") or not parts or {"meta", "name"} & message.keys():
        return False
    tools = any("toolUse" in part or "toolResult" in part for part in parts)
    return tools or (message["role"] == "assistant" and all("type" not in part and not _BEDROCK_BLOCKS.isdisjoint(part) for part in parts))


def _unwrap_stored(at: str, entry: dict[str, Any], unknowns: Unknowns) -> tuple[str, dict[str, Any]]:
    if not isinstance(entry.get("message"), dict) or "message_id" not in entry:
        return at, entry
    check_object(entry, ("message", "message_id"), at, unknowns)
    return f"{at}.message", entry["message"]


def _read_bedrock(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found = read_all(entries, unknowns, unwrap=_unwrap_stored)
    # Converse does not accept two consecutive user messages: this is a summary by Strands of the messages that it removed.
    if any(one.role == other.role == "user" for one, other in pairwise(found)):
        mark_earlier(unknowns, f"$: {_NO_ANSWER_BETWEEN}")
    if len(found) < len(entries):
        return found
    called = {call.id: call.name for message in found for call in message.calls if call.id is not None}
    output_calls: dict[str | None, str] = {}
    for message, follows in zip(found, [*found[1:], None], strict=True):
        # Only a result that nothing follows ended the run; after any other the model continued.
        for result in message.results if follows is None or follows.role != "assistant" else ():
            name = called.get(result.id or "")
            if name is not None and result.error is None and result.value == f"Successfully validated {name} structured output":
                output_calls[result.id] = name
    return fold_outputs(found, set(output_calls.values()), output_calls)


# Cohere


def _is_cohere_message(message: dict[str, Any]) -> bool:
    if message.get("role") in ("USER", "CHATBOT", "TOOL", "SYSTEM") and ("message" in message or "tool_results" in message):
        return True
    parts = list_parts(message)
    return "tool_plan" in message or (
        message.get("role") == "tool" and any(part.get("type") == "document" and "document" in part for part in parts)
    )


# Mistral

_ENTRY_TYPES = ("message.input", "message.output", "function.call", "function.result", "tool.execution", "agent.handoff")


def _read_mistral_entry(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    kind, word, fields = entry.get("type"), entry.get("role"), without(entry, "type")
    if kind not in _ENTRY_TYPES:
        return read_message(entry, at, unknowns)
    if kind in ("message.input", "message.output"):
        return read_message(fields, at, unknowns, default="user" if kind == "message.input" else "assistant")
    if kind == "agent.handoff":
        check_object(fields, ("role", *(key for key in entry if "gent" in key)), at, unknowns)
        return None
    draft = Draft("tool" if kind == "function.result" else "assistant", at, unknowns)
    if kind == "function.result":
        draft.add_result(fields, at)
    elif kind == "function.call":
        draft.add_call(fields, at, "tool_call")
    else:
        # One entry records the call and its result, joined by the id of the entry.
        name = find_first(entry, "name", "function")
        draft.add_call({**without(fields, "function", "info"), "name": name}, at, "tool_call")
        draft.append_result(entry.get("info"), at, id=entry.get("id"), name=name)
    if word is not None and find_role(str(word)) is None:
        draft.mark(f"{at}.role", f"unrecognised role {word!r}")
    return draft.build()


FORMATS = (
    MessageFormat(
        "bedrock",
        "messages of Bedrock's Converse and of Strands",
        _is_bedrock_message,
        _read_bedrock,
        answer=("output.message", "stopReason"),
    ),
    MessageFormat("cohere", "Cohere messages or an answer", _is_cohere_message, extends=("openai",), answer=("message", "finish_reason")),
    MessageFormat(
        "mistral",
        "Mistral messages",
        lambda message: message.get("type") in _ENTRY_TYPES or ("role" in message and ("prefix" in message or "toolCalls" in message)),
        lambda entries, unknowns: [one for at, entry in entries if (one := _read_mistral_entry(entry, at, unknowns)) is not None],
        extends=("openai",),
    ),
    MessageFormat(
        "genkit",
        "Genkit messages",
        lambda message: (
            any("toolRequest" in part or "toolResponse" in part for part in list_parts(message))
            or (message.get("role") == "model" and bool(list_parts(message)) and all("type" not in part for part in list_parts(message)))
        ),
        extends=("bedrock",),
        dialect=OMITS_ARGUMENTS,
    ),
    MessageFormat(
        "gemini",
        "Gemini contents or an answer",
        _is_gemini_message,
        lambda entries, unknowns: join_answers(_read_content(entry, at, unknowns) for at, entry in entries),
        _open_contents,
        ("contents", "candidates"),
    ),
    MessageFormat(
        "adk",
        "a session of Google ADK, or its events",
        lambda event: isinstance(event.get("author"), str) and any(key in event for key in _EVENT) and "role" not in event,
        _read_adk,
        keys=("events",),
        lists=("events",),
        drop=("state", "id"),
    ),
)
