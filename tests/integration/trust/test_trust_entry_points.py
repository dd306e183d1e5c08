"""What a suite may cause through pytest, standard input and paths of an assistant; and what a refusal reports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import proctor as library
from proctor.errors import InputError
from tests.integration.running import proctor
from tests.integration.trust_world import (
    CLAIM,
    EVIDENCE,
    TARGETS,
    VARIABLE,
    World,
    describe_model,
    describe_program,
    judges,
    live_session,
    refused,
    suite_with,
    targets,
    world,
)
from tests.mcp_server.clients import connected

__all__ = ["world"]
pytestmark = pytest.mark.timeout(60)


# --- pytest -------------------------------------------------------------------------------------------------------------


@pytest.mark.in_turn
@pytest.mark.parametrize("granted", [False, True])
def test_pytest_runs_suites_of_the_working_folder_alone(world: World, granted: bool) -> None:
    stranger = suite_with(targets(world)["http"], world.outside / "foreign.proctor.yaml")
    suite_with(targets(world)["http"], world.folder / "own.proctor.yaml")
    done = live_session(world, stranger, *(["--proctor-trust"] if granted else []))
    assert bool(world.trap.requests) is granted, done.stdout
    assert ("not trusted" in done.stderr) is not granted
    world.trap.requests.clear()
    live_session(world, "own.proctor.yaml")
    assert world.trap.requests


@pytest.mark.parametrize("several", [(), ("-n", "1")])
def test_pytest_refuses_before_anything_runs_and_lists_everything(world: World, several: tuple[str, ...]) -> None:
    suite_with(targets(world)["http"], world.folder / "own.proctor.yaml")
    first = suite_with(targets(world)["callable"], world.outside / "first.proctor.yaml")
    second = suite_with(targets(world)["a program"], world.outside / "second.proctor.yaml")
    done = live_session(world, "own.proctor.yaml", first, second, *several)
    output = done.stdout + done.stderr
    assert world.untouched()
    assert str(first) in output and str(second) in output and "foreign_agent:answer" in output and "--proctor-trust" in output, output
    assert done.returncode == 4, output


def test_pytest_calls_no_foreign_judge_about_recorded_evidence(world: World) -> None:
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.proctor.yaml", CLAIM)
    done = live_session(world, path, "--proctor-evidence", "runs.jsonl")
    assert done.returncode == 4 and VARIABLE in done.stderr, done
    assert world.untouched()


def test_a_foreign_suite_cannot_bring_a_workspace_file(world: World) -> None:
    path = suite_with({}, world.outside / "s.proctor.yaml")
    described = {"targets": {"t": {"type": "http", "url": world.trap.url}}, "trust": ["*"]}
    (world.outside / "proctor.yaml").write_text(json.dumps(described))
    live_session(world, path)
    assert proctor("run", path).code == 4
    assert world.untouched()


# --- calls that a case makes itself -----------------------------------------------------------------------------------------


def write_caller(world: World, place: Path) -> Path:
    """Write a suite that has the user's own target call a tool; the server is a program that leaves a mark."""
    models = {"m": {"provider": "scripted", "model": "s", "replies": ["hello"]}}
    target = {"type": "mcp_agent", "model": "m", "servers": [describe_program(world)]}
    (world.folder / "proctor.yaml").write_text(json.dumps({"models": models, "targets": {"t": target}}))
    path = suite_with({}, place)
    document = json.loads(path.read_text())
    document["cases"][0]["settings"] = {"direct_calls": [{"server": "s", "tool": "delete_all", "arguments": {"sure": True}}]}
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("entry_point", ["run", "python", "pytest", "folder", "several"])
def test_a_foreign_suite_calls_no_tool_of_the_users_servers(world: World, entry_point: str) -> None:
    path = write_caller(world, world.outside / "s.proctor.yaml")
    if entry_point == "run":
        done = proctor("run", path, "--quiet")
        refused(done, world)
        assert "calls the tool" in done.err and "delete_all of the server s" in done.err
    elif entry_point == "python":
        with pytest.raises(InputError, match="delete_all"):
            library.run(path)
    elif entry_point == "pytest":
        done = live_session(world, path)
        assert done.returncode == 4 and "delete_all" in done.stderr, done
    else:
        # Among the user's own suites it is still foreign.
        (world.folder / "suites").mkdir()
        own = json.loads(suite_with({}, world.folder / "suites" / "a.json").read_text())
        own["cases"][0]["id"] = "mine"
        (world.folder / "suites" / "a.json").write_text(json.dumps(own))
        (world.folder / "suites" / "link.yaml").symlink_to(path)
        given = ["suites"] if entry_point == "folder" else ["suites/a.json", path]
        refused(proctor("run", *given, "--quiet"), world)
    assert world.untouched()


def test_a_suite_of_the_working_folder_calls_tools(world: World) -> None:
    proctor("run", write_caller(world, world.folder / "s.json"), "--quiet")
    assert not world.untouched()


def test_an_assistant_sends_no_suite_that_calls_tools(world: World) -> None:
    path = write_caller(world, world.outside / "s.json")

    async def ask() -> None:
        async with connected(world.folder / ".proctor") as (client, _):
            result = await client.call_tool("run_suite", {"document": path.read_text()})
            assert result.is_error and "delete_all" in str(result.content)

    asyncio.run(ask())
    assert world.untouched()


# --- what is reported -----------------------------------------------------------------------------------------------------

