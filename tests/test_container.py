"""The container files, as far as they can be looked at without an engine: what the package is built from is there to build it."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def needed() -> set[str]:
    """The files and folders at the top that a wheel is made of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"], *project["project"]["license-files"]]
    return {"pyproject.toml", *(source.partition("/")[0] for source in sources)}


def test_everything_the_package_is_built_from_is_copied_into_the_image() -> None:
    build = (ROOT / "Dockerfile").read_text().split("\nFROM ")[1]
    copied = {word for line in re.findall(r"^COPY (?!--)(.+)$", build, re.MULTILINE) for word in line.split()[:-1]}
    assert needed() <= copied


def test_everything_that_is_copied_is_sent_to_the_engine() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    kept = [line[1:] for line in lines if line.startswith("!")]
    for name in needed():
        assert any(fnmatch.fnmatch(name, pattern) for pattern in kept), name
