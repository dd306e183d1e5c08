"""Checks are found by name, and their files are loaded on demand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proctor.checks import registry
from proctor.checks.registry import CheckEntry, default_registry, find_builtin_module
from proctor.errors import InputError


def test_every_check_of_ours_is_found_in_its_own_file_without_loading_the_others() -> None:
    for entry in default_registry():
        module = find_builtin_module(entry.name)
        assert module is not None and module.__name__ == entry.owner, f"{entry.name}: write its mark on one line"


def test_a_file_that_only_speaks_of_a_mark_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Which file a folder lists first is anybody's guess; the registry itself shows marks in its docstring.
    listed = registry.os.listdir
    monkeypatch.setattr(registry.os, "listdir", lambda folder: sorted(listed(folder), key=lambda name: name != "registry.py"))
    found = find_builtin_module("response_contains")
    assert found is not None and found.__name__ == "proctor.checks.answer.text"


def test_a_plugin_cannot_quietly_take_the_name_of_a_check_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = default_registry().get("tool_called")

    def plugins() -> Iterator[CheckEntry]:
        yield CheckEntry(
            name="tool_called",
            spec=taken.spec,
            prepare=taken.prepare,
            shorthand=None,
            judged=False,
            summary="",
            example="",
            owner="elsewhere",
        )

    monkeypatch.setattr(registry, "iterate_plugin_entries", plugins)
    with pytest.raises(InputError, match=r"'tool_called' is defined twice: in proctor\.checks\.tools\.tool_calls and in elsewhere"):
        default_registry.__wrapped__()
