"""The page and the REST answer about planted faults: the same figures as the command, escaped, and only for runs that ended."""

from __future__ import annotations

import sqlalchemy as sa

from proctor.model.mutation import KIND_NAMES
from proctor.service.hub import Hub
from proctor.store.sql.tables import runs
from tests.pages.markup import Markup
from tests.pages.screens.test_result import OBSERVED, RUN
from tests.pages.world import World, add_run, decide, read_suite

SUITE = """\
proctor: 1
name: marks
cases:
  - id: a
    expect:
      - response_contains: hello
      - tool_called: search
      - tool_not_called: delete_account
"""


def _add(world: World) -> None:
    suite = read_suite(SUITE)
    entries = [decide(suite, suite.cases[0], OBSERVED, 0, "2026-11-15T09:00:00.000Z")]
    world.service.run(lambda hub: add_run(hub, "run_marks", entries, document=SUITE))


def test_the_page_shows_survivors_with_the_claims_that_detect_them(world: World) -> None:
    _add(world)
    assert f"{RUN}/mutation" in world.get(RUN, "organization").text
    shown = world.get(f"{RUN}/mutation", "organization").text
    page = Markup(shown)
    assert page.problems == [] and "<b>secret</b>" not in shown
    found = world.get("/api/runs/run_marks/mutation", "organization").json()
    survivors = [each for each in found["faults"] if each["status"] == "survived"]
    assert len(survivors) == found["total"]["survived"] > 3
    assert all(each["claim"] for each in survivors)
    assert shown.count('detects it"><code>- ') == len(survivors)
    assert KIND_NAMES["argument_wrong"] in shown and "tool_not_called · delete_account" in shown


def test_a_run_that_has_not_ended_is_not_measured(world: World) -> None:
    _add(world)

    async def restart(hub: Hub) -> None:
        async with hub.database.writing() as connection:
            await connection.execute(sa.update(runs).where(runs.c.id == "run_marks").values(status="running"))

    world.service.run(restart)
    assert f"{RUN}/mutation" not in world.get(RUN, "organization").text
    assert world.get("/api/runs/run_marks/mutation", "organization").status_code == 409
    assert world.get(f"{RUN}/mutation", "organization").status_code == 409


def test_a_run_without_evidence_shows_that_nothing_was_planted(world: World) -> None:
    suite = read_suite(SUITE)
    bare = decide(suite, suite.cases[0], {"text": "no"}, 0, "2026-11-15T09:00:00.000Z")
    world.service.run(lambda hub: add_run(hub, "run_marks", [bare], document=SUITE))
    assert "No fault was planted" in world.get(f"{RUN}/mutation", "organization").text
