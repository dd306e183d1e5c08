"""The fast engine gets only patterns proven cheap, and must agree with the slow one."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.patterns import script_engine
from proctor.patterns.engine import BUDGET, Pattern, compile_pattern, compute_search_cost, find_longest_text
from proctor.patterns.plain_syntax import Choice, Node, Sequence, read_plain
from tests.tables import load, rows

TEXTS = (
    "", "a", "aab", "hello world", "Hello\nWorld", "Refund  processed", "order #17", "on 2026-11-15.", "$12.50", "me@mail.com x",
    "ORD-17", "done", "ab\ndone\n", "a,b,b;", "yes and no", "colour", "\t\n\r\f\v/AB-]", "<b>x</b>", "kK sS", "é ß À à", "a\u2028b",
    "😀", "a😀b", "\u017f\u212a", "aaaa!", "abab", "x y", "1kg", "  bar", "A-Z_09",
)  # fmt: skip


def engines(source: str, flags: str) -> tuple[Pattern, Pattern] | None:
    """The pattern on both engines, if the fast one supports it."""
    plain = read_plain(source, flags)
    limit = 0 if plain is None else find_longest_text(plain.node)
    if limit == 0:
        return None
    script_engine.validate(source, flags)
    return Pattern(source, flags, plain, limit), Pattern(source, flags, plain, 0)


@rows("patterns/cases/evil.yaml")
def test_an_evil_pattern_never_reaches_the_fast_engine(row: dict[str, Any]) -> None:
    pattern = compile_pattern(row["pattern"], row.get("flags", ""))
    if row["exponential"]:
        assert pattern.fast_limit == 0
    else:
        assert 0 < pattern.fast_limit <= 3_000


@rows("patterns/cases/evil.yaml")
def test_the_longest_text_the_fast_engine_may_see_is_searched_in_time(row: dict[str, Any]) -> None:
    pattern = compile_pattern(row["pattern"], row.get("flags", ""))
    text = (row["attack"] * 3_000)[: max(0, pattern.fast_limit - 1)] + "!"
    began = time.process_time()
    if pattern.fast_limit:
        pattern.search(text)
    assert time.process_time() - began < 1


@rows("patterns/cases/plain.yaml")
def test_everyday_patterns_are_fast_where_that_is_safe(row: dict[str, Any]) -> None:
    assert (compile_pattern(row["pattern"], row.get("flags", "")).fast_limit >= 1_000) == row["fast"]


def test_the_engines_agree_on_the_corpus() -> None:
    searched = [row["given"] for row in load("patterns/cases/search.yaml")]
    admitted = 0
    for row in [*load("patterns/cases/plain.yaml"), *load("patterns/cases/evil.yaml"), *searched]:
        for flags in {row.get("flags", ""), "", "i", "u"}:
            both = engines(row["pattern"], flags)
            if both is None:
                continue
            admitted += 1
            for text in TEXTS:
                assert both[0].search(text) == both[1].search(text), (row["pattern"], flags, text)
    assert admitted > 100


ATOMS = st.sampled_from([
    "a", "b", "A", "k", "s", " ", "1", ".", r"\d", r"\w", r"\s", r"\S", r"\W", r"\D", r"\b", r"\B", "^", "$", "[ab]", "[^ab]", "[a-c]",
    r"[^\w]", r"[\w-]", "[]", "[^]", r"\n", r"\.", "é", "[à-ü]", "[^é]", r"\x41", r"\u00e9", "-", "[.]", r"[a\-z]", r"[\d\s]", r"[\b]",
    "[k-z]", "[^K]", r"[\S]",
])  # fmt: skip
QUANTIFIERS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,3}?", "{0}"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        inner.map("(?:{})".format),
        st.tuples(inner.map("(?:{})".format), QUANTIFIERS).map("".join),
        st.tuples(inner.map("({})".format), QUANTIFIERS).map("".join),
        st.tuples(ATOMS, QUANTIFIERS).map("".join),
    )


@given(
    st.recursive(ATOMS, grown, max_leaves=8),
    st.sampled_from(["", "i", "m", "s", "u", "iu", "im"]),
    st.text(alphabet="aabbcAZkKsS 1\n\r.é\u2028ßàÀ-_\b\u017f\u212a😀", max_size=14),
)
@settings(max_examples=400, deadline=None)
def test_the_engines_agree_on_what_the_analysis_admits(source: str, flags: str, text: str) -> None:
    both = engines(source, flags)
    if both is not None:
        assert both[0].search(text) == both[1].search(text)


def test_the_bound_grows_with_the_text_and_the_pattern() -> None:
    def node(source: str) -> Node:
        plain = read_plain(source, "")
        assert plain is not None
        return plain.node

    assert compute_search_cost(node("ab"), 100) < compute_search_cost(node("ab"), 200) < compute_search_cost(node(r"\s+ab"), 200)
    assert compute_search_cost(node("a*a*b"), 1_000) > BUDGET
    assert compute_search_cost(node(r"^\s+ab"), 1_000) < compute_search_cost(node(r"\s+ab"), 1_000)
    assert isinstance(node("a|b"), Choice) and isinstance(node(""), Sequence)
