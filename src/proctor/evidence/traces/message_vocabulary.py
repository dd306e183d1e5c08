"""The words that providers and frameworks use in messages: roles, types of parts, and names of members.

A word that is not listed is not understood. One table for all of them: a span does not say whose messages it holds.
"""

from __future__ import annotations

from typing import cast

from proctor.evidence.shared.conversation import Role

# `tool-call` and `tool-response` are roles of smolagents, the ones that end in `message` are LangChain's classes.
ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "human", "humanmessage", "humanmessagechunk", "input"), cast(Role, "user")),
    **dict.fromkeys(
        ("assistant", "ai", "model", "aimessage", "aimessagechunk", "agent", "chatbot", "bot", "tool-call"), cast(Role, "assistant")
    ),
    **dict.fromkeys(("system", "developer", "systemmessage", "systemmessagechunk", "instructions"), cast(Role, "system")),
    **dict.fromkeys(("tool", "function", "toolmessage", "toolmessagechunk", "functionmessage", "tool-response"), cast(Role, "tool")),
}
EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
TEXTS = frozenset(("text", "output_text", "input_text", "refusal", "summary_text"))
CALLS = frozenset(
    (
        "tooluse",
        *(
            "tool_call",
            "tool_use",
            "toolcall",
            "tool-call",
            "function_call",
            "function",
            "server_tool_use",
            "mcp_tool_use",
            "server_tool_call",
        ),
        *("custom_tool_call", "mcp_call", "builtin-tool-call", "builtin_tool_call"),
    )
)
RESULTS = frozenset(
    (
        *("tool_call_response", "tool_result", "tool-result", "function_call_output", "function_result", "tool_response", "tool-return"),
        *(
            "server_tool_call_response",
            "server_tool_result",
            "custom_tool_call_output",
            "toolresult",
            "tool_call_result",
            "function_response",
        ),
        *("builtin-tool-return", "mcp_tool_result", "retry-prompt"),
    )
)
SILENT = frozenset(
    (
        *("reasoning", "thinking", "redacted_thinking", "image", "image_url", "image-url", "file", "blob", "uri", "audio", "input_audio"),
        *("document", "media", "input_image", "input_file", "cache_point", "step-start", "source", "video", "item_reference", "binary"),
        *("compaction", "mcp_list_tools", "document-url", "audio-url", "video-url"),
    )
)
ALONE = CALLS | RESULTS | SILENT
"""Types that a part may have where it stands in place of a message."""
OF_ONE_MESSAGE = TEXTS | {"tool_call", "tool_use", "tool_result", "tool_call_response"}
"""Types of parts that, listed without roles, belong to one message."""
HOSTED = frozenset(
    (
        *("web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "image_generation_call", "local_shell_call"),
        *("shell_call", "apply_patch_call", "tool_search_call"),
    )
)
"""Calls of tools that a provider runs itself and that are named by their type."""
HOSTED_SUFFIXES = ("_call", "_tool_result", "_call_output")
KEYED_CALLS = (
    "functionCall",
    "function_call",
    "toolUse",
    "tool_use",
    "tool_call",
    "toolCall",
    "executableCode",
    "executable_code",
    "toolRequest",
)
KEYED_RESULTS = (
    "functionResponse",
    "function_response",
    "toolResult",
    "tool_result",
    "tool_call_result",
    "codeExecutionResult",
    "toolResponse",
)
KEYED_SILENT = frozenset(
    (
        *(
            "inlineData",
            "inline_data",
            "fileData",
            "file_data",
            "image",
            "image_url",
            "reasoningContent",
            "reasoning",
            "cachePoint",
            "document",
        ),
        *(
            "thought_signature",
            "thoughtSignature",
            "video",
            "audio",
            "guardContent",
            "citationsContent",
            "media_resolution",
            "mediaResolution",
        ),
    )
)
NAME = ("name", "tool_name", "toolName", "function_name")
ARGUMENTS = ("arguments", "args", "input", "tool_kwargs", "toolInput", "tool_input", "kwargs", "parameters", "partial_args")
ID = ("call_id", "callId", "ref", "tool_call_id", "toolCallId", "toolUseId", "tool_use_id", "tool_id", "id")
CALL_KEYS = frozenset(
    (
        *(*NAME, *ARGUMENTS, *ID, "type", "block_type", "part_kind", "index", "status", "error", "function", "custom", "tool_call"),
        *("server_name", "server_label", "description", "namespace", "caller", "approval_request_id", "output", "extra", "provider_name"),
        *("provider_details", "provider_executed", "providerExecuted", "thought_signature", "metadata", "dynamic", "server_tool_call"),
    )
)
"""Members of calls that are understood, or are known not to be arguments."""
VALUE = ("response", "server_tool_call_response", "result", "output", "content", "tool_output", "value", "text")
RESULT_ID = ("tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "call_id", "ref", "id")
RESULT_KEYS = frozenset(
    (
        *(*NAME, *VALUE, *RESULT_ID, "type", "block_type", "part_kind", "index", "status", "error", "is_error", "isError", "origin"),
        *("providerOptions", "providerMetadata", "provider_details", "provider_name", "metadata", "timestamp", "outcome", "input"),
        *("structuredContent", "tool_kind", "retry", "will_continue", "scheduling", "parts", "cache_control", "citations", "caller"),
        *("annotations", "exception", "items", "dynamic", "preliminary", "extra", "_meta", "call_id", "raw_input", "title"),
    )
)
"""Members of results that are understood, or are known to tell nothing of how a call ended."""
PARTS = ("parts", "content", "blocks", "contents", "items", "text")
WORDS = ("text", "content")
BESIDE_TEXT = frozenset(
    (
        *("text", "content", "refusal", "annotations", "citations", "logprobs", "metadata", "meta", "cache_control", "extras", "index"),
        *(
            "provider_details",
            "providerOptions",
            "providerMetadata",
            "provider_metadata",
            "additional_kwargs",
            "_meta",
            "additional_properties",
        ),
    )
)
"""Members of text parts that tell nothing an agent did."""
MESSAGE_CONTENT = frozenset(("content", "parts", "tool_calls"))
# `invalid_tool_calls` are LangChain's for arguments that were no JSON: the model did ask for these tools.
CALL_LISTS = ("tool_calls", "toolCalls", "invalid_tool_calls", "tool_call_chunks")
MESSAGE_KEYS = frozenset(
    (
        *(
            "role",
            "content",
            "parts",
            "blocks",
            "contents",
            "text",
            "type",
            "name",
            "id",
            "index",
            "finish_reason",
            "finishReason",
            "refusal",
        ),
        *("tool_calls", "toolCalls", "invalid_tool_calls", "tool_call_chunks", "function_call", "tool_call_id", "toolCallId", "status"),
        *("additional_kwargs", "response_metadata", "usage_metadata", "usage", "metadata", "meta", "example", "annotations", "audio", "lc"),
        *(
            "gen_ai.message.index",
            "event.name",
            "gen_ai.system",
            "created_at",
            "reasoning",
            "reasoning_content",
            "model",
            "artifact",
            "message",
        ),
        *("logprobs", "stop_reason", "stop_sequence", "container", "provider_details", "providerMetadata", "providerOptions", "tool_call"),
        *(
            "message_index",
            "function_call_name",
            "function_call_arguments_json",
            "tool_name",
            "tool_plan",
            "citations",
            "is_error",
            "error",
        ),
        *("source", "object", "phase", "service_tier", "provider_specific_fields", "stop_details", "context_management", "summary"),
        *(
            "provider_data",
            "async_",
            "content_type",
            "ai_model_id",
            "inner_content",
            "encoding",
            "items",
            "prefix",
            "tool_call_error",
            "images",
            "videos",
            "files",
        ),
        *("chunk_position", "reasoning_details", "tool_arguments", "encrypted_content", "kind", "timestamp", "instructions", "partial"),
        *(
            "tool_args",
            "call_id",
            "output",
            "arguments",
            "action",
            "results",
            "queries",
            "code",
            "outputs",
            "result",
            "caller",
            "namespace",
        ),
    )
)
"""Members of messages that are understood, or are known to carry nothing an agent did."""
NOT_CALLS = frozenset(("mcp_list_tools",))
"""What a provider tells like a call and is none: it asked a server which tools it has."""
GOOD = frozenset(("", "success", "ok", "completed", "complete", "done", "none", "in_progress", "incomplete", "succeeded", "finished"))
"""Words for a call that did not fail."""
WITHHELD = frozenset(("<elided>", "__REDACTED__", "[REDACTED]", "[redacted]", "***", "REDACTED"))
"""What instrumentations write in place of a text that must not be recorded."""
