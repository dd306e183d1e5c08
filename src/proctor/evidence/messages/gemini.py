"""Gemini and Google ADK: `contents` with `parts` in camel or snake case, the answer in `candidates`, and the events of an ADK session.

Responses of functions come from role `user` or `function`; such a content is a turn only if it also has text. Tools that Gemini runs itself
are calls: code (`code_execution`), the searches of `groundingMetadata` (`google_search`) and the pages of `urlContextMetadata`
(`url_context`). An ADK event of the author `user` is a question; a partial event is a piece of a stream that a whole event follows.

Tried with google-genai 1 (Python), @google/genai 1 (`chat.getHistory()`), google-adk 1 and 2 (Python) and @google/adk 0.2 (JavaScript).
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, Opened, join_messages, list_with_paths, without
from proctor.evidence.shared.blocks import KEYED, Dialect, Draft, read_counts
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.message_reader import fill, find_role, mark_role
from proctor.evidence.shared.truncated_conversations import compare_choices, mark_earlier
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_fields
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json
from proctor.model.show import kind_of

GEMINI = Dialect(omits_arguments=True, results_in_blocks=True)
_HISTORY = ("automaticFunctionCallingHistory", "automatic_function_calling_history")
_GROUNDING = ("groundingMetadata", "grounding_metadata")
_PAGES = ("urlContextMetadata", "url_context_metadata")
_FINISH = ("finishReason", "finish_reason")
_EVENT = ("invocationId", "invocation_id", "actions")


def is_gemini_message(content: dict[str, Any]) -> bool:
    """Return whether a message can only be Gemini's: parts without a type."""
    # Other formats have `parts`, too: Pydantic AI's messages have a `kind`, and the parts of the others a type.
    parts = content.get("parts")
    return (
        isinstance(parts, list)
        and "kind" not in content
        and all(isinstance(part, dict) and not {"type", "kind", "part_kind"} & part.keys() for part in parts)
        and (not parts or any(not KEYED.isdisjoint(part) for part in parts))
    )


def open_contents(document: dict[str, Any]) -> Opened | None:
    """Find what was sent and the first candidate, in order, and mark what other candidates do differently."""
    contents, candidates = document.get("contents"), document.get("candidates")
    if not isinstance(candidates, list) and not any(is_gemini_message(dict_or_empty(content)) for content in list_of(contents)):
        return None
    # Where the SDK runs functions by itself it keeps the run in a history of its own; `contents` is then only what the caller sent.
    history = find_first(document, *_HISTORY)
    sent, at = (history, f"$.{_HISTORY[0]}") if isinstance(history, list) and history else (contents, "$.contents")
    if sent is not None and not isinstance(sent, list):
        raise EvidenceError(f"{at}: expected a list of contents")
    unknowns, entries = Unknowns(), list_with_paths(sent or [], at)
    if candidates is not None:
        answers = [_choose_candidate(candidates, index, unknowns) for index in range(max(1, len(list_of(candidates))))]
        if len(answers) > 1:
            read = [_read_content(answer, place, unknowns) for place, answer in answers]
            compare_choices([message for message in read if message is not None], "$.candidates", unknowns)
        entries.append(answers[0])
    return Opened(
        entries=[*list_with_paths(list_of(document.get("messages")), "$.messages"), *entries],
        rest=without(document, "contents", "candidates", "messages", *_HISTORY, "usageMetadata", "usage_metadata"),
        usage=find_usage(document),
        model=text_or_none(find_first(document, "modelVersion", "model_version")),
        unknowns=unknowns,
    )


def _choose_candidate(candidates: Json, index: int, unknowns: Unknowns) -> tuple[str, dict[str, Any]]:
    at = f"$.candidates[{index}]"
    candidate = dict_or_empty(candidates[index]) if isinstance(candidates, list) and candidates else {}
    content = candidate.get("content")
    if not isinstance(content, dict):
        raise EvidenceError(f"{at}.content: an answer without content")
    reported = {key: value for key, value in candidate.items() if key in (*_GROUNDING, *_PAGES, *_FINISH) or _reports_search(value)}
    check_fields(candidate, ("content", *reported), at, unknowns)
    return f"{at}.content", {"role": "model", **content, **reported}


