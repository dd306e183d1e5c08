"""The cost of importing a target's module; `test_callable.py` tests that it is the right one."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from proctor.targets.local.agent_objects import import_local_module


def count_looks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many files are looked up while a module of the folder is imported."""
    looks = 0
    real = Path.is_file

    def count(path: Path) -> bool:
        nonlocal looks
        looks += 1
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_file", count)
        import_local_module("counted_agent", folder, trusted=True)
    return looks


def test_import_work_does_not_grow_with_loaded_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counted_agent.py").write_text("answer = str\n")
    few = count_looks(tmp_path, monkeypatch)
    for number in range(500):
        monkeypatch.setitem(sys.modules, f"stranger_{number}", types.ModuleType(f"stranger_{number}"))
    assert count_looks(tmp_path, monkeypatch) <= few + 1
