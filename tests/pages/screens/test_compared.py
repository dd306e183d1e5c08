"""Runs side by side on the page of the service, in the file that `compare` writes, and in a terminal: one family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from proctor.actions.history.compare import RunComparison, compare
from proctor.cli.commands.compare import build_comparison
from proctor.pages.static_files import load_static_files
from proctor.report.document import html as document_html
from proctor.report.document.html import read_template
from proctor.report.words.html_text import Element, make
from proctor.rest.view import make_view_app
from tests.pages.test_view import keep
from tests.pages.world import BAD, GOOD, decide_all

BASE, CANDIDATE = "20261115-090000-a", "20261116-090000-b"
ADDRESS = f"/ui/p/local/compare?runs={BASE},{CANDIDATE}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("shop") / ".proctor"
    keep(home, BASE, decide_all(GOOD), planned=3)
    keep(home, CANDIDATE, decide_all(BAD), planned=3)
    keep(home, "20261116-100000-c", decide_all(GOOD)[:2], ended="interrupted", planned=3)
    return home


def write_comparison_page(found: RunComparison) -> str:
    return document_html.write_html(build_comparison(found, "html"))


def show_page(home: Path) -> str:
    return TestClient(make_view_app(home), base_url="http://127.0.0.1:8000").get(ADDRESS).text


def find_pairs(markup: str) -> list[str]:
    return re.findall(r'<span class="pair">.*?</span></span>', markup)


def test_the_page_and_the_file_have_the_same_tables(home: Path) -> None:
    page, file = show_page(home), write_comparison_page(compare(home, BASE, CANDIDATE))
    assert find_pairs(page) and find_pairs(page) == find_pairs(file)
    for table in ("rows figures several", "rows cases several"):
        heads = [re.findall(f'<table class="{table}"><thead>(.*?)</thead>', text) for text in (page, file)]
        names = [[re.findall(r'scope="col">([^<]+)<', head) for head in found] for found in heads]
        # Answers side by side are a page of their own, which a file cannot lead to.
        assert names[1] and [[name for name in head if name != "Answers"] for head in names[0]] == names[1]
    # At the width of a tablet, reasons stay readable next to several comparisons.
    shared = read_template("compared.css")
    assert ".several tr:has(td + td .pair) .pair svg { display: none; }" in shared
    assert shared in file and load_static_files()["compare.css"].body.decode().startswith(shared)


def test_a_change_to_one_part_is_seen_in_both(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_otherwise(before: float, after: float, title: str) -> Element:
        return make("b", "otherwise", f"{before:g} then {after:g}")

    monkeypatch.setattr(document_html, "draw_dumbbell", draw_otherwise)
    texts = (show_page(home), write_comparison_page(compare(home, BASE, CANDIDATE)))
    assert all('<b class="otherwise">1 then 0</b>' in text for text in texts)
