"""Caches the replies of the judges of projects in files in the workspace of the service.

Each project has its own cache, which is deleted with the project; old replies are deleted too. A file that cannot be deleted is logged.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Final

from proctor.actions.judging.judges import CACHE_FOLDER

PROJECTS_FOLDER: Final = "projects"
"""The folder in the workspace of the service that has one folder for each project."""
_LOG = logging.getLogger("proctor.serve")


def get_folder(home: Path, project_id: str) -> Path:
    """Return the folder of one project."""
    return home / PROJECTS_FOLDER / project_id


def delete_folder(home: Path, project_id: str) -> None:
    """Delete the folder of a project, whose id comes from the database."""
    folder = get_folder(home, project_id)
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        _LOG.warning("the judge's cache of a deleted project could not be deleted", extra={"project": project_id})


def delete_older(home: Path, before: float, project_id: str | None = None) -> int:
    """Delete replies written before a time, in Unix seconds, of one project or of all, and return their number."""
    deleted = failed = 0
    for path in (home / PROJECTS_FOLDER).glob(f"{project_id or '*'}/{CACHE_FOLDER}/**/*"):
        try:
            if not path.is_dir() and path.lstat().st_mtime < before:
                path.unlink()
                deleted += 1
        except FileNotFoundError:
            continue  # by another sweep, or with its project
        except OSError:
            failed += 1
    if failed:
        _LOG.warning("old replies of judges could not be deleted", extra={"count": failed})
    return deleted
