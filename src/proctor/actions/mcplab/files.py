"""Finds a workspace and the files that a run needs: its variables, and attachments of scenarios.

The path of an attachment is relative to the bundle root. A path that leaves it, by `..`, as an
absolute path or through a symbolic link, is rejected: a suite may be untrusted, and attachments are sent to a model.
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
"""The maximum bytes of one file, the limit of providers."""


def find_suite_root(suite: Suite) -> Path:
    """Return the bundle root of a suite: the folder that was loaded, else that of its file; of several configs, the first decides."""
    if suite.path is None:
        return Path.cwd()
    path = Path(suite.path)
    if suite.settings.get("configs"):
        path /= suite.settings["configs"][0]["file"] or ""
    return path if path.is_dir() else find_suite_bundle(path)


def list_configs(suite: Suite) -> list[Suite]:
    """Return the configs an MCPLab suite was read from: those with a case in it, else all; a single config is its own."""
    return [config.suite for config in configs_of(suite) or configs_of(suite, all_of_them=True)]


def list_workspace_files(suite: Suite) -> list[Path]:
    """Return the files of one config: agents, servers, scenarios, the settings of the workspace and its variables."""
    root = find_suite_root(suite)
    return list_bundle_files(root) + list_variable_files(root)


def list_bundle_files(root: Path) -> list[Path]:
    """The files of a workspace besides its configs: agents, servers, scenarios and its settings."""
    scenarios = [file for name in SCENARIO_FOLDERS if (root / name).is_dir() for file in sorted((root / name).iterdir())]
    files = (root / SERVERS_FILE, root / AGENTS_FILE, root / SETTINGS_FILE, *scenarios)
    return [file for file in files if file.is_file()]


def list_variable_files(root: Path) -> list[Path]:
    """The `.env` files of a workspace: of the working directory, as in MCPLab, of its root and of the folder above."""
    above = (root.parent,) if is_workspace(root) else ()
    return [folder / DOTENV_FILE for folder in (Path.cwd(), root, *above) if (folder / DOTENV_FILE).is_file()]


def variables_of(environment: Mapping[str, str], root: Path, may_read: Callable[[Path], bool]) -> dict[str, str]:
    """The environment with those `.env` files of a workspace that may be read."""
    return with_dotenv(environment, [file for file in list_variable_files(root) if may_read(file)])


def load_attachments(case: Case, root: Path, problems: list[Problem], *, scenario: str) -> list[dict[str, Json]]:
    """The attachments of a case with their content; unreadable ones are added to `problems`, under the name of the scenario."""
    attachments: list[dict[str, Json]] = []
    for each in case.settings.get("attachments") or ():
        if not each.get("path") or each.get("data"):
            attachments.append(dict(each))
            continue
        try:
            content = _read(each["path"], root)
        except InputError as error:
            problems.append(Problem(message=f"scenario {scenario!r}: {error}", origin=case.origin, code="bad_attachment"))
            continue
        data = base64.b64encode(content).decode()
        members = {key: value for key, value in each.items() if key != "path"}
        attachments.append({**members, "data": data, "name": each.get("name") or PurePosixPath(each["path"]).name})
    return attachments


def _read(path_text: str, root: Path) -> bytes:
    label = f"the attachment {show(path_text, 80)}"
    # Windows also separates by backslashes: `..\x` leaves the folder there.
    path = PurePosixPath(path_text.replace("\\", "/"))
    try:
        # Links are followed here, so none of them leads out.
        place = (root / path).resolve()
        if not place.is_relative_to(root.resolve()):
            raise InputError(f"{label} is outside the workspace {str(root)!r}")
        if not place.is_file():
            raise InputError(f"{label} is no file below {str(root)!r}")
        with place.open("rb") as file:
            # Reading one byte more than allowed detects a file that is too large, even if it grows.
            content = file.read(LARGEST + 1)
    except (OSError, RuntimeError, ValueError) as error:
        # Before Python 3.13, circular links raise `RuntimeError`; a NUL in the path is a `ValueError`.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be resolved"
        raise InputError(f"{label} cannot be read below {str(root)!r}: {reason}") from None
    if len(content) > LARGEST:
        raise InputError(f"{label} is larger than {LARGEST // 1_000_000} MB")
    return content
