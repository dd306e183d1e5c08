"""The reference pages of the service: REST, from its OpenAPI document, and its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.reference_pages import NOTICE
from proctor.rest.app import make_app
from proctor.rest.settings import SETTINGS, ServeSettings, show_default
from proctor.service.settings import ServiceSettings

_COMMON = ("400", "401", "403", "404", "409", "413", "415", "429", "500", "503")


def settings_page() -> str:
    """Every setting of `proctor serve`, in one table."""
    lines = [
        NOTICE,
        "",
        "# Settings of the service",
        "",
        "`proctor serve` reads its settings once, when it starts. A flag wins over an environment variable, a variable over the default.",
        "A flag that may be repeated is a list separated by commas in its variable.",
        "",
        "| flag | variable | default | meaning |",
        "|---|---|---|---|",
    ]
    for setting in SETTINGS:
        flag = "none" if setting.option is None else f"`{setting.option} {setting.metavar}`"
        if setting.many:
            flag += ", may be repeated"
        lines.append(f"| {flag} | `{setting.variable}` | {show_default(setting)} | {setting.text} |")
    lines += [
        "",
        "Models and judges are configured as everywhere else: `proctor.yaml` in the workspace, and the variables of",
        "[judges](../how-to/judge-answers.md).",
        "",
        "Anybody on the machine may use a service on loopback until the first organization key is created; then every request needs a key.",
        "Any other address is refused at the start until then. The `Host` of a request must be the address that is listened on,",
        "`localhost`, or a name that was allowed; where every address is listened on (`0.0.0.0`, `::`), any address will do, but no name.",
    ]
    return "\n".join(lines) + "\n"


def rest_page() -> str:
    """Every operation, by chapter, with what it takes and answers; then the shapes."""
    document = make_app(ServeSettings(service=ServiceSettings(home=Path(".proctor")))).openapi()
    chapters: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            chapters.setdefault((operation.get("tags") or ["other"])[0], []).append((method.upper(), path, operation))
    lines = [*_opening(), *_contents(chapters)]
    for chapter, operations in chapters.items():
        lines += ["", f"## {chapter.capitalize()}"]
        for method, path, operation in operations:
            lines += ["", *_operation(method, path, operation, document)]
    lines += ["", "## Shapes", "", "What is sent and answered. A field with a default may be left out."]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if name.endswith("Page"):
            continue  # described where it is answered
        lines += ["", *_shape(name, schema)]
    return "\n".join(lines) + "\n"


def _opening() -> list[str]:
    return [
        NOTICE,
        "",
        "# REST",
        "",
        "The service describes itself at `GET /openapi.json`; this page is that document. A key goes into `Authorization: Bearer KEY` or",
        "`x-api-key: KEY`. Bodies are JSON, also compressed (`Content-Encoding: gzip`).",
        "",
        "Lists are newest first and come in pages: `limit` (1 to 100, 20 by default) and `cursor`, which is `_meta.next` (older) or",
        "`_meta.prev` (newer) of another page. A `limit` out of range is refused; in the verification API more than 100 are 100. What does",
        "not exist and what belongs to another tenant is the same 404.",
        "",
        "Besides the listed statuses, every operation may answer 400, 401, 403, 404, 409, 413, 415, 429, 500 and 503, in the shape of",
        "its dialect: `/api` [Error](#error), verification [VerificationError](#verificationerror), `/public`",
        "[TraceError](#traceerror), `/v1` [Status](#status). 429 and 503 say in `Retry-After` when to come again. The answer to",
        "every request carries `x-request-id`: yours, or one that was made.",
    ]


def _contents(chapters: dict[str, list[tuple[str, str, dict[str, Any]]]]) -> list[str]:
    lines = ["", "| chapter | operations |", "|---|---|"]
    for chapter, operations in chapters.items():
        paths = ", ".join(f"`{path}`" for path in dict.fromkeys(path for _, path, _ in operations))
        lines.append(f"| [{chapter.capitalize()}](#{chapter.lower().replace(' ', '-')}) | {paths} |")
    return lines


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}"
    yield ""
    yield operation.get("description", operation.get("summary", "")).replace("\n", " ")
    parameters = [one for one in operation.get("parameters", ()) if one["in"] != "path"]
    paged = {"limit", "cursor"} <= {one["name"] for one in parameters}
    shown = [one for one in parameters if not (paged and one["name"] in ("limit", "cursor"))]
    if shown:
        yield ""
        yield "| parameter | kind | meaning |"
        yield "|---|---|---|"
        for one in shown:
            required = ", required" if one.get("required") else ""
            place = "" if one["in"] == "query" else f" ({one['in']})"
            yield f"| `{one['name']}`{place} | {_kind(one['schema'])}{required} | {_cell(one.get('description', ''))} |"
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        kinds = ", ".join(f"`{kind}`" for kind in body)
        yield ""
        yield f"Takes {' or '.join(dict.fromkeys(_kind(one.get('schema', {})) for one in body.values()))} ({kinds})."
    answers = [f"{status} {_answer(response)}" for status, response in operation["responses"].items() if status not in _COMMON]
    yield ""
    yield f"Answers {', '.join(answers)}."


def _answer(response: dict[str, Any]) -> str:
    content = response.get("content", {})
    return " or ".join(dict.fromkeys(_kind(one.get("schema", {})) for one in content.values())) if content else "without a body"


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if schema.get("description"):
        yield ""
        yield schema["description"].replace("\n", " ")
    properties: dict[str, Any] = schema.get("properties", {})
    if not properties:
        yield ""
        yield f"{_kind({key: value for key, value in schema.items() if key != 'description'}).capitalize()}."
        return
    yield ""
    yield "| field | kind | meaning |"
    yield "|---|---|---|"
    for field, one in properties.items():
        required = ", required" if field in schema.get("required", ()) else ""
        default = one.get("default")
        shown = f" (default: `{_plain(default)}`)" if default not in (None, "", {}, []) else ""
        yield f"| `{field}` | {_kind(one)}{required} | {_cell(one.get('description', ''))}{shown} |"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(schema: dict[str, Any]) -> str:
    """What a schema asks for, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        one = name.removesuffix("Page")
        return f"{'' if one == name else 'page of '}[{one}](#{one.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[word]))
    if "const" in schema:
        return f"`{_plain(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_kind({**schema, "type": one}) for one in kind)
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
    match kind:
        case "array":
            return f"list of {_kind(schema.get('items', {}))}"
        case "object":
            return "object"
        case None:
            return "anything"
        case _:
            return words.get(str(kind), str(kind))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
