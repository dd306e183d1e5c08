from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from proctor.model.judgement import Opinion, Question
from proctor.service.access.audit import list_notes
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.keys import authenticate
from proctor.service.access.secret_box import SecretBox
from proctor.service.access.secrets import relock_all
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.benchmarks import create_benchmark, publish_benchmark
from proctor.service.verification.authoring.criteria import create_criterion
from proctor.service.verification.authoring.tasks import create_task
from proctor.service.verification.runs import states, task_runs, verifying
from proctor.service.verification.runs.benchmark_runs import (
    complete_benchmark_run,
    create_benchmark_run,
    get_benchmark_run,
    put_benchmark_run_state,
)
from proctor.service.verification.runs.legacy_evals import create_eval
from proctor.service.verification.runs.public_runs import complete_public_task_run, get_public_run, start_public_run, start_public_task_run
from proctor.service.verification.runs.task_runs import (
    complete_task_run,
    get_task_run,
    list_criterion_runs,
    put_task_run_state,
    start_task_run,
)
from proctor.store.sql.tables import records
from tests.databases import TestDatabase

FILE = {"assert": "sftp-file-present", "path": "outbound/*.json"}
STATE = {"files": [{"path": "outbound/claim.json", "content": "{}"}]}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


async def benchmark(hub: Hub, *, tasks: int = 1, assertion: Any = FILE, **fields: Any) -> str:
    made = await create_benchmark(hub, LOCAL, {"name": "Claims", **fields})
    for number in range(tasks):
        task = await create_task(hub, LOCAL, {"benchmark_id": made["id"], "name": f"t{number}"})
        if isinstance(assertion, str):
            await create_eval(hub, LOCAL, {"task_id": task["id"], "label": "x", "assert": assertion})
        else:
            await create_criterion(hub, LOCAL, {"task_id": task["id"], "label": "x", "assertion": assertion})
    return made["id"]


async def run_of(hub: Hub, **fields: Any) -> dict[str, Any]:
    return await create_benchmark_run(hub, LOCAL, {"benchmark_id": await benchmark(hub, **fields)})


async def refused(awaited: Any, code: str) -> str:
    with pytest.raises(Refusal) as caught:
        await awaited
    assert caught.value.code == code
    return caught.value.message


