"""The API of the first generation: evals, eval runs, and runs with their older states.

An eval is a criterion whose assertion is one text: English for a judge, or a typed assertion as JSON. Responses show every assertion as
text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Unpack, cast

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification.authoring.criteria import CRITERION, MOST_CRITERIA, check_criterion
from proctor.service.verification.runs import benchmark_runs
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN
from proctor.service.verification.runs.task_runs import get_criterion_run, list_criterion_runs
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import LONGEST_TEXT, Field, Kind, read_only, read_only_id, text
from proctor.service.verification.shared.resources import Paging, Records, Rules, Transaction, declare_standard
from proctor.store.sql.compressed_json import from_json, to_json
from proctor.store.sql.pages import Row


def _read_sentence(value: Json) -> Json:
    """Return English text, or the typed assertion of a JSON text."""
    sentence: str = text(LONGEST_TEXT * 10).read(value)
    if not sentence.lstrip().startswith("{"):
        return sentence
    try:
        return from_json(sentence)
    except Exception:
        raise ValueError("starts like JSON, but is not valid") from None


EVAL = Resource(
    kind="criterion",
    what="eval",
    name="Eval",
    about="A claim about the state after a task, as a text.",
    tag="legacy",
    tool=ToolWords(
        "evals",
        "Evals (legacy)",
        "The generation before `criteria`: one text per eval. A judge decides English; a typed assertion as JSON is "
        "decided without one. Prefer `criteria`; both are the same records.",
    ),
    fields={
        "task_id": CRITERION.fields["task_id"],
        "label": dataclasses.replace(CRITERION.fields["label"], also=None),
        "assert": Field(
            Kind({"type": "string", "minLength": 1}, _read_sentence),
            "an English sentence about what can be observed, or a typed assertion as JSON text",
            required=True,
            null=False,
        ),
        "weight": CRITERION.fields["weight"],
    },
    parent="task_id",
)
EVAL_RUN = Resource(
    kind="criterion_run",
    what="eval run",
    name="EvalRun",
    about="The result of an eval.",
    stamped=False,
    tag="legacy",
    tool=ToolWords(
        "eval-runs", "Eval runs (legacy)", "The generation before `criterion-runs`: passed, score and details, without structured evidence."
    ),
    fields={
        "task_run_id": CRITERION_RUN.fields["task_run_id"],
        "eval_id": read_only_id("criterion", "the eval"),
        "result": read_only("string", "pass or fail"),
        **{name: CRITERION_RUN.fields[name] for name in ("passed", "score", "details", "started_at", "completed_at")},
    },
)
OLDER_RUN = Resource(
    kind="benchmark_run",
    name="OlderRun",
    about="A benchmark run in its older states.",
    tag="legacy",
    fields={
        **RUN.fields,
        "run_id": read_only_id("benchmark_run", "the same as its id"),
        "status": read_only("string", "pending, running, completed, cancelled or failed"),
    },
)


def _as_criterion(fields: Mapping[str, Json]) -> dict[str, Json]:
    criterion = {"assertion" if name == "assert" else name: value for name, value in fields.items()}
    # A change never has the id of the task.
    return {**CRITERION.fill(**criterion), "task_id": criterion["task_id"]} if "task_id" in criterion else criterion


async def _show_evals(tx: Transaction, rows: Sequence[Row], full: bool) -> list[dict[str, Json]]:
    shown_evals: list[dict[str, Json]] = []
    for criterion in map(CRITERION.show, rows):
        stated = criterion["assertion"]
        shown = {**criterion, "assert": stated if isinstance(stated, str) else to_json(stated).decode()}
        shown_evals.append({name: shown[name] for name in EVAL.whole.fields})
    return shown_evals


create_eval = declare_standard(
    EVAL,
    "/evals",
    Rules(stored=CRITERION, most=MOST_CRITERIA, convert=_as_criterion, check=check_criterion, show=_show_evals),
    within="task_id",
    list="List evals, newest first.",
    create="Create an eval of a task.",
    get="Read an eval.",
    update="Change an eval.",
    delete="Delete an eval.",
).create


@Operation(EVAL_RUN, "GET /eval-runs", gives=EVAL_RUN.summary, pages=True, within="task_run_id", tool="list")
async def list_eval_runs(hub: Hub, caller: Caller, *, task_run_id: str | None = None, **paging: Unpack[Paging]) -> Records:
    """List eval runs, newest first."""
    page = await list_criterion_runs(hub, caller, task_run_id=task_run_id, **paging)
    return cast(Records, {**page, "data": [_show_eval_run(entry) for entry in page["data"]]})


@Operation(EVAL_RUN, "GET /eval-runs/{eval_run_id}", gives=EVAL_RUN.whole, tool="get")
async def get_eval_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read an eval run: passed or not, and why; no structured evidence."""
    return _show_eval_run(await get_criterion_run(hub, caller, id))


@Operation(OLDER_RUN, "GET /runs", gives=OLDER_RUN.summary, pages=True, within="benchmark_id")
async def list_runs(hub: Hub, caller: Caller, *, benchmark_id: str | None = None, **paging: Unpack[Paging]) -> Records:
    """List benchmark runs in their older states, newest first."""
    page = await benchmark_runs.list_benchmark_runs(hub, caller, benchmark_id=benchmark_id, **paging)
    return {"data": [_show_older(entry) for entry in page["data"]], "_meta": page["_meta"]}


@Operation(OLDER_RUN, "POST /runs", takes=RUN.new, gives=OLDER_RUN.whole, creates=True)
async def create_run(hub: Hub, caller: Caller, request_body: Mapping[str, Json]) -> dict[str, Json]:
    """Create a run of a benchmark."""
    return _show_older(await benchmark_runs.create_benchmark_run(hub, caller, request_body))


@Operation(OLDER_RUN, "GET /runs/{benchmark_run_id}", gives=OLDER_RUN.whole)
async def get_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read a run with its task runs."""
    return _show_older(await benchmark_runs.get_benchmark_run(hub, caller, id))


@Operation(OLDER_RUN, "POST /runs/{benchmark_run_id}/complete", gives=OLDER_RUN.whole)
async def complete_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Verify every open task run; the last one completes the run."""
    return _show_older(await benchmark_runs.complete_benchmark_run(hub, caller, id))


@Operation(OLDER_RUN, "POST /runs/{benchmark_run_id}/cancel", gives=OLDER_RUN.whole)
async def cancel_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Cancel a run; results of completed tasks stay."""
    return _show_older(await benchmark_runs.cancel_benchmark_run(hub, caller, id))


def _show_older(run: Mapping[str, Json]) -> dict[str, Json]:
    shown = {**run, "status": _older_status(run), "run_id": run["id"]}
    if "task_runs" in run:
        shown["task_runs"] = [{**task, "status": _older_status(task), "run_id": run["id"]} for task in run["task_runs"]]
    return shown


def _older_status(run: Mapping[str, Json]) -> Json:
    if run["status"] == "active":
        return "pending" if run["phase"] == "created" else "running"
    # The older states have no timeout.
    return "failed" if run["status"] == "timed_out" else run["status"]


def _show_eval_run(run: Mapping[str, Json]) -> dict[str, Json]:
    passed = bool(run["passed"])
    shown = {**run, "eval_id": run["criterion_id"], "result": "pass" if passed else "fail", "score": 1.0 if passed else 0.0}
    return {name: shown[name] for name in EVAL_RUN.whole.fields}
