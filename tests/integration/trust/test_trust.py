"""What a suite may cause: everything it can name at every entry point. Untrusted, nothing is started, read or sent.

A trap listens on loopback and counts requests; imported code and started processes leave a mark. With `--trust` each of them is
reached, which shows that the trap can catch.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

import proctor as library
from proctor.errors import InputError
from tests.batches.batch_world import evaluate
from tests.integration.running import proctor
from tests.integration.trust_world import (
    CLAIM,
    EVIDENCE,
    JUDGES,
    PLAIN,
    SECRET,
    TARGETS,
    VARIABLE,
    World,
    describe_model,
    judges,
    refused,
    store_run,
    suite_with,
    targets,
    world,
)
from tests.mcp_server.clients import connected

__all__ = ["world"]

# --- entry points that only read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("place", ["folder", "outside"])
def test_check_calls_no_judge_named_by_a_suite(world: World, name: str, place: str) -> None:
    path = suite_with(judges(world)[name], getattr(world, place) / "s.json", CLAIM)
    refused(proctor("check", path, "runs.jsonl"), world)
    done = proctor("check", path, "runs.jsonl", "--no-judge")
    assert "untrusted" not in done.err and done.code == 1
    assert world.untouched()
    if name != "a model and a file":
        assert proctor("check", path, "runs.jsonl", "--trust").code == 0
        assert world.trap.requests


def test_everything_a_suite_names_is_listed_without_values(world: World) -> None:
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM)
    message = proctor("check", path, "runs.jsonl").err
    assert world.trap.url in message
    assert f"reads the variable  {VARIABLE}  (models.m.api_key)" in message


@pytest.mark.parametrize("name", JUDGES)
def test_recheck_calls_no_judge_named_by_a_suite(world: World, name: str) -> None:
    store_run(world)
    path = suite_with(judges(world)[name], world.folder / "s.json", CLAIM)
    refused(proctor("recheck", "latest", "--suite", path), world)


@pytest.mark.parametrize("name", JUDGES)
def test_a_stored_copy_is_not_trusted_for_its_claimed_path(world: World, name: str) -> None:
    (world.folder / "proctor.yaml").write_text('trust: ["own.json"]\n')
    store_run(world)
    (stored,) = (world.folder / ".proctor" / "runs").glob("*/suite.yaml")
    suite_with(judges(world)[name], stored, CLAIM)
    refused(proctor("recheck", "latest"), world)


def test_a_stored_run_that_names_a_pipe_or_another_folder_is_shown_from_its_copy(world: World) -> None:
    store_run(world)
    (header,) = (world.folder / ".proctor" / "runs").glob("*/run.json")
    written = json.loads(header.read_text())
    os.mkfifo(world.folder / "pipe.yaml")
    for place in (world.folder / "pipe.yaml", world.outside, Path("/dev/zero")):
        header.write_text(json.dumps({**written, "suite_path": str(place)}))
        for command in ("show", "recheck"):
            assert proctor(command, "latest").code == 0, (command, place)


@pytest.mark.parametrize("name", [*JUDGES, *TARGETS])
@pytest.mark.parametrize("command", [("validate",), ("convert", "--to", "native")])
def test_validate_and_convert_do_nothing_that_a_suite_names(world: World, name: str, command: tuple[str, ...]) -> None:
    settings = {**judges(world), **targets(world)}[name]
    path = suite_with(settings, world.outside / "s.json", CLAIM if name in JUDGES else PLAIN)
    assert proctor(command[0], path, *command[1:]).code in (0, 1, 4)
    assert world.untouched()


@pytest.mark.parametrize("name", TARGETS)
def test_check_drives_no_target(world: World, name: str) -> None:
    path = suite_with(targets(world)[name], world.outside / "s.json")
    assert proctor("check", path, "runs.jsonl").code == 0
    assert world.untouched()


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("place", ["folder", "outside"])
def test_a_batch_calls_no_judge_without_a_limit(world: World, name: str, place: str) -> None:
    path = suite_with(judges(world)[name], getattr(world, place) / "s.json", CLAIM)
    for more in ((), ("--trust",)):
        done = proctor("batch", path, "runs.jsonl", "--output", "out", *more)
        assert done.code == 4 and "does not ask a judge about every trace" in done.err
    assert world.untouched() and not Path("out").exists()


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("place", ["folder", "outside"])
def test_a_batch_calls_no_foreign_judge_about_a_sample(world: World, name: str, place: str) -> None:
    path = suite_with(judges(world)[name], getattr(world, place) / "s.json", CLAIM)
    done = proctor("batch", path, "runs.jsonl", "--output", "out", "--judge-sample", "5")
    assert done.code == 4 and "--trust" in done.err, done.err
    assert world.untouched() and not Path("out").exists()


@pytest.mark.parametrize("name", TARGETS)
def test_a_batch_drives_no_target(world: World, name: str) -> None:
    path = suite_with(targets(world)[name], world.outside / "s.json")
    assert evaluate(path, ["runs.jsonl"], world.folder / "out")[0].has_passed
    assert world.untouched()


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("by", ["document", "path"])
def test_an_assistant_checks_evidence_without_a_foreign_judge(world: World, name: str, by: str) -> None:
    path = suite_with(judges(world)[name], world.folder / "s.json", CLAIM)
    sent = {"document": path.read_text()} if by == "document" else {"path": "s.json"}

    async def ask() -> str:
        async with connected(world.folder / ".proctor") as (client, _):
            result = await client.call_tool("check_evidence", {**sent, "evidence": [json.loads(EVIDENCE)]})
            assert result.is_error, result
            return str(result.content)

    message = asyncio.run(ask())
    assert "nothing was sent" in message and SECRET not in message
    assert world.untouched()


@pytest.mark.parametrize("place", ["outside", "folder"])
def test_no_model_named_by_a_foreign_suite_plays_a_user(world: World, place: str) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"targets": {"t": {"type": "http", "url": world.trap.url}}}))
    case = {"id": "one", "user": {"goal": "a refund", "model": "m"}, "expect": [PLAIN]}
    path = getattr(world, place) / "s.json"
    path.write_text(json.dumps({"proctor": 1, "models": {"m": describe_model(world)}, "cases": [case]}))
    if place == "outside":
        done = proctor("run", path)
        refused(done, world)
        assert world.trap.url in done.err and f"reads the variable  {VARIABLE}  (models.m.api_key)" in done.err
    assert proctor("run", path, "--retries", "0", *(("--trust",) if place == "outside" else ())).code == 1
    assert world.trap.requests


# --- what the workspace allows --------------------------------------------------------------------------------------------


def test_a_judge_of_the_workspace_is_used(world: World) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"models": {"m": describe_model(world)}}))
    path = suite_with({"judge": {"model": "m", "samples": 1}}, world.outside / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl").code == 0
    assert world.trap.requests


def test_a_suite_that_describes_the_same_model_as_the_workspace_changes_nothing(world: World) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"models": {"m": describe_model(world)}}))
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl").code == 0


def test_a_suite_that_describes_another_model_under_the_same_name_is_refused(world: World) -> None:
    ours = {**describe_model(world), "base_url": "http://127.0.0.1:9/v1", "api_key": "ours"}
    (world.folder / "proctor.yaml").write_text(json.dumps({"models": {"m": ours}}))
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM)
    refused(proctor("check", path, "runs.jsonl"), world)


@pytest.mark.parametrize(
    ("listed", "place", "code"),
    [
        ("suites/*.json", "suites/s.json", 0),
        ("./suites/*.json", "suites/s.json", 0),
        ("other/*.json", "suites/s.json", 4),
        ("suites/*.json", "suites/deep/x/s.json", 4),
        ("suites/*/s.json", "suites/deep/x/s.json", 4),
        ("*", "suites/s.json", 4),
        ("suites/**/*.json", "suites/deep/x/s.json", 0),
        ("suites/**", "suites/deep/x/s.json", 0),
    ],
)
def test_the_workspace_lists_the_suites_it_trusts(world: World, listed: str, place: str, code: int) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"trust": [listed]}))
    (world.folder / place).parent.mkdir(parents=True)
    path = suite_with(judges(world)["a model at an address"], world.folder / place, CLAIM)
    assert proctor("check", path, "runs.jsonl").code == code
    assert bool(world.trap.requests) is (code == 0)


def test_a_suite_cannot_trust_itself(world: World) -> None:
    settings = {**judges(world)["a model at an address"], "trust": ["*"]}
    path = suite_with(settings, world.folder / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl").code == 4
    assert world.untouched()


def test_the_judge_of_the_command_and_of_the_environment_is_the_users_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = suite_with({}, world.outside / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl", "--judge-model", "openai/stub-1").code == 0
    monkeypatch.setenv("PROCTOR_JUDGE_MODEL", "openai/stub-1")
    assert proctor("check", path, "runs.jsonl").code == 0


@pytest.mark.parametrize(("value", "code"), [("1", 0), ("true", 0), ("0", 4), ("", 4)])
def test_the_environment_can_trust(world: World, monkeypatch: pytest.MonkeyPatch, value: str, code: int) -> None:
    monkeypatch.setenv("PROCTOR_TRUST", value)
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl").code == code


# --- entry points that run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_run_does_nothing_that_a_foreign_suite_names(world: World, name: str) -> None:
    path = suite_with(targets(world)[name], world.outside / "s.json")
    refused(proctor("run", path, "--quiet"), world)
    with pytest.raises(InputError, match="not trusted"):
        library.run(path)
    assert world.untouched()


@pytest.mark.parametrize("name", ["http", "n8n", "flowise", "callable", "a program", "a server"])
def test_run_uses_a_foreign_suite_with_trust(world: World, name: str) -> None:
    path = suite_with(targets(world)[name], world.outside / "s.json")
    proctor("run", path, "--quiet", "--trust")
    assert not world.untouched()


def test_run_does_what_suites_of_the_working_folder_name(world: World) -> None:
    path = suite_with(targets(world)["http"], world.folder / "s.json")
    proctor("run", path, "--quiet")
    assert world.trap.requests


@pytest.mark.parametrize("through", ["file", "folder"])
def test_a_link_out_of_the_working_folder_is_a_foreign_suite(world: World, through: str) -> None:
    path = suite_with(targets(world)["http"], world.outside / "s.json")
    link = world.folder / ("s.json" if through == "file" else "suites")
    link.symlink_to(path if through == "file" else world.outside)
    refused(proctor("run", link if through == "file" else link / "s.json", "--quiet"), world)


def test_one_foreign_suite_among_several_is_enough(world: World) -> None:
    (world.folder / "suites").mkdir()
    suite_with(targets(world)["http"], world.folder / "suites" / "own.json")
    stranger = json.loads(suite_with(targets(world)["callable"], world.outside / "s.json").read_text())
    stranger["cases"][0]["id"] = "two"
    (world.outside / "s.json").write_text(json.dumps(stranger))
    (world.folder / "suites" / "link.json").symlink_to(world.outside / "s.json")
    refused(proctor("run", "suites", "--quiet"), world)


def test_a_foreign_suite_may_use_a_target_of_the_workspace(world: World) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"targets": {"t": {"type": "http", "url": world.trap.url}}}))
    path = suite_with({}, world.outside / "s.json")
    proctor("run", path, "--quiet")
    assert world.trap.requests


@pytest.mark.parametrize("by", ["document", "path"])
def test_an_assistant_runs_no_suite_that_it_sends_or_finds_outside(world: World, by: str) -> None:
    path = suite_with(targets(world)["http"], world.outside / "s.json")
    sent = {"document": path.read_text()} if by == "document" else {"path": str(path)}

    async def ask() -> None:
        async with connected(world.folder / ".proctor") as (client, _):
            result = await client.call_tool("run_suite", sent)
            assert result.is_error and ("not trusted" if by == "document" else "leads out of the working folder") in str(result.content)

    asyncio.run(ask())
    assert world.untouched()


def test_a_foreign_mcplab_workspace_is_not_run(world: World) -> None:
    config = {
        "servers": [{"id": "s", "transport": "http", "url": world.trap.url}],
        "agents": [{"id": "a", "provider": "openai", "model": "stub-1"}],
        "scenarios": [{"id": "one", "prompt": "hi", "servers": ["s"]}],
    }
    path = world.outside / "eval.yaml"
    path.write_text(json.dumps(config))
    refused(proctor("run", path, "--quiet"), world)


@pytest.mark.parametrize("listed", ["", "*a" * 30, "x" * 600])
def test_an_unusable_pattern_is_reported_at_its_place(world: World, listed: str) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"trust": [listed]}))
    path = suite_with(judges(world)["a model at an address"], world.folder / "s.json", CLAIM)
    done = proctor("check", path, "runs.jsonl")
    assert done.code == 4 and "proctor.yaml:1:" in done.err and "trust: " in done.err
    assert world.untouched()


# --- models that a suite describes by their provider alone ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai", ("OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1")),
        ("anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com")),
        ("azure", ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT")),
        ("groq", ("GROQ_API_KEY",)),
        ("google", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    ],
)
def test_a_model_for_a_target_of_the_workspace_is_named_with_its_variables(world: World, provider: str, variables: tuple[str, ...]) -> None:
    target = {"type": "mcp_agent", "model": "m", "servers": [{"id": "s", "transport": "http", "url": world.trap.url}]}
    (world.folder / "proctor.yaml").write_text(json.dumps({"targets": {"t": target}}))
    path = suite_with({"models": {"m": {"provider": provider, "model": "stub-1"}}}, world.outside / "s.json")
    done = proctor("run", path, "--quiet")
    refused(done, world)
    assert all(variable in done.err for variable in variables), done.err
