"""What a suite may cause: everything it can name times every door. Untrusted, nothing is started, read or sent.

A trap listens on loopback and counts; code that is imported and processes that are started leave a mark. With `--trust` each of them is
reached, which shows that the trap can catch.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import proctor as library
from proctor.errors import InputError
from tests.integration.judge_server import Judge, judge_server
from tests.integration.running import Done, proctor
from tests.mcp_server.clients import connected

SECRET = "sk-of-the-cloud-account-77"
VARIABLE = "SOME_CLOUD_SECRET"
CLAIM = {"judged": {"criteria": "is friendly"}}
PLAIN = {"response_contains": "hello"}
EVIDENCE = '{"case": "one", "input": "hi", "text": "hello, a good day"}\n'


class World(NamedTuple):
    """Where the traps are."""

    folder: Path
    """The working folder."""
    outside: Path
    """A folder of somebody else."""
    trap: Judge

    @property
    def mark(self) -> Path:
        return self.outside / "mark"

    def untouched(self) -> bool:
        return not self.trap.asked and not self.mark.exists()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    folder, outside = tmp_path / "here", tmp_path / "elsewhere"
    folder.mkdir()
    outside.mkdir()
    monkeypatch.chdir(folder)
    for name in ("PROCTOR_TRUST", "PROCTOR_JUDGE_MODEL", "PROCTOR_JUDGE_BASE_URL", "PROCTOR_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, SECRET)
    (folder / "runs.jsonl").write_text(EVIDENCE)
    with judge_server() as trap:
        # A provider of the user's own must not be asked on a stranger's word either.
        monkeypatch.setenv("OPENAI_BASE_URL", trap.url)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        yield World(folder, outside, trap)


def _model(world: World) -> dict[str, Any]:
    return {"provider": "openai", "model": "stub-1", "base_url": world.trap.url, "api_key": f"${{{VARIABLE}}}"}


def _program(world: World) -> dict[str, Any]:
    return {
        "id": "s",
        "transport": "stdio",
        "command": sys.executable,
        "args": ["-c", f"open({str(world.mark)!r}, 'w')"],
        "env": {"KEY": f"${{{VARIABLE}}}"},
    }


def judges(world: World) -> dict[str, dict[str, Any]]:
    """Every way in which a suite names somebody who judges."""
    return {
        "a model at an address": {"models": {"m": _model(world)}, "judge": {"model": "m"}},
        "a jury": {"models": {"m": _model(world), "n": _model(world)}, "judge": {"model": ["m", "n"]}},
        "a provider": {"judge": {"model": "openai/stub-1"}},
        "a model and a file": {"models": {"m": _model(world)}, "judge": {"model": "m", "prompt": "prompt.md"}},
    }


def targets(world: World) -> dict[str, dict[str, Any]]:
    """Every kind of target, described by a suite."""
    url, key = world.trap.url, f"${{{VARIABLE}}}"
    (world.outside / "strange_agent.py").write_text(
        f"import pathlib\n\npathlib.Path({str(world.mark)!r}).touch()\n\ndef answer(message):\n    return 'hello'\n"
    )
    model = {"models": {"m": _model(world)}}
    return {
        "http": {"targets": {"t": {"type": "http", "url": url, "auth": {"type": "bearer", "token": key}}}},
        "n8n": {"targets": {"t": {"type": "n8n", "webhook": f"{url}/hook", "api": url, "api_key": key}}},
        "flowise": {"targets": {"t": {"type": "flowise", "url": url, "flow": "f1", "api_key": key}}},
        "callable": {"targets": {"t": {"type": "callable", "function": "strange_agent:answer"}}},
        "recorded": {"targets": {"t": {"type": "recorded", "evidence": ["../here/runs.jsonl"]}}},
        "a program": {**model, "targets": {"t": {"type": "mcp_agent", "model": "m", "servers": [_program(world)]}}},
        "a server": {
            **model,
            "targets": {"t": {"type": "mcp_agent", "model": "m", "servers": [{"id": "s", "transport": "http", "url": url}]}},
        },
    }


JUDGES = ("a model at an address", "a jury", "a provider", "a model and a file")
TARGETS = ("http", "n8n", "flowise", "callable", "recorded", "a program", "a server")


def suite_with(settings: dict[str, Any], place: Path, *claims: dict[str, Any]) -> Path:
    document = {"proctor": 1, "name": "strange", "cases": [{"id": "one", "input": "hi", "expect": list(claims) or [PLAIN]}], **settings}
    place.write_text(json.dumps(document))
    (place.parent / "prompt.md").write_text("Judge. {checks} {data}")
    return place


def kept_run(world: World) -> None:
    """A run of the user's own, to be decided again."""
    own = {"targets": {"t": {"type": "recorded", "evidence": ["runs.jsonl"]}}}
    suite_with(own, world.folder / "own.json")
    assert proctor("run", "own.json", "--quiet").code == 0


