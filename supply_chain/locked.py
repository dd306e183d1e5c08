"""The packages that proctor needs at run time, read from `uv.lock`: all that any extra brings, on any platform."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CORE = "proctor-evals"
"""Who needs a package that every installation has; others are needed by extras."""
_SUMS = frozenset({"all"})
"""Extras that only name others."""

Wanted = tuple[str, tuple[str, ...]]
"""A package and which of its extras."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package of the lock."""

    name: str
    version: str
    needs: tuple[str, ...]
    """Names of the packages it depends on, of those that are needed here."""
    needed_by: tuple[str, ...]
    """`proctor` itself, or the extras that bring it along."""
    direct: bool
    """Whether `pyproject.toml` names it."""
    files: tuple[tuple[str, str], ...]
    """Address and SHA-256 of every file of this version."""


def read_lock(path: Path = ROOT / "uv.lock") -> dict[str, Any]:
    """Return every package of the lock by its name."""
    with path.open("rb") as file:
        return {package["name"]: package for package in tomllib.load(file)["package"]}


def runtime_packages(known: dict[str, Any] | None = None) -> list[Package]:
    """Return what an installation with all extras may consist of, sorted by name; proctor itself is not among them."""
    known = known or read_lock()
    root = known[CORE]
    extras: dict[str, list[Any]] = root.get("optional-dependencies", {})
    roots = {CORE: root.get("dependencies", []), **{name: needs for name, needs in extras.items() if name not in _SUMS}}
    needed_by: dict[str, set[str]] = {}
    needs: dict[str, set[str]] = {}
    direct = {line["name"] for lines in roots.values() for line in lines}
    for who, lines in roots.items():
        for name, wanted in _reach([_wanted(line) for line in lines], known).items():
            needed_by.setdefault(name, set()).add(who)
            needs.setdefault(name, set()).update(wanted)
    return [
        Package(
            name=name,
            version=known[name]["version"],
            needs=tuple(sorted(needs[name])),
            needed_by=(CORE,) if CORE in needed_by[name] else tuple(sorted(needed_by[name])),
            direct=name in direct,
            files=tuple(sorted(_files(known[name]))),
        )
        for name in sorted(needed_by)
    ]


def _reach(start: list[Wanted], known: dict[str, Any]) -> dict[str, set[str]]:
    """Return every package that these lead to, and what each of them leads to."""
    found: dict[str, set[str]] = {}
    seen: set[Wanted] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        name, extras = one
        package = known[name]
        lines = [*package.get("dependencies", ()), *(line for extra in extras for line in package.get("optional-dependencies", {})[extra])]
        found.setdefault(name, set()).update(line["name"] for line in lines)
        waiting += [_wanted(line) for line in lines]
    return found


def _wanted(line: dict[str, Any]) -> Wanted:
    return line["name"], tuple(line.get("extra", ()))


def _files(package: dict[str, Any]) -> list[tuple[str, str]]:
    files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
    return [(file["url"], file["hash"].removeprefix("sha256:")) for file in files]
