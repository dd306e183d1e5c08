"""Measures of wording, documents, language, reading ease and personal data: tables, references and properties."""

from __future__ import annotations

import json
import random
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from proctor.checks.answer import json_similar, language_is, pii, readable, similar_to
from proctor.checks.answer.pii import FINDERS, find_personal_data
from proctor.checks.answer.readable import count_syllables, count_text
from proctor.checks.answer.similar_to import measure_edit_distance, measure_rouge_l, measure_token_f1, split_squad_words
from proctor.checks.registry import collect
from proctor.errors import SpecError
from proctor.evidence.reading import read_document
from proctor.model.verdict import Verdict
from tests.tables import rows

REGISTRY = collect([json_similar, language_is, pii, readable, similar_to])
ALPHABETS = ("ab ", "abcdefgh .,'", "the a an cat dog. ", "аб вгд", "漢字かな 語", "éüß İıẞ", "👍🏽🇪🇺 x\u0301\u200d", "0123456789 -")


def decide(name: str, fields: dict[str, Any], **answer: Any) -> Verdict:
    spec = msgspec.convert({key: [one] if _is_single(name, key, one) else one for key, one in fields.items()}, REGISTRY.get(name).spec)
    return REGISTRY.prepare(name, spec)(read_document({"metadata": {}, **answer}, format="plain")[0])


def _is_single(name: str, key: str, value: Any) -> bool:
    """Whether a suite may write one value instead of a list."""
    return isinstance(value, str) and (name, key) in {("similar_to", "text"), ("language_is", "language")}


@rows("checks/cases/measures.yaml")
def test_a_measure_decides(row: dict[str, Any]) -> None:
    answer = {key: row[key] for key in ("text", "body") if row.get(key) is not None}
    verdict = decide(row["check"], row["given"], **answer)
    assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code")), verdict.reason
    assert row.get("reason", "") in verdict.reason


def make_pairs() -> list[tuple[str, str]]:
    """Two hundred and more pairs: generated in several scripts, nearly equal, equal, empty, very long."""
    chance = random.Random(13)

    def text(length: int) -> str:
        letters = chance.choice(ALPHABETS)
        return "".join(chance.choice(letters) for _ in range(length))

    pairs = [(text(chance.randrange(80)), text(chance.randrange(80))) for _ in range(160)]
    for _ in range(60):
        one = text(chance.randrange(1, 120))
        at = chance.randrange(len(one))
        pairs.append((one, one[:at] + text(chance.randrange(5)) + one[at + chance.randrange(4) :]))
    words = ["the", "order", "was", "shipped", "from", "Bonn", "to", "Graz", "and", "not", "refunded", "a", "an"]
    pairs += [(" ".join(chance.choices(words, k=12)), " ".join(chance.choices(words, k=chance.randrange(20)))) for _ in range(40)]
    same = "The order, 17 of them, has LEFT."
    pairs += [("", ""), ("", "a"), ("a", ""), ("the", "an"), ("...", "!!!"), (same, same), (same, same.lower()), ("x" * 3_000, "x" * 2_999)]
    pairs.append((" ".join(chance.choices(words, k=1_500)), " ".join(chance.choices(words, k=1_200))))
    return pairs


def score_squad(expected: str, actual: str) -> float:
    """The F1 of SQuAD 1.1 by its definition, reckoned in fractions: shared words are taken off one by one."""
    wanted, found = split_squad_words(expected), split_squad_words(actual)
    left, shared = list(wanted), 0
    for word in found:
        if word in left:
            left.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = Fraction(shared, len(found)), Fraction(shared, len(wanted))
    return float(2 * precision * recall / (precision + recall))


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_the_measures_equal_their_references_over_a_table() -> None:
    from rouge_score.rouge_scorer import RougeScorer  # takes seconds, even in workers that only collect tests

    rouge = RougeScorer(["rougeL"], use_stemmer=False)
    pairs = make_pairs()
    assert len(pairs) >= 200
    for one, other in pairs:
        assert measure_edit_distance(one, other) == pytest.approx(Levenshtein.normalized_similarity(one, other), abs=1e-9)
        assert measure_rouge_l(one, other) == pytest.approx(rouge.score(one, other)["rougeL"].fmeasure, abs=1e-9)
        assert measure_token_f1(one, other) == pytest.approx(score_squad(one, other), abs=1e-9)


def test_token_f1_equals_the_figures_of_dspy() -> None:
    """The figures are recomputed with the package by `make framework-pages`."""
    table = json.loads((Path(__file__).parent / "cases/token_f1.json").read_text(encoding="utf-8"))
    assert len(table["rows"]) >= 280
    for expected, actual, figure in table["rows"]:
        assert measure_token_f1(expected, actual) == pytest.approx(figure, abs=1e-9), (expected, actual)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The quick, brown fox!", ["quick", "brown", "fox"]),
        ("A.B. said: an ant", ["ab", "said", "ant"]),
        ("an-other the-atre", ["another", "theatre"]),
        ("don't “quote” it…", ["dont", "“quote”", "it…"]),
        ("  THE the a AN  ", []),
    ],
)
def test_words_are_normalised_as_squad_does_it(text: str, words: list[str]) -> None:
    """Only ASCII punctuation is removed, before articles: the parts it joined become one word."""
    assert split_squad_words(text) == words


some_text = st.text(alphabet=st.sampled_from("aábt heTAN.,'漢дİ👍\u0301 "), max_size=40)


