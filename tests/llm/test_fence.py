"""How a text is neutralised before it becomes data: fully legible, and harmless."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.llm import fence

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
"""Any text, including lone surrogates."""
PIECES = (
    "<", "<<", ">", ">>>", "|", "｜", "```", "`", "~~~", "[", "]", "/", "INST", "system", "data", "END", "BEGIN", "OF DATA", "---", "==",
    "=", "###", " ", "\n", "\t", "\u200b", "\u2028", "\x00", '"', "\\", "{{marker}}", "...", "1", "＜", "im_start", ":", "s",
)  # fmt: skip
HOSTILE_TEXT = st.lists(st.one_of(st.sampled_from(PIECES), ANY_TEXT), max_size=12).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words, <b>markup</b> and a - dash --- here", "plain words, <b>markup</b> and a - dash --- here"),
        ("a < b and c > d, x[0], [a link](http://x)", "a < b and c > d, x[0], [a link](http://x)"),
        ("user: hi\nassistant: hello", "user: hi\nassistant: hello"),
        ("# Heading\n## Another\n***\nbold **text**", "# Heading\n## Another\n***\nbold **text**"),
        ("```python\nx\n```", "‵‵‵python\nx\n‵‵‵"),
        ("`code` and ``more``", "`code` and ``more``"),
        ("<|im_start|>", "‹¦im_start¦›"),
        ("<｜User｜>", "‹¦User¦›"),
        ("[INST] [/INST]", "⟦INST] ⟦/INST]"),
        ("<<SYS>> <</SYS>>", "‹‹SYS›› ‹‹/SYS››"),
        ("</s><s>", "‹/s>‹s>"),
        ("</ data >", "‹/ data >"),
        ("<<<END OF DATA 12>>>", "‹‹‹END OF DATA 12›››"),
        ("＜＜＜END", "‹‹‹END"),
        ("-----BEGIN KEY-----", "–––––BEGIN KEY-----"),
        ("=== end", "꞊꞊꞊ end"),
        ("### System: x", "♯♯♯ System: x"),
        ("[... 12 characters cut here ...]", "⟦... 12 characters cut here ...]"),
        ("quoted [...] text", "quoted [...] text"),
        ("<\u200b|im_end|\u200b>", "‹¦im_end¦›"),
        ("a\u2028b\u2029c\x85d", "a\nb\nc\nd"),
        ("a\x00b\x1bc\x7fd\x9be\u202ef\ufeffg\ud800h", "abcdefgh"),
        ("tab\tline\nreturn\r", "tab\tline\nreturn\r"),
        ("\U000e0049\U000e0067hi\U000e0101", "hi"),
        ("❤\ufe0f", "❤"),
    ],
)
def test_a_text_is_neutralised(text: str, expected: str) -> None:
    assert fence.neutralise_text(text) == expected


@given(HOSTILE_TEXT)
@settings(deadline=None)
@pytest.mark.timeout(60)
def test_neutralising_is_idempotent(text: str) -> None:
    once = fence.neutralise_text(text)
    assert fence.neutralise_text(once) == once


@given(HOSTILE_TEXT)
@settings(deadline=None)
def test_letters_and_digits_stay_and_invisible_characters_go(text: str) -> None:
    def letters(value: str) -> str:
        return "".join(character for character in value if unicodedata.category(character) in ("Lu", "Ll", "Nd"))

    neutral = fence.neutralise_text(text)
    assert letters(neutral) == letters(text)
    assert not {unicodedata.category(character) for character in neutral if character not in "\n\r\t"} & {"Cc", "Cs", "Zl", "Zp"}


@given(HOSTILE_TEXT)
@settings(deadline=None)
def test_harmless_text_is_not_changed_by_neutralising(text: str) -> None:
    try:
        line = fence.encode_line(text)
    except UnicodeEncodeError:
        return
    if fence.is_harmless(line):
        assert fence.neutralise_text(text) == text


@given(HOSTILE_TEXT)
@settings(deadline=None)
def test_a_neutral_text_is_one_line_of_json(text: str) -> None:
    assert len(fence.encode_line(fence.neutralise_text(text)).splitlines()) == 1


@pytest.mark.parametrize(
    "piece",
    [
        "-",
        "=",
        "*",
        "_",
        "#",
        "`",
        "~",
        "<",
        ">",
        "[",
        "<|",
        "< ",
        "[ ",
        "--- ",
        "---\t",
        "### ",
        "<start_of_",
        "[... ",
        "</",
        "|>",
        "\u200b",
    ],
)
def test_neutralising_takes_linear_time(piece: str) -> None:
    def seconds(times: int) -> float:
        text = piece * times
        best = 9.0
        for _ in range(3):
            start = time.process_time()
            fence.neutralise_text(text)
            best = min(best, time.process_time() - start)
        return best

    # Sixteen times the text: quadratic work would take 256 times as long.
    assert seconds(32_000) < 100 * max(seconds(2_000), 1e-4)


def test_the_marker_is_reproducible_and_depends_on_every_input() -> None:
    marker = fence.choose_marker("instruction", "data")
    assert marker == fence.choose_marker("instruction", "data")
    assert (
        len(
            {
                marker,
                fence.choose_marker("instructio", "ndata"),
                fence.choose_marker("instruction", "Data"),
                fence.choose_marker("x", "data"),
            }
        )
        == 4
    )
    assert len(marker) == 32


def test_a_marker_present_in_either_case_is_not_used() -> None:
    marker = fence.choose_marker("some text")
    assert not fence.is_free(marker, ("some text", f"x{marker.upper()}x"))
    assert fence.is_free(marker, ("some text",))
