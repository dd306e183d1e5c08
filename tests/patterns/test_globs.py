"""File patterns against a slow, obvious matcher."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.errors import SpecError
from proctor.patterns.globs import compile_glob, matches_glob


def obvious(pattern: str, path: str) -> bool:
    """The rules written down as they are read; exponential, so for short texts only."""
    return _fits(pattern, path, begins_folder=True)


def _fits(pattern: str, path: str, begins_folder: bool) -> bool:
    if not pattern:
        return not path
    if pattern.startswith("**/") and begins_folder:
        folders = [0] + [position + 1 for position, char in enumerate(path) if char == "/"]
        return any(_fits(pattern[3:], path[start:], True) for start in folders)
    if pattern.startswith("**"):
        return any(_fits(pattern[2:], path[start:], False) for start in range(len(path) + 1))
    if pattern.startswith("*"):
        inside = path.split("/")[0]
        return any(_fits(pattern[1:], path[start:], False) for start in range(len(inside) + 1))
    if not path:
        return False
    if pattern[0] == "?":
        return path[0] != "/" and _fits(pattern[1:], path[1:], False)
    return path[0] == pattern[0] and _fits(pattern[1:], path[1:], path[0] == "/")


PIECES = st.lists(st.sampled_from(["a", "b", "/", "*", "**/", "/**/", "?", "**"]), min_size=1, max_size=7).map("".join)


@settings(max_examples=400, deadline=None)
@given(PIECES, st.text(alphabet="ab/", max_size=7))
@example("a/**/b", "a/b")
@example("a/**/b", "a/xb")
@example("**/**/a", "b/a")
@example("*/**", "a")
@pytest.mark.timeout(60)
def test_the_matcher_agrees_with_the_rules(pattern, path):
    # Leading slashes are tested by a table; here both texts start at the root.
    pattern, path = pattern.lstrip("/"), path.lstrip("/")
    if pattern and "***" not in pattern:
        assert matches_glob(compile_glob(pattern), path) is obvious(pattern, path)


@pytest.mark.parametrize("pattern", ["", "a" * 501, "*a" * 21])
def test_a_pattern_without_measure_is_refused(pattern):
    with pytest.raises(SpecError):
        compile_glob(pattern)


def test_a_path_without_measure_matches_nothing():
    assert not matches_glob(compile_glob("**"), "a" * 3_000)


def test_a_hostile_pattern_ends_soon():
    assert not matches_glob(compile_glob("*a" * 20 + "b"), "a" * 2_000)
