"""Reports of a calibration: the same finding as text, JSON and a page that nothing in it can break out of."""

from __future__ import annotations

import json
import re

import pytest

from proctor.actions.calibration.calibrate import starter_labels
from proctor.model.judgement import JudgedAnswer, LabelledAnswer, Opinion
from proctor.report.builders.calibration import build_calibration
from proctor.report.data.calibration_json import render_calibration_json
from proctor.report.document.html import write_html
from proctor.report.document.terminal import write_terminal
from proctor.scoring.calibration import Calibration, summarize_calibration
from proctor.sources.labels import read_labels
from tests.report.html_reading import Page

HOSTILE = "</dd><script>alert(1)</script>\x1b[31m\u202eevil {policy} %s & \"quotes\" 'x' <img src=x onerror=alert(1)> \ud83d"


def render_calibration(calibration: Calibration, *, colour: bool = False) -> str:
    return write_terminal(build_calibration(calibration, "terminal"), colour=colour)


def render_calibration_html(calibration: Calibration) -> str:
    return write_html(build_calibration(calibration, "html"))


def judged(label: bool, score: float, **more: object) -> JudgedAnswer:
    item = LabelledAnswer(answer=more.pop("answer", f"{score}"), criterion="It is right.", label=label, **more)  # type: ignore[arg-type]
    return JudgedAnswer(item=item, opinion=Opinion(outcome="pass" if score >= 0.8 else "fail", score=score, reason=f"because of {score}"))


def likes_length(item: LabelledAnswer) -> Opinion:
    """A judge that takes long answers for good ones, and runs out of time on the longest."""
    length = len(str(item.answer))
    if length > 900:
        return Opinion(outcome="error", code="judge_timeout", reason="too slow")
    score = min(1.0, length / 100)
    return Opinion(outcome="pass" if score >= 0.8 else "fail", score=score, reason=f"it has {length} letters")


@pytest.fixture(scope="module")
def sample() -> Calibration:
    """The starter set before that judge."""
    items = read_labels([starter_labels()]).items
    return summarize_calibration([JudgedAnswer(item=item, opinion=likes_length(item)) for item in items], threshold=0.8)


def hostile() -> Calibration:
    items = [
        JudgedAnswer(
            item=LabelledAnswer(
                answer={"a": HOSTILE} if index % 2 else HOSTILE, criterion=HOSTILE, label=bool(index % 2), context=[HOSTILE],
                id=f"{index}{HOSTILE}", tags=(HOSTILE,), why=HOSTILE,
            ),
            opinion=Opinion(
                outcome=("pass", "fail", "error")[index % 3], score=0.5, reason=HOSTILE, code=None,
                details={"judge": HOSTILE, "models": [HOSTILE], "prompt_version": HOSTILE},
            ),
        )
        for index in range(12)
    ]  # fmt: skip
    return summarize_calibration(items, threshold=0.8)


def test_the_text_has_the_finding_the_table_and_every_kind_of_disagreement(sample: Calibration) -> None:
    text = render_calibration(sample)
    table = sample.table
    assert f" · {len(sample.items)} labelled answers, 66 right and 66 wrong" in text
    assert re.search(rf"labelled right +{table.true_pass} +{table.false_fail}\n", text)
    assert re.search(rf"labelled wrong +{table.false_pass} +{table.true_fail}\n", text)
    assert "undecided: 6 judge_timeout (neither right nor wrong)" in text
    assert f"False passes ({table.false_pass})" in text and f"False fails ({table.false_fail})" in text
    assert "← present" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    assert "\x1b[1m" in render_calibration(sample, colour=True)


def test_long_lists_are_cut_in_the_text_with_a_note(sample: Calibration) -> None:
    assert f"and {sample.table.false_pass - 20} more, which the JSON and HTML reports list" in render_calibration(sample)


def test_the_json_carries_every_item_and_every_figure(sample: Calibration) -> None:
    document = json.loads(render_calibration_json(sample))
    assert document["schema"] == "proctor.calibration/1"
    assert document["items"] == len(document["results"]) == 132
    assert document["labels"] == {"right": 66, "wrong": 66}
    assert document["decided"] == 126 and document["undecided"] == {"judge_timeout": 6}
    assert sum(document["table"].values()) == 126
    low, high = document["figures"]["kappa"]["interval"]
    assert low <= document["figures"]["kappa"]["value"] <= high
    assert document["threshold"] == document["cut"]["present"] == 0.8
    assert all({"threshold", "accuracy", "kappa", "table"} <= row.keys() for row in document["sweep"])
    undecided = [row for row in document["results"] if row["outcome"] == "error"]
    assert {(row["agrees"], row["score"], row["code"]) for row in undecided} == {(None, None, "judge_timeout")}


