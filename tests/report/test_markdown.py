"""Markdown, rendered by a real renderer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from proctor.model.case import Case
from proctor.model.evidence import Source
from proctor.model.problem import Problem
from proctor.model.result import CaseResult, RunResult
from proctor.model.verdict import failed
from proctor.report.builders.run import render_markdown
from proctor.report.document.markdown import MOST_CHARACTERS
from proctor.report.words.neutral import to_one_line, write_code, write_fenced, write_plain
from tests.report import samples
from tests.report.golden import assert_golden
from tests.report.strategies import runs, words

GITHUB = MarkdownIt("gfm-like", {"html": True})
# GitHub links only addresses with a scheme or `www.`; a bare `example.com` stays text.
GITHUB.linkify.set({"fuzzy_link": False})  # type: ignore[union-attr]  # the preset turns it on


def tokens(markdown: str) -> Iterator[Token]:
    for token in GITHUB.parse(markdown):
        yield token
        yield from token.children or ()


def seen(markdown: str) -> str:
    """The text a reader sees, with the invisible spaces taken out."""
    return "".join(t.content for t in tokens(markdown) if t.type in ("text", "code_inline", "text_special")).replace("\u200b", "")


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("troubled_markdown.txt", samples.troubled_run()),
        ("calm_markdown.txt", samples.calm_run()),
        ("empty_markdown.txt", samples.run_of()),
    ],
)
def test_the_text_matches_the_golden_file(name: str, run: RunResult) -> None:
    assert_golden(name, render_markdown(run))


@given(words)
@settings(max_examples=150, deadline=None)
def test_any_text_is_seen_as_the_characters_it_has(text: str) -> None:
    expected = to_one_line(text).strip()
    for frame in ("{}", "- {}", "## {}", "| {} |\n|---|", "**{}**"):
        if not expected and frame == "**{}**":
            continue
        # Inside a longer paragraph, so that the result does not depend on its position.
        assert seen(frame.format(write_plain(text))) == expected
    assert seen(f"| {write_code(text)} |\n|---|") == expected


@given(words)
@settings(max_examples=100, deadline=None)
def test_any_text_brings_no_markup_of_its_own(text: str) -> None:
    allowed = {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert {token.type for token in tokens(f"x {write_plain(text)} x")} <= allowed
    found = [token for token in tokens(write_code(text)) if token.type == "html_inline"]
    assert all(token.content in ("<code>", "</code>") for token in found)


@pytest.mark.parametrize(
    "text", ["@octocat", "ann@example.org", "fixes #12", "https://evil.example/x", "www.evil.example", "GH-12", ":boom:"]
)
def test_text_notifies_no_user_and_links_nothing(text: str) -> None:
    rendered = GITHUB.render(write_plain(text))
    assert "<a" not in rendered
    assert not re.search(r"@\w|#\d|://|(?i:gh-\d)|www\.|:boom:", re.sub(r"&#\d+;", "", rendered))


@given(words)
@settings(max_examples=25, deadline=None)
def test_a_fence_is_longer_than_any_inside(text: str) -> None:
    lines = [to_one_line(text), "`````", "last"]
    block = list(tokens("\n".join(write_fenced(lines))))
    assert [token.type for token in block] == ["fence"]
    assert block[0].content == "\n".join(lines) + "\n"


def test_failures_stand_first_and_passes_last() -> None:
    marks = re.findall(r"^\| (\S+) \| ", render_markdown(samples.troubled_run()), re.MULTILINE)
    assert marks[:8] == ["❌", "❌", "💥", "💥", "⏭️", "✅", "✅", "✅"]


def test_rows_are_bounded_and_the_rest_is_counted() -> None:
    text = render_markdown(samples.run_of(*[samples.passing_case(f"case-{n}", "") for n in range(250)]))
    assert text.count("| ✅ |") == 200
    assert "… and 50 more cases." in text


def test_details_are_bounded_and_the_rest_is_counted() -> None:
    case = [Case(id=f"c{n}", assertions=(samples.claim("holds"),)) for n in range(30)]
    text = render_markdown(samples.run_of(*[samples.decided(entry, failed("expected 1, found 2")) for entry in case]))
    assert text.count("#### ") == 20
    assert "… and 10 more that did not pass." in text


def test_the_text_stays_below_what_a_comment_may_hold() -> None:
    label, reason = "@x" * 250, "\x1b|" * 5000
    claims = (samples.claim(label),) * 12
    results = [
        samples.decided(
            Case(id=f"{n}" + "|" * 300, name="<" * 300, assertions=claims, tags={"test_dimension": f"{n}" + "|" * 99}),
            *[failed(reason)] * 12,
        )
        for n in range(300)
    ]
    run = samples.run_of(*results, warnings=(Problem(message="&" * 500),) * 50, unmatched_evidence=("$" * 500,) * 50)
    text = render_markdown(run)
    assert len(text) <= 65_536
    assert len(text) > MOST_CHARACTERS // 4
    assert "more cases." in text and "more that did not pass." in text


def test_a_run_without_a_summary_has_one_row_per_result() -> None:
    run = RunResult(suite_name="s", outcome="pass", counts={"pass": 2}, cases=(samples.passing_case(), samples.passing_case()))
    assert render_markdown(run).count("`greeting`") == 2


def test_a_summary_without_results_has_one_row_per_case() -> None:
    run = samples.troubled_run()
    bare = RunResult(suite_name="s", outcome="fail", counts=run.counts, summary=run.summary)
    assert "| ❌ | `refund-twice` · The customer was charged twice | 0 of 1 passed |" in render_markdown(bare)


def test_a_hostile_case_breaks_neither_table_nor_list() -> None:
    evil = "a | b\n| c | <img src=x onerror=alert(1)> ``` @octocat \\| `x` <!--"
    case = Case(id=evil, name=evil, assertions=(samples.claim(evil, file=evil),), tags={"test_dimension": evil})
    run = samples.run_of(samples.decided(case, failed(f"{evil}\n```\n# out", pointers=(evil,)), source=Source(file=evil)), suite_name=evil)
    found = list(tokens(render_markdown(run)))
    assert {t.content for t in found if t.type == "html_inline"} <= {"<code>", "</code>"}
    assert not [t for t in found if t.type in ("html_block", "link_open", "image")]
    assert [t.type for t in found].count("td_open") == 4 + 2
    assert [t.type for t in found].count("fence") == 1
    assert [t.type for t in found].count("heading_open") == 4


@given(runs())
@settings(max_examples=25, deadline=None)
@pytest.mark.timeout(60)
def test_any_run_renders_with_whole_tables_and_nothing_of_strangers(run: RunResult) -> None:
    text = render_markdown(run)
    text.encode()
    found = list(tokens(text))
    assert {t.content for t in found if t.type == "html_inline"} <= {"<code>", "</code>"}
    assert not [t for t in found if t.type in ("html_block", "link_open", "image", "hr", "blockquote_open", "ordered_list_open")]
    fences = sum(len(list(result.failures())) for result in run.cases if result.outcome in ("fail", "error"))
    assert [t.type for t in found].count("fence") == fences


def test_advisory_failures_are_not_the_finding_of_a_case() -> None:
    case = Case(id="c", assertions=(samples.claim("advice", advisory=True), samples.claim("holds")))
    text = render_markdown(samples.run_of(samples.decided(case, failed("a"), failed("b"))))
    assert "| fail | holds: b |" in text


def test_results_of_unreadable_records_are_named_by_their_place() -> None:
    record = CaseResult(
        Case(id=""), "error", None, (), source=Source(file="a.jsonl", line=2), code="unreadable_evidence", reason="not JSON"
    )
    assert "#### 💥 `a.jsonl:2`" in render_markdown(samples.run_of(record))
