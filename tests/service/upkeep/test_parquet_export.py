"""`proctor db export --format parquet`: traces and results by day, which `proctor batch` decides as the service did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from proctor.errors import InputError
from proctor.service.hub import Hub
from proctor.service.traces.evaluator import evaluate_all
from proctor.service.upkeep.parquet_export import export_parquet
from proctor.store.sql.tables import results, traces
from tests.batches.batch_world import evaluate, read_results
from tests.service.trace_world import SUITE, post, request, root, send, span, world

pytestmark = pytest.mark.timeout(60)


async def fill(hub: Hub) -> str:
    _, agent = await world(hub)
    await send(hub, request(root("1" * 32), span("1" * 32, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", name="step")))
    await send(hub, request(root("2" * 32, text="No.", status=500)))
    # The second half comes by itself.
    await send(hub, request(span("1" * 32, "cccccccccccccccc", "aaaaaaaaaaaaaaaa", name="late")))
    await post(hub, {"data": {"text": "Refund done"}, "metadata": {"http_status": 200}, "platformId": agent, "externalId": "body-1"})
    async with hub.database.writing() as connection:
        # No more spans are awaited.
        await connection.execute(sa.update(traces).values(due_at=1.0, status="complete"))
    await evaluate_all(hub)
    return agent


async def test_a_batch_decides_exported_traces_like_the_service(hub: Hub, tmp_path: Path) -> None:
    agent = await fill(hub)
    async with hub.database.writing() as connection:
        for table in (traces, results):
            await connection.execute(sa.update(table).where(table.c.outcome == "fail").values(created_at="2026-10-01T08:00:00Z"))
    async with hub.database.reading() as connection:
        done = await export_parquet(connection, tmp_path / "history")
        outcomes = {row[0]: row[1] for row in await connection.execute(sa.select(traces.c.external_id, traces.c.outcome))}
    assert (done.traces, done.results) == (3, 3)
    days = sorted(path.parent.name for path in (tmp_path / "history" / "traces").rglob("*.parquet"))
    assert len(days) == 2 and days[0] == "day=2026-10-01"
    (row,) = pq.ParquetFile(tmp_path / "history" / "traces" / days[0] / "part-0.parquet").read().to_pylist()
    assert (row["trace_id"], row["agent"], row["agent_id"], row["outcome"]) == ("2" * 32, "shop", agent, "fail")
    (tmp_path / "suite.yaml").write_text(SUITE)
    summary, _ = evaluate(tmp_path / "suite.yaml", [tmp_path / "history" / "traces"], tmp_path / "out")
    assert summary.errors == 0 and {row["trace"]: row["outcome"] for row in read_results(tmp_path / "out")} == outcomes
    (result,) = pq.ParquetFile(tmp_path / "history" / "results" / days[0] / "part-0.parquet").read().to_pylist()
    assert (result["trace_id"], result["case"], result["outcome"]) == ("2" * 32, "refund", "fail")
    assert [one["outcome"] for one in json.loads(result["result"])["assertions"]] == ["fail", "fail"]


async def test_a_folder_with_files_is_refused_and_damage_is_reported(hub: Hub, tmp_path: Path) -> None:
    await fill(hub)
    async with hub.database.writing() as connection:
        await connection.execute(sa.update(traces).where(traces.c.external_id == "2" * 32).values(body=b"broken"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    async with hub.database.reading() as connection:
        with pytest.raises(InputError, match="choose a new folder"):
            await export_parquet(connection, tmp_path / "full")
        await export_parquet(connection, tmp_path / "history")
    rows: list[Any] = [
        row for path in (tmp_path / "history" / "traces").rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()
    ]
    (broken,) = [row for row in rows if row["trace_id"] == "2" * 32]
    assert broken["record"] is None and "cannot be read" in broken["error"]
