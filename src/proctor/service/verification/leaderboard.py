"""The leaderboard of a benchmark: its published runs, the best first.

Of each agent and version the best run stands there once. Looked at are the newest `MOST_RUNS` runs of the benchmark.
"""

from __future__ import annotations

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.verification.benchmarks import BENCHMARK
from proctor.service.verification.declaration import Operation
from proctor.service.verification.fields import Shape, nested_field, read_only, read_only_id
from proctor.service.verification.resources import authorize, require_record
from proctor.service.verification.run_nouns import RUN
from proctor.store.records import newest_children

MOST_RUNS = 1_000
MOST_PLACES = 100
_PLACE = Shape(
    "LeaderboardPlace",
    "One place on a leaderboard.",
    {
        "rank": read_only("integer", "1 for the best; the same score is the same rank"),
        "agent": read_only("string", "who was examined", null=True),
        "solver_id": read_only_id("solver", "whose key started it", null=True),
        "version": read_only("integer", "of the benchmark; none: as it was when the run was made", null=True),
        "score": read_only("number", "0 to 1", null=True),
        "verdict": read_only("string", "pass, partial or fail", null=True),
        "benchmark_run_id": read_only_id("benchmark_run", "the run"),
        "completed_at": read_only("string", "when it ended", null=True),
    },
)
_BOARD = Shape(
    "Leaderboard",
    "The published runs of a benchmark, the best first.",
    {
        "benchmark_id": read_only_id("benchmark"),
        "places": nested_field(_PLACE, "at most 100"),
    },
)


@Operation(BENCHMARK, "GET /benchmarks/{benchmark_id}/leaderboard", gives=_BOARD)
async def get_leaderboard(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Read the leaderboard of a benchmark: its published runs, the best of each agent and version, the best first."""
    authorize(caller)
    async with hub.database.reading() as connection:
        await require_record(connection, caller, BENCHMARK.kind, id)
        runs = [RUN.show(row) for row in await newest_children(connection, caller.organization_id, RUN.kind, id, MOST_RUNS)]
    best: dict[tuple[Json, Json, Json], dict[str, Json]] = {}
    for run in runs:
        if run["published"]:
            who = (run["agent"], run["solver_id"], _find_version(run))
            if who not in best or _rate(run) > _rate(best[who]):
                best[who] = run
    ranked = sorted(best.values(), key=_rate, reverse=True)[:MOST_PLACES]
    rates = [_rate(run) for run in ranked]
    return {"benchmark_id": id, "places": [_show_place(run, rates.index(rate) + 1) for run, rate in zip(ranked, rates, strict=True)]}


def _rate(run: dict[str, Json]) -> float:
    return -1.0 if run["score"] is None else float(run["score"])


def _find_version(run: dict[str, Json]) -> Json:
    return (run["benchmark"] or {}).get("version")


def _show_place(run: dict[str, Json], rank: int) -> dict[str, Json]:
    kept = {name: run[name] for name in ("agent", "solver_id", "score", "verdict", "completed_at")}
    return {"rank": rank, **kept, "version": _find_version(run), "benchmark_run_id": run["id"]}
