"""Answers of agents rendered from Markdown and JSON: nothing of them becomes markup."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.report.blocks.markdown import MOST_CHARACTERS, draw_rich_text
from proctor.report.words.html_text import write_markup
from tests.pages.markup import Markup


def draw(text: object) -> str:
    return "".join(map(write_markup, draw_rich_text(text)))


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("**sorry**, *really*", "<p><strong>sorry</strong>, <em>really</em></p>"),
        ("# Title #\ntext", '<p class="heading h1"><strong>Title</strong></p><p>text</p>'),
        ("- a\n- b\n  - c", '<ul class="list"><li>a</li><li>b</li><li class="in1">c</li></ul>'),
        ("3. a\n4. b", '<ol class="list" start="3"><li>a</li><li>b</li></ol>'),
        ("> so\n> it is", "<blockquote><p>so\nit is</p></blockquote>"),
        ("`rm -rf`", "<p><code>rm -rf</code></p>"),
        ("|a|b|\n|-|-|\n|1|**2**|", "<td>1</td><td><strong>2</strong></td>"),
        ("```js\n**x** <b>\n```", "<code>**x** &lt;b&gt;</code>"),
        ("[home](https://a.example)", 'home <code class="address">https://a.example</code>'),
        ("[x](javascript:alert) ![y](https://a.example/y.png)", 'y <code class="address">https://a.example/y.png</code>'),
        ("# <script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ('{"a": {"b": "' + "c" * 80 + '"}}', "{\n  &quot;a&quot;: {\n"),
    ],
)
def test_a_small_part_of_markdown_is_rendered(text: str, drawn: str) -> None:
    found = draw(text)
    assert drawn in found and Markup(found).problems == [] and "As sent" in found


@pytest.mark.parametrize("text", ["plain", "2 * 3 * 4", "snake_case_name", "a\nb", "", "<b>not bold</b>"])
def test_text_without_formatting_is_shown_once_and_as_it_is(text: str) -> None:
    found = draw(text)
    assert found.startswith('<div class="rich plain"') and "As sent" not in found and Markup(found).problems == []


def test_values_that_are_no_text_are_json() -> None:
    assert "<pre" in draw({"a": [1, 2]}) and "As sent" not in draw({"a": [1, 2]})


@given(st.text(alphabet="*_`#>-|[]()!<&\"'\n \t1a{}:\u202e\ud800", max_size=300))
def test_no_text_becomes_markup(text: str) -> None:
    assert Markup(draw(text)).problems == []


@pytest.mark.parametrize("piece", ["**", "*a ", "[", "`a", "- ", "|", "_a", ">", "# ", "[a](", "```\n", "|-", "1. "])
def test_long_answers_are_rendered_quickly(piece: str) -> None:
    begun = time.perf_counter()
    draw(piece * (MOST_CHARACTERS // len(piece)))
    draw(piece + " " * MOST_CHARACTERS + "x")
    assert time.perf_counter() - begun < 2
