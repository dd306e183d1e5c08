"""Gemini: `contents` with `parts`, the answer in `candidates`, tools as `functionCall` and `functionResponse`, in camel or snake case.

Responses come from role `user` or `function`; such a content is a turn only if it also has text. A response object with an
`error` member is a `content-error` (the API reserves `output` and `error` in it). Thoughts are not part of the text. Tools that Gemini
runs itself are calls: code (`code_execution`), the searches that `groundingMetadata` tells of (`google_search`) and the pages of
`urlContextMetadata` (`url_context`).

Tried with google-genai 1 (Python, by alias and by name) and @google/genai 1 (`chat.getHistory()`).
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import Draft, Entries, Fields, Opened, list_with_paths, open_fields, read_role
from proctor.evidence.shared.calls import CONTENT_ERROR, says_error
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import compare_choices
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json

# A request may leave the role out; it is the user who speaks then.
ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "function": "tool", "tool": "tool", "system": "system"}
_TEXT = ("text",)
_TOOLS = ("functionCall", "function_call", "functionResponse", "function_response")
_SILENT = ("inlineData", "inline_data", "fileData", "file_data", "audioTranscription", "audio_transcription")
_CODE = ("executableCode", "executable_code", "codeExecutionResult", "code_execution_result")
_SERVER = ("toolCall", "tool_call", "toolResponse", "tool_response")
_PART_KEYS = frozenset(
    (
        "thoughtSignature",
        "thought_signature",
        "videoMetadata",
        "video_metadata",
        "mediaResolution",
        "media_resolution",
        "partMetadata",
        "part_metadata",
    )
)
_CALL_KEYS = frozenset(("partialArgs", "partial_args", "willContinue", "will_continue"))
_RESULT_KEYS = frozenset(("parts", "willContinue", "will_continue", "scheduling"))
_ENVELOPE = frozenset(
    (
        *("modelVersion", "model_version", "responseId", "response_id", "createTime", "create_time", "promptFeedback", "prompt_feedback"),
        *(
            "systemInstruction",
            "system_instruction",
            "toolConfig",
            "tool_config",
            "generationConfig",
            "generation_config",
            "safetySettings",
        ),
        *(
            "safety_settings",
            "cachedContent",
            "cached_content",
            "usageMetadata",
            "usage_metadata",
            "parsed",
            "sdkHttpResponse",
            "sdk_http_response",
        ),
        *("config", "modelStatus", "model_status"),
    )
)
_CANDIDATE_KEYS = frozenset(
    (
        *("index", "safetyRatings", "safety_ratings", "citationMetadata", "citation_metadata", "tokenCount", "token_count", "avgLogprobs"),
        *(
            "avg_logprobs",
            "logprobsResult",
            "logprobs_result",
            "finishMessage",
            "finish_message",
        ),
    )
)
_TOLD = (("groundingMetadata", "grounding_metadata"), ("urlContextMetadata", "url_context_metadata"), ("finishReason", "finish_reason"))
"""What a candidate tells of its content, and where."""
_GROUNDING_KEYS = frozenset(
    (
        *("groundingSupports", "grounding_supports", "searchEntryPoint", "search_entry_point", "retrievalMetadata", "retrieval_metadata"),
        *("googleMapsWidgetContextToken", "google_maps_widget_context_token", "sourceFlaggingUris", "source_flagging_uris"),
    )
)
_HISTORY = ("automaticFunctionCallingHistory", "automatic_function_calling_history")


def is_own_message(content: dict[str, Any]) -> bool:
    """Return whether a message can only be Gemini's: parts without a type."""
    # Other formats have `parts`, too: Pydantic AI's messages have a `kind`, and the parts of the others a type.
    parts = content.get("parts")
    known = (*_TEXT, *_TOOLS, *_SILENT, *_CODE, *_SERVER)
    return (
        isinstance(parts, list)
        and "kind" not in content
        and all(isinstance(part, dict) and not {"type", "kind", "part_kind"} & part.keys() for part in parts)
        and (not parts or any(key in part for part in parts for key in known))
    )


def open_contents(document: dict[str, Any]) -> Opened | None:
    """Find what was sent and the first candidate, in order, and doubt what other candidates do otherwise."""
    contents, candidates = document.get("contents"), document.get("candidates")
    if not isinstance(candidates, list) and not (
        isinstance(contents, list) and any(is_own_message(dict_or_empty(content)) for content in contents)
    ):
        return None
    # Where the SDK runs functions by itself it keeps what happened in a history of its own; `contents` is then only what the caller sent.
    history = find_first(document, *_HISTORY)
    sent, at = (history, f"$.{_HISTORY[0]}") if isinstance(history, list) and history else (contents, "$.contents")
    if sent is not None and not isinstance(sent, list):
        raise EvidenceError(f"{at}: expected a list of contents")
    unknowns, entries = Unknowns(), list_with_paths(sent or [], at)
    if candidates is not None:
        answers = [_choose_candidate(candidates, index, unknowns) for index in range(max(1, len(list_of(candidates))))]
        if len(answers) > 1:
            compare_choices([read_content(answer, place, unknowns) for place, answer in answers], "$.candidates", unknowns)
        entries.append(answers[0])
    return Opened(
        entries=[*list_with_paths(list_of(document.get("messages")), "$.messages"), *entries],
        beside={
            key: value
            for key, value in document.items()
            if key not in ("contents", "candidates", "messages") and key not in _ENVELOPE and key not in _HISTORY
        },
        usage=find_usage(document),
        model=text_or_none(find_first(document, "modelVersion", "model_version")),
        unknowns=tuple(unknowns.unknown.items()),
    )


