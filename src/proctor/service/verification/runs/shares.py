"""Links to a run: whoever has one may look at the run without a key, and sees what the link was made to show and nothing else.

The token is random and shown once; the database has its SHA-256, as of keys. A link opens one run only. It shows no id by which something
else could be asked for, and it ends when it is revoked or its run is deleted. What was never there and what was revoked is answered alike.

    scores     verdict, score and axes of the run and of each task
    criteria   also what each criterion came to, in a sentence
    evidence   also what was found, field by field

Of a run whose details are withheld from its agent (`scored`) a link shows scores only: the agent could follow it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Unpack

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.keys import hash_token
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.runs.benchmark_runs import is_unlisted
from proctor.service.verification.runs.leaderboard import mean_axes, name_solver
from proctor.service.verification.runs.records import list_criterion_runs_of, list_task_runs_of, read_task_snapshot
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, TASK_RUN
from proctor.service.verification.shared import resources
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import Field, Shape, nested_field, one_of, read_fields, read_only, read_only_id
from proctor.service.verification.shared.resources import Paging, authorize, require_record
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import count_children, find_record, link, public_record

TOKEN_PREFIX = "vrl_shr_"
MOST_LINKS = 100
"""Links of one run."""
_TOKEN_LINK = "share_token"
"""The link from a share to the hash of its token."""
_VISIBILITY = Field(
    one_of("scores", "criteria", "evidence", exact=True),
    "what it shows: scores, criteria (also what each came to, in a sentence) or evidence (also what was found)",
    default="scores",
    null=False,
)
SHARE = Resource(
    kind="run_share",
    prefix="shr",
    name="RunShare",
    what="link to a run",
    about="A link by which anybody may look at a run.",
    tag="benchmark runs",
    fields={
        "benchmark_run_id": read_only_id("benchmark_run", "the run that it shows"),
        "visibility": _VISIBILITY,
        "suffix": read_only("string", "the last characters of its token"),
    },
    parent="benchmark_run_id",
)
_NEW_SHARE = Shape("NewRunShare", "What a link to a run shows.", {"visibility": _VISIBILITY})
_FRESH_SHARE = SHARE.whole.extend(
    "FreshRunShare",
    "A link that was just made; its token is shown this once.",
    {
        "token": read_only("string", "whoever has it sees the run"),
        "page_path": read_only("string", "where people look at it, below the address of the service"),
        "json_path": read_only("string", "where programs read it"),
    },
)
_SHARED_CRITERION = Shape(
    "SharedCriterion",
    "What a criterion came to.",
    {
        "label": read_only("string", "what was to be", null=True),
        **{name: CRITERION_RUN.fields[name] for name in ("passed", "score", "outcome", "details")},
        "evidence": Field(CRITERION_RUN.fields["evidence"].kind, "what was found, field by field", written=False, always=False),
    },
)
_TASK_FIELDS = ("name", "status", "verdict", "score", "outcome", "axes", "started_at", "completed_at")
_SHARED_TASK = Shape(
    "SharedTask",
    "How a task of a shared run went.",
    {
        **{name: TASK_RUN.fields[name] for name in _TASK_FIELDS},
        "criteria": Field(nested_field(_SHARED_CRITERION).kind, "what each criterion came to", null=False, written=False, always=False),
    },
)
_RUN_FIELDS = ("benchmark", "status", "verdict", "score", "outcome", "started_at", "completed_at")
SHARED_RUN = Resource(
    kind="benchmark_run",
    name="SharedRun",
    what="shared run",
    about="A run as a link to it shows it, to anybody.",
    tag="shared runs",
    stamped=False,
    fields={
        "visibility": read_only("string", "what the link shows: scores, criteria or evidence"),
        "name": read_only("string", "what the solver is called in public, else the agent; null where it opted out", null=True),
        **{name: RUN.fields[name] for name in _RUN_FIELDS},
        "axes": read_only("object", "score and weight by axis"),
        "tasks": nested_field(_SHARED_TASK, "one per task"),
    },
)
_SHOWN = Shape(SHARED_RUN.name, SHARED_RUN.about, SHARED_RUN.fields)


@Operation(
    RUN,
    "POST /benchmark-runs/{benchmark_run_id}/shares",
    takes=_NEW_SHARE,
    takes_optional=True,
    gives=_FRESH_SHARE,
    creates=True,
    tool="share",
)
async def create_share(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Make a link by which anybody may look at a run; its token is shown this once."""
    authorize(caller)
    visibility = read_fields(_NEW_SHARE.fields, given or {}, SHARE.called)["visibility"]
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    async with hub.database.writing() as connection:
        run = await require_record(connection, caller, RUN.kind, id, lock=True)
        if run["body"].get("scored") and visibility != "scores":
            raise Refusal("CONFLICT", "the run withholds details from its agent, who could follow the link; share its scores")
        if await count_children(connection, caller.organization_id, SHARE.kind, id) >= MOST_LINKS:
            raise Refusal("CONFLICT", f"the run has {MOST_LINKS} links already; revoke one of them")
        body: dict[str, Json] = {"benchmark_run_id": id, "visibility": visibility, "suffix": token[-4:]}
        row = await resources.keep_record(connection, hub, caller, SHARE, body)
        await link(connection, row["id"], _TOKEN_LINK, hash_token(token), hub.now())
    return {**SHARE.show(row), "token": token, "page_path": f"/ui/shared/{token}", "json_path": f"/shared/{token}"}