UNSEEN = "\x1b\n\r\t\x7f\x85\xad\u061c\u200b\u200d\u200e\u2028\u2029\u202e\u2066\ufeff\U000e0041"


def test_nothing_that_a_suite_names_can_draw_on_the_terminal(world: World) -> None:
    program = {**describe_program(world), "command": f"a{UNSEEN}b", "args": [UNSEEN], "env": {UNSEEN: f"${{{UNSEEN}}}"}}
    model = {"provider": f"openai{UNSEEN}", "model": "m", "base_url": f"http://a{UNSEEN}", "api_key": f"${{{UNSEEN}}}"}
    settings = {"models": {UNSEEN: model}, "targets": {UNSEEN: {"type": "mcp_agent", "model": UNSEEN, "servers": [program]}}}
    path = suite_with(settings, world.outside / f"s{UNSEEN.replace(chr(10), '')}.json")
    document = json.loads(path.read_text())
    document["cases"][0]["settings"] = {"direct_calls": [{"server": UNSEEN, "tool": UNSEEN}]}
    path.write_text(json.dumps(document))
    done = proctor("run", path, "--quiet")
    refused(done, world)
    assert "\\u202e" in done.err
    lines = done.err.splitlines()
    assert not set(UNSEEN) & set("".join(lines))
    assert all(line.startswith(("the suite", "  ")) for line in lines), lines


def test_a_long_list_of_one_kind_does_not_hide_the_others(world: World) -> None:
    servers = [{"id": f"s{number}", "transport": "http", "url": f"http://harmless/{number}"} for number in range(100)]
    settings = {
        "models": {"m": describe_model(world)},
        "targets": {"t": {"type": "mcp_agent", "model": "m", "servers": [*servers, describe_program(world)]}},
    }
    message = proctor("run", suite_with(settings, world.outside / "s.json"), "--quiet").err
    assert message.index("starts") < message.index("sends to") and VARIABLE in message and "62 more" in message


# --- standard input and paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_a_suite_from_standard_input_is_not_run(world: World, name: str) -> None:
    text = suite_with(targets(world)[name], world.outside / "s.json").read_bytes()
    refused(proctor("run", "-", "--quiet", stdin=text), world)
    if name == "http":
        proctor("run", "-", "--quiet", "--trust", stdin=text)
        assert world.trap.requests


def test_a_suite_from_standard_input_calls_no_tool(world: World) -> None:
    text = write_caller(world, world.outside / "s.json").read_bytes()
    refused(proctor("run", "-", "--quiet", stdin=text), world)
    suite_with({}, world.folder / "own.json")
    own = json.loads((world.folder / "own.json").read_text())
    own["cases"][0]["id"] = "mine"
    (world.folder / "own.json").write_text(json.dumps(own))
    refused(proctor("run", "own.json", "-", "--quiet", stdin=text), world)


def test_a_suite_from_standard_input_is_read(world: World) -> None:
    text = suite_with({}, world.outside / "s.json").read_bytes()
    assert proctor("check", "-", "runs.jsonl", stdin=text).code == 0
    assert proctor("check", "-", "-", stdin=text).code == 4
    assert proctor("validate", "-", stdin=text).code == 0
    assert "proctor: 1" in proctor("convert", "-", stdin=text).out
    assert proctor("validate", "-", stdin=b"proctor: 1\ncases: 7\n").out.startswith("<stdin>:2:")
    judged = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM).read_bytes()
    refused(proctor("check", "-", "runs.jsonl", stdin=judged), world)


@pytest.mark.in_turn
@pytest.mark.parametrize("way", ["absolute", "upwards", "a link", "a link in a folder", "a link to a library"])
@pytest.mark.parametrize("tool", ["validate_suite", "check_evidence", "run_suite", "evidence"])
def test_an_assistant_reads_no_file_outside_the_working_folder(world: World, tool: str, way: str) -> None:
    secret = world.outside / "shadow.yaml"
    secret.write_text("root: hunter2\n")
    path = {"absolute": str(secret), "upwards": "../elsewhere/shadow.yaml", "a link": "link.yaml", "a link in a folder": "sub"}.get(way)
    (world.folder / "sub").mkdir()
    (world.folder / "link.yaml").symlink_to(secret)
    if way == "a link in a folder":
        (world.folder / "sub" / "s.json").symlink_to(secret)
    if path is None:
        path = "sub/eval.yaml"
        (world.folder / path).write_text(json.dumps({"agents": [{"ref": "a"}], "scenarios": [{"id": "one", "prompt": "hi"}]}))
        (world.folder / "sub" / "agents.yaml").symlink_to(secret)
    suite_with({}, world.folder / "own.json")
    sent = {
        "validate_suite": ("validate_suite", {"path": path}),
        "check_evidence": ("check_evidence", {"path": path, "evidence": [json.loads(EVIDENCE)]}),
        "run_suite": ("run_suite", {"path": path}),
        "evidence": ("check_evidence", {"path": "own.json", "evidencePath": path}),
    }[tool]

    async def ask(trust: bool | None) -> str:
        async with connected(world.folder / ".proctor", trust=trust) as (client, _):
            return str((await client.call_tool(*sent)).content)

    message = asyncio.run(ask(None))
    assert "leads out of the working folder" in message and str(world.folder) in message
    assert "hunter2" not in message
    assert "leads out" not in asyncio.run(ask(True))
