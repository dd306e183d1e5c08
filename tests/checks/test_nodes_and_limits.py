from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.registry import default_registry
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict
from tests.builders import call, evidence, node
from tests.tables import rows


def decide(check: str, spec: Any, observed: Evidence) -> Verdict:
    registry = default_registry()
    return registry.prepare(check, msgspec.convert(spec, registry.get(check).spec))(observed)


def agrees(verdict: Verdict, expect: dict[str, Any]) -> None:
    assert verdict.outcome == expect["outcome"], verdict.reason
    assert verdict.code == expect.get("code")
    for part in expect.get("reason", ()):
        assert part in verdict.reason
    if "at" in expect:
        assert list(verdict.pointers) == expect["at"]


@rows("checks/cases/nodes.yaml")
def test_a_claim_about_a_node_is_decided(row: dict[str, Any]) -> None:
    agrees(decide("node_called", row["given"]["spec"], msgspec.convert(row["given"]["evidence"], Evidence)), row["expect"])


@rows("checks/cases/answers_and_limits.yaml")
def test_a_claim_about_the_answer_is_decided(row: dict[str, Any]) -> None:
    agrees(decide(row["check"], row["given"]["spec"], msgspec.convert(row["given"]["evidence"], Evidence)), row["expect"])


@rows("checks/cases/nodes_and_limits_spec_errors.yaml")
def test_a_spec_that_cannot_be_used_names_its_field(row: dict[str, Any]) -> None:
    registry = default_registry()
    with pytest.raises(SpecError) as caught:
        registry.prepare(row["check"], msgspec.convert(row["given"], registry.get(row["check"]).spec))
    assert caught.value.field == row["expect"]["field"]
    assert row["expect"]["message"] in caught.value.message


@pytest.mark.parametrize(
    ("check", "spec", "observed"),
    [
        ("node_called", {"name": "f"}, evidence("", "f")),
        ("node_called", {"name": "f", "condition": "not_called"}, evidence("", "g")),
        ("json_field", {"field": "a", "value": 1}, evidence("", body={"a": 1})),
        ("http_status", {"status": 200}, evidence("", http_status=200)),
        ("responded_within", {"ms": 5}, evidence("", duration_ms=5)),
        ("turns_within", {"turns": 5}, evidence("")),
    ],
)
def test_a_pass_is_the_same_verdict_every_time(check: str, spec: Any, observed: Evidence) -> None:
    registry = default_registry()
    prepared = registry.prepare(check, msgspec.convert(spec, registry.get(check).spec))
    assert prepared(observed).outcome == "pass"
    assert prepared(observed) is prepared(observed)


def test_many_calls_of_one_node_are_decided_quickly() -> None:
    calls = [call("search", {"q": number}, node="A") for number in range(20_000)]
    observed = evidence("", *calls, nodes=(node("A", tool_calls=tuple(calls)),))
    started = time.process_time()
    assert decide("node_called", {"name": "A", "tool_calls": [{"name": "search", "count": 20_000}]}, observed).outcome == "pass"
    assert decide("node_called", {"name": "A", "tool_calls": [{"name": "search", "arguments": {"q": -1}}]}, observed).outcome == "fail"
    assert time.process_time() - started < 4


CALLS = st.lists(st.builds(lambda name, value: call(name, {"a": value}), st.sampled_from("fgh"), st.integers(0, 2)), max_size=6)
SPECS = st.fixed_dictionaries(
    {"name": st.sampled_from("fg")},
    optional={"arguments": st.fixed_dictionaries({"a": st.integers(0, 2)}), "index": st.integers(-3, 3), "strict": st.booleans()},
)


@settings(max_examples=150, deadline=None)
@given(CALLS, SPECS, st.booleans())
def test_called_and_not_called_never_agree(calls: list[Any], spec: dict[str, Any], nested: bool) -> None:
    observed = evidence("", nodes=(node("A", tool_calls=tuple(calls)),)) if nested else evidence("", *calls)
    called = decide("node_called", spec, observed)
    not_called = decide("node_called", {**spec, "condition": "not_called"}, observed)
    assert {called.outcome, not_called.outcome} == {"pass", "fail"}
    none = decide("node_called", {**spec, "count": 0}, observed)
    assert none.outcome == not_called.outcome


@settings(max_examples=100, deadline=None)
@given(CALLS, SPECS)
def test_an_unrelated_call_at_the_end_changes_nothing_without_a_position(calls: list[Any], spec: dict[str, Any]) -> None:
    spec = {key: value for key, value in spec.items() if key != "index"}
    before = decide("node_called", spec, evidence("", *calls))
    after = decide("node_called", spec, evidence("", *calls, call("unrelated", {"a": 1})))
    assert before.outcome == after.outcome
    assert decide("node_called", spec, evidence("", *calls)) == before
