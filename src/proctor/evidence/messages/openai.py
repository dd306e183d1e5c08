"""OpenAI chat: messages with `tool_calls[].function`, results in messages of role `tool`; `function_call` before tools existed.

Arguments are JSON text. The same form is written by many others, with keys of their own that mean nothing here: LiteLLM, OpenRouter, vLLM,
DeepSeek, Ollama (arguments as an object, results by `tool_name` and without ids), LangChain's `convert_to_openai_messages`, Haystack's
`to_openai_dict_format`, Semantic Kernel's `to_dict`. Of several choices of a completion the first is read, and what the others do
otherwise is unknown.

Tried with openai 2 (Python) and 6 (JavaScript), ollama 0.6, langchain 1, haystack-ai 2, semantic-kernel 1.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import (
    Draft,
    Entries,
    Fields,
    Opened,
    iterate_parts,
    join_text_parts,
    list_with_paths,
    open_fields,
    read_role,
    require_key,
)
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import compare_choices
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json

ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}

HARMLESS = frozenset(
    (
        *(
            "id",
            "name",
            "annotations",
            "citations",
            "logprobs",
            "created",
            "created_at",
            "timestamp",
            "index",
            "weight",
            "cache_control",
        ),
        *(
            "reasoning",
            "reasoning_content",
            "reasoning_details",
            "reasoning_items",
            "thinking",
            "thinking_blocks",
            "images",
            "prefix",
        ),
        *(
            "provider_specific_fields",
            "parsed",
            "token_ids",
            "content_filter_results",
            "extra_content",
            "metadata",
            "object",
            "tool_call_error",
        ),
    )
)
"""Keys of a message that carry neither a call nor what is said, whoever writes them."""

_HARMLESS_PARTS = (
    "image_url",
    "image",
    "input_audio",
    "audio",
    "file",
    "video_url",
    "video",
    "document_url",
    "reference",
    "thinking",
    "reasoning",
)
_SAYING = ("content", "tool_calls", "toolCalls", "function_call", "refusal", "audio")
_CALL_KEYS = frozenset(("index", "extra_content", "provider_specific_fields", "thought_signature", "cache_control"))
_FUNCTION_KEYS = frozenset(("parsed_arguments", "strict", "index", "description", "provider_specific_fields", "thought_signature"))
_CHOICE_KEYS = frozenset(
    (
        "index",
        "logprobs",
        "native_finish_reason",
        "stop_reason",
        "matched_stop",
        "token_ids",
        "content_filter_results",
        "provider_specific_fields",
    )
)
_ENVELOPE = frozenset(
    (
        *(
            "object",
            "created",
            "service_tier",
            "system_fingerprint",
            "prompt_logprobs",
            "prompt_token_ids",
            "kv_transfer_params",
            "provider",
        ),
        *("citations", "search_results", "prompt_filter_results", "provider_specific_fields", "moderation", "x_groq"),
        *(
            "temperature",
            "top_p",
            "max_tokens",
            "max_completion_tokens",
            "tool_choice",
            "parallel_tool_calls",
            "stream",
            "stream_options",
            "seed",
        ),
        *(
            "response_format",
            "reasoning_effort",
            "stop",
            "n",
            "store",
            "user",
            "frequency_penalty",
            "presence_penalty",
            "_request_id",
            "request_id",
        ),
    )
)


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be of this form."""
    if not isinstance(message.get("role"), str):
        return False
    calls = list_of(message.get("tool_calls"))
    return any("function" in dict_or_empty(call) for call in calls) or "function_call" in message or message.get("role") == "developer"


def is_completion(document: dict[str, Any]) -> bool:
    """Return whether this is the answer of the chat endpoint."""
    return document.get("object") == "chat.completion" or (
        isinstance(document.get("choices"), list) and any("message" in dict_or_empty(choice) for choice in document["choices"])
    )


def open_completion(document: dict[str, Any]) -> Opened | None:
    """Find what was sent, if that stands beside, and the first choice of an answer."""
    if not is_completion(document):
        return None
    beside = {key: value for key, value in document.items() if key not in ("choices", "messages") and key not in _ENVELOPE}
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(dict_or_empty(choices[0]).get("message"), dict):
        raise EvidenceError("$.choices[0].message: a chat completion without an answer")
    sent = document.get("messages")
    if sent is not None and not isinstance(sent, list):
        raise EvidenceError("$.messages: expected a list of messages")
    unknowns = Unknowns()
    answers = [_choose_choice(choice, f"$.choices[{index}]", unknowns) for index, choice in enumerate(choices)]
    if len(answers) > 1:
        compare_choices([read_message(answer, at, unknowns, "openai messages") for at, answer in answers], "$.choices", unknowns)
    entries = [*list_with_paths(sent or [], "$.messages"), answers[0]]
    return Opened(
        entries=entries,
        beside=beside,
        usage=find_usage(document),
        model=text_or_none(document.get("model")),
        unknowns=tuple(unknowns.unknown.items()),
    )


