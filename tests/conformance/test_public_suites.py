"""The public suites: all of RFC 9535's compliance tests, and the required part of JSON Schema drafts 2020-12 and 7.

They are too large for this repository; `PROCTOR_CONFORMANCE_DATA` names a folder with `jsonpath/cts.json` and
`json-schema/tests/<draft>/*.json`. Schemas that refer to a remote document must be refused: `remote_reference_groups.yaml` lists them
group by group.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.checks.answer.json_schema import JsonSchema, json_schema
from proctor.errors import SpecError
from proctor.model.evidence import Evidence
from proctor.paths.json_path import PathError, compile_path
from tests.tables import load

FOLDER = os.environ.get("PROCTOR_CONFORMANCE_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="PROCTOR_CONFORMANCE_DATA names no folder with the public suites")

DRAFTS = {"draft2020-12": None, "draft7": "http://json-schema.org/draft-07/schema#"}
FEWEST_PATHS = 703


def read(path: str) -> Any:
    return json.loads((Path(FOLDER or "") / path).read_text(encoding="utf-8"))


def test_rfc_9535_compliance_suite() -> None:
    tests = read("jsonpath/cts.json")["tests"]
    assert len(tests) >= FEWEST_PATHS
    wrong = [f"{test['name']}: {test['selector']!r}: {answer}" for test in tests if (answer := path_fault(test)) is not None]
    assert not wrong, "\n".join(wrong)


def path_fault(test: dict[str, Any]) -> str | None:
    try:
        path = compile_path(test["selector"])
    except PathError as error:
        return None if test.get("invalid_selector") else f"refused: {error.message}"
    if test.get("invalid_selector"):
        return "accepted although it is invalid"
    found = path.find(test["document"])
    allowed = test["results"] if "results" in test else [test["result"]]
    return None if json.dumps(found) in [json.dumps(one) for one in allowed] else f"selected {found!r}"


@functools.cache
def groups(draft: str) -> list[tuple[str, dict[str, Any]]]:
    folder = Path(FOLDER or "") / "json-schema/tests" / draft
    return [(file.name, group) for file in sorted(folder.glob("*.json")) for group in json.loads(file.read_text(encoding="utf-8"))]


def prepared(draft: str, group: dict[str, Any]) -> Any:
    schema = group["schema"]
    if DRAFTS[draft] is not None and isinstance(schema, dict):
        schema = {"$schema": DRAFTS[draft], **schema}
    return json_schema(JsonSchema(schema=schema))


def decided(draft: str) -> Iterator[tuple[str, str, Any]]:
    """File, description and the prepared check of each group, or the reason of its refusal."""
    for file, group in groups(draft):
        try:
            yield file, group["description"], (prepared(draft, group), group["tests"])
        except SpecError as error:
            yield file, group["description"], error


@pytest.mark.parametrize("draft", DRAFTS)
def test_required_part_of_json_schema(draft: str) -> None:
    count, wrong = 0, []
    for file, description, outcome in decided(draft):
        if isinstance(outcome, SpecError):
            continue
        decide, tests = outcome
        for test in tests:
            count += 1
            if decide(Evidence(text=json.dumps(test["data"]))).passed != test["valid"]:
                wrong.append(f"{file}: {description}: {test['description']}")
    assert not wrong, "\n".join(wrong)
    assert count > 800


@pytest.mark.parametrize("draft", DRAFTS)
def test_exactly_the_listed_groups_are_refused_for_a_remote_reference(draft: str) -> None:
    refused = {(file, description): outcome.message for file, description, outcome in decided(draft) if isinstance(outcome, SpecError)}
    listed = {(row["file"], row["group"]) for row in load("conformance/remote_reference_groups.yaml") if row["draft"] == draft}
    assert set(refused) - listed == set(), "refused but not listed"
    assert listed - set(refused) == set(), "listed but not refused: a stale entry"
    assert all("remote references are never fetched" in message for message in refused.values())
