"""Objects that an instrumentation wrote into a text as Python prints them."""

from __future__ import annotations

import ast
from typing import Any, Final

PRINTED: Final = (
    "ResponseFunction",
    "ResponseCustomTool",
    "ResponseOutput",
    "ResponseComputer",
    "ResponseCode",
    "ResponseFile",
    "McpCall(",
)
"""How items of OpenAI's Responses begin when Python prints them."""
_LONGEST = 20_000
"""Characters of a printed object; Python's own parser reads it, which is slow."""


def parse_printed_object(text: str) -> dict[str, Any] | None:
    """Return the members of one printed object (`None` for members that are objects), or None if it cannot be read."""
    if len(text) > _LONGEST:
        return None
    # Parsed, never run: a trace is somebody else's text. Python's parser answers too deep a nesting with a `MemoryError`.
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call) or call.args:
        return None
    return {word.arg: word.value.value if isinstance(word.value, ast.Constant) else None for word in call.keywords if word.arg is not None}