def _choose_choice(value: Json, at: str, unknowns: Unknowns) -> tuple[str, dict[str, Any]]:
    choice = open_fields(value, at, unknowns)
    message = choice.take("message") if choice is not None else None
    if choice is None or not isinstance(message, dict):
        raise EvidenceError(f"{at}.message: a choice without an answer")
    # Put into the message, which by itself does not say why the model stopped.
    reason = choice.take("finish_reason")
    choice.close(_CHOICE_KEYS, role="assistant")
    return f"{at}.message", {**message, "finish_reason": reason} if reason is not None else message


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read chat messages."""
    return [read_message(entry, at, unknowns, "openai messages") for at, entry in entries]


def read_message(entry: dict[str, Any], at: str, unknowns: Unknowns, whose: str, *harmless: str) -> Message:
    """Read one message of this form, written by `whose` with keys of its own that are harmless."""
    require_key(entry, at, whose, *_SAYING)
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, ROLES, whose), at, unknowns)
    if draft.role == "tool":
        _add_result(fields, draft)
    else:
        add_content(draft, fields.take("content"), f"{at}.content")
        _add_calls(fields, draft)
        draft.add_text(fields.take("refusal"), f"{at}.refusal")
        add_spoken(draft, fields.take_object("audio"))
        draft.usage = fields.take_usage("usage")
        draft.model = text_or_none(fields.take("model"))
        draft.end_with(fields.take("finish_reason", "finishReason"))
    fields.close(HARMLESS | frozenset(harmless), role=draft.role)
    return draft.build()


def add_content(draft: Draft, content: Json, at: str) -> None:
    """Add the content of a message: text, or parts of text among parts that are no words."""
    for place, part in iterate_parts(draft, content, at):
        fields = open_fields(part, place, draft.unknowns)
        if fields is None:
            continue
        kind = fields.take("type")
        if kind in ("text", "refusal", "input_text", "output_text"):
            draft.add_text(fields.take("text", "refusal"), place)
            fields.close(("cache_control", "annotations", "citations", "logprobs", "id"), role=draft.role)
        elif kind not in _HARMLESS_PARTS:
            draft.mark_everything(place, f"a part of type {kind!r} is not understood")


def _add_calls(fields: Fields, draft: Draft) -> None:
    for index, call in enumerate(fields.take_list("tool_calls", "toolCalls")):
        add_call(draft, call, f"{fields.at}.tool_calls[{index}]")
    old = fields.take_object("function_call")
    if old is not None:
        draft.add_call(old.take("name"), old.take("arguments"), old.at)
        old.close()


def add_untold_calls(draft: Draft, fields: Fields) -> None:
    """Add the entries of `tool_calls` that the message has not told elsewhere."""
    told = bool(draft.calls)
    for index, value in enumerate(fields.take_list("tool_calls")):
        if not told or not draft.knows(dict_or_empty(value).get("id")):
            add_call(draft, value, f"{fields.at}.tool_calls[{index}]")


def add_call(draft: Draft, value: Json, at: str) -> None:
    """Add one entry of `tool_calls`."""
    call = open_fields(value, at, draft.unknowns)
    if call is None:
        return
    kind = call.take_word("type", ("function", "custom", "null"), CALL_PARTS)
    function = call.take_object("custom" if kind == "custom" else "function")
    if function is None:
        draft.mark_everything(at, "a tool call without a function")
    else:
        draft.add_call(function.take("name"), function.take("arguments", "input"), at, id=call.take("id"))
        function.close(_FUNCTION_KEYS)
    call.close(_CALL_KEYS)


def add_spoken(draft: Draft, audio: Fields | None) -> None:
    """Add what was spoken instead of written: the transcript is the text."""
    if audio is None:
        return
    transcript = audio.take("transcript")
    # Beside a text the transcript would say the same a second time.
    if not "".join(draft.texts):
        draft.add_text(transcript, audio.at)
    audio.close(("id", "data", "expires_at", "format"), role=draft.role)


def _add_result(fields: Fields, draft: Draft) -> None:
    content = fields.take("content")
    failed = fields.take_flag("tool_call_error", "is_error")
    draft.add_result(
        read_result_value(content),
        fields.at,
        id=fields.take("tool_call_id", "toolCallId"),
        name=fields.take("name", "tool_name"),
        failed=failed,
    )


def read_result_value(content: Json) -> Json:
    """Return what a tool answered: its text, or the data of its documents (Cohere)."""
    documents = [dict_or_empty(dict_or_empty(part).get("document")).get("data") for part in list_of(content)]
    if documents and all(data is not None for data in documents):
        return (
            join_text_parts(documents)
            if all(isinstance(data, str) for data in documents)
            else documents[0]
            if len(documents) == 1
            else documents
        )
    return join_text_parts(content)
