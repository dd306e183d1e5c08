"""Every reader from tables: a document and the evidence it must become.

`given` is the document (or `file`, a sample), `expect` what must be found: a mapping of paths into the evidence to values
(`tool_calls.0.name: search`), or a list of such mappings where the document holds several runs. `error` is the whole message of the
refusal; `{formats}` in it is replaced by the names of all formats. Fields with default values are absent from the evidence as it is
compared, so `tool_calls: absent` means not recorded. `unknown` lists the parts that the account marks as unknown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.evidence.recognise import FORMATS
from proctor.model.evidence import Evidence
from tests.tables import rows

SAMPLES = Path(__file__).parent / "samples"


def document_of(row: dict[str, Any]) -> Any:
    if "file" in row:
        return msgspec.json.decode((SAMPLES / row["file"]).read_bytes())
    return row["given"]


def at(document: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(document, list):
            if not step.removeprefix("-").isdigit():
                document = [entry.get(step, "absent") for entry in document]
                continue
            index = int(step)
            document = document[index] if -len(document) <= index < len(document) else "absent"
        elif isinstance(document, dict):
            document = document.get(step, "absent")
        else:
            return "absent"
    return document


def plain_form(evidence: Evidence) -> dict[str, Any]:
    document = msgspec.json.decode(msgspec.json.encode(evidence))
    for node in document.get("nodes", []):
        # msgspec omits a default text only where it is the very same object; make it the same for all.
        if node.get("status") == "success":
            del node["status"]
    # Which parts are unknown, without the reasons.
    document["unknown"] = sorted(document.get("account", {}).get("unknown", {}))
    return document


def compare(found: list[Evidence], expect: Any) -> None:
    wanted = expect if isinstance(expect, list) else [expect]
    assert len(found) == len(wanted)
    for evidence, paths in zip(found, wanted, strict=True):
        document = plain_form(evidence)
        assert {path: at(document, path) for path in paths} == paths


def run(row: dict[str, Any]) -> None:
    document = document_of(row)
    if "error" in row:
        with pytest.raises(EvidenceError) as caught:
            read_document(document, format=row.get("format"))
        assert caught.value.message == row["error"].rstrip("\n").replace("{formats}", ", ".join(FORMATS))
        assert caught.value.code == row.get("code", "unreadable_evidence")
        return
    compare(read_document(document, format=row.get("format")), row["expect"])


@rows("evidence/cases/plain.yaml")
def test_plain_evidence_is_completed_and_checked(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/state.yaml")
def test_every_family_of_state_is_read_in_its_full_and_short_forms(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/mibo.yaml")
def test_mibo_bodies_of_all_generations_are_read(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/spans.yaml")
def test_spans_become_nodes_and_tool_calls(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/span_tables.yaml")
def test_rows_of_spans_are_read_with_the_spans_inside_them(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/otlp.yaml")
def test_otlp_is_read_in_every_naming_convention(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/n8n.yaml")
def test_n8n_executions_are_read(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/flowise.yaml")
def test_flowise_predictions_are_read(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/mcplab.yaml")
def test_lines_of_an_mcplab_trace_are_read(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/messages.yaml")
def test_message_lists_of_every_provider_are_read(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/messages_gaps.yaml")
def test_a_message_list_marked_incomplete_leaves_missing_parts_unknown(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/messages_answers.yaml")
def test_answers_are_found_where_frameworks_put_them(row: dict[str, Any]) -> None:
    run(row)


@rows("evidence/cases/recognition.yaml")
def test_a_document_is_recognised_by_its_shape_or_refused_with_what_it_looks_like(row: dict[str, Any]) -> None:
    run(row)
