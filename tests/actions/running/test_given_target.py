"""Targets as people write them on the command line: by file, without `http://`, and as a single word."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.actions.running.named_target import parse_target
from proctor.errors import InputError
from tests.integration.running import proctor


@pytest.mark.parametrize(
    ("written", "function"),
    [
        ("app:answer", "app:answer"),
        ("app.py:answer", "app:answer"),
        ("./app.py:answer", "app:answer"),
        ("shop/app.py:Bot.ask", "shop.app:Bot.ask"),
    ],
)
def test_a_function_may_be_named_by_its_file(written: str, function: str) -> None:
    found = parse_target(written)
    assert found is not None and (found.kind, found.settings) == ("function", {"type": "callable", "function": function})


@pytest.mark.parametrize(
    "written", ["localhost:9000", "localhost:9000/chat", "127.0.0.1:9000/chat?a=b", "agents.example.org:80", "[::1]:80/x"]
)
def test_an_address_without_its_scheme_is_no_command(written: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_target(written)
    assert str(refused.value).endswith(f"write http://{written}")


@pytest.mark.parametrize("written", ["./agent", "bin/agent.sh", "python agent.py", "node agent.mjs --port localhost:80"])
def test_programs_stay_programs(written: str) -> None:
    found = parse_target(written)
    assert found is not None and found.kind == "command"


def test_a_bare_file_is_reported_with_how_to_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = proctor("try", "hi", "--target", "agent.py")
    assert done.code == 4 and 'a function in it is agent:FUNCTION, the program "python agent.py"' in done.err
    done = proctor("try", "hi")
    assert done.code == 4 and "module:function, a URL, or a command in quotes" in done.err


def test_unsavable_cases_are_reported_before_any_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent_of_try.py").write_text(
        "from pathlib import Path\ndef answer(message):\n    Path('called').touch()\n    return 'hi'\n", encoding="utf-8"
    )
    (tmp_path / "broken.yaml").write_text("proctor: 1\ncases: [{id: a, expect: [bogus]}]\n", encoding="utf-8")
    for flags, message in (
        (["--save", "broken.yaml"], "unknown check 'bogus'"),
        (["--save", "."], "is a folder"),
        (["--output", "nowhere/seen.txt"], "cannot write 'nowhere/seen.txt'"),
    ):
        done = proctor("try", "hi", "--target", "agent_of_try:answer", *flags)
        assert done.code == 4 and message in done.err and not (tmp_path / "called").exists(), done


def test_a_failing_agent_adds_no_case_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fails_in_try.py").write_text("def answer(message):\n    return 1 / 0\n", encoding="utf-8")
    done = proctor("try", "hi", "--target", "fails_in_try:answer", "--save")
    assert done.code == 1 and "nothing was saved: there is no answer" in done.out and not (tmp_path / "suite.yaml").exists()
