"""Valid documents as seeds: every suite and recording in the tables of the tests and in the examples."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

import proctor
from proctor.errors import ProctorError
from proctor.formats.suites import read_suite
from tests.evidence.test_bytes import GOOD
from tests.tables import HERE, load

DIALECTS = ("native", "mcplab", "mibo", "verial", "mcpjam")
EXAMPLES = Path(proctor.__file__).parent / "examples"
MOST = 250
"""Suites of one dialect: enough, and reading them costs every test run."""
_ROWS = 6
"""Rows about one check."""
_TABLES = {
    "mcplab": ("mcplab_suites/documentation", "mcplab_suites/vectors", "mcplab_suites/browser"),
    "mibo": ("mibo/documentation", "mibo/vectors"),
    "verial": ("verial/criteria",),
    "mcpjam": ("mcpjam/predicates",),
}
_CHECK_OF = {
    "fhir": "fhir_resource", "files": "file_present", "hl7": "hl7_message", "portal": "portal_record", "voice": "voice_said",
    "fax": "fax_document", "messages": "message_sent", "cds": "cds_card", "records": "records_match",
    "x12": "x12_response", "json_path": "json_path", "json_schema": "json_schema", "nodes": "node_called",
}  # fmt: skip
"""Tables that are about one check and do not name it in every row."""
_PROMPT = {"id": "s1", "kind": "prompt", "prompt": "hi"}
_MCPJAM = {
    "schemaVersion": "1",
    "mode": "agentWorkflow",
    "reportingMode": "standard",
    "suite": {"id": "s", "name": "s"},
    "target": {"servers": [{"name": "shop"}]},
    "defaults": {"model": "m", "repetitions": 1, "passThreshold": 1, "validity": {}},
}


@functools.cache
def suites(dialect: str) -> list[Any]:
    """Suites of a dialect, as plain documents."""
    found: dict[str, Any] = {}
    for document in (*_native(), *_examples()) if dialect == "native" else (*_examples(), *_documents(dialect)):
        if len(found) < MOST and _reads_as(document, dialect):
            found[json.dumps(document, sort_keys=True)] = document
    return list(found.values())


def _reads_as(document: Any, dialect: str) -> bool:
    try:
        return read_suite(json.dumps(document), name="fuzz").dialect == dialect
    except (ProctorError, TypeError):
        return False


def _examples() -> Iterator[Any]:
    for path in sorted(EXAMPLES.rglob("*")):
        if path.suffix in (".yaml", ".json"):
            yield yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def _documents(dialect: str) -> Iterator[Any]:
    for table in _TABLES[dialect]:
        for row in load(f"conformance/{table}.yaml"):
            if "eval" in row:
                yield {"id": "only", "prompt": "hi", "eval": _plain(row["eval"])}
            for key in ("suite", "document"):
                if key in row:
                    yield _plain(row[key])
            given = row.get("given")
            if dialect == "mcpjam" and isinstance(given, dict) and "predicate" in given:
                yield {**_MCPJAM, "cases": [{"id": "a", "title": "a", "steps": [_PROMPT], "assertions": [given["predicate"]]}]}


def _plain(text: Any) -> Any:
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader) if isinstance(text, str) else text
    except yaml.YAMLError:
        return None  # written in a way that only our own reader takes


def _native() -> Iterator[Any]:
    """Suites for some rows about every check."""
    taken: dict[str, int] = {}
    for path in sorted((HERE / "checks" / "cases").glob("*.yaml")):
        for row in load(f"checks/cases/{path.name}"):
            given = row.get("given") if isinstance(row.get("given"), dict) else {}
            name = row.get("check") or given.get("check") or _CHECK_OF.get(path.stem)
            spec = row.get("spec") or given.get("spec", given)
            if name is not None and isinstance(spec, dict) and taken.get(name, 0) < _ROWS:
                taken[name] = taken.get(name, 0) + 1
                yield {"proctor": 1, "cases": [{"id": "a", "input": "hi", "expect": [{name: spec}]}]}


@functools.cache
def recordings() -> list[Any]:
    """Evidence in every format that is read."""
    return [document for document in GOOD if len(msgspec.json.encode(document)) < 60_000]
