"""The data source of screens: `service_source.py` reads from the service, `folder_source.py` from stored runs of a folder.

Lists are pages as in REST: `data` and `_meta` with cursors. Missing or forbidden objects raise `Refusal`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from starlette.requests import Request

from proctor.pages.places import Record

if TYPE_CHECKING:
    from proctor.pages.folder_source import FolderSource
    from proctor.pages.service_source import ServiceSource

__all__ = ["MakeSource", "Record", "Source"]
Source: TypeAlias = "ServiceSource | FolderSource"
"""Projects, runs and results visible to one caller. In a folder (`is_local`) there is no login and one project, and nothing is written."""
MakeSource = Callable[[Request], "Source | None"]
"""Returns the source for a request; None without a login."""
