"""The licence of every package that proctor needs: `python -m supply_chain.licences`, or `make licences`, writes the table.

A licence is what the metadata of the installed package say, or what `licences.toml` says a person has read. One that is unknown, or
not allowed there, is an error: nothing is taken for permissive without having looked.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, cast

from supply_chain.locked import CORE, ROOT, Package, runtime_packages

PAGE = ROOT / "docs" / "reference" / "licences.md"
RULES = Path(__file__).parent / "licences.toml"
_CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
}
"""Those that mean one licence; `BSD License` means several."""
_TEXTS = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "apache-2.0 or bsd-3-clause": "Apache-2.0 OR BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "mit": "MIT",
    "mit license": "MIT",
}
_WORD = re.compile(r"[()]|[A-Za-z0-9.+-]+")
_HEAD = """<!-- Written by `make licences`; do not edit. -->

# Licences

proctor itself is Apache-2.0. This is the licence of every package that an installation of it may bring along, on any platform, as an SPDX
expression. An installation without extras has only those that `proctor` needs.

| package | licence | needed by |
|---|---|---|
"""
_TAIL = """
Where the metadata of a package do not say it, a person has looked:

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a person found out."""

    licence: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may be used."""

    allowed: frozenset[str]
    reviewed: Mapping[str, Review]


def read_rules(path: Path = RULES) -> Rules:
    """Return the rules of the file."""
    with path.open("rb") as file:
        found = tomllib.load(file)
    reviewed = {name: Review(licence=row["licence"], reason=row["reason"]) for name, row in found["reviewed"].items()}
    return Rules(allowed=frozenset(found["allowed"]), reviewed=reviewed)


def installed_metadata(name: str) -> Message | None:
    """Return what an installed package says about itself; nothing where it is not installed."""
    try:
        return cast(Message, importlib.metadata.metadata(name))
    except importlib.metadata.PackageNotFoundError:
        return None


def stated_licence(metadata: Message) -> str | None:
    """Return the licence that metadata state beyond doubt."""
    expression = metadata.get("License-Expression")
    if expression:
        return expression
    stated = {_CLASSIFIERS.get(line) for line in metadata.get_all("Classifier", []) if line.startswith("License ::")}
    text = _TEXTS.get((metadata.get("License") or "").strip().lower())
    if text is not None:
        stated.add(text)
    return stated.pop() if len(stated) == 1 else None


def is_allowed(expression: str, allowed: Iterable[str]) -> bool:
    """Whether an SPDX expression can be met with these licences alone. What it does not understand, it does not allow."""
    words = _WORD.findall(expression)
    if "".join(words) != "".join(expression.split()):
        return False
    try:
        met, rest = _either(words, frozenset(allowed))
    except (IndexError, ValueError):
        return False
    return met and not rest


def _either(words: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    met, rest = _both(words, allowed)
    while rest[:1] == ["OR"]:
        other, rest = _both(rest[1:], allowed)
        met = met or other
    return met, rest


def _both(words: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    met, rest = _one(words, allowed)
    while rest[:1] == ["AND"]:
        other, rest = _one(rest[1:], allowed)
        met = met and other
    return met, rest


def _one(words: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    if words[0] != "(":
        return words[0] in allowed, words[1:]
    met, rest = _either(words[1:], allowed)
    if rest[:1] != [")"]:
        raise ValueError("a bracket is not closed")
    return met, rest[1:]


def find_licences(packages: Iterable[Package], rules: Rules, metadata: Any = installed_metadata) -> tuple[dict[str, str], list[str]]:
    """Return the licence of each package, and every complaint."""
    found: dict[str, str] = {}
    complaints: list[str] = []
    for package in packages:
        review = rules.reviewed.get(package.name)
        said = metadata(package.name)
        stated = None if said is None else stated_licence(said)
        if review is not None:
            found[package.name] = review.licence
            if stated is not None and stated != review.licence:
                complaints.append(f"{package.name}: its metadata say {stated}, and it was reviewed as {review.licence}")
        elif stated is None:
            where = "it is not installed here" if said is None else "its metadata do not say"
            complaints.append(f"{package.name}: unknown licence ({where}); look, and add it to {RULES.name} with the reason")
        elif not is_allowed(stated, rules.allowed):
            complaints.append(f"{package.name}: {stated} is not allowed; add it to {RULES.name} with the reason, or do without it")
        else:
            found[package.name] = stated
    names = {package.name for package in packages}
    complaints += [f"{name}: reviewed in {RULES.name}, and nobody needs it" for name in rules.reviewed if name not in names]
    return found, complaints


def licence_page(packages: Iterable[Package], licences: Mapping[str, str], rules: Rules) -> str:
    """Return the table as a page. It names no versions: those are in the bill of materials."""
    rows = [
        f"| {package.name} | {licences[package.name]} | {' '.join(_shown(who) for who in package.needed_by)} |\n"
        for package in packages
        if package.name in licences
    ]
    looked = [f"* {name}: {review.reason}.\n" for name, review in sorted(rules.reviewed.items())]
    return _HEAD + "".join(rows) + _TAIL + "".join(looked)


def _shown(who: str) -> str:
    return f"`{who}`" if who == CORE else f"`[{who}]`"


def main() -> int:
    """Write the page, and say what is wrong."""
    packages, rules = runtime_packages(), read_rules()
    licences, complaints = find_licences(packages, rules)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        return 1
    PAGE.write_text(licence_page(packages, licences, rules), encoding="utf-8")
    print(f"{len(licences)} licences, all allowed: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
