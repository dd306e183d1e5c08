"""The settings of a suite: its own, over those of the workspace file next to the results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from proctor.actions.workspace.run_history import WORKSPACE_FILES, get_workspace_folder
from proctor.errors import InputError
from proctor.formats.workspace_file import Workspace, build_workspace, read_workspace, read_workspace_settings
from proctor.model.case import Suite
from proctor.sources.pyproject import PYPROJECT, has_workspace_table, read_workspace_table
from proctor.sources.texts import read_suite_text

if TYPE_CHECKING:
    from proctor.targets.shared.wire import MakeTransport


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """How messages refer to variables, how a user sets one, and how connections are made."""

    variable: str = "the environment variable {name}"
    remedy: str = "export {name}={value}"
    login: str = "give its token: --oauth-token {server}=TOKEN"
    model_transport: MakeTransport | None = None
    server_transport: MakeTransport | None = None
    """How targets and MCP servers are reached."""
    dotenv: bool = False
    """Whether the `.env` files of an MCPLab workspace count."""


COMMAND_LINE: Final = Surroundings(dotenv=True)


def workspace_for(suite: Suite, home: Path) -> Workspace:
    """Return the merged settings of the suite and the workspace of `home`; the suite wins. Raises `InputError`."""
    return own_workspace(suite).lay_over(workspace_file(home))


def own_workspace(suite: Suite) -> Workspace:
    """Return the settings in the suite itself; problems have line numbers if its file still exists. Raises `InputError`."""
    path = Path(suite.path) if suite.path is not None else None

    def text() -> str:
        try:
            return read_suite_text(path) if path is not None and path.is_file() else ""
        except InputError:
            return ""

    return build_workspace(suite.settings, file=suite.path, text=text)


def workspace_file(home: Path) -> Workspace:
    """The workspace file of `home`, else the table in `pyproject.toml`; an empty workspace if there is neither."""
    folder = get_workspace_folder(home)
    for name in WORKSPACE_FILES:
        path = folder / name
        if path.is_file():
            return read_workspace(read_suite_text(path), file=str(path))
    table = read_workspace_table(folder)
    return Workspace() if table is None else read_workspace_settings(table, file=str(folder / PYPROJECT))


def describe_passed_over(home: Path) -> str | None:
    """Return a remark about settings that another file overrides, or None."""
    folder = get_workspace_folder(home)
    passed_over = next((name for name in WORKSPACE_FILES if (folder / name).is_file()), None)
    if passed_over is None or not has_workspace_table(folder):
        return None
    return f"{folder / passed_over} counts; the table [tool.proctor] in {PYPROJECT} next to it is ignored"
