"""Plain values for a server's identity, tools and results; recorded on a tape unchanged.

A result is an MCP result object (`content`, `structuredContent`, `isError`), stored as JSON for evidence and as text for the model, both
bounded. A text over the limit loses its middle, with a mark; a result that is still too big becomes one such text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import join_surrogates
from proctor.targets.shared.masking import rewrite_texts

RESULT_LIMIT = 100_000
"""Maximum characters of one text in a tool result."""
_WHOLE = 4
"""The limit of a whole result, as a multiple of the limit of one text."""
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class RemoteTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as its server describes it."""

    name: str
    title: str = ""
    description: str = ""
    schema: dict[str, Json] = {}
    """The JSON Schema of its arguments."""
    output_schema: dict[str, Json] | None = None
    annotations: dict[str, Json] = {}
    """Hints such as `readOnlyHint`."""
    icons: tuple[dict[str, Json], ...] = ()
    meta: dict[str, Json] = {}
    """Its `_meta`."""


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server's name, version and capabilities."""

    server: str
    """The id in our settings."""
    name: str | None = None
    version: str | None = None
    protocol: str = ""
    tools: tuple[RemoteTool, ...] = ()


class CallResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a tool call."""

    result: Json = None
    """The MCP result; None if the call itself failed."""
    error: str | None = None
    """Why the call itself failed."""
    gone: bool = False
    """The server cannot be called any more."""


def cut_middle(text: str, limit: int) -> str:
    """Return a text of about `limit` characters, with its middle visibly removed."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit:,} of {len(text):,} characters cut by proctor …]\n{text[len(text) - tail :]}"


def plain_result(result: dict[str, Any], *, content: bool = True) -> dict[str, Any]:
    """Return a result as the server sent it, without protocol fields; a result of a tool has `content`."""
    fields = {**({"content": []} if content else {}), **{key: value for key, value in result.items() if key not in ("_meta", "resultType")}}
    meta = {key: value for key, value in (result.get("_meta") or {}).items() if key != _SERVER_INFO}
    return {**fields, "_meta": meta} if meta else fields


def can_be_written(value: Json) -> bool:
    """Return whether all texts in a value can be encoded: half a surrogate pair cannot."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def mend_texts(value: Json) -> Json:
    """Return the value with every half surrogate pair replaced by U+FFFD."""
    return value if can_be_written(value) else rewrite_texts(value, join_surrogates)


def bound_result(value: Json, limit: int = RESULT_LIMIT) -> Json:
    """Return the value with long texts cut; its total is at most a few times `limit`."""
    encoded = msgspec.json.encode(value)
    if len(encoded) <= limit:
        return value
    shorter = rewrite_texts(value, lambda text: cut_middle(text, limit))
    encoded = msgspec.json.encode(shorter)
    if len(encoded) <= _WHOLE * limit:
        return shorter
    # A failure stays a failure after cutting.
    shortened = {"content": [{"type": "text", "text": cut_middle(encoded.decode(), limit)}]}
    return {**shortened, "isError": True} if isinstance(value, dict) and value.get("isError") is True else shortened


def text_for_model(result: Json, limit: int = RESULT_LIMIT) -> str:
    """Return the text for the model: the whole result as compact JSON, as in MCPLab and MCPJam."""
    return cut_middle(msgspec.json.encode(result).decode(), limit)
