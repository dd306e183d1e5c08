"""The same run in other systems, if installed: the same cases, client, stub and concurrency, one check per case."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proctor.targets.shared.wire import new_client

Drive = Callable[[str, Path], None]
"""Runs all cases against an address and stores the results in a folder."""


def peers(cases: int, concurrency: int) -> dict[str, Drive]:
    """Every peer that can be imported here, by name."""
    found = {"pydantic-evals": _pydantic_evals(cases, concurrency), "inspect_ai": _inspect_ai(cases, concurrency)}
    return {name: drive for name, drive in found.items() if drive is not None}


def _pydantic_evals(cases: int, concurrency: int) -> Drive | None:
    try:
        from pydantic_evals import Case, Dataset
        from pydantic_evals.evaluators import Contains
    except ImportError:
        return None
    listed: Any = [Case(name=f"c{number}", inputs=f"hello {number}") for number in range(cases)]
    dataset: Any = Dataset(name="bench", cases=listed, evaluators=[Contains(value="hello")])

    async def driven(url: str) -> None:
        async with new_client(certificates=False) as client:

            async def ask(message: str) -> str:
                return (await client.post(url, json={"input": message})).json()["text"]

            report = await dataset.evaluate(ask, max_concurrency=concurrency, progress=False)
        passed = sum(bool(verdict.value) for case in report.cases for verdict in case.assertions.values())
        assert passed == cases, passed

    def drive(url: str, home: Path) -> None:
        asyncio.run(driven(url))

    return drive


def _inspect_ai(cases: int, concurrency: int) -> Drive | None:
    # Before loading, keep its traces out of the user's folder and disable its update check.
    os.environ.setdefault("INSPECT_DISABLE_UPDATE_CHECK", "1")
    try:
        from inspect_ai import Task
        from inspect_ai import eval as evaluate
        from inspect_ai.dataset import MemoryDataset, Sample
        from inspect_ai.model import ModelOutput
        from inspect_ai.scorer import includes
        from inspect_ai.solver import solver
    except ImportError:
        return None
    samples = MemoryDataset([Sample(id=f"c{number}", input=f"hello {number}", target="hello") for number in range(cases)])

    def drive(url: str, home: Path) -> None:
        client = new_client(certificates=False)

        @solver
        def ask() -> Any:
            async def solve(state: Any, generate: Any) -> Any:
                answer = await client.post(url, json={"input": state.input_text})
                state.output = ModelOutput.from_content("stub", answer.json()["text"])
                return state

            return solve

        task = Task(dataset=samples, solver=ask(), scorer=includes(), name="bench")
        logs = evaluate(task, model="mockllm/model", max_samples=concurrency, log_dir=str(home), display="none", score_display=False)
        assert logs[0].status == "success" and logs[0].results is not None, logs[0].status
        right = logs[0].results.scores[0].metrics["accuracy"].value
        assert right == 1.0, right

    return drive
