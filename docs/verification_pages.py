"""The reference page of the verification nouns, from their declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from docs.reference_pages import NOTICE
from proctor.service.schemas import Schema
from proctor.service.verification.nouns import NOUNS
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import Field, label_of

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "object": "object",
    "array": "list",
}


def verification_page(nouns: Iterable[Resource] = NOUNS) -> str:
    """Every noun of the verification API with its fields, and what can be done with it at which door."""
    lines = [
        NOTICE,
        "",
        "# The nouns of verification",
        "",
        "Benchmarks, tasks, criteria and what they need: each noun with its fields and what can be done with it, over [REST](rest.md) and",
        "with the [MCP](mcp.md) tool of its name. REST writes names in snake_case and reads both; MCP writes them in camelCase and reads",
        "both. A field that is not *written* is filled in by the service. What may be *cleared* is emptied with null.",
    ]
    for noun in nouns:
        lines += _describe_noun(noun)
    return "\n".join(lines) + "\n"


def _describe_noun(noun: Resource) -> Iterator[str]:
    yield from ("", f"## {_HUMP.sub(' ', noun.name).capitalize()}", "", noun.about)
    yield from ("", "| field | name for people | kind | written | meaning |", "|---|---|---|---|---|")
    for name, field in noun.fields.items():
        also = f" (or `{field.also}`)" if field.also is not None else ""
        yield f"| `{name}`{also} | {label_of(name)} | {_describe_kind(field)} | {_describe_writing(field, noun)} | {field.about} |"
    if noun.operations:
        yield from ("", "| what | REST | MCP |", "|---|---|---|")
    for operation in noun.operations:
        yield f"| {operation.about} | {f'`{operation.route}`' if operation.rest else ''} | {_describe_actions(noun, operation)} |"


def _describe_actions(noun: Resource, operation: Operation) -> str:
    if noun.tool is None:
        return ""
    return ", ".join(f"`{noun.tool.name}` `{action}`" for action in operation.actions)


def _describe_writing(field: Field, noun: Resource) -> str:
    if not field.written:
        return "no"
    said = ["required" if field.required else f"else `{_show_default(field)}`" if field.default is not None else "may be left out"]
    if any(operation.method == "PATCH" for operation in noun.operations):
        said.append("stays" if not field.changeable else "may be cleared" if field.null else "may change")
    return ", ".join(said)


def _show_default(field: Field) -> str:
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _describe_kind(field: Field) -> str:
    shape = field.kind.shape
    if shape is not None:
        return f"{'list of ' if field.kind.schema['type'] == 'array' else ''}[{shape.name}](rest.md#{shape.name.lower()})"
    if field.kind.refers is not None:
        kind = field.kind.refers.replace("_", " ")
        return f"id of {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return ", ".join(filter(None, [_describe_schema(field.kind.schema), field.kind.form]))


def _describe_schema(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    said = " or ".join(_WORDS[kind] for kind in kinds)
    if "items" in schema:
        said += f" of {_describe_schema(schema['items'])}"
    return ", ".join([said, *_describe_limits(schema)])


def _describe_limits(schema: Schema) -> Iterator[str]:
    if "maxLength" in schema:
        yield f"{schema.get('minLength', 0)} to {schema['maxLength']} characters"
    if "maxItems" in schema:
        yield f"at most {schema['maxItems']} of them"
    if "exclusiveMinimum" in schema:
        yield f"above {schema['exclusiveMinimum']:g} and at most {schema['maximum']:g}"
    if "minimum" in schema:
        yield f"{schema['minimum']} to {schema['maximum']}"
