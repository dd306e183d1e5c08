"""The words reports share, and text made harmless."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from proctor.model.evidence import Source, ToolCall
from proctor.model.verdict import Verdict, failed
from proctor.report.words.findings import write_findings
from proctor.report.words.neutral import to_lines, to_one_line, write_plain
from proctor.report.words.style import Style, count_columns, cut_to_width, draw_bar, wrap
from proctor.report.words.wording import count_words, evidence_place, share_words, show_number, split_reason, unmatched_words
from tests.report.strategies import words
from tests.tables import rows


@rows("report/cases/wording.yaml")
def test_words_match_the_table(row: dict[str, Any]) -> None:
    given_, expect = row["given"], row["expect"]
    found: dict[str, Any] = {}
    if "counts" in given_:
        found = {"count_words": count_words(given_["counts"]), "share_words": share_words(given_["counts"])}
    elif "number" in given_:
        found = {"show_number": show_number(given_["number"])}
    elif "reason" in given_:
        parts = split_reason(given_["reason"])
        found = {"split_reason": None if parts is None else [parts.about, parts.expected, parts.found]}
    elif "source" in given_:
        found = {"evidence_place": evidence_place(Source(**given_["source"]))}
    elif "unmatched" in given_:
        found = {"unmatched_words": unmatched_words(given_["unmatched"])}
    assert found == expect


@rows("report/cases/findings.yaml")
def test_details_become_findings_as_in_the_table(row: dict[str, Any]) -> None:
    verdict = failed(row["given"]["reason"], details=row["given"]["details"])
    assert write_findings(verdict) == row["expect"]


def test_details_may_hold_values_of_ours_in_place_of_mappings() -> None:
    verdict = failed("the calls do not fit", details={"missing": (ToolCall(name="pay", arguments={"eur": 9}),)})
    assert write_findings(verdict) == ['missing   pay {"eur":9}']


def test_a_verdict_without_details_has_no_findings() -> None:
    assert write_findings(Verdict("fail", 0.0, "no")) == []


@rows("report/cases/neutral.yaml")
def test_harmful_characters_are_shown_as_their_escape(row: dict[str, Any]) -> None:
    assert to_one_line(row["given"]) == row["expect"]


@rows("report/cases/markdown.yaml")
def test_text_in_markdown_is_escaped_as_in_the_table(row: dict[str, Any]) -> None:
    assert write_plain(row["given"]) == row["expect"]


def test_half_a_surrogate_pair_can_be_written_after_escaping() -> None:
    assert to_one_line("a\ud83d") == "a\\ud83d"


def test_line_breaks_of_every_kind_part_a_longer_text() -> None:
    assert to_lines("a\r\nb\u2028c\x0bd\n\te\n") == ["a", "b", "c", "d", "    e"]


def test_a_text_of_many_lines_is_cut_with_a_note() -> None:
    assert to_lines("\n".join("abc"), most_lines=2) == ["a", "b", "… 1 more lines"]


@given(words)
@settings(max_examples=100, deadline=None)
def test_harmless_text_is_printable_and_stays_as_it_is_when_made_harmless_again(text: str) -> None:
    shown = to_one_line(text, 10_000)
    shown.encode()
    assert "\n" not in shown and "\x1b" not in shown
    assert to_one_line(shown, 100_000) == shown


@given(words)
@settings(max_examples=100, deadline=None)
def test_wrapping_loses_nothing_but_spaces_and_keeps_the_width(text: str) -> None:
    shown = to_one_line(text, 10_000)
    lines = wrap(shown, 30)
    assert "".join(lines).replace(" ", "") == shown.replace(" ", "")
    assert all(count_columns(line) <= 30 for line in lines)
    assert count_columns(cut_to_width(shown, 30)) <= 30


def test_wrapping_keeps_the_indentation_of_a_line() -> None:
    assert wrap("  one two three", 9) == ["  one two", "  three"]


def test_wide_characters_take_two_columns_and_combining_marks_none() -> None:
    assert count_columns("漢字") == 4
    assert count_columns("e\u0301") == 1
    assert wrap("漢字漢字", 4) == ["漢字", "漢字"]


def test_a_bar_is_full_only_at_one_and_empty_only_at_nought() -> None:
    assert draw_bar(0.999, 10) == "█" * 9 + "░"
    assert draw_bar(0.001, 10) == "█" + "░" * 9
    assert draw_bar(1.0, 4) == "████"
    assert draw_bar(0.0, 4) == "░░░░"


def test_colour_is_left_out_where_it_is_not_wanted() -> None:
    assert Style(colour=False).paint("x", "red") == "x"
    assert Style(colour=True).paint("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Style(colour=True).paint("", "red") == ""