def _choose_candidate(candidates: Json, index: int, unknowns: Unknowns) -> tuple[str, dict[str, Any]]:
    at = f"$.candidates[{index}]"
    first = open_fields(candidates[index] if isinstance(candidates, list) and candidates else None, at, unknowns)
    content = first.take("content") if first is not None else None
    if first is None or not isinstance(content, dict):
        raise EvidenceError(f"{at}.content: an answer without content")
    told = {keys[0]: value for keys in _TOLD if (value := first.take(*keys)) is not None}
    first.close(_CANDIDATE_KEYS, role="assistant")
    return f"{at}.content", {"role": "model", **content, **told}


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read contents with parts; the pieces of a streamed answer follow each other."""
    found: list[Message] = []
    for at, entry in entries:
        message = read_content(entry, at, unknowns)
        if found and message.role == found[-1].role == "assistant":
            before = found.pop()
            texts = [text for text in (before.text, message.text) if text is not None]
            message = Message(
                role="assistant",
                text="".join(texts) if texts else None,
                calls=before.calls + message.calls,
                results=before.results + message.results,
            )
        found.append(message)
    return found


def read_content(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    """Read one content."""
    fields = Fields(entry, at, unknowns)
    role = fields.take("role")
    draft = Draft(read_role("user" if role is None else role, at, ROLES, "gemini contents"), at, unknowns)
    add_parts(draft, fields)
    add_searches(draft, fields)
    draft.end_with(fields.take("finishReason", "finish_reason"))
    # Without a role it is not sure who spoke.
    fields.close((), role=None if role is None else draft.role)
    return draft.build()


def add_parts(draft: Draft, fields: Fields) -> None:
    """Add the parts of a content."""
    for part in fields.take_objects("parts"):
        _add_part(draft, part)


def _page_read(value: Json, at: str, unknowns: Unknowns) -> str | None:
    """Return the address of a page that Gemini read, and doubt which page it was if none is told."""
    page = open_fields(value, f"{at}.urlMetadata", unknowns)
    url = page.take_text("retrievedUrl", "retrieved_url") if page is not None else None
    if page is not None and url is None:
        page.mark(("tool_arguments",), ": it does not say which page was read")
    return url


def add_searches(draft: Draft, fields: Fields) -> None:
    """Add the searches that Gemini made itself, and the pages it read."""
    pages = fields.take_object("urlContextMetadata", "url_context_metadata")
    if pages is not None:
        read = pages.take_list("urlMetadata", "url_metadata")
        if read:
            draft.add_call("url_context", {"urls": [_page_read(page, pages.at, draft.unknowns) for page in read]}, pages.at)
            draft.add_result(read, pages.at, name="url_context")
        pages.close()
    grounding = fields.take_object("groundingMetadata", "grounding_metadata")
    if grounding is None:
        return
    queries = grounding.take_list("webSearchQueries", "web_search_queries")
    found = grounding.take("groundingChunks", "grounding_chunks")
    if queries:
        draft.add_call("google_search", {"queries": queries}, grounding.at)
        draft.add_result(found, grounding.at, name="google_search")
    elif found:
        grounding.mark(CALL_PARTS, ": sources were looked up, and no search is told")
    grounding.close(_GROUNDING_KEYS)


def _add_part(draft: Draft, part: Fields) -> None:
    thought = part.take_flag("thought")
    if not any(key in part.left for key in (*_TEXT, *_TOOLS, *_SILENT, *_CODE, *_SERVER)):
        if part.left:
            draft.mark_everything(part.at, f"a part with the keys {', '.join(list(part.left)[:4])} is not understood")
        return
    text = part.take("text")
    if not thought:
        draft.add_text(text, part.at)
    _add_tools(draft, part)
    for key in _SILENT:
        part.take(key)
    part.close(_PART_KEYS, role=draft.role)


def _add_tools(draft: Draft, part: Fields) -> None:
    for keys in (("functionCall", "function_call"), ("toolCall", "tool_call")):
        call = part.take_object(*keys)
        if call is not None:
            draft.add_call(call.take("name", "toolType", "tool_type"), call.take("args"), call.at, id=call.take("id"))
            call.close(_CALL_KEYS)
    for keys in (("functionResponse", "function_response"), ("toolResponse", "tool_response")):
        result = part.take_object(*keys)
        if result is not None:
            response = result.take("response")
            error = dict_or_empty(response).get("error")
            draft.add_result(
                response,
                result.at,
                id=result.take("id"),
                name=result.take("name", "toolType", "tool_type"),
                error=error if says_error(error) else None,
                kind=CONTENT_ERROR,
            )
            result.close(_RESULT_KEYS, role="tool")
    code = part.take_object("executableCode", "executable_code")
    if code is not None:
        draft.add_call("code_execution", {"code": code.take("code"), "language": code.take("language")}, code.at, id=code.take("id"))
        code.close()
    ran = part.take_object("codeExecutionResult", "code_execution_result")
    if ran is not None:
        # A missing or unspecified outcome counts as a failure: nobody said that the code ran to its end.
        outcome = ran.take_word("outcome", ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED", "OUTCOME_UNSPECIFIED"))
        draft.add_result(ran.take("output"), ran.at, id=ran.take("id"), name="code_execution", failed=outcome != "OUTCOME_OK")
        ran.close(role="tool")
