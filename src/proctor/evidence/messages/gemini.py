"""Gemini and Google ADK: `contents` with `parts` in camel or snake case, the answer in `candidates`, and the events of an ADK session.

Responses of functions have the role `user` or `function`; such a content is a turn only if it also has text. Tools that Gemini runs itself
(`code_execution`, `google_search`, `url_context`) are calls. Tried with google-genai 1 (Python), @google/genai 1, google-adk 1 and 2.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, join_answers, list_with_paths, open_list, without
from proctor.evidence.shared.blocks import KEYED, OMITS_ARGUMENTS, Draft, read_counts
from proctor.evidence.shared.conversation import Message, Role, compare_choices, mark_earlier
from proctor.evidence.shared.message_reader import draft_message, fill, find_role, mark_role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_fields
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json
from proctor.model.show import kind_of

_HISTORY = ("automaticFunctionCallingHistory", "automatic_function_calling_history")
_GROUNDING = ("groundingMetadata", "grounding_metadata")
_PAGES = ("urlContextMetadata", "url_context_metadata")
_FINISH = ("finishReason", "finish_reason")
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
    # If the SDK runs functions by itself it has the run in a history of its own; `contents` is then only what the caller sent.
    history = find_first(document, *_HISTORY)
    sent, at = (history, f"$.{_HISTORY[0]}") if isinstance(history, list) and history else (contents, "$.contents")
    if sent is not None and not isinstance(sent, list):
        raise EvidenceError(f"{at}: expected a list of contents")
    unknowns, entries = Unknowns(), [*list_with_paths(list_of(document.get("messages")), "$.messages"), *list_with_paths(sent or [], at)]
    if candidates is not None:
        listed = list_of(candidates) or [{}]
        answers = [_read_candidate(dict_or_empty(answer), f"$.candidates[{index}]", unknowns) for index, answer in enumerate(listed)]
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


def _read_candidate(candidate: dict[str, Any], at: str, unknowns: Unknowns) -> tuple[str, dict[str, Any]]:
    content = candidate.get("content")
    if not isinstance(content, dict):
        raise EvidenceError(f"{at}.content: an answer without content")
    reported = {key: value for key, value in candidate.items() if key in (*_GROUNDING, *_PAGES, *_FINISH) or _reports_search(value)}
    check_fields(candidate, ("content", *reported), at, unknowns)
    return f"{at}.content", {"role": "model", **content, **reported}


def _read_gemini(entries: Entries, unknowns: Unknowns) -> list[Message]:
    return join_answers(_read_content(entry, at, unknowns) for at, entry in entries)


def _read_content(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    # A request may leave the role out, which is `user` then.
    draft = draft_message(without(entry, *_GROUNDING, *_PAGES), at, unknowns, OMITS_ARGUMENTS, default="user")
    if draft is None:
        return None
    _add_searches(draft, entry)
    return draft.build()


def _add_searches(draft: Draft, entry: dict[str, Any]) -> None:
    for key, value in entry.items():
        if key not in (*_PAGES, *_GROUNDING) and _reports_search(value):
            draft.unknowns.mark_unrecognised(CALL_PARTS, f"{draft.at}: {key!r} is not read; did you mean {_GROUNDING[0]} or {_PAGES[0]}?")
    for keys, add in ((_PAGES, _add_pages), (_GROUNDING, _add_search)):
        reported = find_first(entry, *keys)
        if isinstance(reported, dict):
            add(draft, reported, f"{draft.at}.{keys[0]}")
        elif reported is not None:
            draft.mark(f"{draft.at}.{keys[0]}", f"expected an object, found {kind_of(reported)}", CALL_PARTS)


def _reports_search(value: Json) -> bool:
    return not {*_QUERIES, *_URLS}.isdisjoint(dict_or_empty(value))


def _add_pages(draft: Draft, pages: dict[str, Any], at: str) -> None:
    read = find_first(pages, *_URLS)
    check_fields(pages, _URLS, at, draft.unknowns)
    urls = [find_first(dict_or_empty(page), "retrievedUrl", "retrieved_url") for page in list_of(read)]
    if not isinstance(read, list) or not all(isinstance(url, str) for url in urls):
        draft.mark(at, "it is not recorded which pages were read", CALL_PARTS)
    if urls:
        draft.append_call("url_context", {"urls": urls}, at)
        draft.append_result(read, at, name="url_context")


def _add_search(draft: Draft, grounding: dict[str, Any], at: str) -> None:
    queries, found = find_first(grounding, *_QUERIES), find_first(grounding, *_CHUNKS)
    if queries and isinstance(queries, list):
        draft.append_call("google_search", {"queries": queries}, at)
        draft.append_result(found, at, name="google_search")
    elif queries or found or (queries is None and any(isinstance(value, (list, dict)) and value for value in grounding.values())):
        draft.mark(at, "sources were looked up, and no search is recorded", CALL_PARTS)
    check_fields(grounding, (*_QUERIES, *_CHUNKS), at, draft.unknowns)


# Google ADK

_EVENT = ("invocationId", "invocation_id", "actions")
_EVENT_KNOWN = frozenset((*_GROUNDING, *_PAGES, *_EVENT)) | split_words(
    """
    author content partial usageMetadata usage_metadata modelVersion model_version outputTranscription output_transcription
    inputTranscription input_transcription timestamp id
    """
)


def _is_adk_event(event: dict[str, Any]) -> bool:
    return isinstance(event.get("author"), str) and any(key in event for key in _EVENT) and "role" not in event


def _open_session(document: dict[str, Any]) -> Opened | None:
    return open_list(document, _is_adk_event, "events", drop=("state", "id"))


def _read_adk(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read events in order; a partial event is a piece of a stream that a whole event follows."""
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
    _check_compactions(entries, unknowns)
    if streaming is not None:
        Draft("assistant", streaming, unknowns).mark(streaming, "a partial event that no whole one follows")
    return found


