"""Numbers outside the range of a double, in place of every number of every valid suite and recording."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

import proctor
from proctor.errors import EvidenceError, InputError
from proctor.evidence.reading import read_document
from proctor.report.data.json_text import render_json
from tests.fuzz import seeds

HUGE = 10**400
SUITE = json.dumps({
    "proctor": 1,
    "cases": [
        {
            "id": "a",
            "expect": [
                {"responded_within": {"ms": 5}},
                {"tokens_within": {"total": 5}},
                {"json_path": {"path": "$..*"}},
                {"tool_called": {"name": "a", "arguments": {"a": {"matcher": "gt", "value": 1}}}},
            ],
        }
    ],
})  # fmt: skip


def with_huge_numbers(document: Any) -> Iterator[Any]:
    """The document again and again, each time with another number in it replaced."""
    for path in _numbers(document, ()):
        for huge in (HUGE, -HUGE):
            changed = copy.deepcopy(document)
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = huge
            yield changed


def _numbers(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and path:
        yield path
    elif isinstance(value, (dict, list)):
        for step in value if isinstance(value, dict) else range(len(value)):
            yield from _numbers(value[step], (*path, step))


@pytest.mark.parametrize("dialect", seeds.DIALECTS)
def test_a_number_that_no_double_holds_is_refused_or_decided_in_a_suite(dialect: str) -> None:
    record = read_document(
        {"text": "5", "tool_calls": [{"name": "a", "arguments": {"a": 5}}], "duration_ms": 5, "usage": {"total_tokens": 5}}
    )
    tried = 0
    for good in seeds.suites(dialect):
        for document in with_huge_numbers(good):
            tried += 1
            try:
                suite = proctor.parse_suite(json.dumps(document))
            except InputError:
                continue
            result = proctor.check(suite, record)
            assert not [verdict for case in result.cases for verdict in case.verdicts if verdict.code == "internal_error"], document
            json.loads(render_json(result))
    assert tried > 10


def test_a_number_that_no_double_holds_is_refused_or_decided_in_a_recording() -> None:
    suite = proctor.parse_suite(SUITE)
    for good in seeds.recordings()[::2]:
        for document in list(with_huge_numbers(good))[:20]:
            try:
                found = read_document(document)
            except EvidenceError:
                continue
            result = proctor.check(suite, found)
            assert not [verdict for case in result.cases for verdict in case.verdicts if verdict.code == "internal_error"], document
            json.loads(render_json(result))