def read_gemini(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read contents with parts; the pieces of a streamed answer follow each other."""
    found: list[Message] = []
    for at, entry in entries:
        message = _read_content(entry, at, unknowns)
        if message is None:
            continue
        if found and message.role == found[-1].role == "assistant":
            message = join_messages(found.pop(), message)
        found.append(message)
    return found


def _read_content(entry: dict[str, Any], at: str, unknowns: Unknowns, role: Role | None = None) -> Message | None:
    draft = _draft_content(entry, at, unknowns, role)
    return None if draft is None else draft.build()


def _draft_content(entry: dict[str, Any], at: str, unknowns: Unknowns, role: Role | None = None) -> Draft | None:
    word = entry.get("role")
    # A request may leave the role out; it is the user who speaks then.
    role = role or (find_role(word) if isinstance(word, str) else "user" if word is None else None)
    if role is None:
        mark_role(entry, word, at, unknowns, GEMINI)
        return None
    draft = Draft(role, at, unknowns, GEMINI)
    fill(draft, without(entry, *_GROUNDING, *_PAGES))
    _add_searches(draft, entry)
    return draft


def _add_searches(draft: Draft, entry: dict[str, Any]) -> None:
    """Add the searches that Gemini made itself, and the pages it read."""
    for key, value in entry.items():
        if key not in (*_PAGES, *_GROUNDING) and _reports_search(value):
            draft.unknowns.mark_unrecognised(CALL_PARTS, f"{draft.at}: {key!r} is not read; did you mean {_GROUNDING[0]} or {_PAGES[0]}?")
    for keys in (_PAGES, _GROUNDING):
        key = next((key for key in keys if entry.get(key) is not None), None)
        if key is None:
            continue
        at = f"{draft.at}.{key}"
        if not isinstance(entry[key], dict):
            draft.mark(at, f"expected an object, found {kind_of(entry[key])}", CALL_PARTS)
        elif keys is _PAGES:
            _add_pages(draft, entry[key], at)
        else:
            _add_search(draft, entry[key], at)


def _reports_search(value: Json) -> bool:
    return not {"webSearchQueries", "web_search_queries", "urlMetadata", "url_metadata"}.isdisjoint(dict_or_empty(value))


def _add_pages(draft: Draft, pages: dict[str, Any], at: str) -> None:
    read = find_first(pages, "urlMetadata", "url_metadata")
    check_fields(pages, ("urlMetadata", "url_metadata"), at, draft.unknowns)
    if not isinstance(read, list):
        draft.mark(at, "the pages that were read are not recorded", CALL_PARTS)
        return
    urls = [find_first(dict_or_empty(page), "retrievedUrl", "retrieved_url") for page in read]
    if not all(isinstance(url, str) for url in urls):
        draft.mark(at, "it is not recorded which page was read", ("tool_arguments",))
    if read:
        draft.append_call("url_context", {"urls": urls}, at)
        draft.append_result(read, at, name="url_context")


def _add_search(draft: Draft, grounding: dict[str, Any], at: str) -> None:
    queries, found = (
        find_first(grounding, "webSearchQueries", "web_search_queries"),
        find_first(grounding, "groundingChunks", "grounding_chunks"),
    )
    if queries is not None and not isinstance(queries, list):
        draft.mark(at, f"expected a list of queries, found {kind_of(queries)}", CALL_PARTS)
    elif queries:
        draft.append_call("google_search", {"queries": queries}, at)
        draft.append_result(found, at, name="google_search")
    elif found or (queries is None and any(isinstance(value, (list, dict)) and value for value in grounding.values())):
        draft.mark(at, "sources were looked up, and no search is recorded", CALL_PARTS)
    check_fields(grounding, ("webSearchQueries", "web_search_queries", "groundingChunks", "grounding_chunks"), at, draft.unknowns)


# Google ADK


def is_adk_event(event: dict[str, Any]) -> bool:
    """Return whether an entry can only be an event of ADK."""
    return isinstance(event.get("author"), str) and any(key in event for key in _EVENT) and "role" not in event


def open_session(document: dict[str, Any]) -> Opened | None:
    """Find the events of a session."""
    events = document.get("events")
    if not isinstance(events, list) or not any(is_adk_event(dict_or_empty(event)) for event in events):
        return None
    return Opened(entries=list_with_paths(events, "$.events"), rest=without(document, "events", "state", "id"))


def read_adk(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read events in order."""
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
    author, content = entry.get("author"), entry.get("content")
    if not isinstance(author, str):
        Draft("assistant", at, unknowns).mark(at, "an event without an author")
        return None
    role: Role = "user" if author == "user" else "assistant"
    if content is not None and not isinstance(content, dict):
        Draft(role, at, unknowns).mark(f"{at}.content", f"expected an object, found {kind_of(content)}")
    word = dict_or_empty(content).get("role")
    if isinstance(word, str) and find_role(word) is None:
        mark_role(dict_or_empty(content), word, f"{at}.content", unknowns, GEMINI)
        unknowns.mark_unrecognised(("usage",), f"{at}.content: unrecognised role {word!r}")
        return None
    # Gemini gives results the role `user`; written by an agent they are what its tools returned.
    draft = Draft(role, at, unknowns, GEMINI)
    if isinstance(content, dict):
        fill(draft, content)
    if draft.results and not draft.calls and not draft.texts:
        draft.role = "tool"
    usage = find_first(entry, "usageMetadata", "usage_metadata")
    draft.usage = read_counts(usage, f"{at}.usageMetadata", unknowns)
    draft.model = text_or_none(find_first(entry, "modelVersion", "model_version"))
    _add_searches(draft, entry)
    # In a live session the agent speaks instead of writing, and the transcription is what it said.
    if draft.role == "assistant" and not draft.texts:
        draft.add_text(dict_or_empty(find_first(entry, "outputTranscription", "output_transcription")).get("text"), at)
    check_fields(entry, _EVENT_KNOWN, at, unknowns, has_answer=True)
    # An event without words or tools (a change of state, an end) is no message.
    is_empty = not list_of(dict_or_empty(content).get("parts"))
    return None if is_empty and not draft.texts and not draft.calls and draft.usage is None else draft.build()


_EVENT_KNOWN = frozenset(
    (
        *(
            "author",
            "content",
            "partial",
            "usageMetadata",
            "usage_metadata",
            "modelVersion",
            "model_version",
            *_GROUNDING,
            *_PAGES,
            *_EVENT,
        ),
        *("outputTranscription", "output_transcription", "inputTranscription", "input_transcription", "timestamp", "id"),
    )
)
