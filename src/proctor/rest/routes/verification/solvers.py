"""`/solvers` and their keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body as BodyOf
from fastapi import Response
from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Name, Shown, Stamped, Written
from proctor.service.verification import solvers

router = routed("solvers")
Alias = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?$")]
About = Annotated[str | None, Field(max_length=2000)]


class Solver(Stamped):
    """An agent of an organization."""

    alias: str
    real_name: str | None
    agent_description: str | None
    agent_version: str | None
    contact_email: str | None


class NewSolver(Written):
    """What a solver is made of."""

    alias: Alias = Field(description="unique in the organization")
    real_name: Name | None = None
    agent_description: About = None
    agent_version: Name | None = None
    contact_email: str | None = None


class SolverChanges(Written):
    """What changes; the rest stays."""

    alias: Alias = ""
    real_name: Name | None = None
    agent_description: About = None
    agent_version: Name | None = None
    contact_email: str | None = None


class NewSolverKey(Written):
    """What a key is called."""

    name: Name | None = Field(None, description="left out: the alias of the solver")


class SolverKey(Shown):
    """A key of a solver, masked."""

    id: str
    name: str
    prefix: str
    suffix: str
    solver_id: str
    created_at: str
    createdAt: str
    last_used_at: str | None
    revoked_at: str | None


class FreshSolverKey(SolverKey):
    """A key of a solver, in full; this once."""

    key: str


@router.get("/solvers", response_model=PageOf[Solver])
async def list_solvers(hub: TheHub, caller: TheCaller, paging: ThePaging) -> object:
    """List solvers, newest first."""
    return await solvers.list_solvers(hub, caller, limit=paging.limit, cursor=paging.cursor)


@router.post("/solvers", response_model=Solver, status_code=201)
async def create_solver(hub: TheHub, caller: TheCaller, body: NewSolver) -> object:
    """Create a solver."""
    return await solvers.create_solver(hub, caller, given(body))


@router.get("/solvers/{solver_id}", response_model=Solver)
async def get_solver(hub: TheHub, caller: TheCaller, solver_id: str) -> object:
    """Read a solver."""
    return await solvers.get_solver(hub, caller, solver_id)


@router.patch("/solvers/{solver_id}", response_model=Solver)
async def update_solver(hub: TheHub, caller: TheCaller, solver_id: str, body: SolverChanges) -> object:
    """Change a solver."""
    return await solvers.update_solver(hub, caller, solver_id, given(body))


@router.delete("/solvers/{solver_id}", status_code=204)
async def delete_solver(hub: TheHub, caller: TheCaller, solver_id: str) -> Response:
    """Delete a solver and revoke its keys; its runs stay."""
    await solvers.delete_solver(hub, caller, solver_id)
    return Response(status_code=204)


@router.get("/solvers/{solver_id}/api-keys", response_model=PageOf[SolverKey])
async def list_solver_keys(hub: TheHub, caller: TheCaller, solver_id: str, paging: ThePaging) -> object:
    """List the keys of a solver, masked, newest first."""
    return await solvers.list_solver_keys(hub, caller, solver_id, limit=paging.limit, cursor=paging.cursor)


@router.post("/solvers/{solver_id}/api-keys", response_model=FreshSolverKey, status_code=201)
async def create_solver_key(
    hub: TheHub, caller: TheCaller, solver_id: str, body: Annotated[NewSolverKey | None, BodyOf()] = None
) -> object:
    """Make a key of a solver; `key` is shown this once."""
    return await solvers.create_solver_key(hub, caller, solver_id, given(body) if body is not None else None)


@router.delete("/solvers/{solver_id}/api-keys/{key_id}", response_model=SolverKey)
async def revoke_solver_key(hub: TheHub, caller: TheCaller, solver_id: str, key_id: str) -> object:
    """Revoke a key of a solver."""
    return await solvers.revoke_solver_key(hub, caller, solver_id, key_id)
