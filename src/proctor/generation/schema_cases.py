"""Makes cases from schemas: direct calls of MCP tools, prompts without a required value, and request bodies of an OpenAPI document.

For each JSON Schema there are valid values, values at each bound, and values that break one rule. The validator of `json_schema` decides
whether a value is valid, so an unsupported keyword leads to fewer values, never to a wrong expectation. Most implementations do not
enforce `format`, so values that only break a format are left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from proctor.checks.registry import default_registry
from proctor.errors import ProctorError
from proctor.formats.native.drafting import add_id
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import is_number
from proctor.model.show import show

_DEEPEST = 8
_LONGEST = 2_000
"""Characters or items of the largest value."""
_MOST_PAIRED = 10
"""The maximum number of properties that are combined pairwise."""
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/",
    "url": "https://example.org/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.org",
}
_PATTERN_GUESSES = (
    "a",
    "A1",
    "abc",
    "ABC",
    "123",
    "1",
    "ABC-123",
    "a@b.c",
    "2026-01-31",
    "AB",
    "00000",
    "12:00",
    "https://example.org",
    "/a",
)
_OTHER_TYPES: tuple[Json, ...] = ("text", 1, True, [], {}, 0.5)

Schema = Json
Validator = Callable[[Json], bool]


class SchemaValue(NamedTuple):
    """A value and the rule that it tests."""

    value: Json
    rule: str
    valid: bool


def make_validator(schema: Schema) -> Validator | None:
    """Return a function that decides whether a value is valid; None for a schema that cannot be used."""
    registry = default_registry()
    try:
        decide = registry.prepare("json_schema", registry.get("json_schema").spec(schema=schema))
        if decide(Evidence(body={})).outcome == "error":
            return None
    except ProctorError:
        return None
    return lambda value: decide(Evidence(body=value)).outcome == "pass"


class SchemaValues:
    """The values of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self.is_valid = make_validator(schema)

    def iterate_objects(self) -> Iterator[SchemaValue]:
        """Yield argument objects: the required members, all of them, each bound of each member, pairs, and each broken rule."""
        if self.is_valid is None:
            return
        yielded: set[bytes] = set()
        for each in self._propose_objects():
            key = msgspec.json.encode(each.value, order="sorted")
            if key not in yielded and self.is_valid(each.value) == each.valid:
                yielded.add(key)
                yield each

    def _propose_objects(self) -> Iterator[SchemaValue]:
        schema = self._resolve(self._root)
        properties: dict[str, Schema] = schema.get("properties") or {}
        required = [name for name in schema.get("required") or () if isinstance(name, str)]
        full = {name: self.make_valid(each) for name, each in properties.items()}
        least = {name: full.get(name, "text") for name in required}
        yield SchemaValue(least, "only required members", True)
        yield SchemaValue(full, "every member", True)
        for name in required:
            yield SchemaValue({key: value for key, value in least.items() if key != name}, f"{name} is missing", False)
        yield SchemaValue({**least, "unexpected": 1}, "an additional member", False)
        choices: dict[str, list[Json]] = {}
        found: list[tuple[bool, int, SchemaValue]] = []
        for name, each in properties.items():
            for value, rule, valid in self.list_values(each):
                # The first values of every member come first, since a caller takes only so many; those of inner members come last.
                rank = (": " in rule, sum(one.rule.startswith(f"{name}: ") for _, _, one in found))
                found.append((*rank, SchemaValue({**least, name: value}, f"{name}: {rule}", valid)))
                if valid:
                    choices.setdefault(name, [] if name in required else [_ABSENT]).append(value)
        yield from (each for _, _, each in sorted(found, key=lambda one: one[:2]))
        for row in pair_up({name: values[:4] for name, values in list(choices.items())[:_MOST_PAIRED]}):
            given = {name: value for name, value in row.items() if value is not _ABSENT}
            yield SchemaValue({**least, **given}, "pairs of members", True)

    def list_values(self, schema: Schema, depth: int = 0) -> list[SchemaValue]:
        """Return values of one member: at its bounds, and next to them."""
        schema = self._resolve(schema)
        good = self.make_valid(schema, depth)
        values = [SchemaValue(value, "one of its values", True) for value in (schema.get("enum") or ())[:6]]
        if "const" in schema or "enum" in schema:
            values.append(SchemaValue("no such value", "another value", False))
        kinds = _list_types(schema)
        if "boolean" in kinds:
            values += [SchemaValue(value, "both values", True) for value in (True, False)]
        if "null" in kinds or schema.get("nullable") is True:
            values.append(SchemaValue(None, "null", True))
        values += [*_bound_numbers(schema), *_bound_sizes(schema, "Length", lambda size: _stretch(good, size))]
        values += _bound_sizes(schema, "Items", lambda size: self._make_items(schema, size, depth))
        if schema.get("uniqueItems") is True and isinstance(good, list):
            item = self.make_valid(schema.get("items") or {}, depth + 1)
            values.append(SchemaValue([item, item], "items that are equal", False))
        for branch in [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())] if depth < _DEEPEST else ():
            values.append(SchemaValue(self.make_valid(branch, depth + 1), "one of its variants", True))
        if "pattern" in schema:
            values.append(SchemaValue("\u0000 no match", "text without the pattern", False))
        if isinstance(good, dict) and depth < 1:
            for name, each in (schema.get("properties") or {}).items():
                inner = self.list_values(each, depth + 1)
                values += [SchemaValue({**good, name: item.value}, f"{name}: {item.rule}", item.valid) for item in inner]
        if schema:
            values += [SchemaValue(value, "another type", False) for value in _OTHER_TYPES if type(value) is not type(good)][:2]
        return values

    def make_valid(self, schema: Schema, depth: int = 0) -> Json:
        """Return a valid value: the one that the schema names, else one of its type within its bounds."""
        schema = self._resolve(schema)
        named = [*([schema["const"]] if "const" in schema else []), *(schema.get("examples") or ()), *(schema.get("enum") or ())]
        if "default" in schema:
            named.append(schema["default"])
        if named:
            return named[0]
        for key in ("anyOf", "oneOf"):
            if schema.get(key) and depth < _DEEPEST:
                return self.make_valid(schema[key][0], depth + 1)
        kind = next(iter(_list_types(schema)), "object" if "properties" in schema else "string")
        match kind:
            case "object":
                members = schema.get("properties") or {} if depth < _DEEPEST else {}
                return {name: self.make_valid(each, depth + 1) for name, each in members.items() if name in (schema.get("required") or ())}
            case "array":
                return self._make_items(schema, max(1 if depth < _DEEPEST else 0, _read_size(schema.get("minItems"))), depth)
            case "boolean":
                return True
            case "null":
                return None
            case "integer" | "number":
                return next((each.value for each in _bound_numbers(schema) if each.valid), 1)
            case _:
                text = _FORMATS.get(str(schema.get("format")), "text")
                if isinstance(schema.get("pattern"), str):
                    fits = make_validator({"type": "string", "pattern": schema["pattern"]})
                    text = next((guess for guess in (text, *_PATTERN_GUESSES) if fits is not None and fits(guess)), text)
                least, most = _read_size(schema.get("minLength")), _read_size(schema.get("maxLength"), _LONGEST)
                return text if least <= len(text) <= most else str(_stretch(text, least if len(text) < least else most))

    def _make_items(self, schema: Schema, size: int, depth: int) -> Json:
        item = self.make_valid(schema.get("items") or {}, depth + 1)
        if schema.get("uniqueItems") is not True:
            return [item] * size
        options = self._resolve(schema.get("items") or {}).get("enum")
        return list(options[:size]) if options else [item + at if is_number(item) else f"{item}{at or ''}" for at in range(size)]

    def _resolve(self, schema: Schema, depth: int = 0) -> dict[str, Json]:
        """Return a schema with its local references followed and `allOf` merged."""
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            target: Json = self._root
            for step in reference.lstrip("#/").split("/") if reference not in ("#", "#/") else ():
                step = step.replace("~1", "/").replace("~0", "~")
                target = target.get(step) if isinstance(target, dict) else None
            own = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self._resolve(target, depth + 1), **own}
        for part in schema.get("allOf") or ():
            other = self._resolve(part, depth + 1)
            properties = {**(schema.get("properties") or {}), **(other.get("properties") or {})}
            required = [*(schema.get("required") or ()), *(other.get("required") or ())]
            schema = {**other, **schema}
            if properties:
                schema |= {"properties": properties, "required": required}
        return schema


