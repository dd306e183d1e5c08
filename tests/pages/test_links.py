"""Links of pages: from a run to the previous one, from an attempt to the next failure, its history and its earlier case."""

from __future__ import annotations

import re

import pytest

from proctor.model.verdict import Verdict
from proctor.pages import drawing as draw
from proctor.pages.pictures import RatePoint, draw_rates
from tests.pages.markup import Markup
from tests.pages.trace_seeds import add_trace, make_spans
from tests.pages.world import BAD, GOOD, World, add_run, decide, decide_all, read_suite

HOME = "/ui/p/proj_home"


def test_a_run_shows_its_rate_with_unit_and_change(seen: World) -> None:
    text = seen.get(f"{HOME}/runs/run_after", "organization").text
    words = Markup(text).words
    assert "33.3 % of 12 attempts passed; 1 of 3 cases" in words
    assert "regressed −66.7 points (−86.2 to −29.9) since" in words and f'href="{HOME}/runs/run_before"' in text
    assert words.count("new ") >= 2 and "<title>new prompt · 33.3 % · shop · proctor</title>" in text
    assert f'href="{HOME}/runs/new?run=run_after"' in text
    totals = seen.service.get("/api/runs/run_after/totals", key=seen.keys["project"]).json()
    assert (totals["cases"], totals["cases_passed"], totals["cost"]) == (3, 1, None)


def test_the_list_of_runs_has_the_change_since_the_previous_run(seen: World) -> None:
    words = Markup(seen.get(f"{HOME}/runs", "organization").text).words
    assert "−66.7 points" in words and words.count("points") == 1
    assert "shop" in Markup(seen.get(f"{HOME}/runs?suite=shop", "organization").text).words
    assert "No matching runs." in Markup(seen.get(f"{HOME}/runs?suite=other", "organization").text).words


def test_the_failing_attempts_of_a_run_lead_from_one_to_the_next(seen: World) -> None:
    address, places = f"{HOME}/runs/run_after/r/att_after_0", list[str]()
    # From the last to the first.
    while True:
        text = seen.get(address, "organization").text
        places += re.findall(r"(\d+) of 8 failing", text)
        previous = re.search(r'href="([^"]+)" data-key="P"', text)
        if previous is None:
            break
        address = previous[1]
    assert places == [str(number) for number in range(8, 0, -1)]
    assert "steps-of" not in seen.get(f"{HOME}/runs/run_before/r/att_before_0", "organization").text


def test_an_attempt_leads_to_its_history_and_to_its_case_in_the_previous_run(seen: World) -> None:
    text = seen.get(f"{HOME}/runs/run_after/r/att_after_0", "organization").text
    assert f'href="{HOME}/history?suite=shop&amp;case=refund-twice"' in text
    assert f'href="{HOME}/runs/run_before?case=refund-twice#all"' in text and "4 of 4 attempts passed" in Markup(text).words
    assert f'href="{HOME}/compare/answers?runs=run_before,run_after&amp;case=refund-twice"' in text


def test_runs_of_one_name_are_distinguished_in_a_history(world: World) -> None:
    for number, note in enumerate(("first prompt", "second prompt"), 1):
        at = f"2026-11-17T0{number}:00:00.000Z"
        world.service.run(
            lambda hub, at=at, note=note, id=f"run_{number}": add_run(hub, id, decide_all(GOOD), name="nightly", note=note, at=at)
        )
    text = world.get(f"{HOME}/history?suite=shop&case=refund-twice", "organization").text
    assert re.findall("<bdi>nightly · ([^<]+ prompt)</bdi>", text)[:2] == ["second prompt", "first prompt"]
    assert re.search(r'data-exact><time[^>]*datetime="2026-11-17T02:00:00.000Z"', text)
    rows = world.get("/api/projects/proj_home/case-history?suite=shop&case=refund-twice", "organization").json()["data"]
    assert [row["note"] for row in rows[:2]] == ["second prompt", "first prompt"]


def test_a_run_is_started_again_with_what_it_was_started_with(world: World) -> None:
    world.service.run(lambda hub: add_run(hub, "run_again", decide_all(GOOD), name="nightly", at="2026-11-17T09:00:00.000Z"))
    text = world.get(f"{HOME}/runs/new?run=run_again", "organization").text
    assert 'value="nightly"' in text and "id: refund-twice" in text and Markup(text).problems == []


