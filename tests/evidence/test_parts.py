"""The smaller parts of the readers, over tables."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.shared.usage import find_usage
from proctor.evidence.shared.workflow import Outputs, is_ai, is_sub_node, is_trigger, resolve
from proctor.evidence.values.access import measure_ms_between, write_ms_as_iso, write_ns_as_iso
from tests.tables import rows

OUTPUTS = Outputs(
    [{"sku": "W-1", "qty": 3, "a b": {"c": [10, 20]}, "none": None}],
    {"Prepare": {"id": 7}, "My Node": {"x": {"y": "z"}}},
)


@rows("evidence/cases/usage.yaml")
def test_usage_is_found_in_every_provider_shape(row: dict[str, Any]) -> None:
    assert msgspec.to_builtins(find_usage(row["given"])) == row["expect"]


@rows("evidence/cases/expressions.yaml")
def test_an_expression_resolves_by_lookup_or_stays_as_written(row: dict[str, Any]) -> None:
    resolved = resolve(row["given"], OUTPUTS)
    assert resolved.value == row["expect"]
    assert list(resolved.notes) == row.get("notes", [])


def test_parameters_nested_beyond_reason_are_left_alone() -> None:
    value: Any = "={{ $json.sku }}"
    for _ in range(200):
        value = [value]
    assert resolve(value, OUTPUTS).value == value


def test_a_long_expression_takes_no_long_time() -> None:
    assert resolve("={{ $json" + ".a" * 50_000 + " }}", OUTPUTS).notes
    assert resolve("={{ $('" + "x" * 100_000, OUTPUTS).notes
    assert resolve("=" + "{{" * 50_000, OUTPUTS).notes


def test_kinds_of_nodes_follow_from_their_type() -> None:
    assert is_ai("@n8n/n8n-nodes-langchain.agent") and is_ai("n8n-nodes-base.openAi") and is_ai("ai-agent")
    assert not is_ai("n8n-nodes-base.airtable") and not is_ai(None) and not is_ai("n8n-nodes-base.emailSend")
    assert is_sub_node("@n8n/n8n-nodes-langchain.lmChatOpenAi") and is_sub_node("@n8n/n8n-nodes-langchain.memoryBufferWindow")
    assert not is_sub_node("@n8n/n8n-nodes-langchain.agent") and not is_sub_node("@n8n/n8n-nodes-langchain.toolkit")
    assert is_trigger("n8n-nodes-base.webhook") and is_trigger("n8n-nodes-base.manualTrigger") and is_trigger("n8n-nodes-base.start")
    assert not is_trigger("n8n-nodes-base.respondToWebhook")


def test_times_outside_the_calendar_are_no_times() -> None:
    assert write_ns_as_iso(1_763_197_200_000_000_000) == "2025-11-15T09:00:00Z"
    assert write_ns_as_iso(0) is None
    assert write_ns_as_iso(2**70) is None
    assert write_ms_as_iso(True) is None
    assert write_ms_as_iso(1e300) is None
    assert measure_ms_between("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5+00:00") == 1500
    assert measure_ms_between("2026-01-01T00:00:00", "2026-01-01T01:00:00+01:00") == 0
    assert measure_ms_between("yesterday", "2026-01-01T00:00:00Z") is None
