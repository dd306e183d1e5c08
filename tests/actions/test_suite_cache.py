"""Suites that were read before: the same to the last type and position, and ignored whenever anything about their file is odd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from proctor.actions.workspace import suite_cache
from proctor.actions.workspace.suite_cache import SWITCH, SuiteCache
from proctor.actions.workspace.suites import load_remembered, load_suite
from proctor.checks import registry
from proctor.errors import InputError
from proctor.model.case import Suite

SUITE = """\
proctor: 1
name: desk
tags: {team: billing, level: 2}
cases:
  - id: refund
    input: I was charged twice
    context: {order: 17, zone: {a: [1.5]}}
    tags: {flag: true, ratio: 1.0, none: null}
    expect:
      - tool_called: {name: refund, arguments: {order: 17, ratio: 1.0, flag: true, lines: [1, {a: null}]}}
        id: first
        weight: 2
        when_missing: skip
        because: the rule
      - tools_in_order: [lookup_order, refund]
        depends_on: [first]
      - {response_contains: refund processed, required: true}
      - response_matches: "^Refund"
"""
SUITES = sorted((Path(suite_cache.__file__).parents[2] / "examples").rglob("*.yaml"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a suite, and an empty cache."""
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.yaml").write_text(SUITE)
    yield tmp_path
    registry.MODULES.clear()


def _find_stored(place: Path) -> list[Path]:
    return sorted((place / "cache").rglob("suites/*"))


def _recall(path: str = "suite.yaml", dialect: str | None = None) -> Suite | None:
    return SuiteCache(Path(path).read_text(), path, dialect, os.environ).recall()


def test_a_suite_comes_back_as_it_was_read(place: Path) -> None:
    first = load_remembered("suite.yaml")
    recalled = _recall()
    assert recalled is not None and recalled is not first
    assert (repr(recalled), msgspec.msgpack.encode(recalled)) == (repr(first), msgspec.msgpack.encode(first))
    assert load_remembered("suite.yaml") == load_suite("suite.yaml") == first
    assert [stored.stat().st_mode & 0o777 for stored in (*_find_stored(place), _find_stored(place)[0].parent)] == [0o600, 0o700]


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_every_example_is_the_same_read_or_recalled(place: Path, path: Path) -> None:
    try:
        read = load_suite(path)
    except InputError:
        pytest.skip("not a suite")
    assert repr(load_remembered(str(path))) == repr(read)
    assert repr(load_remembered(str(path))) == repr(read)


@pytest.mark.parametrize(
    "more",
    [
        "  - {id: second, turns: [{input: hello, expect: [response_contains: a]}]}\n",
        "  - {id: second, scoring: {mode: weighted}, expect: [response_contains: a]}\n",
        "evidence: {complete: [tool_calls]}\n",
        "  - {id: empty, expect: []}\n",
    ],
)
def test_a_suite_with_anything_rare_is_not_remembered_or_comes_back_whole(place: Path, more: str) -> None:
    (place / "suite.yaml").write_text(SUITE + more)
    first = load_remembered("suite.yaml")
    recalled = _recall()
    assert recalled is None or repr(recalled) == repr(first)
    assert load_remembered("suite.yaml") == first


def test_the_cases_of_a_large_matrix_are_not_remembered(place: Path) -> None:
    (place / "suite.yaml").write_text(f"proctor: 1\nmatrix: {{n: {[str(number) for number in range(600)]}}}\n" + SUITE.partition("\n")[2])
    assert len(load_remembered("suite.yaml").cases) == 600
    assert not _find_stored(place)


def test_other_text_name_or_dialect_is_another_suite(place: Path) -> None:
    load_remembered("suite.yaml")
    assert _recall(dialect="native") is None
    (place / "other.yaml").write_text(SUITE)
    assert _recall("other.yaml") is None
    (place / "suite.yaml").write_text(SUITE.replace("refund processed", "refund sent"))
    assert _recall() is None
    assert "refund sent" in repr(load_remembered("suite.yaml"))


def test_another_version_of_the_reader_reads_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_remembered("suite.yaml")
    monkeypatch.setattr(suite_cache, "_list_changes", lambda: ["1"])
    assert _recall() is None


@pytest.mark.parametrize("fault", ["empty", "cut", "garbage", "writable", "link", "other spec", "other module", "unknown check"])
def test_an_odd_file_is_ignored(place: Path, fault: str) -> None:
    first = load_remembered("suite.yaml")
    (stored,) = _find_stored(place)
    data = stored.read_bytes()
    if fault == "writable":
        stored.chmod(0o666)
    elif fault == "link":
        stored.rename(place / "target")
        stored.symlink_to(place / "target")
    else:
        changed = {
            "empty": b"",
            "cut": data[:-5],
            "garbage": b"\x93garbage",
            "other spec": data.replace(b"names", b"namez"),
            "other module": data.replace(b"proctor.checks.answer.text", b"proctor.checks.answer.best"),
            "unknown check": data.replace(b"tools_in_order", b"tools_in_ordeR"),
        }[fault]
        assert changed != data
        stored.write_bytes(changed)
        registry.MODULES.clear()
        registry.default_registry.cache_clear()
    assert repr(load_remembered("suite.yaml")) == repr(first)


def test_own_checks_and_plugins_switch_it_off(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_remembered("suite.yaml")
    monkeypatch.setattr(registry, "has_plugins", lambda: True)
    assert _recall() is None
    monkeypatch.undo()
    monkeypatch.chdir(place)
    (place / "proctor.yaml").write_text("checks: [own.py]\n")
    (place / "own.py").write_text("raise RuntimeError('read again')\n")
    with pytest.raises(InputError, match=r"own\.py"):
        load_remembered("suite.yaml")


def test_the_switch_leaves_nothing_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    load_remembered("suite.yaml")
    assert not _find_stored(place)


def test_a_folder_that_others_may_write_to_is_not_used(place: Path) -> None:
    folder = place / "cache/proctor/suites"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    load_remembered("suite.yaml")
    assert not _find_stored(place)
