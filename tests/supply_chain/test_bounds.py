"""Every dependency declares its lowest version, and the jobs for both ends test those versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from supply_chain.bounds import Bound, constraints, main, read_bounds, verify

BOUNDS = read_bounds()


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: f"{bound.place} {bound.name}")
def test_every_dependency_has_a_lower_bound(bound: Bound) -> None:
    assert bound.lowest is not None, f"{bound.requirement} allows untested versions"
    assert {one.operator for one in bound.requirement.specifier} <= {">=", "<"}, "nothing else is tested by the two jobs"


def test_a_dependency_that_is_named_twice_has_the_same_bounds() -> None:
    specifiers: dict[str, str] = {}
    for bound in BOUNDS:
        assert specifiers.setdefault(bound.name, str(bound.requirement.specifier)) == str(bound.requirement.specifier), bound.name


@pytest.mark.parametrize("bound", [bound for bound in BOUNDS if bound.highest is not None], ids=lambda bound: f"{bound.place} {bound.name}")
def test_installed_versions_are_below_the_upper_bound(bound: Bound) -> None:
    assert verify("newest", [bound]) == []


def bound_of(line: str) -> Bound:
    requirement = Requirement(line)
    return Bound(name=requirement.name, place="dependencies", requirement=requirement)


def test_the_lowest_versions_are_written_as_constraints() -> None:
    assert constraints([bound_of("b>=2.0,<3"), bound_of("a[x]>=1.4"), bound_of("b>=2.0,<3")]) == ["a==1.4", "b==2.0"]


@pytest.mark.parametrize(
    ("which", "line", "installed", "complains"),
    [
        ("lowest", "a>=1.4", "1.4.0", False),
        ("lowest", "a>=1.4", "1.5", True),
        ("lowest", "a>=1.4", None, True),
        ("newest", "a>=1.4,<2", "1.9", False),
        ("newest", "a>=1.4,<2", "2.0", True),
        ("newest", "a>=1.4,<2", None, True),
    ],
)
def test_an_environment_that_tests_something_else_is_refused(which: str, line: str, installed: str | None, complains: bool) -> None:
    assert bool(verify(which, [bound_of(line)], lambda _: installed)) is complains


def test_a_project_without_bounds_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(
        '[project]\nname = "p"\ndependencies = ["free"]\n[project.optional-dependencies]\nx = ["p[y]", "held>=1"]\n[dependency-groups]\n'
    )
    assert [(bound.name, bound.lowest is None) for bound in read_bounds(file)] == [("free", True), ("held", False)]


def test_a_word_that_is_not_known_is_a_mistake_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "some"]) == 4 and "verify lowest" in capsys.readouterr().err
