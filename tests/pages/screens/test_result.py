"""One attempt as a page: marks, links there and back, durations, attempts side by side, and texts that would break a page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.model.verdict import Verdict
from proctor.service.hub import Hub
from proctor.service.runs.worker import make_range_finder
from proctor.store.runs.entry_digests import make_digest
from proctor.store.runs.entry_previews import make_shown
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.tables import run_entries
from tests.pages.markup import Markup
from tests.pages.world import World, add_run, decide, read_suite
from tests.report.html_reading import Page

SUITE = """\
proctor: 1
name: marks
cases:
  - id: a
    expect:
      - response_not_contains: secret
      - response_contains: hello
      - tool_called: {name: search, arguments: {q: {$contains: shoe}}}
      - json_field: {field: status, value: {$contains: ok}}
      - response_contains: nowhere
"""
OBSERVED: dict[str, Any] = {
    "text": "hello </script><b>secret</b>",
    "body": {"status": "it is ok"},
    "duration_ms": 900,
    "usage": {"input_tokens": 10, "output_tokens": 5},
    "tool_calls": [
        {"name": "search", "arguments": {"q": "red shoes"}, "duration_ms": 300},
        {"name": "search", "arguments": {"q": "x"}, "duration_ms": 200},
    ],
}
RUN = "/ui/p/proj_home/runs/run_marks"


def show(world: World, *observed: dict[str, Any], path: str = "/r/att_marks_0", suite: str = SUITE) -> str:
    made = read_suite(suite)
    entries = [decide(made, made.cases[0], one, number, "2026-11-15T09:00:00.000Z") for number, one in enumerate(observed)]
    world.service.run(lambda hub: add_run(hub, "run_marks", entries, document=suite))
    answer = world.get(RUN + path, "organization", headers={"accept-encoding": "gzip"})
    assert answer.status_code == 200
    page = Markup(answer.text)
    assert page.problems == [] and page.elements <= 2_000 and int(answer.headers["content-length"]) <= 30_000
    links = re.findall(r'href="(#[^"]+)"', answer.text)
    symbols = set(re.findall(r'<symbol id="([^"]+)"', answer.text))
    assert {link[1:] for link in links} <= {*page.ids, *symbols}
    return answer.text


def test_characters_are_marked_with_a_link_there_and_back(world: World) -> None:
    text = show(world, OBSERVED)
    marks = re.findall(
        r'<mark class="(\w+)" tabindex="-1" id="(m\d+)"><span class="hidden">[^<]* </span>([^<]*)<a class="back" href="#(a\d+)"', text
    )
    assert marks == [
        ("pass", "m3", "shoe", "a3"),
        ("pass", "m2", "hello", "a2"),
        ("fail", "m1", "secret", "a1"),
        ("pass", "m4", "ok", "a4"),
    ]
    assert set(re.findall(r'class="button tight" href="#(m\d+)"', text)) == {"m1", "m2", "m3", "m4"}
    assert "&lt;/script&gt;&lt;b&gt;<mark" in text


def test_characters_are_marked_in_what_a_step_put_out(world: World) -> None:
    suite = "proctor: 1\nname: steps\ncases: [{id: a, expect: [{node_called: {name: n, arguments: {x: {$contains: b}}}}]}]\n"
    text = show(world, {"text": "**hi**", "nodes": [{"name": "n", "output": {"x": "abc"}}]}, suite=suite)
    # A text without marks is rendered, with a copy as it was sent.
    assert "<strong>hi</strong>" in text and ">**hi**</pre>" in text
    assert re.findall(r'<mark class="(\w+)"[^>]*><span class="hidden">[^<]* </span>([^<]*)<', text) == [("pass", "b")]


def test_durations_are_drawn_and_written(world: World) -> None:
    text = show(world, OBSERVED)
    assert text.count('class="span"') == 3
    assert "starts after 300 ms, duration 200 ms" in text and "10 tokens in, 5 out" in text


def test_an_answer_of_ten_megabytes_is_shortened_around_what_is_marked(world: World) -> None:
    long = "x" * 5_000_000 + " hello " + "y" * 5_000_000
    text = show(world, {"text": long, "tool_calls": []})
    assert ">Found: </span>hello<a" in text and "The whole text, 10,000,007 characters" in text
    whole = world.get(RUN + "/r/att_marks_0/text?at=$.text", "organization")
    assert whole.text == long and whole.headers["content-type"].startswith("text/plain")
    assert whole.headers["x-content-type-options"] == "nosniff"


VERY_LONG: dict[str, dict[str, Any]] = {
    "the answer": {"text": "x" * 600_000 + " hello " + '"y"\n' * 200_000 + "secret", "tool_calls": []},
    "the body": {"text": "hello", "body": {"status": "it is ok", "note": 'a"\n\x01é' * 250_000}},
    "a call": {
        "text": "hello",
        "tool_calls": [{"name": "search", "arguments": {"q": "-" * 900_000 + "shoe" * 90_000}, "result": "r\n" * 600_000}],
    },
    "a turn": {"turns": [{"input": "hi", "text": "so " + "hello " * 200_000}, {"input": "more", "text": "secret"}]},
}


@pytest.mark.parametrize("name", VERY_LONG)
def test_the_digest_of_very_long_texts_makes_the_same_page(world: World, name: str) -> None:
    whole = show(world, VERY_LONG[name])
    suite = read_suite(SUITE)
    entry = decide(suite, suite.cases[0], VERY_LONG[name], 0, "2026-11-15T09:00:00.000Z")
    shown = make_shown(entry, make_range_finder(suite.cases))
    assert shown is not None and len(shown) < 100_000

    async def keep(hub: Hub) -> None:
        async with hub.database.writing() as connection:
            changed = sa.update(run_entries).where(run_entries.c.id == "att_marks_0")
            await connection.execute(changed.values(shown=shown, digest=make_digest(to_json(entry)), body=b"spoiled"))

    world.service.run(keep)
    again = world.get(f"{RUN}/r/att_marks_0", "organization").text
    # The proof in a form is another one each time.
    assert re.sub(r'value="[0-9a-f]{64}"', "", again) == re.sub(r'value="[0-9a-f]{64}"', "", whole)


@pytest.mark.parametrize("answer", ["\u202ehello\u202c", "he\u200bllo hello", "שלום hello", "\ufdd0hello\ufdd0"])
def test_text_that_hides_or_turns_is_written_out_around_a_mark(world: World, answer: str) -> None:
    text = show(world, {"text": answer, "tool_calls": []})
    assert ">Found: </span>hello<a" in text
    assert not re.search("[\u202e\u202c\u200b]", text)


def test_a_long_run_is_shown_in_parts_that_links_know(world: World) -> None:
    calls = [{"name": f"t{number}", "arguments": {"q": "shoe" if number == 150 else "x"}} for number in range(199)]
    calls[150]["name"] = "search"
    text = show(world, {"text": "hello", "tool_calls": calls})
    assert "Steps 1 to 80" in text and 'href="?step=81#m3"' in text and "t80" not in text
    later = world.get(f"{RUN}/r/att_marks_0?step=81", "organization").text
    assert 'id="m3"' in later and 'aria-current="true">Steps 81 to 160' in later


def test_attempts_stand_side_by_side_with_what_differs_first(world: World) -> None:
    text = show(world, OBSERVED, {**OBSERVED, "text": "hello again"}, path="/r/att_marks_0?with=att_marks_1")
    rows = re.findall(r'<tr( class="differs")?><th scope="row"><span dir="auto">([^<]*)', text)
    assert [bool(differs) for differs, _ in rows] == [True, False, False, False, False]
    assert {"a-m1", "a-m2", "b-m2", "a-a1", "b-a1"} <= set(Markup(text).ids)


def test_the_answers_of_a_judge_are_listed(world: World) -> None:
    samples = [
        {"model": "m1", "passed": True, "reason": "polite", "score": 0.9},
        {"model": "m2", "passed": False, "reason": "<b>rude</b>"},
        {"model": "m3", "code": "judge_timeout", "reason": "no answer"},
    ]
    suite = "proctor: 1\nname: s\ncases:\n  - {id: a, expect: [judged: it is polite]}\n"
    made = read_suite(suite)
    entry = decide(made, made.cases[0], {"text": "hi"}, 0, "2026-11-15T09:00:00.000Z")
    verdict = Verdict("fail", 0.4, "1 of 2: rude", None, {"samples": samples, "models": ["m1", "m2", "m3"]}, ("$.text",))
    judged = type(entry)(case="a", outcome="fail", verdicts=(verdict,), evidence=entry.evidence)
    world.service.run(lambda hub: add_run(hub, "run_marks", [judged], document=suite))
    words = Markup(world.get(f"{RUN}/r/att_marks_0", "organization").text).words
    assert "3 answers of the judge" in words and "passed: m1 0.90 polite" in words and "failed: m2 <b>rude</b>" in words


def test_unknown_evidence_is_shown_first(world: World) -> None:
    text = show(world, {"text": "hello"})
    words = Markup(text).words
    assert "unknown" in words and words.index("unknown") < words.index("Read by")


def test_rest_has_the_same_ranges(world: World) -> None:
    show(world, OBSERVED)
    got = world.get("/api/runs/run_marks/results/att_marks_0", "organization").json()["result"]["assertions"]
    assert [one.get("ranges") for one in got] == [
        [{"pointer": "$.text", "start": 18, "end": 24}],
        [{"pointer": "$.text", "start": 0, "end": 5}],
        [{"pointer": "$.tool_calls[0].arguments.q", "start": 4, "end": 8}],
        [{"pointer": "$.body.status", "start": 6, "end": 8}],
        None,
    ]
    report = json.loads(world.get("/api/runs/run_marks/report?format=json", "organization").text)
    assert report["cases"][0]["assertions"] == got


def test_a_report_that_has_looked_for_long_enough_comes_without_the_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    show(world, OBSERVED)
    monkeypatch.setattr("proctor.service.runs.results.RANGES_S", -1.0)
    report = json.loads(world.get("/api/runs/run_marks/report?format=json", "organization").text)
    assert report["cases"][0]["exchange"]["answer"] == OBSERVED["text"]
    assert not any("ranges" in one for one in report["cases"][0]["assertions"])
    page = Page(world.get("/api/runs/run_marks/report?format=html", "organization").text)
    assert "Forbidden, and found:" not in page.read_case("a")
    monkeypatch.setattr("proctor.service.runs.results.RANGES_S", 5.0)
    page = Page(world.get("/api/runs/run_marks/report?format=html", "organization").text)
    assert "Forbidden, and found:" in page.read_case("a")