def test_a_project_with_failing_traces_shows_it_on_its_card(seen: World) -> None:
    text = seen.get("/ui/", "organization").text
    assert re.search(r"\d of \d fail \(", Markup(text).words) and f'href="{HOME}/traces?outcome=fail"' in text


def test_a_run_of_other_cases_or_repeats_is_no_base_for_a_difference() -> None:
    run = {"counts": {"pass": 9, "fail": 1}, "repeat": 3, "selection": None}
    assert draw.subtract(run, {**run, "counts": {"pass": 5, "fail": 5}}) is not None
    assert draw.subtract(run, {**run, "repeat": 50}) is None and draw.subtract(run, {**run, "selection": "refund"}) is None


def test_a_verdict_of_a_judge_is_contested_at_the_attempt_which_also_makes_a_case(world: World) -> None:
    suite = "proctor: 1\nname: s\ncases:\n  - {id: a, expect: [judged: it is polite]}\n"
    made = read_suite(suite)
    entry = decide(made, made.cases[0], {"text": "hi"}, 0, "2026-11-15T09:00:00.000Z")
    verdict = Verdict("fail", 0.4, "rude", None, {"judge": "m1"}, ("$.text",))
    judged = type(entry)(case="a", outcome="fail", verdicts=(verdict,), evidence=entry.evidence)
    world.service.run(lambda hub: add_run(hub, "run_judged", [judged], document=suite))
    address = f"{HOME}/runs/run_judged/r/att_judged_0"
    assert 'class="contest"' not in world.get(address, "project").text
    text = world.get(address, "organization").text
    assert f'href="{HOME}/cases/new?attempt=att_judged_0"' in text and Markup(text).problems == []
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', text.partition('class="contest"')[2]))
    assert fields["back"] == f"{address}#a1"
    saved = world.post(f"{HOME}/labels", "organization", label="pass", **fields)
    assert (saved.status_code, saved.headers["location"]) == (303, fields["back"])
    assert re.search(r'value="pass" aria-pressed="true"', world.get(address, "organization").text)


def test_a_reason_is_new_if_the_previous_run_did_not_fail_for_it(world: World) -> None:
    # The same check with another value: only the claim distinguishes them.
    before, after = {**GOOD, "opening-hours": BAD["opening-hours"]}, {**GOOD, "greeting": {"text": "no", "tool_calls": []}}
    world.service.run(lambda hub: add_run(hub, "run_one", decide_all(before), name="n", at="2026-11-17T09:00:00.000Z"))
    world.service.run(lambda hub: add_run(hub, "run_two", decide_all({**before, **after}), name="n", at="2026-11-18T09:00:00.000Z"))
    groups = world.get(f"{HOME}/runs/run_two", "organization").text.split('<li class="sheet fail"')[1:]
    assert {"response_contains · hello" in group: ">new<" in group for group in groups} == {True: True}
    world.service.run(lambda hub: add_run(hub, "run_six", decide_all({**before, **after}), name="n", at="2026-11-19T09:00:00.000Z"))
    assert ">new<" not in world.get(f"{HOME}/runs/run_six", "organization").text


def test_lines_of_the_trend_join_the_runs_of_one_suite() -> None:
    points = [RatePoint((0.5, 0.4, 0.6), f"run {number}", "/", suite) for number, suite in enumerate("abab")]
    drawn = draw_rates([*points, RatePoint(None, "run 4", "/", "a")], "trend")
    lines = [line.split() for line in re.findall(r'<polyline points="([^"]+)"', drawn)]
    assert len(lines) == 2 and {len(line) for line in lines} == {2} and not set(lines[0]) & set(lines[1])


def list_rows(text: str) -> list[str]:
    return re.findall(r'<tr id="([^"]+)" data-row', text)