def test_the_json_can_be_read_whatever_the_answers_hold() -> None:
    document = json.loads(render_calibration_json(summarize_calibration([judged(True, 0.9, answer=[10**40, "\ud83d"])], threshold=0.8)))
    assert document["results"][0]["answer"][0] == 10**40
    assert json.loads(render_calibration_json(hostile()))["items"] == 12


def test_the_page_holds_no_script_loads_nothing_and_escapes_everything() -> None:
    text = render_calibration_html(hostile())
    page = Page(text)
    assert not [tag for tag, _ in page.elements if tag in ("script", "img", "iframe", "object", "form", "base", "a")]
    assert not [attrs for _, attrs in page.elements if any(name.startswith("on") or name in ("style", "src") for name in attrs)]
    # Besides the empty icon, only symbols of the page itself.
    assert {attrs["href"] for _, attrs in page.elements if "href" in attrs} <= {"data:,", "#m-fail", "#m-uncertain"}
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]+'; img-src data:; base-uri 'none'; form-action 'none'", page.policy
    )
    assert "alert(1)" in page.seen, "it is shown, as text"
    assert "\x1b" not in text and "\u202e" not in text
    text.encode("utf-8")


def test_the_terminal_does_not_obey_an_answer() -> None:
    text = render_calibration(hostile())
    assert "\x1b" not in text and "\u202e" not in text
    text.encode("utf-8")


def test_the_page_shows_what_the_text_shows(sample: Calibration) -> None:
    page = Page(render_calibration_html(sample))
    opened = [attrs for tag, attrs in page.elements if tag == "details" and "row" in (attrs.get("class") or "")]
    assert len(opened) == len(sample.false_passes) + len(sample.false_fails) + len(sample.without_decision)
    seen = " ".join(page.seen.split())
    for one in sample.false_fails:
        assert one.item.name in seen and one.item.why in seen
    assert "too slow" in seen and "6 judge_timeout" in seen
    assert "By tag" in seen and "Accuracy and kappa for every threshold" in str(page.elements)


def test_many_items_are_bounded_on_the_page() -> None:
    text = render_calibration_html(summarize_calibration([judged(False, 0.9, answer=f"{n}") for n in range(700)], threshold=0.8))
    assert "and 200 more, which the JSON report lists" in text


@pytest.mark.parametrize(
    ("items", "threshold", "sentence"),
    [
        ([], 0.8, "decided nothing"),
        ([judged(True, 0.9)], 0.8, "kappa means nothing"),
        ([judged(True, 0.9), judged(False, 0.1)], None, "yes or no"),
        ([judged(False, 0.9), judged(True, 0.1)], 0.8, "(kappa -1.00, "),
    ],
    ids=["nothing", "one item", "yes or no", "all wrong"],
)
def test_every_report_handles_very_few_answers(items: list[JudgedAnswer], threshold: float | None, sentence: str) -> None:
    found = summarize_calibration(items, threshold=threshold)
    text, page = render_calibration(found), Page(render_calibration_html(found)).seen
    assert sentence in text or sentence in page
    assert json.loads(render_calibration_json(found))["schema"] == "proctor.calibration/1"


def test_the_advice_follows_the_cut() -> None:
    separated = [judged(bool(n % 2), 0.6 + n / 1000 if n % 2 else 0.1 + n / 1000) for n in range(60)]
    found = summarize_calibration(separated, threshold=0.8)
    assert found.cut is not None
    assert "Move the threshold from 0.8 to 0." in render_calibration(found)
    assert "chosen 0." in render_calibration_html(found)
    steady = summarize_calibration([judged(bool(n % 2), 0.9 if n % 2 else 0.1) for n in range(60)], threshold=0.8)
    assert "Keep the threshold 0.8: none is better." in render_calibration(steady)


def test_a_judge_that_decided_nothing_is_reported_once() -> None:
    away = Opinion(outcome="error", reason='the judge "m" could not be reached: connection refused', code="judge_unreachable")
    items = [
        JudgedAnswer(item=LabelledAnswer(answer=f"a{n}", criterion="c", label=n % 2 == 0, id=f"i{n}"), opinion=away) for n in range(30)
    ]
    text = " ".join(render_calibration(summarize_calibration(items, threshold=0.8)).split())
    assert text.count("could not be reached") == 1
    assert "Undecided (30)" in text and "i3" not in text

    other = JudgedAnswer(item=items[0].item, opinion=Opinion(outcome="error", reason="uncertain", code="judge_uncertain"))
    text = render_calibration(summarize_calibration([*items[1:3], other], threshold=0.8))
    assert "i0" in text and "i1" in text


@pytest.mark.parametrize(("times", "tone"), [(1, "uncertain"), (40, "pass")])
def test_the_mark_of_a_kappa_needs_the_whole_interval(times: int, tone: str) -> None:
    found = summarize_calibration([judged(True, 0.9), judged(False, 0.1)] * times, threshold=0.8)
    assert build_calibration(found, "terminal").verdict == (tone, "kappa 1.00")
