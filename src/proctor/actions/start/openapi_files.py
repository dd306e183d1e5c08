"""Finds the path of an OpenAPI file that takes a message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from proctor.actions.start.files import read_text_of
from proctor.actions.start.found import FoundExport
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Reading
from proctor.model.evidence import Json

_MESSAGE_FIELDS = ("message", "input", "question", "query", "prompt", "text", "user_message", "content")
_NO_MESSAGE = (
    "model",
    "user",
    "role",
    "name",
    "language",
    "lang",
    "locale",
    "stream",
    "token",
    "key",
    "api_key",
    "version",
    "type",
    "format",
)
"""Texts that no message goes into, also where a request has no other."""
_CHAT = "messages"
_RANKS = {**{field: rank for rank, field in enumerate(_MESSAGE_FIELDS)}, _CHAT: 0}
_MODEL_VARIABLE = "AGENT_MODEL"
_ANSWER_FIELDS = ("text", "message", "content", "output", "answer", "response", "reply")


def read_openapi_text(path: Path) -> Json:
    """Return a YAML file that says it is OpenAPI; other YAML is not taken apart."""
    text = read_text_of(path)
    if not re.search(r"^(?:openapi|swagger):", text, re.MULTILINE):
        return None
    document = read_text(text, file=str(path), reading=Reading(file=str(path), text=text))
    return document.plain() if document is not None else None


def read_openapi(document: dict[str, Any], name: str) -> FoundExport | None:
    """Return the path that is most likely to take a message; None for what is no OpenAPI document, or has no such path."""
    if not isinstance(document.get("openapi") or document.get("swagger"), str) or not isinstance(document.get("paths"), dict):
        return None
    servers = document.get("servers")
    first = servers[0].get("url") if isinstance(servers, list) and servers and isinstance(servers[0], dict) else None
    base = first if isinstance(first, str) and first.startswith("http") else f"http://127.0.0.1:8000{first or ''}"
    candidates = [
        (path, field, operation)
        for path, methods in document["paths"].items()
        if isinstance(methods, dict) and isinstance(operation := methods.get("post"), dict) and "{" not in path
        for field in [_find_request_field(operation, document)]
    ]
    if not candidates:
        return None
    path, field, operation = min(candidates, key=lambda one: _RANKS.get(one[1] or "", 99))
    if field == _CHAT:
        return _describe_chat(base.rstrip("/") + path, operation, document, name)
    settings: dict[str, Json] = {"type": "http", "url": base.rstrip("/") + path, "template": {field or "input": "{user_message}"}}
    answer = _find_answer_field(operation, document)
    if answer is not None:
        settings["response_path"] = answer
    remarks = () if field else (f"the request of {path} has no member that looks like a message: see that `template` fits",)
    return FoundExport(kind="openapi", file=name, settings=settings, remarks=remarks)


def _find_request_field(operation: dict[str, Any], document: dict[str, Any]) -> str | None:
    members = _list_members(operation.get("requestBody"), document)
    followed = {name: _follow(schema, document) for name, schema in members.items()}
    texts = [name for name, schema in followed.items() if isinstance(schema, dict) and schema.get("type", "string") == "string"]
    known = next((field for field in _MESSAGE_FIELDS if field in texts), None)
    chat = followed.get(_CHAT)
    if known is None and isinstance(chat, dict) and chat.get("type") == "array":
        return _CHAT
    left = [name for name in texts if name.lower() not in _NO_MESSAGE and not name.lower().endswith("id")]
    return known or (left[0] if len(left) == 1 else None)


def _describe_chat(url: str, operation: dict[str, Any], document: dict[str, Any], name: str) -> FoundExport:
    """Return a path that takes a list of messages, as the one for chat completions does."""
    template: dict[str, Json] = {_CHAT: "{messages}"}
    remarks: tuple[str, ...] = ()
    body = _find_body(operation.get("requestBody"), document)
    members = _list_members(operation.get("requestBody"), document)
    if "model" in members:
        said = _find_said_value(_follow(members["model"], document))
        required = body.get("required")
        if said is not None:
            template = {"model": said, **template}
        elif isinstance(required, list) and "model" in required:
            template = {"model": f"${{{_MODEL_VARIABLE}}}", **template}
            remarks = (f"set {_MODEL_VARIABLE} to the model that the request names, or write it into `template`",)
    settings: dict[str, Json] = {"type": "http", "url": url, "template": template}
    answer = _find_answer_field(operation, document)
    if url.endswith("/chat/completions") or "choices" in _list_members(_find_answer(operation), document):
        settings["answer_format"] = "openai"
    elif answer is not None:
        settings["response_path"] = answer
    else:
        remarks = (*remarks, "the answer has no member that looks like a text: see whether `answer_format` or `response_path` is needed")
    return FoundExport(kind="openapi", file=name, settings=settings, remarks=remarks)


def _find_said_value(schema: Json) -> str | None:
    """Return the value that a schema gives for a text: its default, its example, or the first of its choices."""
    if not isinstance(schema, dict):
        return None
    choices = schema.get("enum")
    several = (schema.get("const"), schema.get("default"), schema.get("example"), *(choices if isinstance(choices, list) else ()))
    return next((value for value in several if isinstance(value, str) and value), None)


def _find_answer_field(operation: dict[str, Any], document: dict[str, Any]) -> str | None:
    return next((field for field in _ANSWER_FIELDS if field in _list_members(_find_answer(operation), document)), None)


def _find_answer(operation: dict[str, Any]) -> Json:
    responses = operation.get("responses")
    return next((responses[code] for code in ("200", "201", "default") if code in responses), None) if isinstance(responses, dict) else None


def _list_members(holder: Json, document: dict[str, Any]) -> dict[str, Any]:
    """Return the members of the JSON body that a request or a response describes."""
    members = _find_body(holder, document).get("properties")
    return members if isinstance(members, dict) else {}


def _find_body(holder: Json, document: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the JSON body that a request or a response describes."""
    holder = _follow(holder, document)
    content = holder.get("content") if isinstance(holder, dict) else None
    body = content.get("application/json") if isinstance(content, dict) else None
    schema = _follow(body.get("schema") if isinstance(body, dict) else None, document)
    return schema if isinstance(schema, dict) else {}


def _follow(value: Json, document: dict[str, Any]) -> Json:
    """Return what a reference inside the document leads to; a reference to a reference is followed a few times."""
    for _ in range(5):
        reference = value.get("$ref") if isinstance(value, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return value
        value = document
        for part in reference[2:].split("/"):
            value = value.get(part) if isinstance(value, dict) else None
    return value
