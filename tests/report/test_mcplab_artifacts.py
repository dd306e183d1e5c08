"""The files of MCPLab in its formats: results, trace, summary; and the trace read back gives the same verdicts."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.workspace.suites import parse_suite
from proctor.evidence.platforms import mcplab
from proctor.formats.mcplab.text import rules_of
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.report.data.mcplab_artifacts import ArtifactRow, MadeWith, artifact_texts, find_type
from proctor.runner.run import make_entry
from tests.tables import rows

SUITE = """\
scenarios:
  - id: lookup
    name: Where?
    prompt: Where is order 17?
    eval:
      tool_constraints: {required_tools: [lookup_order], forbidden_tools: ['shop:cancel']}
      tool_sequence: [lookup_order, search]
      tool_input_assertions: [{type: jsonpath, tool: lookup_order, path: $.id, equals: 17}]
      response_assertions:
        - {type: contains, value: shipped}
        - {type: not_contains, value: sorry}
        - {type: jsonpath_not_exists, path: $.x}
    extract: [{name: number, from: final_text, regex: '(\\d+)'}]
"""


def suite() -> Suite:
    return parse_suite(SUITE, name="orders")


def write_message(role: str, text: str = "", calls: list[str] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "text": text}
    if calls:
        message["tool_calls"] = [{"id": "call_0", "name": name, "arguments": {}} for name in calls]
    return message


def evidence(text: str | None, calls: list[ToolCall], *, groups: list[list[ToolCall]] | None = None, **more: Any) -> Evidence:
    messages = [write_message("system", "Be kind."), write_message("user", "Where is order 17?")]
    for group in groups if groups is not None else [[call] for call in calls]:
        messages.append(write_message("assistant", "let me see", [call.name for call in group]))
        messages += [write_message("tool", "...") for _ in group]
    if text is not None and more.get("error") is None:
        messages.append(write_message("assistant", text))
    metadata = {
        "messages": messages,
        "servers": [{"id": "shop", "version": "1.4.2"}],
        "request_id": "mcplab-run:r:lookup:gpt:lookup-gpt-run1",
        **more.pop("metadata", {}),
    }
    return Evidence(case="lookup", text=text, tool_calls=tuple(calls), metadata=metadata, **more)


def call(name: str, arguments: Any = None, **more: Any) -> ToolCall:
    answer = {"content": [{"type": "text", "text": f"result of {name}"}]}
    fields: dict[str, Any] = {"result": answer, "id": "call_0", "server": "shop", "duration_ms": 10.0, **more}
    return ToolCall(name=name, arguments={"id": 17} if arguments is None else arguments, **fields)


def decided(seen: Evidence, attempt: int = 0) -> tuple[RunEntry, CaseResult]:
    result = prepare_once(suite()).cases[0].decide(seen, attempt=attempt)
    return make_entry(result, seen, started_at="2026-11-15T09:00:00.000Z", duration_ms=1500.0), result


def texts(*entries: tuple[RunEntry, CaseResult], **more: Any) -> dict[str, str]:
    run = RunResult(suite_name="orders", run_id="r", started_at="2026-11-15T09:00:00Z", cases=tuple(result for _, result in entries))
    rules = {"tool_constraints": {"required_tools": ["lookup_order"], "forbidden_tools": ["shop:cancel"]}}
    row = ArtifactRow(case="lookup", scenario="lookup", agent="gpt", provider="openai", model="gpt-test", rules=rules, **more)
    return artifact_texts(run, [entry for entry, _ in entries], MadeWith(rows=(row,), config_hash="abc", version="proctor 1", note="a|b"))


def read_back(files: dict[str, str]) -> list[Evidence]:
    return [seen for line in files["trace.jsonl"].rstrip("\n").split("\n") for seen in mcplab.read(json.loads(line))]


GOOD = [call("lookup_order"), call("search", {"query": "17"}, duration_ms=30.0)]


def test_half_a_character_anywhere_does_not_keep_the_files_from_being_written() -> None:
    half = "a\ud83db"
    answer = {"content": [{"type": "text", "text": half}]}
    seen = evidence(
        half,
        [call(half, {half: [half]}, result=answer), call("search", error=half)],
        metadata={"servers": [{"id": half, "version": half}], "request_id": half},
    )
    entry, result = decided(seen)
    files = texts((msgspec.structs.replace(entry, extracted={"number": half, half: [half, 10**30]}), result))
    for text in files.values():
        text.encode()
    (scenario,) = json.loads(files["results.json"])["scenarios"]
    assert scenario["last_final_answer"] == half and scenario["distinct_sequences"] == {'["a\\ud83db","search"]': 1}
    assert read_back(files)[0].text == half, "as JavaScript writes it: by its escape"
    assert "a\ufffdb" in files["summary.md"]


def test_results_have_the_shape_and_the_metrics_of_mcplab() -> None:
    good = decided(evidence("17 shipped", GOOD))
    bad = decided(evidence("sorry", [call("cancel", duration_ms=20.0)]), attempt=1)
    results = json.loads(texts(good, bad)["results.json"])
    assert results["metadata"] == {
        "run_id": "r",
        "timestamp": "2026-11-15T09:00:01.500Z",
        "config_hash": "abc",
        "cli_version": "proctor 1",
        "mcp_server_versions": {"shop": "1.4.2"},
        "config_name": "orders",
        "total_duration_ms": 3000.0,
        "total_tool_duration_ms": 60.0,
        "execution_source": "mcplab",
        "run_note": "a|b",
    }
    assert results["summary"] == {
        "total_scenarios": 1,
        "total_runs": 2,
        "pass_rate": 0.0,
        "avg_tool_calls_per_run": 1.5,
        "avg_tool_latency_ms": 20.0,
        "outcomes": {"passed": 0, "failed": 2, "incomplete": 0, "error": 0},
    }
    (row,) = results["scenarios"]
    assert row["distinct_sequences"] == {'["lookup_order","search"]': 1, '["cancel"]': 1}
    assert row["tool_usage_frequency"] == {"lookup_order": 1, "search": 1, "cancel": 1}
    assert row["tool_constraints_stats"] == {"required": {"lookup_order": 1}, "forbidden": {"shop:cancel": 1}}
    assert row["extracted_values"] == {"number": {"17": 1, "null": 1}}
    assert row["last_final_answer"] == "sorry"
    first = row["runs"][0]
    assert first["tool_durations_ms"] == [10.0, 30.0]
    assert first["extracted"] == {"number": 17}
    # jsonpath_not_exists on a text that is no JSON fails in MCPLab.
    assert [(check["type"], check["status"]) for check in first["check_results"]] == [
        ("forbidden_tool", "passed"),
        ("required_tool", "passed"),
        ("tool_sequence", "passed"),
        ("tool_input_jsonpath", "passed"),
        ("response_contains", "passed"),
        ("response_not_contains", "passed"),
        ("response_jsonpath_not_exists", "failed"),
    ]
    assert first["check_results"][1]["label"] == "Required tool · lookup_order"
    assert "reason" not in first["check_results"][0]
    assert len(first["failures"]) == 1


def test_whole_numbers_are_written_as_in_javascript_and_what_was_not_driven_is_no_run() -> None:
    good = decided(evidence("17 shipped", GOOD))
    entry, result = decided(evidence("17 shipped", GOOD), attempt=1)
    skipped = (msgspec.structs.replace(entry, outcome="skip"), result)
    files = texts(good, skipped)
    assert re.findall(r"\d\.0\b[,\s]", files["results.json"]) == []
    assert json.loads(files["results.json"])["summary"]["total_runs"] == 1
    assert len(files["trace.jsonl"].splitlines()) == 2


@rows("conformance/mcplab/failures.yaml")
def test_failures_are_worded_as_in_mcplab(row: dict[str, Any]) -> None:
    rules = textwrap.indent(row["rules"], "      ")
    whole = parse_suite(f"scenarios:\n  - id: lookup\n    prompt: p\n    eval:\n{rules}\n")
    seen = msgspec.convert({"case": "lookup", "text": "", **row["given"]}, Evidence)
    result = prepare_once(whole).cases[0].decide(seen)
    entry = make_entry(result, seen, started_at="2026-11-15T09:00:00.000Z", duration_ms=1.0)
    run = json.loads(texts((entry, result))["results.json"])["scenarios"][0]["runs"][0]
    assert run["failures"] == row["expect"] == row["original"]
    assert [check["reason"] for check in run["check_results"]] == row["expect"]
    assert all(check["detail"] for check in run["check_results"])


def test_a_rule_keeps_its_name_in_results_and_config() -> None:
    kinds = ["jsonpath", "jsonpath_exists", "jsonpath_not_exists"]
    rules = [{"type": kind, "path": "$.a"} for kind in kinds]
    case = parse_suite(json.dumps({"scenarios": [{"id": "lookup", "prompt": "p", "eval": {"response_assertions": rules}}]})).cases[0]
    assert [find_type(assertion) for assertion in case.assertions] == [f"response_{kind}" for kind in kinds]
    assert rules_of(case) == {"response_assertions": rules}


def test_unrecorded_parts_are_not_evaluated() -> None:
    seen = Evidence(case="lookup", text="17 shipped")
    run = json.loads(texts(decided(seen))["results.json"])["scenarios"][0]["runs"][0]
    assert [check["status"] for check in run["check_results"]][:4] == ["not_evaluated"] * 4
    assert run["pass"] is False and run["failures"] == ["JSONPath assertion failed: invalid JSON for path $.x"]


def test_messages_carry_their_own_time_and_usage_and_none_is_empty() -> None:
    seen = evidence("", [call("lookup_order", duration_ms=250.0)])
    messages = [dict(message) for message in seen.metadata["messages"]]
    for number, message in enumerate(messages):
        message["ts"] = f"2026-11-15T09:00:0{number}.000Z"
        if message["role"] == "assistant":
            message["usage"] = {"input_tokens": 10 * number, "output_tokens": 1}
    line = json.loads(texts(decided(msgspec.structs.replace(seen, metadata={"messages": messages})))["trace.jsonl"].split("\n")[1])
    assert [(message["role"], message["ts"][17:19]) for message in line["messages"]] == [
        ("user", "01"),
        ("assistant", "02"),
        ("tool", "03"),
    ]
    assert line["messages"][1]["usage"] == {"input_tokens": 20, "output_tokens": 1, "total_tokens": 21}
    result = line["messages"][2]["content"][0]
    assert (result["ts_start"], result["ts_end"]) == ("2026-11-15T09:00:02.750Z", "2026-11-15T09:00:03.000Z")
    (again,) = mcplab.read(line)
    assert again.text == ""


def test_the_page_shows_every_scenario_and_runs_nothing_it_carries() -> None:
    seen = evidence("<script>alert(1)</script> shipped 17", GOOD)
    page = texts(decided(seen))["report.html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt; shipped 17" in page and "<script>alert" not in page
    assert re.search("<dt>Run note</dt><dd[^>]*><bdi>a.b</bdi></dd>", page) and "default-src 'none'" in page
    assert re.search("<dt>Scenarios</dt><dd[^>]*><bdi>1</bdi></dd>", page)
    for text in ("0.0%", "[&quot;lookup_order&quot;,&quot;search&quot;]", "1/1", "0/1", "Captured number"):
        assert text in page, text
    assert "<h2>fail</h2>" in page and "<h2>mixed</h2>" not in page


def test_the_summary_is_a_table_without_a_last_line_break() -> None:
    text = texts(decided(evidence('{"a": "shipped"}', GOOD)))["summary.md"]
    assert text.endswith("| lookup | gpt | 1 | 100.0% | 1 | 2 |")
    assert "- Run ID: r\n- Timestamp: 2026-11-15T09:00:01.500Z\n- Run note: a\\|b\n- Config hash: abc\n" in text


def test_the_trace_is_of_version_3_and_keeps_the_whole_conversation() -> None:
    long = "x" * 20_000
    files = texts(
        decided(evidence(long, [call("lookup_order", result={"content": long})])),
        attachments=({"type": "image", "media_type": "image/png", "data": "aGk=", "name": "a.png"},),
    )
    meta, line = [json.loads(each) for each in files["trace.jsonl"].rstrip("\n").split("\n")]
    assert meta == {"type": "trace_meta", "trace_version": 3, "run_id": "r", "ts": "2026-11-15T09:00:00Z"}
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert line["messages"][0]["content"][1] == {"type": "image", "media_type": "image/png", "data": "aGk=", "name": "a.png"}
    assert line["messages"][-1]["content"] == [{"type": "text", "text": long}]
    assert len(line["messages"][2]["content"][0]["content"][0]["text"]) == 12_003
    assert line["metrics"] == {"tool_call_count": 1, "total_tool_duration_ms": 10.0}
    assert "Be kind." not in files["trace.jsonl"]


ERRORS = {
    "answered": evidence('{"note": "shipped"}', GOOD),
    "one reply with two calls": evidence("shipped", GOOD, groups=[GOOD]),
    "failed": evidence("sorry", [call("cancel")]),
    "no tools": evidence("shipped", []),
    "an empty answer": evidence("", GOOD),
    "arguments that are text": evidence("shipped", [call("lookup_order", "17"), call("search")]),
    "a tool that failed": evidence("shipped", [call("lookup_order", result=None, error="gone", error_kind="protocol-error")]),
    "the turn limit": evidence("", GOOD, error="max_turns reached", metadata={"code": "max_turns"}),
    "a server that went away": evidence(None, GOOD[:1], error="server gone", metadata={"code": "server_gone"}),
}


@pytest.mark.parametrize("seen", ERRORS.values(), ids=ERRORS)
def test_the_trace_reads_back_to_the_same_verdicts(seen: Evidence) -> None:
    entry, result = decided(seen)
    (again,) = read_back(texts((entry, result)))
    assert again.case == "lookup"
    assert again.text == seen.text
    assert [(each.name, each.arguments, each.server) for each in again.tool_calls or ()] == [
        (each.name, each.arguments, each.server) for each in seen.tool_calls or ()
    ]
    _, after = decided(again)
    assert [verdict.outcome for verdict in after.verdicts] == [verdict.outcome for verdict in result.verdicts]
    assert (after.outcome == "pass") == (result.outcome == "pass")
    assert after.extracted == result.extracted


def test_results_are_found_even_where_a_model_uses_one_id_again_and_again() -> None:
    answers = [call("search", {"query": str(number)}, result={"content": [], "n": number}) for number in range(4)]
    (again,) = read_back(texts(decided(evidence("shipped", answers, groups=[answers[:2], answers[2:]]))))
    assert [each.result["n"] for each in again.tool_calls or ()] == [0, 1, 2, 3]


def test_requested_calls_that_were_never_made_are_not_in_the_trace() -> None:
    seen = evidence(None, GOOD[:1], error="timeout", metadata={"code": "timeout"})
    messages = [*seen.metadata["messages"], write_message("assistant", "one more", ["search"])]
    seen = msgspec.structs.replace(seen, metadata={**seen.metadata, "messages": messages})
    (again,) = read_back(texts(decided(seen)))
    assert [each.name for each in again.tool_calls or ()] == ["lookup_order"]
    assert again.text is None
    assert again.error == "timeout"


def test_an_attempt_that_left_nothing_is_an_error_with_its_reason() -> None:
    case = Case(id="lookup")
    entry = RunEntry(case="lookup", outcome="error", code="unauthorized", reason="the key was refused", started_at="2026-11-15T09:00:00Z")
    files = texts((entry, CaseResult(case, "error", None, ())))
    run = json.loads(files["results.json"])["scenarios"][0]["runs"][0]
    assert (run["pass"], run["outcome"], run["error"]) == (False, "error", "the key was refused")
    assert run["failures"] == ["Scenario error: the key was refused"]
    assert json.loads(files["results.json"])["scenarios"][0]["distinct_sequences"] == {"[]": 1}
    (again,) = read_back(files)
    assert (again.text, again.tool_calls, again.error) == (None, None, "the key was refused")


@settings(max_examples=40, deadline=None)
@given(
    st.text(),
    st.lists(st.tuples(st.sampled_from(["lookup_order", "search", "cancel"]), st.integers(0, 20)), max_size=5),
    st.lists(st.integers(1, 3), max_size=5),
)
def test_messages_and_calls_read_back(text: str, wanted: list[tuple[str, int]], sizes: list[int]) -> None:
    # A run without text and calls leaves no message, and what is missing is unknown.
    assume(text or wanted)
    calls = [call(name, {"id": number}) for name, number in wanted]
    groups: list[list[ToolCall]] = []
    rest = list(calls)
    for size in [*sizes, *[1] * len(calls)]:
        if rest:
            groups.append(rest[:size])
            rest = rest[size:]
    entry, result = decided(evidence(text, calls, groups=groups))
    (again,) = read_back(texts((entry, result)))
    assert [verdict.outcome for verdict in decided(again)[1].verdicts] == [verdict.outcome for verdict in result.verdicts]
