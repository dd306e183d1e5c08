"""Finds other installed distributions that provide the import name `proctor`: their files and ours overwrite each other."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from proctor.errors import DISTRIBUTION, install_command


def warn_of_others() -> None:
    """Print a warning if another distribution also provides `proctor`."""
    for name in find_others(sys.path):
        print(
            f"warning: the package {name!r} also installs a module called 'proctor', and one overwrites the other; "
            f"run: pip uninstall {name} {DISTRIBUTION} && {install_command()}",
            file=sys.stderr,
        )


def find_others(folders: Iterable[str]) -> list[str]:
    """Return the other distributions in these folders that provide `proctor`."""
    distributions: set[str] = set()
    for folder in map(Path, folders):
        infos = folder.glob("*.dist-info") if (folder / "proctor").is_dir() else ()
        distributions.update(name for info in infos if (name := _read_name(info)) != DISTRIBUTION and _provides_proctor(info, name))
    return sorted(distributions)


def _read_name(info: Path) -> str:
    return info.stem.partition("-")[0].replace("_", "-").lower()


def _provides_proctor(info: Path, name: str) -> bool:
    try:
        # Old tools list the modules; a list of all files is long, and read only if the name suggests it.
        if (info / "top_level.txt").is_file():
            return "proctor" in (info / "top_level.txt").read_text(encoding="utf-8").split()
        return "proctor" in name and "proctor/__init__.py," in (info / "RECORD").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
