"""The simulator of the guide is a kind like the others, with the one file and the one test file that the guide shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proctor.simulators.kinds
from proctor.simulators.ports import find_simulator, list_kinds
from tests.executed_page import FENCE
from tests.simulators.test_sandbox import test_every_kind_has_a_description_and_tools_with_schemas as describe_kind
from tests.simulators.test_tools import test_no_arguments_break_a_kind as call_without_a_seed
from tests.simulators.workplace import Workplace

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-simulator.md"


@pytest.fixture
def its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Run the test file of the guide while its simulator is a kind."""
    shown = {found["language"]: found["body"] for found in FENCE.finditer(GUIDE.read_text(encoding="utf-8"))}
    simulator, test = shown["python"], shown["py"]
    (tmp_path / "doorbell.py").write_text(simulator.partition("\nids = ")[0], encoding="utf-8")
    kinds = proctor.simulators.kinds
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    list_kinds.cache_clear()
    names: dict[str, Any] = {}
    exec(compile(test, str(GUIDE), "exec"), names)  # noqa: S102 - the program is ours, from our own page
    yield names
    list_kinds.cache_clear()
    sys.modules.pop("proctor.simulators.kinds.doorbell", None)


def test_the_simulator_of_the_guide_passes_its_own_test_and_those_of_every_kind(its_test: dict[str, Any]) -> None:
    assert find_simulator("doorbell").steps == ("ring",)
    (own,) = [value for name, value in its_test.items() if name.startswith("test_")]
    own()
    for one in (describe_kind, call_without_a_seed):
        one("doorbell")
    for work in (its_test["RIGHT"], its_test["WRONG"]):
        assert Workplace("doorbell", its_test["SEED"]).ask(*work).status == 201
