"""Traces of spans in files: split over lines and documents, with or without the name of their case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import proctor

SUITE = """\
test_cases:
  - id: greet
    input_utterance: hi
    assertions:
      procedural:
        - {target: node_call, expected_name: look, expected_arguments: {city: Rome}}
        - {target: response_regex, pattern: ^hello$}
  - id: part
    input_utterance: bye
    assertions:
      procedural:
        - {target: response_regex, pattern: ^bye$}
"""


def request(trace: str, *spans: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**more, "resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": trace, **span} for span in spans]}]}]}


def attributes(**values: str) -> list[dict[str, Any]]:
    return [{"key": f"gen_ai.{key}".replace("__", "."), "value": {"stringValue": value}} for key, value in values.items()]


ROOT = {"spanId": "a", "name": "run", "attributes": attributes(response__text="hello")}
TOOL = {
    "spanId": "b",
    "parentSpanId": "a",
    "name": "tool",
    "attributes": attributes(tool__name="look", tool__call__arguments='{"city":"Rome"}'),
}
OTHER = {"spanId": "c", "name": "run", "attributes": attributes(response__text="bye")}
PIECES = [request("t1", TOOL, case="greet"), request("t2", OTHER, case="part"), request("t1", ROOT)]


def in_lines(documents: list[Any]) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


@pytest.mark.parametrize(
    ("name", "written"),
    [("runs.jsonl", in_lines(PIECES)), ("runs.json", in_lines(PIECES)), ("list.json", json.dumps(PIECES, indent=1))],
)
def test_spans_of_one_file_are_one_run_of_their_case(tmp_path: Path, name: str, written: str) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / name).write_text(written)
    done = proctor("check", tmp_path / "suite.yaml", tmp_path / name, "--format", "json")
    assert [(case["id"], case["outcome"], case["evidence"]["id"]) for case in json.loads(done.out)["cases"]] == [
        ("greet", "pass", "t1"),
        ("part", "pass", "t2"),
    ]
    assert done.code == 0


def test_spans_of_several_files_are_one_run(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    folder = tmp_path / "traces"
    folder.mkdir()
    for index, piece in enumerate(PIECES):
        (folder / f"{index}.json").write_text(json.dumps(piece))
    done = proctor("check", tmp_path / "suite.yaml", folder, "--format", "json")
    assert [(case["id"], case["outcome"]) for case in json.loads(done.out)["cases"]] == [("greet", "pass"), ("part", "pass")]
