"""Parts of token counts that are priced in their own way: input that a provider had in its cache or wrote into it, and reasoning.

Some providers count the cached tokens among the input, some beside it:

    OpenAI and compatible    prompt_tokens_details.cached_tokens, input_tokens_details.cached_tokens        among the input
    DeepSeek                 prompt_cache_hit_tokens                                                       among the input
    Gemini                   cachedContentTokenCount                                                       among the input
    LangChain                input_token_details.cache_read, cache_creation                                among the input
    AI SDK                   cachedInputTokens; inputTokenDetails or inputTokens .cacheRead(Tokens), ...    among the input
    pydantic-ai              cache_read_tokens, cache_write_tokens                                         among the input
    Anthropic, Bedrock       cache_read_input_tokens, cache_creation_input_tokens; in camelCase            beside the input

Here the input is always all of it. Reasoning is output: Gemini counts it beside the answer, all others within.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from proctor.model.evidence import Json, Usage

Count = Callable[[Json], int | None]

_READ_WITHIN: Final = (
    "cached_input_tokens", "cachedInputTokens", "cachedContentTokenCount", "cached_content_token_count",
    "prompt_cache_hit_tokens", "cache_read_tokens",
)  # fmt: skip
_WRITTEN_WITHIN: Final = ("cache_write_tokens",)
_READ_BESIDE: Final = ("cache_read_input_tokens", "cacheReadInputTokens", "cacheReadInputTokenCount")
_WRITTEN_BESIDE: Final = (
    "cache_creation_input_tokens", "cacheCreationInputTokens", "cacheWriteInputTokens", "cacheWriteInputTokenCount",
)  # fmt: skip
_DETAILS: Final = (
    "prompt_tokens_details", "input_tokens_details", "input_token_details", "promptTokensDetails", "inputTokensDetails",
    "inputTokenDetails", "inputTokens",
)  # fmt: skip
_READ_IN_DETAILS: Final = ("cached_tokens", "cache_read", "cachedTokens", "cacheRead", "cacheReadTokens")
_WRITTEN_IN_DETAILS: Final = ("cache_creation", "cache_creation_tokens", "cacheWrite", "cacheWriteTokens")
_INPUT_OF_ALL: Final = ("prompt_tokens", "promptTokens")
"""Names under which nobody counts cached tokens beside the input."""
_REASONING: Final = ("thoughtsTokenCount", "thoughts_token_count", "reasoningTokens", "reasoning_tokens")
_REASONING_BESIDE: Final = _REASONING[:2]
_TOOL_INPUT: Final = ("toolUsePromptTokenCount", "tool_use_prompt_token_count")


def add_parts(usage: Usage, given: dict[str, Any], count: Count) -> Usage:
    """Return the usage with the parts that `given` tells; input and output are then all of either."""
    usage = _add_cached(usage, given, count)
    return _add_reasoning(usage, given, count)


def _add_cached(usage: Usage, given: dict[str, Any], count: Count) -> Usage:
    read = find_count(given, _READ_WITHIN, count)
    written = find_count(given, _WRITTEN_WITHIN, count)
    for name in _DETAILS:
        inner = given.get(name)
        if isinstance(inner, dict):
            read = read if read is not None else find_count(inner, _READ_IN_DETAILS, count)
            written = written if written is not None else find_count(inner, _WRITTEN_IN_DETAILS, count)
    read_beside, written_beside = find_count(given, _READ_BESIDE, count), find_count(given, _WRITTEN_BESIDE, count)
    changes: dict[str, int] = {}
    beside = (read_beside or 0) + (written_beside or 0)
    if beside and usage.input_tokens is not None and not _has_all_input(usage, given, beside):
        changes["input_tokens"] = usage.input_tokens + beside
    read = read if read is not None else read_beside
    written = written if written is not None else written_beside
    if read:
        changes["cached_input_tokens"] = read
    if written:
        changes["cache_write_tokens"] = written
    return msgspec.structs.replace(usage, **changes) if changes else usage


def _has_all_input(usage: Usage, given: dict[str, Any], beside: int) -> bool:
    """Return whether the input counts the cached tokens already, though their names say otherwise: relays that translate do that."""
    if any(given.get(name) is not None for name in _INPUT_OF_ALL):
        return True
    total, parts = usage.total_tokens, (usage.input_tokens or 0) + (usage.output_tokens or 0)
    return total is not None and total == parts and (usage.input_tokens or 0) >= beside


def _add_reasoning(usage: Usage, given: dict[str, Any], count: Count) -> Usage:
    if usage.input_tokens is None or usage.output_tokens is None:
        return usage
    thought, tools = find_count(given, _REASONING, count) or 0, find_count(given, _TOOL_INPUT, count) or 0
    if not thought and not tools:
        return usage
    missing = None if usage.total_tokens is None else usage.total_tokens - usage.input_tokens - usage.output_tokens
    # Without a total only the name tells; with one, the sum does.
    beside = find_count(given, _REASONING_BESIDE, count) is not None or bool(tools) if missing is None else missing == thought + tools
    if not beside:
        return usage
    return msgspec.structs.replace(usage, input_tokens=usage.input_tokens + tools, output_tokens=usage.output_tokens + thought)


def find_count(given: dict[str, Any], names: tuple[str, ...], count: Count) -> int | None:
    """Return the first number that stands under one of these names."""
    for name in names:
        if name in given:
            found = count(given[name])
            if found is not None:
                return found
    return None
