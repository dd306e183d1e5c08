"""Runs in the caller's own process: limited in number, and none is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.mcp_server import local_runs
from proctor.mcp_server.arguments import RunRequest
from proctor.mcp_server.local_runs import MOST_LIVE, LocalRuns
from proctor.service.access.callers import LOCAL
from proctor.service.refusals import Refusal

SUITE = '{"proctor": 1, "cases": [{"id": "a", "input": "x", "expect": [{"response_contains": "x"}]}]}'


class Driven:
    """Replaces the driver of runs, and counts running and ended ones."""

    def __init__(self, *, is_named: bool = True) -> None:
        self.is_named = is_named
        self.begun = 0
        self.ended = 0

    async def drive(self, suite: object, options: Any, **more: object) -> Any:
        self.begun += 1
        id = f"run_{self.begun}"
        try:
            await asyncio.sleep(0)
            if self.is_named:
                options.opened(id)
            await asyncio.Event().wait()
        finally:
            self.ended += 1


async def test_calls_at_the_same_time_start_no_more_runs_than_there_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven()
    monkeypatch.setattr(local_runs, "drive", driven.drive)
    runs = LocalRuns(tmp_path, tmp_path)
    starts = [runs.start(LOCAL, RunRequest(document=SUITE), 0.0) for _ in range(MOST_LIVE + 2)]
    answers = await asyncio.gather(*starts, return_exceptions=True)
    assert [isinstance(answer, Refusal) and answer.code == "CONFLICT" for answer in answers] == [False] * MOST_LIVE + [True] * 2
    assert driven.begun == MOST_LIVE
    await runs.close()
    assert driven.ended == MOST_LIVE


async def test_a_suite_that_cannot_be_run_takes_no_place(tmp_path: Path) -> None:
    runs = LocalRuns(tmp_path, tmp_path)
    for _ in range(MOST_LIVE + 1):
        with pytest.raises(Refusal, check=lambda error: list(error.fields) == ["document"]):
            await runs.start(LOCAL, RunRequest(), 0.0)


async def test_a_run_whose_caller_leaves_before_it_has_an_id_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(is_named=False)
    monkeypatch.setattr(local_runs, "drive", driven.drive)
    task = asyncio.create_task(LocalRuns(tmp_path, tmp_path).start(LOCAL, RunRequest(document=SUITE), 0.0))
    while not driven.begun:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert driven.ended == 1