def refused(done: Done, world: World) -> None:
    assert done.code == 4, done
    assert "nothing was started and nothing was sent" in done.err
    assert "--trust" in done.err
    assert SECRET not in done.err + done.out
    assert world.untouched()


# --- doors that only read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("place", ["folder", "outside"])
def test_check_asks_no_judge_on_the_word_of_a_suite(world: World, name: str, place: str) -> None:
    path = suite_with(judges(world)[name], getattr(world, place) / "s.json", CLAIM)
    refused(proctor("check", path, "runs.jsonl"), world)
    done = proctor("check", path, "runs.jsonl", "--no-judge")
    assert "untrusted" not in done.err and done.code == 1
    assert world.untouched()
    if name != "a model and a file":
        assert proctor("check", path, "runs.jsonl", "--trust").code == 0
        assert world.trap.asked


def test_what_a_suite_names_is_told_whole_and_without_values(world: World) -> None:
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM)
    told = proctor("check", path, "runs.jsonl").err
    assert world.trap.url in told
    assert f"reads the variable  {VARIABLE}  (models.m.api_key)" in told


@pytest.mark.parametrize("name", JUDGES)
def test_recheck_asks_no_judge_on_the_word_of_a_suite(world: World, name: str) -> None:
    kept_run(world)
    path = suite_with(judges(world)[name], world.folder / "s.json", CLAIM)
    refused(proctor("recheck", "latest", "--suite", path), world)


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
@pytest.mark.parametrize("by", ["document", "path"])
def test_an_assistant_checks_evidence_without_a_strange_judge(world: World, name: str, by: str) -> None:
    path = suite_with(judges(world)[name], world.folder / "s.json", CLAIM)
    sent = {"document": path.read_text()} if by == "document" else {"path": "s.json"}

    async def ask() -> str:
        async with connected(world.folder / ".proctor") as (client, _):
            result = await client.call_tool("check_evidence", {**sent, "evidence": [json.loads(EVIDENCE)]})
            assert result.is_error, result
            return str(result.content)

    told = asyncio.run(ask())
    assert "nothing was sent" in told and SECRET not in told
    assert world.untouched()


# --- what the workspace says ----------------------------------------------------------------------------------------------


def test_a_judge_that_the_workspace_describes_is_asked(world: World) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"models": {"m": _model(world)}}))
    path = suite_with({"judge": {"model": "m", "samples": 1}}, world.outside / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl").code == 0
    assert world.trap.asked


def test_a_suite_that_describes_the_same_model_as_the_workspace_changes_nothing(world: World) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"models": {"m": _model(world)}}))
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl").code == 0


def test_a_suite_that_describes_another_model_under_the_same_name_is_refused(world: World) -> None:
    ours = {**_model(world), "base_url": "http://127.0.0.1:9/v1", "api_key": "ours"}
    (world.folder / "proctor.yaml").write_text(json.dumps({"models": {"m": ours}}))
    path = suite_with(judges(world)["a model at an address"], world.outside / "s.json", CLAIM)
    refused(proctor("check", path, "runs.jsonl"), world)


@pytest.mark.parametrize(("listed", "code"), [("suites/*.json", 0), ("other/*.json", 4)])
def test_the_workspace_lists_the_suites_it_trusts(world: World, listed: str, code: int) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"trust": [listed]}))
    (world.folder / "suites").mkdir()
    path = suite_with(judges(world)["a model at an address"], world.folder / "suites" / "s.json", CLAIM)
    assert proctor("check", path, "runs.jsonl").code == code
    assert bool(world.trap.asked) is (code == 0)


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


