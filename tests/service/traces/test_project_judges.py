"""A project's judge also decides its traces, and its decisions are indexed for labelling."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.projects import update_project
from proctor.service.access.secrets import set_secret
from proctor.service.hub import Hub
from proctor.service.labels.agreement import get_agreement, read_agreement
from proctor.service.labels.annotations import NewAnnotation, create_annotation
from proctor.service.labels.claims import index_claims, list_waiting, pose_next
from proctor.service.traces.evaluator import evaluate_all
from proctor.service.traces.reevaluation import Reevaluation, request_reevaluation
from proctor.store.runs.retention import Deletable, delete_listed
from proctor.store.sql.compressed_json import unpack
from proctor.store.sql.migrations import STEPS
from proctor.store.sql.tables import annotation_rows, claims_due, judged_claims
from tests.databases import TestDatabase
from tests.integration.judge_server import judge_server
from tests.service.trace_world import post, result_rows, world

JUDGED = """\
proctor: 1
cases:
  - id: polite
    expect:
      - judged: the answer is polite
"""


def make_settings(url: str) -> dict[str, Any]:
    return {
        "judge": {"model": "j"},
        "models": {"j": {"provider": "openai", "model": "the-judge", "base_url": url, "api_key": "${JUDGE_KEY}"}},
    }


async def read_reason(hub: Hub) -> tuple[str, str]:
    (row,) = await result_rows(hub)
    body: Any = unpack(row["body"])
    return row["outcome"], body["assertions"][0]["reason"]


def test_a_project_s_judge_also_judges_its_traces(database: TestDatabase) -> None:
    with judge_server() as server:

        async def use(hub: Hub) -> None:
            project, agent = await world(hub, suite=JUDGED)
            await update_project(hub, LOCAL, project, {"settings": make_settings(server.url)})
            trace = await post(hub, {"data": {"text": "Gladly."}, "platformId": agent})
            await evaluate_all(hub)
            assert "JUDGE_KEY" in (await read_reason(hub))[1], "the reason is in the result"
            await set_secret(hub, LOCAL, project, "JUDGE_KEY", "k-1234567890")
            await request_reevaluation(hub, LOCAL, Reevaluation(project_id=project, trace_ids=[trace.id]))
            await evaluate_all(hub)
            assert (await read_reason(hub))[0] == "fail" and len(server.requests) == 1

        database.run_hub(use, allowed_addresses=("127.0.0.1",))


def test_a_repeated_question_is_asked_once_and_labelled_once(database: TestDatabase) -> None:
    with judge_server() as server:

        async def use(hub: Hub) -> None:
            project, agent = await world(hub, suite=JUDGED)
            await update_project(hub, LOCAL, project, {"settings": make_settings(server.url)})
            await set_secret(hub, LOCAL, project, "JUDGE_KEY", "k-1234567890")
            for text in ("Gladly.", "Gladly.", "Gladly.", "With pleasure."):
                await post(hub, {"data": {"text": text}, "platformId": agent})
            await evaluate_all(hub)
            assert (await list_waiting(hub, LOCAL, project)).indexing
            while await index_claims(hub):
                pass
            queue = await list_waiting(hub, LOCAL, project)
            assert (queue.total, queue.answers, queue.indexing) == (2, 4, False)
            assert sorted(one.applies_to for one in queue.waiting) == [1, 3]
            often = next(one for one in queue.waiting if one.applies_to == 3)
            label = NewAnnotation(subject=often.subject, subject_id=often.subject_id, claim=often.claim, label="pass")
            await create_annotation(hub, LOCAL, label)
            queue = await list_waiting(hub, LOCAL, project)
            assert (queue.total, queue.answers, queue.labelled, queue.second) == (1, 1, 1, 0)
            posed = await pose_next(hub, LOCAL, queue)
            assert posed is not None and posed.claim.answer == "With pleasure."

        database.run_hub(use, allowed_addresses=("127.0.0.1",))


def test_an_upgrade_indexes_what_was_decided_before(database: TestDatabase) -> None:
    with judge_server() as server:

        async def use(hub: Hub) -> None:
            project, agent = await world(hub, suite=JUDGED)
            await update_project(hub, LOCAL, project, {"settings": make_settings(server.url)})
            await set_secret(hub, LOCAL, project, "JUDGE_KEY", "k-1234567890")
            await post(hub, {"data": {"text": "Gladly."}, "platformId": agent})
            await evaluate_all(hub)
            async with hub.database.writing() as connection:
                # As an earlier version left it.
                await connection.execute(sa.delete(claims_due))
                await connection.run_sync(dict(STEPS)["0016_judged_claims"])
            assert await index_claims(hub) == 1 and await index_claims(hub) == 0
            queue = await list_waiting(hub, LOCAL, project)
            assert (queue.total, queue.indexing) == (1, False)
            one = queue.waiting[0]
            label = NewAnnotation(subject=one.subject, subject_id=one.subject_id, claim=one.claim, label="fail")
            made = await create_annotation(hub, LOCAL, label)
            async with hub.database.writing() as connection:
                await connection.execute(sa.update(annotation_rows).values(question=None))
            assert (await list_waiting(hub, LOCAL, project)).total == 1, "a label of an earlier version has no question"
            assert await index_claims(hub) == 1
            assert (await list_waiting(hub, LOCAL, project)).total == 0
            async with hub.database.writing() as connection:
                await delete_listed(connection, [Deletable(kind="trace", id=made["parent_id"], created_at="", size=0)])
                assert (await connection.execute(sa.select(sa.func.count()).select_from(judged_claims))).scalar_one() == 0

        database.run_hub(use, allowed_addresses=("127.0.0.1",))


def test_reviewers_give_second_opinions_and_see_how_far_they_agree(database: TestDatabase) -> None:
    first, second, third = (msgspec.structs.replace(LOCAL, key_id=f"key_{name}") for name in ("ann", "bob", "eve"))
    with judge_server() as server:

        async def use(hub: Hub) -> None:
            project, agent = await world(hub, suite=JUDGED)
            await update_project(hub, LOCAL, project, {"settings": make_settings(server.url)})
            await set_secret(hub, LOCAL, project, "JUDGE_KEY", "k-1234567890")
            for text in ("Gladly.", "With pleasure.", "No."):
                await post(hub, {"data": {"text": text}, "platformId": agent})
            await evaluate_all(hub)
            while await index_claims(hub):
                pass
            claims = (await list_waiting(hub, first, project)).waiting

            async def say(caller: Caller, place: int, word: Any) -> None:
                one = claims[place]
                await create_annotation(
                    hub, caller, NewAnnotation(subject=one.subject, subject_id=one.subject_id, claim=one.claim, label=word)
                )

            await say(first, 0, "pass")
            await say(first, 1, "fail")
            await say(first, 2, "skip")
            assert (await list_waiting(hub, first, project)).total == 0
            mine = await list_waiting(hub, second, project)
            assert (mine.total, mine.second) == (1, 2), "what was skipped waits for others"
            assert {one.subject_id for one in (await list_waiting(hub, second, project, second=True)).waiting} == {
                claims[0].subject_id,
                claims[1].subject_id,
            }
            await say(second, 0, "pass")
            await say(second, 1, "pass")
            await say(second, 1, "pass")
            found = await get_agreement(hub, second, project)
            reviewers = found["reviewers"]
            assert (reviewers["count"], reviewers["questions"], reviewers["agreed"]) == (2, 2, 1)
            assert reviewers["figures"]["accuracy"]["value"] == 0.5
            assert (found["labels"], found["tied"], found["repeated"]) == (1, 1, 0), "one pass and one fail: undecided"
            await say(third, 1, "fail")
            found = await get_agreement(hub, second, project)
            assert (found["labels"], found["tied"]) == (2, 0)
            assert sorted(one.item.label for one in (await read_agreement(hub, second, project)).judged) == [False, True]
            assert (await list_waiting(hub, second, project)).second == 0

        database.run_hub(use, allowed_addresses=("127.0.0.1",))
