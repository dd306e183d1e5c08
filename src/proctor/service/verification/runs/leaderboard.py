"""The leaderboard of a benchmark: its published runs, the best first.

A place is one version of an agent on one version of the benchmark. Its published runs are repeats and are counted together: the score is
their mean, with the lowest and the highest, and the pass rate of their tasks has Wilson's interval. Runs and solvers that opted out are
omitted. The newest `MOST_RUNS` runs are used, and the board shows whether there are more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import fsum

from proctor.model.evidence import Json
from proctor.scoring.score import find_weighted_mean
from proctor.scoring.statistics import count_outcomes, summarize_suite
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification.authoring.benchmarks import BENCHMARK, find_published_version
from proctor.service.verification.authoring.solvers import UNLISTED
from proctor.service.verification.runs.resources import RUN, TASK_RUN
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.fields import Shape, nested_field, read_only, read_only_id
from proctor.service.verification.shared.resources import Transaction, reading
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import find_marked

MOST_RUNS = 1_000
MOST_PLACES = 100
MOST_REPEATS = 20
"""The newest runs of one place that are counted."""
_RUNS_AT_ONCE = 500
"""Runs in one statement, since SQLite limits parameters."""
_PLACE = Shape(
    "LeaderboardPlace",
    "One place on a leaderboard: an agent in one version.",
    {
        "rank": read_only("integer", "1 for the best; the same score is the same rank"),
        "name": read_only("string", "public name of the solver, or the agent", null=True),
        "agent": read_only("string", "the tested agent", null=True),
        "agent_version": read_only("string", "version of the agent", null=True),
        "score": read_only("number", "the mean of its published runs, 0 to 1", null=True),
        "lowest": read_only("number", "the score of its worst published run", null=True),
        "highest": read_only("number", "the score of its best published run", null=True),
        "runs": read_only("integer", f"published runs that are counted, the newest {MOST_REPEATS} at most"),
        "decided": read_only("integer", "decided tasks in these runs"),
        "passed": read_only("integer", "tasks that passed"),
        "pass_rate": read_only("number", "the share of the decided tasks that passed", null=True),
        "low": read_only("number", "lower bound of the pass rate, with 95 % confidence", null=True),
        "high": read_only("number", "upper bound of the pass rate", null=True),
        "axes": read_only("object", "score and weight by axis"),
        "completed_at": read_only("string", "when the newest of its runs ended", null=True),
    },
)
_OWN_PLACE = _PLACE.extend(
    "OwnLeaderboardPlace",
    "One place on a leaderboard, with fields for the owner of the benchmark.",
    {
        "solver_id": read_only_id("solver", "the solver that started it", null=True),
        "version": read_only("integer", "version of the benchmark; none: unpublished", null=True),
        "verdict": read_only("string", "of its best run: pass, partial or fail", null=True),
        "benchmark_run_id": read_only_id("benchmark_run", "its best run"),
    },
)
_BOUNDS = {
    "places_in_all": read_only("integer", "number of all places, including those not shown"),
    # The number of runs is not public.
    "whole": read_only("boolean", f"whether all runs were counted; else the newest {MOST_RUNS}"),
}
_BOARD = Shape(
    "Leaderboard",
    "The published runs of one version of a benchmark, the best agent first.",
    {
        "slug": read_only("string", "of the benchmark"),
        "version": read_only("integer", "of the benchmark"),
        "name": read_only("string", "of the benchmark"),
        "reference": read_only("string", "slug@version"),
        "places": nested_field(_PLACE, f"at most {MOST_PLACES}"),
        **_BOUNDS,
    },
)
_OWN_BOARD = Shape(
    "BenchmarkLeaderboard",
    "The published runs of a benchmark, of all its versions, the best agent first.",
    {"benchmark_id": read_only_id("benchmark"), "places": nested_field(_OWN_PLACE, f"at most {MOST_PLACES}"), **_BOUNDS},
)


@Operation(BENCHMARK, "GET /benchmarks/{benchmark_id}/leaderboard", gives=_OWN_BOARD)
async def get_leaderboard(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read the leaderboard of an own benchmark, with the runs of each agent and version together, the best first."""
    async with reading(hub, caller) as tx:
        await tx.require(BENCHMARK.kind, id)
        return {"benchmark_id": id, **await _rank_places(tx, id, _OWN_PLACE)}


@Operation(BENCHMARK, "GET /leaderboard/{slug}", gives=_BOARD, tool="leaderboard")
async def get_public_leaderboard(hub: Hub, caller: Caller, slug: str) -> dict[str, Json]:
    """Read the leaderboard of a published benchmark, own or public, by `slug@version` or by slug for the newest version."""
    async with reading(hub, caller) as tx:
        version = await find_published_version(tx, slug)
        number: int = version["body"]["version"]
        board = await _rank_places(tx.act_for(version["organization_id"]), version["parent_id"], _PLACE, number)
    return {
        "slug": version["slug"].partition("@")[0],
        "version": number,
        "name": version["body"]["name"],
        "reference": version["slug"],
        **board,
    }


