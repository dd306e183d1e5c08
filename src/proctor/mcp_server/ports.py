"""What the tools for runs need: somebody who keeps runs. Over HTTP that is the service, on a user's machine the workspace."""

from __future__ import annotations

from typing import Protocol

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A suite to be driven."""

    document: Json = None
    """The suite: text of any dialect, or JSON."""
    path: str | None = None
    """Or where it lies, on the caller's own machine."""
    case_ids: tuple[str, ...] = ()
    """Or cases that the service has."""
    project_id: str | None = None
    dialect: str | None = None
    target: Json = None
    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    select: str | None = None
    note: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are listed."""

    project_id: str | None = None
    name: str | None = None
    tag: str | None = None


class Runs(Protocol):
    """Whoever keeps runs. Records are snake_case; the door turns the names."""

    async def start(self, caller: Caller, request: RunRequest, wait_s: float) -> dict[str, Json]:
        """Start a run, and wait a while for its end: as it is then."""
        ...

    async def list(self, caller: Caller, wanted: RunFilter, *, limit: int | None, cursor: str | None) -> dict[str, Json]:
        """A page of runs, newest first."""
        ...

    async def get(self, caller: Caller, id: str, *, wait_s: float = 0.0) -> dict[str, Json]:
        """One run: `id`, `status`, and `result` (`proctor.result/1`) as far as it is."""
        ...

    async def compare(self, caller: Caller, base: str | None, candidate: str | None) -> dict[str, Json]:
        """Two runs side by side, with what was chosen where nothing was said."""
        ...

    async def page(self, caller: Caller, id: str) -> str:
        """One run as a page of Markdown."""
        ...