_ABSENT = object()


def _list_types(schema: dict[str, Json]) -> list[str]:
    kinds = schema.get("type")
    return [kinds] if isinstance(kinds, str) else [each for each in kinds if isinstance(each, str)] if isinstance(kinds, list) else []


def _read_size(value: Json, default: int = 0) -> int:
    return min(int(value), _LONGEST) if is_number(value) and value >= 0 else default


def _bound_numbers(schema: dict[str, Json]) -> Iterator[SchemaValue]:
    """Yield numbers at each bound and next to it."""
    kinds = _list_types(schema)
    if not {"integer", "number"} & set(kinds):
        return
    factor = schema.get("multipleOf") if is_number(schema.get("multipleOf")) else None
    step = factor or (1 if "integer" in kinds else 0.5)
    for key, sign, exclusive in (
        ("minimum", 1, False),
        ("exclusiveMinimum", 1, True),
        ("maximum", -1, False),
        ("exclusiveMaximum", -1, True),
    ):
        bound = schema.get(key)
        if bound is not None and is_number(bound):
            if factor and not exclusive:
                # The first multiple inside the bound.
                bound = (-(-bound // factor) if sign > 0 else bound // factor) * factor
            yield SchemaValue(bound, key, not exclusive)
            yield SchemaValue(bound + sign * step, f"inside {key}", True)
            yield SchemaValue(bound - sign * step, f"outside {key}", False)
    if factor:
        yield SchemaValue(factor * 2, "a multiple", True)
        yield SchemaValue(factor * 2 + factor / 2, "no multiple", False)
    yield SchemaValue(int(step) or 1, "a number", True)


def _bound_sizes(schema: dict[str, Json], word: str, make: Callable[[int], Json]) -> Iterator[SchemaValue]:
    """Yield values of the shortest and the longest size, and next to them."""
    for key, sign in ((f"min{word}", 1), (f"max{word}", -1)):
        size = schema.get(key)
        if is_number(size) and 0 <= size < _LONGEST:
            near = ((size, key, True), (size + sign, f"inside {key}", True), (size - sign, f"outside {key}", False))
            yield from (SchemaValue(make(int(length)), rule, valid) for length, rule, valid in near if length >= 0)


def _stretch(value: Json, size: int) -> Json:
    text = value if isinstance(value, str) and value else "x"
    return (text * (size // len(text) + 1))[:size]


def pair_up(choices: Mapping[str, Sequence[Json]]) -> Iterator[dict[str, Json]]:
    """Yield a small set of combinations that contains every pair of values of two members."""
    names = list(choices)
    left = [
        ((one, at), (two, to))
        for one, two in itertools.combinations(names, 2)
        for at in range(len(choices[one]))
        for to in range(len(choices[two]))
    ]
    open_pairs = dict.fromkeys(left)
    while open_pairs:
        row: dict[str, int] = dict(next(iter(open_pairs)))
        for name in (each for each in names if each not in row):
            # The value that covers most of the pairs that are left.
            scores = [
                sum(((each, row[each]), (name, at)) in open_pairs or ((name, at), (each, row[each])) in open_pairs for each in row)
                for at in range(len(choices[name]))
            ]
            row[name] = scores.index(max(scores))
        ordered = [(name, row[name]) for name in names]
        for pair in itertools.combinations(ordered, 2):
            open_pairs.pop(pair, None)
        yield {name: choices[name][at] for name, at in ordered}


MOST_CASES = 100
"""Cases of one tool or operation."""
_SENTENCE = re.compile(r"[^.!?\n]+")
_METHODS = ("post", "put", "patch")


def make_tool_cases(tools: Iterable[dict[str, Json]], server: str) -> Iterator[dict[str, Json]]:
    """Yield the cases of a tool list, as `tools/list` answers it."""
    used: set[str] = set()
    for tool in tools:
        name, schema = str(tool["name"]), tool.get("inputSchema") or tool.get("input_schema") or tool.get("schema") or {}
        values = SchemaValues(schema)
        arguments = list(islice(values.iterate_objects(), MOST_CASES))
        if not any(each.valid for each in arguments):
            # Whatever breaks one rule would break another one as well, and be rejected for that.
            claim: Json = {"no_tool_errors": {}, "because": f"boundary value of the schema of {name}"}
            yield {
                "id": add_id(f"{name}-accepts", used),
                "skip": "write valid arguments: none were found for this schema",
                "expect": [claim],
            }
            continue
        for value, rule, valid in arguments:
            failed = {"that": "tool_calls[0].error != null"}
            claim = {"no_tool_errors": {}} if valid else failed
            verb = "accepts" if valid else "rejects"
            yield {
                "id": add_id(f"{name}-{verb}-{rule}", used),
                "expect": [{**claim, "because": f"boundary value of the schema of {name}: {rule}"}],
                "settings": {"direct_calls": [{"server": server, "tool": name, "arguments": value}]},
            }
        yield from _make_prompts(name, str(tool.get("description") or ""), schema, values, used)


def _make_prompts(name: str, about: str, schema: Json, values: SchemaValues, used: set[str]) -> Iterator[dict[str, Json]]:
    """Yield prompts that lack one required value each, so that the agent must ask for it."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    required = [key for key in schema.get("required") or () if key in properties]
    sentence = _SENTENCE.match(about.strip())
    request = sentence[0].strip() if sentence is not None else name.replace("_", " ")
    for absent in required:
        valid = {key: values.make_valid(properties[key]) for key in required if key != absent}
        listed = ", ".join(f"{key}: {value if isinstance(value, str) else show(value)}" for key, value in valid.items())
        because = f"boundary value of the schema of {name}: without {absent}, which is required, the agent must ask"
        yield {
            "id": add_id(f"{name}-asks-for-{absent}", used),
            "input": f"Please do this: {request}." + (f" Use {listed}." if listed else ""),
            "expect": [{"tool_not_called": name, "because": because}, {"response_matches": "[?？]", "because": because}],
        }


def make_openapi_cases(document: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield a case for each value of each JSON request body."""
    used: set[str] = set()
    for path, item in (document.get("paths") or {}).items():
        for method in _METHODS:
            operation = item.get(method) if isinstance(item, dict) else None
            content = ((operation or {}).get("requestBody") or {}).get("content") or {}
            schema = (content.get("application/json") or {}).get("schema")
            if operation is None or schema is None:
                continue
            # References start at the root of the document.
            components = {key: document[key] for key in ("components", "definitions") if key in document}
            statuses = sorted(int(code) for code in operation.get("responses") or {} if str(code).startswith("2") and str(code).isdigit())
            name = str(operation.get("operationId") or f"{method} {path}")
            for value, rule, valid in islice(SchemaValues({**schema, **components}).iterate_objects(), MOST_CASES):
                claim: Json = (
                    {"http_status": statuses[0] if statuses else 200} if valid else {"that": "http_status >= 400 and http_status < 500"}
                )
                yield {
                    "id": add_id(f"{name}-{'accepts' if valid else 'rejects'}-{rule}", used),
                    "description": f"{method.upper()} {path}",
                    "body": value,
                    "tags": {"operation": name},
                    "expect": [{**claim, "because": f"boundary value of the schema of {method.upper()} {path}: {rule}"}],
                }