async def _rank_places(tx: Transaction, benchmark_id: str, place: Shape, version: int | None = None) -> dict[str, Json]:
    """Return the places with the fields of `place`, the best first, and their total; with `version` only of its runs."""
    # One more, to find out whether there are more.
    newest = await tx.newest_children(RUN.kind, benchmark_id, MOST_RUNS + 1)
    runs = await _choose_listed_runs(tx, newest[:MOST_RUNS], version)
    repeats: dict[tuple[Json, ...], list[Row]] = {}
    for run in runs:
        body = run["body"]
        key = (body.get("solver_id"), body.get("agent"), (body.get("solver") or {}).get("agent_version"), _find_version(run))
        repeats.setdefault(key, []).append(run)
    counted = [some[:MOST_REPEATS] for some in repeats.values()]
    # Ranked by runs first: tasks are read only for the places that are shown.
    counted.sort(key=lambda some: (_rate(some), some[0]["id"]), reverse=True)
    shown = counted[:MOST_PLACES]
    tasks: dict[str, list[Row]] = {run["id"]: [] for some in shown for run in some}
    ids = list(tasks)
    for start in range(0, len(ids), _RUNS_AT_ONCE):
        for task in await tx.children(TASK_RUN.kind, ids[start : start + _RUNS_AT_ONCE]):
            tasks[task["parent_id"]].append(task)
    rates = [_rate(some) for some in shown]
    places = [
        {"rank": rates.index(rate) + 1, **_show_place(some, [task for run in some for task in tasks[run["id"]]])}
        for some, rate in zip(shown, rates, strict=True)
    ]
    shown_places = [{name: each[name] for name in place.fields} for each in places]
    return {"places": shown_places, "places_in_all": len(counted), "whole": len(newest) <= MOST_RUNS}


async def _choose_listed_runs(tx: Transaction, newest: Sequence[Row], version: int | None) -> list[Row]:
    runs = [row for row in newest if row["body"].get("published") and not row["body"].get("unlisted")]
    if version is not None:
        runs = [row for row in runs if _find_version(row) == version]
    solvers = {id for row in runs if (id := row["body"].get("solver_id")) is not None}
    # Checked each time, so that an opt-out takes effect at once.
    unlisted = await find_marked(tx.connection, UNLISTED, solvers)
    return [row for row in runs if row["body"].get("solver_id") not in unlisted]


def _find_version(run: Row) -> Json:
    return (run["body"].get("benchmark") or {}).get("version")


def _list_scores(runs: Sequence[Row]) -> list[float]:
    return [float(score) for run in runs if (score := run["body"].get("score")) is not None]


def _rate(runs: Sequence[Row]) -> float:
    """Return the mean score of runs; below every score if none has one."""
    mean = find_weighted_mean((score, 1.0) for score in _list_scores(runs))
    return -1.0 if mean is None else mean


def name_solver(body: Mapping[str, Json]) -> Json:
    """Return the public name of a run's solver, or its agent."""
    solver = body.get("solver") or {}
    return solver.get("real_name") or solver.get("alias") or body.get("agent")


def mean_axes(tasks: Sequence[Row]) -> dict[str, Json]:
    """Return the weighted score of each axis over task runs."""
    sums: dict[str, list[tuple[float, float]]] = {}
    for task in tasks:
        for axis, axis_score in (task["body"].get("axes") or {}).items():
            sums.setdefault(axis, []).append((float(axis_score["score"]), float(axis_score.get("weight", 1))))
    return {
        axis: {"score": find_weighted_mean(pairs) or 0.0, "weight": round(fsum(weight for _, weight in pairs), 12)}
        for axis, pairs in sums.items()
    }


def _show_place(runs: Sequence[Row], tasks: Sequence[Row]) -> dict[str, Json]:
    best, newest, scores = max(runs, key=lambda run: _rate([run])), runs[0]["body"], _list_scores(runs)
    outcomes: dict[str, Counter[str]] = {}
    for task in tasks:
        if task["body"].get("outcome") is not None:
            outcomes.setdefault(str(task["body"]["task_id"]), Counter())[str(task["body"]["outcome"])] += 1
    statistics = summarize_suite({task_id: count_outcomes(counts) for task_id, counts in outcomes.items()})
    return {
        "name": name_solver(newest),
        "agent": newest.get("agent"),
        "agent_version": (newest.get("solver") or {}).get("agent_version"),
        "score": _rate(runs) if scores else None,
        "lowest": min(scores, default=None),
        "highest": max(scores, default=None),
        "runs": len(runs),
        "decided": statistics.runs,
        "passed": statistics.passes,
        "pass_rate": statistics.rate if statistics.runs else None,
        "low": statistics.interval.low if statistics.runs else None,
        "high": statistics.interval.high if statistics.runs else None,
        "axes": mean_axes(tasks),
        "completed_at": newest.get("completed_at"),
        "solver_id": newest.get("solver_id"),
        "version": _find_version(runs[0]),
        "verdict": best["body"].get("verdict"),
        "benchmark_run_id": best["id"],
    }
