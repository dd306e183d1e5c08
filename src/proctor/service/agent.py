"""The agent of a trace."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A sender of traces: its project, how it is found, and how its bodies are read."""

    id: str
    organization_id: str
    project_id: str
    kind: str
    service_name: str | None
    external_ref: str | None
    paused: bool
    settings: dict[str, Json]
