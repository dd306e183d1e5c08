"""Suites and evidence: validated, checked, run on the user's own machine, compared."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from proctor.store.files.run_files import RunFiles
from proctor.store.files.run_references import Baselines
from tests.mcp_server.clients import connected, use
from tests.mcp_server.scenario import call, refusal
from tests.service.agents import an_agent

SUITE = """\
proctor: 1
name: shop
cases:
  - id: refund
    input: refund 17
    expect:
      - tool_called: {name: refund, arguments: {id: 17}}
      - response_contains: refunded
"""
GOOD = {"case": "refund", "text": "refunded", "tool_calls": [{"name": "refund", "arguments": {"id": 17}}]}
BAD = {"case": "refund", "text": "refunded", "tool_calls": [{"name": "refund", "arguments": {"id": 18}}]}
AGENT = """\
def agent(message):
    return {"text": "refunded", "tool_calls": [{"name": "refund", "arguments": {"id": int(message.split()[-1])}}]}
"""


_MODULES = itertools.count()


def put_agent(folder: Path, code: str) -> None:
    """A function as the agent; Python keeps modules by name, so each has its own."""
    name = f"agent_of_mcp_{next(_MODULES)}"
    (folder / f"{name}.py").write_text(code)
    (folder / "proctor.yaml").write_text(f"targets:\n  shop: {{type: callable, function: '{name}:agent'}}\ndefault_target: shop\n")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "evidence.jsonl").write_text(f"{json.dumps(GOOD)}\n{json.dumps(BAD)}\n")
    put_agent(tmp_path, AGENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".proctor"


def test_a_suite_is_validated_as_text_as_json_and_by_its_path(workspace: Path) -> None:
    async def doing(client: Client) -> None:
        as_json = {"proctor": 1, "cases": [{"id": "refund", "input": "x", "expect": [{"response_contains": "x"}]}]}
        for given in ({"document": SUITE}, {"path": "suite.yaml"}, {"document": as_json}):
            found = await call(client, "validate_suite", **given)
            assert found["valid"] and found["dialect"] == "native" and [case["id"] for case in found["cases"]] == ["refund"]
        broken = await call(client, "validate_suite", document=SUITE.replace("tool_called", "tool_caled"))
        (problem,) = [problem for problem in broken["problems"] if problem["level"] == "error"]
        assert not broken["valid"] and (problem["line"], problem["nearest"][0]) == (7, "tool_called")
        assert (await refusal(client, "validate_suite"))["code"] == "VALIDATION_ERROR"
        assert (await refusal(client, "validate_suite", path="none.yaml"))["code"] == "VALIDATION_ERROR"

    use(workspace, doing)


@pytest.mark.parametrize(
    "given",
    [
        {"evidence": [GOOD, BAD]},
        {"evidence": f"{json.dumps(GOOD)}\n{json.dumps(BAD)}\n"},
        {"evidence": json.dumps([GOOD, BAD])},
        {"evidencePath": "evidence.jsonl"},
    ],
    ids=["list", "lines", "text", "path"],
)
def test_evidence_is_checked_however_it_comes(workspace: Path, given: dict[str, Any]) -> None:
    async def doing(client: Client) -> None:
        found = await call(client, "check_evidence", path="suite.yaml", **given)
        assert found["schema"] == "proctor.result/1" and found["counts"] == {"pass": 1, "fail": 1, "error": 0, "skip": 0}
        passed, failed = found["cases"]
        assert "assertions" not in passed
        (assertion,) = failed["assertions"]
        assert assertion["check"] == "tool_called" and "17" in assertion["reason"] and assertion["pointers"]
        full = await call(client, "check_evidence", path="suite.yaml", detail="full", **given)
        assert [len(case["assertions"]) for case in full["cases"]] == [2, 2]

    use(workspace, doing)


def test_records_that_answer_no_case_are_counted_or_refused(workspace: Path) -> None:
    suite = {"proctor": 1, "cases": [{"id": name, "input": name, "expect": [{"response_contains": name}]} for name in ("one", "two")]}

    async def doing(client: Client) -> None:
        records = [{"input": "one", "text": "one"}, {"input": "three", "text": "one two"}, {"case": "tow", "text": "two"}]
        found = await call(client, "check_evidence", document=suite, evidence=records)
        assert found["counts"] == {"pass": 1, "fail": 0, "error": 1, "skip": 1}
        unmet = {"cases_without_evidence": 1, "records_without_case": 2, "records_not_selected": 0, "records_with_other_input": 0}
        assert found["unmet"] == unmet
        selected = await call(client, "check_evidence", document=suite, evidence=records[:1], select="two")
        assert (selected["outcome"], selected["unmet"]["records_not_selected"]) == ("skip", 1)
        named = await call(client, "check_evidence", document=suite, evidence=[{"case": "one", "input": "uno", "text": "one"}])
        assert (named["counts"]["pass"], named["unmet"]["records_with_other_input"]) == (1, 1)
        assert [warning["code"] for warning in named["warnings"]] == ["other_input"]

    use(workspace, doing)


def test_the_same_id_in_two_suites_of_a_folder_is_refused(workspace: Path) -> None:
    folder = workspace.parent / "both"
    folder.mkdir()
    for name in ("one.yaml", "two.yaml"):
        (folder / name).write_text("proctor: 1\ncases: [{id: a, expect: [no_tools_called]}]\n")

    async def doing(client: Client) -> None:
        found = await call(client, "validate_suite", path="both")
        assert not found["valid"] and "the case id 'a' is also used at" in found["problems"][0]["message"]
        error = await refusal(client, "check_evidence", path="both", evidence={"case": "a", "text": "x"})
        assert error["code"] == "VALIDATION_ERROR"

    use(workspace, doing)


def test_a_list_of_messages_is_one_run(workspace: Path) -> None:
    async def doing(client: Client) -> None:
        messages = [{"role": "user", "content": "refund 17"}, {"role": "assistant", "content": "refunded"}]
        found = await call(client, "check_evidence", document=SUITE, evidence=messages)
        assert found["counts"]["fail"] == 1 and len(found["cases"]) == 1

    use(workspace, doing)


def test_a_judged_claim_without_a_judge_is_an_error_of_the_case(workspace: Path) -> None:
    # A judge named by a received suite is never called.
    suite = {
        "proctor": 1,
        "judge": {"model": "openai/some-model"},
        "models": {"main": {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/", "api_key": "${HOME}"}},
        "cases": [{"id": "a", "input": "x", "expect": [{"judged": "it is polite"}]}],
    }

    async def doing(client: Client) -> None:
        found = await call(client, "check_evidence", document=suite, evidence={"text": "x"})
        assert found["cases"][0]["outcome"] == "error" and found["cases"][0]["assertions"][0]["code"] == "judge_unavailable"

    use(workspace, doing, local=False)


def test_an_address_is_driven_as_the_command_line_drives_one(workspace: Path) -> None:
    document = "proctor: 1\ncases: [{id: a, input: hello, expect: [response_contains: hello]}]\n"

    async def doing(client: Client) -> None:
        async with an_agent() as agent:
            done = await call(client, "run_suite", document=document, target=agent.target["url"])
        assert (done["status"], done["counts"]) == ("completed", {"pass": 1})
        assert done["target"] == agent.target["url"]

    use(workspace, doing)


def test_a_suite_is_run_stored_shown_and_compared(workspace: Path) -> None:
    async def doing(client: Client) -> None:
        assert (await call(client, "list_runs"))["data"] == []
        first = await call(client, "run_suite", path="suite.yaml", note="first")
        assert (first["status"], first["result"]["outcome"], first["counts"]) == ("completed", "pass", {"pass": 1})
        second = await call(client, "run_suite", document=SUITE.replace("{id: 17}", "{id: 99}"), repeat=2)
        assert (second["status"], second["counts"]) == ("completed", {"fail": 2})
        listed = await call(client, "list_runs", limit=1)
        assert [run["id"] for run in listed["data"]] == [second["id"]]
        more = await call(client, "list_runs", limit=1, cursor=listed["_meta"]["next"])
        assert [run["id"] for run in more["data"]] == [first["id"]] and more["_meta"]["next"] is None
        shown = await call(client, "get_run", id="latest")
        assert shown["id"] == second["id"] and len(shown["result"]["cases"]) == 2
        compared = await call(client, "compare_runs", base=first["id"], candidate=second["id"])
        assert compared["comparison"]["newly_failing"] == ["refund"]
        page = (await client.read_resource(f"proctor://runs/{first['id']}")).contents[0]
        assert page.mime_type == "text/markdown" and "refund" in page.text
        assert (await refusal(client, "get_run", id="none"))["code"] == "NOT_FOUND"
        assert (await refusal(client, "run_suite", path="suite.yaml", target="none"))["code"] == "VALIDATION_ERROR"
        assert (await refusal(client, "run_suite", path="suite.yaml", select="nothing"))["path"] == "select"

    use(workspace, doing)


def test_runs_are_found_by_what_the_command_line_understands(workspace: Path) -> None:
    async def doing(client: Client) -> None:
        first = await call(client, "run_suite", path="suite.yaml", name="v1", tags=["nightly"])
        second = await call(client, "run_suite", path="suite.yaml", name="v2")
        assert (await refusal(client, "compare_runs"))["code"] == "NOT_FOUND", "there is no baseline yet"
        set_baseline(workspace, first["id"])
        for given, chosen in (
            ({}, [f"the baseline is {first['id']}", f"latest is {second['id']}"]),
            ({"candidate": "v2"}, [f"the baseline is {first['id']}", f"v2 is {second['id']}"]),
            ({"base": "previous"}, [f"previous is {first['id']}", f"latest is {second['id']}"]),
            ({"base": "@nightly", "candidate": second["id"]}, [f"@nightly is {first['id']}"]),
        ):
            found = await call(client, "compare_runs", **given)
            assert (found["base"]["run_id"], found["candidate"]["run_id"], found["chosen"]) == (first["id"], second["id"], chosen)
        assert [run["id"] for run in (await call(client, "list_runs", name="v2"))["data"]] == [second["id"]]
        assert [run["id"] for run in (await call(client, "list_runs", tag="@nightly"))["data"]] == [first["id"]]
        assert (await call(client, "get_run", id="@nightly"))["id"] == first["id"]

    use(workspace, doing)


def set_baseline(workspace: Path, run_id: str) -> None:
    Baselines(workspace).set(RunFiles(workspace).open(run_id).header.suite_name, run_id)


def test_a_run_goes_on_while_the_caller_does_something_else(workspace: Path) -> None:
    slow = AGENT.replace(
        "def agent(message):", "import asyncio\nasync def agent(message):\n    await asyncio.sleep(float(message.split()[0]))"
    )
    put_agent(workspace.parent, slow)

    async def doing(client: Client) -> None:
        started = await call(client, "run_suite", document=SUITE.replace("refund 17", "0.5 17"), waitS=0)
        assert started["status"] == "running"
        ended = await call(client, "get_run", id=started["id"], waitS=20)
        assert (ended["status"], ended["result"]["outcome"]) == ("completed", "pass")

    use(workspace, doing)


async def test_a_run_interrupted_with_its_server_is_stored(workspace: Path) -> None:
    put_agent(workspace.parent, "import asyncio\nasync def agent(message):\n    await asyncio.sleep(1000)\n")
    async with connected(workspace) as (client, _):
        started = await call(client, "run_suite", path="suite.yaml", waitS=0)
    async with connected(workspace) as (client, _):
        assert (await call(client, "get_run", id=started["id"]))["status"] == "interrupted"
