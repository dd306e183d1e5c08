"""`@proctor.agent`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import proctor
from proctor.errors import InputError, SpecError
from proctor.targets.local.callable import load_function
from proctor.targets.shared.faults import TargetFault
from tests.targets.frameworks.test_frameworks import drive


def write(folder: Path, text: str) -> str:
    name = f"marked_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(f"import proctor\n\n\n{text}", encoding="utf-8")
    sys.modules.pop(name, None)
    return name


def test_a_marked_function_is_unchanged() -> None:
    def answer(message: str) -> str:
        return message

    assert proctor.agent(answer) is answer and proctor.agent(timeout_s=3)(answer) is answer
    assert drive(answer, "hi").text == "hi"


def test_a_module_refers_to_its_only_marked_function(tmp_path: Path) -> None:
    name = write(
        tmp_path,
        "def other(message): ...\n\n\n@proctor.agent(timeout_s=7)\ndef answer(message):\n    return 'yes'\n\n\nmore = answer\n",
    )
    assert load_function(name, base=tmp_path)("hi") == "yes"


def test_a_module_with_several_marked_functions_is_ambiguous(tmp_path: Path) -> None:
    name = write(tmp_path, "@proctor.agent\ndef one(message):\n    return '1'\n\n\n@proctor.agent\ndef two(message):\n    return '2'\n")
    with pytest.raises(SpecError, match=f"marks one, two with @proctor.agent; write {name}:one"):
        load_function(name, base=tmp_path)
    assert load_function(f"{name}:two", base=tmp_path)("hi") == "2"


def test_the_time_limit_of_the_mark_is_the_default() -> None:
    import asyncio

    from proctor.cassettes.ports import LIVE
    from proctor.targets.local.callable import CallableTarget
    from tests.targets.loopback import attempt

    @proctor.agent(timeout_s=0.05)
    async def slow(message: str) -> str:
        await asyncio.Event().wait()
        return message

    with pytest.raises(TargetFault, match=r"0\.05 s") as caught:
        asyncio.run(CallableTarget("agent", slow).run(attempt("hi"), LIVE))
    assert caught.value.code == "timeout"
    with pytest.raises(TargetFault, match=r"0\.02 s") as caught:
        asyncio.run(CallableTarget("agent", slow, timeout_s=0.02).run(attempt("hi"), LIVE))
    assert caught.value.code == "timeout"


@pytest.mark.parametrize("wrong", [0, -1, True, "3"])
def test_an_invalid_time_limit_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match="expected seconds above 0"):
        proctor.agent(timeout_s=wrong)  # type: ignore[call-overload]