@given(some_text, some_text)
@settings(max_examples=150, deadline=None)
def test_a_similarity_is_a_share_the_same_both_ways_and_whole_for_equal_texts(one: str, other: str) -> None:
    for measure in (measure_edit_distance, measure_token_f1, measure_rouge_l):
        assert 0 <= measure(one, other) <= 1
        assert measure(one, other) == pytest.approx(measure(other, one), abs=1e-12)
    assert measure_edit_distance(one, one) == 1
    assert (measure_edit_distance(one, other) == 1) == (one == other)


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def share(expected: Any, actual: Any) -> float:
    equal = [json_similar._is_equal(left, right) for left, right, _ in json_similar._pair_leaves(expected, actual)]
    return sum(equal) / len(equal)


@given(documents, documents)
@settings(max_examples=200, deadline=None)
def test_a_document_is_wholly_similar_to_itself_and_to_no_other(one: Any, other: Any) -> None:
    assert share(one, one) == 1
    assert 0 <= share(one, other) <= 1
    assert share(one, other) == share(other, one)
    typed = msgspec.json.encode(one, order="sorted"), msgspec.json.encode(other, order="sorted")
    assert (share(one, other) == 1) == (typed[0] == typed[1])


def test_a_document_as_deep_as_can_be_read_is_compared() -> None:
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    assert share(deep, deep) == 1
    while isinstance(deep, list):  # dismantled in a loop: Python itself would recurse
        deep = deep.pop()


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("similar_to", {"text": "a", "at_least": 0}, "at_least"),
        ("similar_to", {"text": "a", "at_least": 1.1}, "at_least"),
        ("similar_to", {"text": [], "at_least": 1}, "text"),
        ("similar_to", {"text": "a"}, "at_least"),
        ("similar_to", {"text": "a", "at_least": 1, "most_edits": 1}, "at_least"),
        ("similar_to", {"text": "a", "most_edits": -1}, "most_edits"),
        ("similar_to", {"text": "a", "most_edits": 1, "measure": "rouge_l"}, "most_edits"),
        ("similar_to", {"text": ["ok", "the ..."], "at_least": 1, "measure": "token_f1"}, "text.1"),
        ("similar_to", {"text": "привет", "at_least": 1, "measure": "rouge_l"}, "text.0"),
        ("json_similar", {"value": 1, "at_least": float("nan")}, "at_least"),
        ("language_is", {"language": "english"}, "language.0"),
        ("language_is", {"language": []}, "language"),
        ("readable", {}, "ease_at_least"),
        ("readable", {"grade_at_most": float("inf")}, "grade_at_most"),
        ("no_pii", {"kinds": []}, "kinds"),
        ("contains_pii", {"kinds": []}, "kinds"),
    ],
)
def test_an_empty_claim_is_refused_with_its_field(name: str, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        decide(name, fields, text="x")
    assert caught.value.field == field


def test_the_formulas_of_flesch_and_kincaid_are_the_published_ones() -> None:
    counts = count_text("The cat sat on the mat. It was a sunny day.")
    assert (counts.words, counts.sentences, counts.syllables) == (11, 2, 12)
    assert counts.ease == pytest.approx(206.835 - 1.015 * 11 / 2 - 84.6 * 12 / 11, abs=1e-9)
    assert counts.grade == pytest.approx(0.39 * 11 / 2 + 11.8 * 12 / 11 - 15.59, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", 3),
        ("It costs 3.50 at www.shop.example today", 1),
        ("Wait... what?!", 2),
        ('She said "go." He went.', 2),
        ("A title\n\nThen a text.", 2),
        ("You need:\n- a pan\n- an egg\n1. crack it", 4),
        ("Look:\n```\nx = 1. y = 2.\n```\nDone.", 2),
        ("...", 1),
    ],
)
def test_sentences_are_counted(text: str, sentences: int) -> None:
    assert count_text(text).sentences == sentences


@pytest.mark.parametrize(
    ("word", "syllables"),
    [("cat", 1), ("the", 1), ("table", 2), ("makes", 1), ("boxes", 2), ("wanted", 2), ("shipped", 1), ("order", 2), ("beautiful", 3),
     ("there", 1), ("people", 2), ("well-known", 2), ("it's", 1), ("administrative", 5), ("rhythm", 1)],
)  # fmt: skip
def test_syllables_are_counted_by_rule(word: str, syllables: int) -> None:
    assert count_syllables(word) == syllables


def test_a_report_shows_the_form_of_what_was_found_and_not_the_data() -> None:
    verdict = decide("no_pii", {}, text="jo@mail.example.org, DE89 3704 0044 0532 0130 00, 4111 1111 1111 1111")
    encoded = msgspec.json.encode([verdict.reason, verdict.details]).decode()
    assert [one["kind"] for one in verdict.details["found"]] == ["email", "iban", "credit_card"]
    assert not [piece for piece in ("jo@", "3704", "4111") if piece in encoded]


@given(st.text(alphabet=st.sampled_from("a1@.+- DE89()4"), max_size=200))
@settings(max_examples=200, deadline=None)
def test_findings_are_at_the_reported_place(text: str) -> None:
    for found in find_personal_data(text, tuple(FINDERS), frozenset()):
        assert text[found.position :].startswith(found.text)


@pytest.mark.in_turn
@pytest.mark.parametrize("piece", ["a", "a@", "a.b", "+1", "1-", "4 ", "DE89 ", "1.1.", "(555", "1 ", "@a."])
@pytest.mark.timeout(60)
def test_looking_for_personal_data_takes_linear_time(piece: str) -> None:
    def measure(length: int) -> float:
        text = piece * (length // len(piece))
        began = time.process_time()
        find_personal_data(text, tuple(FINDERS), frozenset())
        return time.process_time() - began

    measure(1_000)
    # Four times the text, with a margin for a noisy machine: a quadratic pattern would take sixteen times as long.
    assert measure(200_000) < 10 * measure(50_000) + 0.2
