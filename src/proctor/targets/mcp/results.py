"""Plain values for a server's identity, tools and results; recorded on a tape unchanged.

A result is an MCP result object (`content`, `structuredContent`, `isError`), stored as JSON for evidence and as text for the model, both
bounded. A text over the limit loses its middle, with a mark; a result that is still too big becomes one such text.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from proctor.evidence.values.text import parse_json
from proctor.model.evidence import Json
from proctor.model.json_values import join_surrogates

ResultForm = Literal["whole", "text"]
RESULT_LIMIT = 100_000
"""Maximum characters of one text in a tool result."""
_WHOLE = 4
"""A whole result may be this many times as long as one text in it."""
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class RemoteTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as its server describes it."""

    name: str
    description: str = ""
    schema: dict[str, Json] = {}


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server's name, version and capabilities."""

    server: str
    """The id in our settings."""
    name: str | None = None
    version: str | None = None
    protocol: str = ""
    tools: tuple[RemoteTool, ...] = ()


class CallResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a tool call."""

    result: Json = None
    """The MCP result; nothing where the call itself failed."""
    error: str | None = None
    """Why the call itself failed."""
    gone: bool = False
    """The server cannot be called any more."""


def cut_middle(text: str, limit: int) -> str:
    """Return a text of about `limit` characters: the middle is taken out, visibly."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit:,} of {len(text):,} characters cut by proctor …]\n{text[len(text) - tail :]}"


def plain_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result as the server gave it, without what only the protocol needs."""
    content = {"content": [], **{key: value for key, value in result.items() if key not in ("_meta", "resultType")}}
    meta = {key: value for key, value in (result.get("_meta") or {}).items() if key != _SERVER_INFO}
    return {**content, "_meta": meta} if meta else content


def can_be_written(value: Json) -> bool:
    """Return whether all texts in a value are text: half a surrogate pair is not."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def mend_texts(value: Json) -> Json:
    """Return the value with every half surrogate pair replaced by U+FFFD."""
    if can_be_written(value):
        return value
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, list):
        return [mend_texts(item) for item in value]
    if isinstance(value, dict):
        return {mend_texts(key): mend_texts(item) for key, item in value.items()}
    return value


def bound_result(value: Json, limit: int = RESULT_LIMIT) -> Json:
    """Return the value with long texts cut; the whole is at most a few times `limit`."""
    encoded = msgspec.json.encode(value)
    if len(encoded) <= limit:
        return value
    shorter = _cut_texts(value, limit)
    encoded = msgspec.json.encode(shorter)
    if len(encoded) <= _WHOLE * limit:
        return shorter
    # A failure stays one however much of it is cut.
    whole = {"content": [{"type": "text", "text": cut_middle(encoded.decode(), limit)}]}
    return {**whole, "isError": True} if isinstance(value, dict) and value.get("isError") is True else whole


def _cut_texts(value: Json, limit: int) -> Json:
    # Nested no deeper than the JSON parsers of the wire allow, so recursion is bounded.
    if isinstance(value, str):
        return cut_middle(value, limit)
    if isinstance(value, list):
        return [_cut_texts(item, limit) for item in value]
    if isinstance(value, dict):
        return {key: _cut_texts(item, limit) for key, item in value.items()}
    return value


def text_for_model(result: Json, limit: int = RESULT_LIMIT, form: ResultForm = "whole") -> str:
    """Return the text that the model gets: the whole result as compact JSON, or its texts and then whatever else is in it."""
    if form == "whole" or not isinstance(result, dict):
        return cut_middle(_encode_compact(result), limit)
    content = result.get("content")
    parts = [_write_part(part) for part in content] if isinstance(content, list) else []
    structured = result.get("structuredContent")
    # A server that sends both usually writes the one into the other.
    if structured is not None and not any(parse_json(part) == structured for part in parts):
        parts.append(_encode_compact(structured))
    text = cut_middle("\n".join(parts), limit) or "(no content)"
    return f"Error: {text}" if result.get("isError") is True else text


def _write_part(part: Json) -> str:
    if isinstance(part, dict):
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            return part["text"]
        if isinstance(part.get("data"), str):
            # Half a picture in base64 is of no use to anyone.
            return _encode_compact({**part, "data": f"({len(part['data']):,} characters of base64)"})
    return _encode_compact(part)


def _encode_compact(value: Json) -> str:
    return msgspec.json.encode(value).decode()