def test_a_task_over_its_time_fails_with_score_zero_for_every_reader(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        run = await run_of(hub, tasks=2, timeout=60)
        first, second = (task["id"] for task in run["task_runs"])
        await put_benchmark_run_state(hub, LOCAL, run["id"], STATE)
        await start_task_run(hub, LOCAL, first)
        clock.now += 60
        assert (await get_task_run(hub, LOCAL, first))["status"] == "active"
        clock.now += 1
        late = await get_task_run(hub, LOCAL, first)
        assert (late["status"], late["phase"], late["verdict"], late["score"]) == ("timed_out", "completed", "fail", 0.0)
        assert late["criterion_runs"] == []
        await refused(complete_task_run(hub, LOCAL, first), "CONFLICT")
        # It does not stand in the way of the next, which may be completed in time.
        await start_task_run(hub, LOCAL, second)
        done = await complete_task_run(hub, LOCAL, second)
        assert (done["status"], done["score"]) == ("completed", 1.0)
        whole = await get_benchmark_run(hub, LOCAL, run["id"])
        assert (whole["status"], whole["score"], whole["verdict"]) == ("completed", 0.5, "partial")

    database.run_hub(use, clock=clock)


def test_completing_too_late_is_answered_as_a_timeout(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        await publish_benchmark(hub, LOCAL, await benchmark(hub, timeout=60))
        run = await start_public_run(hub, LOCAL, {"benchmark": "claims@1"})
        agent = await authenticate(hub, run["bearer_token"])
        assert agent is not None
        task = run["task_runs"][0]["id"]
        await start_public_task_run(hub, agent, task)
        await put_task_run_state(hub, LOCAL, task, STATE)
        clock.now += 61
        done = await complete_public_task_run(hub, agent, task)
        assert (done["status"], done["verdict"], done["score"], done["criterion_runs"]) == ("timed_out", "fail", 0.0, [])
        final = await get_public_run(hub, agent, run["benchmark_run_id"])
        assert (final["status"], final["score"], final["verdict"]) == ("completed", 0.0, "fail")
        await refused(put_task_run_state(hub, LOCAL, task, STATE), "CONFLICT")
        clock.now += 24 * 3600
        assert await authenticate(hub, run["bearer_token"]) is None

    database.run_hub(use, clock=clock)


def test_starting_another_task_ends_one_that_is_over_its_time(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        run = await run_of(hub, tasks=2, timeout=10)
        first, second = (task["id"] for task in run["task_runs"])
        await start_task_run(hub, LOCAL, first)
        await refused(start_task_run(hub, LOCAL, second), "CONFLICT")
        clock.now += 11
        assert (await start_task_run(hub, LOCAL, second))["phase"] == "started"
        assert (await get_task_run(hub, LOCAL, first))["status"] == "timed_out"
        # A refusal does not undo an expiry.
        clock.now += 11
        await refused(start_task_run(hub, LOCAL, second), "CONFLICT")
        async with hub.database.reading() as connection:
            bodies = (await connection.execute(sa.select(records.c.body).where(records.c.kind == "benchmark_run"))).scalars().all()
        assert [body["status"] for body in bodies] == ["completed"]

    database.run_hub(use, clock=clock)


async def test_a_task_run_is_completed_once_however_many_ask_at_once(hub: Hub) -> None:
    run = await run_of(hub, tasks=2)
    first, second = (task["id"] for task in run["task_runs"])
    await put_benchmark_run_state(hub, LOCAL, run["id"], STATE)
    requests = [complete_task_run(hub, LOCAL, id) for id in (first, second) for _ in range(4)]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert sum(isinstance(answer, dict) for answer in answers) == 2
    assert {answer.code for answer in answers if isinstance(answer, Refusal)} == {"CONFLICT"}
    assert len((await list_criterion_runs(hub, LOCAL))["data"]) == 2
    assert (await get_benchmark_run(hub, LOCAL, run["id"]))["status"] == "completed"


async def test_only_one_task_of_a_run_is_started_however_many_ask_at_once(hub: Hub) -> None:
    run = await run_of(hub, tasks=4)
    answers = await asyncio.gather(*(start_task_run(hub, LOCAL, task["id"]) for task in run["task_runs"]), return_exceptions=True)
    assert sum(isinstance(answer, dict) for answer in answers) == 1


async def test_a_state_that_is_uploaded_while_a_task_is_verified_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    run = await run_of(hub)
    task = run["task_runs"][0]["id"]
    seen: list[bool] = []

    async def verify(hub: Hub, snapshot: Any, evidence: Any, **more: Any) -> Any:
        seen.append(evidence.state is not None)
        if len(seen) == 1:
            await put_task_run_state(hub, LOCAL, task, STATE)
        return await verifying.verify(hub, snapshot, evidence, **more)

    monkeypatch.setattr(task_runs, "verify", verify)
    done = await complete_task_run(hub, LOCAL, task)
    assert seen == [False, True] and done["score"] == 1.0


async def test_nothing_is_left_half_done_when_verifying_breaks(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    run = await run_of(hub)
    task = run["task_runs"][0]["id"]
    await put_task_run_state(hub, LOCAL, task, STATE)

    async def broken(*_: Any, **more: Any) -> Any:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(task_runs, "verify", broken)
        with pytest.raises(OSError):
            await complete_task_run(hub, LOCAL, task)
    assert (await get_task_run(hub, LOCAL, task))["status"] == "active"
    assert (await complete_task_run(hub, LOCAL, task))["score"] == 1.0


class ScriptedJudge:
    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.criteria: list[str] = []
        self.shown = ""
        self.closed = False

    async def judge(self, questions: Sequence[Question], **_: Any) -> list[Opinion]:
        self.criteria += [question.criterion for question in questions]
        self.shown += str([msgspec.to_builtins(question.material) for question in questions])
        return [Opinion(outcome=self.outcome, score=1.0 if self.outcome == "pass" else 0.0, reason="so it is") for _ in questions]

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("outcome", "passed", "verdict"), [("pass", True, "pass"), ("fail", False, "fail"), ("error", False, "fail")])
def test_sentences_are_judged_where_there_is_a_judge(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch, outcome: str, passed: bool, verdict: str
) -> None:
    judge = ScriptedJudge(outcome)
    monkeypatch.setattr(verifying, "_open_judge", lambda *_: type("Opened", (), {"judge": judge}))

    async def use(hub: Hub) -> None:
        run = await run_of(hub, assertion="A claim was filed.")
        task = run["task_runs"][0]["id"]
        await put_task_run_state(hub, LOCAL, task, STATE)
        done = await complete_task_run(hub, LOCAL, task)
        (criterion,) = done["criterion_runs"]
        assert (criterion["passed"], criterion["outcome"], done["verdict"]) == (passed, outcome, verdict)

    database.run_hub(use)
    assert "A claim was filed." in judge.criteria[0] and judge.closed


async def test_without_a_judge_a_sentence_is_an_error_with_a_reason(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.delenv("PROCTOR_JUDGE_MODEL", raising=False)
    run = await run_of(hub, assertion="A claim was filed.")
    await put_benchmark_run_state(hub, LOCAL, run["id"], STATE)
    done = await complete_benchmark_run(hub, LOCAL, run["id"])
    (criterion,) = done["task_runs"][0]["criterion_runs"]
    assert criterion["outcome"] == "error" and criterion["details"].startswith("error: ") and "judge" in criterion["details"]
    assert (done["verdict"], done["outcome"]) == ("fail", "error")


def test_a_judge_is_shown_no_secret_of_the_state(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = ScriptedJudge("pass")
    monkeypatch.setattr(verifying, "_open_judge", lambda *_: type("Opened", (), {"judge": judge}))

    async def use(hub: Hub) -> None:
        run = await run_of(hub, assertion="The claim was authorised.")
        task = run["task_runs"][0]["id"]
        row = {"status": "sent", "prior_authorization": "PA-4711-x", "credentials": {"pin": 778134}}
        await put_task_run_state(hub, LOCAL, task, {"portal": {"rows": [row]}})
        assert (await complete_task_run(hub, LOCAL, task))["verdict"] == "pass"

    database.run_hub(use)
    assert "sent" in judge.shown and "[redacted]" in judge.shown and "4711" not in judge.shown and "778134" not in judge.shown


async def test_a_state_that_is_to_be_verified_is_locked_with_the_newest_key(hub: Hub) -> None:
    old, new = "the old and long passphrase", "the new and long passphrase"

    def under(keys: str) -> Hub:
        return Hub(database=hub.database, settings=hub.settings, secret_box=SecretBox(hub.settings.home, keys))

    claim = {
        "assert": "portal-state-match",
        "correlate_by": {"resource": "rows"},
        "assertions": [{"path": "token", "expected": "abcd-efgh"}],
    }
    run = await run_of(hub, assertion=claim)
    task = run["task_runs"][0]["id"]
    await put_task_run_state(under(old), LOCAL, task, {"portal": {"rows": [{"token": "abcd-efgh"}]}})
    assert "cannot be decrypted" in await refused(complete_task_run(under(new), LOCAL, task), "CONFLICT")
    assert await relock_all(under(f"{new},{old}")) == 1
    assert (await complete_task_run(under(new), LOCAL, task))["score"] == 1.0


async def test_a_foreign_snapshot_is_an_error_and_no_crash(hub: Hub) -> None:
    evidence = states.Evidence()
    for criteria in ([{"id": "a", "weight": -1}], [{"id": "a", "assertion": {"assert": "nonsense"}}], [{"id": "a"}]):
        found = await verifying.verify(hub, {"id": "t", "name": "t", "criteria": criteria}, evidence, who=("o", "k"))
        assert [entry["passed"] for entry in found.criteria] == [False] and found.verdict == "fail" and found.score == 0.0


FIGURES: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([{"score": 0.9, "outcome": "pass"}, {"score": 0.0, "outcome": "fail"}], {"score": 0.45, "verdict": "partial", "outcome": "fail"}),
    ([{"score": 0.9, "outcome": "pass"}], {"score": 0.9, "verdict": "pass", "outcome": "pass"}),
    ([{"score": 1.0, "outcome": "pass"}, {"score": 0.9, "outcome": "error"}], {"score": 0.95, "verdict": "partial", "outcome": "error"}),
    ([{"score": 1.0, "outcome": "pass"}, {"score": None, "outcome": "skip"}], {"score": 1.0, "verdict": "pass", "outcome": "pass"}),
    ([{"score": None, "outcome": "skip"}], {"score": None, "verdict": None, "outcome": "skip"}),
]


@pytest.mark.parametrize(("tasks", "figures"), FIGURES)
def test_a_run_is_the_plain_mean_of_its_tasks(tasks: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    assert verifying.score_run(tasks) == figures


async def test_every_write_is_in_the_audit_log_without_content(hub: Hub) -> None:
    run = await run_of(hub)
    await put_task_run_state(hub, LOCAL, run["task_runs"][0]["id"], STATE)
    await complete_benchmark_run(hub, LOCAL, run["id"])
    notes = (await list_notes(hub, LOCAL, limit=100))["data"]
    seen = {(entry["action"], entry["resource"]) for entry in notes}
    assert {("create", "benchmark"), ("create", "task"), ("create", "criterion"), ("create", "benchmark_run")} <= seen
    assert {("upload_state", "task_run"), ("completed", "task_run"), ("completed", "benchmark_run")} <= seen
    assert "claim.json" not in str(notes)


async def test_rows_of_other_organizations_are_not_seen(hub: Hub) -> None:
    other = Caller(organization_id="org_other")
    run = await run_of(hub)
    await refused(get_benchmark_run(hub, other, run["id"]), "NOT_FOUND")
    await refused(complete_benchmark_run(hub, other, run["id"]), "NOT_FOUND")
    await refused(put_benchmark_run_state(hub, other, run["id"], STATE), "NOT_FOUND")
    await refused(get_public_run(hub, other, run["id"]), "NOT_FOUND")
    await refused(create_benchmark_run(hub, other, {"benchmark_id": run["benchmark_id"]}), "NOT_FOUND")
