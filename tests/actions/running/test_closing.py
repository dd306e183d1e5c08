"""An error while closing leaves nothing else open and is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from proctor.actions.running.mcplab_run import McplabTarget
from proctor.actions.running.run_builder import BuiltRun, PartModels, RunUsers
from proctor.actions.running.run_policy import JudgeChoice
from proctor.actions.workspace.close_all import close_on_exit
from proctor.actions.workspace.combined_suites import CombinedJudges, CombinedTargets
from proctor.model.case import Suite


class Thing:
    """Fail to close and record the attempt."""

    name = "thing"

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False

    async def close(self) -> None:
        self.closed = True
        raise ConnectionError(f"thing {self.number} does not close")


class Opened:
    def __init__(self, judge: Thing) -> None:
        self.judge = judge


def users(things: Sequence[Any]) -> RunUsers:
    return RunUsers([PartModels({str(thing.number): thing}, None) for thing in things], frozenset(), offline=False)


def built(things: Sequence[Any]) -> BuiltRun:
    run = BuiltRun(Suite(name="s"), things[0], things[:2])
    run.users = users(things[2:3])
    run.judge_choice = JudgeChoice(opened=cast(Any, Opened(things[3])))
    return run


def agents(things: Sequence[Any]) -> McplabTarget:
    models = {str(thing.number): thing for thing in things[1:]}
    return McplabTarget(rows=[], attachments={}, agents={}, models=models, servers=things[0], name="agents")


@pytest.mark.parametrize(
    "make",
    [built, users, agents, lambda things: CombinedTargets([(thing, ()) for thing in things]), lambda things: CombinedJudges(things, {})],
    ids=["run", "users", "agents of MCPLab", "targets", "judges"],
)
def test_all_are_closed_and_the_first_error_is_raised(make: Callable[[Any], Any]) -> None:
    things = [Thing(number) for number in range(4)]
    with pytest.raises(ConnectionError, match="thing 0 does not close"):
        asyncio.run(make(things).close())
    assert all(thing.closed for thing in things)


def test_an_earlier_error_wins_over_one_while_closing() -> None:
    async def work(thing: Thing, *, fails: bool) -> None:
        async with close_on_exit(thing):
            if fails:
                raise ZeroDivisionError

    things = [Thing(0), Thing(1)]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(work(things[0], fails=True))
    with pytest.raises(ConnectionError):
        asyncio.run(work(things[1], fails=False))
    assert all(thing.closed for thing in things)
