"""Responses without an answer, and negative claims: none passes. Driven as `proctor run` does, over a real connection."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.actions.checking.recheck import recheck
from proctor.actions.running.run import LiveRun, RunOptions, drive
from proctor.judge.scripted import ScriptedJudge
from proctor.runner.limits import RunSettings
from tests.integration.running import proctor as command
from tests.tables import load, rows
from tests.targets.loopback import ReceivedRequest, Reply, Server, serve

CHECKS = load("targets/cases/negative_checks.yaml")
HASTY = RunSettings(retries=1, backoff_s=0.0, concurrency=20)
# The evidence that exists if the status is claimed and the body has content.
_LOOKED_AT = {"text": ("text", "json", "judged"), "body": ("json",), "nothing": (), "error": ()}


def reply_of(given: dict[str, Any]) -> Reply:
    given = dict(given)
    if "nested" in given:
        depth = given.pop("nested")
        given["data"] = '{"text":' + "[" * depth + "]" * depth + "}"
    bytes_in = {field: given[field].encode() for field in ("data", "raw") if field in given}
    if "latin1" in given:
        bytes_in["data"] = given.pop("latin1").encode("latin-1")
    if "packed" in given:
        bytes_in["data"] = packed(given, bytes_in["data"])
    return Reply(**{**given, **bytes_in})


def packed(given: dict[str, Any], data: bytes) -> bytes:
    """The data packed by the method of the header, then cut off or followed by extra bytes, as in the row."""
    how = given.pop("packed")
    # Incompressible bytes, so that there is a middle to cut; then the answer, and the forbidden text after the cut.
    whole = random.Random(7).randbytes(3000).hex().encode() + data + b" refund done"
    shrunk = gzip.compress(whole) if how == "gzip" else zlib.compress(whole)
    given["headers"] = {**given["headers"], "content-encoding": how}
    return shrunk[: int(len(shrunk) * given.pop("cut", 1.0))] + given.pop("after_cut", "").encode()


def suite(*extra: dict[str, Any]) -> proctor.Suite:
    cases = [{"id": row["id"], "input": "hello", "expect": [row["expect"], *extra]} for row in CHECKS]
    return proctor.parse_suite(json.dumps({"proctor": 1, "name": "negative", "cases": cases}), dialect="native")


def drive_all(row: dict[str, Any], home: Path, *extra: dict[str, Any]) -> tuple[LiveRun, Server]:
    """Every negative claim against an agent that always responds this way."""
    reply = reply_of(row["reply"])

    async def work() -> tuple[LiveRun, Server]:
        async with serve(lambda request: reply) as server:
            target = {"type": "http", "url": server.url, **row.get("settings", {})}
            judge = ScriptedJudge(lambda question: True)
            return await drive(suite(*extra), RunOptions(settings=HASTY, judge=judge), target=target, home=home), server

    return asyncio.run(work())


@pytest.mark.in_turn
@rows("targets/cases/no_answers.yaml")
def test_no_negative_claim_passes_without_an_answer(row: dict[str, Any], tmp_path: Path) -> None:
    live, server = drive_all(row, tmp_path)
    assert len(live.result.cases) == len(CHECKS)
    if row.get("answered"):
        assert {case.id: case.outcome for case in live.result.cases} == {check["id"]: check.get("answered", "pass") for check in CHECKS}
        return
    for case in live.result.cases:
        assert case.outcome == "error", case.id
        assert [verdict.outcome for verdict in case.verdicts] == ["error"], case.id
        assert case.code == row["code"], case.id
        assert row["reason"] in (case.reason or ""), case.id
    # A response without an answer is stored as such: rechecked, it does not pass.
    assert {case.outcome for case in recheck(tmp_path / ".proctor", live.result.run_id).cases} <= {"error", "fail"}
    tries = 2 if row["code"] == "rate_limited" else 1
    assert len(server.requests) == tries * len(CHECKS), "only a rate-limited request is retried"


@pytest.mark.in_turn
@rows("targets/cases/no_answers.yaml")
def test_a_case_that_claims_the_actual_status_is_decided_on_the_response(row: dict[str, Any], tmp_path: Path) -> None:
    if row.get("answered"):
        return
    live, _ = drive_all(row, tmp_path, {"http_status": row["reply"].get("status", 200)})
    about = {check["id"]: check["about"] for check in CHECKS}
    for case in live.result.cases:
        negative, status = case.verdicts
        if row["claimed"] == "error":
            assert (negative.outcome, status.outcome, case.code) == ("error", "error", row["code"]), case.id
            continue
        assert status.outcome == "pass", case.id
        looked_at = about[case.id] == "rest" or about[case.id] in _LOOKED_AT[row["claimed"]] or _has_body(row, about[case.id])
        if not looked_at:
            assert negative.outcome != "pass" and negative.code == "missing_evidence", case.id


_UNTRUE = {"http_status": 418}
_SKIPPED = ({"id": "first", "response_contains": "nowhere to be found", "advisory": True}, {"http_status": 500, "depends_on": "first"})


@pytest.mark.parametrize(
    "extra",
    [list(_SKIPPED), [{"http_status": 500, "advisory": True}], [{**_UNTRUE, "advisory": True}]],
    ids=["is skipped", "is only remarked on", "is another and only remarked on"],
)
@pytest.mark.parametrize("reply", [{"status": 500, "body": {"text": "oops"}}, {"status": 200, "data": ""}], ids=["500", "nothing"])
def test_a_failed_status_claim_does_not_accept_the_response(extra: list[dict[str, Any]], reply: dict[str, Any], tmp_path: Path) -> None:
    live, _ = drive_all({"reply": reply}, tmp_path, *extra)
    assert {case.outcome for case in live.result.cases} == {"error"}
    assert {case.code for case in live.result.cases} == {"http_status" if reply["status"] == 500 else "empty_answer"}


@pytest.mark.parametrize("weight", [1, 0.001])
@pytest.mark.parametrize("status", [500, 429, 200])
def test_a_claim_of_another_status_fails_and_other_claims_are_errors(status: int, weight: float, tmp_path: Path) -> None:
    reply = {"status": status, "data": ""}
    up = {**_UNTRUE, "id": "up", "weight": weight}
    live, _ = drive_all({"reply": reply}, tmp_path, up, {"response_contains": "hello", "depends_on": "up"})
    for case in (*live.result.cases, *recheck(tmp_path / ".proctor", live.result.run_id).cases):
        assert (case.outcome, case.verdicts[1].outcome, case.verdicts[2].outcome) == ("fail", "fail", "skip"), case.id
    for case in live.result.cases:
        assert case.verdicts[0].code == {500: "http_status", 429: "rate_limited", 200: "empty_answer"}[status], case.id
        assert case.verdicts[0].outcome == "error" and case.verdicts[0].reason in (case.reason or ""), case.id


def test_a_status_claim_of_a_turn_is_decided_on_that_turn(tmp_path: Path) -> None:
    up = {"turn": {"expect": [{"http_status": 200, "id": "up"}, {"response_contains": "done", "depends_on": "up"}]}}
    live = converse({**up, "case": [{"response_contains": "done"}]}, tmp_path)
    (case,) = live.result.cases
    verdicts = {(entry.assertion.check, entry.assertion.turn): entry.verdict.outcome for entry in case.assertions}
    assert case.outcome == "fail"
    assert verdicts == {("http_status", 1): "fail", ("response_contains", 1): "skip", ("response_contains", None): "error"}


def _has_body(row: dict[str, Any], about: str) -> bool:
    """Whether the JSON of the answer exists although its text does not; it may list calls."""
    body = row["reply"].get("body")
    return body is not None and (about in ("json", "judged") or (about == "tools" and "tool_calls" in body))


# --- turns --------------------------------------------------------------------------------------------------------------


def converse(expect: dict[str, Any], home: Path) -> LiveRun:
    def answer(request: ReceivedRequest) -> Reply:
        if request.json["input"] == "two":
            return Reply(status=500, body={"error": "oops"})
        return Reply(body={"text": "done", "tool_calls": [{"name": "look", "arguments": {}}]})

    case = {"id": "talk", "turns": ["one", {"input": "two", **expect.get("turn", {})}, "three"], "expect": expect["case"]}
    talk = proctor.parse_suite(json.dumps({"proctor": 1, "cases": [case]}), dialect="native")

    async def work() -> LiveRun:
        async with serve(answer) as server:
            return await drive(talk, RunOptions(settings=HASTY), target={"type": "http", "url": server.url}, home=home)

    return asyncio.run(work())


def test_a_turn_without_an_answer_ends_the_case_and_keeps_its_evidence(tmp_path: Path) -> None:
    live = converse({"case": [{"tool_not_called": "refund"}]}, tmp_path)
    (case,) = live.result.cases
    assert (case.outcome, case.code) == ("error", "http_status")
    assert case.reason is not None and case.reason.startswith("turn 2 of 3: ")
    evidence = live.entries["talk", 0].evidence
    assert (
        evidence is not None
        and evidence.turns is not None
        and evidence.account is not None
        and "status 500" in evidence.account.unknown["tool_calls"]
    )
    assert [(turn.text, turn.http_status) for turn in evidence.turns] == [("done", 200), (None, 500)]


def test_a_claimed_turn_is_followed_by_the_next_with_unknown_calls(tmp_path: Path) -> None:
    claimed = {"turn": {"expect": [{"http_status": 500}, {"no_tools_called": {}}]}, "case": [{"tool_not_called": "refund"}]}
    live = converse(claimed, tmp_path)
    (case,) = live.result.cases
    verdicts = {(entry.assertion.check, entry.assertion.turn): entry.verdict for entry in case.assertions}
    assert verdicts["http_status", 1].outcome == "pass"
    assert verdicts["no_tools_called", 1].code == verdicts["tool_not_called", None].code == "missing_evidence"


# --- dialects, with the command line ----------------------------------------------------------------------------------------

MIBO = {
    "name": "no refund",
    "input_utterance": "hello",
    "assertions": {
        "procedural": [
            {"target": "node_call", "expected_name": "refund", "condition": "MUST_NOT_CALL"},
            {"target": "response_regex", "pattern": "refund", "should_match": False},
            {"target": "json_match", "field": "refund", "expected_value": 1, "condition": "NOT_EQUALS"},
            {"target": "response_time", "max_ms": 100000},
        ]
    },
}
MCPJAM = [
    {
        "id": "no-refund",
        "query": "hello",
        "expectedToolCalls": [],
        "isNegativeTest": True,
        "predicates": [{"type": "toolNeverCalled", "toolName": "refund"}, {"type": "noToolErrors"}],
    }
]


@contextmanager
def agent(reply: Reply) -> Iterator[str]:
    """The agent in its own thread, because a command has its own loop."""
    ready, stop = threading.Event(), threading.Event()
    place: list[str] = []

    async def work() -> None:
        async with serve(lambda request: reply) as server:
            place.append(server.url)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert ready.wait(10)
    try:
        yield place[0]
    finally:
        stop.set()
        thread.join(10)


@pytest.mark.parametrize("document", [MIBO, MCPJAM], ids=["mibo", "mcpjam"])
@pytest.mark.parametrize(
    "reply",
    [Reply(status=500, body={"error": "oops"}), Reply(status=401, data=b""), Reply(data=b""), Reply(data=b'{"text": "he')],
    ids=["500", "401", "nothing", "truncated"],
)
def test_no_dialect_passes_without_an_answer(document: Any, reply: Reply, tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(json.dumps(document))
    with agent(reply) as url:
        (tmp_path / "proctor.yaml").write_text(f"targets: {{shop: {{type: http, url: '{url}'}}}}\n")
        done = command("run", tmp_path / "suite.json", "--home", tmp_path / ".proctor", "--format", "json")
    assert done.code == 1, done.err
    (case,) = json.loads(done.out)["cases"]
    assert case["outcome"] == "error" and {row["outcome"] for row in case["assertions"]} == {"error"}
