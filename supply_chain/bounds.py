"""The versions that `pyproject.toml` allows, and whether an environment has the lowest of them.

`python -m supply_chain.bounds constraints` prints the lowest of every dependency as constraints for pip, which cannot choose them itself;
`python -m supply_chain.bounds verify lowest` fails where the environment it runs in has another version than the lowest that is
allowed, and `verify newest` where it has one that is not allowed: a job that tests something else than it says is worth nothing.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from supply_chain.locked import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What one line of `pyproject.toml` allows."""

    name: str
    place: str
    """Which list the line stands in."""
    requirement: Requirement

    @property
    def lowest(self) -> Version | None:
        """The version after `>=`."""
        return next((Version(one.version) for one in self.requirement.specifier if one.operator == ">="), None)

    @property
    def highest(self) -> str | None:
        """The version after `<`, which is the first that is not allowed."""
        return next((one.version for one in self.requirement.specifier if one.operator == "<"), None)


def read_bounds(path: Path = ROOT / "pyproject.toml") -> list[Bound]:
    """Return every line about another package, in their order."""
    with path.open("rb") as file:
        document = tomllib.load(file)
    project = document["project"]
    lists = {"dependencies": project["dependencies"], **project["optional-dependencies"], **document["dependency-groups"]}
    found = [(place, Requirement(line)) for place, lines in lists.items() for line in lines]
    return [
        Bound(name=canonicalize_name(requirement.name), place=place, requirement=requirement)
        for place, requirement in found
        if requirement.name != project["name"]
    ]


def constraints(bounds: Iterable[Bound]) -> list[str]:
    """Return the lowest version of everything, as lines of a constraints file."""
    return sorted({f"{bound.name}=={bound.lowest}" for bound in bounds})


def installed_version(name: str) -> str | None:
    """Return the version that is installed here."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def verify(which: str, bounds: Iterable[Bound], installed: Callable[[str], str | None] = installed_version) -> list[str]:
    """Return what is not as the job says: `lowest` or `newest`."""
    complaints: list[str] = []
    for bound in bounds:
        has = installed(bound.name)
        if has is None:
            complaints.append(f"{bound.name}: not installed")
        elif which == "lowest" and Version(has) != bound.lowest:
            complaints.append(f"{bound.name}: {has} is installed, and {bound.requirement} allows {bound.lowest}")
        elif which == "newest" and not bound.requirement.specifier.contains(has, prereleases=True):
            complaints.append(f"{bound.name}: {has} is installed, and only {bound.requirement} is allowed")
    return complaints


def main(arguments: list[str]) -> int:
    """Do one of the two."""
    bounds = read_bounds()
    if arguments == ["constraints"]:
        print("\n".join(constraints(bounds)))
        return 0
    if len(arguments) == 2 and arguments[0] == "verify" and arguments[1] in ("lowest", "newest"):
        complaints = verify(arguments[1], bounds)
        print("\n".join(complaints) or f"{len(bounds)} bounds looked at: every version is the one to be tested")
        return 1 if complaints else 0
    print("usage: python -m supply_chain.bounds constraints | verify lowest | verify newest", file=sys.stderr)
    return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
