"""Share links of runs: anyone with the link sees what it was made to show.

The token is random and shown once; the database has its SHA-256. A link shows one run without ids of other objects, and ends when it is
revoked or its run is deleted. Unknown and revoked links have the same response.

    scores     verdict, score and axes of the run and of each task
    criteria   also the result of each criterion with its reason
    evidence   also the evidence, field by field

For a `scored` run, whose details its agent must not see, a link shows scores only.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.keys import hash_token
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.runs.benchmark_runs import is_unlisted
from proctor.service.verification.runs.leaderboard import mean_axes, name_solver
from proctor.service.verification.runs.records import list_criterion_runs_of, list_task_runs_of, read_task_snapshot
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, TASK_RUN
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import Field, Shape, nested_field, one_of, read_fields, read_only, read_only_id
from proctor.service.verification.shared.resources import Paging, Records, Transaction, list_plain, writing
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import public_record

TOKEN_PREFIX = "vrl_shr_"
MOST_LINKS = 100
"""Links of one run."""
_TOKEN_LINK = "share_token"
"""The link from a share to the hash of its token."""
_VISIBILITY = Field(
    one_of("scores", "criteria", "evidence", exact=True),
    "what it shows: scores, criteria (also their results and reasons) or evidence (also the evidence)",
    default="scores",
    null=False,
)
SHARE = Resource(
    kind="run_share",
    prefix="shr",
    name="RunShare",
    what="link to a run",
    about="A link with which anyone can view a run.",
    tag="benchmark runs",
    fields={
        "benchmark_run_id": read_only_id("benchmark_run", "its run"),
        "visibility": _VISIBILITY,
        "suffix": read_only("string", "the last characters of its token"),
    },
    parent="benchmark_run_id",
)
_NEW_SHARE = Shape("NewRunShare", "What a link to a run shows.", {"visibility": _VISIBILITY})
_FRESH_SHARE = SHARE.whole.extend(
    "FreshRunShare",
    "A new link; its token is shown only once.",
    {
        "token": read_only("string", "anyone with it can view the run"),
        "page_path": read_only("string", "path of the page, below the address of the service"),
        "json_path": read_only("string", "path of the JSON"),
    },
)
_SHARED_CRITERION = Shape(
    "SharedCriterion",
    "The result of a criterion.",
    {
        "label": read_only("string", "title of the criterion", null=True),
        **{name: CRITERION_RUN.fields[name] for name in ("passed", "score", "outcome", "details")},
        "evidence": Field(CRITERION_RUN.fields["evidence"].kind, "the evidence, field by field", written=False, always=False),
    },
)
_TASK_FIELDS = ("name", "status", "verdict", "score", "outcome", "axes", "started_at", "completed_at")
_SHARED_TASK = Shape(
    "SharedTask",
    "The result of a task of a shared run.",
    {
        **{name: TASK_RUN.fields[name] for name in _TASK_FIELDS},
        "criteria": Field(nested_field(_SHARED_CRITERION).kind, "results of its criteria", null=False, written=False, always=False),
    },
)
_RUN_FIELDS = ("benchmark", "status", "verdict", "score", "outcome", "started_at", "completed_at")
SHARED_RUN = Resource(
    kind="benchmark_run",
    name="SharedRun",
    what="shared run",
    about="A run as its link shows it.",
    tag="shared runs",
    stamped=False,
    fields={
        "visibility": read_only("string", "what the link shows: scores, criteria or evidence"),
        "name": read_only("string", "public name of the solver, or the agent; null if it opted out", null=True),
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
async def create_share(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Create a link with which anyone can view a run; its token is shown only once."""
    visibility = read_fields(_NEW_SHARE.fields, request_body or {}, SHARE.called)["visibility"]
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    async with writing(hub, caller) as tx:
        run = await tx.require(RUN.kind, id, lock=True)
        if run["body"].get("scored") and visibility != "scores":
            raise Refusal("CONFLICT", "the run withholds details from its agent, which could follow the link; share scores only")
        await tx.refuse_more_children(SHARE.kind, id, MOST_LINKS, f"the run already has {MOST_LINKS} links; revoke one")
        body: dict[str, Json] = {"benchmark_run_id": id, "visibility": visibility, "suffix": token[-4:]}
        row = await tx.add(SHARE, body)
        await tx.link(row["id"], _TOKEN_LINK, hash_token(token))
    return {**SHARE.show(row), "token": token, "page_path": f"/ui/shared/{token}", "json_path": f"/shared/{token}"}


@Operation(RUN, "GET /benchmark-runs/{benchmark_run_id}/shares", gives=SHARE.summary, pages=True, tool="listShares")
async def list_shares(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> Records:
    """List the links to a run, without their tokens, newest first."""
    return await list_plain(hub, caller, SHARE, parent_id=id, **paging)


@Operation(RUN, "DELETE /benchmark-runs/{benchmark_run_id}/shares/{share_id}", tool="revokeShare")
async def revoke_share(hub: Hub, caller: Caller, id: str, share_id: str) -> None:
    """Revoke a link to a run."""
    async with writing(hub, caller) as tx:
        row = await tx.require(SHARE.kind, share_id, what=SHARE.called, lock=True)
        if row["parent_id"] != id:
            raise not_found(SHARE.called, share_id)
        await tx.remove(SHARE, [share_id])


@Operation(SHARED_RUN, "GET /shared/{token}", gives=_SHOWN, open=True)
async def get_shared_run(hub: Hub, token: str) -> dict[str, Json]:
    """Read a run by its link, without a key."""
    async with hub.database.reading() as connection:
        share = await public_record(connection, SHARE.kind, _TOKEN_LINK, hash_token(token))
        # Unknown and revoked links have the same message.
        unknown = Refusal("NOT_FOUND", "unknown or revoked link")
        if share is None:
            raise unknown
        tx = Transaction(connection, hub, Caller(organization_id=share["organization_id"]))
        run = await tx.find(RUN.kind, share["parent_id"])
        if run is None:
            raise unknown
        visibility = str(share["body"]["visibility"])
        tasks = await list_task_runs_of(tx, run["id"])
        whole = RUN.show(run)
        return {
            "visibility": visibility,
            "name": None if await is_unlisted(tx, run) else name_solver(run["body"]),
            **{name: whole[name] for name in _RUN_FIELDS},
            "axes": mean_axes(tasks),
            "tasks": [await _show_task(tx, task, visibility) for task in tasks],
        }


async def _show_task(tx: Transaction, task: Row, visibility: str) -> dict[str, Json]:
    whole = TASK_RUN.show(task)
    shown: dict[str, Json] = {name: whole[name] for name in _TASK_FIELDS}
    if visibility == "scores":
        return shown
    snapshot = await read_task_snapshot(tx, task["id"])
    labels = {entry.get("id"): entry.get("label") for entry in snapshot.get("criteria") or ()}
    names = ("passed", "score", "outcome", "details", *(("evidence",) if visibility == "evidence" else ()))
    criteria: list[Json] = []
    for row in await list_criterion_runs_of(tx, task["id"]):
        shown_criterion = CRITERION_RUN.show(row)
        criteria.append({"label": labels.get(shown_criterion["criterion_id"]), **{name: shown_criterion[name] for name in names}})
    return {**shown, "criteria": criteria}
