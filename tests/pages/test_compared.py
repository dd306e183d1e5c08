"""Runs side by side on the page of the service, in the file that `compare` writes, and in a terminal: one family, in one language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from proctor.actions.compare import RunComparison, compare
from proctor.actions.history import list_runs
from proctor.cli.commands import list as list_command
from proctor.cli.compare_html import write_comparison_page
from proctor.cli.compare_terminal import describe_comparison
from proctor.pages.static_files import load_static_files
from proctor.report import drawn_comparison
from proctor.report.catalogue import read_catalogue
from proctor.report.comparison_words import describe_reason
from proctor.report.elements import Element, make
from proctor.report.html_page import read_template
from proctor.rest.view import make_view_app
from proctor.scoring.intervals import Counts
from proctor.scoring.paired import compare_runs
from tests.pages.test_view import keep
from tests.pages.world import BAD, GOOD, decide_all
from tests.report.marked_words import MARKED, ReadTexts, find_unmarked, write_in_capitals

BASE, CANDIDATE = "20261115-090000-a", "20261116-090000-b"
ADDRESS = f"/ui/p/local/compare?runs={BASE},{CANDIDATE}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("shop") / ".proctor"
    keep(home, BASE, decide_all(GOOD), planned=3)
    keep(home, CANDIDATE, decide_all(BAD), planned=3)
    keep(home, "20261116-100000-c", decide_all(GOOD)[:2], ended="interrupted", planned=3)
    return home


def show_page(home: Path) -> str:
    return TestClient(make_view_app(home), base_url="http://127.0.0.1:8000").get(ADDRESS).text


def find_pairs(markup: str) -> list[str]:
    return re.findall(r'<span class="pair">.*?</span></span>', markup)


def test_the_page_and_the_file_have_the_same_tables(home: Path) -> None:
    page, file = show_page(home), write_comparison_page(compare(home, BASE, CANDIDATE))
    assert find_pairs(page) and find_pairs(page) == find_pairs(file)
    for table in ("rows figures several", "rows cases several"):
        heads = [re.findall(f'<table class="{table}"><thead>(.*?)</thead>', text) for text in (page, file)]
        told = [[re.findall(r'scope="col">([^<]+)<', head) for head in found] for found in heads]
        # Answers side by side are a page of their own, which a file cannot lead to.
        assert told[1] and [[name for name in head if name != "Answers"] for head in told[0]] == told[1]
    shared = read_template("compared.css")
    assert shared in file and load_static_files()["compare.css"].body.decode().startswith(shared)


def test_a_change_to_one_part_is_seen_in_both(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_otherwise(before: float, after: float, title: str) -> Element:
        return make("b", "otherwise", f"{before:g} then {after:g}")

    monkeypatch.setattr(drawn_comparison, "draw_dumbbell", draw_otherwise)
    texts = (show_page(home), write_comparison_page(compare(home, BASE, CANDIDATE)))
    assert all('<b class="otherwise">1 then 0</b>' in text for text in texts)


def with_everything(home: Path) -> RunComparison:
    """A comparison in which every part has something to say, with data in capitals."""
    found = compare(home, BASE, "20261116-100000-c")
    priced = msgspec.structs.replace(found, cost=found.latency)
    return write_in_capitals(priced)


def test_every_text_of_a_comparison_is_of_the_catalogue_or_data(home: Path) -> None:
    for found in (with_everything(home), write_in_capitals(compare(home, BASE, CANDIDATE))):
        texts = [
            *ReadTexts(write_comparison_page(found, MARKED)).texts,
            *describe_comparison(found, colour=False, words=MARKED).splitlines(),
        ]
        assert not {text: words for text in texts if (words := find_unmarked(text))}
    for kept in list_runs(home, None):
        shown = list_command.describe_run(write_in_capitals(kept), MARKED)
        assert not find_unmarked(shown)


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {}), ({"a": (5, 5)}, {"a": (5, 5)}), ({"a": (30, 30)}, {"a": (30, 0)}), ({"a": (30, 0)}, {"a": (30, 30)})],
)
@pytest.mark.parametrize("cases", [1, 40])
def test_the_reason_in_english_is_the_one_that_programs_get(before: Any, after: Any, cases: int) -> None:
    sides = [{f"{name}{n}": Counts(*counts) for name, counts in side.items() for n in range(cases)} for side in (before, after)]
    found = compare_runs(*sides)
    assert describe_reason(found, read_catalogue("en")) == found.reason
