"""The adapters of `proctor init --for` give every case a separate conversation, also for concurrent cases with several turns."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

import pytest

from proctor.actions.start.found import FoundAgent
from proctor.actions.start.frameworks import FRAMEWORKS
from proctor.actions.start.starters import write_adapter
from tests.actions.fake_agents import AGENTS, Fake, make_modules

CASES, TURNS = ("red", "blue", "green"), 3


def test_every_framework_has_a_stand_in() -> None:
    assert {name for name, _, _ in AGENTS} == set(FRAMEWORKS)


@pytest.mark.parametrize(("name", "maker", "kind"), AGENTS, ids=[f"{name} {kind.__name__} {maker}" for name, maker, kind in AGENTS])
def test_concurrent_cases_have_separate_conversations(name: str, maker: str, kind: type[Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    agent = kind()
    for module, made in make_modules(agent).items():
        monkeypatch.setitem(sys.modules, module, made)
    found = FoundAgent(framework=name, file="app.py", line=1, name="agent", maker=maker)
    written: dict[str, Any] = {}
    exec(write_adapter(FRAMEWORKS[name], found), written)  # noqa: S102 - the test is about the code that init writes
    drive_cases(written["answer"])
    forgets = "each turn starts from the beginning" in FRAMEWORKS[name].remark
    expected = [tuple(f"{case} {each}" for each in range(turn if forgets else 0, turn + 1)) for case in CASES for turn in range(TURNS)]
    assert sorted(agent.seen) == sorted(expected)


def drive_cases(answer: Any) -> None:
    """Send every turn of every case: concurrently if the adapter is awaited, else interleaved turn by turn."""
    wanted = inspect.signature(answer).parameters

    def ask(case: str, turn: int) -> Any:
        offered = {"session_id": f"run-{case}", "turn": turn}
        return answer(f"{case} {turn}", **{key: value for key, value in offered.items() if key in wanted})

    async def converse(case: str) -> None:
        for turn in range(TURNS):
            await ask(case, turn)

    async def converse_all() -> None:
        await asyncio.gather(*map(converse, CASES))

    if inspect.iscoroutinefunction(answer):
        asyncio.run(converse_all())
        return
    for turn in range(TURNS):
        for case in CASES:
            ask(case, turn)
