"""The settings that hold for a suite: its own, over those of the workspace file beside the results."""

from __future__ import annotations

from pathlib import Path

from proctor.actions.history import WORKSPACE_FILES
from proctor.formats.workspace import Workspace, read_workspace, workspace_of
from proctor.model.case import Suite
from proctor.sources.texts import read_suite_text


def workspace_for(suite: Suite, home: Path) -> Workspace:
    """What the suite and the workspace of `home` say together; the suite wins. Raises `InputError`."""
    return workspace_of(suite.settings, file=suite.path).over(workspace_file(home))


def workspace_file(home: Path) -> Workspace:
    """The workspace file beside `home`; an empty workspace where there is none."""
    for name in WORKSPACE_FILES:
        path = home.parent / name
        if path.is_file():
            return read_workspace(read_suite_text(path), file=str(path))
    return Workspace()