@Operation(RUN, "GET /benchmark-runs/{benchmark_run_id}/shares", gives=SHARE.summary, pages=True, tool="listShares")
async def list_shares(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> dict[str, Json]:
    """List the links to a run, without their tokens, newest first."""
    return await resources.list_plain(hub, caller, SHARE, parent_id=id, **paging)


@Operation(RUN, "DELETE /benchmark-runs/{benchmark_run_id}/shares/{share_id}", tool="revokeShare")
async def revoke_share(hub: Hub, caller: Caller, id: str, share_id: str) -> None:
    """Revoke a link to a run; whoever has it sees nothing any more."""
    authorize(caller)
    async with hub.database.writing() as connection:
        row = await require_record(connection, caller, SHARE.kind, share_id, what=SHARE.called, lock=True)
        if row["parent_id"] != id:
            raise not_found(SHARE.called, share_id)
        await resources.remove_records(connection, hub, caller, SHARE, [share_id])


@Operation(SHARED_RUN, "GET /shared/{token}", gives=_SHOWN, open=True)
async def get_shared_run(hub: Hub, token: str) -> dict[str, Json]:
    """Read a run by a link to it, without a key."""
    async with hub.database.reading() as connection:
        share = await public_record(connection, SHARE.kind, _TOKEN_LINK, hash_token(token))
        run = None if share is None else await find_record(connection, share["organization_id"], RUN.kind, share["parent_id"])
        if share is None or run is None:
            # The token is not repeated: what was never there and what is there no more reads the same.
            raise Refusal("NOT_FOUND", "there is no such link, or it was revoked")
        return await _show_run(connection, run, str(share["body"]["visibility"]))


async def _show_run(connection: AsyncConnection, run: Row, visibility: str) -> dict[str, Json]:
    tasks = await list_task_runs_of(connection, run["organization_id"], run["id"])
    whole = RUN.show(run)
    return {
        "visibility": visibility,
        "name": None if await is_unlisted(connection, run) else name_solver(run["body"]),
        **{name: whole[name] for name in _RUN_FIELDS},
        "axes": mean_axes(tasks),
        "tasks": [await _show_task(connection, task, visibility) for task in tasks],
    }


async def _show_task(connection: AsyncConnection, task: Row, visibility: str) -> dict[str, Json]:
    whole = TASK_RUN.show(task)
    shown: dict[str, Json] = {name: whole[name] for name in _TASK_FIELDS}
    if visibility == "scores":
        return shown
    snapshot = await read_task_snapshot(connection, task["organization_id"], task["id"])
    labels = {entry.get("id"): entry.get("label") for entry in snapshot.get("criteria") or ()}
    told = ("passed", "score", "outcome", "details", *(("evidence",) if visibility == "evidence" else ()))
    criteria: list[Json] = []
    for row in await list_criterion_runs_of(connection, task["organization_id"], task["id"]):
        found = CRITERION_RUN.show(row)
        criteria.append({"label": labels.get(found["criterion_id"]), **{name: found[name] for name in told}})
    return {**shown, "criteria": criteria}
