"""Limits on the JSON of one request, counted in the bytes before decoding, at every entry point."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.rest.limits import JsonLimits, check_json, may_be_large
from proctor.service.refusals import Refusal
from tests.rest.services import Service

JSON = {"content-type": "application/json"}
MCP = {**JSON, "accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
MANY = 1_000_000
DEFAULTS = JsonLimits(objects=250_000, values=1_000_000, deepest=200)


class Counted(msgspec.Struct, frozen=True):
    objects: int = 0
    values: int = 0
    depth: int = 0


def count(value: Any) -> Counted:
    """Count in the decoded value. The first value of a list or object counts with its bracket."""
    if not isinstance(value, (dict, list)):
        return Counted()
    inner = [count(one) for one in (value.values() if isinstance(value, dict) else value)]
    return Counted(
        1 + sum(one.objects for one in inner),
        max(1, len(inner)) + sum(one.values for one in inner),
        1 + max((one.depth for one in inner), default=0),
    )


def is_refused(body: bytes, *, objects: int = MANY, values: int = MANY, deepest: int = MANY) -> bool:
    try:
        check_json(body, JsonLimits(objects=objects, values=values, deepest=deepest))
    except Refusal:
        return True
    return False


TEXTS = st.text(alphabet='[]{}",:\\ aé\n', max_size=6)


@given(
    st.recursive(
        st.none() | st.integers() | TEXTS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=40,
    ),
    st.sampled_from([None, 1]),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
@pytest.mark.timeout(60)
def test_counts_from_bytes_equal_those_of_a_decoder(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    found = count(value)
    assert not is_refused(text, objects=found.objects, values=found.values, deepest=found.depth)
    if found.objects:
        assert is_refused(text, objects=found.objects - 1)
        assert is_refused(text, values=found.values - 1)
        assert is_refused(text, deepest=found.depth - 1)


@pytest.mark.parametrize("text", ["", "\\\\", '\\"', '\\\\\\"', "a,[{", "\\u0022,["])
@pytest.mark.parametrize("size", range(262_140, 262_150))
def test_a_slice_may_end_anywhere(text: str, size: int) -> None:
    body = b'["' + b"x" * (size - 6) + text.encode() + b'",[],[[]]]'
    json.loads(body)
    assert not is_refused(body, objects=4, values=6, deepest=3)
    assert is_refused(body, objects=3) and is_refused(body, values=5) and is_refused(body, deepest=2)


def test_a_large_body_of_texts_and_spans_is_no_problem() -> None:
    attribute = {"key": "gen_ai.request.model", "value": {"stringValue": 'a "model", [of] {some} kind'}}
    span = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat", "attributes": [attribute] * 12}
    check_json(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span] * 7_000}]}]}, separators=(",", ":")).encode(), DEFAULTS)
    check_json(json.dumps({"data": ["one, two, [three], {four}; " * 30_000] * 10}).encode(), DEFAULTS)


HOSTILE = {
    "lists": (b'{"x":[' + b"[]," * 3_200_000 + b"[]]}", "3200003 lists and objects; the limit is 250000 (--json-objects)"),
    "objects": (b'{"x":[' + b"{}," * 3_200_000 + b"{}]}", "3200003 lists and objects; the limit is 250000"),
    "numbers": (b"[" + b"1," * 4_900_000 + b"1]", "4900001 values; the limit is 1000000 (--json-values)"),
    "texts": (b"[" + b'"",' * 3_200_000 + b'""]', "3200001 values; the limit is 1000000"),
    "texts with commas": (b"[" + b'",",' * 2_400_000 + b'""]', "2400001 values; the limit is 1000000"),
    "texts with quotes": (b"[" + b'"\\"",' * 1_900_000 + b'""]', "1900001 values; the limit is 1000000"),
    "members": (b"{" + b'"":1,' * 1_900_000 + b'"":1}', "1900001 values; the limit is 1000000"),
    "brackets that open": (b"[" * 9_000_000, "9000000 lists and objects; the limit is 250000"),
    "brackets that open in turn": (b'["' * 250_000, "more than 200 levels deep"),
    "brackets that close": (b"[" * 300 + b"]" * 9_000_000, "more than 200 levels deep"),
    "one text of quotes": (b'"' + b'\\"' * 4_900_000, ""),
    "one text of backslashes": (b'["' + b"\\" * 9_000_000 + b'"' + b"[" * 300, "more than 200 levels deep"),
    "quotes": (b'"' * 9_000_000, ""),
}
"""The body and the message; an empty message if it is not valid JSON."""


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_bytes_are_measured_in_a_moment(name: str) -> None:
    body, message = HOSTILE[name]
    started = time.thread_time()
    if message:
        with pytest.raises(Refusal) as caught:
            check_json(body, DEFAULTS)
        assert message in caught.value.message
        assert caught.value.code == ("BAD_REQUEST" if "deep" in message else "PAYLOAD_TOO_LARGE")
    else:
        check_json(body, DEFAULTS)
    assert time.thread_time() - started < 2


# --- every entry point-------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    home = tmp_path_factory.mktemp("small")
    with Service(f"sqlite:///{home / 'p.db'}", home, json_objects=1_000, json_values=3_000) as service:
        yield service


LISTS: list[Any] = [[] for _ in range(1_100)]
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "validate_suite", "arguments": {"document": {"x": LISTS}}}}
ROADS: dict[str, Any] = {
    "/api/cases": {"project_id": "p", "document": {"x": LISTS}},
    "/api/runs": {"project_id": "p", "suite": {"x": LISTS}},
    "/api/projects": {"name": "p", "settings": {"x": LISTS}},
    "/public/traces": {"data": {"x": LISTS}},
    "/v1/traces": {"resourceSpans": [{}] * 1_100},
    "/v1/logs": {"resourceLogs": [{}] * 1_100},
    "/mcp": CALL,
    "/datasets": {"name": "d", "description": LISTS},
    "PUT /task-runs/r/state": {"fhir": {"x": LISTS}},
}


@pytest.mark.parametrize("squeezed", [False, True])
@pytest.mark.parametrize("road", list(ROADS))
def test_every_road_has_the_limit(small: Service, road: str, squeezed: bool) -> None:
    method, _, path = road.rpartition(" ")
    body = json.dumps(ROADS[road]).encode()
    headers = {**MCP, "content-encoding": "gzip"} if squeezed else MCP
    answer = small.ask(method or "POST", path, content=gzip.compress(body) if squeezed else body, headers=headers)
    most = "the limit is 1000 (--json-objects)" if may_be_large(path) else "the limit is 100 (1/10 of --json-objects, which is for"
    assert answer.status_code == 413 and most in answer.text, answer.text


@pytest.mark.parametrize(
    "kind", ["application/x-protobuf", "application/x-protobuf+json", "application/x-protobuf; x=+json", "text/plain", ""]
)
@pytest.mark.parametrize("path", ["/api/projects", "/public/traces", "/mcp"])
def test_no_content_type_leads_around_the_limit(small: Service, path: str, kind: str) -> None:
    body = json.dumps({"name": "p", "settings": {"x": LISTS}}).encode()
    answer = small.ask("POST", path, content=body, headers={**MCP, "content-type": kind})
    assert answer.status_code == 413, answer.text


def test_only_traces_states_and_datasets_may_be_large() -> None:
    large = ("/v1/traces", "/v1/logs", "/public/traces", "/datasets", "/datasets/x", "/task-runs/x/state", "/benchmark-runs/x/state")
    small = ("/api/cases", "/mcp", "/datasets/x/entities", "/v1/task-runs/x/start", "/api/projects/x/state", "/state", "/public/traces/x")
    assert all(map(may_be_large, large)) and not any(map(may_be_large, small))
