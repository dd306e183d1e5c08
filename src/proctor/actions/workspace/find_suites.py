"""Finds the suites of a folder where none is named: a project holds many YAML files, and few of them are suites.

Taken are the files beside each other that say of themselves what they are: `suite.yaml`, `NAME.proctor.yaml` (as pytest collects them), and
every YAML file with a line `proctor: 1`; and the folder `suites`. They are read whole afterwards, so that a broken one is an error.
"""

from __future__ import annotations

import re
from pathlib import Path

from proctor.actions.workspace.suites import LIBRARY_NAMES
from proctor.errors import InputError
from proctor.sources.texts import read_suite_text

SUITES_FOLDER = "suites"
_YAML = (".yaml", ".yml")
_NAMED = re.compile(r"(?:suite|.+\.proctor)\.(?:yaml|yml|json)")
_NATIVE = re.compile(r"^proctor:[ \t]*1\b", re.MULTILINE)
_MOST_BYTES = 4_000_000
"""A larger YAML file is no suite that somebody forgot to name."""


def find_suites(folder: Path | None = None, *, target: str | None = None) -> list[Path]:
    """Return the suites of the current folder. Raises `InputError` with the next step where there are none."""
    place = folder or Path()
    files = sorted(path for path in place.iterdir() if path.is_file())
    found = [path for path in files if path.name not in LIBRARY_NAMES and (_NAMED.fullmatch(path.name) or _is_native(path))]
    if (place / SUITES_FOLDER).is_dir():
        found.append(place / SUITES_FOLDER)
    if not found:
        flag = f' --target "{target}"' if target is not None else ""
        raise InputError(
            f"no suite in {str(place.resolve())!r}: name one, or write a first one:\n"
            f"  proctor init{flag}\n"
            f'  proctor try "MESSAGE"{flag} --save    sends one message and makes a case of it'
        )
    return found


def _is_native(path: Path) -> bool:
    if path.suffix.lower() not in _YAML or path.stat().st_size > _MOST_BYTES:
        return False
    try:
        return _NATIVE.search(read_suite_text(path)) is not None
    except InputError:  # no text: whatever it is, it does not say that it is a suite
        return False
