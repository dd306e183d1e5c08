"""A run recorded twice becomes one evidence without duplicates, and every difference is reported."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proctor.evidence.shared.call_identity import pair_calls
from proctor.evidence.traces.merge_returned_and_traced import merge_returned_and_traced
from proctor.model.account import Account
from proctor.model.evidence import Evidence, ToolCall
from tests.tables import rows


def build(fields: dict[str, Any], reader: str) -> Evidence:
    own = dict(fields)
    return msgspec.convert({**own, "account": Account(reader, own.pop("unknown", {}))}, Evidence, from_attributes=True)


@rows("evidence/cases/two_tellings.yaml")
def test_two_tellings_make_one_evidence(row: dict[str, Any]) -> None:
    expect = row["expect"]
    seen = merge_returned_and_traced(build(row["returned"], "callable"), build(row["traced"], "otlp"))
    wanted = expect["calls"]
    assert seen.tool_calls == (None if wanted is None else msgspec.convert(wanted, tuple[ToolCall, ...]))
    if "text" in expect:
        assert seen.text == expect["text"]
    assert seen.account is not None and seen.account.reader == "callable and otlp"
    unknowns = expect.get("unknown", {})
    assert seen.account.unknown.keys() == unknowns.keys(), seen.account
    for part, why in unknowns.items():
        assert why in seen.account.unknown[part], seen.account
    for note in expect.get("notes", ()):
        assert any(note in text for text in seen.account.notes), seen.account.notes
    for field, value in expect.get("fields", {}).items():
        assert msgspec.json.decode(msgspec.json.encode(getattr(seen, field))) == value
    if "nested" in expect:
        assert [call.arguments for node in seen.nodes or () for call in node.tool_calls] == expect["nested"]


CALLS = st.lists(
    st.builds(
        ToolCall,
        name=st.sampled_from(["look", "pay"]),
        arguments=st.sampled_from([None, {}, {"id": 1}, {"id": 2}]),
        id=st.sampled_from([None, "a", "b"]),
    ),
    max_size=6,
)


@given(CALLS, CALLS)
def test_every_call_of_both_sources_is_in_exactly_one_pair(first: list[ToolCall], second: list[ToolCall]) -> None:
    pairs = pair_calls(first, second)
    assert [pair.first for pair in pairs if pair.first is not None] == first
    assert sorted(map(repr, second)) == sorted(repr(pair.second) for pair in pairs if pair.second is not None)
    # The unpaired calls of both sides share no name.
    assert {pair.first.name for pair in pairs if pair.first is not None and pair.second is None}.isdisjoint(
        pair.second.name for pair in pairs if pair.first is None and pair.second is not None
    )


@given(CALLS)
def test_a_run_recorded_twice_alike_has_every_call_once(calls: list[ToolCall]) -> None:
    one = Evidence(text="a", tool_calls=tuple(calls), account=Account("callable"))
    seen = merge_returned_and_traced(one, msgspec.structs.replace(one, account=Account("otlp")))
    assert seen.tool_calls is not None and [call.name for call in seen.tool_calls] == [call.name for call in calls]
