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
_TRIES = 3


def get_folder(home: Path, project_id: str) -> Path:
    """Return the folder of one project."""
    return home / PROJECTS_FOLDER / project_id


def delete_folder(home: Path, project_id: str) -> None:
    """Delete the folder of a project, whose id comes from the database."""
    folder = get_folder(home, project_id)
    trouble: OSError | None = None
    # A run that is just ending may still write.
    for _ in range(_TRIES):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            trouble = error
        if not os.path.lexists(folder):
            return
    _LOG.warning("the judge's cache of a deleted project could not be deleted", extra={"project": project_id, "error": str(trouble)})


def delete_older(home: Path, before: float, project_id: str | None = None) -> int:
    """Delete replies written before a time, in Unix seconds, of one project or of all, and return their number."""
    deleted = 0
    troubles: list[OSError] = []

    def collect(error: OSError) -> None:
        # A project whose judge was never called has no folder.
        if not isinstance(error, FileNotFoundError):
            troubles.append(error)

    for memory in _list_caches(home, troubles) if project_id is None else [get_folder(home, project_id) / CACHE_FOLDER]:
        for folder, _, names in os.walk(memory, onerror=collect):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if os.lstat(path).st_mtime < before:
                        os.unlink(path)
                        deleted += 1
                # Deleted by another sweep, or with its project.
                except FileNotFoundError:
                    continue
                except OSError as error:
                    troubles.append(error)
    if troubles:
        _LOG.warning("old replies of judges could not be deleted", extra={"count": len(troubles), "error": str(troubles[0])})
    return deleted


def _list_caches(home: Path, troubles: list[OSError]) -> list[Path]:
    try:
        return [get_folder(home, name) / CACHE_FOLDER for name in os.listdir(home / PROJECTS_FOLDER)]
    except FileNotFoundError:
        return []
    except OSError as error:
        troubles.append(error)
        return []
