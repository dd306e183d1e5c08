"""The generation before: evals with one sentence each, eval runs, and runs with their older states.

An eval is a criterion whose assertion is a text: English, left to a judge, or a typed assertion written as JSON. Both live in one place,
so a criterion shows here with its assertion as text.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification import benchmark_runs, criteria, criterion_runs, resources
from proctor.service.verification.criteria import CRITERION
from proctor.service.verification.fields import LONGEST_TEXT, Field, text
from proctor.store.bodies import from_json, to_json


def _sentence(value: Json) -> Json:
    """English, or the typed assertion that the text spells."""
    sentence = text(LONGEST_TEXT * 10)(value)
    if not sentence.lstrip().startswith("{"):
        return sentence
    try:
        return from_json(sentence)
    except Exception:
        raise ValueError("it begins like JSON, but is none") from None


_WITH_TEXT = msgspec.structs.replace(
    CRITERION, what="eval", table={**CRITERION.table, "assertion": Field(_sentence, required=True, null=False)}
)


async def list_evals(
    hub: Hub, caller: Caller, *, task_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of evals, of one task where it is named."""
    page, data = await resources.list_rows(hub, caller, CRITERION, parent_id=task_id, limit=limit, cursor=cursor)
    return resources.page_of(page, [_shown(entry) for entry in data])


async def create_eval(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new eval: `task_id`, `label`, `assert` (a text), `weight?`."""
    return _shown(await criteria.create_criterion(hub, caller, _as_criterion(given), resource=_WITH_TEXT))


async def get_eval(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One eval."""
    return _shown(await criteria.get_criterion(hub, caller, id))


async def update_eval(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change an eval."""
    return _shown(await criteria.update_criterion(hub, caller, id, _as_criterion(given), resource=_WITH_TEXT))


async def delete_eval(hub: Hub, caller: Caller, id: str) -> None:
    """Delete an eval."""
    await criteria.delete_criterion(hub, caller, id)


async def list_eval_runs(
    hub: Hub, caller: Caller, *, task_run_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of eval runs, of one task run where it is named."""
    page = await criterion_runs.list_criterion_runs(hub, caller, task_run_id=task_run_id, limit=limit, cursor=cursor)
    return {**page, "data": [_shown_run(entry) for entry in page["data"]]}


async def get_eval_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One eval run: passed or not, and why; no structured evidence."""
    return _shown_run(await criterion_runs.get_criterion_run(hub, caller, id))


async def list_runs(
    hub: Hub, caller: Caller, *, benchmark_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """A page of benchmark runs in their older states."""
    page = await benchmark_runs.list_benchmark_runs(hub, caller, benchmark_id=benchmark_id, limit=limit, cursor=cursor)
    return {**page, "data": [older_run(entry) for entry in page["data"]]}


def older_run(run: Mapping[str, Json]) -> dict[str, Json]:
    """A benchmark run as the first generation names its states: pending, running, then as today."""
    shown = {**run, "status": _older(run), "run_id": run["id"]}
    if "task_runs" in run:
        shown["task_runs"] = [{**task, "status": _older(task), "run_id": run["id"]} for task in run["task_runs"]]
    return shown


def _older(run: Mapping[str, Json]) -> Json:
    if run["status"] == "active":
        return "pending" if run["phase"] == "created" else "running"
    return "failed" if run["status"] == "timed_out" else run["status"]


def _as_criterion(given: Mapping[str, Json]) -> dict[str, Json]:
    return {"assertion" if name == "assert" else name: value for name, value in given.items()}


def _shown(criterion: Mapping[str, Json]) -> dict[str, Json]:
    stated = criterion["assertion"]
    sentence = stated if isinstance(stated, str) else to_json(stated).decode()
    shown = ("id", "task_id", "label", "weight", "organization_id", "created_at", "updated_at")
    return {**{name: criterion[name] for name in shown}, "assert": sentence}


def _shown_run(run: Mapping[str, Json]) -> dict[str, Json]:
    shown = ("id", "task_run_id", "passed", "details", "started_at", "completed_at")
    passed = bool(run["passed"])
    return {
        **{name: run[name] for name in shown},
        "eval_id": run["criterion_id"],
        "result": "pass" if passed else "fail",
        "score": 1.0 if passed else 0.0,
    }