def _check_compactions(entries: Entries, unknowns: Unknowns) -> None:
    """Mark a session whose compactions sum up events that are not in it: a compaction leaves them there."""
    times = [entry["timestamp"] for _, entry in entries if isinstance(entry.get("timestamp"), (int, float)) and entry.get("content")]
    for at, entry in entries:
        compaction = dict_or_empty(entry.get("actions")).get("compaction")
        start = find_first(dict_or_empty(compaction), "startTimestamp", "start_timestamp")
        if compaction and not (isinstance(start, (int, float)) and any(time <= start for time in times)):
            mark_earlier(unknowns, f"{at}.actions: a compaction of events that are not in the session")


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
    # Gemini gives results the role `user`; written by an agent they are what its tools returned.
    if draft.results and not draft.calls and not draft.texts:
        draft.role = "tool"
    draft.usage = read_counts(find_first(entry, "usageMetadata", "usage_metadata"), f"{at}.usageMetadata", unknowns)
    draft.model = text_or_none(find_first(entry, "modelVersion", "model_version"))
    _add_searches(draft, entry)
    # In a live session the agent speaks instead of writing: its text is the transcription.
    if draft.role == "assistant" and not draft.texts:
        draft.add_text(dict_or_empty(find_first(entry, "outputTranscription", "output_transcription")).get("text"), at)
    check_fields(entry, _EVENT_KNOWN, at, unknowns, has_answer=True)
    # An event without text or tools (a change of state, an end) is no message.
    is_empty = not list_of(content.get("parts")) and not draft.texts and not draft.calls and draft.usage is None
    return None if is_empty else draft.build()


FORMATS = (
    MessageFormat("gemini", "Gemini contents or an answer", _is_gemini_message, _read_gemini, _open_contents, ("contents", "candidates")),
    MessageFormat("adk", "a session of Google ADK, or its events", _is_adk_event, _read_adk, _open_session, ("events",)),
)
