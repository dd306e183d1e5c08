"""Finds a workspace and the files of it that a run needs: its variables, and attachments of scenarios.

The path of an attachment is relative to the bundle root. One that leads out of it, by `..`, by being absolute or over a symbolic link, is
refused: a suite may be anybody's, and what it attaches is sent to a model.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from proctor.actions.mcplab.plan import configs_of
from proctor.errors import InputError
from proctor.formats.mcplab.library import AGENTS_FILE, SCENARIO_FOLDERS, SERVERS_FILE
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.show import show
from proctor.sources.dotenv import DOTENV_FILE, with_dotenv
from proctor.sources.workspaces import find_suite_bundle, is_workspace

SETTINGS_FILE: Final = ".mcplab-app-settings.yaml"
LARGEST: Final = 20_000_000
"""Bytes of one file; providers take no more."""


def root_of(suite: Suite) -> Path:
    """The bundle root of a suite: the workspace folder itself, else what belongs to its file; of several configs that of the first."""
    if suite.path is None:
        return Path.cwd()
    path = Path(suite.path)
    if suite.settings.get("configs"):
        path /= suite.settings["configs"][0]["file"] or ""
    return path if path.is_dir() else find_suite_bundle(path)


def list_configs(suite: Suite) -> list[Suite]:
    """The configs an MCPLab suite was read from: those that have a case in it, else all; of one config itself."""
    return [config.suite for config in configs_of(suite) or configs_of(suite, all_of_them=True)]


def list_workspace_files(suite: Suite) -> list[Path]:
    """The files that one config brings with it: agents, servers, scenarios, the settings of the workspace and its variables."""
    root = root_of(suite)
    return list_bundle_files(root) + list_variable_files(root)


def list_bundle_files(root: Path) -> list[Path]:
    """The files of a workspace besides its configs: agents, servers, scenarios and its settings."""
    scenarios = [file for name in SCENARIO_FOLDERS if (root / name).is_dir() for file in sorted((root / name).iterdir())]
    named = (root / SERVERS_FILE, root / AGENTS_FILE, root / SETTINGS_FILE, *scenarios)
    return [file for file in named if file.is_file()]


def list_variable_files(root: Path) -> list[Path]:
    """The `.env` files of a workspace: of the working directory, as in MCPLab, of its root and of the folder above."""
    above = (root.parent,) if is_workspace(root) else ()
    return [folder / DOTENV_FILE for folder in (Path.cwd(), root, *above) if (folder / DOTENV_FILE).is_file()]


def variables_of(environment: Mapping[str, str], root: Path, may_read: Callable[[Path], bool]) -> dict[str, str]:
    """The environment with those `.env` files of a workspace that may be read."""
    return with_dotenv(environment, [file for file in list_variable_files(root) if may_read(file)])


def load_attachments(case: Case, root: Path, problems: list[Problem], *, scenario: str) -> list[dict[str, Json]]:
    """The attachments of a case with their content; what cannot be read is added to `problems`, under the name of its scenario."""
    found: list[dict[str, Json]] = []
    for each in case.settings.get("attachments") or ():
        if not each.get("path") or each.get("data"):
            found.append(dict(each))
            continue
        try:
            content = _read(each["path"], root)
        except InputError as error:
            problems.append(Problem(message=f"scenario {scenario!r}: {error}", origin=case.origin, code="bad_attachment"))
            continue
        data = base64.b64encode(content).decode()
        members = {key: value for key, value in each.items() if key != "path"}
        found.append({**members, "data": data, "name": each.get("name") or PurePosixPath(each["path"]).name})
    return found


def _read(given: str, root: Path) -> bytes:
    named = f"the attachment {show(given, 80)}"
    # Windows separates by backslashes as well: `..\x` leads out of the folder there.
    written = PurePosixPath(given.replace("\\", "/"))
    if "\0" in given or ".." in written.parts or written.is_absolute() or Path(given).is_absolute():
        raise InputError(f"{named} is outside the workspace: expected a path below {str(root)!r}, without '..'")
    try:
        place = (root / written).resolve(strict=True)
        if not place.is_relative_to(root.resolve()):
            raise InputError(f"{named} leads out of the workspace {str(root)!r} over a symbolic link")
        if not place.is_file():
            raise InputError(f"{named} is no file")
        with place.open("rb") as file:
            # One byte more than allowed shows that a file is too large, also if it grows.
            content = file.read(LARGEST + 1)
    except (OSError, RuntimeError) as error:
        # Before Python 3.13 links that lead in a circle are a `RuntimeError`.
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be resolved"
        raise InputError(f"{named} cannot be read below {str(root)!r}: {why}") from None
    if len(content) > LARGEST:
        raise InputError(f"{named} is larger than {LARGEST // 1_000_000} MB")
    return content