@pytest.mark.parametrize(
    "order, expected",
    [
        ("rate", ["run_after", "run_before"]),
        ("-rate", ["run_before", "run_after"]),
        ("name", ["run_after", "run_before"]),
        ("-started", ["run_after", "run_before"]),
        ("started", ["run_before", "run_after"]),
        ("since", ["run_after", "run_before"]),  # the first run has no run before it: last
        ("-since", ["run_after", "run_before"]),
        ("nonsense", ["run_after", "run_before"]),
    ],
)
def test_columns_of_runs_sort_the_whole_list_by_links(seen: World, order: str, expected: list[str]) -> None:
    text = seen.get(f"{HOME}/runs?status=completed&sort={order}", "organization").text
    assert [id for id in list_rows(text) if id in expected] == expected
    # The other direction, then none; filters and the order stay in the address.
    turned = order.removeprefix("-") if order.startswith("-") else f"-{order}"
    if order in ("rate", "started"):
        following = "?status=completed" if order == "started" else f"?sort={turned}&amp;status=completed"
        assert f'aria-sort="ascending"><a class="sorter" href="{following}">' in text
        assert f'href="?status=running&amp;sort={order}"' in text and f'<input type="hidden" name="sort" value="{order}">' in text


def test_columns_of_traces_sort_by_links(seen: World) -> None:
    found = list_rows(seen.get(f"{HOME}/traces?sort=-duration&outcome=fail", "organization").text)
    assert set(found) == set(list_rows(seen.get(f"{HOME}/traces?sort=duration&outcome=fail", "organization").text)) and found
    text = seen.get(f"{HOME}/traces?sort=received", "organization").text
    assert list_rows(text) == list_rows(seen.get(f"{HOME}/traces", "organization").text)[::-1]
    # A facet and the search keep the order.
    assert re.search(r'href="\?sort=received&amp;outcome=fail"', text) and '<input type="hidden" name="sort" value="received">' in text


def test_the_cost_of_a_trace_is_shown_if_the_project_has_prices(world: World) -> None:
    spans = make_spans()
    for span in spans:
        if span.name == "chat small":
            span.attributes["gen_ai.usage.output_tokens"] = 10
    world.service.run(lambda hub: add_trace(hub, "priced", spans))
    paths = (f"{HOME}/traces?sort=cost", f"{HOME}/traces/trc_priced")
    assert not [path for path in paths if "Cost" in world.get(path, "organization").text]
    prices = {"small": {"input": 1, "output": 2, "per": 1000}}
    headers = {"authorization": f"Bearer {world.keys['organization']}"}
    assert world.ask("PATCH", "/api/projects/proj_home", json={"settings": {"prices": prices}}, headers=headers).status_code == 200
    listed, page = (world.get(path, "organization").text for path in paths)
    assert list_rows(listed)[0] == "trc_priced", "the cost of the others is unknown"
    assert re.findall(r'<td data-label="Cost" class="number">([^<]+)</td>', listed) == ["0.68 USD"]
    assert "<dt>Cost</dt><dd>0.68 USD</dd>" in page


def test_an_unknown_address_keeps_the_navigation_of_its_project(seen: World) -> None:
    found = seen.get(f"{HOME}/nowhere/else", "organization")
    assert found.status_code == 404 and f'<a href="{HOME}/runs">' in found.text and f'<a href="{HOME}">' in found.text
    assert seen.get("/ui/p/proj_nobody/nowhere", "organization").status_code == 404
    assert seen.get("/ui/p/foreign_home/nowhere", "organization").status_code == 404


def test_runs_have_the_same_name_on_every_page(world: World) -> None:
    observed = decide_all(GOOD)
    for at, note in (("2026-11-17T09:00:00.000Z", "old prompt"), ("2026-11-18T09:00:00.000Z", "new prompt")):
        world.service.run(lambda hub, at=at, note=note: add_run(hub, f"run_{note[:3]}", observed, name="nightly", note=note, at=at))
    pair = "runs=run_old,run_new"
    for path in (HOME, f"{HOME}/runs", f"{HOME}/runs/run_new", f"{HOME}/compare?{pair}", f"{HOME}/compare/answers?{pair}&case=greeting",
                 f"{HOME}/history?suite=shop&case=greeting", "/ui/", "/ui/search?q=nightly"):  # fmt: skip
        assert "nightly · new prompt" in Markup(world.get(path, "organization").text).words, path