# --- doors that run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_run_does_nothing_that_a_suite_from_elsewhere_names(world: World, name: str) -> None:
    path = suite_with(targets(world)[name], world.outside / "s.json")
    refused(proctor("run", path, "--quiet"), world)
    with pytest.raises(InputError, match="not trusted"):
        library.run(path)
    assert world.untouched()


@pytest.mark.parametrize("name", ["http", "n8n", "flowise", "callable", "a program", "a server"])
def test_run_does_it_with_trust(world: World, name: str) -> None:
    path = suite_with(targets(world)[name], world.outside / "s.json")
    proctor("run", path, "--quiet", "--trust")
    assert not world.untouched()


def test_run_does_what_suites_of_the_working_folder_name(world: World) -> None:
    path = suite_with(targets(world)["http"], world.folder / "s.json")
    proctor("run", path, "--quiet")
    assert world.trap.asked


@pytest.mark.parametrize("through", ["file", "folder"])
def test_a_link_that_leads_out_is_no_suite_of_the_working_folder(world: World, through: str) -> None:
    path = suite_with(targets(world)["http"], world.outside / "s.json")
    link = world.folder / ("s.json" if through == "file" else "suites")
    link.symlink_to(path if through == "file" else world.outside)
    refused(proctor("run", link if through == "file" else link / "s.json", "--quiet"), world)


def test_one_stranger_among_suites_is_enough(world: World) -> None:
    (world.folder / "suites").mkdir()
    suite_with(targets(world)["http"], world.folder / "suites" / "own.json")
    stranger = json.loads(suite_with(targets(world)["callable"], world.outside / "s.json").read_text())
    stranger["cases"][0]["id"] = "two"
    (world.outside / "s.json").write_text(json.dumps(stranger))
    (world.folder / "suites" / "link.json").symlink_to(world.outside / "s.json")
    refused(proctor("run", "suites", "--quiet"), world)


def test_a_target_of_the_workspace_may_be_driven_through_a_suite_from_elsewhere(world: World) -> None:
    (world.folder / "proctor.yaml").write_text(json.dumps({"targets": {"t": {"type": "http", "url": world.trap.url}}}))
    path = suite_with({}, world.outside / "s.json")
    proctor("run", path, "--quiet")
    assert world.trap.asked


@pytest.mark.parametrize("by", ["document", "path"])
def test_an_assistant_runs_no_suite_that_it_sends_or_finds_elsewhere(world: World, by: str) -> None:
    path = suite_with(targets(world)["http"], world.outside / "s.json")
    sent = {"document": path.read_text()} if by == "document" else {"path": str(path)}

    async def ask() -> None:
        async with connected(world.folder / ".proctor") as (client, _):
            result = await client.call_tool("run_suite", sent)
            assert result.is_error and "not trusted" in str(result.content)

    asyncio.run(ask())
    assert world.untouched()


def test_an_mcplab_workspace_from_elsewhere_is_not_run(world: World) -> None:
    config = {
        "servers": [{"id": "s", "transport": "http", "url": world.trap.url}],
        "agents": [{"id": "a", "provider": "openai", "model": "stub-1"}],
        "scenarios": [{"id": "one", "prompt": "hi", "servers": ["s"]}],
    }
    path = world.outside / "eval.yaml"
    path.write_text(json.dumps(config))
    refused(proctor("run", path, "--quiet"), world)


@pytest.mark.parametrize("granted", [False, True])
def test_pytest_runs_suites_of_the_working_folder_alone(world: World, granted: bool) -> None:
    suite_with(targets(world)["http"], world.outside / "strange.proctor.json")
    document = (world.outside / "strange.proctor.json").read_text()
    (world.outside / "strange.proctor.yaml").write_text(document)
    (world.folder / "own.proctor.yaml").write_text(document)

    def session(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--proctor-live", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=world.folder, timeout=120, check=False)

    done = session(str(world.outside / "strange.proctor.yaml"), *(["--proctor-trust"] if granted else []))
    assert bool(world.trap.asked) is granted, done.stdout
    assert ("not trusted" in done.stdout) is not granted
    world.trap.asked.clear()
    session("own.proctor.yaml")
    assert world.trap.asked
