"""Finds tool calls that a model writes into its text, which a program may execute although no list of calls shows them."""

from __future__ import annotations

import re
from typing import Any

from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json

LOOKS_LIKE_CALL = "the text looks like a tool call in words, which is not read"

_TOKENS = (
    r"<(?:\w+:)?(?:tool_calls?|function_calls?|invoke)\b",  # Hermes, Qwen, GLM, Jamba, MiniMax
    r"<function=",
    r"<[|\uff5c]\s*tool",  # Kimi, Granite, Phi, DeepSeek
    r"<\|python_tag\|>|<\|action_start\|>|<\|START_ACTION\|>",
    r"<\|call\|>|<\|channel\|>[^<]*\bto=|\bto=functions\.\w",  # Harmony
    r"\[TOOL_CALLS\]",
    "\u273fFUNCTION\u273f",
    r"^[ \t]*```tool_(?:code|call)\b|<tool_code>",
    r"^>>>(?!all\b)[A-Za-z_][\w.-]*\n\s*\{",
    r"\[\[ ## (?:next_tool_name|tool_calls) ## \]\]",  # DSPy
)
_TAGS = (
    r"<tool_input>|<tool_name>",
    r"^[ \t]*<(?:use_mcp_tool|access_mcp_resource|execute_command|execute_bash|execute_ipython|read_file|write_to_file|replace_in_file"
    r"|apply_diff|insert_content|search_files|search_and_replace|list_files|list_code_definition_names|codebase_search|browser_action"
    r"|fetch_instructions|new_task|switch_mode)>",  # Cline, Roo, OpenHands
)
_LINES = (
    r"^\s*Calling tools?:",
    r"^[ \t*]*Action(?: \d+)?:[^\n]*\n\s*\**Action Input(?: \d+)?:",
    r"^[ \t*]*Action(?: \d+)?:[* \t]*(?!Finish\b)[A-Za-z_][\w.-]*[\[(][^\n]*[\])][* \t]*$",  # the paper of ReAct
)
_MEMBERS = (
    r"[\"'](?:server_|mcp_)?(?:tool|function)[_-]?(?:calls?|use|request|invocation)[\"']",
    r"[\"']action[\"']\s*:\s*[\"'](?!Final Answer)[^\"'\n]+[\"']\s*,\s*[\"']action_input[\"']\s*:",
    r"[\"']command[\"']\s*:\s*\{\s*[\"']name[\"']\s*:",
)
_SPOKEN = re.compile("|".join((*_TOKENS, *_TAGS, *_LINES, *_MEMBERS)), re.MULTILINE | re.IGNORECASE)
# Llama's models write calls as Python would: `[get_weather(city="Rome")]`.
_PYTHONIC = re.compile(r"\s*\[\s*[A-Za-z_][\w.]*\([^()]*\)(?:\s*,\s*[A-Za-z_][\w.]*\([^()]*\))*\s*\]\s*\Z")
_QUOTED = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)

_NAMES = ("name", "function", "tool", "tool_name")
_GIVEN = ("parameters", "arguments", "args", "tool_input", "tool_args")
_CALL_KEYS = frozenset((*_NAMES, *_GIVEN, "type", "id"))
_CALL_WORDS = ("tool", "function", "action", "command")


def call_in_words(text: str) -> str | None:
    """Explain why it is unknown whether a text of a model calls a tool, or return None if it contains no call."""
    if text.lstrip()[:1] in ("{", "[", "`") and (_is_json_call(text) or _PYTHONIC.match(text)):
        return LOOKS_LIKE_CALL
    if not _may_hold_call(text) or _SPOKEN.search(text) is None:
        return None
    # A call that is only mentioned is quoted; a real one is not.
    return LOOKS_LIKE_CALL if "`" not in text or _SPOKEN.search(_QUOTED.sub("``", text)) is not None else None


def _may_hold_call(text: str) -> bool:
    """Return whether a text has an angle bracket or a word for calls: most have neither, and the patterns take a hundred times as long."""
    if "<" in text or ">" in text:
        return True
    lowered = text.lower()
    # Case-insensitive patterns also match the two Turkish letters for `i`, which `lower` does not change.
    return any(word in lowered for word in _CALL_WORDS) or (not text.isascii() and ("\u0130" in text or "\u0131" in text))


def _is_json_call(text: str) -> bool:
    """Return whether a text is only the JSON of one or more calls; models may wrap it in a fence."""
    fenced = _FENCED.match(text)
    value: Json = decode_container((fenced.group(1) if fenced else text).strip())
    calls: list[Any] = value if isinstance(value, list) else [value]
    return bool(calls) and all(
        isinstance(call, dict)
        and _CALL_KEYS.issuperset(call)
        and any(isinstance(call.get(key), str) for key in _NAMES)
        and any(isinstance(call.get(key), dict) for key in _GIVEN)
        for call in calls
    )
