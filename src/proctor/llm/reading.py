"""Shared readers for the answers of several providers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec

from proctor.evidence.shared.usage import read_usage
from proctor.llm.ports import Attachment, ChatReply, FaultCode, Finish, ModelCall, ModelFault, classify_status
from proctor.model.evidence import Json, Usage
from proctor.model.json_values import decode_embedded
from proctor.model.show import kind_of, show

# --- classifies pictures and documents of a message

_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml")

AttachmentKind = Literal["image", "document", "audio", "text"]
FILTERED = "an answer that a content filter has cut"


def classify_attachment(attachment: Attachment) -> AttachmentKind:
    """Return the kind of an attachment. Raises `ModelFault` for one that no provider supports."""
    if attachment.data is None and attachment.url is None:
        raise ModelFault("bad_request", f"the attachment {show(attachment.name or '(without a name)')} has neither data nor an address")
    kind = attachment.media_type.partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        return "image"
    if kind == "application/pdf":
        return "document"
    if kind.startswith("audio/"):
        return "audio"
    if attachment.data is not None and (kind.startswith("text/") or kind in _TEXTS):
        return "text"
    raise refuse_attachment(attachment)


def refuse_attachment(attachment: Attachment) -> ModelFault:
    """Return the fault for an attachment that this provider does not support."""
    return ModelFault(
        "bad_request",
        f"the attachment {show(attachment.name or '(without a name)')} of type {show(attachment.media_type)} cannot be given to this model",
    )


def read_text_attachment(attachment: Attachment) -> str:
    """Return the text of a text attachment, under its name."""
    try:
        text = base64.b64decode(attachment.data or "", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ModelFault(
            "bad_request", f"the attachment {show(attachment.name or '(without a name)')} is not base64 of UTF-8 text"
        ) from None
    return f"{attachment.name}:\n{text}" if attachment.name else text


def make_data_url(attachment: Attachment) -> str:
    """Return the attachment as one address: its own, or a data URL."""
    return attachment.url or f"data:{attachment.media_type};base64,{attachment.data}"


def refuse_answer(answer: Json, why: str) -> ModelFault:
    """Return the fault for an answer that is JSON, but not of the provider's shape."""
    return ModelFault("bad_answer", f"the model's answer cannot be used: {why}; it is {show(answer, 200)}")


def make_reported_fault(error: Json, who: str, codes: dict[str, FaultCode], key: str = "code") -> ModelFault:
    """Return the fault for a failure that an answer reports; `codes` are those of the provider under `key`, or statuses of HTTP."""
    code: Json = error.get(key) if isinstance(error, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    message = f"{who} reported an error: {text if isinstance(text, str) else show(error)}"
    if isinstance(code, int) and code >= 400:
        return ModelFault(classify_status(code), message, status=code)
    return ModelFault(codes.get(str(code), codes["*"]), message)


def read_arguments(value: Json) -> Json:
    """Return the arguments of a tool call as an object, or the original text if it is not an object."""
    if value is None or isinstance(value, dict):
        return value or {}
    if not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if not value.strip():
        return {}
    inner = decode_embedded(value)
    return inner if isinstance(inner, dict) else value


def read_call(ident: Json, name: Json, arguments: Json, position: int) -> ModelCall:
    """Return one tool call; without an id it gets one by its position."""
    return ModelCall(
        id=ident if isinstance(ident, str) and ident else f"call_{position}",
        name=name if isinstance(name, str) else "",
        arguments=read_arguments(arguments),
    )


def read_text(content: Json, kinds: tuple[str, ...] = ("text", "output_text")) -> str:
    """Return the text of a message: text itself, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in list_objects(content) if part.get("type") in kinds and isinstance(part.get("text"), str))


def list_unread_kinds(values: Json, known: Collection[str], what: str) -> tuple[str, ...]:
    """Describe the list members of unknown kinds: they may be requests of the model."""
    if not isinstance(values, list):
        return ()
    kinds = [value.get("type") if isinstance(value, dict) else kind_of(value) for value in values]
    return tuple(dict.fromkeys(f"{what} of the kind {show(kind, 60)}" for kind in kinds if not (isinstance(kind, str) and kind in known)))


def list_objects(value: Json) -> list[dict[str, Any]]:
    """Return the objects of a list, or an empty list for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def complete_usage(usage: Usage | None) -> Usage | None:
    """Return usage with its total, which some providers omit."""
    if usage is None or usage.total_tokens is not None or usage.input_tokens is None or usage.output_tokens is None:
        return usage
    return msgspec.structs.replace(usage, total_tokens=usage.input_tokens + usage.output_tokens)


def build_reply(
    answer: dict[str, Json], text: str, calls: Sequence[ModelCall], finish: Finish, unread: Iterable[str], *, refused: bool = False
) -> ChatReply:
    """Return a reply with the usage and the model's name of the answer; a refusal counts as filtered."""
    name = answer.get("model")
    return ChatReply(
        text=text,
        tool_calls=tuple(calls),
        finish="content_filter" if refused else finish,
        unread=(*unread, *((FILTERED,) if finish == "content_filter" else ())),
        usage=complete_usage(read_usage(answer.get("usage"))),
        model=name if isinstance(name, str) else "",
    )


def read_finish(reason: Json, meanings: dict[str, Finish], calls: tuple[ModelCall, ...]) -> Finish:
    """Return why the model stopped. Some servers report `stop` together with tool calls."""
    finish = meanings.get(reason, "other") if isinstance(reason, str) else "stop"
    return "tool_calls" if calls and finish in ("stop", "other") else finish


def is_closed_schema(schema: Json) -> bool:
    """Return whether every object of a schema lists all its members as required and allows no others.

    Only such a schema may be sent as `strict` to OpenAI. A schema that refers to others is left to the provider to refuse or not.
    """
    waiting: list[Json] = [schema]
    # Bounded, because a schema may be of any size: a larger one counts as open, and is not sent as `strict`.
    for _ in range(10_000):
        if not waiting:
            return True
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            members = node.get("properties")
            if isinstance(members, dict) or node.get("type") == "object":
                names = set(members) if isinstance(members, dict) else set[str]()
                required: Json = node.get("required") or []
                if node.get("additionalProperties") is not False or not isinstance(required, list) or set(required) != names:
                    return False
            # A value under these keys is not a schema, whatever its shape.
            waiting.extend(value for key, value in node.items() if key not in ("enum", "const", "examples", "default"))
    return False
