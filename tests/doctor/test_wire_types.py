"""The table of messages agrees with the published schemas, on correct messages and on thousands of damaged ones."""

from __future__ import annotations

import copy
import functools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.doctor.model import REVISIONS
from proctor.doctor.wire_types import NOTIFICATIONS, RESULTS, validate, validate_call, validate_result

FOLDER = os.environ.get("PROCTOR_CONFORMANCE_DATA")
ICON = {"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48"]}
SERVER = {"name": "shop", "version": "1", "title": "Shop", "icons": [ICON], "websiteUrl": "https://x.example"}
NOTES = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"}
META = {"x.example/a": 1}
CAPABILITIES = {
    "experimental": {"a": {}},
    "logging": {},
    "completions": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": False},
}
TOOL = {
    "name": "find",
    "title": "Find",
    "description": "Finds an order.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    "outputSchema": {"type": "object", "properties": {"status": {"type": "string"}}},
    "annotations": {"title": "Find", "readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
    "icons": [ICON],
    "_meta": META,
}
RESOURCE = {"name": "a", "uri": "file:///a", "title": "A", "description": "d", "mimeType": "text/plain", "annotations": NOTES, "size": 3}
CONTENT: list[dict[str, Any]] = [
    {"type": "text", "text": "a", "annotations": NOTES},
    {"type": "image", "data": "YQ==", "mimeType": "image/png", "_meta": META},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "a", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "file:///a", "blob": "YQ=="}},
]
TIMES = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
TASK = {"taskId": "1", "status": "working", **TIMES, "ttl": 60_000, "pollInterval": 100, "statusMessage": "still"}
SEEDS: dict[str, dict[str, Any]] = {
    "InitializeResult": {
        "protocolVersion": "2025-11-25",
        "capabilities": CAPABILITIES,
        "serverInfo": SERVER,
        "instructions": "Find first.",
    },
    "DiscoverResult": {"supportedVersions": ["2026-07-28"], "capabilities": {**CAPABILITIES, "extensions": {"a/b": {}}}},
    "ListToolsResult": {"tools": [TOOL, {"name": "b", "inputSchema": {"type": "object"}}], "nextCursor": "2"},
    "ListResourcesResult": {"resources": [RESOURCE]},
    "ListResourceTemplatesResult": {"resourceTemplates": [{"name": "t", "uriTemplate": "file:///{a}", "annotations": NOTES}]},
    "ReadResourceResult": {"contents": [{"uri": "file:///a", "text": "a"}, {"uri": "file:///b", "blob": "YQ==", "mimeType": "x/y"}]},
    "ListPromptsResult": {"prompts": [{"name": "p", "description": "d", "arguments": [{"name": "a", "required": True}]}]},
    "GetPromptResult": {"description": "d", "messages": [{"role": "user", "content": block} for block in CONTENT]},
    "CallToolResult": {"content": CONTENT, "isError": False, "structuredContent": {"status": "sent"}},
    "CreateTaskResult": {"task": TASK},
    "GetTaskResult": TASK,
    "ListTasksResult": {"tasks": [TASK], "nextCursor": "2"},
    "CompleteResult": {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
}
NOTICES: dict[str, dict[str, Any]] = {
    "notifications/cancelled": {"requestId": 1, "reason": "late"},
    "notifications/progress": {"progressToken": "t", "progress": 0.5, "total": 2, "message": "half"},
    "notifications/message": {"level": "info", "logger": "l", "data": {"a": 1}},
    "notifications/resources/updated": {"uri": "file:///a"},
    "notifications/tools/list_changed": {"_meta": META},
}
VALUES = (None, 0, -1, 1.5, True, "", "x", [], ["x"], {}, {"a": 1})


def complete(seed: dict[str, Any], revision: str, name: str) -> dict[str, Any]:
    """The result with the fields that the revision requires in every result."""
    found = copy.deepcopy(seed)
    if revision == "2026-07-28":
        found["resultType"] = "complete"
        if name.startswith(("List", "Read", "Discover")):
            found |= {"ttlMs": 0, "cacheScope": "public"}
    return found


def damaged(value: Any, source: random.Random) -> Any:
    """The value with one to three places removed or replaced."""
    found = copy.deepcopy(value)
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        places = list(list_places(found))
        if not places:
            break
        holder, key = source.choice(places)
        if source.random() < 0.4 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(source.choice(VALUES))
    return found


def list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from list_places(value[key])


@functools.cache
def published(revision: str, name: str) -> Any:
    import jsonschema_rs

    schema = json.loads((Path(FOLDER or "") / f"mcp-schemas/{revision}.json").read_text(encoding="utf-8"))
    part = "$defs" if "$defs" in schema else "definitions"
    if name not in schema[part]:
        return None
    return jsonschema_rs.validator_for({**schema, "$ref": f"#/{part}/{name}"}, validate_formats=False)


@pytest.mark.skipif(not FOLDER, reason="PROCTOR_CONFORMANCE_DATA names no folder with the published schemas")
@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("revision", REVISIONS)
def test_results_are_judged_like_the_published_schema(revision: str, name: str) -> None:
    oracle = published(revision, name)
    if oracle is None:
        return  # this revision does not define it
    seed = complete(SEEDS[name], revision, name)
    method = next(method for method, kinds in RESULTS.items() if kinds[0] == name)
    assert oracle.is_valid(seed) and not validate_result(method, seed, revision)
    source = random.Random(f"{revision}{name}")
    for _ in range(300):
        value = damaged(seed, source)
        assert oracle.is_valid(value) == (not validate(value, name, revision)), (json.dumps(value), validate(value, name, revision))


@pytest.mark.skipif(not FOLDER, reason="PROCTOR_CONFORMANCE_DATA names no folder with the published schemas")
@pytest.mark.parametrize("method", NOTICES)
@pytest.mark.parametrize("revision", REVISIONS)
def test_notifications_are_judged_like_the_published_schema(revision: str, method: str) -> None:
    oracle = published(revision, "ServerNotification")
    seed = {"jsonrpc": "2.0", "method": method, "params": NOTICES[method]}
    source = random.Random(f"{revision}{method}")
    for number in range(200):
        params = damaged(NOTICES[method], source) if number else NOTICES[method]
        found = validate_call({**seed, "params": params}, NOTIFICATIONS, revision)
        assert oracle.is_valid({**seed, "params": params}) == (not found), (params, found)


def test_a_fault_names_the_place_what_was_expected_and_what_was_found() -> None:
    tools = {"tools": [{"name": "a", "inputSchema": {"type": "string"}}, {"name": 4, "inputSchema": {"type": "object"}}]}
    assert [str(fault) for fault in validate_result("tools/list", tools, "2025-11-25")] == [
        "tools[0].inputSchema.type: expected 'object', found \"string\"",
        "tools[1].name: expected a string, found 4",
    ]
    assert [str(fault) for fault in validate_result("tools/call", {"content": [{"type": "video"}]}, "2025-06-18")] == [
        'content[0].type: expected one of text, image, audio, resource_link, resource, found "video"'
    ]


def test_a_notification_of_another_revision_is_unknown() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}}
    assert validate_call(message, NOTIFICATIONS, "2025-11-25") is None
    assert validate_call(message, NOTIFICATIONS, "2026-07-28") == []
