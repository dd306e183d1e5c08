"""Traces are evaluated again from a page: the same ones as over REST, with the same entry in the audit log."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from proctor.service.hub import Hub
from proctor.service.traces.reevaluation import MOST_TRACES
from proctor.store.sql.tables import traces
from tests.pages.markup import Markup
from tests.pages.world import World

AGAIN = "/ui/p/proj_home/traces/reevaluate"
CHOICES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {}),
    ({"agent": "agent_home_2"}, {"agent_id": "agent_home_2"}),
    ({"case": "case_manners"}, {"case_id": "case_manners"}),
    ({"trace_ids": "trc_shop\r\n trc_rude trc_shop\n"}, {"trace_ids": ["trc_shop", "trc_rude"]}),
    ({"since": "2026-11-15T00:00:00Z", "until": "2026-11-16"}, {"since": "2026-11-15T00:00:00Z", "until": "2026-11-16"}),
    ({"trace_ids": "trc_nobody"}, {"trace_ids": ["trc_nobody"]}),
]


def send(world: World, who: str = "organization", **fields: str) -> Any:
    return world.post(AGAIN, who, proof=world.find_proof("/ui/", who), **fields)


async def list_due(hub: Hub) -> set[str]:
    async with hub.database.reading() as connection:
        return set((await connection.execute(sa.select(traces.c.id).where(traces.c.due_at.is_not(None)))).scalars())


async def forget_due(hub: Hub) -> None:
    async with hub.database.writing() as connection:
        await connection.execute(sa.update(traces).values(due_at=None))


@pytest.mark.parametrize(("fields", "body"), CHOICES, ids=lambda value: ",".join(value) or "all")
def test_the_form_asks_for_the_same_traces_as_rest(world: World, fields: dict[str, str], body: dict[str, Any]) -> None:
    key = {"authorization": f"Bearer {world.keys['organization']}"}
    wanted = world.ask("POST", "/api/traces/reevaluate", json={"project_id": "proj_home", **body}, headers=key)
    due = world.service.run(list_due)
    world.service.run(forget_due)
    answer = send(world, **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{AGAIN}?done={wanted.json()['traces']}")
    assert world.service.run(list_due) == due and len(due) == wanted.json()["traces"]
    told = Markup(world.get(answer.headers["location"], "organization").text).words
    assert (f"{len(due)} trace" if due else "No matching traces") in told
    entries = world.get("/api/audit?resource=traces", "organization").json()["data"]
    assert [(one["action"], one["resource_id"], one["details"]) for one in entries[:1]] == [
        (one["action"], one["resource_id"], one["details"]) for one in entries[1:]
    ]


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"since": "soon"}, 400, "expected a time such as"),
        ({"agent": "agent_gone"}, 404, "there is no agent"),
        ({"case": "case_gone"}, 404, "there is no case"),
        ({"trace_ids": " ".join(f"trc_{number}" for number in range(MOST_TRACES + 1))}, 400, f"expected 1 to {MOST_TRACES} entries"),
    ],
    ids=["no time", "no agent", "no case", "too many"],
)
def test_what_is_refused_comes_back_with_everything_in_it(seen: World, fields: dict[str, str], status: int, said: str) -> None:
    typed = {"until": "2026-11-20", "trace_ids": "trc_shop", **fields}
    answer = send(seen, **typed)
    page = Markup(answer.text)
    assert answer.status_code == status and page.strange == [] and said in page.words
    for name, value in typed.items():
        assert f'value="{value}"' in answer.text or f">\n{value}</textarea>" in answer.text, name
    assert seen.service.run(list_due) == set()


def test_nobody_asks_for_it_without_a_proof_and_a_key_that_writes(seen: World) -> None:
    assert send(seen, "project").status_code == 403
    refused = seen.post(AGAIN, "organization", proof="00" * 32, trace_ids="trc_shop")
    assert refused.status_code == 403 and ">\ntrc_shop</textarea>" in refused.text and "submit it again" in refused.text
    assert seen.service.run(list_due) == set()


def test_the_ways_there_fill_the_form(seen: World) -> None:
    ways = {
        "traces?agent=agent_home_1&since=2026-11-14&outcome=fail&q=charged": f'href="{AGAIN}?agent=agent_home_1&amp;since=2026-11-14"',
        "traces/trc_shop": f'href="{AGAIN}?trace_ids=trc_shop"',
        "cases/case_manners": f'href="{AGAIN}?case=case_manners"',
    }
    for path, link in ways.items():
        assert link in seen.get(f"/ui/p/proj_home/{path}", "organization").text, path
        assert AGAIN not in seen.get(f"/ui/p/proj_home/{path}", "project").text, path
    filled = seen.get(f"{AGAIN}?case=case_manners&since=2026-11-14&trace_ids=trc_shop", "organization").text
    assert '<option value="case_manners" selected>' in filled and 'value="2026-11-14"' in filled and ">\ntrc_shop</textarea>" in filled
