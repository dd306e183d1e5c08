"""When spoken words are the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.codecs.speech import normalize
from tests.tables import rows


@rows("codecs/cases/speech.yaml")
def test_a_phrase_is_found(row):
    assert normalize(row["given"]).contains(normalize(row["phrase"])) is row["expect"]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_a_text_contains_itself_unless_it_has_no_words(text):
    spoken = normalize(text)
    assert spoken.contains(spoken) is bool(spoken.begins)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["member", "id", "four", "2", "42", "o'clock", "double"]), max_size=8))
def test_punctuation_and_case_do_not_matter(words):
    assert normalize(", ".join(words).upper() + "!").text == normalize(" ".join(words)).text


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="0123456789", min_size=1, max_size=8))
def test_digits_are_the_same_written_and_spoken(digits):
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    assert normalize(" ".join(names[int(digit)] for digit in digits)).text == normalize(digits).text == normalize(" ".join(digits)).text
