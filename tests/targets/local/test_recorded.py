"""A recorded agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.errors import InputError
from proctor.model.attempt import Attempt
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence
from proctor.targets.build import build_target, check_cases
from proctor.targets.shared.faults import TargetFault
from tests.targets.loopback import attempt

LINES = """\
{"case": "case-1", "text": "first"}
{"case": "A name", "text": "by name"}
{"case": "case-1", "text": "second"}
"""


def drive(folder: Path, go: Any, **settings: Any) -> Evidence:
    async def run() -> Evidence:
        target = build_target("tape", {"type": "recorded", "evidence": "runs.jsonl", **settings}, base=folder)
        await target.open()
        try:
            return await target.run(go, LIVE)
        finally:
            await target.close()

    return asyncio.run(run())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs.jsonl").write_text(LINES, encoding="utf-8")
    return tmp_path


def test_recordings_replay_the_attempts_of_their_case_in_order(folder: Path) -> None:
    assert [drive(folder, attempt("hi", number=number)).text for number in (0, 1)] == ["first", "second"]
    with pytest.raises(TargetFault, match="'case-1'") as caught:
        drive(folder, attempt("hi", number=2))
    assert caught.value.code == "no_recording"


def test_a_recording_may_refer_to_a_case_by_name(folder: Path) -> None:
    evidence = drive(folder, attempt("hi", id="x", name="A name"))
    assert (evidence.text, evidence.case) == ("by name", "x")


def test_a_missing_recording_is_a_fault_with_the_nearest_case(folder: Path) -> None:
    with pytest.raises(TargetFault, match="'case-2'; nearest: case-1") as caught:
        drive(folder, attempt("hi", id="case-2"))
    assert caught.value.code == "no_recording"


def test_a_recording_without_a_case_is_the_default(folder: Path) -> None:
    (folder / "runs.jsonl").write_text('{"text": "any"}\n{"case": "case-1", "text": "own"}\n', encoding="utf-8")
    assert drive(folder, attempt("hi")).text == "own"
    assert drive(folder, attempt("hi", id="other")).text == "any"


SUITE = Suite(name="s", cases=(Case(id="a", input="x"), Case(id="b", input="y")), unselected=(Case(id="c", input="z"),))


def learned(folder: Path, text: str) -> Any:
    (folder / "runs.jsonl").write_text(text, encoding="utf-8")
    target = build_target("tape", {"type": "recorded", "evidence": "runs.jsonl"}, base=folder)
    check_cases(target, SUITE)
    return target


def test_a_recording_without_a_case_matches_by_input(folder: Path) -> None:
    target = learned(folder, '{"input": "y", "text": "of b"}\n{"input": "z", "text": "of c"}\n{"input": "x", "text": "of a"}\n')

    async def texts() -> list[str | None]:
        await target.open()
        return [(await target.run(Attempt(case=case, request_id="r", session_id="s"), LIVE)).text for case in SUITE.cases]

    assert asyncio.run(texts()) == ["of a", "of b"]


def test_an_ambiguous_recording_is_refused(folder: Path) -> None:
    with pytest.raises(TargetFault, match=r"do not say which case they answer:\n.*runs\.jsonl:1: .*its input \"q\" .*'a' \(input \"x\"\)"):
        asyncio.run(learned(folder, '{"input": "q", "text": "any"}\n').open())


def test_recordings_of_unknown_cases_are_counted(folder: Path) -> None:
    target = learned(folder, '{"case": "a", "text": "1"}\n{"case": "zz", "text": "2"}\n{"case": "c", "text": "3"}\n')
    asyncio.run(target.open())
    assert target.records_without_case == 1


def test_missing_and_unreadable_files_are_faults(folder: Path) -> None:
    with pytest.raises(TargetFault, match=r"no evidence at .*nowhere"):
        drive(folder, attempt("hi"), evidence=["nowhere.jsonl"])
    (folder / "runs.jsonl").write_text('{"text": "ok"}\nnot json\n{"text": 5}\n', encoding="utf-8")
    with pytest.raises(TargetFault, match=r"runs\.jsonl:2: not JSON.*\n.*runs\.jsonl:3: ") as caught:
        drive(folder, attempt("hi"))
    assert "more" not in str(caught.value)


def test_settings_that_cannot_be_used_are_refused() -> None:
    for evidence, message in (([], "no file is named"), (["-"], "cannot read standard input")):
        with pytest.raises(InputError, match=message):
            build_target("tape", {"type": "recorded", "evidence": evidence})


def test_an_unopened_target_is_an_error() -> None:
    target = build_target("tape", {"type": "recorded", "evidence": "x"})
    with pytest.raises(TargetFault, match="was not opened"):
        asyncio.run(target.run(attempt("hi"), LIVE))
