"""OTLP in JSON with texts that are not UTF-8, and with parts that cannot be read."""

from __future__ import annotations

import json

import pytest

from proctor.errors import EvidenceError
from proctor.evidence.otlp.groups import receive_json, receive_text
from tests.service.trace_world import new_trace, request, root


def broken(*documents: object) -> bytes:
    groups = [group for document in documents for group in document["resourceSpans"]]  # type: ignore[index]
    return json.dumps({"resourceSpans": groups}).encode().replace(b"broken", b"br\xff\xfeken")


def test_a_broken_resource_costs_what_is_in_it_and_a_broken_span_itself() -> None:
    data = broken(request(root(new_trace()), service="broken"), request(root(new_trace()), root(new_trace(), "broken")))
    received = receive_text(data, receive_json)
    assert [len(group.spans) for group in received.groups] == [0, 1] and received.refused == 2
    assert received.reasons == ["a span has a text that is not UTF-8"]


def test_a_broken_scope_costs_what_is_in_it() -> None:
    document = request(root(new_trace()))
    document["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": "broken"}
    received = receive_text(broken(document), receive_json)
    assert received.refused == 1 and received.reasons == ["a span has a text that is not UTF-8"]


@pytest.mark.parametrize("data", [b'{"\xff": []}', b"\xff\xfe{}", b'{"resourceSpans": "\xff"}'])
def test_damage_outside_of_all_spans_is_refused(data: bytes) -> None:
    with pytest.raises(EvidenceError):
        receive_text(data, receive_json)


def test_an_unreadable_scope_costs_itself_only() -> None:
    document = request(root(new_trace()))
    document["resourceSpans"][0]["scopeSpans"].insert(0, 7)
    received = receive_json(document)
    assert [len(group.spans) for group in received.groups] == [1] and received.refused == 1
