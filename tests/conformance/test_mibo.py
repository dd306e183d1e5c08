"""Mibo test cases decided on recorded runs, compared with the verdicts in Mibo's documentation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.running.run import run_async
from proctor.model.result import RunResult
from tests.conformance.running import decide_case, evidence_of, suite_of
from tests.tables import load, rows
from tests.targets.loopback import Reply, serve

FILES = ("conformance/mibo/documentation.yaml", "conformance/mibo/vectors.yaml")


def outcomes(row: dict[str, Any]) -> list[str]:
    (case,) = suite_of(row["suite"], "mibo").cases
    verdicts = decide_case(case, evidence_of(row["given"]))
    for verdict in verdicts:
        assert verdict.reason
        if verdict.outcome == "error":
            assert verdict.code == "judge_unavailable", verdict.reason
    assert decide_case(case, evidence_of(row["given"])) == verdicts
    return [verdict.outcome for verdict in verdicts]


@rows("conformance/mibo/documentation.yaml")
def test_a_documented_example_gives_its_verdict(row: dict[str, Any]) -> None:
    assert outcomes(row) == row["expect"]


@rows("conformance/mibo/vectors.yaml")
def test_a_reference_row_gives_its_verdict(row: dict[str, Any]) -> None:
    assert outcomes(row) == row["expect"]


@rows("conformance/mibo/exchanges.yaml")
def test_an_exchange_of_an_active_test_gives_its_verdict(row: dict[str, Any], tmp_path: Path) -> None:
    given = dict(row["reply"])
    reply = Reply(**({**given, "data": given["data"].encode()} if "data" in given else given))
    document = json.dumps({"name": "hello", "input_utterance": "hello", "assertions": {"procedural": [row["assertion"]]}})

    async def work() -> RunResult:
        async with serve(lambda request: reply) as server:
            target = {"type": "http", "url": server.url, **row.get("settings", {})}
            return await run_async(suite_of(document, "mibo"), target=target, home=tmp_path)

    (case,) = asyncio.run(work()).cases
    assert [verdict.outcome for verdict in case.verdicts] == row["expect"]


@pytest.mark.parametrize("path", (*FILES, "conformance/mibo/exchanges.yaml"))
def test_every_difference_from_the_original_has_a_reason(path: str) -> None:
    for row in load(path):
        assert row["source"].startswith("mibo: ")
        assert (row["original"] != row["expect"]) == ("why" in row), row["id"]


def test_every_example_passes_and_fails_on_some_evidence() -> None:
    seen: dict[str, set[bool]] = {}
    for row in load(FILES[0]):
        good = all(outcome == "pass" or original == "judged" for outcome, original in zip(row["expect"], row["original"], strict=True))
        seen.setdefault(row["suite"], set()).add(good)
    assert len(seen) >= 40
    assert [suite for suite, kinds in seen.items() if kinds != {True, False}] == []
