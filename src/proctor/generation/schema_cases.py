"""Makes cases of schemas: direct calls of MCP tools, prompts without a required value, and request bodies of an OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from proctor.formats.native.drafting import add_id
from proctor.generation.schema_values import SchemaValues
from proctor.model.evidence import Json
from proctor.model.show import show

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
        found = list(islice(values.iterate_objects(), MOST_CASES))
        if not any(each.valid for each in found):
            # Whatever breaks one rule would break another one as well, and be rejected for that.
            claim: Json = {"no_tool_errors": {}, "because": f"boundary value of the schema of {name}"}
            yield {
                "id": add_id(f"{name}-accepts", used),
                "skip": "write valid arguments: none were found for this schema",
                "expect": [claim],
            }
            continue
        for value, rule, valid in found:
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
    found = _SENTENCE.match(about.strip())
    request = found[0].strip() if found is not None else name.replace("_", " ")
    for absent in required:
        valid = {key: values.make_valid(properties[key]) for key in required if key != absent}
        given = ", ".join(f"{key}: {value if isinstance(value, str) else show(value)}" for key, value in valid.items())
        because = f"boundary value of the schema of {name}: without {absent}, which is required, the agent must ask"
        yield {
            "id": add_id(f"{name}-asks-for-{absent}", used),
            "input": f"Please do this: {request}." + (f" Use {given}." if given else ""),
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
