"""Environments with proctor and the named packages and their dependencies only.

They are made of links into the environment of the tests: no network, a tenth of a second, and a Python in them sees an installation like
any other. A package that the tests do not have is not in them either, so they never hold more than a reader has. `make pages-lean` tries
the same pages where everything was really installed.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from {module} import {function}
sys.argv[0] = "{name}"
sys.exit({function}())
"""


def list_distributions(requirements: Sequence[str]) -> dict[str, Distribution]:
    """The packages that an installer would bring for these requirements, proctor aside, as far as they are installed here."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name == PROJECT["name"]:
                waiting += map(Requirement, PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"])
                continue
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                continue
            needs = [Requirement(text) for text in found[name].requires or ()]
            waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return found


def list_extras(requirements: Sequence[str]) -> set[str]:
    """The extras of proctor that these requirements name, with those that they bring along."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        if wanted.name == PROJECT["name"]:
            waiting += [Requirement(text) for extra in wanted.extras - found for text in PROJECT["optional-dependencies"][extra]]
            found |= wanted.extras
    return found


def make_lean_environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Make an environment in a folder that is not there yet; returns its Python."""
    programs, site = folder / "bin", folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    programs.mkdir(parents=True)
    site.mkdir(parents=True)
    base = Path(sys.executable).resolve()
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n", encoding="utf-8")
    for name in ("python", "python3"):
        (programs / name).symlink_to(base)
    for found in list_distributions(requirements).values():
        _link_files(found, site)
        for point in found.entry_points:
            if point.group == "console_scripts":
                _write_script(programs, point.name, point.value)
    _link_proctor(site, programs)
    return programs / "python"


def _link_files(found: Distribution, site: Path) -> None:
    """Link every file of a package. Compiled files are linked by folder: compiling again would take seconds."""
    for file in found.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        source, target = Path(str(found.locate_file(file))), site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
        compiled = target.parent / "__pycache__"
        if target.parent != site and target.suffix == ".py" and not compiled.exists() and (source.parent / "__pycache__").exists():
            compiled.symlink_to(source.parent / "__pycache__")


def _link_proctor(site: Path, programs: Path) -> None:
    """Install the checkout as an editable package."""
    (site / "proctor.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    info = site / "proctor-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: proctor\nVersion: 0\n", encoding="utf-8")
    groups = {"console_scripts": PROJECT["scripts"], **PROJECT["entry-points"]}
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, value in PROJECT["scripts"].items():
        _write_script(programs, name, value)


def _write_script(programs: Path, name: str, value: str) -> None:
    module, _, function = value.partition(":")
    path = programs / name
    path.write_text(_SCRIPT.format(python=programs / "python", module=module, function=function, name=name), encoding="utf-8")
    path.chmod(0o755)
