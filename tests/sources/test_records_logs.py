"""OTLP logs in files: joined to their spans over lines, files and encodings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.sources.records import read_records
from tests.service.trace_world import logs, logs_protobuf, protobuf, record, request, span

TRACE, MODEL = "1" * 31 + "a", "bbbbbbbbbbbbbbbb"
CALL = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"id": 17}'}}
SPANS = request(span(TRACE, MODEL, name="chat m", gen_ai__operation__name="chat", gen_ai__request__model="m"))
ANSWER = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [CALL]}}
LOGS = logs(
    record("", "", None, "an ordinary line"),
    record(TRACE, MODEL, "gen_ai.user.message", {"content": "Refund order 17"}, gen_ai__system="openai"),
    record(TRACE, MODEL, "gen_ai.choice", ANSWER, gen_ai__system="openai"),
)


def found(folder: Path) -> Any:
    (one,) = read_records([str(folder)])
    assert one.error is None and one.evidence is not None, one.error
    return one.evidence


@pytest.mark.parametrize("first", ["logs", "spans"])
@pytest.mark.parametrize("encoding", ["protobuf", "json", "lines"])
def test_logs_in_a_file_of_their_own_are_joined_to_their_spans(tmp_path: Path, encoding: str, first: str) -> None:
    names = ("a", "b") if first == "logs" else ("b", "a")
    if encoding == "lines":
        ordered = (LOGS, SPANS) if first == "logs" else (SPANS, LOGS)
        (tmp_path / "all.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in ordered))
    elif encoding == "json":
        for name, document in zip(names, (LOGS, SPANS), strict=True):
            (tmp_path / f"{name}.json").write_text(json.dumps(document))
    else:
        (tmp_path / f"{names[0]}.binpb").write_bytes(logs_protobuf(LOGS))
        (tmp_path / f"{names[1]}.binpb").write_bytes(protobuf(SPANS))
    evidence = found(tmp_path)
    assert evidence.input == "Refund order 17" and [(call.name, call.arguments) for call in evidence.tool_calls] == [("refund", {"id": 17})]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
def test_logs_alone_are_no_evidence(tmp_path: Path, binary: bool) -> None:
    file = tmp_path / ("logs.binpb" if binary else "logs.json")
    file.write_bytes(logs_protobuf(LOGS) if binary else json.dumps(LOGS).encode())
    assert list(read_records([str(file)])) == []


def test_equal_records_of_one_request_are_kept_and_a_repeated_request_counts_once(tmp_path: Path) -> None:
    twice = logs(*(record(TRACE, MODEL, "gen_ai.user.message", {"content": "yes"}, gen_ai__system="openai") for _ in range(2)))
    lines = [twice, twice, SPANS]
    (tmp_path / "all.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    from proctor.evidence.otlp.spans import merge_spans
    from proctor.evidence.reading import find_spans

    batches = [find_spans(one) or [] for one in lines]
    (merged,) = merge_spans(batches)[TRACE]
    assert [event.attributes["body"] for event in merged.events] == [{"content": "yes"}] * 2
    assert found(tmp_path).input == "yes"


def test_a_file_of_neither_spans_nor_logs_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.binpb").write_bytes(b"\n\xff\xff\xff\xff")
    (one,) = read_records([str(tmp_path / "x.binpb")])
    assert one.error is not None
