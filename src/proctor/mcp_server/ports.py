"""The interface of runs: the service over HTTP, the workspace on a user's machine."""

from __future__ import annotations

from typing import Protocol

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A suite to run."""

    document: Json = None
    """The suite: text of any dialect, or JSON."""
    path: str | None = None
    """Or its path on the caller's machine."""
    case_ids: tuple[str, ...] = ()
    """Or cases of the service."""
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
    """A filter of runs."""

    project_id: str | None = None
    name: str | None = None
    tag: str | None = None


class Runs(Protocol):
    """A source of runs. Records are snake_case; the server converts the names."""

    async def start(self, caller: Caller, request: RunRequest, wait_s: float) -> dict[str, Json]:
        """Start a run, wait a while for its end, and return its state."""
        ...

    async def list(self, caller: Caller, wanted: RunFilter, *, limit: int | None, cursor: str | None) -> dict[str, Json]:
        """A page of runs, newest first."""
        ...

    async def get(self, caller: Caller, id: str, *, wait_s: float = 0.0) -> dict[str, Json]:
        """One run: `id`, `status`, and `result` (`proctor.result/1`) so far."""
        ...

    async def compare(self, caller: Caller, base: str | None, candidate: str | None) -> dict[str, Json]:
        """Two runs compared, with defaults resolved."""
        ...

    async def page(self, caller: Caller, id: str) -> str:
        """One run as a page of Markdown."""
        ...
