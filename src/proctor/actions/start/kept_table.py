"""Keeps the settings of a project that has them in `pyproject.toml`: a `proctor.yaml` beside the table `[tool.proctor]` would hide it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from proctor.actions.start.starters import Starter
from proctor.actions.workspace.run_history import WORKSPACE_FILES
from proctor.model.evidence import Json
from proctor.sources.pyproject import PYPROJECT, read_workspace_table

WORKSPACE_FILE = "proctor.yaml"
SUITE_FILE = "suite.yaml"


def keep_table(folder: Path, starter: Starter) -> Starter:
    """Return the files without a workspace file where the project has the table; what the table lacks is told. Raises `InputError`."""
    if WORKSPACE_FILE not in starter.files or any((folder / name).exists() for name in WORKSPACE_FILES):
        return starter
    table = read_workspace_table(folder)
    if table is None:
        return starter
    kept = f"kept the table [tool.proctor] in {PYPROJECT} as it is, and wrote no {WORKSPACE_FILE}, which would hide it"
    targets = table.get("targets")
    if not starter.workspace:
        files = {name: text for name, text in starter.files.items() if name != WORKSPACE_FILE}
        return msgspec.structs.replace(starter, files=files, remarks=(*starter.remarks, kept))
    if isinstance(targets, dict) and targets:
        name = table.get("default_target") or next(iter(targets))
        chosen = "" if "default_target" in table or len(targets) == 1 else f" --target {name}"
        files = {SUITE_FILE: starter.files[SUITE_FILE]}
        return msgspec.structs.replace(
            starter, files=files, next=f"proctor run {SUITE_FILE}{chosen}", remarks=(f"{kept}: the agent is its target {name!r}",)
        )
    files = {name: text for name, text in starter.files.items() if name != WORKSPACE_FILE}
    lines = "\n  ".join(write_table(starter.workspace))
    return msgspec.structs.replace(
        starter, files=files, remarks=(*starter.remarks, f"{kept}; add the agent to it before you run:\n  {lines}")
    )


def write_table(workspace: dict[str, Json]) -> list[str]:
    """Return settings of a workspace as lines of TOML below `[tool.proctor]`."""
    plain = [f"{key} = {_write_value(value)}" for key, value in workspace.items() if not isinstance(value, dict)]
    lines = ["[tool.proctor]", *plain] if plain else []
    for key, value in workspace.items():
        for name, settings in value.items() if isinstance(value, dict) else ():
            lines += [f"[tool.proctor.{key}.{name}]", *(f"{one} = {_write_value(given)}" for one, given in settings.items())]
    return lines


def _write_value(value: Json) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_write_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_value, value)) + "]"
    # A text, a number and a truth value are written alike in both languages.
    return json.dumps(value)
