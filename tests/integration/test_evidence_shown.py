"""Evidence coverage: every result shows what was read, what is known and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import proctor
from tests.report.html_reading import Page

SUITE = """\
proctor: 1
name: Desk
cases:
  - id: refund
    input: refund please
    expect:
      - no_tools_called
  - id: greet
    input: hi
    expect:
      - response_contains: hello
"""
LINES = (
    '{"case": "refund", "input": "refund please", "text": "Done.", '
    '"tool_calls": [{"name": "pay", "arguments": {"eur": 9}, "result": "ok"}]}',
    '{"case": "refund", "text": "Done."}',
    '{"case": "greet", "text": "hello"}',
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "runs.jsonl").write_text("\n".join(LINES) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accounts(text: str) -> list[dict[str, Any] | None]:
    return [case["evidence"].get("account") for case in json.loads(text)["cases"]]


# --- results ----------------------------------------------------------------------------------------------------------


def test_every_result_in_json_has_the_account_of_its_evidence(place: Path) -> None:
    first, second, third = accounts(proctor("check", "suite.yaml", "runs.jsonl", "--format", "json").out)
    assert first and second and third
    assert first["reader"] == "plain"
    assert first["parts"]["tool_calls"] == {"status": "recorded"}
    assert second["parts"]["tool_calls"] == {"status": "unknown", "why": "not recorded in this evidence"}
    assert third["parts"]["answer"] == {"status": "recorded"}


def test_a_stream_line_has_the_account_if_something_is_missing(place: Path) -> None:
    done = proctor("check", "suite.yaml", "runs.jsonl", "--format", "jsonl")
    readers = [json.loads(line)["evidence"].get("account", {}).get("reader") for line in done.out.splitlines()]
    assert readers == [None, "plain", None]
    explained = proctor("check", "suite.yaml", "runs.jsonl", "--format", "jsonl", "--explain")
    assert ["account" in json.loads(line)["evidence"] for line in explained.out.splitlines()] == [True, True, True]


def test_a_case_without_evidence_has_no_account(place: Path) -> None:
    (place / "one.jsonl").write_text(LINES[0])
    cases = json.loads(proctor("check", "suite.yaml", "one.jsonl", "--format", "json").out)["cases"]
    assert [case["evidence"] is None for case in cases] == [False, True]


# --- check --explain --------------------------------------------------------------------------------------------------


def test_explain_prints_the_evidence_before_the_verdicts(place: Path) -> None:
    done = proctor("check", "suite.yaml", "runs.jsonl", "--explain")
    before, after = done.out.split("Desk · suite.yaml")
    assert "runs.jsonl:1 · case refund\n  read as         plain" in before
    assert '1. pay {"eur":9} → "ok"' in before
    assert "tool calls               unknown   not recorded in this evidence" in before
    assert "FAIL  refund" in after
    assert done.code == 1


def test_explain_prints_the_status_and_why_a_run_ended(place: Path) -> None:
    (place / "broken.jsonl").write_text('{"case": "greet", "text": "oops", "http_status": 503, "error": "overloaded"}\n')
    output = proctor("check", "suite.yaml", "broken.jsonl", "--explain").out
    assert "status          503" in output and "error           overloaded" in output
    assert "the answer               unknown   the run did not finish: overloaded" in output
    assert "the run ended in an error: overloaded [run_error]" in output


@pytest.mark.parametrize("which", ["3", "greet"])
def test_one_record_is_explained_by_its_line_or_case(place: Path, which: str) -> None:
    done = proctor("check", "suite.yaml", "runs.jsonl", "--explain", "--record", which)
    assert "runs.jsonl:3" in done.out and "runs.jsonl:1 · " not in done.out


def test_a_record_that_is_not_there_is_a_usage_error(place: Path) -> None:
    done = proctor("check", "suite.yaml", "runs.jsonl", "--explain", "--record", "77")
    assert (done.code, "no record has this line, id or case" in done.err) == (4, True)
    done = proctor("check", "suite.yaml", "runs.jsonl", "--record", "3")
    assert (done.code, "--record requires --explain" in done.err) == (4, True)


def test_explain_in_json_contains_the_evidence(place: Path) -> None:
    cases = json.loads(proctor("check", "suite.yaml", "runs.jsonl", "--explain", "--format", "json").out)["cases"]
    assert cases[0]["evidence"]["read"]["tool_calls"] == [{"name": "pay", "arguments": {"eur": 9}, "result": "ok"}]
    assert cases[2]["evidence"]["read"] == {"text": "hello"}


def test_a_long_file_is_explained_in_part(place: Path) -> None:
    (place / "long.jsonl").write_text("\n".join([LINES[2]] * 25))
    done = proctor("check", "suite.yaml", "long.jsonl", "--explain")
    assert done.out.count("read as") == 20
    assert "5 more records are not explained" in done.out


def test_a_record_that_cannot_be_read_is_explained_too(place: Path) -> None:
    (place / "bad.jsonl").write_text('{"nothing": "known"}\n')
    assert "could not be read: no known form of evidence" in proctor("check", "suite.yaml", "bad.jsonl", "--explain").out


# --- reports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["terminal", "markdown"])
def test_a_case_without_evidence_reports_what_is_missing_and_where(place: Path, format: str) -> None:
    done = proctor("check", "suite.yaml", "runs.jsonl", "--format", format)
    assert "unknown: tool calls; `proctor check ... --explain` shows what was read" in done.out


def test_the_page_shows_the_account_of_each_case(place: Path) -> None:
    proctor("check", "suite.yaml", "runs.jsonl", "--format", "html", "--output", "report.html")
    page = Page((place / "report.html").read_text())
    shown = page.read_case("greet")
    assert "Read by plain" in shown and "the answerrecorded" in shown
    assert "tool callsunknownnot recorded in this evidence" in shown


# --- stored runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run_folder(place: Path) -> Path:
    (place / "shown_agent.py").write_text(
        "def answer(message): return {'text': 'hello', 'tool_calls': [{'name': 'look', 'arguments': {'q': 1}}]}\n"
    )
    (place / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "shown_agent:answer"}}\n')
    done = proctor("run", "suite.yaml", "--quiet")
    assert done.code == 1, done
    return place


def test_show_evidence_prints_each_case_or_the_chosen_one(run_folder: Path) -> None:
    done = proctor("show", "latest", "--evidence")
    assert "refund · FAIL\n  read as" in done.out and "greet · PASS\n  read as" in done.out
    assert '1. look {"q":1}' in done.out
    one = proctor("show", "latest", "--evidence", "-k", "greet")
    assert "greet · PASS" in one.out and "refund" not in one.out.replace("refund please", "")
    none = proctor("show", "latest", "--evidence", "-k", "nobody")
    assert (none.code, "nothing selected" in none.err) == (5, True)


def test_a_chosen_case_is_counted_alone(run_folder: Path) -> None:
    document = json.loads(proctor("show", "latest", "-k", "greet", "--format", "json").out)
    assert (document["outcome"], document["counts"]["pass"], [case["id"] for case in document["cases"]]) == ("pass", 1, ["greet"])


@pytest.mark.parametrize("command", [("show", "latest"), ("recheck", "latest")])
def test_a_stored_run_has_the_account_of_its_evidence(run_folder: Path, command: tuple[str, ...]) -> None:
    for account in accounts(proctor(*command, "--format", "json").out):
        assert account is not None
        assert account["parts"]["tool_calls"] == {"status": "recorded"}


def test_show_evidence_in_json_contains_the_evidence(run_folder: Path) -> None:
    cases = json.loads(proctor("show", "latest", "--evidence", "--format", "json").out)["cases"]
    assert [case["evidence"]["read"]["text"] for case in cases] == ["hello", "hello"]


def test_unknown_parts_are_stored_with_the_run(run_folder: Path) -> None:
    account = {"reader": "http target", "unknown": {"tool_calls": "the answer was cut"}}
    for entries in run_folder.rglob("*.jsonl"):
        lines = [json.loads(line) for line in entries.read_text().splitlines()]
        for line in lines:
            if isinstance(line, dict) and "evidence" in line:
                line["evidence"]["account"] = account
        entries.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, _ = json.loads(proctor("recheck", "latest", "--format", "json").out)["cases"]
    assert first["evidence"]["account"]["parts"]["tool_calls"] == {"status": "unknown", "why": "the answer was cut"}
    assert first["assertions"][0]["outcome"] == "fail", "what was seen is seen"


# --- describe trace ---------------------------------------------------------------------------------------------------


def otlp(*spans: tuple[str, dict[str, str]]) -> dict[str, Any]:
    def attributes(values: dict[str, str]) -> list[dict[str, Any]]:
        return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]

    written = [
        {"traceId": "t1", "spanId": f"s{n}", "name": name, "attributes": attributes(values)} for n, (name, values) in enumerate(spans)
    ]
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "acme"}, "spans": written}]}]}


TRACE = otlp(("chat", {"gen_ai.operation.name": "chat", "gen_ai.outputs": "x"}), ("step", {"acme.kind": "plan"}))


@pytest.mark.parametrize("name", ["trace.json", "trace.jsonl"])
def test_describe_trace_prints_what_was_recognised(place: Path, name: str) -> None:
    (place / name).write_text(json.dumps(TRACE) + "\n")
    done = proctor("describe", "trace", name)
    assert done.code == 0
    for part in (
        "1: 0 with content, 1 without",
        "gen_ai.outputs (1), acme.kind (1)",
        "unknown: acme (1)",
        "tool calls               unknown",
    ):
        assert part in done.out, part


def test_describe_trace_reads_protobuf(place: Path) -> None:
    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = trace.ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    span = scope.spans.add(trace_id=b"\1" * 16, span_id=b"\2" * 8, name="chat")
    span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
    (place / "trace.pb").write_bytes(request.SerializeToString())
    document = json.loads(proctor("describe", "trace", "trace.pb", "--format", "json").out)
    assert document["records"][0]["trace"]["kinds"] == {"model": 1}
    assert document["records"][0]["trace"]["requests"] == 1


def test_describe_trace_as_json(place: Path) -> None:
    (place / "trace.json").write_text(json.dumps(TRACE))
    document = json.loads(proctor("describe", "trace", "trace.json", "--format", "json").out)
    [record] = document["records"]
    assert record["id"] == "t1"
    assert record["trace"]["scopes"] == {"acme": 2}
    assert record["trace"]["vocabularies"] == {"acme": 1}
    assert record["account"]["parts"]["tool_calls"]["status"] == "unknown"
    assert document["not_understood"] == {"gen_ai.outputs": 1, "acme.kind": 1}


def test_other_evidence_is_described_by_its_reader_and_account(place: Path) -> None:
    done = proctor("describe", "trace", "runs.jsonl")
    assert done.out.count("read as         plain") == 3


def test_an_unreadable_file_exits_with_4(place: Path) -> None:
    (place / "bad.json").write_text('{"nothing": "known"}')
    done = proctor("describe", "trace", "bad.json")
    assert (done.code, "could not be read: no known form of evidence" in done.out) == (4, True)
    assert proctor("describe", "trace").code == 4
    assert proctor("describe", "trace", "nowhere.json").code == 4


def test_a_hostile_trace_is_described_within_bounds(place: Path) -> None:
    odd = {f"gen_ai.odd{number}\x1b[31m": "x" for number in range(3000)}
    (place / "hostile.json").write_text(json.dumps([otlp((f"span \x1b]0;{number}", odd)) for number in range(3)]))
    done = proctor("describe", "trace", "hostile.json")
    assert done.code == 0 and "\x1b" not in done.out
    assert len(done.out) < 20_000
