"""The overview of a project over HTTP: changed outcomes, news and cost."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.model.run import RunEntry
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.runs import comparisons
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import alert_rules, results
from tests.pages.conftest import url, world, world_template  # noqa: F401  # fixtures
from tests.pages.world import GOOD, World, add_run, decide_all

SINCE = "2026-11-16"


def ask(world: World, since: str = SINCE, who: str = "organization") -> Any:  # noqa: F811  # the fixture's name
    answer = world.service.get(f"/api/projects/proj_home/overview?since={since}", key=world.keys[who])
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_newest_run_is_compared_with_the_previous_one(world: World) -> None:  # noqa: F811
    found = ask(world)
    assert [point["run_id"] for point in found["trend"]] == ["run_before", "run_after"]
    assert found["trend"][0]["rate"] == 1.0 and 0.7 < found["trend"][0]["low"] < 1
    assert found["new_runs"] == {"completed": 1} and not found["more_runs"]
    (suite,) = found["suites"]
    assert (suite["run_id"], suite["before_id"], suite["verdict"]) == ("run_after", "run_before", "regressed")
    assert suite["effect"] == pytest.approx(-2 / 3) and suite["low"] < suite["effect"] < suite["high"] < 0
    failing = suite["newly_failing"]
    assert failing["total"] == 2 and {case["case"] for case in failing["cases"]} == {"refund-twice", "opening-hours"}
    assert all(case["reason"] and case["before"] == {"runs": 4, "passes": 4} for case in failing["cases"])
    assert suite["newly_passing"]["total"] == suite["within_chance"] == 0


def test_the_comparison_of_two_finished_runs_is_computed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    first = ask(world)["suites"]
    monkeypatch.setattr(comparisons, "_compare_with", lambda *given: pytest.fail("both were compared before"))
    assert ask(world)["suites"] == first != []


def test_cases_that_pass_again_are_listed_and_changes_within_chance_are_counted(world: World) -> None:  # noqa: F811
    again = decide_all(GOOD, repeat=4)
    mixed = [
        entry if entry.case != "greeting" or entry.attempt else RunEntry(case="greeting", attempt=0, outcome="fail") for entry in again
    ]
    world.service.run(lambda hub: add_run(hub, "run_again", mixed, repeat=4, at="2026-11-17T09:00:00.000Z"))
    (suite,) = ask(world, "2026-11-17")["suites"]
    assert suite["before_id"] == "run_after" and suite["verdict"] == "improved"
    assert {case["case"] for case in suite["newly_passing"]["cases"]} == {"refund-twice", "opening-hours"}
    # One of four attempts at the greeting failed, which may be chance.
    assert suite["newly_failing"]["total"] == 0 and suite["within_chance"] == 1


def test_a_soak_run_in_between_is_not_the_base(world: World) -> None:  # noqa: F811
    world.service.run(lambda hub: add_run(hub, "run_soak", decide_all(GOOD), at="2026-11-16T08:00:00.000Z", name="soak"))
    (suite,) = ask(world)["suites"]
    assert suite["before_id"] == "run_before"


def test_a_single_soak_run_after_it_does_not_hide_what_the_nightly_run_broke(world: World) -> None:  # noqa: F811
    soak = decide_all(GOOD, repeat=8)
    world.service.run(lambda hub: add_run(hub, "run_soak", soak, repeat=8, at="2026-11-16T10:00:00.000Z", name="soak"))
    (suite,) = ask(world)["suites"]
    assert (suite["run_id"], suite["before_id"], suite["verdict"]) == ("run_after", "run_before", "regressed")
    # Two of them are a kind of their own.
    world.service.run(lambda hub: add_run(hub, "run_soak2", soak, repeat=8, at="2026-11-16T11:00:00.000Z", name="soak"))
    pairs = [(suite["run_id"], suite["before_id"]) for suite in ask(world)["suites"]]
    assert pairs == [("run_soak2", "run_soak"), ("run_after", "run_before")]


def test_a_first_run_and_a_day_without_runs_are_shown(world: World) -> None:  # noqa: F811
    assert ask(world, "2026-11-18")["suites"] == [] and ask(world, "2026-11-18")["new_runs"] == {}
    more = {"suite_name": "other", "at": "2026-11-18T09:00:00.000Z"}
    world.service.run(lambda hub: add_run(hub, "run_other", decide_all(GOOD), **more))
    (suite,) = ask(world, "2026-11-18")["suites"]
    assert (suite["suite_name"], suite["before_id"], suite["newly_failing"]["total"]) == ("other", None, 0)


def test_a_case_that_may_fail_now_and_then_has_not_turned(world: World) -> None:  # noqa: F811
    document = "proctor: 1\nname: rates\ncases:\n  - {id: a, pass_rate: 0.5, expect: [{response_contains: x}]}\n"

    def make(outcomes: str) -> list[RunEntry]:
        return [RunEntry(case="a", attempt=number, outcome=outcome) for number, outcome in enumerate(outcomes.split())]

    for id, at, outcomes in (("run_r1", "2026-11-20", "pass pass pass pass"), ("run_r2", "2026-11-21", "pass fail pass pass")):
        more: dict[str, Any] = {"suite_name": "rates", "document": document, "repeat": 4, "at": f"{at}T09:00:00.000Z"}
        world.service.run(lambda hub, id=id, outcomes=outcomes, more=more: add_run(hub, id, make(outcomes), **more))
    (suite,) = ask(world, "2026-11-21")["suites"]
    assert suite["newly_failing"]["total"] == 0 and suite["within_chance"] == 1


def test_new_reasons_of_traces_and_firing_alerts_are_shown(world: World) -> None:  # noqa: F811
    async def sow(hub: Hub) -> None:
        own = {"organization_id": LOCAL.organization_id, "project_id": "proj_home"}
        async with hub.database.writing() as connection:
            for number, (day, reason) in enumerate((("15", "took 9 ms"), ("16", "took 812 ms"), ("16", "no call of 'refund'"))):
                at = {"created_at": f"2026-11-{day}T10:00:00.000Z", "updated_at": f"2026-11-{day}T10:00:00.000Z"}
                body = pack(
                    {
                        "outcome": "fail",
                        "assertions": [{"check": "c", "outcome": "pass"}, {"check": "d", "outcome": "fail", "reason": reason}],
                    }
                )
                row = {"id": f"res_{number}", "agent_id": "agent_home_1", "trace_id": f"trc_{number}", "case_id": "c", "case_version": 1}
                await connection.execute(
                    results.insert().values(**own, **row, case_key="k", trace_revision=1, outcome="fail", body=body, **at)
                )
            rule = {"id": "alr_1", "name": "too many", "kind": "pass_rate", "settings": {}, "webhook_url": "https://example.com/", **at}
            await connection.execute(alert_rules.insert().values(**own, **rule, active=True, state="firing"))

    world.service.run(sow)
    found = ask(world)
    assert [(one["reason"], one["count"], one["trace_id"]) for one in found["reasons"]] == [("d: no call of 'refund'", 1, "trc_2")]
    assert found["more_reasons"] == 0 and [rule["name"] for rule in found["alerts"]] == ["too many"]
    assert ask(world, who="project")["alerts"] is None
    text = world.get(f"/ui/p/proj_home?since={SINCE}", "organization").text
    assert "1 new reason for failing traces" in text and "too many" in text and 'class="rates"' in text


def test_a_time_that_is_none_is_refused(world: World) -> None:  # noqa: F811
    assert world.service.get("/api/projects/proj_home/overview?since=never", key=world.keys["organization"]).status_code == 400
