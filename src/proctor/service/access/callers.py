"""Callers: the access of a key, for REST and MCP.

A key belongs to one organization. Kinds: `organization` (everything in the organization), `project` (sends traces and reads its project;
with `agent_ids` only those agents), `solver` (starts benchmark runs), `run` (one benchmark run), `sandbox` (one simulated system). The
local user of a service without organization keys has the access of the default organization.
"""

from __future__ import annotations

from typing import Literal

import msgspec

CallerKind = Literal["organization", "project", "solver", "run", "sandbox"]
DEFAULT_ORGANIZATION = "org_default"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """One authenticated caller."""

    organization_id: str
    kind: CallerKind = "organization"
    key_id: str | None = None
    """None: the local user of an open service."""
    project_id: str | None = None
    agent_ids: tuple[str, ...] | None = None
    solver_id: str | None = None
    benchmark_run_id: str | None = None
    sandbox_id: str | None = None

    @property
    def actor(self) -> str:
        """The name of the caller in the audit log."""
        return self.key_id or "local"


LOCAL = Caller(organization_id=DEFAULT_ORGANIZATION)
"""The local user of a service without keys."""
